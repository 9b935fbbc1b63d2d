//! The results of a run, computed from the outcomes of its requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Sample, Summary, alone::AloneTimes, percentile, summarise};
use crate::outcome::{End, Outcome};

/// A counted request, with its time alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// When the request was planned, in nanoseconds since the start of the run.
    pub at_ns: u64,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Number of the client group.
    pub group: u16,
    /// Response time in nanoseconds; a lower bound unless the response is complete.
    pub response_ns: f64,
    /// Response time on an idle system in nanoseconds.
    pub alone_ns: f64,
    /// Time to the first byte in nanoseconds; without a first byte, the time until the end, a lower bound.
    /// `None` for a request of an ideal, which has no bytes.
    pub first_byte_ns: Option<f64>,
    /// Whether the response is complete. If not, `response_ns` is a lower bound.
    pub whole: bool,
}

impl Observation {
    /// Its size and times, for [`summarise`].
    pub fn sample(&self) -> Sample {
        Sample { size_bytes: self.size_bytes, response_ns: self.response_ns, alone_ns: self.alone_ns }
    }
}

/// The requests planned at or after `from_ns` (earlier ones are warm-up), each with its time alone.
pub fn observe(outcomes: &[Outcome], from_ns: u64, alone: &AloneTimes) -> Vec<Observation> {
    let counted = outcomes.iter().filter(|outcome| outcome.at_ns >= from_ns);
    counted
        .map(|outcome| Observation {
            at_ns: outcome.at_ns,
            size_bytes: outcome.size_bytes,
            group: outcome.group,
            response_ns: outcome.response_ns() as f64,
            alone_ns: alone.ns(outcome.group, outcome.size_bytes, outcome.at_ns),
            first_byte_ns: Some(first_byte_ns(outcome).unwrap_or(outcome.response_ns() as f64)),
            whole: outcome.end == End::Done,
        })
        .collect()
}

/// Time to the first byte in nanoseconds, if there was one.
fn first_byte_ns(outcome: &Outcome) -> Option<f64> {
    outcome.first_byte_ns.map(|first_byte_ns| first_byte_ns.saturating_sub(outcome.at_ns) as f64)
}

/// The results of a run. Times in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// All requests; incomplete ones count with the time until their end, a lower bound.
    pub all: Summary,
    /// Complete responses only: a mean that omits the requests that the server failed most.
    pub whole: Summary,
    /// How the requests ended.
    pub ends: BTreeMap<End, usize>,
    /// Mean time to the first byte; a request without one counts with the time until its end, a lower bound.
    pub first_byte_ms: f64,
    /// The same over requests that had a first byte.
    pub answered_first_byte_ms: f64,
    /// Requests without a first byte.
    pub without_first_byte: usize,
    /// Complete responses per second that ended while counted requests were sent, whenever they were
    /// requested. Responses that end later, while the run waits for the rest, do not count: under overload
    /// the figure would exceed the link's capacity.
    pub throughput_per_s: f64,
    /// Mean size of the response heads of complete responses.
    pub head_bytes: f64,
    /// Lateness of the generator that 1 % of the requests exceed.
    pub lateness_p99_ms: f64,
    /// The largest lateness of the generator.
    pub lateness_max_ms: f64,
}

impl Measured {
    /// Computes the results of the requests planned between `from_ns` and `until_ns`, the end of sending.
    pub fn new(outcomes: &[Outcome], from_ns: u64, until_ns: u64, alone: &AloneTimes) -> Self {
        let observations = observe(outcomes, from_ns, alone);
        let samples: Vec<Sample> = observations.iter().map(Observation::sample).collect();
        let whole: Vec<Sample> = observations.iter().filter(|o| o.whole).map(Observation::sample).collect();
        let counted = || outcomes.iter().filter(|outcome| outcome.at_ns >= from_ns);

        let mut ends = BTreeMap::new();
        for outcome in counted() {
            *ends.entry(outcome.end).or_insert(0) += 1;
        }
        let in_time = |outcome: &&Outcome| outcome.end == End::Done && (from_ns..until_ns).contains(&outcome.end_ns);
        let mut lateness_ms: Vec<f64> = counted().map(|outcome| outcome.lateness_ns() as f64 / 1e6).collect();
        lateness_ms.sort_unstable_by(f64::total_cmp);
        Self {
            first_byte_ms: mean(observations.iter().filter_map(|o| o.first_byte_ns)) / 1e6,
            answered_first_byte_ms: mean(counted().filter_map(first_byte_ns)) / 1e6,
            without_first_byte: counted().filter(|o| o.first_byte_ns.is_none()).count(),
            throughput_per_s: outcomes.iter().filter(in_time).count() as f64 * 1e9
                / until_ns.saturating_sub(from_ns).max(1) as f64,
            head_bytes: mean(counted().filter(|o| o.end == End::Done).map(|o| f64::from(o.head_bytes))),
            lateness_p99_ms: percentile(&lateness_ms, 0.99),
            lateness_max_ms: percentile(&lateness_ms, 1.0),
            all: summarise(&samples),
            whole: summarise(&whole),
            ends,
        }
    }

