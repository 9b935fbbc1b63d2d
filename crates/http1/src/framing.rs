//! Writes heads: the framing of a response, and its fields.

use http::{
    HeaderMap, StatusCode, Version,
    header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING},
    response::Parts,
};

use crate::fields::{ConnectionOptions, content_length, write_field, write_length, write_status_line};

/// How a body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// There is no body.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked {
        /// Whether the receiver accepts trailers.
        trailers: bool,
    },
    /// All bytes until the connection is closed.
    ToEnd,
}

/// The parts of a request on which the framing of its response depends.
#[derive(Clone, Copy, Debug)]
pub struct RequestTraits {
    /// The version of the request.
    pub version: Version,
    /// Whether the method is HEAD.
    pub is_head: bool,
    /// Whether a further request may come on the connection.
    pub keeps: bool,
    /// Whether the client accepts trailers.
    pub takes_trailers: bool,
}

/// How a response is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// How the body is sent.
    pub coding: Coding,
    /// The announced length: of the body that is sent, or of the one that HEAD asks about.
    length: Option<u64>,
    /// Whether another response may come after it.
    pub keeps: bool,
}

impl Framing {
    /// Chooses the framing of a response (RFC 9112, section 6.3). `exact` is the length of its body in bytes,
    /// if known.
    pub fn of(asked: &RequestTraits, response: &Parts, exact: Option<u64>) -> Self {
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

    /// Writes the head of the response. `write_date` writes the field `Date`; it is called if the response
    /// has none.
    pub fn write(
        &self,
        asked: &RequestTraits,
        response: &Parts,
        write_date: impl FnOnce(&mut Vec<u8>),
        out: &mut Vec<u8>,
    ) {
        write_status_line(asked.version, response.status, out);
        let (mut has_connection, mut has_date) = (false, false);
        for (name, value) in &response.headers {
            // The framing is written below, from the body itself.
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

/// The length that the response announces for its body.
fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|length| content_length(length.as_bytes()))
}

fn says_close(headers: &HeaderMap) -> bool {
    // Most responses have no such field; this finds that out sooner than a look-up by hash.
    if !headers.keys().any(|name| *name == CONNECTION) {
        return false;
    }
    let mut options = ConnectionOptions::default();
    for value in headers.get_all(CONNECTION) {
        options.read(value.as_bytes());
    }
    options.close
}
