use std::borrow::Cow;

use proptest::prelude::*;

use super::*;
use crate::{rate::Rate, trace::common};

const SECOND: u64 = 1_000_000_000;
const BASE_S: u64 = 807_235_200;

/// A record at this second after the beginning of August 1995.
fn record(second: u64, client: &str, path: &str, status: u16, size: impl Into<Option<u64>>) -> Record<'static> {
    let line = b"h - - [01/Aug/1995:00:00:00 +0000] \"GET / HTTP/1.0\" 200 1";
    let name = |text: &str| Some(Name::Text(Cow::Owned(text.as_bytes().to_vec())));
    Record {
        at_ns: (BASE_S + second) * SECOND,
        client: name(client),
        object: name(path),
        status: Some(status),
        size_bytes: size.into(),
        ..common::parse(line).unwrap()
    }
}

fn collect(records: impl IntoIterator<Item = Record<'static>>) -> Collected {
    let mut collector = Collector::new(None, Vec::new());
    for record in records {
        assert!(collector.add(&record).is_continue());
    }
    collector.finish()
}

fn link() -> Link {
    Link::constant(Rate::from_bits_per_second(8_000_000).unwrap())
}

fn plan(link: &Link, pace: Pace) -> Plan<'_> {
    Plan { pace, link, wire: WireModel::BODY_ONLY, duration_ns: None, shares: &[], seed: 1 }
}

/// One request a second, each of another file of 1000 bytes, from 50 clients.
fn steady(count: u64) -> Collected {
    collect((0..count).map(|i| record(i, &format!("c{}", i % 50), &format!("/{i}"), 200, 1000)))
}

fn bytes(requests: &[Request]) -> f64 {
    requests.iter().map(|request| request.size_bytes as f64).sum()
}

#[test]
fn only_what_can_be_asked_again_is_replayed() {
    let collected = collect([
        record(0, "c", "/a", 200, 10),
        record(1, "c", "/a", 304, None),
        record(2, "c", "/a", 404, 300),
        record(2, "c", "/a", 302, 0),
        Record { method: Some(Method::Post), ..record(3, "c", "/a", 200, 10) },
        Record { method: Some(Method::Head), ..record(3, "c", "/a", 200, 0) },
        record(4, "c", "/film", 206, 999),
        record(5, "c", "/a", 204, 0),
        record(6, "c", "/never", 304, 0),
        record(7, "c", "/empty", 200, 0),
        Record { method: None, status: None, ..record(8, "c", "/b", 0, 20) },
    ]);
    let left_out = LeftOut { outside: 0, method: 2, status: 2, part: 1, no_body: 1, no_size: 2 };
    assert_eq!((collected.requests(), collected.left_out()), (3, &left_out));
    assert_eq!(collected.sizes_bytes(), [10, 20]);
    assert_eq!(
        collected.notes()[1..],
        [
            "records left out because their method is not GET: 2",
            "records left out because their answer was neither 2xx nor 304: 2",
            "records left out because they asked for a part of a file (206): 1",
            "records left out because their answer has no body (204, 205): 1",
            "records left out because the log never says how large the object is: 2",
            "each answer is a whole file of the size logged most often for it, also where the log has 304 or an aborted transfer: 40 bytes in all, \
 where the log has 30",
        ]
    );
}

#[test]
fn a_file_has_the_size_that_was_logged_most_often() {
    let sizes = |sizes: &[u64]| {
        let records = sizes.iter().enumerate().map(|(i, &size)| record(i as u64, "c", "/a", 200, size));
        collect(records.collect::<Vec<_>>()).sizes_bytes().to_vec()
    };
    assert_eq!(sizes(&[8192, 5000, 5000, 1300]), [5000], "aborted transfers, and an odd one");
    assert_eq!(sizes(&[1300, 5000]), [5000], "one of two was aborted, and that is the smaller");
    assert_eq!(sizes(&[5000, 1300]), [5000]);
}

#[test]
fn a_size_is_known_from_anywhere_in_the_log() {
    let collected =
        collect([record(0, "c", "/a", 304, 0), record(1, "c", "/b", 200, 7), record(2, "c", "/a", 200, 10)]);
    let requests = collected.replay(&plan(&link(), Pace::AsLogged)).unwrap().requests;
    assert_eq!(requests.iter().map(|r| (r.file, r.size_bytes)).collect::<Vec<_>>(), [(0, 10), (1, 7), (0, 10)]);
}

