//! Downloads of others, which have a queue on the way to the server.

/// A line on which data comes to the server's site is full from time to time: requests and acknowledgements wait
/// behind downloads of others. The queue is that of one connection with CUBIC before a buffer of packets in their
/// order. It is deterministic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherDownloads {
    /// When the first one begins, in nanoseconds since the start.
    pub from_ns: u64,
    /// When there are no more.
    pub until_ns: u64,
    /// How long each one lasts.
    pub lasts_ns: u64,
    /// From the start of one to that of the next.
    pub every_ns: u64,
    /// The longest wait in the queue. When a packet has found it full, the window falls to 7/10.
    pub most_ns: u64,
    /// Slow start fills the queue in this time.
    pub fills_ns: u64,
}

/// From a full queue to the next one.
const CYCLE_NS: u64 = 5_000_000_000;

impl OtherDownloads {
    /// How long a packet waits that is sent to the server now.
    pub(super) fn wait_ns(&self, now_ns: u64) -> u64 {
        let Some(since_ns) = now_ns.checked_sub(self.from_ns) else { return 0 };
        // None begins after the end.
        let since_ns = since_ns.min(self.until_ns.saturating_sub(self.from_ns + 1));
        let began_ns = self.from_ns + since_ns / self.every_ns * self.every_ns;
        let ended_ns = self.until_ns.min(began_ns + self.lasts_ns);
        // The line works off what is left when a download ends.
        self.wait_of_one_ns(now_ns.min(ended_ns) - began_ns).saturating_sub(now_ns.saturating_sub(ended_ns))
    }

    fn wait_of_one_ns(&self, since_ns: u64) -> u64 {
        let Some(full_ns) = since_ns.checked_sub(self.fills_ns) else { return self.most_ns * since_ns / self.fills_ns };
        let since_full_ns = full_ns % CYCLE_NS;
        let missing = 1.0 - since_full_ns as f64 / CYCLE_NS as f64;
        let climbs_ns = self.most_ns as f64 * (1.0 - 0.3 * missing.powi(3));
        // It falls no faster than the line empties it.
        (climbs_ns as u64).max(self.most_ns.saturating_sub(since_full_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_queue_fills_has_a_sawtooth_and_empties_and_packets_stay_in_order() {
        let downloads = OtherDownloads {
            from_ns: 1_000 * MS,
            until_ns: 22_000 * MS,
            lasts_ns: 8_000 * MS,
            every_ns: 10_000 * MS,
            most_ns: 100 * MS,
            fills_ns: 200 * MS,
        };
        let wait_ms = |at_ms: u64| downloads.wait_ns(at_ms * MS) / MS;
        assert_eq!([0, 1_000, 1_100, 1_200].map(wait_ms), [0, 0, 50, 100]);
        assert_eq!([1_215, 1_230, 6_199, 6_230].map(wait_ms), [85, 70, 99, 70], "the window falls twice");
        let at_end = wait_ms(8_999);
        assert_eq!([9_000 + at_end / 2, 9_000 + at_end + 1].map(wait_ms), [at_end - at_end / 2, 0]);
        assert_eq!([11_000, 11_100, 21_100].map(wait_ms), [0, 50, 50], "the next ones");
        let at_end = wait_ms(21_999);
        assert!(at_end > 70, "{at_end}");
        assert_eq!([22_050, 22_200, 31_100, 90_000].map(wait_ms), [at_end - 50, 0, 0, 0], "there are no more");
        let arrives = |at_ms: u64| at_ms * MS + downloads.wait_ns(at_ms * MS);
        assert!((0..40_000).all(|at_ms| arrives(at_ms) <= arrives(at_ms + 1)));
    }
}
