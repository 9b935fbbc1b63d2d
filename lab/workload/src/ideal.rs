//! The same requests on an ideal link: no packets, no handshakes, no distance, only the order of service.
//!
//! This module belongs to the instrument and shares no code with the scheduler that is measured against it.
//! Work is counted in capacity (bytes that the link could have carried, see [`Link`]), so a link may change
//! its rate.

use std::{cmp::Ordering, collections::BinaryHeap};

use crate::{rate::Link, sequence::Request, wire::WireModel};

/// Response times under preemptive shortest remaining processing time, in nanoseconds and in the order of the
/// requests. Of equal remaining work the earlier request goes first. O(n log n).
pub fn srpt(requests: &[Request], link: &Link, wire: &WireModel) -> Vec<f64> {
    on_link(requests, link, wire, srpt_departures)
}

/// Response times when all requests share the link equally (processor sharing), in nanoseconds and in the
/// order of the requests. O(n log n).
pub fn ps(requests: &[Request], link: &Link, wire: &WireModel) -> Vec<f64> {
    on_link(requests, link, wire, ps_departures)
}

/// A request; arrival and work are capacities in bytes.
#[derive(Clone, Copy)]
struct Job {
    arrival: f64,
    work: f64,
}

fn on_link(requests: &[Request], link: &Link, wire: &WireModel, departures: fn(&[Job]) -> Vec<f64>) -> Vec<f64> {
    let jobs: Vec<Job> = requests
        .iter()
        .map(|r| Job { arrival: link.capacity_at(r.at_ns as f64), work: wire.bytes_for(r.size_bytes) as f64 })
        .collect();
    let departures = departures(&jobs);
    requests.iter().zip(departures).map(|(r, departure)| link.when_capacity_is(departure) - r.at_ns as f64).collect()
}

fn srpt_departures(jobs: &[Job]) -> Vec<f64> {
    let mut departures = vec![0.0; jobs.len()];
    let mut waiting: BinaryHeap<Least> = BinaryHeap::new();
    let mut now = 0.0_f64;
    for (index, job) in jobs.iter().enumerate() {
        serve_until(job.arrival, &mut now, &mut waiting, &mut departures);
        waiting.push(Least { key: job.work, index });
    }
    serve_until(f64::INFINITY, &mut now, &mut waiting, &mut departures);
    departures
}

/// Serves the job with least remaining work until `until`. Time ends at `until`, or at the last departure if
/// that is for ever.
fn serve_until(until: f64, now: &mut f64, waiting: &mut BinaryHeap<Least>, departures: &mut [f64]) {
    while let Some(mut first) = waiting.pop() {
        if *now + first.key > until {
            first.key -= until - *now;
            waiting.push(first);
            break;
        }
        *now += first.key;
        departures[first.index] = *now;
    }
    if until.is_finite() {
        *now = until;
    }
}

/// Processor sharing in virtual time, which runs at 1/n while n jobs are present. A job leaves when virtual
/// time has grown by its work since its arrival, so the order of departures is known at arrival.
fn ps_departures(jobs: &[Job]) -> Vec<f64> {
    let mut departures = vec![0.0; jobs.len()];
    let mut present: BinaryHeap<Least> = BinaryHeap::new();
    let (mut now, mut virtual_now) = (0.0_f64, 0.0_f64);
    let mut arrivals = jobs.iter().enumerate().peekable();
    loop {
        let next_arrival = arrivals.peek().map_or(f64::INFINITY, |(_, job)| job.arrival);
        let next_departure = present
            .peek()
            .map_or(f64::INFINITY, |first| now + (first.key - virtual_now).max(0.0) * present.len() as f64);
        if next_departure <= next_arrival {
            let Some(first) = present.pop() else { return departures };
            now = next_departure;
            virtual_now = first.key;
            departures[first.index] = now;
        } else if let Some((index, job)) = arrivals.next() {
            if present.is_empty() {
                // Reset: virtual time that only grows would lose precision in a long run.
                virtual_now = 0.0;
            } else {
                virtual_now += (job.arrival - now) / present.len() as f64;
            }
            now = job.arrival;
            present.push(Least { key: virtual_now + job.work, index });
        }
    }
}

/// An entry of a heap whose top has the least key; of equal keys, the least index.
struct Least {
    key: f64,
    index: usize,
}

impl Ord for Least {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.total_cmp(&self.key).then(other.index.cmp(&self.index))
    }
}

impl PartialOrd for Least {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Least {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Least {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha12Rng;

    use super::*;
    use crate::rate::Rate;

    const SECOND: u64 = 1_000_000_000;
    const BODY: WireModel = WireModel::BODY_ONLY;

    /// 1000 bytes a second, so that a byte takes a millisecond.
    fn slow_link() -> Link {
        Link::constant(Rate::from_bits_per_second(8_000).unwrap())
    }

