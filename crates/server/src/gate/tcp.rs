//! A TCP socket as the transport of a connection.

use std::{
    fs::File,
    io,
    mem::MaybeUninit,
    net::IpAddr,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use kernel::socket::TcpState;
use scheduler::Path;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

use super::transport::{ClientSide, Measurements, Peer, Transport};
use crate::uplink::{ResponseRank, Teller};

/// A TCP socket. Reads and writes try at once, and look at the readiness only when that fails: the gate has looked
/// before.
#[derive(Debug)]
pub struct TcpTransport {
    stream: Arc<TcpStream>,
}

impl TcpTransport {
    /// Takes an accepted socket.
    pub fn new(stream: TcpStream) -> Self {
        Self { stream: Arc::new(stream) }
    }

    /// The first byte that the client sends, which stays to be read; `None`: the connection has ended.
    pub(super) fn poll_first_byte(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<u8>>> {
        let mut byte = [0];
        let read = ready!(self.stream.poll_peek(cx, &mut ReadBuf::new(&mut byte)))?;
        Poll::Ready(Ok((read > 0).then_some(byte[0])))
    }

    fn poll_try(
        &self,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match attempt(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(self.stream.poll_write_ready(cx))?,
                other => return Poll::Ready(other),
            }
        }
    }
}

impl Transport for TcpTransport {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_read_ready(cx)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_write_ready(cx)
    }

    fn is_empty(&self) -> bool {
        let peek = || SockRef::from(&*self.stream).peek(&mut [MaybeUninit::uninit()]);
        let peeked = self.stream.try_io(Interest::READABLE, peek);
        matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    fn set_unsent_limit(&self, bytes: Option<u32>) -> io::Result<()> {
        kernel::socket::set_notsent_lowat(&*self.stream, bytes.unwrap_or(u32::MAX))
    }

    fn tell(&self, teller: &Teller, words: &[ResponseRank]) -> io::Result<()> {
        teller.tell(&*self.stream, words)
    }

    #[cfg(target_os = "linux")]
    fn poll_send_file(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        ahead: &[u8],
        file: &File,
        part: Range<u64>,
    ) -> Poll<io::Result<usize>> {
        use rustix::{fs::sendfile, net};

        if !ahead.is_empty() {
            // The kernel puts the bytes of the file into the same segment.
            let send = || Ok(net::send(&*self.stream, ahead, net::SendFlags::MORE)?);
            let taken = ready!(self.poll_try(cx, |stream| stream.try_io(Interest::WRITABLE, send)))?;
            if taken < ahead.len() {
                return Poll::Ready(Ok(taken));
            }
        }
        let bytes = (part.end - part.start) as usize;
        let send = || Ok(sendfile(&*self.stream, file, Some(&mut part.start.clone()), bytes)?);
        match self.poll_try(cx, |stream| stream.try_io(Interest::WRITABLE, send)) {
            Poll::Ready(Ok(taken)) => Poll::Ready(Ok(ahead.len() + taken)),
            // An error of the file looks like one of the socket. The next write tells.
            Poll::Ready(Err(_)) => Poll::Ready(Ok(ahead.len())),
            Poll::Pending if ahead.is_empty() => Poll::Pending,
            Poll::Pending => Poll::Ready(Ok(ahead.len())),
        }
    }

    fn peer(&self) -> Arc<dyn Peer> {
        self.stream.clone()
    }
}

impl AsyncRead for TcpTransport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        loop {
            match self.stream.try_read_buf(buf) {
                Ok(read) => {
                    if 0 < read && read < room {
                        // The socket is empty now. Telling the runtime so saves the read that would find that out.
                        let empty = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                        let _ = self.stream.try_io(Interest::READABLE, empty);
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(self.stream.poll_read_ready(cx))?,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for TcpTransport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |stream| stream.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |stream| stream.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match SockRef::from(&*self.stream).shutdown(std::net::Shutdown::Write) {
            // The client has closed the connection already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            other => other,
        })
    }
}

impl Peer for TcpStream {
    fn address(&self) -> Option<IpAddr> {
        self.peer_addr().ok().map(|address| address.ip())
    }

    fn side(&self) -> ClientSide {
        match kernel::socket::tcp_info(self).map(|info| info.state) {
            Ok(TcpState::Established) | Err(_) => ClientSide::Open,
            Ok(TcpState::CloseWait) => ClientSide::Closed,
            Ok(_) => ClientSide::Gone,
        }
    }

    fn measure(&self) -> Option<Measurements> {
        let info = kernel::socket::tcp_info(self).ok()?;
        let path = (info.rtt_us > 0).then(|| Path {
            rtt_ns: u64::from(info.rtt_us) * 1000,
            window_segments: info.snd_cwnd_segments,
            mss_bytes: info.snd_mss_bytes,
            delivery_bytes_per_second: info.delivery_rate_bytes_per_second,
        });
        Some(Measurements {
            path,
            acked_bytes: info.bytes_acked,
            acked_segments: info.delivered_segments,
            bare_acks: info.segs_in.wrapping_sub(info.data_segs_in),
            last_ack_ms: info.last_ack_received_ms,
            last_sent_ms: info.last_data_sent_ms,
            unacked_segments: info.unacked_segments,
        })
    }

    fn segment_bytes(&self) -> Option<u32> {
        SockRef::from(self).tcp_mss().ok().filter(|&bytes| bytes > 0)
    }

    fn unacked_bytes(&self) -> Option<u64> {
        kernel::socket::unacked_bytes(self).ok()
    }

    fn log(&self, message: &'static str) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let tcp = kernel::socket::tcp_info(self).ok();
        tracing::debug!(
            client = ?self.peer_addr().ok(),
            state = ?tcp.map(|it| it.state),
            unacked_segments = tcp.map(|it| it.unacked_segments),
            notsent_bytes = tcp.map(|it| it.notsent_bytes),
            retransmitted_segments = tcp.map(|it| it.total_retrans_segments),
            rwnd_limited_us = tcp.map(|it| it.rwnd_limited_us),
            rtt_us = tcp.map(|it| it.rtt_us),
            acked_bytes = tcp.map(|it| it.bytes_acked),
            last_ack_ms = tcp.map(|it| it.last_ack_received_ms),
            "{message}"
        );
    }
}