#[test]
fn a_record_without_an_object_asks_for_a_file_of_its_size() {
    let nameless = |second, size| Record { object: None, ..record(second, "c", "", 200, size) };
    let collected = collect([nameless(0, Some(10)), nameless(1, Some(20)), nameless(2, Some(10)), nameless(3, None)]);
    assert_eq!((collected.sizes_bytes(), collected.requests()), (&[10, 20][..], 3));
    assert_eq!(collected.left_out().no_size, 1);
}

#[test]
fn requests_within_a_second_are_spread_over_it_in_their_order() {
    let collected = collect((0..1000).map(|i| record(i / 500, "c", &format!("/{i}"), 200, 1)));
    let requests = collected.replay(&plan(&link(), Pace::AsLogged)).unwrap().requests;
    assert_eq!(requests.iter().map(|request| request.file).collect::<Vec<_>>(), (0..1000).collect::<Vec<_>>());
    assert!(requests.is_sorted_by_key(|request| request.at_ns));
    for (second, together) in requests.chunks(500).enumerate() {
        let within: Vec<f64> =
            together.iter().map(|r| (r.at_ns - second as u64 * SECOND) as f64 / SECOND as f64).collect();
        assert!(within.iter().all(|part| (0.0..1.0).contains(part)));
        // Kolmogorov-Smirnov test against the uniform distribution, at the 0.1 % level.
        let worst = within.iter().enumerate().map(|(i, part)| (part - i as f64 / 500.0).abs()).fold(0.0, f64::max);
        assert!(worst < 1.95 / 500_f64.sqrt(), "{worst}");
    }
    let again = |seed| collected.replay(&Plan { seed, ..plan(&link(), Pace::AsLogged) }).unwrap().requests;
    assert_eq!(again(1), requests);
    assert_ne!(again(2), requests);
}

#[test]
fn times_finer_than_a_second_are_hardly_moved() {
    let fine = |ms: u64| Record {
        at_ns: BASE_S * SECOND + ms * 1_000_000,
        tick_ns: 1_000_000,
        ..record(0, "c", "/a", 200, 10)
    };
    let requests = collect([fine(0), fine(250), fine(900)]).replay(&plan(&link(), Pace::AsLogged)).unwrap().requests;
    assert_eq!(requests.iter().map(|r| r.at_ns / 1_000_000).collect::<Vec<_>>(), [0, 250, 900]);
}

#[test]
fn records_out_of_order_are_put_in_order() {
    let collected =
        collect([record(5, "c", "/late", 200, 1), record(3, "c", "/early", 200, 2), record(6, "c", "/c", 200, 3)]);
    let requests = collected.replay(&plan(&link(), Pace::AsLogged)).unwrap().requests;
    assert_eq!(requests.iter().map(|r| (r.at_ns / SECOND, r.file)).collect::<Vec<_>>(), [(0, 1), (2, 0), (3, 2)]);
}

#[test]
fn a_window_counts_from_the_first_record() {
    let mut collector = Collector::new(Some((10 * SECOND, 20 * SECOND)), Vec::new());
    // The clock of one record is years ahead.
    let odd = |i| if i == 12 { 1_000_000_000 } else { i };
    let read = (0..10_000)
        .take_while(|&i| collector.add(&record(odd(i), "c", &format!("/{i}"), 200, 1)).is_continue())
        .count();
    assert_eq!(
        read,
        20 + 3600 + 999,
        "reading ends behind the window, an hour of disorder, and a thousand records that agree"
    );
    let collected = collector.finish();
    let requests = collected.replay(&plan(&link(), Pace::AsLogged)).unwrap().requests;
    assert_eq!((requests.len(), requests[0].at_ns / SECOND, requests[8].at_ns / SECOND), (9, 0, 9));
    assert_eq!(collected.span_ns(), 10 * SECOND);
    assert_eq!(collected.left_out().outside, 10 + 1 + 3600 + 1000);
}

