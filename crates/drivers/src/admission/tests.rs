//! Requests enter and leave in all ways, with a manual clock and with real threads.

use std::{
    future::Future,
    num::NonZeroU32,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use http::StatusCode;
use scheduler::{
    admission::{ClassStats, QueueOrder, Refusal, ResourceId, SettingsError},
    class::{Class, ClassId},
    control,
    share::Policy,
};

use super::{handle::EnterState, *};
use crate::config::{Classes, NamedClass, ResourceConfig};

impl From<&Classes> for Classes {
    fn from(classes: &Classes) -> Self {
        classes.clone()
    }
}

mod random;
mod threads;
mod windows;

/// Classes by name and what they are given, one resource `site`, and a limit for all.
pub(super) fn classes(given: &[(&str, Class)], total: Option<u32>) -> Classes {
    let mut classes = Classes::one();
    classes.classes =
        given.iter().map(|(name, given)| NamedClass { name: (*name).to_owned(), given: *given }).collect();
    classes.default = ClassId(given.len() as u16 - 1);
    classes.admission.enabled = true;
    classes.admission.total = total.and_then(NonZeroU32::new);
    classes
}

fn plain(names: &[&str], total: u32) -> Classes {
    let given: Vec<_> = names.iter().map(|name| (*name, Class::default())).collect();
    classes(&given, Some(total))
}

pub(super) fn arrival(class: u16) -> Arrival {
    Arrival { class: ClassId(class), resource: ResourceId(0), client: 0, route: 0, within: None }
}

/// Counts how often it is woken.
#[derive(Default)]
pub(super) struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A request that is polled by hand.
pub(super) struct Asker {
    pub enter: Pin<Box<Enter>>,
    pub bell: Arc<Bell>,
}

impl Asker {
    /// A request that has arrived, and its answer if there is one at once.
    pub fn new(admission: &Admission, arrival: Arrival) -> (Self, Poll<Result<Slot, Refused>>) {
        let mut asker = Self { enter: Box::pin(admission.enter(arrival)), bell: Arc::default() };
        let answer = asker.poll();
        (asker, answer)
    }

    /// A request that waits.
    fn waiting(admission: &Admission, arrival: Arrival) -> Self {
        let (asker, answer) = Self::new(admission, arrival);
        assert!(answer.is_pending(), "{answer:?}");
        asker
    }

    pub fn poll(&mut self) -> Poll<Result<Slot, Refused>> {
        let waker = Waker::from(self.bell.clone());
        self.enter.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// How often it was woken.
    pub fn rung(&self) -> usize {
        self.bell.0.load(SeqCst)
    }

    /// Its slot.
    fn slot(&mut self) -> Slot {
        match self.poll() {
            Poll::Ready(Ok(slot)) => slot,
            other => panic!("not let in: {other:?}"),
        }
    }

    fn refusal(&mut self) -> Refused {
        match self.poll() {
            Poll::Ready(Err(refused)) => refused,
            other => panic!("not refused: {other:?}"),
        }
    }

    pub fn ticket(&self) -> Option<usize> {
        match &self.enter.state {
            EnterState::Waiting { ticket, .. } => Some(*ticket),
            _ => None,
        }
    }
}

fn enter(admission: &Admission, class: u16) -> Slot {
    match Asker::new(admission, arrival(class)).1 {
        Poll::Ready(Ok(slot)) => slot,
        other => panic!("not let in: {other:?}"),
    }
}

fn stats(admission: &Admission, class: usize) -> ClassStats {
    admission.stats().classes[class].1
}

/// A runtime whose clock stands still.
pub(super) fn by_hand(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(test);
}

async fn pass(ms: u64) {
    tokio::time::advance(Duration::from_millis(ms)).await;
}

#[test]
fn a_free_slot_is_had_at_once_and_a_taken_one_when_it_is_given_back() {
    by_hand(async {
        let admission = Admission::by_hand(plain(&["gold", "plain"], 1)).unwrap();
        let slot = enter(&admission, 1);
        assert_eq!(slot.waited, Duration::ZERO);
        let mut plain = Asker::waiting(&admission, arrival(1));
        let mut gold = Asker::waiting(&admission, arrival(0));
        pass(30).await;
        slot.finish();
        assert_eq!((gold.rung(), plain.rung()), (1, 0), "exactly who may go is woken, and gold goes first");
        assert!(plain.poll().is_pending());
        let slot = gold.slot();
        assert_eq!(slot.waited, Duration::from_millis(30));
        drop(slot);
        assert_eq!(plain.rung(), 1);
        plain.slot().finish();
        let (gold, plain) = (stats(&admission, 0), stats(&admission, 1));
        assert_eq!(
            (gold.started, gold.finished, gold.gone_running),
            (1, 0, 1),
            "a slot that was dropped is not finished"
        );
        assert_eq!((plain.started, plain.finished, plain.running), (2, 2, 0));
        assert_eq!(admission.driver.tickets(), (0, 0));
    });
}

#[test]
fn nobody_asks_the_scheduler_while_admission_is_off() {
    let mut classes = plain(&["all"], 1);
    classes.admission.enabled = false;
    let admission = Admission::new(&classes).unwrap();
    let _locked = admission.driver.lock_for_test();
    let slots: Vec<_> = (0..5).map(|_| enter(&admission, 0)).collect();
    slots.into_iter().for_each(Slot::finish);
}

#[test]
fn who_gives_up_while_it_waits_has_spent_no_slot() {
    by_hand(async {
        let admission = Admission::by_hand(plain(&["all"], 1)).unwrap();
        let slot = enter(&admission, 0);
        let gone = Asker::waiting(&admission, arrival(0));
        let mut next = Asker::waiting(&admission, arrival(0));
        drop(gone);
        assert_eq!((stats(&admission, 0).waiting, stats(&admission, 0).gone_waiting), (1, 1));
        slot.finish();
        next.slot().finish();
    });
}

#[test]
fn who_gives_up_when_it_was_let_in_and_has_not_heard_of_it_passes_its_slot_on() {
    by_hand(async {
        let admission = Admission::by_hand(plain(&["all"], 1)).unwrap();
        let slot = enter(&admission, 0);
        let first = Asker::waiting(&admission, arrival(0));
        let mut second = Asker::waiting(&admission, arrival(0));
        slot.finish();
        assert_eq!((first.rung(), second.rung()), (1, 0));
        drop(first);
        assert_eq!(second.rung(), 1, "the slot is not lost");
        second.slot().finish();
        assert_eq!((stats(&admission, 0).running, admission.driver.tickets()), (0, (0, 0)));
    });
}

#[test]
fn who_gives_up_when_it_was_refused_and_has_not_heard_of_it_disturbs_nobody() {
    by_hand(async {
        let class = Class { most_wait_ns: Some(1_000_000), ..Class::default() };
        let admission = Admission::by_hand(classes(&[("all", class)], Some(1))).unwrap();
        let slot = enter(&admission, 0);
        let refused = Asker::waiting(&admission, arrival(0));
        pass(2).await;
        admission.ring();
        assert_eq!(refused.rung(), 1);
        // The scheduler reuses the number of the refused request.
        let mut next = Asker::waiting(&admission, arrival(0));
        drop(refused);
        assert!(next.poll().is_pending());
        slot.finish();
        next.slot().finish();
    });
}

#[test]
fn the_answer_to_one_who_was_refused_is_not_the_answer_to_the_next_with_its_number() {
    by_hand(async {
        let class = Class { most_wait_ns: Some(1_000_000), ..Class::default() };
        let admission = Admission::by_hand(classes(&[("all", class)], Some(1))).unwrap();
        let slot = enter(&admission, 0);
        let mut refused = Asker::waiting(&admission, arrival(0));
        pass(2).await;
        admission.ring();
        let mut next = Asker::waiting(&admission, arrival(0));
        slot.finish();
        let refused = refused.refusal();
        assert_eq!((refused.refusal, refused.waited), (Refusal::WaitedTooLong, Duration::from_millis(2)));
        next.slot().finish();
    });
}

#[test]
fn a_future_that_never_was_polled_never_came() {
    by_hand(async {
        let admission = Admission::by_hand(plain(&["all"], 1)).unwrap();
        drop(admission.enter(arrival(0)));
        assert_eq!(stats(&admission, 0).arrived, 0);
    });
}

#[test]
fn a_full_queue_refuses_the_newcomer_at_once_and_other_orders_somebody_else() {
    by_hand(async {
        let short = Class { most_waiting: 1, ..Class::default() };
        let by_length = Class { order: QueueOrder::Shortest, ..short };
        let admission = Admission::by_hand(classes(&[("fifo", short), ("shortest", by_length)], Some(1))).unwrap();
        // Route 1 takes 10 ms, route 2 takes 50.
        for (route, ms) in [(1, 10), (2, 50)] {
            let Poll::Ready(Ok(slot)) = Asker::new(&admission, Arrival { route, ..arrival(1) }).1 else { panic!() };
            pass(ms).await;
            slot.finish();
        }
        let _slot = enter(&admission, 0);
        let _waits = Asker::waiting(&admission, arrival(0));
        let Poll::Ready(Err(refused)) = Asker::new(&admission, arrival(0)).1 else { panic!("let in") };
        assert_eq!((refused.class, refused.refusal), (ClassId(0), Refusal::QueueFull));

        let mut long = Asker::waiting(&admission, Arrival { route: 2, ..arrival(1) });
        let mut brief = Asker::waiting(&admission, Arrival { route: 1, ..arrival(1) });
        assert_eq!((long.rung(), brief.rung()), (1, 0), "the longest has to go");
        assert_eq!(long.refusal().refusal, Refusal::QueueFull);
        assert!(brief.poll().is_pending());
        let Poll::Ready(Err(_)) = Asker::new(&admission, Arrival { route: 2, ..arrival(1) }).1 else {
            panic!("let in")
        };
    });
}

#[test]
fn the_alarm_is_set_for_the_first_who_will_have_waited_too_long() {
    by_hand(async {
        let class = |ms: u64| Class { most_wait_ns: Some(ms * 1_000_000), ..Class::default() };
        let admission = Admission::by_hand(classes(&[("slow", class(50)), ("fast", class(20))], Some(1))).unwrap();
        let start = tokio::time::Instant::now();
        let slot = enter(&admission, 0);
        assert_eq!(admission.alarm_at(), None);
        let mut slow = Asker::waiting(&admission, arrival(0));
        assert_eq!(admission.alarm_at(), Some(start + Duration::from_millis(50)));
        let mut fast = Asker::waiting(&admission, arrival(1));
        assert_eq!(admission.alarm_at(), Some(start + Duration::from_millis(20)));
        pass(20).await;
        admission.ring();
        assert_eq!((slow.rung(), fast.rung()), (0, 1));
        let refused = fast.refusal();
        assert_eq!((refused.class, refused.refusal), (ClassId(1), Refusal::WaitedTooLong));
        assert_eq!(admission.alarm_at(), Some(start + Duration::from_millis(50)), "it is set for the next");
        slot.finish();
        slow.slot().finish();
    });
}

/// All other tasks wait, so that the clock advances.
async fn parked() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_a_slot_is_woken_by_the_task_that_leaves_it() {
    let admission = Admission::by_hand(plain(&["all"], 1)).unwrap();
    let leave: [fn(Slot); 3] = [Slot::finish, Slot::fail, drop];
    for leave in leave {
        let slot = enter(&admission, 0);
        let waiting = tokio::spawn(tokio::time::timeout(Duration::from_secs(3600), admission.enter(arrival(0))));
        parked().await;
        tokio::spawn(async move { leave(slot) });
        waiting.await.unwrap().expect("it is woken").expect("it is let in").finish();
    }
    // An earlier request that gives up, and more slots, have the same effect.
    let first = enter(&admission, 0);
    let second = tokio::spawn(admission.enter(arrival(0)));
    let third = tokio::spawn(tokio::time::timeout(Duration::from_secs(3600), admission.enter(arrival(0))));
    parked().await;
    first.finish();
    second.abort();
    third.await.unwrap().expect("it is woken").expect("it is let in").finish();
    let _slot = enter(&admission, 0);
    let waiting = tokio::spawn(tokio::time::timeout(Duration::from_secs(3600), admission.enter(arrival(0))));
    parked().await;
    admission.reconfigure(plain(&["all"], 2)).unwrap();
    waiting.await.unwrap().expect("it is woken").expect("it is let in").finish();
}

#[test]
fn the_driver_rings_by_itself() {
    let class = Class { most_wait_ns: Some(5_000_000), ..Class::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let admission = Admission::new(classes(&[("all", class)], Some(1))).unwrap();
        let driver = admission.clone();
        tokio::spawn(async move { driver.drive().await });
        let _slot = admission.enter(arrival(0)).await.unwrap();
        let refused = admission.enter(arrival(0)).await.unwrap_err();
        assert_eq!(refused.refusal, Refusal::WaitedTooLong);
        assert!(refused.waited >= Duration::from_millis(5));
    });
}

#[test]
fn changed_windows_count_at_once_and_wake_all_who_may_go() {
    by_hand(async {
        let admission = Admission::by_hand(plain(&["all"], 1)).unwrap();
        let slot = enter(&admission, 0);
        let mut waiting: Vec<_> = (0..3).map(|_| Asker::waiting(&admission, arrival(0))).collect();
        let admission = admission.reconfigure(plain(&["all"], 3)).unwrap();
        assert_eq!(waiting.iter().map(Asker::rung).collect::<Vec<_>>(), [1, 1, 0]);
        let slots: Vec<_> = waiting[..2].iter_mut().map(Asker::slot).collect();
        admission.reconfigure(plain(&["all"], 1)).unwrap();
        slot.finish();
        drop(slots);
        assert_eq!(stats(&admission, 0).running, 1, "the last one, though three were in when the window shrank");
        waiting[2].slot().finish();
    });
}

#[test]
fn who_waits_when_admission_is_turned_off_goes_in() {
    by_hand(async {
        let on = plain(&["all"], 1);
        let mut off = on.clone();
        off.admission.enabled = false;
        let admission = Admission::by_hand(&on).unwrap();
        let slot = enter(&admission, 0);
        let mut waiting = Asker::waiting(&admission, arrival(0));
        let open = admission.reconfigure(&off).unwrap();
        waiting.slot().finish();
        let uncounted = enter(&open, 0);
        let open = open.reconfigure(&on).unwrap();
        // The first request still holds the only slot; the second never had one.
        let mut waiting = Asker::waiting(&open, arrival(0));
        uncounted.finish();
        assert!(waiting.poll().is_pending());
        slot.finish();
        waiting.slot().finish();
    });
}

#[test]
fn settings_that_contradict_themselves_change_nothing() {
    by_hand(async {
        let admission = Admission::by_hand(plain(&["all"], 1)).unwrap();
        let _slot = enter(&admission, 0);
        let mut waiting = Asker::waiting(&admission, arrival(0));
        let wrong = classes(&[("a", Class::default()), ("b", Class { weight: 0, ..Class::default() })], Some(9));
        assert_eq!(admission.reconfigure(&wrong).unwrap_err(), SettingsError::Weight(ClassId(1)).into());
        assert_eq!(Admission::check(&wrong), Err(SettingsError::Weight(ClassId(1)).into()));
        assert!(waiting.poll().is_pending());
        assert_eq!(admission.stats().classes.len(), 1);
    });
}

#[test]
fn classes_are_known_by_name_and_those_of_a_class_that_is_gone_wait_in_the_default() {
    by_hand(async {
        let old = Admission::by_hand(plain(&["gold", "silver", "plain"], 1)).unwrap();
        let slot = enter(&old, 1);
        let mut silver = Asker::waiting(&old, arrival(1));
        let mut gold = Asker::waiting(&old, arrival(0));
        let mut plain_one = Asker::waiting(&old, arrival(2));
        // Gold is removed, silver becomes the first, and a new class is added before the default.
        let new = old.reconfigure(plain(&["silver", "new", "plain"], 1)).unwrap();
        let names = |admission: &Admission| {
            let of = |(name, stats): &(Arc<str>, ClassStats)| (name.to_string(), stats.waiting, stats.arrived);
            admission.stats().classes.iter().map(of).collect::<Vec<_>>()
        };
        let named = |name: &str, waiting, arrived| (name.to_owned(), waiting, arrived);
        assert_eq!(names(&new), [named("silver", 1, 2), named("new", 0, 0), named("plain", 2, 1)]);

        // A request classified before the change arrives after it, by the old handle with the old numbers.
        let mut late_silver = Asker::waiting(&old, arrival(1));
        let late_gold = Asker::waiting(&old, arrival(0));
        let mut new_one = Asker::waiting(&new, arrival(1));
        assert_eq!(names(&new), [named("silver", 2, 3), named("new", 1, 1), named("plain", 3, 2)]);

        slot.finish();
        for next in [&mut silver, &mut late_silver, &mut new_one, &mut gold, &mut plain_one] {
            next.slot().finish();
        }
        drop(late_gold);
        assert_eq!(stats(&new, 2).gone_running, 1, "it was let in and had not heard of it");
    });
}

#[test]
fn a_handle_that_is_many_changes_old_still_finds_its_class() {
    by_hand(async {
        let first = Admission::by_hand(plain(&["a", "b"], 1)).unwrap();
        for change in 0..50 {
            let other = format!("other{change}");
            first.reconfigure(plain(&[&other, "b", "a"], 1)).unwrap();
        }
        let _slot = enter(&first, 1);
        let _waits = Asker::waiting(&first, arrival(0));
        let last = first.stats();
        let of = |name: &str| last.classes.iter().find(|(it, _)| &**it == name).unwrap().1;
        assert_eq!((of("b").running, of("a").waiting), (1, 1));
        for change in 0..100 {
            let other = format!("another{change}");
            first.reconfigure(plain(&[&other, "b", "a"], 1)).unwrap();
        }
        let _forgotten = Asker::waiting(&first, arrival(1));
        let last = first.stats();
        assert_eq!(last.classes[2].1.waiting, 2, "too old to be known: the default class");
    });
}

#[test]
fn resources_are_known_by_name_too() {
    by_hand(async {
        let with = |names: &[&str]| {
            let mut classes = plain(&["all"], 10);
            let resource = |name: &&str| ResourceConfig::new(*name, NonZeroU32::new(name.len() as u32));
            classes.admission.resources = names.iter().map(resource).collect();
            classes
        };
        let old = Admission::by_hand(with(&["cpu", "database"])).unwrap();
        let at = |resource| Arrival { resource: ResourceId(resource), ..arrival(0) };
        let (_, Poll::Ready(Ok(slot))) = Asker::new(&old, at(1)) else { panic!("not let in") };
        let new = old.reconfigure(with(&["database", "disks"])).unwrap();
        let running =
            |it: &Admission| it.stats().resources.iter().map(|it| (it.window, it.running)).collect::<Vec<_>>();
        assert_eq!(running(&new), [(Some(8), 1), (Some(5), 0)]);
        let (_, Poll::Ready(Ok(late))) = Asker::new(&old, at(1)) else { panic!("not let in") };
        assert_eq!(running(&new), [(Some(8), 2), (Some(5), 0)]);
        slot.finish();
        late.finish();
        assert_eq!(new.stats().resources[0].mean_service, Some(Duration::ZERO));
    });
}

#[test]
fn what_the_gate_does_not_know_it_refuses() {
    by_hand(async {
        let admission = Admission::by_hand(plain(&["all"], 1)).unwrap();
        let Poll::Ready(Err(refused)) = Asker::new(&admission, arrival(7)).1 else { panic!("let in") };
        assert_eq!(refused.refusal, Refusal::NoSuchQueue);
    });
}

#[test]
fn who_cannot_make_its_deadline_any_more_is_refused_where_that_is_the_setting() {
    by_hand(async {
        let class = Class { deadline_ns: Some(30_000_000), ..Class::default() };
        let mut classes = classes(&[("all", class)], Some(1));
        classes.admission.policy = Policy::Edf;
        classes.admission.late = scheduler::admission::Late::Refuse;
        let admission = Admission::by_hand(&classes).unwrap();
        let start = tokio::time::Instant::now();
        let slot = enter(&admission, 0);
        pass(20).await;
        slot.finish();
        // The route is known to take 20 ms, so 10 ms are left until the latest start.
        let _slot = enter(&admission, 0);
        let mut waiting = Asker::waiting(&admission, arrival(0));
        assert_eq!(admission.alarm_at(), Some(start + Duration::from_millis(30) + Duration::from_nanos(1)));
        pass(11).await;
        admission.ring();
        assert_eq!(waiting.refusal().refusal, Refusal::TooLate);
    });
}

#[test]
fn a_request_that_does_not_wait_takes_a_free_slot_and_no_one_elses() {
    let admission = Admission::by_hand(plain(&["first", "last"], 2)).unwrap();
    let stats = |admission: &Admission, class: usize| admission.stats().classes[class].1;
    let first = admission.enter_at_once(arrival(1)).expect("a slot is free");
    let second = admission.enter_at_once(arrival(0)).expect("a slot is free");
    assert!(admission.enter_at_once(arrival(0)).is_none(), "none is free");
    let waker = Waker::from(Arc::new(Bell::default()));
    let mut waits = Box::pin(admission.enter(arrival(1)));
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(first);
    assert!(admission.enter_at_once(arrival(0)).is_none(), "the slot is that of the request that waits");
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    drop(second);
    assert!(admission.enter_at_once(arrival(0)).is_some());
    let asked_in_vain = stats(&admission, 0);
    assert_eq!((asked_in_vain.waiting, asked_in_vain.gone_waiting, asked_in_vain.arrived), (0, 0, 2));
}
