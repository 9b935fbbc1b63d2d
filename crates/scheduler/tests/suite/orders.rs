//! The sequence of service, chunk by chunk, under every order.
//!
//! Jobs are written `A@0:3`: A comes at time 0 and has 3 chunks. Time is counted in chunks, too: the time the
//! link takes to send one. Until time 1 the link is busy with other bytes, so jobs that come at 0 are all
//! there at the first choice. The size `:3?` is never told, `:3?1` is told after the first chunk, and
//! `/200ms` is the round trip.
//!
//! The expected text names the job that got the first chunk after the start, the second, and so on.

use serpent_scheduler::{
    Chunk, Order, Pacing, Path, Uplink,
    uplink::{Reason, Settings},
};

use crate::bare_link::{Arrival, Run, SizeKnown, run};

/// Grants of one size, none before it is due.
const PACING: Pacing = Pacing { early_percent: 0, chunk: Chunk::Bytes(2 * 1448), ..Pacing::SERVER };

fn settings(order: Order) -> Settings {
    let settings = Settings { order, rate: Some("10mbit".parse().unwrap()), pacing: PACING, ..Settings::default() };
    // A job is small for quick-fix if it is below a chunk.
    Settings { small_bytes: chunk_bytes(&settings), ..settings }
}

fn chunk_bytes(settings: &Settings) -> u64 {
    Uplink::new(*settings).chunk_bytes()
}

fn chunk_ns(settings: &Settings) -> u64 {
    let uplink = Uplink::new(*settings);
    settings.rate.unwrap().ns_for(uplink.wire_bytes(uplink.chunk_bytes()))
}

fn arrivals(settings: &Settings, text: &str) -> Vec<Arrival> {
    let in_chunks = |text: &str, chunk: u64| (text.parse::<f64>().unwrap() * chunk as f64).round() as u64;
    let read = |(i, word): (usize, &str)| {
        let (name, rest) = word.split_once('@').unwrap();
        assert_eq!(name, letter(i), "jobs are named in the order of the alphabet");
        let (at, rest) = rest.split_once(':').unwrap();
        let (size, rtt) = rest.split_once('/').map_or((rest, None), |(size, rtt)| (size, Some(rtt)));
        let (size, told) = match size.split_once('?') {
            None => (size, SizeKnown::AtOnce),
            Some((size, "")) => (size, SizeKnown::Never),
            Some((size, after)) => (size, SizeKnown::After(in_chunks(after, chunk_bytes(settings)))),
        };
        let rtt_ms = rtt.map(|rtt| rtt.strip_suffix("ms").unwrap().parse::<u64>().unwrap());
        Arrival {
            told,
            path: rtt_ms.map_or(Path::UNKNOWN, |ms| Path { rtt_ns: ms * 1_000_000, ..Path::UNKNOWN }),
            ..Arrival::new(in_chunks(at, chunk_ns(settings)), in_chunks(size, chunk_bytes(settings)))
        }
    };
    text.split(' ').enumerate().map(read).collect()
}

fn letter(job: usize) -> String {
    char::from(b'A' + job as u8).to_string()
}

fn serve(settings: &Settings, arrivals: &[Arrival]) -> Run {
    let uplink = Uplink::new(*settings);
    run(settings, uplink.wire_bytes(uplink.chunk_bytes()), arrivals)
}

fn letters(run: &Run) -> String {
    run.served.iter().map(|it| letter(it.job)).collect::<Vec<_>>().join(",")
}

/// The jobs served, in turn.
fn turns(order: Order, text: &str) -> String {
    let settings = settings(order);
    letters(&serve(&settings, &arrivals(&settings, text)))
}

#[test]
fn one_sequence_under_every_order() {
    // C comes while the first chunk after the start is on its way. It then has less left than A, but fair
    // sharing would finish A before it.
    let jobs = "A@0:4/200ms B@0:0.5/200ms C@1.2:3.8/10ms";
    for (order, expected) in [
        (Order::Fair, "A,B,C,A,C,A,C,A,C"),
        (Order::Fifo, "A,A,A,A,B,C,C,C,C"),
        (Order::Srpt, "B,C,C,C,C,A,A,A,A"),
        (Order::Srrt, "B,C,C,C,C,A,A,A,A"),
        (Order::Stert, "B,C,C,C,C,A,A,A,A"),
        (Order::Swift, "B,C,C,C,C,A,A,A,A"),
        (Order::Fcf, "B,C,C,C,C,A,A,A,A"),
        (Order::Las, "A,B,C,A,C,A,C,A,C"),
        (Order::Fsp, "B,A,A,A,A,C,C,C,C"),
        (Order::QuickFix, "B,A,C,A,C,A,C,A,C"),
    ] {
        assert_eq!(turns(order, jobs), expected, "{order}");
    }
}