#[test]
fn sizes_are_learnt_outside_the_window_too() {
    let mut collector = Collector::new(Some((10 * SECOND, 20 * SECOND)), Vec::new());
    for record in [
        record(0, "c", "/other", 200, 5),
        record(1, "c", "/a", 200, 10),
        record(12, "c", "/a", 304, 0),
        record(13, "c", "/b", 304, 0),
        record(30, "c", "/b", 200, 20),
    ] {
        assert!(collector.add(&record).is_continue());
    }
    let collected = collector.finish();
    assert_eq!(
        (collected.sizes_bytes(), collected.requests()),
        (&[10, 20][..], 2),
        "files that nobody asks for are not made"
    );
}

#[test]
fn a_load_is_met_by_scaling_the_times() {
    let (collected, link) = (steady(1000), link());
    for load in [0.1, 0.8, 1.5] {
        let replayed = collected.replay(&plan(&link, Pace::Load(load))).unwrap();
        let offered = bytes(&replayed.requests) / link.capacity_at(replayed.span_ns as f64);
        assert!((offered - load).abs() < 1e-6, "{offered}");
        // One request a second of 1000 bytes is a load of 0.001 on 1 MB/s.
        assert!((replayed.factor - 0.001 / load).abs() < 1e-9, "{}", replayed.factor);
        assert_eq!(replayed.requests.len(), 1000);
        assert!(replayed.requests.is_sorted_by_key(|request| request.at_ns));
        assert!(replayed.requests[999].at_ns < replayed.span_ns);
    }
}

#[test]
fn a_load_over_a_given_time_takes_as_many_requests_as_it_needs() {
    let (collected, link) = (steady(10_000), link());
    let replay = |duration_s: u64, load| {
        let plan = Plan { duration_ns: Some(duration_s * SECOND), ..plan(&link, Pace::Load(load)) };
        collected.replay(&plan).unwrap()
    };
    let replayed = replay(5, 0.8);
    assert_eq!((replayed.requests.len(), replayed.span_ns), (4000, 5 * SECOND));
    let last = replayed.requests[3999].at_ns as f64 / SECOND as f64;
    assert!((4.99..5.0).contains(&last), "{last}");

    let short = replay(20, 0.8);
    assert_eq!((short.requests.len(), short.span_ns), (10_000, 12_500_000_000), "the log has no more than this");
}

#[test]
fn a_load_follows_the_mean_rate_of_a_link_that_changes() {
    let slow = Rate::from_bits_per_second(4_000_000).unwrap();
    let link = link().then(2 * SECOND, slow).unwrap();
    let plan = Plan { duration_ns: Some(4 * SECOND), ..plan(&link, Pace::Load(0.5)) };
    let requests = steady(10_000).replay(&plan).unwrap().requests;
    assert_eq!(requests.len(), 1500, "half of 2 MB and of 1 MB");
}

#[test]
fn without_a_load_the_run_ends_when_its_time_is_over() {
    let (collected, link) = (steady(100), link());
    let replay = |pace, duration_s: u64| {
        let replayed = collected.replay(&Plan { duration_ns: Some(duration_s * SECOND), ..plan(&link, pace) }).unwrap();
        (replayed.requests.len(), replayed.factor, replayed.span_ns / SECOND)
    };
    assert_eq!(replay(Pace::AsLogged, 10), (10, 1.0, 10));
    assert_eq!(replay(Pace::AsLogged, 1000), (100, 1.0, 100));
}

#[test]
fn clients_stay_in_their_groups_and_groups_have_their_shares() {
    let collected = collect((0..20_000).map(|i| record(i, &format!("c{}", i % 5000), "/a", 200, 1)));
    let link = link();
    let plan = Plan { shares: &[1.0, 0.0, 3.0], ..plan(&link, Pace::AsLogged) };
    let requests = collected.replay(&plan).unwrap().requests;
    for i in 0..5000 {
        assert!((1..4).all(|round| requests[i + 5000 * round].group == requests[i].group), "client {i}");
    }
    let count = |group| requests[..5000].iter().filter(|request| request.group == group).count() as f64 / 5000.0;
    // Four standard deviations of a share of a quarter among 5000.
    assert!((count(0) - 0.25).abs() < 0.025, "{}", count(0));
    assert_eq!((count(1), count(0) + count(2)), (0.0, 1.0));
    assert_eq!(collected.clients(), 5000);
}

