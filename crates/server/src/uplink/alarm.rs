//! An alarm that any thread can set and one task waits for.
//!
//! On Linux it is a timer behind a file descriptor: the runtime's own timers have a resolution of a millisecond, in which
//! a link of 100 Mbit/s sends eight segments. Elsewhere, the runtime's timers must do.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
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
    Coarse {
        due: Mutex<Option<Instant>>,
        changed: Notify,
    },
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
        Self::Coarse { due: Mutex::new(None), changed: Notify::new() }
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
            Self::Coarse { due, changed } => {
                *due.lock() = Some(Instant::now() + after);
                changed.notify_one();
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
            Self::Coarse { due, changed } => loop {
                let next = *due.lock();
                match next {
                    Some(at) if at <= Instant::now() => {
                        *due.lock() = None;
                        rung();
                    }
                    Some(at) => {
                        tokio::select! {
                            () = tokio::time::sleep_until(at) => {}
                            () = changed.notified() => {}
                        }
                    }
                    None => changed.notified().await,
                }
            },
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
            Self::ByHand(due) | Self::Coarse { due, .. } => *due.lock(),
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
