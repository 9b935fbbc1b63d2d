use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::{Wake, Waker},
    time::Duration,
};

use scheduler::{JobId, Order, Size, class::ClassId, share::Policy};
use tokio::{sync::mpsc, time};

use super::*;
use crate::config::{Cutoffs, Enforce, NamedClass, UplinkRate};

fn config(order: Order) -> UplinkConfig {
    UplinkConfig {
        rate: UplinkRate::Given("10mbit".parse().unwrap()),
        order,
        enforce: Enforce::Server,
        line: None,
        cutoffs: Cutoffs::Learned,
        guard_stretch: None,
        utilisation: Some(1.0),
        segment_overhead_bytes: 66,
        device: None,
        keep: Default::default(),
    }
}

/// An uplink whose alarm no task hears.
fn uplink(order: Order) -> Uplink {
    Uplink::with_alarm(&config(order), &Classes::one(), Alarm::coarse()).unwrap()
}

/// A response that asks for leave, and how often it was woken.
struct Asker {
    job: JobId,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Asker {
    fn new(uplink: &Uplink, size_bytes: u64) -> Self {
        Self {
            job: uplink.driver.handle_started(
                ClassAt { class: ClassId(0), generation: 0 },
                Size::Known(size_bytes),
                None,
            ),
            woken: Arc::default(),
        }
    }

    fn ask(&self, uplink: &Uplink, bytes: u64) -> Option<u64> {
        uplink.driver.ask(self.job, bytes, &Waker::from(self.woken.clone()))
    }

    fn woken(&self) -> usize {
        self.woken.0.load(Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn leave_that_its_owner_no_longer_needs_goes_to_whoever_waits() {
    let uplink = uplink(Order::Srpt);
    let (small, large) = (Asker::new(&uplink, 100_000), Asker::new(&uplink, 1_000_000));
    assert!(small.ask(&uplink, 100_000).is_some(), "the link is free");
    assert_eq!((small.ask(&uplink, 97_000), large.ask(&uplink, 1_000_000)), (None, None));
    time::advance(Duration::from_secs(1)).await;
    uplink.driver.handle_alarm();
    assert_eq!((small.woken(), large.woken()), (1, 0), "there is leave for one");
    // It is woken, and has but 100 bytes to write: the link is as good as free.
    assert_eq!(small.ask(&uplink, 100), Some(100));
    assert_eq!((small.woken(), large.woken()), (1, 1), "at once, and not when the alarm rings");
    assert!(large.ask(&uplink, 1_000_000).is_some());
}

#[tokio::test(start_paused = true)]
async fn whoever_is_given_leave_when_it_asks_is_not_woken_for_it() {
    let uplink = uplink(Order::Srpt);
    let (small, large) = (Asker::new(&uplink, 100_000), Asker::new(&uplink, 1_000_000));
    assert!(large.ask(&uplink, 1_000_000).is_some(), "the link is free");
    assert_eq!(large.ask(&uplink, 1_000_000), None);
    // The alarm is due, and has not been heard yet. The one that asks goes before the one that waits.
    time::advance(Duration::from_secs(1)).await;
    assert!(small.ask(&uplink, 100_000).is_some());
    assert_eq!((small.woken(), large.woken()), (0, 0));
    // A response that waits again is woken as before.
    assert_eq!(small.ask(&uplink, 97_000), None);
    time::advance(Duration::from_secs(1)).await;
    uplink.driver.handle_alarm();
    assert_eq!((small.woken(), large.woken()), (1, 0));
}

/// Leave for all that a response asks for, in a task of its own; tells each time that it has some.
fn asks_in_a_task(uplink: &Uplink, mut left_bytes: u64) -> (JobId, mpsc::UnboundedReceiver<u64>) {
    let class = ClassAt { class: ClassId(0), generation: 0 };
    let job = uplink.driver.handle_started(class, Size::Known(left_bytes), None);
    let (sender, given) = mpsc::unbounded_channel();
    let driver = uplink.driver.clone();
    tokio::spawn(async move {
        while left_bytes > 0 {
            let ask = |cx: &mut std::task::Context<'_>| match driver.ask(job, left_bytes, cx.waker()) {
                Some(bytes) => std::task::Poll::Ready(bytes),
                None => std::task::Poll::Pending,
            };
            let bytes = std::future::poll_fn(ask).await;
            left_bytes -= bytes;
            sender.send(bytes).unwrap();
        }
    });
    (job, given)
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_leave_is_woken_by_the_drivers_task_and_by_one_that_needs_it_no_more() {
    let all = |mut given: mpsc::UnboundedReceiver<u64>| async move {
        let mut bytes = 0;
        while let Some(more) = time::timeout(Duration::from_secs(3600), given.recv()).await.expect("it is woken") {
            bytes += more;
        }
        bytes
    };
    let uplink = uplink(Order::Srpt);
    // The driver's task and both askers are parked whenever the clock moves.
    let driver = tokio::spawn({
        let uplink = uplink.clone();
        async move { uplink.drive().await }
    });
    let ((_, small), (_, large)) = (asks_in_a_task(&uplink, 100_000), asks_in_a_task(&uplink, 1_000_000));
    assert_eq!((all(small).await, all(large).await), (100_000, 1_000_000));

    // Without a driver: leave that was given to the first in order comes to the next when the first is over.
    driver.abort();
    let first = Asker::new(&uplink, 10_000);
    while first.ask(&uplink, 10_000).is_some() {}
    let (_, mut given) = asks_in_a_task(&uplink, 100_000);
    time::sleep(Duration::from_secs(1)).await;
    assert!(given.try_recv().is_err() && first.woken() == 0, "there is no driver");
    uplink.driver.handle_finished(first.job, false);
    assert!(time::timeout(Duration::from_secs(3600), given.recv()).await.expect("it is woken").is_some());
}

#[test]
fn the_kernel_keeps_only_what_its_ranks_can() {
    let refusal = |order, names: &[&str], share| {
        let config = UplinkConfig { enforce: Enforce::Kernel, device: Some("no-such-dev".into()), ..config(order) };
        Uplink::new(&config, named(names, share)).expect_err("no such device")
    };
    let many = ["a", "b", "c", "d", "e", "f", "g", "h"];
    assert!(matches!(refusal(Order::QuickFix, &["a"], None), UplinkError::NotBandable(Order::QuickFix)));
    assert!(matches!(
        refusal(Order::Srpt, &["a", "b"], Some(Policy::Weighted)),
        UplinkError::ShareNotBandable(Policy::Weighted)
    ));
    assert!(matches!(refusal(Order::Srpt, &many, Some(Policy::Strict)), UplinkError::TooManyClasses(8)));
    for (order, names, share) in
        [(Order::Srpt, &many[..7], Some(Policy::Strict)), (Order::Las, &many, None), (Order::Srpt, &many[..1], None)]
    {
        assert!(matches!(refusal(order, names, share), UplinkError::Kernel(_)), "only the device is missing");
    }
}

/// Classes of these names, the last one being the default.
fn named(names: &[&str], share: Option<Policy>) -> Classes {
    let mut classes = Classes::one();
    let template = classes.classes.remove(0);
    classes.classes = names.iter().map(|name| NamedClass { name: (*name).to_owned(), ..template.clone() }).collect();
    classes.default = ClassId(names.len() as u16 - 1);
    classes.uplink_share = share;
    classes
}

#[tokio::test(start_paused = true)]
async fn a_response_that_begins_after_a_change_is_of_the_class_by_which_its_request_came() {
    let (first, turned) = (["gold", "plain", "gone"], ["plain", "new", "gold"]);
    for before in [None, Some(Policy::Strict)] {
        let config = config(Order::Fifo);
        let uplink = Uplink::with_alarm(&config, &named(&first, before), Alarm::coarse()).unwrap();
        let started = |class, generation| {
            let class = ClassAt { class: ClassId(class), generation };
            Asker { job: uplink.driver.handle_started(class, Size::Known(1_000_000), None), woken: Arc::default() }
        };
        // The link is busy, so that all others wait.
        let busy = started(0, 0);
        assert!(busy.ask(&uplink, 1_000_000).is_some());
        let generation = uplink.reconfigure(&config, named(&turned, Some(Policy::Strict))).unwrap();
        let same = uplink.reconfigure(&config, named(&turned, Some(Policy::Strict))).unwrap();
        assert_eq!((generation, same), (1, 1), "numbers have changed once");
        let waiting = || [0, 1, 2].map(|class| uplink.driver.waiting_of(ClassId(class)));
        for (class, generation, expected) in
            [(1, 0, [1, 0, 0]), (0, 0, [1, 0, 1]), (2, 0, [1, 0, 2]), (1, 1, [1, 1, 2]), (0, 1, [2, 1, 2])]
        {
            assert_eq!(started(class, generation).ask(&uplink, 1_000_000), None);
            assert_eq!(waiting(), expected, "{class} of {generation}, shared before: {before:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_class_has_had_stays_with_its_name() {
    let uplink = uplink(Order::Fifo);
    let config = config(Order::Fifo);
    let bytes = || uplink.class_bytes().into_iter().map(|(name, bytes)| (name.to_string(), bytes)).collect::<Vec<_>>();
    let mut charged = 0;
    for names in [["gold", "plain"], ["plain", "gold"]] {
        let classes = named(&names, Some(Policy::Strict));
        let generation = uplink.reconfigure(&config, &classes).unwrap();
        let gold = ClassId(names.iter().position(|name| *name == "gold").unwrap() as u16);
        let class = ClassAt { class: gold, generation };
        let job = uplink.driver.handle_started(class, Size::Known(1000), None);
        time::advance(Duration::from_secs(1)).await;
        assert!(uplink.driver.ask(job, 1000, Waker::noop()).is_some());
        let of_gold = bytes().into_iter().find(|(name, _)| name == "gold").unwrap().1;
        assert!(of_gold > charged, "{of_gold}, {charged}");
        charged = of_gold;
        uplink.driver.handle_finished(job, true);
    }
    uplink.reconfigure(&config, named(&["gold"], None)).unwrap();
    assert_eq!(bytes(), [("gold".to_owned(), charged)], "nor is it lost where nothing is shared any more");
}

/// Asks as the gate does, until there is leave.
#[cfg(target_os = "linux")]
async fn leave(uplink: &Uplink, asker: &Asker, bytes: u64) -> u64 {
    std::future::poll_fn(|cx| {
        uplink.driver.ask(asker.job, bytes, cx.waker()).map_or(std::task::Poll::Pending, std::task::Poll::Ready)
    })
    .await
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn a_response_has_its_turn_though_the_timer_fails() {
    use std::os::fd::OwnedFd;
    // One that cannot be watched, and one that can, but is not heard to ring; neither can be set.
    let unwatchable = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let (silent, _other_end) = std::os::unix::net::UnixStream::pair().unwrap();
    silent.set_nonblocking(true).unwrap();
    for (timer, listens_first) in [(unwatchable(), true), (unwatchable(), false), (silent.into(), true)] {
        let alarm = Alarm::precise(kernel::timer::TimerFd::from(timer));
        let uplink = Uplink::with_alarm(&config(Order::Srpt), &Classes::one(), alarm).unwrap();
        let driver = uplink.clone();
        let drive = async move { driver.drive().await };
        let (first, second) = (Asker::new(&uplink, 100_000), Asker::new(&uplink, 100_000));
        let driven = if listens_first {
            let driven = tokio::spawn(drive);
            tokio::task::yield_now().await;
            assert!(leave(&uplink, &first, 100_000).await > 0, "the link is free");
            driven
        } else {
            assert!(leave(&uplink, &first, 100_000).await > 0, "the link is free");
            tokio::spawn(drive)
        };
        for _ in 0..3 {
            let given = time::timeout(Duration::from_secs(10), leave(&uplink, &second, 100_000)).await;
            assert!(given.is_ok_and(|bytes| bytes > 0));
        }
        assert!(uplink.stats().timer_failures > 0);
        driven.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_started_anew_catches_up_with_what_its_predecessor_missed() {
    let uplink = uplink(Order::Srpt);
    let (first, second) = (Asker::new(&uplink, 100_000), Asker::new(&uplink, 100_000));
    assert!(first.ask(&uplink, 100_000).is_some(), "the link is free");
    assert_eq!(second.ask(&uplink, 100_000), None);
    // It rang, and the task that heard it ended before it did anything.
    time::advance(Duration::from_secs(1)).await;
    uplink.driver.alarm().listen_once().await;
    assert_eq!(second.woken(), 0);
    let driver = uplink.clone();
    tokio::spawn(async move { driver.drive().await });
    tokio::task::yield_now().await;
    assert_eq!(second.woken(), 1);
}
