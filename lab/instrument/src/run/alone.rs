//! Single requests on the idle bed, before the load: the denominators of slowdowns.

use std::{
    thread,
    time::{Duration, Instant},
};

use workload::{
    demand::Demand,
    outcome::{End, Outcome},
    sequence::Request,
    stats::median,
};

use super::measurement::{LoadRun, Measurement};
use crate::{
    LabError,
    bed::TestBed,
    plan::{Group, SingleRequests},
    record::Alone,
};

/// Linux sends this before the first acknowledgement: ten segments.
const FIRST_WINDOW_BYTES: f64 = 14_480.0;

impl Measurement<'_> {
    /// Measures requests for a few sizes, one after the other, by each group of clients.
    pub(super) fn measure_alone(&self, bed: &TestBed) -> Result<Vec<Alone>, LabError> {
        let SingleRequests { files, repeats } = self.plan.single_requests(self.sizes_bytes);
        let mut alone = Vec::new();
        for (file, sources) in files.into_iter().zip(1..) {
            let outcomes = self.ask_for(file, repeats, sources, bed)?;
            for number in 0..self.plan.groups.len() {
                alone.push(self.times(file, number, &outcomes)?);
            }
        }
        Ok(alone)
    }

    /// Requests a file a few times from each group, far enough apart that no request meets another.
    fn ask_for(&self, file: usize, repeats: usize, sources: u8, bed: &TestBed) -> Result<Vec<Outcome>, LabError> {
        let wire_ns = self.plan.wire_ns(self.sizes_bytes[file]) as u64;
        let groups = self.plan.groups.len();
        let longest_ns = self.plan.groups.iter().map(|group| self.round_trips_ns(file, group)).max().unwrap_or(0);
        // Between groups only the link must be free; the next round waits for all.
        let stagger_ns = wire_ns * 2 + 2_000_000;
        let round_ns = (wire_ns + longest_ns + 5_000_000).max(stagger_ns * groups as u64) + wire_ns * 2;
        let requests: Vec<Request> = (0..repeats as u64)
            .flat_map(|round| (0..groups as u64).map(move |group| (round * round_ns + group * stagger_ns, group)))
            .map(|(at_ns, group)| Request {
                at_ns,
                file: file as u32,
                size_bytes: self.sizes_bytes[file],
                group: group as u16,
            })
            .collect();
        let load_run = LoadRun {
            until: Duration::from_nanos(requests.last().map_or(0, |request| request.at_ns)),
            demand: Demand::sequence(requests),
            start: Instant::now() + Duration::from_millis(5),
            drain: Duration::from_secs(30),
            sources,
            patient: true,
        };
        thread::scope(|scope| {
            let driver = scope.spawn(|| self.load(bed, load_run));
            driver.join().map_err(|_| LabError::TestBed("the load generator panicked".to_owned()))?
        })
        .map(|drive| drive.outcomes)
    }

    fn times(&self, file: usize, number: usize, outcomes: &[Outcome]) -> Result<Alone, LabError> {
        let group = &self.plan.groups[number].setting;
        let of_group = || outcomes.iter().filter(|outcome| usize::from(outcome.group) == number);
        let done = || of_group().filter(|outcome| outcome.end == End::Done);
        // Over a path with loss a single request may fail; over any other it must not.
        let failed = of_group().find(|outcome| outcome.end != End::Done);
        if let Some(failed) = failed.filter(|_| group.path.loss == 0.0 || done().next().is_none()) {
            return Err(LabError::Subject(format!(
                "a single request of group `{}` for {} bytes on the idle bed ended as {:?}",
                group.name, failed.size_bytes, failed.end
            )));
        }
        let times_ms = || done().map(|outcome| outcome.response_ns() as f64 / 1e6);
        Ok(Alone {
            group: number as u16,
            size_bytes: self.sizes_bytes[file],
            measured_ms: median(times_ms()),
            least_ms: times_ms().fold(f64::INFINITY, f64::min),
            wire_ms: self.plan.wire_ns(self.sizes_bytes[file]) / 1e6,
        })
    }

    /// Time for the round trips of a request over the group's path. There are two for handshake and request,
    /// those in which the window grows, and one for the end. Each has a margin of twice the jitter.
    fn round_trips_ns(&self, file: usize, group: &Group) -> u64 {
        let growth = (self.sizes_bytes[file] as f64 / FIRST_WINDOW_BYTES + 1.0).log2().ceil();
        let path = &group.setting.path;
        ((3.0 + growth) * (path.rtt_ms + 2.0 * path.jitter_ms) * 1e6) as u64
    }
}
