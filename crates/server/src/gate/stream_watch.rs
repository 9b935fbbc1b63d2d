//! HTTP/2: resets streams whose client takes nothing.
//!
//! A client may close the window of a stream while its connection goes on, so a full transport is no sign of that. The
//! task of a stream polls its body again only when the framing has sent the bytes before; while the window is closed,
//! it does not. So the body notes when it gives bytes to the framing and when it is polled again ([`StreamProgress`]).
//! The task of the stream ([`spawn_stream`]) watches that, because it alone runs while the body waits for nothing.
//!
//! Time counts only while the window is what the stream waits for: all bytes that the connection had to pass on before
//! have arrived, or nothing arrives at all. So a stream that shares a slow path with many others is not given up.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{task::futures::TaskLocalFuture, time::Instant};

use super::{flow::Flow, response::ResponseId};
use bodies::Timer;

tokio::task_local! {
    /// The progress of the stream that the current task serves.
    static STREAM: StreamProgress;
}

/// How often a stream is looked at within the write timeout.
const LOOKS: u32 = 16;

/// Runs a stream of an HTTP/2 connection.
pub fn spawn_stream(stream: impl Future<Output = ()> + Send + 'static) {
    let progress = StreamProgress::default();
    let stream = STREAM.scope(progress.clone(), stream);
    tokio::spawn(WatchedStream { stream, progress, stall: None, timer: None });
}

/// Whether the framing takes what the body of a stream gives to it; shared by the stream and its body.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamProgress(Arc<Mutex<Progress>>);

#[derive(Debug, Default)]
struct Progress {
    /// The response of the stream, once there is one.
    response: Option<(Flow, ResponseId)>,
    /// How often bytes were given to the framing.
    given: u64,
    /// Bytes that the connection had to pass on before the last bytes given; `None`: the body was polled again since.
    ahead_bytes: Option<u64>,
}

impl StreamProgress {
    /// That of the stream which the current task serves; `None` where no task watches it.
    pub(super) fn of_task(flow: &Flow, response: ResponseId) -> Option<Self> {
        let progress = STREAM.try_with(Self::clone).ok()?;
        progress.0.lock().response = Some((flow.clone(), response));
        Some(progress)
    }

    /// The body gave bytes to the framing, behind `ahead_bytes` that the connection had to pass on before.
    pub(super) fn handle_given(&self, ahead_bytes: u64) {
        let mut progress = self.0.lock();
        progress.given += 1;
        progress.ahead_bytes = Some(ahead_bytes);
    }

    /// The framing asks the body for more.
    pub(super) fn handle_asked(&self) {
        self.0.lock().ahead_bytes = None;
    }
}

pin_project_lite::pin_project! {
    /// The task of a stream. It ends the stream when its client takes nothing.
    struct WatchedStream<F> {
        #[pin]
        stream: TaskLocalFuture<StreamProgress, F>,
        progress: StreamProgress,
        stall: Option<WindowStall>,
        timer: Option<Timer>,
    }
}

/// Bytes for which the client opens no window.
#[derive(Debug)]
struct WindowStall {
    /// [`Progress::given`] when they were given.
    given: u64,
    /// When the stream began to wait for the window.
    since: Instant,
    next_look: Instant,
    /// Bytes of the connection that had arrived at the last look.
    delivered_bytes: Option<u64>,
    is_slow: bool,
}

impl<F: Future<Output = ()>> Future for WatchedStream<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.stream.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let (flow, response, given, ahead_bytes) = {
            let progress = this.progress.0.lock();
            let (Some((flow, response)), Some(ahead_bytes)) = (&progress.response, progress.ahead_bytes) else {
                *this.stall = None;
                return Poll::Pending;
            };
            (flow.clone(), *response, progress.given, ahead_bytes)
        };
        let Some(timeout) = flow.write_timeout() else { return Poll::Pending };
        let mut now = Instant::now();
        if this.stall.as_ref().is_some_and(|stall| stall.given != given) {
            *this.stall = None;
        }
        let stall = this.stall.get_or_insert_with(|| WindowStall {
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
                flow.handle_too_slow(Some(response));
                // The stream is reset when its future is dropped.
                return Poll::Ready(());
            }
            if waited >= timeout / 4 && !std::mem::replace(&mut stall.is_slow, true) {
                flow.handle_slow(Some(response));
            }
        }
    }
}

impl WindowStall {
    /// For how long the stream has waited for the client's window.
    fn look(&mut self, now: Instant, timeout: Duration, ahead_bytes: u64, delivered_bytes: u64) -> Duration {
        let before = self.delivered_bytes.replace(delivered_bytes);
        let moves = before.is_some_and(|before| before != delivered_bytes);
        if delivered_bytes < ahead_bytes && moves {
            // The connection is still busy with the bytes before.
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

    /// After how many seconds a stream is given up. `delivered` tells how many bytes of its connection have arrived by
    /// a second.
    fn given_up(ahead_bytes: u64, delivered: impl Fn(u64) -> u64) -> Option<u64> {
        let start = Instant::now();
        let mut stall = WindowStall {
            given: 1,
            since: start,
            next_look: start + TIMEOUT / LOOKS,
            delivered_bytes: None,
            is_slow: false,
        };
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
        // 4 MB are in the kernel before it, on a slow path: for more than three minutes nothing is known of the window.
        let slow = given_up(4_000_000, |at| at * 20_000);
        assert!(slow.is_some_and(|at| (255..=260).contains(&at)), "{slow:?}");
    }
}
