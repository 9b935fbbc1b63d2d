//! Waits for a [`TimerFd`] in a tokio runtime, whose own timers have a resolution of a millisecond.

use std::{io, sync::Arc};

use tokio::io::{Interest, unix::AsyncFd};

use crate::timer::TimerFd;

/// The expiries of a timer. Other owners of the timer may continue to set it.
#[derive(Debug)]
pub struct TimerEvents {
    timer: AsyncFd<Arc<TimerFd>>,
}

impl TimerEvents {
    /// Registers the timer with the current runtime.
    ///
    /// # Errors
    ///
    /// The error of the operating system, for example when there are no file descriptors left.
    pub fn new(timer: Arc<TimerFd>) -> io::Result<Self> {
        // SAFETY: the descriptor is owned by the timer, which never gives it away or replaces it, and the
        // `Arc` that keeps the timer is dropped together with the registration.
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?;
        Ok(Self { timer })
    }

    /// Waits for the timer to expire. Cancel safe. Expiries are not read: setting the timer forgets them, and the
    /// runtime's `epoll` is edge-triggered, so each expiry is an event of its own. That saves two system calls each.
    ///
    /// # Errors
    ///
    /// When the runtime is shutting down.
    pub async fn expired(&self) -> io::Result<()> {
        self.timer.readable().await?.clear_ready();
        Ok(())
    }
}
