//! An ideal link, exact to the byte: one transmission after the other, in integers; a byte that has begun is
//! sent whole.
//!
//! Nothing is lost to rounding between nanoseconds. Work is counted in bits times nanoseconds per second: a
//! byte is 8 * 10^9, and a link of `r` bit/s does `r` in a nanosecond. An end between two nanoseconds is seen
//! at the later one, and the next transmission begins in between.

use workload::rate::{Link, Rate};

/// The work of a byte.
const BYTE: i128 = 8_000_000_000;

/// A link, and the transmission on it.
#[derive(Clone, Debug)]
pub(crate) struct ExactLink {
    rate: Rate,
    /// The changes of the rate; `changed` counts those that have happened.
    changes: Vec<(u64, Rate)>,
    changed: usize,
    /// The time to which `done` refers.
    at_ns: u64,
    /// Work of the transmission done by then. It is negative while the last byte of the one before is sent.
    /// It exceeds `work` by the part of a nanosecond that remains after the end.
    done: i128,
    work: i128,
}

impl ExactLink {
    pub fn new(link: &Link) -> Self {
        let changes = link.changes().to_vec();
        Self { rate: link.first_rate(), changes, changed: 0, at_ns: 0, done: 0, work: 0 }
    }

    /// The rate as the scheduler's type: both crates allow the same range.
    pub fn scheduler_rate(&self) -> scheduler::Rate {
        scheduler::Rate::clamped(self.rate.bits_per_second() as f64)
    }

    /// When the transmission ends or the rate changes, whichever is first.
    pub fn poll_timeout(&self) -> u64 {
        let end_ns = self.end_ns();
        self.change_ns().map_or(end_ns, |change_ns| change_ns.min(end_ns))
    }

    /// Begins a transmission at `now_ns`, after the byte in flight.
    pub fn begin(&mut self, now_ns: u64, bytes: u64) {
        self.advance(now_ns);
        self.done = (self.done - self.work).min(0);
        self.work = i128::from(bytes) * BYTE;
    }

    /// Begins a transmission exactly when the one before ends, at [`ExactLink::end_ns`].
    pub fn follow(&mut self, bytes: u64) {
        self.advance(self.end_ns());
        self.done -= self.work;
        self.work = i128::from(bytes) * BYTE;
    }

    /// When all bytes on the link will have been sent, or were sent.
    pub fn end_ns(&self) -> u64 {
        self.when_done(self.work)
    }

    /// When the first byte of the transmission will have been sent.
    pub fn first_byte_ns(&self) -> u64 {
        self.when_done(self.work.min(BYTE))
    }

    /// Ends the transmission with the byte in flight at `now_ns`; returns the number of bytes begun by then.
    pub fn cut(&mut self, now_ns: u64) -> u64 {
        self.advance(now_ns);
        let bytes = (self.done.clamp(0, self.work) as u128).div_ceil(BYTE as u128);
        self.work = bytes as i128 * BYTE;
        bytes as u64
    }

    /// When the rate changes next.
    pub fn change_ns(&self) -> Option<u64> {
        self.changes.get(self.changed).map(|&(at_ns, _)| at_ns)
    }

    /// Applies the next change of the rate.
    pub fn change(&mut self) {
        if let Some(&(at_ns, rate)) = self.changes.get(self.changed) {
            self.advance(at_ns);
            self.rate = rate;
            self.changed += 1;
        }
    }

    fn advance(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns += elapsed_ns;
        self.done += i128::from(elapsed_ns) * i128::from(self.rate.bits_per_second());
    }

    fn when_done(&self, work: i128) -> u64 {
        let left = (work - self.done).max(0) as u128;
        let ns = left.div_ceil(u128::from(self.rate.bits_per_second()));
        self.at_ns.saturating_add(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> ExactLink {
        ExactLink::new(&Link::constant(text.parse().unwrap()))
    }

    #[test]
    fn what_follows_begins_between_two_nanoseconds() {
        // A byte takes 8/3 us.
        let mut line = line("3mbit");
        line.begin(10, 1);
        let mut ends = vec![line.end_ns()];
        for _ in 0..3 {
            line.follow(1);
            ends.push(line.end_ns());
        }
        assert_eq!(ends, [10 + 2667, 10 + 5334, 10 + 8000, 10 + 10_667]);
        line.begin(10 + 10_667, 1);
        assert_eq!(
            line.end_ns(),
            10 + 10_667 + 2667,
            "what comes at a whole nanosecond begins then, and saves nothing up"
        );
    }

    #[test]
    fn a_byte_in_flight_goes_out_whole_and_what_has_not_begun_does_not_go_out() {
        let mut line = line("8mbit");
        line.begin(0, 100);
        assert_eq!((line.first_byte_ns(), line.end_ns()), (1_000, 100_000));
        assert_eq!((line.cut(2_001), line.end_ns()), (3, 3_000));
        line.begin(2_500, 10);
        assert_eq!((line.cut(2_900), line.end_ns()), (0, 3_000), "it had not begun");
        line.begin(2_900, 2);
        assert_eq!((line.cut(4_000), line.end_ns()), (1, 4_000), "a byte that would begin now has not begun");
    }

    #[test]
    fn a_change_of_the_rate_is_felt_within_a_byte() {
        let link = Link::constant("8kbit".parse().unwrap()).then(1_500_000, "16kbit".parse().unwrap()).unwrap();
        let mut line = ExactLink::new(&link);
        line.begin(0, 3);
        assert_eq!(line.poll_timeout(), 1_500_000);
        line.change();
        assert_eq!((line.change_ns(), line.end_ns()), (None, 2_250_000));
    }
}
