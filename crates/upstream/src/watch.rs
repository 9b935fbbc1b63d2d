//! Watches an exchange for silence.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bodies::Timer;
use tokio::time::Instant;

use crate::{error::Wait, outgoing::RequestBodyState};

/// Watches an exchange for silence of the upstream and for its total time.
#[derive(Debug)]
pub(crate) struct Watch {
    timer: Timer,
    idle: Duration,
    end: Option<Instant>,
    /// When the upstream last sent or took bytes.
    heard: Instant,
    /// Bytes have moved since `heard` was set.
    hears: bool,
    /// The connection is multiplexed, so traffic on it is no sign of progress.
    shared: bool,
    /// The state of the request's body; `None`: the request has none.
    pub(crate) request: Option<Arc<RequestBodyState>>,
}

impl Watch {
    /// Starts the watch. Reusing a timer is cheaper than making a new one.
    pub(crate) fn new(timer: Option<Timer>, now: Instant, idle: Duration, end: Option<Instant>, shared: bool) -> Self {
        let first = earlier(now + idle, end);
        let timer = match timer {
            // A timer that is due too early is set again when it fires; it seldom fires at all.
            Some(timer) if timer.due() <= first => timer,
            Some(mut timer) => {
                timer.set(first);
                timer
            }
            None => Timer::at(first),
        };
        Self { timer, idle, end, heard: now, hears: false, shared, request: None }
    }

    /// Notes that the upstream sent or took bytes, which ends a silence.
    pub(crate) fn hears(&mut self) {
        self.hears = true;
    }

    /// Whether the exchange waits for the client rather than for the upstream.
    pub(crate) fn waits_for_client(&self) -> bool {
        self.request.as_ref().is_some_and(|body| body.waits_for_client())
    }

    /// The server has said whether it wants the body of the request.
    pub(crate) fn answered(&self, wants: bool) {
        if let Some(body) = &self.request {
            body.answered(wants);
        }
    }

    pub(crate) fn into_timer(self) -> Timer {
        self.timer
    }

    /// Ready when the upstream was silent for too long. Polled when the upstream has nothing ready.
    pub(crate) fn poll_silence(&mut self, cx: &mut Context<'_>, wait: Wait) -> Poll<Wait> {
        if self.hears {
            self.hears = false;
            self.heard = Instant::now();
        }
        loop {
            ready!(self.timer.poll(cx));
            let now = Instant::now();
            if self.end.is_some_and(|end| end <= now) {
                return Poll::Ready(Wait::End);
            }
            // While the client has to send, the upstream is not silent.
            if let Some(body) = &self.request {
                if body.waits_for_client() {
                    self.heard = now;
                }
                // The framing takes a piece whenever it polls the body, until its buffers are full.
                if self.shared {
                    self.heard = self.heard.max(body.last_taken());
                }
            }
            let next = self.heard + self.idle;
            if next <= now {
                return Poll::Ready(wait);
            }
            self.timer.set(earlier(next, self.end));
        }
    }
}

fn earlier(one: Instant, other: Option<Instant>) -> Instant {
    other.map_or(one, |other| other.min(one))
}
