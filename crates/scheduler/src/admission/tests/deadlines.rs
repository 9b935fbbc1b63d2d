//! The promises of earliest deadline first. Running requests are not interrupted, so it is not optimal in general. A
//! short request with a tight deadline may come just after a long one has started, and no slot is kept free for it.
//!
//! It meets every deadline that any order could meet in two cases:
//! - with one slot, if all requests are present at the beginning (Jackson's rule), whatever their service times;
//! - with any number of slots, if all requests take the same time and come at multiples of it.

use proptest::prelude::*;

use super::*;

const SLOT_NS: u64 = 1_000_000;

/// A request as a case for scheduling, times in units of [`SLOT_NS`].
#[derive(Clone, Copy, Debug)]
struct Case {
    released: u64,
    service: u64,
    deadline: u64,
}

fn at(units: u64) -> Instant {
    Instant::from_ns(units * SLOT_NS)
}

/// Sends the cases through admission, each of a class of its own, with so many slots. For each when it was done; `None` if
/// it was refused.
fn serve(cases: &[Case], slots: u32, late: Late) -> Vec<Option<u64>> {
    let class =
        |case: &Case| Class { deadline_ns: Some((case.deadline - case.released) * SLOT_NS), ..Class::default() };
    let settings =
        Settings { late, ..Settings::single_window(cases.iter().map(class).collect(), 1, Policy::Edf, slots) };
    let mut admission = Admission::new(settings).unwrap();
    let mut done = vec![None; cases.len()];
    let mut ids = vec![None; cases.len()];
    let horizon = cases.iter().map(|case| case.released + case.service).sum();
    for now in 0..=horizon {
        for (class, done_at) in done.iter().enumerate() {
            if *done_at == Some(now) {
                admission.handle_finished(at(now), ids[class].unwrap());
            }
        }
        for (class, case) in cases.iter().enumerate().filter(|(_, case)| case.released == now) {
            let arrival = Arrival { expected_ns: Some(case.service * SLOT_NS), ..ask(class as u16, 0) };
            ids[class] = Some(admission.handle_arrived(at(now), arrival).unwrap());
        }
        for id in started(&decide(&mut admission, at(now))) {
            let class = ids.iter().position(|it| *it == Some(id)).unwrap();
            done[class] = Some(now + cases[class].service);
        }
    }
    done
}

fn meets_all(cases: &[Case], slots: u32) -> bool {
    serve(cases, slots, Late::Serve).iter().zip(cases).all(|(done, case)| done.is_some_and(|it| it <= case.deadline))
}

/// Whether any order, with slots kept free at will, meets all deadlines: tries them all. `free_from` has an entry for each
/// slot.
fn can_be_met(left: &[Case], free_from: &mut [u64]) -> bool {
    if left.is_empty() {
        return true;
    }
    (0..left.len()).any(|i| {
        let case = left[i];
        let rest: Vec<Case> = left.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, it)| *it).collect();
        (0..free_from.len()).any(|slot| {
            let (before, start) = (free_from[slot], free_from[slot].max(case.released));
            if start + case.service > case.deadline {
                return false;
            }
            free_from[slot] = start + case.service;
            let met = can_be_met(&rest, free_from);
            free_from[slot] = before;
            met
        })
    })
}

fn case(released: u64, service: u64, deadline: u64) -> Case {
    Case { released, service, deadline }
}

#[test]
fn it_is_not_optimal_where_it_would_have_to_keep_a_slot_free() {
    let cases = [case(0, 4, 10), case(1, 1, 2)];
    assert!(can_be_met(&cases, &mut [0]), "by waiting for the second one");
    assert!(!meets_all(&cases, 1));
    // Nor with two slots and unequal services, even if all are there.
    let cases = [case(0, 1, 2), case(0, 1, 2), case(0, 3, 3)];
    assert!(can_be_met(&cases, &mut [0, 0]));
    assert!(!meets_all(&cases, 2));
}

