//! How long clients are willing to wait, learned from those that leave.
//!
//! Under overload, first come, first served wastes the site's work. Every request that gets its turn has waited
//! nearly as long as its client is willing to, and the client leaves before the answer is there. The order
//! [`crate::class::QueueOrder::Adaptive`] turns to the newest request before that happens. It has to know how long is too
//! long, and no constant is right: people leave after ten seconds, programs after one or after thirty.
//!
//! The *patience* of a class is the wait that 95 % of its clients are willing to bear. Most waits end before
//! patience does, because the request gets its turn: such a wait says only that the patience was longer (it is
//! censored). The life table of demographers (the actuarial estimate; with cells of no width it is that of Kaplan
//! and Meier, 1958) takes both kinds into account. Time is cut into cells. Each cell counts the requests that
//! waited through it or left in it, and those that left. The part that left is the cell's hazard; the product of
//! one minus hazard is the part of clients that are still there.
//!
//! - A cell's counts are halved when there are many, so that each cell remembers the last few hundred requests that
//!   got so far. A quiet night, in which no request waits, forgets nothing.
//! - Each cell begins with some imaginary requests that did not leave. One client that leaves says nothing about
//!   the others; two do where no others have waited for so long.
//! - A wait shorter than [`LEAST_NS`] is not counted: no client leaves for it. Most requests of a site without
//!   overload wait for less, and cost nothing here.
//!
//! Sources: Mandelbaum and Zeltyn, "Data-stories about (im)patient customers in tele-queues" (2013), estimate
//! patience so; Maurer, "Fail at Scale" (2015), serves the newest first while a queue stands ("adaptive LIFO");
//! Nichols and Jacobson, "Controlling Queue Delay" (2012), judge a queue by the time that packets spend in it, not
//! by its length.

use alloc::{boxed::Box, vec};

/// So many cells to each doubling of time.
const CELLS_PER_DOUBLING: u32 = 4;
/// Cells begin at 2^24 ns, 17 ms.
const LEAST_BITS: u32 = 24;
const LEAST_NS: u64 = 1 << LEAST_BITS;
/// They end at 2^37 ns, 137 s; the last one goes on for ever.
const MOST_BITS: u32 = 37;
const CELLS: usize = ((MOST_BITS - LEAST_BITS) * CELLS_PER_DOUBLING) as usize;
/// Imaginary requests in each cell. One that leaves among these is less than [`MAY_LEAVE`].
const IMAGINARY: f64 = 20.0;
/// A cell that has counted so many halves its counts.
const REMEMBERED: f64 = 400.0;
/// The part of clients that may be less patient than the patience.
const MAY_LEAVE: f64 = 0.05;

/// The life table of a class's clients, and the patience that follows from it.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    cells: Box<[Cell]>,
    patience_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    waited: f64,
    left: f64,
}

impl Default for Patience {
    fn default() -> Self {
        Self { cells: vec![Cell::default(); CELLS].into(), patience_ns: None }
    }
}

impl Patience {
    /// The wait that 95 % of clients are willing to bear, in nanoseconds; `None`: no wait was too long.
    pub fn ns(&self) -> Option<u64> {
        self.patience_ns
    }

    /// A client was there all the time from the one wait to the other. Its patience was longer.
    pub fn handle_stayed(&mut self, from_ns: u64, to_ns: u64) {
        if to_ns >= LEAST_NS {
            self.count(from_ns, to_ns, false);
        }
    }

    /// The same, and then it left.
    pub fn handle_left(&mut self, from_ns: u64, to_ns: u64) {
        if to_ns >= LEAST_NS {
            self.count(from_ns, to_ns, true);
        }
    }

    fn count(&mut self, from_ns: u64, to_ns: u64, left: bool) {
        let (from, to) = (cell(from_ns), cell(to_ns));
        for at in from..=to {
            let cell = &mut self.cells[at];
            // A wait that ended within a cell, but not by its client, says nothing of the rest of the cell.
            if at < to || left {
                cell.waited += 1.0;
            }
            if at == to && left {
                cell.left += 1.0;
            }
            if cell.waited >= REMEMBERED {
                *cell = Cell { waited: cell.waited / 2.0, left: cell.left / 2.0 };
            }
        }
        let mut stay = 1.0;
        let gone = self.cells.iter().position(|cell| {
            stay *= 1.0 - cell.left / (cell.waited + IMAGINARY);
            stay < 1.0 - MAY_LEAVE
        });
        self.patience_ns = gone.map(begin_ns);
    }
}

