//! A connection with a client: takes its requests.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{
    Reason,
    server::{self, Handshake},
};
use http::{Request, Response};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    incoming::Incoming,
    interims::Interims,
    keep_alive::{Heard, KeepAlive, Listening},
    settings::Settings,
    stream::StreamTask,
};

/// A connection of HTTP/2; a future that is ready when the connection has ended.
///
/// `answer` is called with each request and the place for its interim responses, and returns a future of the response.
/// `spawn` has the task of each stream run; dropping it resets the stream.
pub struct Connection<S, A, E> {
    state: State<S>,
    answer: A,
    spawn: E,
    is_leaving: bool,
}

enum State<S> {
    Greeting { handshake: Handshake<Listening<S>, Bytes>, heard: Heard, settings: Settings },
    Serving { http: server::Connection<Listening<S>, Bytes>, keep_alive: KeepAlive },
}

/// Nothing in it is pinned.
impl<S, A, E> Unpin for Connection<S, A, E> {}

impl<S: AsyncRead + AsyncWrite + Unpin, A, E> Connection<S, A, E> {
    /// Begins with the client's preface.
    pub fn new(stream: S, settings: &Settings, answer: A, spawn: E) -> Self {
        let (stream, heard) = Listening::new(stream);
        let handshake = settings.builder.handshake(stream);
        let state = State::Greeting { handshake, heard, settings: settings.clone() };
        Self { state, answer, spawn, is_leaving: false }
    }

    /// Asks the client to leave: requests under way are answered, then the connection ends.
    pub fn graceful_shutdown(&mut self) {
        self.is_leaving = true;
        if let State::Serving { http, .. } = &mut self.state {
            http.graceful_shutdown();
        }
    }
}

impl<S, A, E, F, B> Future for Connection<S, A, E>
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Fn(Request<Incoming>, Interims) -> F,
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes>,
    E: Fn(StreamTask<F, B>),
{
    type Output = Result<(), h2::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let State::Greeting { handshake, heard, settings } = &mut this.state {
            let mut http = ready!(Pin::new(handshake).poll(cx))?;
            let pings = http.ping_pong().expect("it was not taken before");
            let keep_alive = KeepAlive::new(heard.clone(), pings, settings.quiet, settings.patience);
            if this.is_leaving {
                http.graceful_shutdown();
            }
            this.state = State::Serving { http, keep_alive };
        }
        let State::Serving { http, keep_alive } = &mut this.state else { unreachable!("it was greeted") };
        if keep_alive.poll_vanished(cx).is_ready() {
            // Told to the client if its connection takes it at once.
            http.abrupt_shutdown(Reason::NO_ERROR);
            let _ = http.poll_closed(cx);
            return Poll::Ready(Ok(()));
        }
        while let Some(accepted) = ready!(http.poll_accept(cx)) {
            let (request, respond) = accepted?;
            let (head, body) = request.into_parts();
            let body = Incoming::new(body, &head.headers);
            let interims = Interims::of(respond.stream_id().as_u32());
            let answer = (this.answer)(Request::from_parts(head, body), interims.clone());
            (this.spawn)(StreamTask::new(answer, respond, interims));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S, A, E> fmt::Debug for Connection<S, A, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("is_leaving", &self.is_leaving).finish_non_exhaustive()
    }
}
