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

    /// Waits for the timer to expire. Cancel safe.
    ///
    /// # Errors
    ///
    /// When the runtime is shutting down, or the timer cannot be read.
    pub async fn expired(&self) -> io::Result<()> {
        loop {
            let mut ready = self.timer.readable().await?;
            match ready.try_io(|timer| timer.get_ref().read()) {
                Ok(Ok(0)) | Err(_) => {}
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
            }
        }
    }
}
