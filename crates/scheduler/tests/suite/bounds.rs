//! The promises of the orders, checked on a simulated link with random sequences of jobs.
//!
//! The promises are theorems about links that can change the order at any moment. This link sends chunks,
//! decided a little ahead. Each test argues how much that costs and allows no more.

use proptest::{collection::vec, prelude::*, sample::select};
use serpent_scheduler::{Order, Path, Rate, Uplink, uplink::Settings};

use crate::{
    bare_link::{Arrival, PACING, Run, ahead_ns, grant_bytes, grant_ns, run, taken_ns},
    sharing,
};

fn settings(order: Order, rate: Rate) -> Settings {
    Settings { order, rate: Some(rate), pacing: PACING, ..Settings::default() }
}

fn rate() -> impl Strategy<Value = Rate> {
    select(&["1mbit", "10mbit", "100mbit"][..]).prop_map(|text| text.parse().unwrap())
}

/// Many small jobs and a few large ones, on links between idle and overloaded.
fn jobs(rate: Rate) -> impl Strategy<Value = Vec<Arrival>> {
    let bytes = prop_oneof![6 => 1..3_000u64, 3 => 3_000..20_000u64, 1 => 20_000..150_000u64];
    let path = (1..300u64, 1..60u32).prop_map(|(rtt_ms, window_segments)| Path {
        rtt_ns: rtt_ms * 1_000_000,
        window_segments,
        ..Path::UNKNOWN
    });
    // A quarter of the jobs come at the same moment as the one before.
    let gap_ns = prop_oneof![1 => Just(0), 3 => 0..2 * rate.ns_for(12_000)];
    vec((gap_ns, bytes, path), 1..40).prop_map(|jobs| {
        let mut at_ns = 0;
        let arrive = |(gap_ns, bytes, path)| {
            at_ns += gap_ns;
            Arrival { path, ..Arrival::new(at_ns, bytes) }
        };
        jobs.into_iter().map(arrive).collect()
    })
}

fn rate_and_jobs() -> impl Strategy<Value = (Rate, Vec<Arrival>)> {
    rate().prop_flat_map(|rate| (Just(rate), jobs(rate)))
}

/// A large job, and small ones that need between half and all of the link while it is there.
fn one_large_and_many_small() -> impl Strategy<Value = (Rate, Vec<Arrival>)> {
    rate().prop_flat_map(|rate| {
        let small = (rate.ns_for(3_000)..rate.ns_for(6_000), 1_500..3_000u64);
        (Just(rate), 20_000..60_000u64, vec(small, 10..80)).prop_map(|(rate, large_bytes, small)| {
            let mut at_ns = 0;
            let small = small.into_iter().map(|(gap_ns, bytes)| {
                at_ns += gap_ns;
                Arrival::new(at_ns, bytes)
            });
            (rate, std::iter::once(Arrival::new(0, large_bytes)).chain(small).collect())
        })
    })
}

/// A nanosecond for every grant on the link, and a microsecond in all in the simulated sharing.
fn rounding_ns(run: &Run) -> u64 {
    run.served.len() as u64 + 1_000
}

fn in_all_ns(run: &Run, jobs: &[Arrival]) -> u64 {
    run.ended_ns.iter().zip(jobs).map(|(ended_ns, job)| ended_ns - job.at_ns).sum()
}

