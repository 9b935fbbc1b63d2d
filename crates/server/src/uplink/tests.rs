use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::Wake,
};

use tokio::{sync::Notify, time};

use super::*;

fn config(order: Order) -> UplinkConfig {
    UplinkConfig {
        rate: UplinkRate::Given("10mbit".parse().unwrap()),
        order,
        enforce: Enforce::Server,
        cutoffs: Cutoffs::Learned,
        guard_stretch: None,
        utilisation: 1.0,
        segment_overhead_bytes: 66,
        device: None,
    }
}

/// An uplink whose alarm nobody hears.
fn uplink(order: Order) -> Uplink {
    let alarm = Alarm::Coarse { due: Mutex::new(None), changed: Notify::new() };
    Uplink::with_alarm(&config(order), alarm).unwrap()
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
        Self { job: uplink.shared.started(Size::Known(size_bytes), None), woken: Arc::default() }
    }

    fn ask(&self, uplink: &Uplink, bytes: u64) -> Option<u64> {
        uplink.shared.ask(self.job, bytes, &Waker::from(self.woken.clone()))
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
    uplink.shared.turn();
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
    // Whoever waits again is woken as before.
    assert_eq!(small.ask(&uplink, 97_000), None);
    time::advance(Duration::from_secs(1)).await;
    uplink.shared.turn();
    assert_eq!((small.woken(), large.woken()), (1, 0));
}

#[test]
fn quick_fix_has_two_bands_whatever_divides_small_from_large() {
    for cutoffs in [Cutoffs::Learned, Cutoffs::Given(vec![2048, 20_480])] {
        let config = UplinkConfig { enforce: Enforce::Kernel, cutoffs, ..config(Order::QuickFix) };
        let plan = first_plan(&config);
        assert_eq!([0, 1].map(|measure| plan.band(measure)), [1, 2], "{config:?}");
    }
}