    fn requests(at_ms_and_bytes: &[(u64, u64)]) -> Vec<Request> {
        at_ms_and_bytes
            .iter()
            .map(|&(at_ms, size_bytes)| Request { at_ns: at_ms * 1_000_000, file: 0, size_bytes, group: 0 })
            .collect()
    }

    fn ms(times_ns: Vec<f64>) -> Vec<u64> {
        times_ns.into_iter().map(|ns| (ns / 1e6).round() as u64).collect()
    }

    #[test]
    fn shortest_remaining_preempts_by_hand() {
        // 1000 runs alone for 200 and has 800 left. 100 preempts it, 700 < 800 goes next, and 800 is last.
        let requests = requests(&[(0, 1000), (200, 100), (250, 700)]);
        assert_eq!(ms(srpt(&requests, &slow_link(), &BODY)), [1800, 100, 750]);
    }

    #[test]
    fn a_job_that_has_little_left_is_not_preempted() {
        let requests = requests(&[(0, 1000), (950, 100), (2000, 10)]);
        assert_eq!(ms(srpt(&requests, &slow_link(), &BODY)), [1000, 150, 10]);
    }

    #[test]
    fn even_shares_by_hand() {
        // Alone until 200 (800 left), then two: the 100 takes 200 and leaves at 400 (700 left), then alone
        // until 1100.
        let requests = requests(&[(0, 1000), (200, 100), (5000, 50), (5000, 50)]);
        assert_eq!(ms(ps(&requests, &slow_link(), &BODY)), [1100, 200, 100, 100]);
    }

    #[test]
    fn a_change_of_rate_changes_the_rest_of_a_response() {
        let link = slow_link().then(SECOND, Rate::from_bits_per_second(16_000).unwrap()).unwrap();
        // 1000 bytes in the first second, the other 1000 in half a second.
        let requests = requests(&[(0, 2000)]);
        assert_eq!(ms(srpt(&requests, &link, &BODY)), [1500]);
        assert_eq!(ms(ps(&requests, &link, &BODY)), [1500]);
    }

    fn poisson(load: f64, count: usize, mut size: impl FnMut(&mut ChaCha12Rng) -> u64, mean: f64) -> Vec<Request> {
        let mut rng = ChaCha12Rng::seed_from_u64(11);
        let mut at = 0.0;
        (0..count)
            .map(|_| {
                at -= (1.0 - rng.random::<f64>()).ln() * mean * 1e6 / load;
                Request { at_ns: at as u64, file: 0, size_bytes: size(&mut rng), group: 0 }
            })
            .collect()
    }

    fn mean_ms(times_ns: &[f64]) -> f64 {
        times_ns.iter().sum::<f64>() / times_ns.len() as f64 / 1e6
    }

    #[test]
    fn even_shares_give_the_mean_of_m_gi_1_ps() {
        // Mean response time E[S] / (1 - load), whatever the sizes: 1 or 10 kB here.
        let mixed = |rng: &mut ChaCha12Rng| if rng.random::<f64>() < 0.9 { 1_000 } else { 10_000 };
        let requests = poisson(0.6, 400_000, mixed, 1_900.0);
        let mean = mean_ms(&ps(&requests, &slow_link(), &BODY));
        assert!((mean / (1_900.0 / 0.4) - 1.0).abs() < 0.03, "{mean}");
    }

    #[test]
    fn equal_sizes_give_the_mean_of_m_d_1() {
        // Shortest remaining is then first come, first served: Pollaczek-Khinchine, S + load S / (2 (1 -
        // load)).
        let requests = poisson(0.7, 400_000, |_| 1_000, 1_000.0);
        let mean = mean_ms(&srpt(&requests, &slow_link(), &BODY));
        assert!((mean / (1_000.0 + 700.0 / 0.6) - 1.0).abs() < 0.03, "{mean}");
    }

    proptest! {
        #[test]
        fn srpt_is_never_beaten_in_the_mean_and_neither_loses_work(
            jobs in prop::collection::vec((0u64..3_000, 1u64..2_000), 1..60)
        ) {
            let mut jobs = jobs;
            jobs.sort_unstable();
            let requests = requests(&jobs);
            let (srpt, ps) = (srpt(&requests, &slow_link(), &BODY), ps(&requests, &slow_link(), &BODY));
            prop_assert!(mean_ms(&srpt) <= mean_ms(&ps) + 1e-6);
            for (i, &(_, bytes)) in jobs.iter().enumerate() {
                prop_assert!(srpt[i] >= bytes as f64 * 1e6 - 1.0);
                prop_assert!(ps[i] >= bytes as f64 * 1e6 - 1.0);
            }
            // Both keep the link busy while there is work, so the last job leaves at the same time.
            let last = |times: &[f64]| requests.iter().zip(times).map(|(r, t)| r.at_ns as f64 + t).fold(0.0, f64::max);
            prop_assert!((last(&srpt) - last(&ps)).abs() < 1e3);
        }
    }
}
