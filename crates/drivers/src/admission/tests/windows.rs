//! Adjusted windows: the controller learns of all events, and its decisions count at once.

use parking_lot::Mutex;
use scheduler::control::{Change, Controller, Finished, Load, Method, Probed, Reason};

use super::*;

/// The events that a controller received.
#[derive(Clone, Debug, PartialEq)]
enum Reported {
    Finished { resource: u16, route: u64, service_ms: u64, done: bool },
    Probed(Probed),
}

/// A controller that adjusts as the test says.
#[derive(Clone, Debug, Default)]
struct ByTest(Arc<Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    told: Vec<Reported>,
    load: Load,
    next: Option<Change>,
}

impl Controller for ByTest {
    fn handle_finished(&mut self, _: scheduler::Instant, finished: &Finished) {
        let &Finished { resource: ResourceId(resource), route, service_ns, done } = finished;
        let told = Reported::Finished { resource, route, service_ms: service_ns / 1_000_000, done };
        self.0.lock().told.push(told);
    }

    fn handle_load(&mut self, _: scheduler::Instant, _: ResourceId, load: Load) {
        self.0.lock().load = load;
    }

    fn handle_probed(&mut self, _: scheduler::Instant, _: ResourceId, probed: Probed) {
        self.0.lock().told.push(Reported::Probed(probed));
    }

    fn poll_window(&mut self, _: scheduler::Instant) -> Option<Change> {
        self.0.lock().next.take()
    }

    fn window(&self, _: ResourceId) -> Option<u32> {
        None
    }
}

/// One class; one resource with a window that is adjusted.
fn adjusted(method: Method, window: u32) -> Classes {
    let mut classes = classes(&[("all", Class::default())], None);
    let site = &mut classes.admission.resources[0];
    site.window = NonZeroU32::new(window);
    site.bound = Some(Duration::from_millis(100));
    classes.admission.adjustment.method = method;
    classes
}

/// The probing request that is due.
fn due_now(admission: &Admission) -> Poll<Probe> {
    std::pin::pin!(admission.probe()).poll(&mut Context::from_waker(Waker::noop()))
}

fn window(admission: &Admission) -> (Option<u32>, u64) {
    let site = &admission.stats().resources[0];
    (site.window, site.window_changes)
}

#[test]
fn who_adjusts_hears_of_everything_the_site_has_done_or_failed() {
    by_hand(async {
        let admission = Admission::by_hand(adjusted(Method::Knee, 2)).unwrap();
        let script = ByTest::default();
        admission.driver.adjusted_by(Box::new(script.clone()));
        let told = || std::mem::take(&mut script.0.lock().told);
        let of = |done| Reported::Finished { resource: 0, route: 0, service_ms: 30, done };

        let (mut good, mut error) = (enter(&admission, 0), enter(&admission, 0));
        let _waits = Asker::waiting(&admission, arrival(0));
        assert_eq!(script.0.lock().load, Load { running: 2, waiting: true });
        good.answered(StatusCode::NOT_FOUND);
        error.answered(StatusCode::BAD_GATEWAY);
        pass(30).await;
        good.finish();
        error.finish();
        assert_eq!(told(), [of(true), of(false)], "an error of the client's is work done, one of the site's is none");
        assert_eq!(stats(&admission, 0).finished, 2);

        let failed = enter(&admission, 0);
        pass(30).await;
        failed.fail();
        assert_eq!(told(), [of(false)]);
        drop(enter(&admission, 0));
        assert_eq!(told(), [], "a client that is gone says nothing of the site");
        assert_eq!(stats(&admission, 0).gone_running, 2);
    });
}

#[test]
fn a_window_that_grows_lets_in_who_waits_and_one_that_shrinks_lets_out_first() {
    by_hand(async {
        let admission = Admission::by_hand(adjusted(Method::Knee, 1)).unwrap();
        let script = ByTest::default();
        admission.driver.adjusted_by(Box::new(script.clone()));
        let say = |window| {
            let change = Change { resource: ResourceId(0), window, reason: Reason::Trial };
            script.0.lock().next = Some(change);
        };
        let first = enter(&admission, 0);
        let mut waiting: Vec<_> = (0..3).map(|_| Asker::waiting(&admission, arrival(0))).collect();
        say(3);
        // Any event triggers it, here another waiting request.
        let last = Asker::waiting(&admission, arrival(0));
        assert_eq!(waiting.iter().map(Asker::rung).collect::<Vec<_>>(), [1, 1, 0]);
        assert_eq!(window(&admission), (Some(3), 1));
        let decision = admission.decisions().remove(0);
        assert_eq!((decision.from, decision.to, decision.reason), (Some(1), 3, Reason::Trial));
        say(4);
        let (mut newcomer, answer) = Asker::new(&admission, arrival(0));
        assert!(answer.is_pending(), "those who waited before go before it");
        assert_eq!(waiting[2].rung(), 1);
        say(6);
        let (_, answer) = Asker::new(&admission, arrival(0));
        assert!(answer.is_pending(), "two more went in before it");
        let slots: Vec<_> = waiting.iter_mut().map(Asker::slot).collect();
        let newcomer = newcomer.slot();
        say(8);
        let Poll::Ready(Ok(at_once)) = Asker::new(&admission, arrival(0)).1 else { panic!("there is room for it") };
        say(1);
        drop(last);
        let mut next = Asker::waiting(&admission, arrival(0));
        drop((slots, newcomer, at_once));
        assert!(next.poll().is_pending(), "the first one is still in");
        first.finish();
        next.slot().finish();
        let decided: Vec<_> = admission.decisions().iter().map(|it| (it.from.unwrap_or(0), it.to)).collect();
        assert_eq!(decided, [(8, 1), (6, 8), (4, 6), (3, 4), (1, 3)], "the newest first");
    });
}

