//! HTTP/1.1: one request at a time on a connection.

use std::io::{self, ErrorKind};

use workload::{outcome::End, sequence::Request};

use super::{
    report::{BYTES_A_TURN, ConnectionState, Progress, Report, RequestState},
    response::Response,
    transport::{Transport, end_of},
};
use crate::docroot::Content;

/// A connection, with its request under way if any.
#[derive(Debug)]
pub(super) struct Http1 {
    transport: Transport,
    /// Whether an earlier response came over it.
    used: bool,
    to_send: Vec<u8>,
    sent: usize,
    exchange: Option<Exchange>,
}

#[derive(Debug)]
struct Exchange {
    ask: usize,
    response: Response,
}

impl Http1 {
    /// A connection over an unused transport.
    pub(super) fn new(transport: Transport) -> Self {
        Self { transport, used: false, to_send: Vec::new(), sent: 0, exchange: None }
    }

    /// Whether no request is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.exchange.is_none()
    }

    /// Takes a request while idle.
    pub(super) fn give(&mut self, ask: usize, request: &Request, head: Vec<u8>) {
        debug_assert!(self.is_idle(), "one request at a time");
        self.to_send = head;
        self.sent = 0;
        self.exchange = Some(Exchange { ask, response: Response::to(request.file, request.size_bytes) });
    }

    /// Does all the work that the socket allows, up to a bound.
    pub(super) fn turn(&mut self, buffer: &mut [u8], content: &Content) -> (ConnectionState, Option<Report>) {
        let what = match self.send().and_then(|()| self.receive(buffer, content)) {
            Ok(Step::Pending) => return (ConnectionState::Open, self.report(RequestState::UnderWay)),
            Ok(Step::More) => return (ConnectionState::More, self.report(RequestState::UnderWay)),
            Ok(Step::Done { keep }) => {
                let report = self.report(RequestState::Done);
                self.exchange = None;
                self.used = true;
                return (if keep { ConnectionState::Open } else { ConnectionState::Closed }, report);
            }
            Ok(Step::Wrong(end)) => RequestState::Failed(end, None),
            Ok(Step::Ended) => self.broken(End::Truncated, None),
            Err(error) => {
                let (end, why) = end_of(&error);
                self.broken(end, why)
            }
        };
        (ConnectionState::Closed, self.report(what))
    }

    /// The rest of the response would have to be read first, so the connection is dropped with the request.
    pub(super) fn cancel(&mut self, ask: usize) -> ConnectionState {
        debug_assert_eq!(self.exchange.as_ref().map(|exchange| exchange.ask), Some(ask));
        ConnectionState::Closed
    }

    /// Sends the rest of the request, or as much as the socket accepts.
    fn send(&mut self) -> io::Result<()> {
        while self.sent < self.to_send.len() {
            match self.transport.write(&self.to_send[self.sent..]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                written => self.sent += written?,
            }
        }
        self.transport.flush().or_else(|error| if error.kind() == ErrorKind::WouldBlock { Ok(()) } else { Err(error) })
    }

    fn receive(&mut self, buffer: &mut [u8], content: &Content) -> io::Result<Step> {
        let mut read_bytes = 0;
        while read_bytes < BYTES_A_TURN {
            let n = match self.transport.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Step::Pending),
                read => read?,
            };
            if n == 0 {
                return Ok(Step::Ended);
            }
            read_bytes += n;
            let Some(Exchange { response, .. }) = &mut self.exchange else {
                // Bytes without a request.
                return Ok(Step::Wrong(End::WrongBody));
            };
            match response.take(&buffer[..n], content) {
                Ok(true) => return Ok(Step::Done { keep: response.keeps_connection() }),
                Ok(false) => {}
                Err(end) => return Ok(Step::Wrong(end)),
            }
        }
        Ok(Step::More)
    }

    /// The connection ended before the response.
    fn broken(&self, end: End, why: Option<String>) -> RequestState {
        let answered = self.exchange.as_ref().is_none_or(|exchange| exchange.response.has_begun());
        if self.used && !answered { RequestState::Unseen } else { RequestState::Failed(end, why) }
    }

    fn report(&self, what: RequestState) -> Option<Report> {
        self.exchange.as_ref().map(|Exchange { ask, response }| Report {
            ask: *ask,
            progress: Progress {
                answered: response.has_begun(),
                head_bytes: response.head_bytes(),
                body_bytes: response.body_bytes(),
            },
            what,
        })
    }
}

/// The result of reading.
enum Step {
    /// The socket has no more data now.
    Pending,
    /// The turn is used up.
    More,
    /// The response is complete.
    Done {
        /// Whether the server keeps the connection.
        keep: bool,
    },
    /// The server closed.
    Ended,
    /// The response is wrong.
    Wrong(End),
}
