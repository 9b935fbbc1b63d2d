//! Simulated processor sharing: when would each job be done if the uplink were shared equally?
//!
//! The fair sojourn protocol serves jobs in the order of these completions (Friedman and Henderson 2003,
//! named in "Web Servers Under Overload: How Scheduling Can Help"). The guard against starvation measures
//! stretch against them.
//!
//! Virtual time grows by one byte when every job present has been served one byte. A job of `s` bytes that
//! arrives at virtual time `v` is done at `v + s`, whatever comes later. So its tag never changes, and one
//! sorted set is enough.

use alloc::collections::BTreeSet;

use crate::{job::JobId, time::Instant, units::Rate};

/// Virtual time has units of 2^-10 bytes, so that sharing among a thousand jobs still advances it.
pub(crate) const FRACTION_BITS: u32 = 10;

/// A simulated processor-sharing server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessorSharing {
    /// Virtual time in 2^-10 bytes.
    virtual_time: u64,
    /// Rounding remainder of the last advance, in nanosecond-bits below one unit of virtual time.
    remainder: u128,
    /// The simulation is complete up to here: `seen`, or later while the server is busy with bytes of no job.
    updated: Instant,
    /// The latest time passed in.
    seen: Instant,
    /// Finish tag, order of arrival, job. A job's id is used again once the job is really done, so the order
    /// of arrival tells two jobs apart.
    present: BTreeSet<(u64, u64, JobId)>,
}

impl ProcessorSharing {
    /// Adds a job and returns its tag; the caller has advanced to now.
    pub fn arrive(&mut self, job: JobId, sequence: u64, size_bytes: u64) -> u64 {
        let size = size_bytes.clamp(1, u64::MAX >> (FRACTION_BITS + 1)) << FRACTION_BITS;
        let tag = self.virtual_time.saturating_add(size);
        self.present.insert((tag, sequence, job));
        tag
    }

    /// The virtual time, for jobs without a size.
    pub fn virtual_time(&self) -> u64 {
        self.virtual_time
    }

    /// Removes an aborted job. A job that is really done before its simulated end must stay, or the
    /// completions of the other jobs would be too early.
    pub fn abort(&mut self, job: JobId, sequence: u64, tag: u64) {
        self.present.remove(&(tag, sequence, job));
    }

    /// Advances the simulation to `now`. Calls `done(job, sequence, when)` for every completion, in order. If
    /// the clock was set back, nothing happens until it is where it was: no time is served twice.
    pub fn advance(&mut self, now: Instant, rate: Rate, mut done: impl FnMut(JobId, u64, Instant)) {
        self.seen = self.seen.max(now);
        let now = now.max(self.updated);
        while let Some(&(tag, sequence, job)) = self.present.first() {
            let elapsed_ns = u128::from(now.ns_since(self.updated));
            let jobs = self.present.len() as u128;
            // One unit of virtual time takes `unit` nanosecond-bits: 8 bits * 1e9 ns * jobs / 2^10 bytes.
            let unit = 8_000_000_000 * jobs;
            let progress = ((elapsed_ns * u128::from(rate.bits_per_second())) << FRACTION_BITS) + self.remainder;
            let needed = u128::from(tag - self.virtual_time) * unit;
            if progress < needed {
                self.virtual_time += (progress / unit) as u64;
                self.remainder = progress % unit;
                self.updated = now;
                return;
            }
            let per_ns = u128::from(rate.bits_per_second()) << FRACTION_BITS;
            let ns = (needed.saturating_sub(self.remainder)).div_ceil(per_ns);
            self.remainder = (ns * per_ns + self.remainder).saturating_sub(needed);
            self.updated = self.updated.add_ns(ns as u64);
            self.virtual_time = tag;
            self.present.pop_first();
            done(job, sequence, self.updated);
        }
        self.remainder = 0;
        self.updated = now;
    }

    /// Makes the simulated server busy for `ns` with bytes of no job. The caller has advanced to now.
    pub fn occupy(&mut self, ns: u64) {
        self.updated = self.updated.add_ns(ns);
    }

    /// Changes the rate: bytes of no job then take less or more time. The caller has advanced to now at the
    /// old rate.
    pub fn handle_rate(&mut self, old: Rate, new: Rate) {
        let busy_ns = self.updated.ns_since(self.seen);
        self.updated = self.seen.add_ns(new.ns_for(old.bytes_in(busy_ns)));
    }

    /// Ends the time for bytes of no job at `at` at the latest.
    pub fn occupied_until_at_most(&mut self, at: Instant) {
        self.updated = self.updated.min(at.max(self.seen));
    }

    /// Number of jobs in the simulation.
    pub fn len(&self) -> usize {
        self.present.len()
    }

    /// Whether the simulation has no jobs.
    pub fn is_idle(&self) -> bool {
        self.present.is_empty()
    }

