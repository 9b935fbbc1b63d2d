//! Exact processor sharing in floating point, by another method than the scheduler's. It goes step by step
//! from one arrival or end to the next, and takes an equal part from each present job.

use serpent_scheduler::Rate;

/// When each job ends; jobs are given as arrival in nanoseconds and bytes on the wire.
pub fn ends_ns(rate: Rate, arrivals: &[(u64, u64)]) -> Vec<f64> {
    let bytes_per_ns = rate.bytes_per_second() / 1e9;
    let mut ends = vec![f64::NAN; arrivals.len()];
    let mut present: Vec<(usize, f64)> = Vec::new();
    let (mut now_ns, mut next) = (0.0f64, 0);
    while next < arrivals.len() || !present.is_empty() {
        let least = present.iter().map(|&(_, left)| left).reduce(f64::min);
        let ends_ns = least.map_or(f64::INFINITY, |least| now_ns + least * present.len() as f64 / bytes_per_ns);
        let arrives_ns = arrivals.get(next).map_or(f64::INFINITY, |&(at_ns, _)| at_ns as f64);
        if arrives_ns < ends_ns {
            let part = (arrives_ns - now_ns) * bytes_per_ns / present.len().max(1) as f64;
            present.iter_mut().for_each(|(_, left)| *left -= part);
            present.push((next, arrivals[next].1 as f64));
            (now_ns, next) = (arrives_ns, next + 1);
        } else {
            present.iter_mut().for_each(|(_, left)| *left -= least.expect("somebody ends"));
            now_ns = ends_ns;
            present.retain(|&(job, left)| {
                if left <= 0.0 {
                    ends[job] = now_ns;
                }
                left > 0.0
            });
        }
    }
    ends
}

#[test]
fn sharing_by_hand() {
    let rate = "8mbit".parse().unwrap();
    // A byte a microsecond. The first job alone for 1000 us, then half each until the second's 500 bytes are
    // out.
    let ends = ends_ns(rate, &[(0, 2500), (1_000_000, 500), (9_000_000, 100)]);
    assert_eq!(ends, [3_000_000.0, 2_000_000.0, 9_100_000.0]);
}
