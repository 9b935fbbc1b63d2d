//! A message being sent to an upstream or to a client.

use std::{
    cell::RefCell,
    io::{self, IoSlice, Write as _},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use http_body::Body;
use http1::{Coding, write_field};
use tokio::io::AsyncWrite;

/// Capacity of a buffer for a head and the start of a body. An idle connection has no buffer.
const ROOM_BYTES: usize = 4 * 1024;
/// Most buffers kept for the next messages of a worker thread.
const MOST_ROOMS: usize = 64;

thread_local! {
    static ROOMS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A message being sent. It is written in this order: `made` from `at` on, data of the body, and the framing
/// behind that.
#[derive(Debug)]
pub struct Sending<B> {
    made: Vec<u8>,
    at: usize,
    data: Bytes,
    behind: &'static [u8],
    /// The rest of the body.
    body: Option<B>,
    /// The framing of the body, with the missing bytes of a known length.
    coding: Coding,
    state: State,
    /// Part of the body was read.
    begun: bool,
    /// Part of the message was written.
    written: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Something remains to be written.
    Writing,
    /// All was written, but not flushed.
    Flushing,
    Done,
    /// The peer accepts no more.
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

impl<B: Body<Data = Bytes, Error = io::Error> + Unpin> Sending<B> {
    /// Begins a message. `write` writes its head.
    pub fn begin(&mut self, write: impl FnOnce(&mut Vec<u8>), body: B, coding: Coding) {
        self.made = ROOMS.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(ROOM_BYTES));
        write(&mut self.made);
        self.at = 0;
        self.body = (coding != Coding::None).then_some(body);
        self.coding = coding;
        self.state = State::Writing;
        self.begun = false;
        self.written = false;
    }

    /// Whether the whole message was sent.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the peer accepts no more of the message.
    pub fn has_failed(&self) -> bool {
        self.state == State::Failed
    }

    /// The body, if none of it was read and none of the message written. Nothing can be sent afterwards.
    pub fn unsent(&mut self) -> Option<B>
    where
        B: Default,
    {
        if self.begun || self.written {
            return None;
        }
        self.state = State::Failed;
        Some(self.body.take().unwrap_or_default())
    }

    /// Writes as much as possible; returns whether any bytes were written. An error is the body's.
    pub fn send(&mut self, transport: &mut (impl AsyncWrite + Unpin), cx: &mut Context<'_>) -> io::Result<bool> {
        self.send_with(transport, cx, |_, _, _, _, _| None)
    }

    /// As [`Sending::send`], with another way for parts of the body. `direct` may write the next bytes of the body to
    /// the transport by itself, behind the bytes that it is given. It is told how many bytes the body has left.
    /// `None`: the next bytes are taken from the body.
    pub fn send_with<T: AsyncWrite + Unpin>(
        &mut self,
        transport: &mut T,
        cx: &mut Context<'_>,
        mut direct: impl FnMut(&mut T, &mut Context<'_>, &[u8], &mut B, u64) -> Option<Poll<io::Result<usize>>>,
    ) -> io::Result<bool> {
        let mut moved = false;
        while self.state == State::Writing {
            if let (true, Some(body), Coding::Length(left @ 1..)) =
                (self.data.is_empty() && self.behind.is_empty(), &mut self.body, self.coding)
                && let Some(sent) = direct(transport, cx, &self.made[self.at..], body, left)
            {
                match sent {
                    Poll::Pending => return Ok(moved),
                    Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => self.state = State::Failed,
                    Poll::Ready(Ok(len)) => {
                        self.advance_direct(len);
                        moved = true;
                    }
                }
                continue;
            }
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
                // While this waits for the client's body, earlier data must not stay in TLS buffers.
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
        self.at = 0;
        self.data = Bytes::new();
        self.behind = b"";
        let mut room = std::mem::take(&mut self.made);
        if room.capacity() == ROOM_BYTES {
            room.clear();
            ROOMS.with_borrow_mut(|rooms| {
                if rooms.len() < MOST_ROOMS {
                    rooms.push(room)
                }
            });
        }
    }

    /// Takes the next data of the body after the earlier data is written. Pending: none has arrived yet.
    fn take_data(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        // The first data is sent with the head; the next is taken when all before it is written.
        while self.data.is_empty() && self.behind.is_empty() && (!self.begun || self.at == self.made.len()) {
            let Some(body) = &mut self.body else { break };
            let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else { return Ok(Poll::Pending) };
            self.begun = true;
            if self.at == self.made.len() {
                self.made.clear();
                self.at = 0;
            }
            let Some(frame) = frame.transpose()? else {
                match self.coding {
                    Coding::Length(1..) => {
                        return Err(io::Error::new(
                            io::ErrorKind::UnexpectedEof,
                            "its body is shorter than its length",
                        ));
                    }
                    Coding::Chunked { .. } => self.made.extend_from_slice(b"0\r\n\r\n"),
                    Coding::None | Coding::Length(0) | Coding::ToEnd => {}
                }
                self.body = None;
                break;
            };
            match (frame.into_data(), &mut self.coding) {
                (Ok(mut data), Coding::Length(left)) => {
                    data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= data.len() as u64;
                    self.data = data;
                    if *left == 0 {
                        self.body = None;
                    }
                }
                (Ok(data), Coding::Chunked { .. }) if !data.is_empty() => {
                    write!(self.made, "{:X}\r\n", data.len())?;
                    self.data = data;
                    self.behind = b"\r\n";
                    if body.is_end_stream() {
                        self.behind = b"\r\n0\r\n\r\n";
                        self.body = None;
                    }
                }
                (Ok(data), Coding::ToEnd) => self.data = data,
                (Err(frame), &mut Coding::Chunked { trailers }) => {
                    self.made.extend_from_slice(b"0\r\n");
                    let fields = frame.into_trailers().unwrap_or_default();
                    for (name, value) in fields.iter().filter(|_| trailers) {
                        write_field(name, value, &mut self.made);
                    }
                    self.made.extend_from_slice(b"\r\n");
                    self.body = None;
                }
                _ => {}
            }
        }
        let room = self.made.capacity() - self.made.len();
        if self.at == 0 && !self.made.is_empty() && self.data.len() + self.behind.len() <= room {
            // Small data is joined into one plain write.
            self.made.extend_from_slice(&std::mem::take(&mut self.data));
            self.made.extend_from_slice(std::mem::take(&mut self.behind));
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

    fn advance_direct(&mut self, len: usize) {
        let made = len.min(self.made.len() - self.at);
        self.at += made;
        self.written = true;
        self.begun |= len > made;
        if let Coding::Length(left) = &mut self.coding {
            *left = left.saturating_sub((len - made) as u64);
            if *left == 0 {
                self.body = None;
            }
        }
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
