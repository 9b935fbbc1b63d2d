//! Interim responses on their way to the client of one request.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use http::Response;
use parking_lot::Mutex;

/// The interim responses of one request (RFC 9110, section 15.2) that its stream has yet to send. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Interims {
    stream: u32,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Response<()>>,
    /// The task of the stream. Interim responses may come in another one.
    stream: Option<Waker>,
    is_over: bool,
}

impl Interims {
    /// Those of the request on the stream with this number.
    pub(crate) fn of(stream: u32) -> Self {
        Self { stream, state: Arc::default() }
    }

    /// The number of the stream.
    pub fn stream(&self) -> u32 {
        self.stream
    }

    /// Adds one. It is dropped if the request has its answer already. The caller bounds how many there are.
    pub fn push(&self, interim: Response<()>) {
        let stream = {
            let mut state = self.state.lock();
            if state.is_over {
                return;
            }
            state.waiting.push(interim);
            state.stream.take()
        };
        stream.into_iter().for_each(Waker::wake);
    }

    /// Takes those that wait; if there are none, the current task is woken for the next.
    pub(crate) fn poll_take(&self, cx: &Context<'_>) -> Poll<Vec<Response<()>>> {
        let mut state = self.state.lock();
        if !state.waiting.is_empty() {
            return Poll::Ready(mem::take(&mut state.waiting));
        }
        state.stream.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
        Poll::Pending
    }

    /// The request has its answer.
    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
    }
}
