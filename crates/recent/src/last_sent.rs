//! The responses of the last moments, to compare the order with another one.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::Serialize;

/// So many are kept: at 100 responses a second those of nearly a minute.
const MOST: usize = 5_000;

/// A response as the uplink had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentResponse {
    /// When it was ready to be sent, in nanoseconds after a moment that is the same for all.
    pub ready_ns: u64,
    /// Body bytes.
    pub body_bytes: u64,
    /// From then until its last byte was taken, in nanoseconds.
    pub send_ns: u64,
}

/// The last responses beside what they would have had under another order.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Comparison {
    /// How many there are.
    pub responses: usize,
    /// From the first being ready to the last.
    pub span_s: f64,
    /// Their mean time from ready to sent.
    pub mean_s: f64,
    /// The same under the other order.
    pub other_mean_s: f64,
}

/// The last responses. Usable from many threads.
#[derive(Debug, Default)]
pub struct LastSent(Mutex<VecDeque<SentResponse>>);

impl LastSent {
    /// A response has ended.
    pub fn record(&self, sent: SentResponse) {
        let mut list = self.0.lock();
        if list.len() == MOST {
            list.pop_front();
        }
        list.push_back(sent);
    }

    /// Those that are kept, in the order in which they were ready.
    pub fn list(&self) -> Vec<SentResponse> {
        let mut list: Vec<_> = self.0.lock().iter().copied().collect();
        list.sort_by_key(|sent| sent.ready_ns);
        list
    }
}

impl Comparison {
    /// Of these responses, in the order in which they were ready; `None`: there are none.
    pub fn new(sent: &[SentResponse], other_mean_s: f64) -> Option<Self> {
        let (first, last) = (sent.first()?, sent.last()?);
        let sum_s: f64 = sent.iter().map(|sent| sent.send_ns as f64 / 1e9).sum();
        Some(Self {
            responses: sent.len(),
            span_s: last.ready_ns.saturating_sub(first.ready_ns) as f64 / 1e9,
            mean_s: sum_s / sent.len() as f64,
            other_mean_s,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_and_told_in_the_order_in_which_they_were_ready() {
        let sent = LastSent::default();
        // Each was ready before the one that ended before it.
        for at in (0..MOST as u64 + 10).rev() {
            sent.record(SentResponse { ready_ns: at, body_bytes: 1, send_ns: 1 });
        }
        let ready: Vec<_> = sent.list().iter().map(|sent| sent.ready_ns).collect();
        assert_eq!(ready, (0..MOST as u64).collect::<Vec<_>>());
        let comparison = Comparison::new(&sent.list(), 3.0).expect("there are responses");
        assert_eq!((comparison.responses, comparison.other_mean_s), (MOST, 3.0));
        assert!((comparison.mean_s - 1e-9).abs() < 1e-15, "{comparison:?}");
        assert!(Comparison::new(&[], 3.0).is_none());
    }
}