#[test]
fn requests_of_clients_that_the_log_does_not_name_are_dealt_out_one_by_one() {
    let collected = collect((0..5000).map(|i| Record { client: None, ..record(i, "", "/a", 200, 1) }));
    let link = link();
    let requests = collected.replay(&Plan { shares: &[0.5, 0.5], ..plan(&link, Pace::AsLogged) }).unwrap().requests;
    let first = requests.iter().filter(|request| request.group == 0).count() as f64 / 5000.0;
    assert!((first - 0.5).abs() < 0.03, "{first}");
}

#[test]
fn a_class_that_is_a_group_decides() {
    let mut collector = Collector::new(None, vec!["near".to_owned(), "far".to_owned()]);
    for (i, class) in ["far", "near", "far", "far"].into_iter().enumerate() {
        let record = Record { class: Some(class.as_bytes().into()), ..record(i as u64, "one", "/a", 200, 1) };
        assert!(collector.add(&record).is_continue());
    }
    let link = link();
    let requests =
        collector.finish().replay(&Plan { shares: &[1.0, 1e-9], ..plan(&link, Pace::AsLogged) }).unwrap().requests;
    assert_eq!(requests.iter().map(|request| request.group).collect::<Vec<_>>(), [1, 0, 1, 1]);
}

#[test]
fn what_cannot_be_replayed_says_why() {
    let link = link();
    let nothing = collect([record(0, "c", "/a", 404, 1)]);
    let error = nothing.replay(&plan(&link, Pace::AsLogged)).unwrap_err().to_string();
    let expected =
        "nothing in the log can be replayed; records left out because their answer was neither 2xx nor 304: 1";
    assert_eq!(error, expected);

    let some = steady(10);
    for load in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(some.replay(&plan(&link, Pace::Load(load))), Err(ReplayError::Load(_))), "{load}");
    }
    let no_time = Plan { duration_ns: Some(0), ..plan(&link, Pace::AsLogged) };
    assert_eq!(some.replay(&no_time), Err(ReplayError::TooShort));
    for shares in [&[0.0, 0.0][..], &[-1.0, 2.0], &[f64::NAN]] {
        let plan = Plan { shares, ..plan(&link, Pace::AsLogged) };
        assert_eq!(some.replay(&plan), Err(ReplayError::Shares), "{shares:?}");
    }
}

/// Sizes as in logs, and the largest number that a log can hold.
fn any_size() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), Just(Some(u64::MAX)), (0_u64..10_000_000).prop_map(Some)]
}

fn any_record() -> impl Strategy<Value = Record<'static>> {
    (any::<u64>(), 1..100_u64, any_size(), proptest::option::of(0..600_u16), any::<Option<u8>>()).prop_map(
        |(at_ns, tick_ns, size_bytes, status, name)| Record {
            number: 1,
            at_ns,
            tick_ns,
            object: name.map(|name| Name::Number(u64::from(name) % 3)),
            client: name.map(|name| Name::Number(name.into())),
            size_bytes,
            status,
            method: None,
            class: None,
        },
    )
}

proptest! {
    #[test]
    fn whatever_was_logged_the_requests_are_sound(
        records in proptest::collection::vec(any_record(), 0..50),
        window in proptest::option::of(any::<(u64, u64)>()),
        load in proptest::option::of(1e-6..1e6),
        duration_ns in any::<Option<u64>>(),
    ) {
        let mut collector = Collector::new(window, Vec::new());
        for record in &records {
            if collector.add(record).is_break() {
                break;
            }
        }
        let (collected, link) = (collector.finish(), link());
        let pace = load.map_or(Pace::AsLogged, Pace::Load);
        let plan = Plan { pace, duration_ns, shares: &[1.0, 2.0], wire: WireModel::PER_CONNECTION, link: &link, seed: 5 };
        if let Ok(replayed) = collected.replay(&plan) {
            prop_assert!(!replayed.requests.is_empty() && replayed.requests.is_sorted_by_key(|request| request.at_ns));
            for request in &replayed.requests {
                prop_assert_eq!(request.size_bytes, collected.sizes_bytes()[request.file as usize]);
                prop_assert!(request.size_bytes > 0 && request.group < 2);
            }
        }
    }
}
