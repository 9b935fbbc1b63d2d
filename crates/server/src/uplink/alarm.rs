//! An alarm that any thread can set and one task waits for.
//!
//! On Linux it is a timer behind a file descriptor: the runtime's own timers have a resolution of a millisecond, in which
//! a link of 100 Mbit/s sends eight segments. Elsewhere, the runtime's timers must do.

use std::time::Duration;

#[cfg(any(test, feature = "test-util"))]
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
#[cfg(target_os = "linux")]
use {
    kernel::{timer::TimerFd, timer_events::TimerEvents},
    std::sync::Arc,
};

/// See the head of this module.
#[derive(Debug)]
pub(crate) enum Alarm {
    #[cfg(target_os = "linux")]
    Precise(Arc<TimerFd>),
    /// When it rings; `None` before it was first set.
    Coarse(watch::Sender<Option<Instant>>),
    /// Nobody listens: whoever moves the clock looks when it is due.
    #[cfg(any(test, feature = "test-util"))]
    ByHand(Mutex<Option<Instant>>),
}

impl Alarm {
    pub fn new() -> Self {
        #[cfg(target_os = "linux")]
        match TimerFd::new() {
            Ok(timer) => return Self::Precise(Arc::new(timer)),
            Err(error) => tracing::debug!(%error, "no precise timer here; the pacer's turns are a millisecond apart"),
        }
        Self::coarse()
    }

    /// One for what need not be exact to a millisecond.
    pub fn coarse() -> Self {
        Self::Coarse(watch::Sender::new(None))
    }

    /// Rings once after this time, whatever it was set to before. Zero rings at once.
    pub fn set(&self, after: Duration) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Precise(timer) => {
                if let Err(error) = timer.set_after(after.max(Duration::from_nanos(1))) {
                    tracing::error!(%error, "the pacer's timer cannot be set");
                }
            }
            Self::Coarse(due) => {
                due.send_replace(Some(Instant::now() + after));
            }
            #[cfg(any(test, feature = "test-util"))]
            Self::ByHand(due) => *due.lock() = Some(Instant::now() + after),
        }
    }

    /// Waits until it rings, calling `rung` each time. Never returns; one task only.
    pub async fn listen(&self, mut rung: impl FnMut()) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Precise(timer) => {
                let failed = match TimerEvents::new(timer.clone()) {
                    Ok(events) => loop {
                        match events.expired().await {
                            Ok(()) => rung(),
                            Err(error) => break error,
                        }
                    },
                    Err(error) => error,
                };
                tracing::error!(error = %failed, "the pacer's timer cannot be watched: responses will wait");
                std::future::pending().await
            }
            Self::Coarse(due) => {
                let mut due = due.subscribe();
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
            #[cfg(any(test, feature = "test-util"))]
            Self::ByHand(_) => std::future::pending().await,
        }
    }
}

#[cfg(any(test, feature = "test-util"))]
impl Alarm {
    /// When it rings; `None` while it is not set, and where the kernel knows.
    pub fn due(&self) -> Option<Instant> {
        match self {
            Self::ByHand(due) => *due.lock(),
            Self::Coarse(due) => *due.borrow(),
            #[cfg(target_os = "linux")]
            Self::Precise(_) => None,
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