    /// Restarts at zero: when no job is left, simulated or real, so that virtual time never overflows; and
    /// when the order changes. The time for bytes of no job stays.
    pub fn clear(&mut self, now: Instant) {
        *self = Self { updated: self.updated.max(now), seen: self.seen.max(now), ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use alloc::{vec, vec::Vec};

    use proptest::{collection::vec as some, prelude::*};

    use super::*;

    const MS: u64 = 1_000_000;

    fn completions(arrivals: &[(u64, u64)], rate: &str) -> Vec<(u32, u64)> {
        let rate: Rate = rate.parse().unwrap();
        let (mut sharing, mut out) = (ProcessorSharing::default(), Vec::new());
        for (i, &(at_ns, size)) in arrivals.iter().enumerate() {
            sharing.advance(Instant::from_ns(at_ns), rate, |job, _, at| out.push((job.0, at.as_ns())));
            sharing.arrive(JobId(i as u32), i as u64, size);
        }
        sharing.advance(Instant::from_ns(u64::MAX >> 10), rate, |job, _, at| out.push((job.0, at.as_ns())));
        out
    }

    #[test]
    fn alone_a_job_takes_its_size_over_the_rate() {
        assert_eq!(completions(&[(5 * MS, 1250)], "10mbit"), vec![(0, 6 * MS)]);
    }

    #[test]
    fn two_equal_jobs_take_twice_as_long() {
        assert_eq!(completions(&[(0, 1250), (0, 1250)], "10mbit"), vec![(0, 2 * MS), (1, 2 * MS)]);
    }

    #[test]
    fn a_late_small_job_overtakes() {
        // 2500 bytes alone for 1 ms, then shared: the small job is done at 1 + 2 * 0.4 ms, the large one at
        // 2.4 ms.
        assert_eq!(completions(&[(0, 2500), (MS, 500)], "10mbit"), vec![(1, 1_800_000), (0, 2_400_000)]);
    }

    #[test]
    fn a_clock_set_back_serves_no_time_twice() {
        let (mut sharing, mut out, rate) = (ProcessorSharing::default(), Vec::new(), "10mbit".parse().unwrap());
        sharing.arrive(JobId(0), 0, 2500);
        for at_ms in [1, 0, 1, 0, 2] {
            sharing.advance(Instant::from_ns(at_ms * MS), rate, |_, _, at| out.push((at_ms, at.as_ns())));
        }
        assert_eq!(out, vec![(2, 2 * MS)]);
    }

    #[test]
    fn an_idle_gap_does_not_count() {
        assert_eq!(completions(&[(0, 1250), (10 * MS, 1250)], "10mbit"), vec![(0, MS), (1, 11 * MS)]);
    }

    proptest! {
        #[test]
        fn those_who_come_together_end_when_everyone_had_as_much(sizes in some(1..1_000_000u64, 1..100)) {
            let arrivals: Vec<_> = sizes.iter().map(|&size| (0, size)).collect();
            let rate: Rate = "10mbit".parse().unwrap();
            for (job, ended_ns) in completions(&arrivals, "10mbit") {
                let served = sizes.iter().map(|size| size.min(&sizes[job as usize])).sum();
                // Every end is rounded up to a nanosecond, and the next job starts from there.
                prop_assert!(ended_ns.abs_diff(rate.ns_for(served)) <= 1, "{ended_ns} against {}", rate.ns_for(served));
            }
        }

        #[test]
        fn looking_more_often_changes_nothing(
            arrivals in some((0..2 * MS, 1..20_000u64), 1..50),
            looks_ns in some(0..100 * MS, 0..200),
        ) {
            let mut at_ns = 0;
            let arrivals: Vec<_> = arrivals.iter().map(|&(gap_ns, size)| { at_ns += gap_ns; (at_ns, size) }).collect();
            // A look is an event without an arrival.
            let mut events: Vec<_> = arrivals.iter().map(|&(at_ns, size)| (at_ns, Some(size))).collect();
            events.extend(looks_ns.iter().map(|&at_ns| (at_ns, None)));
            events.sort_by_key(|&(at_ns, _)| at_ns);

            let (mut sharing, mut ends) = (ProcessorSharing::default(), vec![0; arrivals.len()]);
            let (rate, mut jobs) = ("10mbit".parse().unwrap(), 0);
            for (at_ns, size) in events.into_iter().chain([(u64::MAX >> 10, None)]) {
                sharing.advance(Instant::from_ns(at_ns), rate, |job, _, at| ends[job.index()] = at.as_ns());
                if let Some(size) = size {
                    sharing.arrive(JobId(jobs), u64::from(jobs), size);
                    jobs += 1;
                }
            }
            for (job, ended_ns) in completions(&arrivals, "10mbit") {
                prop_assert!(ends[job as usize].abs_diff(ended_ns) <= 1_000, "{} against {ended_ns}", ends[job as usize]);
            }
        }
    }
}
