//! HTTP/2: streams whose client takes nothing are reset.
//!
//! A client may close the window of a stream while its connection goes on, so that a full socket tells nothing. hyper asks a
//! response's body for more only when the framing has taken the bytes before; as long as the window is closed, it does not ask. So the
//! body notes when it gives bytes away and when it is asked again ([`Offer`]), and the task of the stream
//! ([`StreamExecutor`]) watches that: it alone runs while the body waits for nothing.
//!
//! Only time counts in which the window is what is waited for: all bytes that the connection had to pass on before have arrived, or
//! nothing arrives at all. So a stream that shares a slow path with many others is not given up.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::{task::futures::TaskLocalFuture, time::Instant};

use super::flow::Flow;
use crate::timer::Timer;

tokio::task_local! {
    /// The stream that the current task serves.
    static STREAM: Offer;
}

/// A stream is looked at so often within the write timeout.
const LOOKS: u32 = 16;

/// Runs the streams of HTTP/2 connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamExecutor;

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let offer = Offer::default();
        let stream = STREAM.scope(offer.clone(), stream);
        tokio::spawn(Stream { stream, offer, stall: None, timer: None });
    }
}

/// Bytes of a response that the framing has, and that its client has not made room for; shared by a stream and its body.
#[derive(Clone, Debug, Default)]
pub(super) struct Offer(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Of the response, once there is one.
    flow: Option<(Flow, u64)>,
    /// How often bytes were given.
    given: u64,
    /// Where the connection's bytes stood when bytes were given for which nobody has asked since.
    ahead_bytes: Option<u64>,
}

impl Offer {
    /// That of the stream which the current task serves; `None` where nothing watches it.
    pub(super) fn of_stream(flow: &Flow, ticket: u64) -> Option<Self> {
        let offer = STREAM.try_with(Self::clone).ok()?;
        offer.0.lock().flow = Some((flow.clone(), ticket));
        Some(offer)
    }

    /// Bytes were given to the framing, behind those that the connection has.
    pub(super) fn given(&self, ahead_bytes: u64) {
        let mut state = self.0.lock();
        state.given += 1;
        state.ahead_bytes = Some(ahead_bytes);
    }

    /// More is asked for.
    pub(super) fn taken(&self) {
        self.0.lock().ahead_bytes = None;
    }
}

pin_project_lite::pin_project! {
    /// The task of a stream, which ends it when its client takes nothing.
    struct Stream<F> {
        #[pin]
        stream: TaskLocalFuture<Offer, F>,
        offer: Offer,
        stall: Option<Stall>,
        timer: Option<Timer>,
    }
}

/// Bytes that nobody makes room for.
#[derive(Debug)]
struct Stall {
    /// Which.
    given: u64,
    /// The client's window is waited for since then.
    since: Instant,
    next_look: Instant,
    /// At the last look.
    delivered_bytes: Option<u64>,
    is_slow: bool,
}

impl<F: Future<Output = ()>> Future for Stream<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.stream.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let (flow, ticket, given, ahead_bytes) = {
            let state = this.offer.0.lock();
            let (Some((flow, ticket)), Some(ahead_bytes)) = (&state.flow, state.ahead_bytes) else {
                *this.stall = None;
                return Poll::Pending;
            };
            (flow.clone(), *ticket, state.given, ahead_bytes)
        };
        let Some(timeout) = flow.write_timeout() else { return Poll::Pending };
        let mut now = Instant::now();
        if this.stall.as_ref().is_some_and(|stall| stall.given != given) {
            *this.stall = None;
        }
        let stall = this.stall.get_or_insert_with(|| Stall {
            given,
            since: now,
            next_look: now + timeout / LOOKS,
            delivered_bytes: None,
            is_slow: false,
        });
        let timer = this.timer.get_or_insert_with(|| Timer::at(stall.next_look));
        loop {
            if timer.due() > stall.next_look {
                timer.set(stall.next_look);
            }
            ready!(timer.poll(cx));
            now = Instant::now();
            if now < stall.next_look {
                timer.set(stall.next_look);
                continue;
            }
            let waited = stall.look(now, timeout, ahead_bytes, flow.delivered_bytes());
            if waited >= timeout {
                flow.too_slow(Some(ticket));
                // What is dropped with its stream resets it.
                return Poll::Ready(());
            }
            if waited >= timeout / 4 && !std::mem::replace(&mut stall.is_slow, true) {
                flow.slow(Some(ticket));
            }
        }
    }
}

impl Stall {
    /// For how long the client's window is waited for.
    fn look(&mut self, now: Instant, timeout: Duration, ahead_bytes: u64, delivered_bytes: u64) -> Duration {
        let before = self.delivered_bytes.replace(delivered_bytes);
        let moves = before.is_some_and(|before| before != delivered_bytes);
        if delivered_bytes < ahead_bytes && moves {
            // The connection is still busy with what it had before.
            self.since = now;
        }
        self.next_look = (now + timeout / LOOKS).min(self.since + timeout).max(now + Duration::from_millis(1));
        now.saturating_duration_since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// After how many seconds a stream is given up, of whose connection so many bytes have arrived by then.
    fn given_up(ahead_bytes: u64, delivered: impl Fn(u64) -> u64) -> Option<u64> {
        let start = Instant::now();
        let mut stall =
            Stall { given: 1, since: start, next_look: start + TIMEOUT / LOOKS, delivered_bytes: None, is_slow: false };
        while stall.next_look < start + 60 * TIMEOUT {
            let now = stall.next_look;
            let at = (now - start).as_secs();
            if stall.look(now, TIMEOUT, ahead_bytes, delivered(at)) >= TIMEOUT {
                return Some(at);
            }
        }
        None
    }

    #[test]
    fn the_time_counts_in_which_a_streams_window_is_closed() {
        assert_eq!(given_up(1000, |_| 1000), Some(60), "all is there but a window");
        assert_eq!(given_up(1000, |at| 1000 + at * 1_000_000), Some(60), "other streams of the connection move");
        assert_eq!(given_up(1000, |_| 500), Some(60), "nothing arrives");
        // 4 MB in the kernel before it, on a slow path: three minutes and more in which nothing can be known of the window.
        let slow = given_up(4_000_000, |at| at * 20_000);
        assert!(slow.is_some_and(|at| (255..=260).contains(&at)), "{slow:?}");
    }
}
