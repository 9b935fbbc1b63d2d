//! The limit on connections: a count with an adjustable limit, and a queue of waiting tasks.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use tokio::sync::Notify;

/// The limit on connections of the process.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    limit: AtomicUsize,
    taken: AtomicUsize,
    freed: Notify,
}

/// Permits one connection until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(Arc<ConnectionLimit>);

impl ConnectionLimit {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit: AtomicUsize::new(limit), taken: AtomicUsize::new(0), freed: Notify::new() })
    }

    /// Changes the limit. Connections beyond a lower limit stay until they end.
    pub(crate) fn resize(&self, limit: usize) {
        self.limit.store(limit, SeqCst);
        self.freed.notify_waiters();
    }

    pub(crate) fn try_take(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let limit = self.limit.load(SeqCst);
        let taken = self.taken.fetch_update(SeqCst, SeqCst, |taken| (taken < limit).then_some(taken + 1));
        taken.is_ok().then(|| ConnectionPermit(self.clone()))
    }

    pub(crate) async fn take(self: &Arc<Self>) -> ConnectionPermit {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // Registered before the check, so that no freed permit is missed.
            freed.as_mut().enable();
            if let Some(place) = self.try_take() {
                return place;
            }
            freed.await;
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, SeqCst);
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Poll};

    use super::*;

    #[tokio::test]
    async fn a_waiting_task_gets_the_permit_that_becomes_free() {
        let limit = ConnectionLimit::new(1);
        let first = limit.try_take().expect("one permit");
        assert!(limit.try_take().is_none());
        let mut waiting = pin!(limit.take());
        assert!(std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await);
        drop(first);
        waiting.await;
    }

    #[tokio::test]
    async fn the_limit_can_rise_and_fall() {
        let limit = ConnectionLimit::new(0);
        let mut waiting = pin!(limit.take());
        assert!(std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await);
        limit.resize(2);
        let first = waiting.await;
        let second = limit.try_take().expect("two permits");
        limit.resize(1);
        drop(second);
        assert!(limit.try_take().is_none(), "one is taken, and one is allowed");
        drop(first);
        assert!(limit.try_take().is_some());
    }
}
