mod deadlines;
mod random;

use alloc::{format, string::String};

use super::*;
use crate::class::Class;

fn ms(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

fn ask(class: u16, resource: u16) -> Arrival {
    Arrival { class: ClassId(class), resource: ResourceId(resource), client: 0, expected_ns: None, within_ns: None }
}

fn classes(n: usize) -> Vec<Class> {
    vec![Class::default(); n]
}

/// All decisions of now.
fn decide(admission: &mut Admission, now: Instant) -> Vec<Decision> {
    core::iter::from_fn(|| admission.poll_decision(now)).collect()
}

fn started(decisions: &[Decision]) -> Vec<RequestId> {
    let starts = decisions.iter().filter_map(|decision| match decision {
        Decision::Start(start) => Some(start.request),
        Decision::Refuse { .. } => None,
    });
    starts.collect()
}

fn refused(decisions: &[Decision]) -> Vec<(RequestId, Refusal)> {
    let refusals = decisions.iter().filter_map(|decision| match *decision {
        Decision::Refuse { request, refusal } => Some((request, refusal)),
        Decision::Start(_) => None,
    });
    refusals.collect()
}

#[test]
fn uncontrolled_lets_everybody_through_at_once() {
    let mut admission = Admission::new(Settings::uncontrolled(classes(2), 3, Policy::Strict)).unwrap();
    for i in 0..1000 {
        let id = admission.handle_arrived(ms(i), ask(1, (i % 3) as u16)).unwrap();
        assert_eq!(started(&decide(&mut admission, ms(i))), [id]);
    }
    assert_eq!(admission.class_stats(ClassId(1)).running, 1000);
}

#[test]
fn a_single_window_takes_requests_of_all_types_as_they_came() {
    let mut admission = Admission::new(Settings::single_window(classes(1), 3, Policy::Strict, 1)).unwrap();
    let ids: Vec<_> = [0, 2, 1, 2, 0].map(|it| admission.handle_arrived(ms(0), ask(0, it)).unwrap()).into();
    for id in ids {
        assert_eq!(started(&decide(&mut admission, ms(1))), [id]);
        admission.handle_finished(ms(2), id);
    }
}

#[test]
fn the_idlest_type_goes_first_by_what_is_left_of_its_window() {
    // One slot for all that matters, so that types have to be chosen between.
    let settings = Settings { total: Some(5), ..Settings::multi_resource(classes(1), Policy::Strict, &[2, 4, 8]) };
    let mut admission = Admission::new(settings).unwrap();
    for resource in [0, 0, 0, 1, 1, 1, 2, 2, 2] {
        admission.handle_arrived(ms(0), ask(0, resource)).unwrap();
    }
    let decisions = decide(&mut admission, ms(0));
    let resources: String = decisions
        .iter()
        .map(|decision| match decision {
            Decision::Start(start) => format!("{}", start.resource.0),
            Decision::Refuse { .. } => "refused".into(),
        })
        .collect();
    // Left of 2, 4, 8: all; 1/2 all all; 1/2 3/4 all; 1/2 3/4 7/8; 1/2 3/4 3/4.
    assert_eq!(resources, "01221");
}

#[test]
fn each_type_has_its_window_and_no_other_is_in_its_way() {
    let mut admission = Admission::new(Settings::multi_resource(classes(1), Policy::Strict, &[1, 3])).unwrap();
    for _ in 0..5 {
        admission.handle_arrived(ms(0), ask(0, 0)).unwrap();
        admission.handle_arrived(ms(0), ask(0, 1)).unwrap();
    }
    decide(&mut admission, ms(0));
    assert_eq!((admission.running(ResourceId(0)), admission.running(ResourceId(1))), (1, 3));
    assert_eq!(admission.waiting(ClassId(0), ResourceId(0)), 4);
    admission.handle_window(ResourceId(0), 2);
    admission.handle_window(ResourceId(1), 0);
    assert_eq!(started(&decide(&mut admission, ms(0))).len(), 1, "wider by one");
    assert_eq!(admission.settings().windows, [Some(2), Some(1)], "a window is at least 1");
}

#[test]
fn a_decision_says_why() {
    let mut of = classes(2);
    of[0].most_running = Some(1);
    let mut admission = Admission::new(Settings::multi_resource(of, Policy::Strict, &[2, 4])).unwrap();
    let mut reasons = |class, resource| {
        admission.handle_arrived(ms(0), ask(class, resource)).unwrap();
        let decisions = decide(&mut admission, ms(0));
        decisions
            .iter()
            .map(|decision| match decision {
                Decision::Start(start) => start.reason,
                Decision::Refuse { .. } => unreachable!("all may wait"),
            })
            .collect::<Vec<_>>()
    };
    let alone = Reason { idlest: Idlest::Only, share: share::Reason::Alone, turn: Turn::Only };
    assert_eq!(reasons(0, 1), [alone]);
    // The class has its one running. It stays in the queue of the other type, which is idler than the first.
    assert_eq!(reasons(0, 0), []);
    assert_eq!(reasons(1, 0), [alone], "nobody else may go there");
    assert_eq!(reasons(1, 1), [Reason { idlest: Idlest::First, ..alone }]);
    // Now both are as idle, and the first one is asked first.
    assert_eq!(reasons(1, 1), [Reason { idlest: Idlest::OthersKept, ..alone }]);
}

#[test]
fn a_slot_is_released_when_the_site_is_done_and_not_spent_by_who_is_gone() {
    let mut admission = Admission::new(Settings::multi_resource(classes(1), Policy::Strict, &[1])).unwrap();
    let [a, b, c, d] = [(); 4].map(|()| admission.handle_arrived(ms(0), ask(0, 0)).unwrap());
    assert_eq!(started(&decide(&mut admission, ms(0))), [a]);
    admission.handle_gone(ms(1), b);
    assert_eq!(decide(&mut admission, ms(1)), [], "nothing has become free");
    admission.handle_finished(ms(2), a);
    assert_eq!(started(&decide(&mut admission, ms(2))), [c]);
    admission.handle_gone(ms(3), c);
    assert_eq!(started(&decide(&mut admission, ms(3))), [d], "the site is rid of it");
    // Names that are no longer in force.
    for id in [a, b, c] {
        admission.handle_gone(ms(4), id);
        admission.handle_finished(ms(4), id);
    }
    assert_eq!(admission.running(ResourceId(0)), 1);
    let stats = admission.class_stats(ClassId(0));
    assert_eq!((stats.arrived, stats.started, stats.finished), (4, 3, 1));
    assert_eq!((stats.gone_waiting, stats.gone_running, stats.running), (1, 1, 1));
    assert_eq!(admission.mean_service_ns(ResourceId(0)), Some(2_000_000), "what was given up says nothing");
}

#[test]
fn a_queue_has_its_limit_and_none_at_all_still_lets_start_whom_it_can() {
    let of = [0, 2].map(|most_waiting| Class { most_waiting, ..Class::default() });
    let mut admission = Admission::new(Settings::multi_resource(of.into(), Policy::Strict, &[1])).unwrap();
    let first = admission.handle_arrived(ms(0), ask(0, 0)).unwrap();
    assert_eq!(started(&decide(&mut admission, ms(0))), [first]);
    let second = admission.handle_arrived(ms(0), ask(0, 0)).unwrap();
    assert_eq!(refused(&decide(&mut admission, ms(0))), [(second, Refusal::QueueFull)]);
    let [_, _, third] = [(); 3].map(|()| admission.handle_arrived(ms(0), ask(1, 0)).unwrap());
    // A driver that does not ask what to do gets no further.
    assert_eq!(admission.handle_arrived(ms(0), ask(1, 0)), Err(Refusal::QueueFull));
    assert_eq!(refused(&decide(&mut admission, ms(0))), [(third, Refusal::QueueFull)]);
    assert_eq!(admission.class_stats(ClassId(1)).refused_full, 2);
    assert_eq!(admission.handle_arrived(ms(0), ask(2, 0)), Err(Refusal::NoSuchQueue));
    assert_eq!(admission.handle_arrived(ms(0), ask(0, 1)), Err(Refusal::NoSuchQueue));
}

#[test]
fn who_is_refused_is_who_would_have_gone_last() {
    let refusals = |order, asks: [(u64, Option<u64>); 4], at| {
        let class = Class { order, most_waiting: 3, ..Class::default() };
        let mut admission = Admission::new(Settings::multi_resource(vec![class], Policy::Strict, &[1])).unwrap();
        admission.handle_arrived(ms(0), ask(0, 0)).unwrap();
        decide(&mut admission, ms(0));
        let ids = asks.map(|(client, expected_ns)| {
            admission.handle_arrived(at, Arrival { client, expected_ns, ..ask(0, 0) }).unwrap()
        });
        let refused = refused(&decide(&mut admission, at.add_ns(1_000)));
        let places: Vec<_> = refused.iter().map(|(id, _)| ids.iter().position(|it| it == id).unwrap()).collect();
        places
    };
    let greedy = [(1, Some(1)), (1, Some(9)), (1, Some(5)), (2, Some(3))];
    assert_eq!(refusals(QueueOrder::Fifo, greedy, ms(1)), [3], "the newest");
    assert_eq!(refusals(QueueOrder::Shortest, greedy, ms(1)), [1], "the longest");
    assert_eq!(
        refusals(QueueOrder::FairAmongClients, greedy, ms(1)),
        [2],
        "the third of one client, not the other's first"
    );
    assert_eq!(refusals(QueueOrder::LifoUnderOverload { after_ns: 1_000_000 }, greedy, ms(1)), [3]);
    assert_eq!(refusals(QueueOrder::LifoUnderOverload { after_ns: 999 }, greedy, ms(1)), [0], "the oldest");
}

/// One slot that is taken, and an adaptive order.
fn adaptive(most_wait_ns: Option<u64>) -> Admission {
    let class = Class { order: QueueOrder::Adaptive, most_wait_ns, ..Class::default() };
    let mut admission = Admission::new(Settings::multi_resource(vec![class], Policy::Strict, &[1])).unwrap();
    admission.handle_arrived(ms(0), ask(0, 0)).unwrap();
    decide(&mut admission, ms(0));
    admission
}

/// The site is done with the running request; who follows it, and why.
fn next(admission: &mut Admission, now: Instant) -> Option<(RequestId, Turn)> {
    let running = admission.requests.iter().find(|(_, it)| matches!(it.state, RequestState::Running { .. }));
    let running = running.map(|(_, it)| it.id)?;
    admission.handle_finished(now, running);
    match decide(admission, now)[..] {
        [Decision::Start(start)] => Some((start.request, start.reason.turn)),
        _ => None,
    }
}

#[test]
fn clients_that_leave_turn_the_adaptive_order_to_the_newest_while_the_oldest_has_waited_for_half_as_long() {
    let mut admission = adaptive(None);
    let impatient = [(); 2].map(|()| admission.handle_arrived(ms(0), ask(0, 0)).unwrap());
    impatient.into_iter().for_each(|id| admission.handle_gone(ms(10_000), id));
    let [a, b, c, d] = [11, 12, 13, 14].map(|at| admission.handle_arrived(ms(at * 1000), ask(0, 0)).unwrap());
    assert_eq!(next(&mut admission, ms(14_500)), Some((a, Turn::First)), "the oldest has waited for 3.5 s");
    assert_eq!(next(&mut admission, ms(17_500)), Some((d, Turn::Newest)), "the oldest has waited for 5.5 s");
    let e = admission.handle_arrived(ms(17_600), ask(0, 0)).unwrap();
    assert_eq!(next(&mut admission, ms(17_700)), Some((e, Turn::Newest)));
    assert_eq!(next(&mut admission, ms(17_800)), Some((c, Turn::Newest)));
    assert_eq!(next(&mut admission, ms(17_900)), Some((b, Turn::Only)), "it is late, but nobody else waits");
}

#[test]
fn a_request_that_would_be_refused_at_last_counts_as_impatient_from_the_beginning() {
    let mut admission = adaptive(Some(30_000_000_000));
    let [a, _, c] = [(); 3].map(|()| admission.handle_arrived(ms(0), ask(0, 0)).unwrap());
    assert_eq!(next(&mut admission, ms(15_000)), Some((a, Turn::First)));
    assert_eq!(next(&mut admission, ms(15_001)), Some((c, Turn::Newest)));
}

#[test]
fn what_the_gateway_or_the_site_gives_up_says_nothing_about_patience() {
    let mut admission = adaptive(None);
    let ids = [(); 9].map(|()| admission.handle_arrived(ms(0), ask(0, 0)).unwrap());
    ids[2..].iter().for_each(|&id| admission.handle_given_up(id));
    // Neither does a client that has waited for a short time and leaves during a long service.
    let (served, _) = next(&mut admission, ms(10_000)).unwrap();
    admission.handle_gone(ms(25_000), served);
    assert_eq!(admission.patience[0].ns(), None);
    assert_eq!(started(&decide(&mut admission, ms(25_000))), [ids[1]]);
}

#[test]
fn clients_that_are_found_gone_when_it_is_their_turn_have_left() {
    let mut admission = adaptive(None);
    let ids = [(); 3].map(|()| admission.handle_arrived(ms(0), ask(0, 0)).unwrap());
    assert_eq!(next(&mut admission, ms(500)).map(|it| it.0), Some(ids[0]));
    admission.handle_gone(ms(500), ids[0]);
    assert_eq!(started(&decide(&mut admission, ms(500))), [ids[1]]);
    admission.handle_gone(ms(500), ids[1]);
    assert!(admission.patience[0].ns().is_some_and(|ns| (400_000_000..=500_000_000).contains(&ns)));
}

#[test]
fn what_is_known_of_patience_outlasts_a_change_of_settings() {
    let mut admission = adaptive(None);
    let impatient = [(); 2].map(|()| admission.handle_arrived(ms(0), ask(0, 0)).unwrap());
    impatient.into_iter().for_each(|id| admission.handle_gone(ms(10_000), id));
    let known = admission.patience[0].ns();
    assert!(known.is_some());
    let class = Class { order: QueueOrder::Adaptive, ..Class::default() };
    let moves = Moves { classes: vec![ClassId(1)], resources: Vec::new() };
    let settings = Settings::multi_resource(vec![class; 2], Policy::Strict, &[1]);
    admission.handle_settings(settings, &moves).unwrap();
    assert_eq!((admission.patience[0].ns(), admission.patience[1].ns()), (None, known));
}

#[test]
fn who_waits_too_long_is_told_so_then_and_not_later() {
    let class = Class { most_wait_ns: Some(5_000_000), ..Class::default() };
    let mut admission = Admission::new(Settings::multi_resource(vec![class], Policy::Strict, &[1])).unwrap();
    let [_, waits] = [0, 1].map(|at| admission.handle_arrived(ms(at), ask(0, 0)).unwrap());
    assert_eq!(decide(&mut admission, ms(1)).len(), 1);
    assert_eq!(admission.poll_timeout(), Some(ms(6)));
    assert_eq!(decide(&mut admission, Instant::from_ns(5_999_999)), []);
    assert_eq!(refused(&decide(&mut admission, ms(6))), [(waits, Refusal::WaitedTooLong)]);
    assert_eq!(admission.poll_timeout(), None);
}

#[test]
fn any_share_goes_with_any_order() {
    let orders = [
        QueueOrder::Fifo,
        QueueOrder::Adaptive,
        QueueOrder::Shortest,
        QueueOrder::LifoUnderOverload { after_ns: 0 },
        QueueOrder::FairAmongClients,
    ];
    for policy in Policy::ALL {
        for (order, within) in orders.into_iter().zip(["0123", "0123", "1302", "3210", "0132"]) {
            let of = vec![Class { order, deadline_ns: Some(1_000_000_000), ..Class::default() }; 2];
            let mut admission = Admission::new(Settings::single_window(of, 1, policy, 2)).unwrap();
            let fillers = [0, 1].map(|class| admission.handle_arrived(ms(0), ask(class, 0)).unwrap());
            assert_eq!(decide(&mut admission, ms(0)).len(), 2);
            let mut ids = [const { Vec::new() }; 2];
            for (i, (expected_ns, client)) in [(30, 7), (10, 8), (40, 7), (20, 9)].into_iter().enumerate() {
                for class in [0, 1] {
                    let arrival = Arrival { client, expected_ns: Some(expected_ns), ..ask(class, 0) };
                    let id = admission.handle_arrived(ms(1 + i as u64), arrival).unwrap();
                    ids[usize::from(class)].push(id);
                }
            }
            for id in fillers {
                admission.handle_finished(ms(10), id);
            }
            let mut order_of = [const { String::new() }; 2];
            loop {
                let starts = started(&decide(&mut admission, ms(10)));
                if starts.is_empty() {
                    break;
                }
                for id in starts {
                    let class = usize::from(ids[1].contains(&id));
                    let place = ids[class].iter().position(|it| *it == id).unwrap();
                    order_of[class].push_str(&format!("{place}"));
                    admission.handle_finished(ms(10), id);
                }
            }
            assert_eq!(order_of, [within, within], "{policy} {order:?}");
        }
    }
}

#[test]
fn settings_change_while_running_and_nobody_is_lost() {
    let of = vec![Class { most_wait_ns: Some(50_000_000), ..Class::default() }; 3];
    let mut admission = Admission::new(Settings::multi_resource(of, Policy::Strict, &[1, 1])).unwrap();
    let mut ids = Vec::new();
    for class in 0..3 {
        for resource in [0, 0, 1, 1] {
            ids.push(admission.handle_arrived(ms(0), ask(class, resource)).unwrap());
        }
    }
    let mut seen = started(&decide(&mut admission, ms(0)));
    assert_eq!(seen.len(), 2);
    // Class 2 is now the first, and class 0 and 1 are one; there is one window for all, and hardly a queue.
    let of = vec![Class { most_waiting: 1, ..Class::default() }; 2];
    let moves = Moves { classes: vec![ClassId(1), ClassId(1), ClassId(0)], resources: Vec::new() };
    let unusable = Settings::single_window(Vec::new(), 1, Policy::Strict, 3);
    assert_eq!(admission.handle_settings(unusable, &moves), Err(SettingsError::Classes));
    admission.handle_settings(Settings::single_window(of, 1, Policy::Strict, 3), &moves).unwrap();
    assert_eq!((admission.running(ResourceId(0)), admission.class_stats(ClassId(1)).running), (2, 2));
    assert_eq!(admission.class_stats(ClassId(1)).waiting, 6);
    assert_eq!(admission.class_stats(ClassId(1)).arrived, 8);

    let starts = started(&decide(&mut admission, ms(1)));
    assert_eq!(starts, [ids[8]], "the first of what was class 2");
    seen.extend(starts);
    assert_eq!(admission.handle_arrived(ms(1), ask(1, 0)), Err(Refusal::QueueFull), "too many wait already");
    for i in 0.. {
        let Some(&id) = seen.get(i) else { break };
        admission.handle_finished(ms(2), id);
        let decisions = decide(&mut admission, ms(2));
        assert_eq!(refused(&decisions), []);
        seen.extend(started(&decisions));
    }
    let rest = &seen[3..];
    assert_eq!(rest[..3], ids[9..], "first those of what was class 2");
    seen.sort_unstable();
    assert_eq!(seen, ids);
}

#[test]
fn delays_are_those_of_requests_from_their_arrival_to_their_end() {
    let of = |policy, ratios: [u32; 2]| {
        let classes = ratios.map(|delay_ratio| Class { delay_ratio, ..Class::default() }).to_vec();
        Admission::new(Settings::multi_resource(classes, policy, &[1])).unwrap()
    };
    // Each asks at its time; what was done before is finished at that time, and who starts then is of this class, and why.
    let starts = |admission: &mut Admission, asks: &[(u64, u16)], ends: &[u64]| {
        let (mut asks, mut running, mut seen) = (asks.iter().peekable(), None, Vec::new());
        for &end in ends {
            while let Some(&(at, class)) = asks.next_if(|it| it.0 <= end) {
                admission.handle_arrived(ms(at), ask(class, 0)).unwrap();
            }
            running.into_iter().for_each(|request| admission.handle_finished(ms(end), request));
            let Some(Decision::Start(start)) = admission.poll_decision(ms(end)) else {
                panic!("nobody starts at {end}")
            };
            running = Some(start.request);
            seen.push((start.class.0, start.reason.share));
        }
        seen
    };
    use share::Reason::{Alone, Delay};
    // (4 + 10) / 1 and (9 + 10) / 3; (1 + 10) / 1 and (19 + 10) / 3; (0 + 10) / 1 and (29 + 10) / 3.
    let asks = [(0, 0), (1, 1), (6, 0), (19, 0), (30, 0)];
    let seen = starts(&mut of(Policy::Wtp, [1, 3]), &asks, &[0, 10, 20, 30, 40]);
    assert_eq!(seen, [(0, Alone), (0, Delay), (0, Delay), (1, Delay), (0, Alone)]);
    // No request has left and none has waited; then 10 and 30, however long they wait; then 10 and (30 + 29) / 2.
    let asks = [(0, 0), (0, 1), (11, 0), (21, 1), (22, 1)];
    let seen = starts(&mut of(Policy::Pwad, [1, 1]), &asks, &[0, 10, 30, 50, 60]);
    assert_eq!(seen, [(0, Delay), (1, Alone), (1, Delay), (1, Delay), (0, Alone)]);
    // A request that is gone does not count as waiting: 15 / 1 and 5 / 1, and not (5 + 39) / 2.
    let mut admission = of(Policy::Mdp, [1, 1]);
    let first = admission.handle_arrived(ms(0), ask(0, 0)).unwrap();
    decide(&mut admission, ms(0));
    let gone = admission.handle_arrived(ms(1), ask(1, 0)).unwrap();
    admission.handle_arrived(ms(25), ask(0, 0)).unwrap();
    admission.handle_arrived(ms(35), ask(1, 0)).unwrap();
    admission.handle_gone(ms(0), gone);
    admission.handle_gone(ms(0), first);
    let Some(Decision::Start(start)) = admission.poll_decision(ms(40)) else { panic!("nobody starts") };
    assert_eq!((start.class, start.reason.share), (ClassId(0), Delay));
}

#[test]
fn of_resource_types_that_become_one_the_first_that_was_measured_tells_what_to_expect() {
    let mut admission = Admission::new(Settings::multi_resource(classes(1), Policy::Strict, &[1; 4])).unwrap();
    for (resource, served_ms) in [(1, 10), (2, 70)] {
        let id = admission.handle_arrived(ms(0), ask(0, resource)).unwrap();
        decide(&mut admission, ms(0));
        admission.handle_finished(ms(served_ms), id);
    }
    let moves = Moves { resources: vec![ResourceId(0); 4], ..Moves::default() };
    admission.handle_settings(Settings::multi_resource(classes(1), Policy::Strict, &[1]), &moves).unwrap();
    assert_eq!(admission.mean_service_ns(ResourceId(0)), Some(10_000_000));
}

#[test]
fn a_time_limit_stays_what_it_was_when_settings_change() {
    let of = |most_wait_ms: u64| vec![Class { most_wait_ns: Some(most_wait_ms * 1_000_000), ..Class::default() }];
    let mut admission = Admission::new(Settings::multi_resource(of(50), Policy::Strict, &[1])).unwrap();
    for _ in 0..2 {
        admission.handle_arrived(ms(0), ask(0, 0)).unwrap();
    }
    decide(&mut admission, ms(0));
    admission.handle_settings(Settings::multi_resource(of(5), Policy::Weighted, &[1]), &Moves::default()).unwrap();
    assert_eq!(decide(&mut admission, ms(49)), []);
    assert_eq!(refused(&decide(&mut admission, ms(50))).len(), 1);
}

#[test]
fn settings_that_contradict_themselves_say_where() {
    let good = Settings::multi_resource(classes(2), Policy::Shared, &[4, 4]);
    assert_eq!(good.check(), Ok(()));
    let with = |change: fn(&mut Settings)| {
        let mut settings = good.clone();
        change(&mut settings);
        settings.check().unwrap_err()
    };
    assert_eq!(with(|it| it.classes.clear()), SettingsError::Classes);
    assert_eq!(with(|it| it.windows.clear()), SettingsError::Resources);
    assert_eq!(with(|it| it.classes[1].weight = 0), SettingsError::Weight(ClassId(1)));
    assert_eq!(with(|it| it.classes[1].delay_ratio = 0), SettingsError::DelayRatio(ClassId(1)));
    assert_eq!(with(|it| it.classes[1].most_running = Some(0)), SettingsError::NeverRuns(ClassId(1)));
    assert_eq!(with(|it| it.classes[1].most_wait_ns = Some(0)), SettingsError::NeverWaits(ClassId(1)));
    let reserve = |slots| Class { most_running: Some(1), reserved_slots: slots, ..Class::default() };
    assert_eq!(Settings { classes: vec![reserve(1); 2], ..good.clone() }.check(), Ok(()));
    let idle = Settings { classes: vec![reserve(1), reserve(2)], ..good.clone() };
    assert_eq!(idle.check(), Err(SettingsError::IdleReserve(ClassId(1))));
    assert_eq!(with(|it| it.windows[1] = Some(0)), SettingsError::Window(ResourceId(1)));
    assert_eq!(with(|it| it.total = Some(0)), SettingsError::Total);
    assert_eq!(with(|it| it.delay_window_ns = 0), SettingsError::DelayWindow);
    assert_eq!(with(|it| it.windows[1] = None), SettingsError::Unlimited(ResourceId(1)));
    assert_eq!(with(|it| it.classes[1].reserved_slots = 4), SettingsError::Reserves(ResourceId(0)));
    let text = format!("{}", SettingsError::Reserves(ResourceId(0)));
    assert!(text.contains("resource type 0") && text.contains("reserve fewer"), "{text}");
}
