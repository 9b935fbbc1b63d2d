//! Heads of responses, as a client gets them.

use std::{
    cell::RefCell,
    time::{Duration, SystemTime},
};

use http::{
    HeaderMap, StatusCode, Version,
    header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING},
    response::Parts,
};
use rustix::time::{ClockId, clock_gettime};

use crate::message::{Options, content_length, outgoing::Coding, write_field, write_length, write_status_line};

/// What of a request its response depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) version: Version,
    pub(super) is_head: bool,
    /// A further request may come.
    pub(super) keeps: bool,
    pub(super) takes_trailers: bool,
}

/// How a response is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Framing {
    pub(super) coding: Coding,
    /// What is said of the length: of a body that is sent, or of one that would be.
    length: Option<u64>,
    /// Whether another response may come after it.
    pub(super) keeps: bool,
}

impl Framing {
    /// Of a response to what was asked; `exact` is the length of its body, where that is known (RFC 9112, section 6.3).
    pub(super) fn of(asked: &Asked, response: &Parts, exact: Option<u64>) -> Self {
        let status = response.status;
        let keeps = asked.keeps && status != StatusCode::SWITCHING_PROTOCOLS && !says_close(&response.headers);
        if status.is_informational() || status == StatusCode::NO_CONTENT {
            return Self { coding: Coding::None, length: None, keeps };
        }
        if asked.is_head || status == StatusCode::NOT_MODIFIED {
            return Self { coding: Coding::None, length: announced(&response.headers), keeps };
        }
        match exact.or_else(|| announced(&response.headers)) {
            Some(0) => Self { coding: Coding::None, length: Some(0), keeps },
            Some(length) => Self { coding: Coding::Length(length), length: Some(length), keeps },
            None if asked.version == Version::HTTP_10 => Self { coding: Coding::ToEnd, length: None, keeps: false },
            None => Self { coding: Coding::Chunked { trailers: asked.takes_trailers }, length: None, keeps },
        }
    }

    /// Writes the head of the response.
    pub(super) fn write(&self, asked: &Asked, response: &Parts, out: &mut Vec<u8>) {
        write_status_line(asked.version, response.status, out);
        let (mut has_connection, mut has_date) = (false, false);
        for (name, value) in &response.headers {
            // What frames the message is ours to say.
            if *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING {
                continue;
            }
            has_connection |= *name == CONNECTION;
            has_date |= *name == DATE;
            write_field(name, value, out);
        }
        if let Some(length) = self.length {
            write_length(length, out);
        }
        if let Coding::Chunked { .. } = self.coding {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        match (asked.version, self.keeps) {
            _ if has_connection => {}
            (Version::HTTP_10, true) => out.extend_from_slice(b"connection: keep-alive\r\n"),
            (Version::HTTP_10, false) | (_, true) => {}
            (_, false) => out.extend_from_slice(b"connection: close\r\n"),
        }
        if !has_date {
            write_date(out);
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The length that the fields of a response say its body has.
fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|length| content_length(length.as_bytes()))
}

fn says_close(headers: &HeaderMap) -> bool {
    // Mostly it is not there, which this sees sooner.
    if !headers.keys().any(|name| *name == CONNECTION) {
        return false;
    }
    let mut options = Options::default();
    for value in headers.get_all(CONNECTION) {
        options.read(value.as_bytes());
    }
    options.close
}

/// The time of day (RFC 9110, section 6.6.1), which is written out once in a second.
fn write_date(out: &mut Vec<u8>) {
    thread_local! {
        static WRITTEN: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
    }
    // A clock that costs next to nothing, and is right to some milliseconds.
    let second = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
    WRITTEN.with_borrow_mut(|(of, date)| {
        if *of != second {
            *of = second;
            let since_epoch = Duration::from_secs(u64::try_from(second).unwrap_or_default());
            *date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since_epoch);
        }
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(date.as_bytes());
        out.extend_from_slice(b"\r\n");
    });
}
