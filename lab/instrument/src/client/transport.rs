//! The socket with or without TLS, from which HTTP reads and to which it writes.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::SocketAddrV4,
    os::fd::OwnedFd,
    sync::Arc,
};

use rustix::event::epoll;
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};
use socket2::{Domain, SockAddr, Socket, Type};
use workload::{behaviour::Protocol, outcome::End};

/// Settings of a connection.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) server: SocketAddrV4,
    pub(super) protocol: Protocol,
    pub(super) mss_bytes: Option<u16>,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

/// A connection's bytes. Calls return [`ErrorKind::WouldBlock`] when the socket has no more data now. It is
/// registered edge-triggered, so the owner must continue until that error, and then wait for the next event.
#[derive(Debug)]
pub(super) struct Transport {
    socket: Socket,
    /// Whether a byte has passed. Until then, errors of connecting are checked.
    proven: bool,
    protocol: Protocol,
    tls: Option<Box<ClientConnection>>,
}

impl Transport {
    /// Begins to connect, and watches the socket under `key`.
    pub(super) fn open(endpoint: &Endpoint, source: SocketAddrV4, epoll: &OwnedFd, key: usize) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None)?;
        // Only a port in TIME_WAIT can be in the way, never another connection of the lab.
        socket.set_reuse_address(true)?;
        // Nagle's algorithm would hold back a request behind the end of a handshake.
        socket.set_tcp_nodelay(true)?;
        if let Some(mss) = endpoint.mss_bytes {
            socket.set_tcp_mss(mss.into())?;
        }
        socket.bind(&SockAddr::from(source))?;
        match socket.connect(&SockAddr::from(endpoint.server)) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(epoll, &socket, epoll::EventData::new_u64(key as u64), flags)?;
        let tls = endpoint.tls.as_ref().map(|config| {
            // An address, so that no server name is sent: a server of the lab has one certificate.
            let name = ServerName::IpAddress((*endpoint.server.ip()).into());
            ClientConnection::new(Arc::clone(config), name).map(Box::new).map_err(io::Error::other)
        });
        Ok(Self { socket, proven: false, protocol: endpoint.protocol, tls: tls.transpose()? })
    }

    /// Reads received bytes; 0 at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return receive(&self.socket, &mut self.proven, buffer) };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The connection ended without a TLS alert: missing data shows in the lengths.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            // The reader reports the end, after all earlier data.
            tls.read_tls(&mut Ends { socket: &self.socket, proven: &mut self.proven })?;
            let in_handshake = tls.is_handshaking();
            let processed = tls.process_new_packets();
            // The handshake's next message, or the alert with the reason of a failure.
            let flushed = flush(tls, &self.socket, &mut self.proven);
            processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            if in_handshake && !tls.is_handshaking() {
                check_protocol(tls, self.protocol)?;
            }
            flushed.or_else(|error| if error.kind() == ErrorKind::WouldBlock { Ok(()) } else { Err(error) })?;
        }
    }

    /// Writes as much as fits. With TLS it waits in a buffer of 64 KiB until [`Transport::flush`] sends it.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => send(&self.socket, &mut self.proven, bytes),
            Some(tls) => match tls.writer().write(bytes)? {
                0 => Err(ErrorKind::WouldBlock.into()),
                written => Ok(written),
            },
        }
    }

    /// Sends buffered bytes until all are sent or the socket accepts no more.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(tls) => flush(tls, &self.socket, &mut self.proven),
        }
    }
}

/// The end of a request whose connection failed with this error, and the reason, where the end does not tell
/// it.
pub(super) fn end_of(error: &io::Error) -> (End, Option<String>) {
    match error.kind() {
        ErrorKind::ConnectionRefused => (End::Refused, None),
        ErrorKind::TimedOut => (End::TimedOut, None),
        ErrorKind::InvalidData => (End::Broken, Some(format!("TLS failed: {error}"))),
        _ => (End::Broken, None),
    }
}

fn flush(tls: &mut ClientConnection, socket: &Socket, proven: &mut bool) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut Ends { socket, proven })?;
    }
    Ok(())
}

/// HTTP/2 may only be used if the server chose it; rustls refuses a protocol that was not offered.
fn check_protocol(tls: &ClientConnection, protocol: Protocol) -> io::Result<()> {
    if protocol == Protocol::Http2 && tls.alpn_protocol() != Some(b"h2") {
        return Err(io::Error::new(ErrorKind::InvalidData, "the server did not choose HTTP/2 by ALPN"));
    }
    Ok(())
}

/// The socket's two directions, for TLS.
struct Ends<'a> {
    socket: &'a Socket,
    proven: &'a mut bool,
}

impl Read for Ends<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        receive(self.socket, self.proven, buffer)
    }
}

impl Write for Ends<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(self.socket, self.proven, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn receive(socket: &Socket, proven: &mut bool, buffer: &mut [u8]) -> io::Result<usize> {
    passed(socket, proven, |mut socket| socket.read(buffer))
}

fn send(socket: &Socket, proven: &mut bool, bytes: &[u8]) -> io::Result<usize> {
    passed(socket, proven, |socket| socket.send(bytes))
}

fn passed(socket: &Socket, proven: &mut bool, mut call: impl FnMut(&Socket) -> io::Result<usize>) -> io::Result<usize> {
    if !*proven && let Some(error) = socket.take_error()? {
        return Err(error);
    }
    loop {
        match call(socket) {
            Ok(n) => {
                *proven = true;
                return Ok(n);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Not connected yet: the event was for another reason.
            Err(error) if error.kind() == ErrorKind::NotConnected && !*proven => {
                return Err(ErrorKind::WouldBlock.into());
            }
            Err(error) => return Err(error),
        }
    }
}