#[test]
fn who_cannot_make_it_is_served_behind_those_who_can_or_refused() {
    // The first keeps the slot until 4. Then the second is lost, and pure order of deadlines would lose the third with it.
    let cases = [case(0, 4, 4), case(1, 2, 5), case(2, 2, 6)];
    assert_eq!(serve(&cases, 1, Late::Serve), [Some(4), Some(8), Some(6)]);
    assert_eq!(serve(&cases, 1, Late::Refuse), [Some(4), None, Some(6)]);
}

#[test]
fn a_refusal_comes_as_soon_as_it_is_certain() {
    let class = Class { deadline_ns: Some(10 * SLOT_NS), ..Class::default() };
    let settings = Settings { late: Late::Refuse, ..Settings::single_window(vec![class], 1, Policy::Edf, 1) };
    let mut admission = Admission::new(settings).unwrap();
    let arrival = Arrival { expected_ns: Some(3 * SLOT_NS), ..ask(0, 0) };
    let [first, second] = [(); 2].map(|()| admission.handle_arrived(at(0), arrival).unwrap());
    assert_eq!(started(&decide(&mut admission, at(0))), [first]);
    assert_eq!(decide(&mut admission, at(7)), [], "it could still start now");
    assert_eq!(admission.poll_timeout(), Some(at(7).add_ns(1)));
    let decisions = decide(&mut admission, at(7).add_ns(1));
    assert_eq!(refused(&decisions), [(second, Refusal::TooLate)]);
    assert_eq!(admission.class_stats(ClassId(0)).refused_late, 1);
}

#[test]
fn a_client_that_says_how_long_it_waits_has_that_deadline_and_is_not_served_after_it() {
    let asks = |within: u64| Arrival { within_ns: Some(within * SLOT_NS), expected_ns: Some(SLOT_NS), ..ask(0, 0) };
    let order = |policy, deadline_ns| {
        let class = Class { deadline_ns, order: QueueOrder::Fifo, ..Class::default() };
        let mut admission = Admission::new(Settings::single_window(vec![class], 1, policy, 1)).unwrap();
        let withins = [9, 4, 6, 2];
        let ids = withins.map(|within| admission.handle_arrived(at(0), asks(within)).unwrap());
        let mut order = vec![];
        for slot in 0..6 {
            for decision in decide(&mut admission, at(slot)) {
                let (request, is_served) = match decision {
                    Decision::Start(start) => (start.request, true),
                    Decision::Refuse { request, refusal } => {
                        assert_eq!(refusal, Refusal::TooLate);
                        (request, false)
                    }
                };
                order.push((withins[ids.iter().position(|id| *id == request).unwrap()], is_served));
                if is_served {
                    admission.handle_finished(at(slot + 1), request);
                }
            }
        }
        order
    };
    // Whether its class has a later deadline, or none.
    for of_class in [None, Some(20 * SLOT_NS)] {
        assert_eq!(order(Policy::Edf, of_class), [(2, true), (4, true), (6, true), (9, true)]);
    }
    // That of its class is the earlier one for all but two of them.
    assert_eq!(order(Policy::Edf, Some(5 * SLOT_NS)), [(2, true), (4, true), (9, true), (6, true)]);
    // Elsewhere the order is another, and the deadline holds.
    assert_eq!(order(Policy::Strict, None), [(9, true), (4, true), (2, false), (6, true)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn one_slot_and_all_there_from_the_beginning(jobs in prop::collection::vec((1u64..5, 0u64..12), 1..6)) {
        let cases: Vec<Case> = jobs.iter().map(|&(service, slack)| case(0, service, service + slack)).collect();
        if can_be_met(&cases, &mut [0]) {
            prop_assert!(meets_all(&cases, 1), "{cases:?}");
        }
    }

    #[test]
    fn equal_services_that_come_at_multiples_of_their_length(
        jobs in prop::collection::vec((0u64..5, 0u64..4), 1..7),
        slots in 1u32..4,
    ) {
        let cases: Vec<Case> = jobs.iter().map(|&(released, slack)| case(released, 1, released + 1 + slack)).collect();
        if can_be_met(&cases, &mut vec![0; slots as usize]) {
            prop_assert!(meets_all(&cases, slots), "{cases:?}");
        }
    }
}
