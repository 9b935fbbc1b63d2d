//! Finds out that a connection rests.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;

use crate::body::Timer;

/// A connection from which nothing has come for so long, or for up to twice as long, rests. The memory that it gives
/// back then has to be fetched again with the next bytes, which takes a few microseconds. So clients that are at work
/// are not to meet it.
const REST: Duration = Duration::from_secs(3);

/// Whether a connection rests. No clock is read and no timer set for the bytes that come: the timer fires once in [`REST`].
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// `None` while the connection rests, and before it is read from.
    timer: Option<Box<Timer>>,
    /// Something has come since the timer was set.
    has_come: bool,
    is_resting: bool,
}

impl Rest {
    /// Bytes have come, or the end. Returns whether the connection has rested.
    pub(super) fn handle_bytes(&mut self) -> bool {
        self.has_come = true;
        std::mem::take(&mut self.is_resting)
    }

    /// Nothing is there to be read. Ready once, when the connection begins to rest.
    pub(super) fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_resting {
            return Poll::Pending;
        }
        loop {
            let Some(timer) = &mut self.timer else {
                self.has_come = false;
                self.timer = Some(Box::new(Timer::at(Instant::now() + REST)));
                continue;
            };
            if timer.poll(cx).is_pending() {
                return Poll::Pending;
            }
            // Without the timer a resting connection is smaller.
            self.timer = None;
            if !self.has_come {
                self.is_resting = true;
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::sleep;

    use super::*;

    async fn begins(rest: &mut Rest) -> bool {
        poll_fn(|cx| Poll::Ready(rest.poll_begin(cx).is_ready())).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_rests_when_nothing_comes_and_anew_after_bytes() {
        let mut rest = Rest::default();
        for _ in 0..2 {
            let begun = Instant::now();
            poll_fn(|cx| rest.poll_begin(cx)).await;
            assert_eq!(begun.elapsed(), REST);
            assert!(!begins(&mut rest).await, "it begins once");
            sleep(REST).await;
            assert!(rest.handle_bytes());
            assert!(!rest.handle_bytes());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_at_work_does_not_rest() {
        let mut rest = Rest::default();
        for _ in 0..100 {
            assert!(!begins(&mut rest).await);
            sleep(REST / 4).await;
            assert!(!rest.handle_bytes());
        }
        let last = Instant::now();
        poll_fn(|cx| rest.poll_begin(cx)).await;
        assert!((REST..=2 * REST).contains(&last.elapsed()));
    }
}
