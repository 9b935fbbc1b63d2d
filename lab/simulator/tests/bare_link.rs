//! Properties of an ideal link for any requests: conservation of work, optimality, and agreement with an
//! independent implementation.

use proptest::{collection::vec as some, prelude::*, sample::select};
use scheduler::{
    Order,
    bands::{BandPlan, SRPT_CUTOFFS_BYTES},
    uplink::Settings,
};
use serpent_simulator::{Banded, Clients, Model, Ordered, Paced, ProcessorSharing, Served, Stream, Totals, run};
use workload::{
    ideal,
    outcome::End,
    rate::{Link, Rate},
    sequence::Request,
    wire::WireModel,
};

const BODY: WireModel = WireModel::BODY_ONLY;

fn link(text: &str) -> Link {
    Link::constant(text.parse().unwrap())
}

fn ordered(link: &Link, order: Order) -> Ordered {
    Ordered::new(link, &BODY, Settings { order, ..Settings::default() })
}

fn banded(link: &Link, order: Order, plan: BandPlan) -> Banded {
    Banded::new(link, &BODY, Settings { order, ..Settings::default() }, plan)
}

/// Requests from gaps between arrivals and sizes; the file number is the index.
fn requests(gaps_and_sizes: &[(u64, u64)]) -> Vec<Request> {
    let mut at_ns = 0;
    let request = |(file, &(gap_ns, size_bytes)): (usize, &(u64, u64))| {
        at_ns += gap_ns;
        Request { at_ns, file: file as u32, size_bytes, group: 0 }
    };
    gaps_and_sizes.iter().enumerate().map(request).collect()
}

fn serve(requests: &[Request], model: &mut impl Model, clients: Clients) -> (Vec<Served>, Totals) {
    let mut served = Vec::new();
    let totals = run(&mut Stream::new(requests.iter().copied()), model, &clients, None, |it| served.push(it));
    served.sort_by_key(|it| it.request.file);
    (served, totals)
}

/// The end of each request, where all are served.
fn ends(requests: &[Request], model: &mut impl Model) -> Vec<u64> {
    let (served, totals) = serve(requests, model, Clients::PATIENT);
    assert_eq!(totals.served, requests.len() as u64);
    assert!(served.iter().zip(requests).all(|(it, request)| it.request == *request), "each once");
    assert!(
        served.iter().all(|it| it.first_byte_ns.is_some_and(|at_ns| it.request.at_ns <= at_ns && at_ns <= it.end_ns))
    );
    served.iter().map(|it| it.end_ns).collect()
}

fn sorted(mut ends: Vec<u64>) -> Vec<u64> {
    ends.sort_unstable();
    ends
}

/// The ends under each discipline that sends every byte whole, by its name.
fn ends_to_the_byte(requests: &[Request], link: &Link) -> Vec<(String, Vec<u64>)> {
    let plan = || BandPlan::new(vec![20, 100, 150, 2_000]).unwrap();
    let by_order = Order::ALL.map(|order| (order.to_string(), ends(requests, &mut ordered(link, order))));
    let guarded = Settings { guard_stretch: Some(1.5), ..Settings::default() };
    let bands = [Order::Srpt, Order::Las, Order::Fair, Order::Fsp]
        .map(|order| (format!("{order} in bands"), ends(requests, &mut banded(link, order, plan()))));
    let unpaced = Settings { rate: None, ..Settings::default() };
    let others = [
        ("srpt, guarded".to_owned(), ends(requests, &mut Ordered::new(link, &BODY, guarded))),
        ("unpaced".to_owned(), ends(requests, &mut Paced::new(link, &BODY, unpaced))),
    ];
    by_order.into_iter().chain(bands).chain(others).collect()
}

/// Bursts and pauses with loads around 1 at 10 Mbit/s, where a byte takes 800 ns.
fn sequences() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap_ns = prop_oneof![2 => Just(0u64), 3 => 0..300_000u64, 1 => 0..5_000_000u64];
    let size = prop_oneof![4 => 1..300u64, 2 => select(vec![100u64, 200]), 1 => 1..6_000u64];
    some((gap_ns, size), 1..60)
}