fn shared_ends_ns(settings: &Settings, jobs: &[Arrival]) -> Vec<f64> {
    let uplink = Uplink::new(*settings);
    let wire: Vec<_> = jobs.iter().map(|job| (job.at_ns, uplink.wire_bytes(job.bytes))).collect();
    sharing::ends_ns(settings.rate.unwrap(), &wire)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    /// No order has a shorter mean response time than srpt, up to a chunk and the time that is decided ahead.
    ///
    /// A job that has begun has less left with every chunk, so srpt in chunks changes its choice for new jobs
    /// only. It is exact srpt for jobs that come when the next chunk to be decided begins. That is later than
    /// their real arrival, by less than the chunk on its way and the time decided ahead; call the sum d. Any
    /// other schedule, delayed by d as a whole, would suit these later arrivals as well, and exact srpt is
    /// the best for them. So the sum over n jobs is at most n * d above that of any other order. Every order
    /// cuts a job into the same chunks, so rounding is the same for all.
    /// is the same for all.
    #[test]
    fn srpt_is_never_beaten_in_mean_response_time((rate, jobs) in rate_and_jobs()) {
        let best = run(&settings(Order::Srpt, rate), 0, &jobs);
        let d_ns = taken_ns(&settings(Order::Srpt, rate));
        for order in Order::ALL {
            let other = run(&settings(order, rate), 0, &jobs);
            let (srpt_ns, other_ns) = (in_all_ns(&best, &jobs), in_all_ns(&other, &jobs));
            prop_assert!(srpt_ns <= other_ns + jobs.len() as u64 * d_ns, "{order}: {other_ns} ns, srpt: {srpt_ns} ns");
        }
    }

    /// The link is never idle while a job waits, so all orders end their busy periods at the same moments.
    #[test]
    fn every_order_is_done_with_all_at_the_same_time((rate, jobs) in rate_and_jobs()) {
        let last_ns = |order| run(&settings(order, rate), 0, &jobs).ended_ns.into_iter().max();
        let fifo = last_ns(Order::Fifo);
        for order in Order::ALL {
            prop_assert_eq!(last_ns(order), fifo, "{}", order);
        }
    }

    /// Under fsp no job ends later than under processor sharing, up to a chunk and the time that is decided
    /// ahead.
    ///
    /// Take a job that fair sharing ends at time c. Look at the last decision before its end that served a
    /// job which fair sharing ends after c, or that found no job. At that decision no job was waiting that
    /// fair sharing ends by c. So all bytes of such jobs sent after it belong to jobs that came after it.
    /// Fair sharing has sent all of them by c. From the end of that chunk on, the link sent nothing else, so
    /// it is done with them by c and that one chunk.
    #[test]
    fn fsp_is_never_later_than_fair_sharing((rate, jobs) in rate_and_jobs()) {
        let settings = settings(Order::Fsp, rate);
        let run = run(&settings, 0, &jobs);
        let slack_ns = taken_ns(&settings) + rounding_ns(&run);
        for (job, (&ended_ns, shared_ns)) in run.ended_ns.iter().zip(shared_ends_ns(&settings, &jobs)).enumerate() {
            prop_assert!(ended_ns as f64 <= shared_ns + slack_ns as f64, "{job}: {ended_ns} against {shared_ns} ns");
        }
    }

    /// Under fair, jobs that come together end when they end under processor sharing, up to a chunk for each
    /// of them. They come while the link is busy, so that all of them are there at the first choice.
    ///
    /// When a job has had its last chunk, number k, every other job has had k or k - 1 chunks, or is done.
    /// The job's size is between k - 1 and k chunks, and under sharing every other job has had as much. So
    /// each differs by at most a chunk, and the rest that may go with it.
    #[test]
    fn fair_is_fair_sharing_up_to_a_grant_for_each_job((rate, mut jobs) in rate_and_jobs()) {
        jobs.iter_mut().for_each(|job| job.at_ns = 0);
        let settings = settings(Order::Fair, rate);
        let busy_ns = ahead_ns(&settings) + 1_000_000;
        let run = run(&settings, rate.bytes_in(busy_ns), &jobs);
        let slack_ns = jobs.len() as u64 * grant_ns(&settings) + rounding_ns(&run);
        for (job, (&ended_ns, shared_ns)) in run.ended_ns.iter().zip(shared_ends_ns(&settings, &jobs)).enumerate() {
            let ended_ns = ended_ns - busy_ns;
            prop_assert!((ended_ns as f64 - shared_ns).abs() <= slack_ns as f64, "{job}: {ended_ns}, {shared_ns} ns");
        }
    }

    /// While two jobs are both present, fair gives neither more than two grants more than the other. This
    /// holds whenever they came (the theorem on start-time fair queueing, Goyal, Vin and Cheng 1996).
    #[test]
    fn fair_serves_any_two_alike_while_both_are_there((rate, jobs) in rate_and_jobs()) {
        let settings = settings(Order::Fair, rate);
        let grant_bytes = grant_bytes(&settings) as i64;
        let run = run(&settings, 0, &jobs);
        let last_turn = |job| run.served.iter().rposition(|it| it.job == job).expect("everybody is served");
        for (b, came) in jobs.iter().enumerate() {
            for a in 0..b {
                let first_turn = run.served.partition_point(|it| it.decided_ns < came.at_ns);
                let both = first_turn..last_turn(a).min(last_turn(b)) + 1;
                let (mut lead, mut least, mut most) = (0, 0, 0);
                for it in run.served.get(both).unwrap_or_default() {
                    lead += if it.job == a { it.bytes as i64 } else if it.job == b { -(it.bytes as i64) } else { 0 };
                    (least, most) = (lead.min(least), lead.max(most));
                }
                prop_assert!(most - least <= 2 * grant_bytes, "{a} and {b}: {least} to {most} bytes apart");
            }
        }
    }

    /// Every job ends within s times its time under fair sharing, if the guard has stretch s >= 2 and put
    /// ahead at most one job. The bound has a slack of a chunk and the time that is decided ahead.
    ///
    /// Fair sharing takes at least the time that the job takes alone. So with s >= 2 there is time to send
    /// all of it between its end under fair sharing and the deadline. From the deadline less that time it has
    /// the link to itself, after the chunk on its way. A job that is not put ahead had its last chunk before
    /// that.
    #[test]
    fn the_guard_keeps_its_promise(
        (rate, jobs) in one_large_and_many_small(),
        stretch in 2.0..6.0f64,
        order in select(&Order::ALL[..]),
    ) {
        let settings = Settings { guard_stretch: Some(stretch), ..settings(order, rate) };
        let run = run(&settings, 0, &jobs);
        if run.stats.guarded > 1 {
            return Ok(());
        }
        let slack_ns = taken_ns(&settings) as f64 + stretch * rounding_ns(&run) as f64;
        for ((job, &ended_ns), shared_ns) in jobs.iter().zip(&run.ended_ns).zip(shared_ends_ns(&settings, &jobs)) {
            let due_ns = job.at_ns as f64 + stretch * (shared_ns - job.at_ns as f64);
            prop_assert!(ended_ns as f64 <= due_ns + slack_ns, "{order}, {job:?}: {ended_ns}, due by {due_ns} ns");
        }
    }

    /// If every unguarded job ends early enough before its deadline to be sent once more, the guard does
    /// nothing.
    #[test]
    fn the_guard_lets_alone_who_does_not_starve(
        (rate, jobs) in one_large_and_many_small(),
        stretch in 2.0..20.0f64,
        order in select(&Order::ALL[..]),
    ) {
        let unguarded = settings(order, rate);
        let before = run(&unguarded, 0, &jobs);
        let nobody_starves = jobs.iter().zip(&before.ended_ns).zip(shared_ends_ns(&unguarded, &jobs)).all(
            |((job, &ended_ns), shared_ns)| {
                let due_ns = job.at_ns as f64 + stretch * (shared_ns - job.at_ns as f64);
                let alone_ns = rate.ns_for(Uplink::new(unguarded).wire_bytes(job.bytes)) as f64;
                ended_ns as f64 <= due_ns - alone_ns - stretch * 1_000.0
            },
        );
        let after = run(&Settings { guard_stretch: Some(stretch), ..unguarded }, 0, &jobs);
        if nobody_starves {
            prop_assert_eq!(after.stats.guarded, 0);
            prop_assert_eq!(after.served, before.served);
        }
    }
}