#[test]
fn probing_requests_are_due_in_time_and_what_they_say_counts() {
    by_hand(async {
        let mut classes = adjusted(Method::Probe, 2);
        let adjustment = &mut classes.admission.adjustment;
        (adjustment.probe_every, adjustment.probe_after) = (Duration::from_secs(1), Duration::from_secs(3));
        (adjustment.shrink_above, adjustment.grow_below) = (0, -1);
        let admission = Admission::by_hand(&classes).unwrap();
        // The first step of `drive`.
        admission.ring();
        let due = admission.alarm_at().unwrap() - tokio::time::Instant::now();
        assert_eq!(due, Duration::from_secs(3), "also where nobody comes");
        assert!(due_now(&admission).is_pending());
        let next = async || {
            let due = admission.alarm_at().unwrap();
            tokio::time::advance(due - tokio::time::Instant::now()).await;
            admission.ring();
            let Poll::Ready(probe) = due_now(&admission) else { panic!("none is due") };
            probe
        };
        let probe = next().await;
        assert_eq!(&*probe.resource, "site");
        probe.answered(Duration::from_millis(100));
        assert_eq!(window(&admission), (Some(1), 1), "the bound is late");
        let _slot = enter(&admission, 0);
        let mut waiting = Asker::waiting(&admission, arrival(0));
        for _ in 0..2 {
            next().await.answered(Duration::from_millis(99));
        }
        assert_eq!(window(&admission), (Some(2), 2));
        waiting.slot().finish();
        drop(next().await);
        assert_eq!(window(&admission), (Some(2), 2), "of one that was dropped nothing is known");
        next().await.failed();
        assert_eq!(window(&admission), (Some(1), 3), "one that failed is late");

        let unanswered = next().await;
        let reloaded = admission.reconfigure(&classes).unwrap();
        assert_eq!(window(&reloaded), (Some(1), 3), "a window stays as it is where nothing is changed");
        unanswered.failed();
        assert_eq!(window(&reloaded), (Some(1), 3), "nor is one lost");
        classes.admission.resources[0].window = NonZeroU32::new(7);
        let admission = admission.reconfigure(&classes).unwrap();
        assert_eq!(window(&admission), (Some(7), 3), "the operator has the last word");
        let of_before = {
            admission.ring();
            pass(0).await;
            next().await
        };
        classes.admission.adjustment.shrink_above = 1;
        admission.reconfigure(&classes).unwrap();
        of_before.failed();
        assert_eq!(window(&admission), (Some(7), 3), "what was sent for another controller says nothing to this one");
        classes.admission.adjustment.method = Method::Fixed;
        classes.admission.resources[0].window = NonZeroU32::new(9);
        admission.reconfigure(&classes).unwrap();
        assert_eq!(window(&admission).0, Some(9));
    });
}

#[test]
fn limits_that_contradict_themselves_are_refused() {
    let mut narrow = adjusted(Method::Knee, 3);
    narrow.admission.resources[0].least = NonZeroU32::new(4).unwrap();
    let error = Contradiction::Windows(control::SettingsError::First(ResourceId(0)));
    assert_eq!(Admission::check(&narrow), Err(error));
    assert_eq!(Admission::new(&narrow).unwrap_err(), error);
    narrow.admission.adjustment.method = Method::Fixed;
    assert_eq!(Admission::check(&narrow), Ok(()), "limits are of windows that are adjusted");

    let mut reserved = adjusted(Method::Knee, 4);
    reserved.admission.policy = Policy::Shared;
    reserved.classes[0].given.reserved_slots = 2;
    reserved.classes.push(reserved.classes[0].clone());
    reserved.classes[1].given.reserved_slots = 0;
    let error = Contradiction::Slots(SettingsError::Reserves(ResourceId(0)));
    assert_eq!(Admission::check(&reserved), Err(error), "a window may become as narrow as 1");
    reserved.admission.resources[0].least = NonZeroU32::new(3).unwrap();
    assert_eq!(Admission::check(&reserved), Ok(()));
}
