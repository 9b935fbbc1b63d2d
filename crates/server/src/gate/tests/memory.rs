//! A transport in memory, for tests of the gate without sockets.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, Ipv4Addr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use parking_lot::Mutex;
use scheduler::Path;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    gate::transport::{ClientSide, Measurements, Peer, Transport},
    uplink::{ResponseRank, Teller},
};

/// The server's end of a connection.
#[derive(Debug)]
pub struct MemoryTransport(Arc<Connection>);

/// The client's end of a connection.
#[derive(Debug)]
pub struct MemoryClient(Arc<Connection>);

/// Makes both ends of a connection. It holds up to `room_bytes` in each direction.
pub fn connection(room_bytes: usize) -> (MemoryTransport, MemoryClient) {
    let pipe = || Mutex::new(Pipe { room_bytes, ..Pipe::default() });
    let connection = Arc::new(Connection { to_client: pipe(), to_server: pipe(), settings: Mutex::default() });
    (MemoryTransport(connection.clone()), MemoryClient(connection))
}

#[derive(Debug)]
struct Connection {
    to_client: Mutex<Pipe>,
    to_server: Mutex<Pipe>,
    settings: Mutex<Settings>,
}

/// The settings that the gate has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub unsent_limit_bytes: Option<u32>,
}

/// One direction.
#[derive(Debug, Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    room_bytes: usize,
    taken_bytes: u64,
    is_closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn poll_read_ready(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !self.bytes.is_empty() || self.is_closed {
            return Poll::Ready(());
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_write_ready(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.bytes.len() < self.room_bytes || self.is_closed {
            return Poll::Ready(());
        }
        self.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_read(&mut self, cx: &Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<()> {
        ready!(self.poll_read_ready(cx));
        let len = self.bytes.len().min(buf.remaining());
        self.bytes.drain(..len).for_each(|byte| buf.put_slice(&[byte]));
        self.taken_bytes += len as u64;
        self.writer.take().into_iter().for_each(Waker::wake);
        Poll::Ready(())
    }

    fn poll_write(&mut self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_write_ready(cx));
        if self.is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let len = bytes.len().min(self.room_bytes - self.bytes.len());
        self.bytes.extend(&bytes[..len]);
        self.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(len))
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

impl Transport for MemoryTransport {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.to_server.lock().poll_read_ready(cx).map(Ok)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.to_client.lock().poll_write_ready(cx).map(Ok)
    }

    fn is_empty(&self) -> bool {
        let pipe = self.0.to_server.lock();
        pipe.bytes.is_empty() && !pipe.is_closed
    }

    fn set_unsent_limit(&self, bytes: Option<u32>) -> io::Result<()> {
        self.0.settings.lock().unsent_limit_bytes = bytes;
        Ok(())
    }

    fn tell(&self, _: &Teller, _: &[ResponseRank]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn peer(&self) -> Arc<dyn Peer> {
        self.0.clone()
    }
}

impl Peer for Connection {
    fn address(&self) -> Option<IpAddr> {
        Some(Ipv4Addr::new(192, 0, 2, 1).into())
    }

    fn side(&self) -> ClientSide {
        match (self.to_server.lock().is_closed, self.to_client.lock().is_closed) {
            (_, true) => ClientSide::Gone,
            (true, false) => ClientSide::Closed,
            (false, false) => ClientSide::Open,
        }
    }

    fn measure(&self) -> Option<Measurements> {
        let acked_bytes = self.to_client.lock().taken_bytes;
        Some(Measurements {
            path: Some(Path::UNKNOWN),
            acked_bytes,
            acked_segments: 0,
            bare_acks: 0,
            last_ack_ms: 0,
            last_sent_ms: 0,
            unacked_segments: 0,
        })
    }

    fn segment_bytes(&self) -> Option<u32> {
        Some(Path::UNKNOWN.mss_bytes)
    }

    fn unacked_bytes(&self) -> Option<u64> {
        Some(self.to_client.lock().bytes.len() as u64)
    }

    fn log(&self, _: &'static str) {}
}

impl AsyncRead for MemoryTransport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.to_server.lock().poll_read(cx, buf).map(Ok)
    }
}

impl AsyncWrite for MemoryTransport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.to_client.lock().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.to_client.lock().close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for MemoryTransport {
    fn drop(&mut self) {
        self.0.to_client.lock().close();
        self.0.to_server.lock().close();
    }
}

impl MemoryClient {
    pub fn settings(&self) -> Settings {
        *self.0.settings.lock()
    }
}

impl AsyncRead for MemoryClient {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.to_client.lock().poll_read(cx, buf).map(Ok)
    }
}

impl AsyncWrite for MemoryClient {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.to_server.lock().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.to_server.lock().close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for MemoryClient {
    fn drop(&mut self) {
        self.0.to_client.lock().close();
        self.0.to_server.lock().close();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn ends_in_different_tasks_wake_each_other() {
        let (mut server, mut client) = connection(7);
        let echo = tokio::spawn(async move {
            let mut seen = Vec::new();
            let mut piece = [0; 5];
            loop {
                let len = server.read(&mut piece).await.unwrap();
                if len == 0 {
                    return seen;
                }
                seen.extend_from_slice(&piece[..len]);
                server.write_all(&piece[..len]).await.unwrap();
            }
        });
        let sent: Vec<u8> = (0..100).collect();
        let (mut reader, mut writer) = tokio::io::split(client);
        let writing = tokio::spawn({
            let sent = sent.clone();
            async move {
                writer.write_all(&sent).await.unwrap();
                writer.shutdown().await.unwrap();
                writer
            }
        });
        let mut back = Vec::new();
        reader.read_to_end(&mut back).await.unwrap();
        assert_eq!((back, echo.await.unwrap()), (sent.clone(), sent));
        client = reader.unsplit(writing.await.unwrap());
        assert_eq!(client.0.side(), ClientSide::Gone);
    }
}