#[test]
fn every_order_serves_one_job_after_another_or_in_turn_when_they_are_alike() {
    let jobs = "A@0:2 B@0:2 C@0:2";
    for order in Order::ALL {
        let expected =
            if matches!(order, Order::Fair | Order::Las | Order::QuickFix) { "A,B,C,A,B,C" } else { "A,A,B,B,C,C" };
        assert_eq!(turns(order, jobs), expected, "{order}");
    }
}

#[test]
fn fair_goes_round() {
    assert_eq!(turns(Order::Fair, "A@0:3 B@0:3 C@0:3"), "A,B,C,A,B,C,A,B,C");
    assert_eq!(turns(Order::Fair, "A@0:3 B@0:1 C@0:2"), "A,B,C,A,C,A");
}

#[test]
fn under_fair_a_newcomer_takes_turns_from_now_on_and_makes_up_for_nothing() {
    assert_eq!(turns(Order::Fair, "A@0:6 B@3.5:3"), "A,A,A,B,A,B,A,B,A");
    // Least attained service does let it catch up.
    assert_eq!(turns(Order::Las, "A@0:6 B@3.5:3"), "A,A,A,B,B,B,A,A,A");
}

#[test]
fn fair_does_not_ask_for_sizes() {
    assert_eq!(turns(Order::Fair, "A@0:3? B@0:1 C@0:2?"), turns(Order::Fair, "A@0:3 B@0:1 C@0:2"));
}

#[test]
fn fifo_finishes_what_it_began() {
    assert_eq!(turns(Order::Fifo, "A@0:3 B@0:1? C@1.5:0.5"), "A,A,A,B,C");
}

#[test]
fn srpt_preempts() {
    assert_eq!(turns(Order::Srpt, "A@0:4 B@1.5:1"), "A,B,A,A,A");
    assert_eq!(
        turns(Order::Srpt, "A@0:4 B@1.5:3 C@2.5:1"),
        "A,A,C,A,A,B,B,B",
        "not for as much as is left: A is older"
    );
}

#[test]
fn srpt_counts_what_is_left_not_what_there_was() {
    assert_eq!(turns(Order::Srpt, "A@0:5 B@3.5:3"), "A,A,A,A,A,B,B,B");
}

#[test]
fn orders_that_look_at_the_path_put_the_near_client_first() {
    for order in [Order::Srrt, Order::Stert, Order::Swift, Order::Fcf] {
        assert_eq!(turns(order, "A@0:1/200ms B@0:3/10ms"), "B,B,B,A", "{order}");
    }
    assert_eq!(turns(Order::Srpt, "A@0:1/200ms B@0:3/10ms"), "A,B,B,B");
}

#[test]
fn on_equal_paths_the_orders_that_look_at_them_are_srpt() {
    for order in [Order::Srrt, Order::Swift, Order::Fcf] {
        assert_eq!(turns(order, "A@0:4/50ms B@1.5:1/50ms C@2.5:2/50ms"), "A,B,C,C,A,A,A", "{order}");
    }
}

#[test]
fn srrt_counts_rounds_in_windows() {
    // 60 segments are 6 rounds of 10 segments on the path of B, and 1.5 rounds of 40 on that of A: 80 ms
    // against 75 ms.
    let settings = settings(Order::Srrt);
    let mut jobs = arrivals(&settings, "A@0:30/32ms B@0:3/50ms");
    jobs[0].path.window_segments = 40;
    jobs[1].path.window_segments = 12;
    assert!(letters(&serve(&settings, &jobs)).starts_with("B,B,B,A"));
    jobs[0].path.window_segments = 120;
    assert!(letters(&serve(&settings, &jobs)).starts_with("A,A,A"), "half a round: 48 ms");
}

#[test]
fn stert_counts_the_time_already_spent() {
    // Of two equal jobs, the one that came later has the shorter total response time.
    assert_eq!(turns(Order::Stert, "A@0:2/50ms B@0.5:2/50ms"), "B,B,A,A");
    assert_eq!(turns(Order::Srrt, "A@0:2/50ms B@0.5:2/50ms"), "A,A,B,B");
}

#[test]
fn stert_trusts_what_was_achieved_more_than_window_and_round_trip() {
    // By window and round trip A needs 1400 ms more, and B 540. But A was sent a chunk in less than 3 ms.
    let jobs = "A@0:10/500ms B@1.2:1/450ms";
    assert_eq!(turns(Order::Stert, jobs), "A,A,A,A,A,A,A,A,A,A,B");
    assert_eq!(turns(Order::Srrt, jobs), "A,B,A,A,A,A,A,A,A,A,A");
}

#[test]
fn swift_counts_rounds_of_slow_start() {
    // A's 10 segments fit into the first window, B's 12 do not: two rounds of 1 ms and 13.9 ms to send are
    // 15.9 ms.
    assert_eq!(turns(Order::Swift, "A@0:5/4ms B@0:6/1ms"), "A,A,A,A,A,B,B,B,B,B,B", "15.6 ms");
    assert_eq!(turns(Order::Swift, "A@0:5/5ms B@0:6/1ms"), "B,B,B,B,B,B,A,A,A,A,A", "16.6 ms");
}

