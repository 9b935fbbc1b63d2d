//! A timer that is polled often and seldom fires.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use tokio::{
    task::coop::has_budget_remaining,
    time::{Instant, Sleep, sleep_until},
};

/// A timer like [`Sleep`] that is cheap to poll again. A `Sleep` takes its lock at each poll to store the waker.
/// This timer only checks that the same task polls it and that it has not fired.
#[derive(Debug)]
pub struct Timer {
    sleep: Pin<Box<Sleep>>,
    /// The waker that `sleep` has stored.
    waker: Option<Waker>,
}

impl Timer {
    /// Makes a timer that fires at this time.
    pub fn at(due: Instant) -> Self {
        Self { sleep: Box::pin(sleep_until(due)), waker: None }
    }

    /// When it fires.
    pub fn due(&self) -> Instant {
        self.sleep.deadline()
    }

    /// Sets another time, whether or not the timer has fired.
    pub fn set(&mut self, due: Instant) {
        // A `Sleep` that fires forgets its waker.
        self.waker = None;
        self.sleep.as_mut().reset(due);
    }

    /// Ready once the timer has fired, until it is set again.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_stored = self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        // If the timer fires after this check, it wakes the stored waker.
        if is_stored && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        // For a task whose budget is spent, `Sleep` stores no waker but wakes the task immediately.
        let stores = has_budget_remaining();
        let polled = self.sleep.as_mut().poll(cx);
        self.waker = (polled.is_pending() && stores).then(|| cx.waker().clone());
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

    /// Waits for the timer in a task that is also woken by other events.
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
