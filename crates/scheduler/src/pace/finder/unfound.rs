//! Tells that the rate is not found, though much is sent.
//!
//! A router with FQ-CoDel has a queue for each connection, so hardly any round trip meets a long one. Or the lines of the
//! clients are the bottleneck. In both cases TCP sends no more at a higher rate, and the search goes on for ever.

use crate::time::{Instant, MS};

/// The bytes of each minute of a search.
#[derive(Clone, Debug, Default)]
pub(super) struct Unfound {
    /// When this minute began, and how many bytes had been sent then.
    began: Option<(Instant, u64)>,
    is_unfound: bool,
}

const MINUTE_NS: u64 = 60_000 * MS;
/// Much is this part of the rate of the search.
const MUCH: f64 = 0.125;

impl Unfound {
    /// Takes the bytes sent so far, and the rate of the search, in bits per second.
    pub fn handle_turn(&mut self, now: Instant, sent_bytes: u64, bits: f64) {
        let &mut (began, before_bytes) = self.began.get_or_insert((now, sent_bytes));
        let lasted_ns = now.ns_since(began);
        if lasted_ns >= MINUTE_NS {
            let sent_bits = 8e9 * (sent_bytes - before_bytes) as f64 / lasted_ns as f64;
            self.is_unfound |= sent_bits >= MUCH * bits;
            self.began = Some((now, sent_bytes));
        }
    }

    /// Whether the rate was not found in a minute in which much was sent.
    pub fn is_unfound(&self) -> bool {
        self.is_unfound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So much is sent for three minutes in a search at 32 Mbit/s.
    fn search(mbit: f64) -> Unfound {
        let mut unfound = Unfound::default();
        for ms in (0..180_000).step_by(100) {
            let sent_bytes = (ms as f64 * mbit * 125.0) as u64;
            unfound.handle_turn(Instant::from_ns(ms * MS), sent_bytes, 32e6);
        }
        unfound
    }

    #[test]
    fn a_search_that_ends_nowhere_is_told_where_much_is_sent() {
        assert!(!search(2.0).is_unfound());
        assert!(search(8.0).is_unfound());
    }

    #[test]
    fn a_pause_is_no_traffic() {
        let mut unfound = Unfound::default();
        unfound.handle_turn(Instant::from_ns(0), 0, 8e6);
        unfound.handle_turn(Instant::from_ns(30_000 * MS), 20_000_000, 8e6);
        assert!(!unfound.is_unfound(), "that was half a minute");
        unfound.handle_turn(Instant::from_ns(3_600_000 * MS), 20_100_000, 8e6);
        assert!(!unfound.is_unfound());
    }
}
