//! A timer that is asked again and again, and seldom rings.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use tokio::{
    task::coop::has_budget_remaining,
    time::{Instant, Sleep, sleep_until},
};

/// As [`Sleep`], but to ask it again from the same task, as long as it does not ring and nobody sets it anew, costs no more than a
/// look at it; a `Sleep` takes its lock each time to keep whom to wake.
#[derive(Debug)]
pub(crate) struct Timer {
    sleep: Pin<Box<Sleep>>,
    /// Whom it will wake.
    wakes: Option<Waker>,
}

impl Timer {
    pub(crate) fn at(due: Instant) -> Self {
        Self { sleep: Box::pin(sleep_until(due)), wakes: None }
    }

    /// When it rings.
    pub(crate) fn due(&self) -> Instant {
        self.sleep.deadline()
    }

    /// Sets it anew, whether or not it rang.
    pub(crate) fn set(&mut self, due: Instant) {
        // When it rings, it forgets whom it woke.
        self.wakes = None;
        self.sleep.as_mut().reset(due);
    }

    /// Ready when it rings, and from then on.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_known = self.wakes.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        // What rings after this look wakes whom it knows.
        if is_known && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        // Of a task whose budget is spent it keeps nothing: that is to come again.
        let is_kept = has_budget_remaining();
        let polled = self.sleep.as_mut().poll(cx);
        self.wakes = (polled.is_pending() && is_kept).then(|| cx.waker().clone());
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, time::Duration};

    use tokio::task::coop::consume_budget;

    use super::*;

    fn after_ms(ms: u64) -> Instant {
        Instant::now() + Duration::from_millis(ms)
    }

    /// Waits for it as a task that is also woken for other things.
    async fn rings(mut timer: Timer) -> Timer {
        let mut others = tokio::time::interval(Duration::from_millis(30));
        poll_fn(|cx| {
            while others.poll_tick(cx).is_ready() {}
            timer.poll(cx)
        })
        .await;
        timer
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_when_it_is_due_however_often_it_was_asked_and_stays_so() {
        let due = after_ms(100);
        let mut timer = rings(Timer::at(due)).await;
        assert_eq!(Instant::now(), due);
        assert!(poll_fn(|cx| Poll::Ready(timer.poll(cx).is_ready())).await);
    }

    #[tokio::test(start_paused = true)]
    async fn set_anew_it_rings_then_whether_it_had_rung_or_not() {
        let mut timer = rings(Timer::at(after_ms(10))).await;
        for (first_ms, then_ms) in [(100, 50), (50, 100), (500, 20)] {
            let due = after_ms(then_ms);
            timer.set(after_ms(first_ms));
            let _ = poll_fn(|cx| Poll::Ready(timer.poll(cx))).await;
            timer.set(due);
            timer = rings(timer).await;
            assert_eq!(Instant::now(), due);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_wakes_the_task_that_asked_last() {
        let due = after_ms(100);
        let mut timer = Timer::at(due);
        let _ = poll_fn(|cx| Poll::Ready(timer.poll(cx))).await;
        tokio::spawn(async move { poll_fn(|cx| timer.poll(cx)).await }).await.unwrap();
        assert_eq!(Instant::now(), due);
    }

    #[tokio::test(start_paused = true)]
    async fn asked_when_the_budget_of_its_task_is_spent_it_rings_all_the_same() {
        let due = after_ms(100);
        let mut timer = Timer::at(due);
        let mut spent = false;
        tokio::spawn(poll_fn(move |cx| {
            if !std::mem::replace(&mut spent, true) {
                while has_budget_remaining() {
                    let _ = pin!(consume_budget()).poll(cx);
                }
            }
            timer.poll(cx)
        }))
        .await
        .unwrap();
        assert_eq!(Instant::now(), due);
    }

    #[tokio::test(start_paused = true)]
    async fn rung_while_nobody_asked_and_set_anew_it_wakes_all_the_same() {
        let mut timer = Timer::at(after_ms(10));
        let _ = poll_fn(|cx| Poll::Ready(timer.poll(cx))).await;
        tokio::time::advance(Duration::from_millis(20)).await;
        let due = after_ms(100);
        timer.set(due);
        poll_fn(|cx| timer.poll(cx)).await;
        assert_eq!(Instant::now(), due);
    }
}
