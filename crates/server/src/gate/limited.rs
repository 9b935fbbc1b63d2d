//! A limit on the bytes of a client: a response waits for its share of them before it asks the uplink for leave.

use std::task::{Context, Poll, ready};

use limits::Share;
use tokio::time::Instant;

use crate::body::Timer;

/// Waits until a response with `left_bytes` may send some of its client's bytes; how many of `bytes`.
pub(super) fn poll_share(
    share: &Share,
    timer: &mut Option<Box<Timer>>,
    cx: &mut Context<'_>,
    left_bytes: u64,
    bytes: u64,
) -> Poll<u64> {
    loop {
        let at = match share.available(left_bytes, Instant::now().into_std()) {
            Ok(may) => return Poll::Ready(bytes.min(may)),
            Err(at) => Instant::from_std(at),
        };
        let timer = timer.get_or_insert_with(|| Box::new(Timer::at(at)));
        timer.set(at);
        ready!(timer.poll(cx));
    }
}
