//! A connection of either protocol, as the generator sees it.

use workload::{behaviour, sequence::Request};

use super::{
    group::Group,
    http1::Http1,
    http2::Http2,
    report::{ConnectionState, Report},
    transport::Transport,
};
use crate::docroot::Content;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) group: usize,
    /// Its place among the group's free connections, if it is free.
    pub(super) free: Option<u64>,
    /// Number of requests that it may still get.
    left: u32,
    protocol: Protocol,
}

#[derive(Debug)]
enum Protocol {
    Http1(Http1),
    Http2(Box<Http2>),
}

impl Connection {
    /// A connection over a new transport for the group with this number.
    pub(super) fn new(number: usize, group: &Group, transport: Transport) -> Self {
        let protocol = match group.endpoint.protocol {
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

    /// Does all the work that the socket allows, up to a bound, and reports on each affected request.
    pub(super) fn turn(&mut self, buffer: &mut [u8], content: &Content, reports: &mut Vec<Report>) -> ConnectionState {
        let (state, is_idle) = match &mut self.protocol {
            Protocol::Http1(http1) => {
                let (state, report) = http1.turn(buffer, content);
                reports.extend(report);
                (state, http1.is_idle())
            }
            Protocol::Http2(http2) => (http2.turn(content, reports), http2.is_idle()),
        };
        if self.left == 0 && is_idle { ConnectionState::Closed } else { state }
    }

    /// Forgets a request whose client gave up.
    pub(super) fn cancel(&mut self, ask: usize) -> ConnectionState {
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.cancel(ask),
            Protocol::Http2(http2) => http2.cancel(ask),
        }
    }
}
