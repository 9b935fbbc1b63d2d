//! A connection to an application.

use std::{
    io::{self, Read as _},
    net::{self, SocketAddr},
    os,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    time::sleep,
};

/// Time until a Unix socket whose backlog is full is asked again. The kernel does not tell when it has room.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// A connection that carries a request.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection that carries none. It belongs to no runtime, so a thread can use it that another thread has opened.
#[derive(Debug)]
pub(crate) enum KeptSocket {
    Tcp(net::TcpStream),
    Unix(os::unix::net::UnixStream),
}

impl Socket {
    /// Connects to an address.
    pub(crate) async fn of_address(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Connects to a Unix socket. One whose backlog is full is asked again.
    pub(crate) async fn of_path(path: &Path) -> io::Result<Self> {
        loop {
            match UnixStream::connect(path).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(ASK_AGAIN_AFTER).await,
                connected => return connected.map(Self::Unix),
            }
        }
    }

    pub(crate) fn into_kept(self) -> io::Result<KeptSocket> {
        match self {
            Self::Tcp(stream) => stream.into_std().map(KeptSocket::Tcp),
            Self::Unix(stream) => stream.into_std().map(KeptSocket::Unix),
        }
    }
}

impl KeptSocket {
    /// The address of the application, if it has one.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Whether the application has neither closed it nor sent anything. Never blocks.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let read = match self {
            Self::Tcp(stream) => stream.read(&mut [0]),
            Self::Unix(stream) => stream.read(&mut [0]),
        };
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    pub(crate) fn into_socket(self) -> io::Result<Socket> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Socket::Tcp),
            Self::Unix(stream) => UnixStream::from_std(stream).map(Socket::Unix),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
