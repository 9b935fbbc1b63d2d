//! A connection of either protocol, as the generator sees it.

use workload::{behaviour, outcome::End, sequence::Request};

use super::{group::Group, http1::Http1, http2::Http2, transport::Transport};
use crate::docroot::Content;

/// What a connection has to say of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// The request's number among those under way.
    pub(super) ask: usize,
    /// How far its response has come.
    pub(super) progress: Progress,
    /// What became of it.
    pub(super) what: What,
}

/// How far a response has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) answered: bool,
    pub(super) head_bytes: u32,
    pub(super) body_bytes: u64,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Nothing yet.
    UnderWay,
    /// The response is whole.
    Done,
    /// The server closed, or refused, before it looked at the request: it may be asked again.
    Unseen,
    /// It failed; with the reason, where the end does not say it.
    Failed(End, Option<String>),
}

/// How a connection stands after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing to do before the next event.
    Open,
    /// The turn was used up; there is more to read.
    More,
    /// Over, and every request on it reported.
    Closed,
}

/// Bytes read from a connection before others have their turn, and requests that fell due are sent: about 0.1 ms.
pub(super) const BYTES_A_TURN: usize = 1 << 18;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) group: usize,
    /// Its place among the group's free ones, if it is there.
    pub(super) free: Option<u64>,
    /// Requests that it may still be given.
    left: u32,
    protocol: Protocol,
}

#[derive(Debug)]
enum Protocol {
    Http1(Http1),
    Http2(Box<Http2>),
}

impl Connection {
    /// Over a transport that has just been opened for a group of this number.
    pub(super) fn new(number: usize, group: &Group, transport: Transport) -> Self {
        let protocol = match group.way.protocol {
            behaviour::Protocol::Http1 => Protocol::Http1(Http1::new(transport)),
            behaviour::Protocol::Http2 => Protocol::Http2(Box::new(Http2::new(transport))),
        };
        Self { group: number, free: None, left: group.requests_per_connection, protocol }
    }

    /// Whether it can take a request.
    pub(super) fn is_free(&self) -> bool {
        self.left > 0
            && match &self.protocol {
                Protocol::Http1(http1) => http1.is_idle(),
                Protocol::Http2(http2) => http2.has_room(),
            }
    }

    /// Gives it a request, which it sends in its next turn.
    pub(super) fn give(&mut self, ask: usize, request: &Request, group: &Group) {
        self.left -= 1;
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.give(ask, request, group.http1(request, self.left == 0)),
            Protocol::Http2(http2) => http2.give(ask, request, group.http2(request)),
        }
    }

    /// Does all that the socket allows, up to a bound, and reports of each request that something happened to.
    pub(super) fn turn(&mut self, buffer: &mut [u8], content: &Content, reports: &mut Vec<Report>) -> Standing {
        let (standing, is_idle) = match &mut self.protocol {
            Protocol::Http1(http1) => {
                let (standing, report) = http1.turn(buffer, content);
                reports.extend(report);
                (standing, http1.is_idle())
            }
            Protocol::Http2(http2) => (http2.turn(content, reports), http2.is_idle()),
        };
        if self.left == 0 && is_idle { Standing::Closed } else { standing }
    }

    /// Forgets a request whose client gave up.
    pub(super) fn cancel(&mut self, ask: usize) -> Standing {
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.cancel(ask),
            Protocol::Http2(http2) => http2.cancel(ask),
        }
    }
}
