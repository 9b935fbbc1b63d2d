//! Priority bands: a few priorities that approximate an exact order, for a kernel that supports no more.
//!
//! Band 0 is reserved for handshakes and control traffic and never holds a response. Responses use bands 1
//! and up. The band follows from the remaining work, in the measure of the order in force. Band `i` holds
//! responses between cutoff `i - 2` and cutoff `i - 1`.

use alloc::{vec, vec::Vec};

use crate::order::Order;

/// Number of bands for responses where the kernel has eight bands in all.
pub const RESPONSE_BANDS: u8 = 7;

/// Cutoffs in bytes before any sizes were learned. This eight-band plan measured best for World Cup 1998
/// sizes.
pub const FIRST_CUTOFFS_BYTES: [u64; 6] = [2_000, 5_000, 20_000, 64_000, 200_000, 500_000];

/// Cutoffs of "Implementation of SRPT Scheduling in Web Servers", in bytes remaining.
pub const SRPT_CUTOFFS_BYTES: [u64; 4] = [1_000, 2_000, 5_000, 50_000];

/// Cutoffs of "Implementation of a New Scheduling Policy in Web Servers", as remaining response time in
/// milliseconds.
pub const SRRT_CUTOFFS_MS: [u64; 6] = [100, 500, 1_000, 20_000, 80_000, 1_000_000];

/// The cutoffs between bands: where one band ends and the next begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandPlan {
    cutoffs: Vec<u64>,
}

/// The cutoffs are empty or not strictly increasing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutoffsError;

impl core::fmt::Display for CutoffsError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("cutoffs must be one or more numbers, each larger than the one before")
    }
}

impl core::error::Error for CutoffsError {}

impl BandPlan {
    /// Makes a plan with `cutoffs.len() + 1` bands for responses.
    pub fn new(cutoffs: Vec<u64>) -> Result<Self, CutoffsError> {
        if cutoffs.is_empty() || cutoffs.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(CutoffsError);
        }
        Ok(Self { cutoffs })
    }

    /// Makes the plan that an order uses before any sizes were learned.
    ///
    /// The operator's cutoffs are used where the order can use them, else the order's defaults. Cutoffs are
    /// in bytes, or in milliseconds for orders that estimate times. [`Order::Fsp`] has no measure, so its
    /// plan is meaningless.
    pub fn first(order: Order, given: Option<&[u64]>) -> Self {
        const NS_PER_MS: u64 = 1_000_000;
        let cutoffs = match (order, given) {
            // The measure is 0 (small) or 1 (large), whatever size divides the two.
            (Order::QuickFix, _) => vec![1],
            // Orders that need the path estimate times.
            (order, given) if order.needs_path() => {
                given.unwrap_or(&SRRT_CUTOFFS_MS).iter().map(|ms| ms.saturating_mul(NS_PER_MS)).collect()
            }
            (_, given) => given.unwrap_or(&FIRST_CUTOFFS_BYTES).to_vec(),
        };
        Self::new(cutoffs).unwrap_or_else(|_| Self { cutoffs: FIRST_CUTOFFS_BYTES.to_vec() })
    }

    /// Returns the band of a response with `measure` of work left: 1 or more, never 0.
    pub fn band(&self, measure: u64) -> u8 {
        1 + self.cutoffs.partition_point(|&cutoff| cutoff <= measure).min(254) as u8
    }

    /// The cutoffs, in increasing order.
    pub fn cutoffs(&self) -> &[u64] {
        &self.cutoffs
    }
}

/// Learns the cutoffs from the sizes that the site sends.
///
/// The rule of thumb is that of "Implementation of SRPT Scheduling in Web Servers", section 5. The lowest
/// cutoff is at about the 50th percentile of the requested sizes. The highest leaves the largest 0.5-1 %
/// above it. The cutoffs between are spaced logarithmically.
///
/// Sizes are counted in a histogram with eight cells per octave. Every [`FORGET_EVERY`] sizes all counts are
/// halved, so that the plan follows changes of the site.
#[derive(Clone, Debug)]
pub struct BandLearner {
    cells: [u32; CELLS],
    seen: u32,
    since_forgetting: u32,
}

/// Sizes seen before the first plan is made.
pub const LEARN_FROM: u32 = 200;

/// Number of sizes after which all counts lose half of their weight.
pub const FORGET_EVERY: u32 = 20_000;

const CELLS_AN_OCTAVE: usize = 8;
const CELLS: usize = 64 * CELLS_AN_OCTAVE;
const LOWEST_PERMILLE: u64 = 500;
const HIGHEST_PERMILLE: u64 = 993;

impl Default for BandLearner {
    fn default() -> Self {
        Self { cells: [0; CELLS], seen: 0, since_forgetting: 0 }
    }
}

impl BandLearner {
    /// Counts one response by its measure at its start. Returns true when it is time to make a new plan.
    pub fn handle_seen(&mut self, measure: u64) -> bool {
        self.cells[cell(measure)] += 1;
        self.seen += 1;
        self.since_forgetting += 1;
        if self.since_forgetting >= FORGET_EVERY {
            self.since_forgetting = 0;
            self.seen = 0;
            for cell in &mut self.cells {
                *cell /= 2;
                self.seen += *cell;
            }
        }
        self.seen == LEARN_FROM || (self.seen > LEARN_FROM && self.since_forgetting.is_multiple_of(1000))
    }