/// The same with arrivals aligned to the ends of bytes, so that no arrival waits for a byte in flight.
fn aligned(mut sequence: Vec<(u64, u64)>) -> Vec<Request> {
    for (gap_ns, _) in &mut sequence {
        *gap_ns -= *gap_ns % 800;
    }
    requests(&sequence)
}

fn changing_links() -> impl Strategy<Value = Link> {
    (1u64..=20, some((1..2_000_000u64, 1u64..=20), 0..6)).prop_map(|(first, changes)| {
        let rate = |times: u64| Rate::from_bits_per_second(times * 777_777).unwrap();
        let (mut link, mut at_ns) = (Link::constant(rate(first)), 0);
        for (gap_ns, times) in changes {
            at_ns += gap_ns;
            link = link.then(at_ns, rate(times)).unwrap();
        }
        link
    })
}

/// The periods in which the link always has work, in any order of service: the requests and the end of each.
fn busy_periods(requests: &[Request], link: &Link) -> Vec<(std::ops::Range<usize>, f64)> {
    let (mut from, mut free, mut periods) = (0, 0.0_f64, Vec::new());
    for (i, request) in requests.iter().enumerate() {
        let now = link.capacity_at(request.at_ns as f64);
        if now > free && i > 0 {
            periods.push((from..i, link.when_capacity_is(free)));
            from = i;
        }
        free = free.max(now) + request.size_bytes as f64;
    }
    periods.push((from..requests.len(), link.when_capacity_is(free)));
    periods
}

