//! Cutoffs between ranks, learned from the sizes of responses.
//!
//! The rule is that of Serpent's own bands ([`scheduler::bands::BandLearner`]). The lowest cutoff is at the median of
//! the sizes, and the highest leaves the largest 0.7 % above it. The cutoffs between are spaced logarithmically.

use scheduler::bands::{BandLearner, LEARN_FROM};

/// Cells of the kernel's histogram of sizes: four an octave.
pub(crate) const SIZE_CELLS: usize = 256;

/// Before any sizes were seen: 21 ranks with logarithmic cutoffs from one packet to 1.5 MB, as measured in the issue's
/// prototype.
const FIRST_LOWEST_BYTES: f64 = 1_500.0;
const FIRST_HIGHEST_BYTES: f64 = 1_500_000.0;

/// The cutoffs between `ranks` ranks before any sizes are known, in bytes, increasing.
pub(crate) fn first_cutoffs(ranks: u32) -> Vec<u32> {
    spaced(FIRST_LOWEST_BYTES, FIRST_HIGHEST_BYTES, ranks)
}

/// The cutoffs between `ranks` ranks for the sizes of a histogram; `None` while it holds too few.
pub(crate) fn learned_cutoffs(cells: &[u64], ranks: u32) -> Option<Vec<u32>> {
    let total: u64 = cells.iter().sum();
    if ranks < 2 || total < u64::from(LEARN_FROM) {
        return None;
    }
    let mut learner = BandLearner::default();
    // The shape of the histogram is what counts. The learner halves its counts from 20,000 sizes on.
    let scale = (total / 10_000).max(1);
    for (cell, &count) in cells.iter().enumerate() {
        for _ in 0..count.div_ceil(scale) {
            learner.handle_seen(middle_bytes(cell));
        }
    }
    let plan = learner.plan(ranks.min(u8::MAX.into()) as u8)?;
    Some(plan.cutoffs().iter().map(|&bytes| bytes.min(u64::from(u32::MAX / 2)) as u32).collect())
}

/// The middle of a cell, in bytes.
fn middle_bytes(cell: usize) -> u64 {
    let (octave, quarter) = (cell / 4, (cell % 4) as u64);
    if octave < 2 {
        return 1 << octave;
    }
    let quarter_bytes = 1u64 << (octave - 2);
    (1u64 << octave) + quarter * quarter_bytes + quarter_bytes / 2
}

fn spaced(lowest: f64, highest: f64, ranks: u32) -> Vec<u32> {
    let steps = ranks.saturating_sub(1);
    let ratio = if steps > 1 { (highest / lowest).powf(1.0 / f64::from(steps - 1)) } else { 1.0 };
    (0..steps).map(|step| (lowest * ratio.powi(step as i32)).round() as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cutoffs_are_spaced_logarithmically() {
        let cutoffs = first_cutoffs(21);
        assert_eq!((cutoffs.len(), cutoffs[0], cutoffs[19]), (20, 1_500, 1_500_000));
        assert!(cutoffs.is_sorted());
        assert_eq!(first_cutoffs(1), Vec::<u32>::new());
        assert_eq!(first_cutoffs(2), [1_500]);
    }

    #[test]
    fn cutoffs_follow_the_sizes() {
        let mut cells = vec![0; SIZE_CELLS];
        // 1 KB, 10 KB and 1 MB: octaves 10, 13 and 20.
        (cells[40], cells[52], cells[80]) = (100_000, 90_000, 10_000);
        let cutoffs = learned_cutoffs(&cells, 7).expect("enough sizes");
        assert_eq!(cutoffs.len(), 6);
        assert!((1_000..2_000).contains(&cutoffs[0]), "{cutoffs:?}");
        assert!(cutoffs[5] > 500_000, "{cutoffs:?}");
        assert!(cutoffs.is_sorted_by(|a, b| a < b), "{cutoffs:?}");
    }

    #[test]
    fn few_sizes_teach_nothing() {
        let mut cells = vec![0; SIZE_CELLS];
        cells[40] = 199;
        assert_eq!(learned_cutoffs(&cells, 7), None);
        cells[40] = 200;
        assert!(learned_cutoffs(&cells, 7).is_some());
        assert_eq!(learned_cutoffs(&cells, 1), None);
    }

    #[test]
    fn the_middle_of_a_cell_is_in_it() {
        assert_eq!(middle_bytes(0), 1);
        assert_eq!(middle_bytes(40), 1024 + 128);
        assert_eq!(middle_bytes(43), 1024 + 3 * 256 + 128);
    }
}
