//! Whether the client of an HTTP/1 request is there while somebody works for it. Nothing reads its connection meanwhile, so the
//! kernel is asked.

use std::{future::Future, pin::Pin, time::Duration};

use http::Version;
use tokio::time::sleep;

use crate::gate::{ClientSide, Flow};

/// How often it is looked whether a client is still there.
pub(super) const LOOK_AFTER: Duration = Duration::from_secs(1);
/// A client that closes its side right behind its request has done so by then, and waits for the answer.
const CLOSES_BEHIND_REQUEST: Duration = Duration::from_millis(100);

/// Ends when the client is gone.
pub(super) type Gone = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Watches over the client of a request that is here whole, unless it `still_sends`.
pub(super) fn gone(flow: &Flow, version: Version, still_sends: bool) -> Gone {
    if version == Version::HTTP_2 {
        // Its stream is reset, and with that whatever works for it is dropped.
        return Box::pin(std::future::pending());
    }
    let flow = flow.clone();
    Box::pin(watch(move || flow.client_side(), still_sends))
}

/// A client that closes its side may be gone, or wait for the answer; the kernel does not know. Who does it right behind the request
/// waits; who does it later has given up. Of one that was still sending nobody can say, and only a reset tells.
async fn watch(side: impl Fn() -> ClientSide, still_sends: bool) {
    sleep(CLOSES_BEHIND_REQUEST).await;
    let waits = still_sends || side() == ClientSide::Closed;
    loop {
        match side() {
            ClientSide::Gone => return,
            ClientSide::Closed if !waits => return,
            ClientSide::Closed | ClientSide::Open => {}
        }
        sleep(LOOK_AFTER).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// When the watch ends, where the client does these things at these milliseconds; `None`: not within a minute.
    async fn ends(still_sends: bool, does: &[(u64, ClientSide)]) -> Option<u64> {
        let start = Instant::now();
        let ms = || start.elapsed().as_millis() as u64;
        let side = || does.iter().rev().find(|(at, _)| *at <= ms()).map_or(ClientSide::Open, |(_, side)| *side);
        tokio::time::timeout(Duration::from_secs(60), watch(side, still_sends)).await.ok().map(|()| ms())
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
