//! Interim responses (RFC 9110, section 15.2) on their way to an HTTP/1.1 client.

use std::task::{Context, Poll, Waker};

use http::Version;
use http1::{write_field, write_status_line};
use parking_lot::Mutex;

use crate::upstream::Interim;

/// Interim responses that a connection's client has yet to get. There cannot be much: see [`crate::upstream`].
#[derive(Debug, Default)]
pub(crate) struct Interims(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Requests that have their answer.
    answered: u64,
    bytes: Vec<u8>,
    /// Wakes the connection's task. An interim response may come in another task.
    connection: Option<Waker>,
}

impl Interims {
    /// A name for the request that is answered next.
    pub(crate) fn next(&self) -> u64 {
        self.0.lock().answered
    }

    /// One of a request's; from its answer on, it is too late.
    pub(crate) fn push(&self, request: u64, interim: &Interim) {
        let connection = {
            let mut state = self.0.lock();
            if state.answered != request {
                return;
            }
            write(&mut state.bytes, interim);
            state.connection.take()
        };
        connection.into_iter().for_each(Waker::wake);
    }

    /// Takes what is to be written now; if there is nothing, the current task is woken for the next.
    pub(crate) fn poll_take(&self, cx: &Context<'_>) -> Poll<Vec<u8>> {
        let mut state = self.0.lock();
        if !state.bytes.is_empty() {
            return Poll::Ready(std::mem::take(&mut state.bytes));
        }
        state.connection.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
        Poll::Pending
    }

    /// The request has its answer. Returns the interim responses that are still to be written before it.
    pub(crate) fn answered(&self) -> Vec<u8> {
        let mut state = self.0.lock();
        state.answered += 1;
        std::mem::take(&mut state.bytes)
    }
}

fn write(to: &mut Vec<u8>, interim: &Interim) {
    write_status_line(Version::HTTP_11, interim.status(), to);
    for (name, value) in interim.headers() {
        write_field(name, value, to);
    }
    to.extend_from_slice(b"\r\n");
}
