//! Where HTTP/1 messages begin and end in a stream of bytes. No I/O, no clock.

use super::head::{BodyKind, HeadLimits, HeadScan, Refusal, Step};
use crate::chunked::{Chunks, Malformed, Next};

/// Follows the messages of a connection.
///
/// The order of calls: whenever bytes arrive, [`Framer::accept`] with all bytes that were not released yet; it tells how
/// many of them may go on to the HTTP parser. A head goes on only when it is complete and in order; a body at once.
#[derive(Debug)]
pub(crate) struct Framer {
    limits: HeadLimits,
    state: State,
    heads: u64,
}

#[derive(Debug)]
enum State {
    Head(HeadScan),
    Length(u64),
    Chunked(Chunks),
    /// After a head that asks for an upgrade: nothing goes on until it is answered.
    Upgrade,
    Closed,
}

/// What [`Framer::accept`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Bytes from the front that may go on.
    pub(crate) bytes: usize,
    /// What stands behind them, if it cannot go on.
    pub(crate) fault: Option<Fault>,
}

/// Why no byte more of this connection will be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A head was refused: it can be answered.
    Head(Refusal),
    /// A body's framing is broken; its head was released before.
    Body,
}

impl Framer {
    pub(crate) fn new(limits: HeadLimits) -> Self {
        Self { limits, state: State::Head(HeadScan::default()), heads: 0 }
    }

    /// Looks at the bytes that were not released yet.
    pub(crate) fn accept(&mut self, bytes: &[u8]) -> Accepted {
        let mut at = 0;
        let fault = loop {
            let rest = &bytes[at..];
            match &mut self.state {
                State::Head(scan) => match scan.advance(rest, &self.limits) {
                    Step::Partial => break None,
                    Step::Refused(refusal) => break Some(Fault::Head(refusal)),
                    Step::Complete(head) => {
                        at += head.len;
                        self.heads += 1;
                        self.state = match head.body {
                            BodyKind::None if head.upgrade => State::Upgrade,
                            BodyKind::None => State::Head(HeadScan::default()),
                            BodyKind::Length(length) => State::Length(length),
                            BodyKind::Chunked => State::Chunked(Chunks::of_client()),
                        };
                        if at == bytes.len() {
                            break None;
                        }
                    }
                },
                State::Length(left) => {
                    let taken = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                    at += taken;
                    *left -= taken as u64;
                    if *left > 0 {
                        break None;
                    }
                    self.state = State::Head(HeadScan::default());
                }
                State::Chunked(chunks) => match chunks.next(rest) {
                    Ok((framing, Next::Data(data))) => {
                        chunks.take(data);
                        at += framing + data;
                    }
                    Ok((framing, Next::More)) => {
                        at += framing;
                        break None;
                    }
                    Ok((framing, Next::End)) => {
                        at += framing;
                        self.state = State::Head(HeadScan::default());
                    }
                    Err(Malformed) => break Some(Fault::Body),
                },
                State::Upgrade => break None,
                State::Closed => return Accepted { bytes: 0, fault: None },
            }
        };
        if fault.is_some() {
            self.state = State::Closed;
        }
        Accepted { bytes: at, fault }
    }

    /// Whether bytes are held back until the requests so far are answered.
    pub(crate) fn holds(&self) -> bool {
        matches!(self.state, State::Upgrade)
    }

    /// The upgrade was not made: the next request follows.
    pub(crate) fn go_on(&mut self) {
        if self.holds() {
            self.state = State::Head(HeadScan::default());
        }
    }

    /// Heads released so far.
    pub(crate) fn heads(&self) -> u64 {
        self.heads
    }

    /// What the connection waits for, given the bytes that were not released.
    pub(crate) fn waits_for(&self, held: &[u8]) -> WaitsFor {
        match &self.state {
            State::Head(scan) if scan.begun(held) => WaitsFor::RestOfHead,
            State::Head(_) if self.heads == 0 => WaitsFor::FirstHead,
            State::Head(_) | State::Upgrade | State::Closed => WaitsFor::NextHead,
            State::Length(_) | State::Chunked(_) => WaitsFor::Body,
        }
    }

