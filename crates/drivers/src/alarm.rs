//! An alarm that any thread can set and one task waits for.
//!
//! On Linux it is a timer behind a file descriptor. The runtime's own timers have a resolution of a millisecond, in
//! which a link of 100 Mbit/s sends eight segments. They are used elsewhere, and where the other timer fails.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

#[cfg(any(test, feature = "test-util"))]
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
#[cfg(target_os = "linux")]
use {
    kernel::{timer::TimerFd, timer_events::TimerEvents},
    std::{
        io,
        sync::{Arc, atomic::AtomicBool},
    },
};

/// See the head of this module.
#[derive(Debug)]
pub(crate) enum Alarm {
    #[cfg(target_os = "linux")]
    Precise(Precise),
    Coarse(Coarse),
    /// No task listens: the test that moves the clock looks when it is due.
    #[cfg(any(test, feature = "test-util"))]
    ByHand(Mutex<Option<Instant>>),
}

/// A timer of the system's, and one that takes its place when it fails.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct Precise {
    timer: Arc<TimerFd>,
    failed: AtomicBool,
    failures: AtomicU64,
    instead: Coarse,
}

/// A timer of the runtime's.
#[derive(Debug)]
pub(crate) struct Coarse {
    /// When it rings; `None` before it was first set.
    due: watch::Sender<Option<Instant>>,
}

impl Alarm {
    pub fn new() -> Self {
        #[cfg(target_os = "linux")]
        match TimerFd::new() {
            Ok(timer) => return Self::precise(timer),
            Err(error) => tracing::debug!(%error, "no precise timer here; the pacer's turns are a millisecond apart"),
        }
        Self::coarse()
    }

    #[cfg(target_os = "linux")]
    pub(super) fn precise(timer: TimerFd) -> Self {
        let (failed, failures) = (AtomicBool::new(false), AtomicU64::new(0));
        Self::Precise(Precise { timer: Arc::new(timer), failed, failures, instead: Coarse::default() })
    }

    /// One for what need not be exact to a millisecond.
    pub fn coarse() -> Self {
        Self::Coarse(Coarse::default())
    }

    /// Rings once after this time, whatever it was set to before. Zero rings at once.
    pub fn set(&self, after: Duration) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Precise(precise) => precise.set(after),
            Self::Coarse(coarse) => coarse.set(after),
            #[cfg(any(test, feature = "test-util"))]
            Self::ByHand(due) => *due.lock() = Some(Instant::now() + after),
        }
    }

    /// Waits until it rings, calling `rung` each time. Never returns; one task only.
    pub async fn listen(&self, rung: impl FnMut()) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Precise(precise) => precise.listen(rung).await,
            Self::Coarse(coarse) => coarse.listen(rung).await,
            #[cfg(any(test, feature = "test-util"))]
            Self::ByHand(_) => std::future::pending().await,
        }
    }

    /// How often its timer has failed.
    pub fn failures(&self) -> u64 {
        match self {
            #[cfg(target_os = "linux")]
            Self::Precise(precise) => precise.failures.load(Relaxed),
            _ => 0,
        }
    }
}

#[cfg(target_os = "linux")]
impl Precise {
    fn set(&self, after: Duration) {
        if !self.failed.load(Relaxed) {
            match self.timer.set_after(after.max(Duration::from_nanos(1))) {
                Ok(()) => return,
                Err(error) => self.give_up(&error),
            }
        }
        self.instead.set(after);
    }

    async fn listen(&self, mut rung: impl FnMut()) {
        let mut instead = self.instead.due.subscribe();
        if !self.failed.load(Relaxed) {
            let error = tokio::select! {
                biased;
                error = self.watch(&mut rung) => Some(error),
                // Another thread has found that it cannot be set.
                _ = instead.changed() => None,
            };
            if let Some(error) = error {
                self.give_up(&error);
            }
            // The time that it was set to is lost. An alarm that rings too early does no harm: the pacer sets it again.
            self.instead.set(Duration::ZERO);
        }
        self.instead.listen(rung).await;
    }