    /// Requests that failed.
    pub fn errors(&self) -> usize {
        self.ends.iter().filter(|(end, _)| end.is_error()).map(|(_, count)| count).sum()
    }

    /// Requests that are incomplete without an error: unfinished, or given up by the client.
    pub fn incomplete(&self) -> usize {
        self.all.count - self.whole.count - self.errors()
    }

    /// Requests that count as lower bounds: all incomplete ones.
    pub fn bounds(&self) -> usize {
        self.all.count - self.whole.count
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { 0.0 } else { sum / count as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{rate::Link, wire::WireModel};

    const MS: u64 = 1_000_000;

    /// 1000 bytes a second, bodies only: a byte takes a millisecond.
    fn alone() -> AloneTimes {
        AloneTimes::new(&[], WireModel::BODY_ONLY, Link::constant("8kbit".parse().unwrap()), &[])
    }

    fn outcome(at_ms: u64, size_bytes: u64, end_ms: u64, end: End) -> Outcome {
        Outcome {
            at_ns: at_ms * MS,
            file: 0,
            size_bytes,
            group: 0,
            attempts: 1,
            sent_ns: at_ms * MS + MS / 2,
            first_byte_ns: (end == End::Done).then_some((at_ms + 1) * MS),
            end_ns: end_ms * MS,
            body_bytes: size_bytes,
            head_bytes: 200,
            end,
        }
    }

    #[test]
    fn what_never_finished_is_a_lower_bound_and_not_dropped() {
        let outcomes = [
            outcome(0, 9, 5000, End::Done),
            outcome(1000, 10, 1020, End::Done),
            outcome(1000, 10, 1040, End::Done),
            outcome(2000, 10, 2090, End::Unfinished),
            outcome(2000, 10, 2050, End::Aborted),
            outcome(2000, 10, 2010, End::Refused),
        ];
        // The first second is warm-up.
        let measured = Measured::new(&outcomes, 1_000 * MS, 3_000 * MS, &alone());
        assert_eq!(measured.all.count, 5);
        assert_eq!(measured.all.mean_ms, (20.0 + 40.0 + 90.0 + 50.0 + 10.0) / 5.0);
        assert_eq!(measured.whole.mean_ms, 30.0);
        assert_eq!(measured.all.mean_slowdown, 4.2);
        assert_eq!((measured.errors(), measured.incomplete(), measured.bounds()), (1, 2, 3));
        assert_eq!(measured.first_byte_ms, (1.0 + 1.0 + 90.0 + 50.0 + 10.0) / 5.0);
        assert_eq!((measured.answered_first_byte_ms, measured.without_first_byte), (1.0, 3));
        assert_eq!((measured.throughput_per_s, measured.head_bytes), (1.0, 200.0));
        assert_eq!((measured.lateness_p99_ms, measured.lateness_max_ms), (0.5, 0.5));
    }

    #[test]
    fn throughput_is_what_came_while_requests_were_sent_and_no_more_than_the_link_carries() {
        // The server answers 100 requests a second, first come, first served. The clients send 200 a second
        // for three seconds. The other responses come when sending is over.
        let outcomes: Vec<Outcome> = (0..600).map(|i| outcome(i * 5, 10, (i + 1) * 10, End::Done)).collect();
        let throughput = |from_s: u64, until_s: u64| {
            Measured::new(&outcomes, from_s * 1_000 * MS, until_s * 1_000 * MS, &alone()).throughput_per_s
        };
        assert_eq!(throughput(1, 3), 100.0, "with those that were asked for in the warm-up and came after it");
        assert_eq!(throughput(0, 3), 299.0 / 3.0, "what ends with the sending is late already");
        let failed: Vec<Outcome> = outcomes.iter().map(|&o| Outcome { end: End::Truncated, ..o }).collect();
        assert_eq!(Measured::new(&failed, 0, 3_000 * MS, &alone()).throughput_per_s, 0.0);
    }

    #[test]
    fn no_request_comes_to_zeros_and_not_to_nan() {
        let measured = Measured::new(&[], 0, 0, &alone());
        assert_eq!(measured, Measured::default());
    }
}