    /// Gives up on the head that is under way.
    pub(crate) fn give_up(&mut self, held: &[u8], status: http::StatusCode) -> Option<Refusal> {
        let State::Head(scan) = &self.state else { return None };
        let refusal = scan.begun(held).then(|| scan.refuse(held, status));
        self.state = State::Closed;
        refusal
    }
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Its first request.
    FirstHead,
    /// A further request.
    NextHead,
    /// The rest of a head that has begun.
    RestOfHead,
    /// More of a body.
    Body,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { head_bytes: 500, fields: 10, body_bytes: 1 << 20 };
    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

    /// Feeds the text in pieces of `piece` bytes: the bytes released in all, and the fault.
    fn feed(text: &str, piece: usize) -> (usize, Option<Fault>) {
        let mut framer = Framer::new(LIMITS);
        let mut held = Vec::new();
        let mut released = 0;
        for bytes in text.as_bytes().chunks(piece) {
            held.extend_from_slice(bytes);
            let accepted = framer.accept(&held);
            released += accepted.bytes;
            held.drain(..accepted.bytes);
            if accepted.fault.is_some() {
                return (released, accepted.fault);
            }
        }
        (released, None)
    }

    #[test]
    fn messages_are_followed_across_bodies_in_any_cuts() {
        let text = format!(
            "{GET}POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /{CHUNKED}3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\n{GET}"
        );
        for piece in 1..text.len() {
            assert_eq!(feed(&text, piece), (text.len(), None), "pieces of {piece}");
        }
    }

    #[test]
    fn a_head_is_held_until_it_is_complete() {
        let mut framer = Framer::new(LIMITS);
        assert_eq!(framer.waits_for(b""), WaitsFor::FirstHead);
        assert_eq!(framer.accept(b"GET / HT").bytes, 0);
        assert_eq!(framer.waits_for(b"GET / HT"), WaitsFor::RestOfHead);
        assert_eq!(framer.accept(GET.as_bytes()).bytes, GET.len());
        assert_eq!(framer.waits_for(b""), WaitsFor::NextHead);
        assert_eq!(framer.accept(CHUNKED.as_bytes()).bytes, CHUNKED.len());
        assert_eq!(framer.waits_for(b""), WaitsFor::Body);
    }

    #[test]
    fn a_refused_head_ends_the_connection_after_those_before_it() {
        let text = format!("{GET}GET / HTTP/1.1\r\n\r\n{GET}");
        let (released, fault) = feed(&text, text.len());
        assert_eq!(released, GET.len());
        assert!(matches!(fault, Some(Fault::Head(refusal)) if refusal.status == 400));
    }

    #[test]
    fn nothing_goes_on_after_an_upgrade_is_asked_for_until_it_is_answered() {
        let ask = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n";
        let mut framer = Framer::new(LIMITS);
        let text = format!("{ask}\u{1}not HTTP");
        assert_eq!(framer.accept(text.as_bytes()), Accepted { bytes: ask.len(), fault: None });
        assert!(framer.holds());
        assert_eq!(framer.accept(GET.as_bytes()), Accepted { bytes: 0, fault: None });
        framer.go_on();
        assert_eq!(framer.accept(GET.as_bytes()), Accepted { bytes: GET.len(), fault: None });
        assert!(!framer.holds());
    }

    #[test]
    fn broken_chunks_end_the_connection() {
        for body in ["\r\n", "1\n", "1\r\nab\r\n", "1\r\na\n", "0\r\n\n"] {
            assert!(matches!(feed(&format!("{CHUNKED}{body}"), 1), (_, Some(Fault::Body))), "{body:?}");
        }
    }

    #[test]
    fn giving_up_refuses_only_a_head_that_has_begun() {
        let mut framer = Framer::new(LIMITS);
        assert_eq!(framer.give_up(b"", http::StatusCode::REQUEST_TIMEOUT), None);
        let mut framer = Framer::new(LIMITS);
        framer.accept(b"HEAD /");
        let refusal = framer.give_up(b"HEAD /", http::StatusCode::REQUEST_TIMEOUT).expect("a head has begun");
        assert!(refusal.head && refusal.status == 408);
        assert_eq!(framer.accept(GET.as_bytes()).bytes, 0);
    }
}
