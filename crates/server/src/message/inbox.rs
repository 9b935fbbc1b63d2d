//! Bytes of a connection that were read, and not handed on yet.

use std::{
    cell::RefCell,
    future::Future as _,
    io,
    ops::Deref,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

/// Of a body, read at once to begin with, and at most where there is more than that.
const LEAST_READ_BYTES: usize = 8 * 1024;
pub(crate) const MOST_READ_BYTES: usize = 128 * 1024;
/// Of heads, read at once at most.
const HEADS_READ_BYTES: usize = 16 * 1024;

thread_local! {
    /// A worker's, for all of its connections: those that wait have no buffer of their own.
    static HEADS: RefCell<Box<[u8]>> = RefCell::new(vec![0; HEADS_READ_BYTES].into());
}

/// Bytes of a connection that were read, and not handed on yet.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: BytesMut,
    /// So many bytes are read at once.
    read_bytes: usize,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { bytes: BytesMut::new(), read_bytes: LEAST_READ_BYTES }
    }
}

impl Deref for Inbox {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Inbox {
    /// What comes now may be short.
    pub(crate) fn restart(&mut self) {
        self.read_bytes = LEAST_READ_BYTES;
    }

    /// Reads more. How much at once follows from how much comes.
    pub(crate) fn poll_read(
        &mut self,
        transport: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.bytes.reserve(self.read_bytes);
        let room = self.bytes.capacity() - self.bytes.len();
        let read = ready!(pin!(transport.read_buf(&mut self.bytes)).poll(cx));
        match read {
            Ok(bytes) if bytes == room => self.read_bytes = (2 * self.read_bytes).min(MOST_READ_BYTES),
            Ok(bytes) if bytes < self.read_bytes / 4 => self.read_bytes = (self.read_bytes / 2).max(LEAST_READ_BYTES),
            _ => {}
        }
        Poll::Ready(read)
    }

    /// Reads more, as much as heads may be; as long as nothing comes, no memory is used for it.
    pub(crate) fn poll_read_heads(
        &mut self,
        transport: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        HEADS.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            if Pin::new(transport).poll_read(cx, &mut buffer)?.is_pending() {
                if self.bytes.is_empty() {
                    self.bytes = BytesMut::new();
                }
                return Poll::Pending;
            }
            self.bytes.extend_from_slice(buffer.filled());
            Poll::Ready(Ok(buffer.filled().len()))
        })
    }

    /// Takes a head, whose parts will be kept together.
    pub(crate) fn take_head(&mut self, len: usize) -> Bytes {
        if len == self.bytes.len() {
            return std::mem::take(&mut self.bytes).freeze();
        }
        self.bytes.split_to(len).freeze()
    }

    /// Takes data. What is small is copied, because whoever keeps it would keep all that was read with it.
    pub(crate) fn take(&mut self, len: usize) -> Bytes {
        if len >= self.read_bytes / 8 {
            return self.bytes.split_to(len).freeze();
        }
        let data = Bytes::copy_from_slice(&self.bytes[..len]);
        self.skip(len);
        data
    }

    /// Throws away.
    pub(crate) fn skip(&mut self, len: usize) {
        self.bytes.advance(len);
    }

    /// All of it.
    pub(crate) fn into_bytes(self) -> Bytes {
        self.bytes.freeze()
    }
}