/// The cell of a wait: the place of its first bit, and the bits that follow.
fn cell(wait_ns: u64) -> usize {
    let wait_ns = wait_ns.max(LEAST_NS);
    let doublings = wait_ns.ilog2();
    let part = (wait_ns >> (doublings - CELLS_PER_DOUBLING.ilog2())) as u32 % CELLS_PER_DOUBLING;
    (((doublings - LEAST_BITS) * CELLS_PER_DOUBLING + part) as usize).min(CELLS - 1)
}

/// Where a cell begins.
fn begin_ns(cell: usize) -> u64 {
    let (doublings, part) = (cell as u32 / CELLS_PER_DOUBLING, cell as u64 % u64::from(CELLS_PER_DOUBLING));
    (LEAST_NS << doublings) / u64::from(CELLS_PER_DOUBLING) * (u64::from(CELLS_PER_DOUBLING) + part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Whether this is the cell in which that wait lies.
    fn is_about(patience: &Patience, wait_ns: u64) -> bool {
        patience.ns() == Some(begin_ns(cell(wait_ns)))
    }

    #[test]
    fn cells_follow_each_other_without_a_hole() {
        for at in 0..CELLS {
            assert_eq!(cell(begin_ns(at)), at);
            assert_eq!(cell(begin_ns(at + 1) - 1), at);
        }
        assert_eq!((cell(0), cell(u64::MAX)), (0, CELLS - 1));
        assert!(begin_ns(CELLS - 1) > 100 * S);
    }

    #[test]
    fn one_client_that_leaves_says_nothing_and_two_do() {
        let mut patience = Patience::default();
        patience.handle_left(0, 10 * S);
        assert_eq!(patience.ns(), None);
        patience.handle_left(0, 10 * S);
        assert!(is_about(&patience, 10 * S), "{patience:?}");
    }

    #[test]
    fn those_that_got_their_turn_sooner_do_not_hide_those_that_left() {
        let mut patience = Patience::default();
        for _ in 0..100_000 {
            patience.handle_stayed(0, S / 2);
        }
        patience.handle_left(0, 10 * S);
        patience.handle_left(0, 10 * S);
        assert!(is_about(&patience, 10 * S));
        // Among many that waited for longer, two that left are no rule.
        let mut patience = Patience::default();
        for _ in 0..100 {
            patience.handle_stayed(0, 20 * S);
        }
        patience.handle_left(0, 10 * S);
        patience.handle_left(0, 10 * S);
        assert_eq!(patience.ns(), None);
    }

    #[test]
    fn of_mixed_clients_the_least_patient_twentieth_decides() {
        let mut patience = Patience::default();
        for i in 0..10_000 {
            // Every 25th leaves after 1 s, every tenth after 3 s, the others after 30 s.
            let wait_ns = if i % 25 == 0 {
                S
            } else if i % 10 == 1 {
                3 * S
            } else {
                30 * S
            };
            patience.handle_left(0, wait_ns);
        }
        assert!(is_about(&patience, 3 * S), "{:?}", patience.ns());
    }

    #[test]
    fn clients_that_become_less_or_more_patient_are_followed() {
        let mut patience = Patience::default();
        for _ in 0..1000 {
            patience.handle_left(0, 20 * S);
        }
        assert!(is_about(&patience, 20 * S));
        for _ in 0..30 {
            patience.handle_left(0, S);
        }
        assert!(is_about(&patience, S), "{:?}", patience.ns());
        for _ in 0..2000 {
            patience.handle_left(0, 20 * S);
        }
        assert!(is_about(&patience, 20 * S), "{:?}", patience.ns());
    }

    #[test]
    fn short_waits_are_not_counted() {
        let mut patience = Patience::default();
        for _ in 0..100 {
            patience.handle_left(0, LEAST_NS - 1);
        }
        assert_eq!(patience.ns(), None);
    }
}
