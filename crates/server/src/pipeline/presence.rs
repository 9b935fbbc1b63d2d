//! Whether the client of a request is still there while its answer is made. In HTTP/1 nothing reads the connection
//! meanwhile, and in HTTP/2 nothing does while the answer to a control frame cannot be written, so the kernel is asked.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::Version;
use tokio::time::Instant;

use crate::{
    body::Timer,
    connection_state::ConnectionState,
    gate::{ClientSide, Flow},
};

/// Time between two looks.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// A client that closes its side right behind its request has done so by then, and waits for the answer.
const CLOSES_BEHIND_REQUEST: Duration = Duration::from_millis(100);

/// Watches over the client of a request. As a future, ends when the client is gone.
pub(crate) struct Presence {
    flow: Flow,
    connection: Arc<ConnectionState>,
    watch: Watch,
}

/// The client is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientGone;

/// A client that closes its side may be gone, or wait for the answer; the kernel cannot tell. A client that closes
/// right behind its request waits; one that closes later has given up. For a client that was still sending, only a
/// reset tells. One watch follows a request through all its phases, so the phase in which its client closes does not
/// matter. An HTTP/2 client that closes its side takes no answer.
struct Watch {
    /// `None`: not waited for yet.
    timer: Option<Timer>,
    /// When the kernel is asked next.
    due: Instant,
    /// Whether a client that has closed its side waits; `None`: the kernel was not asked yet.
    waits: Option<bool>,
}

impl Presence {
    /// Watches over the client of a request that was read whole, unless the client `still_sends` it.
    pub(super) fn watch(
        connection: &Arc<ConnectionState>,
        flow: &Flow,
        version: Version,
        still_sends: bool,
        now: Instant,
    ) -> Self {
        let waits = match version {
            Version::HTTP_2 => Some(false),
            _ => still_sends.then_some(true),
        };
        Self { flow: flow.clone(), connection: connection.clone(), watch: Watch::new(waits, now) }
    }

    /// Asks at once whether the client is gone.
    pub(super) fn has_ended(&mut self) -> bool {
        self.watch.has_ended(self.flow.client_side(), Instant::now())
    }

    /// Does work for the client, as long as it is there.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T> + Unpin) -> Result<T, ClientGone> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self => Err(ClientGone),
        }
    }
}

impl Watch {
    fn new(waits: Option<bool>, now: Instant) -> Self {
        Self { timer: None, due: now + CLOSES_BEHIND_REQUEST, waits }
    }

    /// Whether a client that is seen like this is gone. May be asked before the time, too.
    fn has_ended(&mut self, side: ClientSide, now: Instant) -> bool {
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

    /// `spare` gives a timer of earlier requests, if there is one.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        spare: impl Fn() -> Option<Timer>,
        side: impl Fn() -> ClientSide,
    ) -> Poll<()> {
        loop {
            let due = self.due;
            let timer = self.timer.get_or_insert_with(|| spare().unwrap_or_else(|| Timer::at(due)));
            // A timer that was set for an earlier look or request fires too soon, and is set anew then.
            if timer.due() > due {
                timer.set(due);
            }
            ready!(timer.poll(cx));
            let now = Instant::now();
            if now < due {
                timer.set(due);
                continue;
            }
            if self.has_ended(side(), now) {
                return Poll::Ready(());
            }
            self.due = now + LOOK_AFTER;
        }
    }
}

impl Future for Presence {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { flow, connection, watch } = &mut *self;
        watch.poll(cx, || connection.spare_timer.lock().take(), || flow.client_side())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some(timer) = self.watch.timer.take() {
            *self.connection.spare_timer.lock() = Some(timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When the watch ends, where the client does these things at these milliseconds; `None`: not within a minute.
    async fn ends(waits: Option<bool>, does: &[(u64, ClientSide)]) -> Option<u64> {
        let own = ends_with(None, waits, does).await;
        for spare_ms in [0, 1, 99, 100, 101, 5000, 3_600_000] {
            let spare = Timer::at(Instant::now() + Duration::from_millis(spare_ms));
            assert_eq!(ends_with(Some(spare), waits, does).await, own, "by a timer that was set to {spare_ms} ms");
        }
        own
    }

    async fn ends_with(timer: Option<Timer>, waits: Option<bool>, does: &[(u64, ClientSide)]) -> Option<u64> {
        let start = Instant::now();
        let ms = || start.elapsed().as_millis() as u64;
        let side = || does.iter().rev().find(|(at, _)| *at <= ms()).map_or(ClientSide::Open, |(_, side)| *side);
        let timer = std::cell::Cell::new(timer);
        let mut watch = Watch::new(waits, start);
        let ended = std::future::poll_fn(|cx| watch.poll(cx, || timer.take(), side));
        tokio::time::timeout(Duration::from_secs(60), ended).await.ok().map(|()| ms())
    }

    #[tokio::test(start_paused = true)]
    async fn an_early_look_says_the_same_as_those_that_follow() {
        use ClientSide::{Closed, Gone, Open};
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        for (waits, looks, expected) in [
            (None, &[(30, Open), (200, Closed)][..], &[false, false][..]),
            (None, &[(30, Closed), (200, Closed), (300, Gone)], &[false, false, true]),
            (None, &[(30, Open), (100, Open), (200, Closed)], &[false, false, true]),
            (None, &[(30, Gone)], &[true]),
            (Some(true), &[(200, Open), (300, Closed), (400, Gone)], &[false, false, true]),
        ] {
            let mut watch = Watch::new(waits, start);
            let found: Vec<_> = looks.iter().map(|&(at, side)| watch.has_ended(side, ms(at))).collect();
            assert_eq!(found, expected, "{waits:?} {looks:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_closes_later_than_behind_its_request_is_gone() {
        use ClientSide::{Closed, Gone};
        assert_eq!(ends(None, &[]).await, None);
        assert_eq!(ends(None, &[(5000, Closed)]).await, Some(5100), "it has given up");
        assert_eq!(ends(None, &[(1, Closed)]).await, None, "it waits for the answer");
        assert_eq!(ends(None, &[(1, Closed), (5000, Gone)]).await, Some(5100));
        assert_eq!(ends(None, &[(0, Gone)]).await, Some(100));
        assert_eq!(ends(Some(true), &[(5000, Closed)]).await, None, "that was the end of its request");
        assert_eq!(ends(Some(true), &[(5000, Closed), (7000, Gone)]).await, Some(7100));
    }

    #[tokio::test(start_paused = true)]
    async fn an_http2_client_that_closes_its_side_is_gone_whenever_it_does() {
        assert_eq!(ends(Some(false), &[]).await, None);
        assert_eq!(ends(Some(false), &[(0, ClientSide::Closed)]).await, Some(100));
        assert_eq!(ends(Some(false), &[(5000, ClientSide::Closed)]).await, Some(5100));
    }
}
