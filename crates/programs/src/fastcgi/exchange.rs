//! A request and its answer on a connection. The request is written and the answer is read at the same time.
//!
//! In uwsgi there are no records: the body of the request follows its head as it is, and the answer ends with the
//! connection.

use std::{
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bodies::{RequestBody, Timer};
use bytes::{Buf as _, Bytes, BytesMut};
use http_body::Body as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWrite as _},
    time::Instant,
};

use super::{
    pool::{Pool, Unanswered},
    records::{self, Decoder, Event, Verdict},
};
use crate::{
    lines::Lines,
    output::{Incomplete, Output},
    slot::ProgramSlot,
    socket::Socket,
};

/// Bytes read from a connection at once.
const READ_BYTES: usize = 32 << 10;

/// How a connection is used and kept.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) pool: Arc<Pool>,
    pub(crate) keep_connections: usize,
    pub(crate) keep_for: Duration,
    /// Longest silence while something is waited for.
    pub(crate) idle_timeout: Duration,
}

/// How a connection was lost before its request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The application had not read all of the request.
    Unread,
    /// It may have read it.
    Closed,
}

/// A request under way. Dropping it closes the connection, which ends the request.
#[derive(Debug)]
pub(crate) struct Exchange {
    terms: Terms,
    /// `None`: the exchange has ended.
    socket: Option<Socket>,
    /// Bytes of the request to be written.
    out: BytesMut,
    /// The rest of the request's body; `None`: all of it is written, or in `out`.
    body: Option<RequestBody>,
    /// `None`: the application speaks uwsgi.
    decoder: Option<Decoder>,
    /// Bytes read that are not decoded yet.
    input: BytesMut,
    /// Bytes of the answer.
    read: BytesMut,
    /// Standard error, for the log.
    errors: Lines,
    script: Arc<str>,
    /// A new connection, until its answer begins.
    unanswered: Option<Unanswered>,
    output_ended: bool,
    has_ended: bool,
    /// Whether anything was read.
    has_answered: bool,
    /// Whether the application does not take the rest of the request.
    is_cut: bool,
    loss: Option<Loss>,
    timer: Timer,
    /// Whether the timer counts: the reader waits for the application, not the application for the reader.
    is_waiting: bool,
    /// Whether the client has yet to send more of the request, which has time limits of its own.
    lacks_body: bool,
    slot: Option<ProgramSlot>,
}

impl Exchange {
    /// Begins a request on a connection. `unanswered`: the connection is new.
    pub(crate) fn new(
        terms: &Terms,
        (socket, unanswered): (Socket, Option<Unanswered>),
        (begin, body): (&Bytes, RequestBody),
        errors: Lines,
        script: Arc<str>,
    ) -> Self {
        Self {
            terms: terms.clone(),
            socket: Some(socket),
            out: BytesMut::from(&begin[..]),
            body: Some(body),
            decoder: Some(Decoder::default()),
            input: BytesMut::new(),
            read: BytesMut::new(),
            errors,
            script,
            unanswered,
            output_ended: false,
            has_ended: false,
            has_answered: false,
            is_cut: false,
            loss: None,
            timer: Timer::at(Instant::now() + terms.idle_timeout),
            is_waiting: false,
            lacks_body: false,
            slot: None,
        }
    }

    /// Begins a request to an application that speaks uwsgi, on a new connection.
    pub(crate) fn plain(
        terms: &Terms,
        socket: Socket,
        (begin, body): (&Bytes, RequestBody),
        errors: Lines,
        name: Arc<str>,
    ) -> Self {
        Self { decoder: None, ..Self::new(terms, (socket, None), (begin, body), errors, name) }
    }

