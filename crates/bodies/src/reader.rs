//! Bodies as streams of bytes, and the other way round: for other protocols within a request.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame};
use tokio::io::{AsyncRead, ReadBuf};

/// Most bytes of a frame.
const MOST_BYTES: usize = 16 * 1024;

/// Reads the bytes of a body.
#[derive(Debug)]
pub struct BodyReader<B> {
    body: B,
    rest: Bytes,
}

impl<B> BodyReader<B> {
    /// Reads a body from where it is.
    pub fn new(body: B) -> Self {
        Self { body, rest: Bytes::new() }
    }
}

impl<B> AsyncRead for BodyReader<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
{
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)).transpose().map_err(io::Error::other)? {
                Some(frame) => this.rest = frame.into_data().unwrap_or_default(),
                None => return Poll::Ready(Ok(())),
            }
        }
        let bytes = this.rest.len().min(buf.remaining());
        buf.put_slice(&this.rest[..bytes]);
        this.rest.advance(bytes);
        Poll::Ready(Ok(()))
    }
}

/// A body of all that a reader has.
#[derive(Debug)]
pub struct ReaderBody<R>(R);

impl<R> ReaderBody<R> {
    /// The body ends where the reader does.
    pub fn new(reader: R) -> Self {
        Self(reader)
    }
}

impl<R: AsyncRead + Unpin> Body for ReaderBody<R> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        // A reader that has nothing costs no memory.
        let mut bytes = [const { MaybeUninit::uninit() }; MOST_BYTES];
        let mut buf = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut buf))?;
        let read = buf.filled();
        Poll::Ready((!read.is_empty()).then(|| Ok(Frame::data(Bytes::copy_from_slice(read)))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn what_is_written_is_the_body_and_what_is_the_body_is_read() {
        let (mut writer, reader) = tokio::io::duplex(50_000);
        let written: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        let sent = written.clone();
        tokio::spawn(async move { writer.write_all(&sent).await.unwrap() });
        let mut read = Vec::new();
        BodyReader::new(ReaderBody::new(reader)).read_to_end(&mut read).await.unwrap();
        assert!(read == written);
        let mut body = ReaderBody::new(&written[..10]);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), written[..10]);
        assert!(body.frame().await.is_none());
    }
}
