//! A request on its way out.

use std::{
    io::{self, IoSlice, Write as _},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use http_body::Body;
use tokio::io::AsyncWrite;

use crate::upstream::head;

/// A connection that waits keeps a buffer of at most this size for heads.
const KEPT_BYTES: usize = 4 * 1024;

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum Coding {
    /// There is none.
    None,
    /// So many bytes.
    Length(u64),
    Chunked,
}

/// What of a request is to be written, in this order: what is made here from `at` on, data of the body, what stands behind that.
#[derive(Debug)]
pub(super) struct Sending<B> {
    made: Vec<u8>,
    at: usize,
    data: Bytes,
    behind: &'static [u8],
    /// The rest of the body.
    body: Option<B>,
    /// Bytes of it that are missing, of a known length.
    coding: Coding,
    state: State,
    /// Something of the body was read.
    begun: bool,
    /// Something was written.
    written: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is something to be written.
    Writing,
    /// All was written, but not flushed.
    Flushing,
    Done,
    /// The server takes no more.
    Failed,
}

impl<B> Default for Sending<B> {
    fn default() -> Self {
        Self {
            made: Vec::new(),
            at: 0,
            data: Bytes::new(),
            behind: b"",
            body: None,
            coding: Coding::None,
            state: State::Done,
            begun: false,
            written: false,
        }
    }
}

impl<B: Body<Data = Bytes, Error = io::Error> + Default + Unpin> Sending<B> {
    pub(super) fn begin(&mut self, write: impl FnOnce(&mut Vec<u8>), body: B, coding: Coding) {
        self.made.clear();
        write(&mut self.made);
        self.at = 0;
        self.body = (coding != Coding::None).then_some(body);
        self.coding = coding;
        self.state = State::Writing;
        self.begun = false;
        self.written = false;
    }

    /// Whether the whole request is gone.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The body, where nothing was read of it or written of the request, and nothing can be any more.
    pub(super) fn unsent(&mut self) -> Option<B> {
        if self.begun || self.written {
            return None;
        }
        self.state = State::Failed;
        Some(self.body.take().unwrap_or_default())
    }

    /// Writes as much as goes; whether that was something. An error is the body's.
    pub(super) fn send(&mut self, transport: &mut (impl AsyncWrite + Unpin), cx: &mut Context<'_>) -> io::Result<bool> {
        let mut moved = false;
        while self.state == State::Writing {
            // The first of a body goes with its head.
            let more = self.take_data(cx)?;
            while self.state == State::Writing && self.has_remaining() {
                match self.poll_write(transport, cx) {
                    Poll::Pending => return Ok(moved),
                    Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => self.state = State::Failed,
                    Poll::Ready(Ok(len)) => {
                        self.advance(len);
                        self.written = true;
                        moved = true;
                    }
                }
            }
            if self.state == State::Writing && self.body.is_none() {
                self.state = State::Flushing;
            } else if more.is_pending() {
                // What waits here for a client's body is not to wait in TLS.
                let _ = Pin::new(&mut *transport).poll_flush(cx);
                return Ok(moved);
            }
        }
        if self.state == State::Flushing {
            match Pin::new(transport).poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.end(State::Done),
                Poll::Ready(Err(_)) => self.end(State::Failed),
            }
        } else if self.state == State::Failed && (self.begun || self.written) {
            self.end(State::Failed);
        }
        Ok(moved)
    }

    fn end(&mut self, state: State) {
        self.state = state;
        self.body = None;
        self.data = Bytes::new();
        self.behind = b"";
        if self.made.capacity() > KEPT_BYTES {
            self.made = Vec::new();
        }
    }

    /// Takes the next of the body, once what was taken before is written. Pending: there is none yet.
    fn take_data(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        while self.data.is_empty() && self.behind.is_empty() {
            let Some(body) = &mut self.body else { break };
            let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else { return Ok(Poll::Pending) };
            self.begun = true;
            let ended = frame.is_none();
            if self.at == self.made.len() {
                self.made.clear();
                self.at = 0;
            }
            match frame.transpose()?.map(http_body::Frame::into_data) {
                Some(Ok(mut data)) => match &mut self.coding {
                    Coding::None => {}
                    Coding::Length(left) => {
                        data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                        *left -= data.len() as u64;
                        self.data = data;
                    }
                    Coding::Chunked if data.is_empty() => {}
                    Coding::Chunked => {
                        write!(self.made, "{:X}\r\n", data.len())?;
                        self.data = data;
                        self.behind = b"\r\n";
                        if body.is_end_stream() {
                            self.behind = b"\r\n0\r\n\r\n";
                            self.body = None;
                        }
                    }
                },
                Some(Err(trailers)) if self.coding == Coding::Chunked => {
                    self.made.extend_from_slice(b"0\r\n");
                    for (name, value) in &trailers.into_trailers().unwrap_or_default() {
                        head::write_field(name, value, &mut self.made);
                    }
                    self.made.extend_from_slice(b"\r\n");
                    self.body = None;
                }
                Some(Err(_)) => {}
                None if self.coding == Coding::Chunked => {
                    self.made.extend_from_slice(b"0\r\n\r\n");
                    self.body = None;
                }
                None => {}
            }
            match self.coding {
                Coding::Length(0) => self.body = None,
                Coding::Length(_) if ended => {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "its body is shorter than its length"));
                }
                _ => {}
            }
        }
        Ok(Poll::Ready(()))
    }

    fn has_remaining(&self) -> bool {
        self.at < self.made.len() || !self.data.is_empty() || !self.behind.is_empty()
    }

    fn poll_write(&self, transport: &mut (impl AsyncWrite + Unpin), cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let made = &self.made[self.at..];
        let transport = Pin::new(transport);
        if self.data.is_empty() && self.behind.is_empty() {
            return transport.poll_write(cx, made);
        }
        if transport.is_write_vectored() {
            let slices = [IoSlice::new(made), IoSlice::new(&self.data), IoSlice::new(self.behind)];
            return transport.poll_write_vectored(cx, &slices);
        }
        let first = [made, &self.data, self.behind].into_iter().find(|bytes| !bytes.is_empty());
        transport.poll_write(cx, first.unwrap_or_default())
    }

    fn advance(&mut self, mut len: usize) {
        let made = len.min(self.made.len() - self.at);
        self.at += made;
        len -= made;
        let data = len.min(self.data.len());
        self.data.advance(data);
        len -= data;
        self.behind = &self.behind[len..];
    }
}