    /// Until the timer fails.
    async fn watch(&self, rung: &mut impl FnMut()) -> io::Error {
        let events = match TimerEvents::new(self.timer.clone()) {
            Ok(events) => events,
            Err(error) => return error,
        };
        loop {
            match events.expired().await {
                Ok(()) => rung(),
                Err(error) => return error,
            }
        }
    }

    fn give_up(&self, error: &io::Error) {
        self.failures.fetch_add(1, Relaxed);
        if !self.failed.swap(true, Relaxed) {
            tracing::error!(
                %error,
                "the pacer's timer has failed; from now on its turns are a millisecond apart, which a restart may mend"
            );
        }
    }
}

impl Default for Coarse {
    fn default() -> Self {
        Self { due: watch::Sender::new(None) }
    }
}

impl Coarse {
    fn set(&self, after: Duration) {
        self.due.send_replace(Some(Instant::now() + after));
    }

    async fn listen(&self, mut rung: impl FnMut()) {
        let mut due = self.due.subscribe();
        let mut next = *due.borrow_and_update();
        // The sender is in `self`, so there is always another change to wait for.
        loop {
            let rings = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = rings => {
                    next = None;
                    rung();
                }
                _ = due.changed() => next = *due.borrow_and_update(),
            }
        }
    }
}

#[cfg(any(test, feature = "test-util"))]
impl Alarm {
    /// When it rings; `None` while it is not set, and where the kernel knows.
    pub fn due(&self) -> Option<Instant> {
        match self {
            Self::ByHand(due) => *due.lock(),
            Self::Coarse(coarse) => *coarse.due.borrow(),
            #[cfg(target_os = "linux")]
            Self::Precise(_) => None,
        }
    }

    /// Waits until it rings, once.
    #[cfg(test)]
    pub async fn listen_once(&self) {
        let rung = tokio::sync::Notify::new();
        tokio::select! {
            () = self.listen(|| rung.notify_one()) => {}
            () = rung.notified() => {}
        }
    }

    /// It has rung.
    pub fn unset(&self) {
        if let Self::ByHand(due) = self {
            *due.lock() = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::{sync::mpsc, time::timeout};

    use super::*;

    /// Only ends a test that would wait for ever.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn set_on_one_thread_it_rings_on_another_each_time() {
        for alarm in [Alarm::new(), Alarm::coarse()] {
            let alarm = Arc::new(alarm);
            let (sender, mut rung) = mpsc::unbounded_channel();
            let listening = tokio::spawn({
                let alarm = alarm.clone();
                async move { alarm.listen(|| sender.send(()).unwrap()).await }
            });
            for at in 0..100 {
                alarm.set(Duration::from_micros(at % 3));
                timeout(PATIENCE, rung.recv()).await.expect("it rings").unwrap();
            }
            listening.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn set_anew_while_it_is_waited_for_it_rings_then_and_once() {
        let alarm = Arc::new(Alarm::coarse());
        let (sender, mut rung) = mpsc::unbounded_channel();
        let ms = Duration::from_millis;
        let start = Instant::now();
        tokio::spawn({
            let alarm = alarm.clone();
            async move { alarm.listen(|| sender.send(start.elapsed()).unwrap()).await }
        });
        // Between two settings the listener looks, and waits.
        for (set_ms, rings_ms) in [(&[100, 50][..], 50), (&[50, 100], 100), (&[0], 0)] {
            let before = start.elapsed();
            for &set in set_ms {
                alarm.set(ms(set));
                tokio::task::yield_now().await;
            }
            assert_eq!(timeout(PATIENCE, rung.recv()).await.unwrap(), Some(before + ms(rings_ms)), "{set_ms:?}");
            tokio::time::sleep(ms(1000)).await;
            assert!(rung.try_recv().is_err(), "it rang twice: {set_ms:?}");
        }
    }
}