#[test]
fn fcf_goes_by_measured_throughput() {
    let settings = settings(Order::Fcf);
    let mut jobs = arrivals(&settings, "A@0:1/10ms B@0:2/10ms");
    assert_eq!(letters(&serve(&settings, &jobs)), "A,B,B", "by what window and round trip allow, alike here");
    jobs[0].path.delivery_bytes_per_second = 100_000;
    jobs[1].path.delivery_bytes_per_second = 300_000;
    assert_eq!(letters(&serve(&settings, &jobs)), "B,B,A", "29 ms against 19 ms");
}

#[test]
fn las_serves_whoever_had_least() {
    assert_eq!(turns(Order::Las, "A@0:3 B@0:3"), "A,B,A,B,A,B");
    assert_eq!(turns(Order::Las, "A@0:4 B@2.5:1 C@3.5:1"), "A,A,B,C,A,A");
}

#[test]
fn fsp_finishes_in_the_order_of_fair_sharing() {
    // When B comes, half a chunk of A is left under fair sharing: A ends there before B, unless B is smaller.
    assert_eq!(turns(Order::Fsp, "A@0:4 B@3.5:1"), "A,A,A,A,B");
    assert_eq!(turns(Order::Fsp, "A@0:4 B@3.5:0.4"), "A,A,A,B,A");
}

#[test]
fn quick_fix_has_two_bands_and_no_more() {
    assert_eq!(turns(Order::QuickFix, "A@0:2 B@0:0.9 C@0:1 D@1.5:0.5 E@1.5:0.2"), "B,D,E,A,C,A");
    assert_eq!(turns(Order::QuickFix, "A@0:0.5? B@0:0.9"), "B,A", "what has no size is not small");
    assert_eq!(turns(Order::QuickFix, "A@0:1.5 B@1.5:1.2"), "A,B,A,B", "a large one does not turn small as it is sent");
}

#[test]
fn without_a_size_a_job_ranks_by_what_it_had() {
    // A goes while it had less than B has left; then B goes to its end.
    assert_eq!(turns(Order::Srpt, "A@0:5? B@0:2.5"), "A,A,A,B,B,B,A,A");
    assert_eq!(turns(Order::Srpt, "A@0:3? B@0:3?"), turns(Order::Las, "A@0:3 B@0:3"));
}

#[test]
fn under_fsp_a_job_without_a_size_is_as_large_as_what_it_had() {
    assert_eq!(turns(Order::Fsp, "A@0:5? B@0:1.5"), "A,A,B,B,A,A,A");
}

#[test]
fn a_length_that_becomes_known_counts_at_once() {
    assert_eq!(turns(Order::Srpt, "A@0:5?1 B@0:3"), "A,B,B,B,A,A,A,A", "longer than B after all");
    assert_eq!(turns(Order::Srpt, "A@0:5?3 B@0:3"), "A,A,A,A,A,B,B,B", "all but done");
    assert_eq!(turns(Order::Fsp, "A@0:5?1 B@0:3"), "A,B,B,B,A,A,A,A");
}

#[test]
fn the_guard_puts_ahead_whoever_waited_too_long() {
    let settings = settings(Order::Srpt);
    let small = |i: usize| format!(" {}@{}.5:1", letter(i), i);
    let jobs = arrivals(&settings, &(String::from("A@0:3") + &(1..12).map(small).collect::<String>()));
    let run = |guard_stretch| serve(&Settings { guard_stretch, ..settings }, &jobs);

    let unguarded = run(None);
    assert_eq!(letters(&unguarded), "A,B,C,D,E,F,G,H,I,J,K,L,A,A");
    // Fair sharing ends A at 6.2. Stretched by 1.5 that is 9.3, and two chunks are left: A goes ahead from
    // 7.3 on.
    let guarded = run(Some(1.5));
    assert_eq!(letters(&guarded), "A,B,C,D,E,F,G,A,A,H,I,J,K,L");
    assert_eq!(guarded.served[7].reason, Reason::Guarded);
    // Stretched by 2, from 10.4 on.
    assert_eq!(letters(&run(Some(2.0))), "A,B,C,D,E,F,G,H,I,J,A,A,K,L");
    assert_eq!((unguarded.stats.guarded, guarded.stats.guarded), (0, 1));
    // A stretch that A does not reach.
    let never = run(Some(3.0));
    assert_eq!((letters(&never), never.stats.guarded), (letters(&unguarded), 0));
}

#[test]
fn a_grant_says_why() {
    let settings = settings(Order::Srpt);
    let reasons: Vec<Reason> =
        serve(&settings, &arrivals(&settings, "A@0:2 B@0:1")).served.iter().map(|it| it.reason).collect();
    assert_eq!(reasons, [Reason::First, Reason::Alone, Reason::Alone]);
}
