//! One connection: connecting, sending a request, reading its response, resting.

use std::{io, io::ErrorKind, mem::MaybeUninit, net::SocketAddrV4, os::fd::OwnedFd};

use rustix::event::epoll;
use socket2::{Domain, SockAddr, Socket, Type};
use workload::{outcome::End, sequence::Request};

use super::response::Response;
use crate::docroot::Content;

/// A connection, its request under way if any. Registered for edges: [`Connection::advance`] goes on until the socket has
/// no more to give.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    connected: bool,
    /// Whether an earlier response came over it.
    used: bool,
    to_send: Vec<u8>,
    sent: usize,
    exchange: Option<Exchange>,
}

#[derive(Debug)]
struct Exchange {
    request: usize,
    response: Response,
}

/// What [`Connection::advance`] came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The socket has no more to give for now.
    Pending,
    /// The response is whole.
    Done {
        /// Whether the connection can be used again.
        keep: bool,
    },
    /// A used connection ended before the first byte of a response: the request may be sent again.
    ClosedBeforeAnswer,
    /// The request failed; or an idle connection ended.
    Failed(End),
}

/// How far a response has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) answered: bool,
    pub(super) head_bytes: u32,
    pub(super) body_bytes: u64,
}

impl Connection {
    /// Begins to connect, and watches the socket under `key`.
    pub(super) fn open(
        source: SocketAddrV4,
        server: SocketAddrV4,
        epoll: &OwnedFd,
        key: usize,
        index: usize,
        request: &Request,
        head: Vec<u8>,
    ) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None)?;
        // Only a port in TIME_WAIT is in the way of this, never another connection of ours.
        socket.set_reuse_address(true)?;
        socket.bind(&SockAddr::from(source))?;
        match socket.connect(&SockAddr::from(server)) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(epoll, &socket, epoll::EventData::new_u64(key as u64), flags)?;
        let exchange = Exchange { request: index, response: Response::to(request.file, request.size_bytes) };
        Ok(Self { socket, connected: false, used: false, to_send: head, sent: 0, exchange: Some(exchange) })
    }

    /// Gives an idle connection its next request. `false` if it has ended meanwhile.
    pub(super) fn reuse(&mut self, index: usize, request: &Request, head: Vec<u8>) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let open = matches!(self.socket.peek(&mut byte), Err(error) if error.kind() == ErrorKind::WouldBlock);
        if open {
            self.used = true;
            self.to_send = head;
            self.sent = 0;
            self.exchange = Some(Exchange { request: index, response: Response::to(request.file, request.size_bytes) });
        }
        open
    }

    /// Forgets the request that is done.
    pub(super) fn rest(&mut self) {
        self.exchange = None;
    }

    /// Number of the request under way.
    pub(super) fn request(&self) -> Option<usize> {
        self.exchange.as_ref().map(|exchange| exchange.request)
    }

    /// How far its response has come.
    pub(super) fn progress(&self) -> Progress {
        self.exchange.as_ref().map_or_else(Progress::default, |Exchange { response, .. }| Progress {
            answered: response.has_begun(),
            head_bytes: response.head_bytes(),
            body_bytes: response.body_bytes(),
        })
    }

    /// Does all that the socket allows.
    pub(super) fn advance(&mut self, buffer: &mut [u8], content: &Content) -> Step {
        if !self.connected {
            match self.socket.take_error() {
                Ok(None) => {}
                Ok(Some(error)) | Err(error) => return Step::Failed(end_of(&error)),
            }
        }
        match self.send() {
            Ok(()) => self.receive(buffer, content),
            Err(error) => self.broken(end_of(&error)),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while self.sent < self.to_send.len() {
            match self.socket.send(&self.to_send[self.sent..]) {
                Ok(n) => {
                    self.connected = true;
                    self.sent += n;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // Not connected yet: an event that was meant for another.
                Err(error) if error.kind() == ErrorKind::NotConnected && !self.connected => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], content: &Content) -> Step {
        loop {
            match io::Read::read(&mut &self.socket, buffer) {
                Ok(0) => return self.broken(End::Truncated),
                Ok(n) => {
                    let Some(Exchange { response, .. }) = &mut self.exchange else {
                        // Bytes that nobody asked for.
                        return Step::Failed(End::WrongBody);
                    };
                    match response.take(&buffer[..n], content) {
                        Ok(true) => return Step::Done { keep: response.keeps_connection() },
                        Ok(false) => {}
                        Err(end) => return Step::Failed(end),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Step::Pending,
                Err(error) if error.kind() == ErrorKind::NotConnected && !self.connected => return Step::Pending,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.broken(end_of(&error)),
            }
        }
    }

    /// The connection ended before the response did.
    fn broken(&self, end: End) -> Step {
        let answered = self.exchange.as_ref().is_none_or(|exchange| exchange.response.has_begun());
        if self.used && !answered { Step::ClosedBeforeAnswer } else { Step::Failed(end) }
    }
}

fn end_of(error: &io::Error) -> End {
    match error.kind() {
        ErrorKind::ConnectionRefused => End::Refused,
        ErrorKind::TimedOut => End::TimedOut,
        _ => End::Broken,
    }
}