    /// Returns a plan with `bands` bands for responses, or `None` while too few sizes were seen. With two
    /// bands, the first holds the smaller half, as in the paper's quick fix.
    pub fn plan(&self, bands: u8) -> Option<BandPlan> {
        if self.seen < LEARN_FROM || bands < 2 {
            return None;
        }
        let lowest = self.quantile(LOWEST_PERMILLE);
        let highest = self.quantile(HIGHEST_PERMILLE);
        let steps = usize::from(bands) - 2;
        let mut cutoffs = Vec::with_capacity(steps + 1);
        for i in 0..=steps {
            // Cells are logarithmic, so equal steps between cells are equal ratios between cutoffs.
            let at = ((highest - lowest) * i).checked_div(steps).map_or(lowest, |above| lowest + above);
            let cutoff = upper_bound(at);
            if cutoffs.last().is_none_or(|&last| last < cutoff) {
                cutoffs.push(cutoff);
            }
        }
        BandPlan::new(cutoffs).ok()
    }

    fn quantile(&self, permille: u64) -> usize {
        let target = (u64::from(self.seen) * permille).div_ceil(1000);
        let mut sum = 0;
        self.cells
            .iter()
            .position(|&count| {
                sum += u64::from(count);
                sum >= target
            })
            .unwrap_or(CELLS - 1)
    }
}

/// The histogram cell of a value: eight cells per octave, by the leading bits.
fn cell(value: u64) -> usize {
    let value = value.max(1);
    let octave = value.ilog2() as usize;
    let within = if octave >= 3 { (value >> (octave - 3)) & 7 } else { (value << (3 - octave)) & 7 };
    octave * CELLS_AN_OCTAVE + within as usize
}

/// The smallest value above a cell.
fn upper_bound(cell: usize) -> u64 {
    let (octave, within) = (cell / CELLS_AN_OCTAVE, (cell % CELLS_AN_OCTAVE) as u128);
    u64::try_from(((8 + within + 1) << octave).div_ceil(8)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn bands_by_remaining_bytes() {
        let plan = BandPlan::new(SRPT_CUTOFFS_BYTES.to_vec()).unwrap();
        for (remaining, band) in [(0, 1), (999, 1), (1_000, 2), (4_999, 3), (5_000, 4), (50_000, 5), (u64::MAX, 5)] {
            assert_eq!(plan.band(remaining), band, "{remaining} bytes remaining");
        }
    }

    #[test]
    fn cutoffs_must_increase() {
        assert_eq!(BandPlan::new(vec![]), Err(CutoffsError));
        assert_eq!(BandPlan::new(vec![5, 5]), Err(CutoffsError));
    }

    #[test]
    fn every_order_begins_with_cutoffs_in_its_own_measure() {
        let given = &[1_000, 50_000][..];
        let ns = |ms: &[u64]| ms.iter().map(|ms| ms * 1_000_000).collect::<Vec<_>>();
        for (order, given_cutoffs, own_cutoffs) in [
            (Order::Srpt, given.to_vec(), FIRST_CUTOFFS_BYTES.to_vec()),
            (Order::Las, given.to_vec(), FIRST_CUTOFFS_BYTES.to_vec()),
            (Order::Srrt, ns(given), ns(&SRRT_CUTOFFS_MS)),
            (Order::Fcf, ns(given), ns(&SRRT_CUTOFFS_MS)),
            (Order::QuickFix, vec![1], vec![1]),
        ] {
            assert_eq!(BandPlan::first(order, Some(given)).cutoffs(), given_cutoffs, "{order}");
            assert_eq!(BandPlan::first(order, None).cutoffs(), own_cutoffs, "{order}");
        }
        assert_eq!(BandPlan::first(Order::Srpt, Some(&[])).cutoffs(), FIRST_CUTOFFS_BYTES, "none is not a plan");
    }

    #[test]
    fn every_value_lies_below_the_bound_of_its_cell_and_not_below_that_of_the_cell_before() {
        for value in (1..9).chain((3..62).flat_map(|octave| [1u64 << octave, (1 << octave) + 1, (2 << octave) - 1])) {
            let cell = cell(value);
            assert!(value < upper_bound(cell), "{value} in cell {cell}");
            assert!(cell == 0 || value + 1 >= upper_bound(cell - 1), "{value} in cell {cell}");
        }
    }

    #[test]
    fn cutoffs_are_learned_between_the_median_and_the_largest_one_percent() {
        let mut learner = BandLearner::default();
        // 50 % of 1 KB, 49 % of 8 KB, 1 % of 1 MB.
        for i in 0..1_000u64 {
            learner.handle_seen(match i % 100 {
                0 => 1 << 20,
                1..50 => 8 << 10,
                _ => 1 << 10,
            });
        }
        let plan = learner.plan(7).unwrap();
        let (first, last) = (plan.cutoffs()[0], *plan.cutoffs().last().unwrap());
        assert_eq!(plan.cutoffs().len(), 6);
        assert!((1 << 10..=1200).contains(&first), "{plan:?}");
        assert!(last > 1 << 20, "the largest 0.7 % are all of one size here, so the cutoff lies above it: {plan:?}");
        assert_eq!(learner.plan(2).unwrap().cutoffs(), &plan.cutoffs()[..1], "two bands: the median");
    }

    #[test]
    fn nothing_is_learned_from_too_little() {
        let mut learner = BandLearner::default();
        for _ in 0..LEARN_FROM - 1 {
            assert!(!learner.handle_seen(1000));
        }
        assert_eq!(learner.plan(7), None);
        assert!(learner.handle_seen(1000));
        assert_eq!(learner.plan(7).unwrap().cutoffs().len(), 1, "one size, one cutoff");
    }
}