proptest! {
    #[test]
    fn the_link_never_rests_while_somebody_is_present(sequence in sequences(), link in changing_links()) {
        let requests = requests(&sequence);
        let periods = busy_periods(&requests, &link);
        let sharing = ("sharing".to_owned(), ends(&requests, &mut ProcessorSharing::new(&link, &BODY)));
        for (name, ends) in ends_to_the_byte(&requests, &link).into_iter().chain([sharing]) {
            for (who, over_ns) in periods.clone() {
                let end_ns = *ends[who].iter().max().unwrap() as f64;
                prop_assert!((-0.01..1.01).contains(&(end_ns - over_ns)), "{name}: {end_ns} for {over_ns}");
            }
            for (request, end_ns) in requests.iter().zip(&ends) {
                let alone_ns = link.when_capacity_is(link.capacity_at(request.at_ns as f64) + request.size_bytes as f64);
                prop_assert!(*end_ns as f64 >= alone_ns - 0.01, "{name} is faster than the link");
            }
        }
    }

    /// The strongest form: at every moment at least as many requests have ended as under any other order, so
    /// no sum of times is smaller. It holds to the nanosecond, as all orders send the same bytes at the same
    /// moments.
    #[test]
    fn srpt_has_always_ended_at_least_as_many_as_any_other(
        sequence in sequences(),
        link in prop_oneof![Just(link("10mbit")), changing_links()],
    ) {
        let requests = requests(&sequence);
        let srpt = sorted(ends(&requests, &mut ordered(&link, Order::Srpt)));
        for (name, ends) in ends_to_the_byte(&requests, &link) {
            let others = sorted(ends);
            prop_assert!(srpt.iter().zip(&others).all(|(srpt, other)| srpt <= other), "{name}: {others:?} for {srpt:?}");
        }
    }

    /// Sharing is infinitely fine: an arrival during a byte does not wait for it. So SRPT to the byte is
    /// beaten by at most a byte, and not at all where arrivals are between bytes.
    #[test]
    fn srpt_is_not_beaten_by_even_shares(sequence in sequences()) {
        let (link, byte_ns) = (link("10mbit"), 800);
        for (requests, late_ns) in [(aligned(sequence.clone()), 0), (requests(&sequence), byte_ns)] {
            let srpt = sorted(ends(&requests, &mut ordered(&link, Order::Srpt)));
            let even = sorted(ends(&requests, &mut ProcessorSharing::new(&link, &BODY)));
            prop_assert!(srpt.iter().zip(&even).all(|(srpt, even)| *srpt <= even + late_ns), "{even:?} for {srpt:?}");
        }
    }

    /// Ends under equal sharing are deadlines that the fair sojourn protocol meets by serving the earliest
    /// first. A byte in flight may delay it once (as packets against fluid in "A Generalized Processor
    /// Sharing Approach to Flow Control in Integrated Services Networks: The Single-Node Case"). The
    /// scheduler's virtual time has units of 1/1024 byte for each present request. There are fewer than 1024
    /// here, so that is another byte. Then a nanosecond for each rounding.
    #[test]
    fn fsp_is_never_later_than_even_shares(sequence in sequences(), link in changing_links()) {
        let requests = requests(&sequence);
        let fsp = ends(&requests, &mut ordered(&link, Order::Fsp));
        let even = ends(&requests, &mut ProcessorSharing::new(&link, &BODY));
        for ((request, fsp_ns), even_ns) in requests.iter().zip(fsp).zip(even) {
            let latest_ns = link.when_capacity_is(link.capacity_at(even_ns as f64) + 2.0) + 2.0;
            prop_assert!(fsp_ns as f64 <= latest_ns, "{fsp_ns} against {even_ns} of {request:?}");
        }
    }

    #[test]
    fn a_band_for_every_byte_left_is_exact_srpt(
        sequence in some((prop_oneof![Just(0u64), 0..200_000u64], 1..=254u64), 1..80),
        link in changing_links(),
        abort_after_ns in prop_oneof![Just(None), (1_000..3_000_000u64).prop_map(Some)],
    ) {
        let (requests, clients) = (requests(&sequence), Clients { abort_after_ns, retries: 1 });
        let plan = BandPlan::new((1..=254).collect()).unwrap();
        let exact = serve(&requests, &mut ordered(&link, Order::Srpt), clients);
        prop_assert_eq!(serve(&requests, &mut banded(&link, Order::Srpt, plan), clients), exact);
    }

    #[test]
    fn even_shares_agree_with_the_independent_implementation(sequence in sequences(), link in changing_links()) {
        let requests = requests(&sequence);
        let (ends, ideal) = (ends(&requests, &mut ProcessorSharing::new(&link, &BODY)), ideal::ps(&requests, &link, &BODY));
        for ((request, end_ns), ideal_ns) in requests.iter().zip(ends).zip(ideal) {
            let later_ns = end_ns as f64 - (request.at_ns as f64 + ideal_ns);
            prop_assert!((-0.01..1.01).contains(&later_ns), "{later_ns} ns later");
        }
    }

    /// Equal where SRPT does not wait for a byte in flight; else later by at most a byte. Sorted ends are
    /// compared and not single requests, because rounding decides between two with equal work left.
    #[test]
    fn srpt_agrees_with_the_independent_implementation(sequence in sequences()) {
        let link = link("10mbit");
        for (requests, late_ns) in [(aligned(sequence.clone()), 0.0), (requests(&sequence), 800.0)] {
            let mut ideal: Vec<f64> = ideal::srpt(&requests, &link, &BODY);
            ideal.iter_mut().zip(&requests).for_each(|(ns, request)| *ns += request.at_ns as f64);
            ideal.sort_unstable_by(f64::total_cmp);
            for (end_ns, ideal_ns) in sorted(ends(&requests, &mut ordered(&link, Order::Srpt))).into_iter().zip(ideal) {
                let later_ns = end_ns as f64 - ideal_ns;
                prop_assert!((-0.01..late_ns + 0.01).contains(&later_ns), "{later_ns} ns later");
            }
        }
    }

    /// In turns of `q` bytes, the bytes that two requests get while both are present differ by at most two turns.
    /// See "Start-Time Fair Queueing: A Scheduling Algorithm for Integrated Services Packet Switching Networks".
    /// So each other request costs a request of `s` bytes at most `s + 2q` bytes, and one that is present all the
    /// time at least `s - 2q`. Arrivals may wait for a byte in flight. Even shares that are infinitely fine are
    /// no bound: a request that turns keep a little longer takes a share of the next ones, too.
    #[test]
    fn turns_are_even_shares_to_two_turns_of_each(sequence in sequences(), quantum in select(vec![1u64, 10, 100])) {
        let (requests, link) = (requests(&sequence), link("10mbit"));
        let pacing = scheduler::Pacing { chunk: scheduler::Chunk::Bytes(quantum), ..scheduler::Pacing::EXACT };
        let settings = Settings { order: Order::Fair, pacing, ..Settings::default() };
        let ends = ends(&requests, &mut Ordered::new(&link, &BODY, settings));
        for (i, (request, end_ns)) in requests.iter().zip(&ends).enumerate() {
            let (mut least_bytes, mut most_bytes) = (request.size_bytes, request.size_bytes + 1);
            for (j, (other, other_end_ns)) in requests.iter().zip(&ends).enumerate() {
                if j == i || other.at_ns >= *end_ns || *other_end_ns <= request.at_ns {
                    continue;
                }
                most_bytes += other.size_bytes.min(request.size_bytes + 2 * quantum);
                if other.at_ns <= request.at_ns && other_end_ns >= end_ns {
                    least_bytes += request.size_bytes.saturating_sub(2 * quantum);
                }
            }
            let (took_ns, who) = (end_ns - request.at_ns, format!("{request:?} until {end_ns}"));
            prop_assert!((800 * least_bytes..=800 * most_bytes).contains(&took_ns), "{who}: {least_bytes} {most_bytes}");
        }
    }

    /// Except for a byte in flight: an arrival while the pacer lets the link idle does not wait for one.
    #[test]
    fn a_pacer_does_not_beat_what_decides_at_the_last_moment(sequence in sequences(), percent in 50u64..150) {
        let (requests, link) = (requests(&sequence), link("10mbit"));
        let rate = scheduler::Rate::from_bits_per_second(percent * 100_000);
        let paced = Settings { rate, segment_overhead_bytes: 0, ..Settings::default() };
        let paced = sorted(ends(&requests, &mut Paced::new(&link, &BODY, paced)));
        let exact = sorted(ends(&requests, &mut ordered(&link, Order::Srpt)));
        prop_assert!(exact.iter().zip(&paced).all(|(exact, paced)| *exact <= paced + 800), "{paced:?} for {exact:?}");
    }

    #[test]
    fn nothing_is_lost_or_served_twice(
        sequence in sequences(),
        link in changing_links(),
        abort_after_ns in 1_000..4_000_000u64,
        retries in 0..3u32,
    ) {
        let (requests, clients) = (requests(&sequence), Clients { abort_after_ns: Some(abort_after_ns), retries });
        let plan = || BandPlan::new(SRPT_CUTOFFS_BYTES.to_vec()).unwrap();
        let guarded = Settings { guard_stretch: Some(2.0), ..Settings::default() };
        let paced = Settings { rate: "9mbit".parse().ok(), ..Settings::default() };
        let mut runs = vec![
            serve(&requests, &mut ProcessorSharing::new(&link, &BODY), clients),
            serve(&requests, &mut Paced::new(&link, &BODY, paced), clients),
            serve(&requests, &mut Ordered::new(&link, &BODY, guarded), clients),
        ];
        runs.extend(Order::ALL.map(|order| serve(&requests, &mut ordered(&link, order), clients)));
        runs.extend(Order::ALL.map(|order| serve(&requests, &mut banded(&link, order, plan()), clients)));
        for (served, totals) in runs {
            prop_assert_eq!(served.len(), requests.len());
            prop_assert_eq!((totals.served + totals.aborted, totals.unfinished), (requests.len() as u64, 0));
            let mut sent_bytes = 0.0;
            for (it, request) in served.iter().zip(&requests) {
                prop_assert_eq!(it.request, *request);
                let patience_ns = abort_after_ns * u64::from(retries + 1);
                match it.end {
                    End::Done => {
                        prop_assert!(it.response_ns() <= patience_ns, "done at the last moment is done");
                        prop_assert_eq!(u64::from(it.attempts) - 1, (it.response_ns() - 1) / abort_after_ns);
                        sent_bytes += request.size_bytes as f64;
                    }
                    _ => prop_assert_eq!((it.response_ns(), u32::from(it.attempts)), (patience_ns, retries + 1)),
                }
            }
            let could_bytes = link.capacity_at(totals.last_ns as f64) - link.capacity_at(requests[0].at_ns as f64);
            prop_assert!(sent_bytes <= could_bytes + 1e-3, "{sent_bytes} bytes through {could_bytes}");
        }
    }
}