    /// How the connection was lost, if that was before the first byte of an answer.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.loss
    }

    /// Holds a slot until the exchange has ended.
    pub(crate) fn hold(&mut self, slot: ProgramSlot) {
        self.slot = Some(slot);
    }

    /// Writes as much of the request as the application takes. Returns whether it took anything.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, Incomplete> {
        let Some(socket) = &mut self.socket else { return Ok(false) };
        self.lacks_body = false;
        let mut took = false;
        loop {
            while !self.out.is_empty() {
                match Pin::new(&mut *socket).poll_write(cx, &self.out) {
                    Poll::Pending => return Ok(took),
                    Poll::Ready(Ok(written @ 1..)) => {
                        self.out.advance(written);
                        took = true;
                    }
                    // It may leave the body unread and answer all the same.
                    Poll::Ready(_) => {
                        self.out.clear();
                        self.body = None;
                        self.is_cut = true;
                        return Ok(took);
                    }
                }
            }
            let Some(body) = &mut self.body else { return Ok(took) };
            match Pin::new(body).poll_frame(cx) {
                Poll::Pending => {
                    self.lacks_body = true;
                    return Ok(took);
                }
                Poll::Ready(Some(Ok(frame))) => {
                    // Neither protocol has trailers.
                    if let Ok(data) = frame.into_data() {
                        match self.decoder {
                            Some(_) => records::body(&mut self.out, &data),
                            None => self.out.extend_from_slice(&data),
                        }
                    }
                }
                Poll::Ready(Some(Err(error))) => return Err(Incomplete::Request(error)),
                Poll::Ready(None) => {
                    if self.decoder.is_some() {
                        records::end_of_body(&mut self.out);
                    }
                    self.body = None;
                }
            }
        }
    }

    /// Takes the events of the bytes that were read.
    fn decode(&mut self) -> Result<(), Incomplete> {
        let Some(decoder) = &mut self.decoder else {
            self.read.unsplit(self.input.split());
            return Ok(());
        };
        while let Some(event) = decoder.next(&mut self.input).map_err(Incomplete::Broken)? {
            let script = &self.script;
            let log = |line: &str| tracing::warn!(%script, "{line}");
            match event {
                Event::Output(_) | Event::EndOfOutput if self.output_ended => {
                    return Err(Incomplete::Broken("it sends more behind the end of its answer".to_owned()));
                }
                Event::Output(bytes) => self.read.unsplit(bytes),
                Event::EndOfOutput => self.output_ended = true,
                Event::Errors(bytes) => self.errors.take(Instant::now(), &bytes, log),
                Event::End { status, verdict } => {
                    if status != 0 {
                        tracing::debug!(%script, status, "a script has failed");
                    }
                    self.errors.finish(Instant::now(), log);
                    match verdict {
                        Verdict::Complete => {}
                        Verdict::Overloaded => return Err(Incomplete::Busy),
                        verdict => return Err(Incomplete::Broken(format!("it refuses the request: {verdict:?}"))),
                    }
                    self.has_ended = true;
                    // The padding of the last record belongs to it, and nothing else may follow.
                    let more = decoder.next(&mut self.input).map_err(Incomplete::Broken)?;
                    if more.is_some() || !self.input.is_empty() {
                        self.socket = None;
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The connection is closed, or lost.
    fn closed(&mut self, error: Option<io::Error>) -> Result<bool, Incomplete> {
        self.socket = None;
        if self.output_ended || self.decoder.is_none() && self.has_answered && error.is_none() {
            self.has_ended = true;
            return Ok(false);
        }
        if !self.has_answered {
            // The kernel resets a connection that is closed with unread bytes.
            let is_reset = error.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset);
            self.loss = Some(if is_reset || self.is_cut { Loss::Unread } else { Loss::Closed });
        }
        Err(Incomplete::Broken(match error {
            Some(error) => format!("the connection was lost before its end: {error}"),
            None => "the application closed the connection before its end".to_owned(),
        }))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Incomplete>> {
        loop {
            if self.has_ended {
                return Poll::Ready(Ok(false));
            }
            let took = self.write(cx)?;
            if took || !self.is_waiting {
                self.timer.set(Instant::now() + self.terms.idle_timeout);
                self.is_waiting = true;
            }
            let Some(socket) = &mut self.socket else { return Poll::Ready(self.closed(None)) };
            self.input.reserve(READ_BYTES);
            let read = pin!(socket.read_buf(&mut self.input)).poll(cx);
            match read {
                Poll::Pending => {
                    ready!(self.timer.poll(cx));
                    if !self.lacks_body {
                        return Poll::Ready(Err(Incomplete::TimedOut));
                    }
                    self.timer.set(Instant::now() + self.terms.idle_timeout);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(self.closed(Some(error))),
                Poll::Ready(Ok(0)) => return Poll::Ready(self.closed(None)),
                Poll::Ready(Ok(_)) => {
                    self.unanswered = None;
                    self.has_answered = true;
                    self.is_waiting = false;
                    self.decode()?;
                    if !self.read.is_empty() {
                        return Poll::Ready(Ok(true));
                    }
                }
            }
        }
    }
}

impl Output for Exchange {
    fn unread(&mut self) -> &mut BytesMut {
        &mut self.read
    }

    fn has_status_line(&self) -> bool {
        self.decoder.is_none()
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Incomplete>> {
        let polled = self.poll(cx);
        if polled.is_ready() {
            self.is_waiting = false;
        }
        polled
    }

    /// Keeps the connection, if it is ready for another request.
    fn finish(&mut self) {
        let is_whole = self.has_ended && self.out.is_empty() && self.body.is_none() && !self.is_cut;
        let Some(socket) = self.socket.take().filter(|_| is_whole && self.terms.keep_connections > 0) else { return };
        if self.decoder.as_ref().is_some_and(Decoder::is_between_records)
            && let Ok(socket) = socket.into_kept()
        {
            self.terms.pool.keep(socket, self.terms.keep_connections, self.terms.keep_for);
        }
    }

    fn discard(mut self) {
        if self.has_ended {
            return self.finish();
        }
        tokio::spawn(async move {
            let most = self.terms.idle_timeout;
            let rest = async {
                loop {
                    self.read.clear();
                    match std::future::poll_fn(|cx| self.poll_more(cx)).await {
                        Ok(true) => {}
                        Ok(false) => return self.finish(),
                        Err(_) => return,
                    }
                }
            };
            let _ = tokio::time::timeout(most, rest).await;
        });
    }
}
