//! Bytes read from a connection and not yet handed on.

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

/// Bytes of a body read at once: at first, and at most once more arrives than that.
const LEAST_READ_BYTES: usize = 8 * 1024;
const MOST_READ_BYTES: usize = 128 * 1024;
/// Most bytes of heads read at once.
const HEADS_READ_BYTES: usize = 16 * 1024;

thread_local! {
    /// One buffer for all connections of a worker thread, so that waiting connections need none.
    static HEADS: RefCell<Box<[u8]>> = RefCell::new(vec![0; HEADS_READ_BYTES].into());
}

/// Bytes read from a connection and not yet handed on.
#[derive(Debug)]
pub struct Inbox {
    bytes: BytesMut,
    /// The size of the next read.
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
    /// Shrinks the reads again, because the next message may be short.
    pub fn restart(&mut self) {
        self.read_bytes = LEAST_READ_BYTES;
    }

    /// Reads more. The size of reads adapts to the amount that arrives.
    pub fn poll_read(
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

    /// Reads heads. A connection uses no memory for this until bytes arrive.
    pub fn poll_read_heads(
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
    pub fn take_head(&mut self, len: usize) -> Bytes {
        if len == self.bytes.len() {
            return std::mem::take(&mut self.bytes).freeze();
        }
        self.bytes.split_to(len).freeze()
    }

    /// Takes data. Small data is copied, because a slice would keep the whole buffer allocated.
    pub fn take(&mut self, len: usize) -> Bytes {
        if len >= self.read_bytes / 8 {
            return self.bytes.split_to(len).freeze();
        }
        let data = Bytes::copy_from_slice(&self.bytes[..len]);
        self.skip(len);
        data
    }

    /// Discards bytes.
    pub fn skip(&mut self, len: usize) {
        self.bytes.advance(len);
    }

    /// All remaining bytes.
    pub fn into_bytes(self) -> Bytes {
        self.bytes.freeze()
    }
}
