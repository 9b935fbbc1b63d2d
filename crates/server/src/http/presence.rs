//! Whether the client of an HTTP/1 request is there while somebody works for it. Nothing reads its connection meanwhile, so the
//! kernel is asked.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::Version;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Connection;
use crate::{gate::ClientSide, timer::Timer};

/// How often it is looked whether a client is still there.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// A client that closes its side right behind its request has done so by then, and waits for the answer.
const CLOSES_BEHIND_REQUEST: Duration = Duration::from_millis(100);

/// A connection's timer, for the requests on it one after another: most are over before it rings, and it need not be set anew.
#[derive(Debug, Default)]
pub(super) struct SpareTimer(Mutex<Option<Timer>>);

/// Ends when the client is gone. In HTTP/2 never: there the stream is reset, and with that whatever works for it is dropped.
pub(super) struct Gone(Option<(Arc<Connection>, Watch)>);

/// A client that closes its side may be gone, or wait for the answer; the kernel does not know. A client that does it right behind its
/// request waits; one that does it later has given up. Of one that was still sending nobody can say, and only a reset tells. One watch
/// follows a request through all its phases, so that it does not matter in which of them its client closes.
struct Watch {
    timer: Option<Timer>,
    /// When it is looked next.
    due: Instant,
    /// Whether a client that has closed its side waits; `None`: nobody has looked yet.
    waits: Option<bool>,
}

/// Watches over the client of a request that is here whole, unless it `still_sends`.
pub(super) fn gone(connection: &Arc<Connection>, version: Version, still_sends: bool, now: Instant) -> Gone {
    Gone((version != Version::HTTP_2).then(|| {
        let spare = connection.spare_timer.0.lock().take();
        (connection.clone(), Watch::new(spare, still_sends, now))
    }))
}

impl Watch {
    fn new(timer: Option<Timer>, still_sends: bool, now: Instant) -> Self {
        Self { timer, due: now + CLOSES_BEHIND_REQUEST, waits: still_sends.then_some(true) }
    }

    /// Whether a client that is seen like this is gone. It may be looked at before the time, too.
    fn is_over(&mut self, side: ClientSide, now: Instant) -> bool {
        match side {
            ClientSide::Open => {
                if self.due <= now {
                    self.waits.get_or_insert(false);
                }
                false
            }
            ClientSide::Closed => !*self.waits.get_or_insert(true),
            ClientSide::Gone => true,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, side: impl Fn() -> ClientSide) -> Poll<()> {
        loop {
            let due = self.due;
            let timer = self.timer.get_or_insert_with(|| Timer::at(due));
            // One that was set for an earlier look or request rings too soon, and is set anew then.
            if timer.due() > due {
                timer.set(due);
            }
            ready!(timer.poll(cx));
            let now = Instant::now();
            if now < due {
                timer.set(due);
                continue;
            }
            if self.is_over(side(), now) {
                return Poll::Ready(());
            }
            self.due = now + LOOK_AFTER;
        }
    }
}

impl Gone {
    /// Looks at once.
    pub(super) fn is_over(&mut self) -> bool {
        let Some((connection, watch)) = &mut self.0 else { return false };
        watch.is_over(connection.flow.client_side(), Instant::now())
    }
}

impl Future for Gone {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some((connection, watch)) = &mut self.0 else { return Poll::Pending };
        watch.poll(cx, || connection.flow.client_side())
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        if let Some((connection, watch)) = &mut self.0 {
            *connection.spare_timer.0.lock() = watch.timer.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When the watch ends, where the client does these things at these milliseconds; `None`: not within a minute.
    async fn ends(still_sends: bool, does: &[(u64, ClientSide)]) -> Option<u64> {
        let own = ends_with(None, still_sends, does).await;
        for spare_ms in [0, 1, 99, 100, 101, 5000, 3_600_000] {
            let spare = Timer::at(Instant::now() + Duration::from_millis(spare_ms));
            assert_eq!(
                ends_with(Some(spare), still_sends, does).await,
                own,
                "by a timer that was set to {spare_ms} ms"
            );
        }
        own
    }

    async fn ends_with(timer: Option<Timer>, still_sends: bool, does: &[(u64, ClientSide)]) -> Option<u64> {
        let start = Instant::now();
        let ms = || start.elapsed().as_millis() as u64;
        let side = || does.iter().rev().find(|(at, _)| *at <= ms()).map_or(ClientSide::Open, |(_, side)| *side);
        let mut watch = Watch::new(timer, still_sends, start);
        let ended = std::future::poll_fn(|cx| watch.poll(cx, side));
        tokio::time::timeout(Duration::from_secs(60), ended).await.ok().map(|()| ms())
    }

    #[tokio::test(start_paused = true)]
    async fn an_early_look_says_the_same_as_those_that_follow() {
        use ClientSide::{Closed, Gone, Open};
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        for (still_sends, looks, expected) in [
            (false, &[(30, Open), (200, Closed)][..], &[false, false][..]),
            (false, &[(30, Closed), (200, Closed), (300, Gone)], &[false, false, true]),
            (false, &[(30, Open), (100, Open), (200, Closed)], &[false, false, true]),
            (false, &[(30, Gone)], &[true]),
            (true, &[(200, Open), (300, Closed), (400, Gone)], &[false, false, true]),
        ] {
            let mut watch = Watch::new(None, still_sends, start);
            let found: Vec<_> = looks.iter().map(|&(at, side)| watch.is_over(side, ms(at))).collect();
            assert_eq!(found, expected, "{still_sends} {looks:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_closes_later_than_behind_its_request_is_gone() {
        use ClientSide::{Closed, Gone};
        assert_eq!(ends(false, &[]).await, None);
        assert_eq!(ends(false, &[(5000, Closed)]).await, Some(5100), "it has given up");
        assert_eq!(ends(false, &[(1, Closed)]).await, None, "it waits for the answer");
        assert_eq!(ends(false, &[(1, Closed), (5000, Gone)]).await, Some(5100));
        assert_eq!(ends(false, &[(0, Gone)]).await, Some(100));
        assert_eq!(ends(true, &[(5000, Closed)]).await, None, "that was the end of its request");
        assert_eq!(ends(true, &[(5000, Closed), (7000, Gone)]).await, Some(7100));
    }
}
