//! Heads of responses, as a server sends them.

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Response, StatusCode, Version,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use memchr::memchr;

use crate::fields::{ConnectionOptions, content_length, has_control_byte, value_in};

/// Interim responses that a client accepts before one response. A server that reports progress every 20
/// seconds (102, as WebDAV does) for half an hour stays below this.
pub const MOST_INTERIMS: usize = 100;
/// Fields in one head; hyper accepts as many.
const MOST_FIELDS: usize = 100;

/// The head of a response.
#[derive(Debug)]
pub struct ResponseHead {
    /// Version, status and fields.
    pub response: Response<()>,
    /// How the body is framed.
    pub body: ResponseBody,
    /// Whether the connection may stay open after this response, by the head alone.
    pub keeps: bool,
}

/// How the body of a response is framed (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseBody {
    /// There is no body.
    None,
    /// So many bytes, at least one.
    Length(u64),
    /// Chunks.
    Chunked,
    /// All bytes until the server closes the connection.
    ToEnd,
}

/// Why the head of a response cannot be read. The server is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseError {
    /// It is not HTTP/1; the text says what is wrong.
    Malformed(&'static str),
    /// It has too many fields.
    TooManyFields,
}

/// Whether these bytes may be the beginning of a response.
pub fn may_begin(bytes: &[u8]) -> bool {
    // Half of an empty line, or the start of the version.
    bytes == b"\r" || bytes.iter().zip(b"HTTP/1.").all(|(byte, expected)| byte == expected)
}

/// Whether these bytes begin an interim response (RFC 9110, section 15.2).
pub fn is_interim(bytes: &[u8]) -> bool {
    matches!(bytes, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', b'1', ..])
}

impl ResponseHead {
    /// Reads a complete head. `fields_about` is the expected number of fields; `bodiless`: the request was
    /// HEAD.
    ///
    /// # Errors
    /// The head is malformed, or has too many fields.
    pub fn parse(head: &Bytes, fields_about: usize, bodiless: bool) -> Result<Self, ResponseError> {
        let mut lines = Lines(head);
        let (version, status) = status_line(lines.next().unwrap_or_default())?;
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.version_mut() = version;
        let headers = response.headers_mut();
        headers.reserve(fields_about.min(MOST_FIELDS));
        let (mut length, mut coding, mut options, mut fields) = (None, None, ConnectionOptions::default(), 0);
        for line in lines.take_while(|line| !line.is_empty()) {
            fields += 1;
            if fields > MOST_FIELDS {
                return Err(ResponseError::TooManyFields);
            }
            let colon = memchr(b':', line).ok_or_else(|| malformed("a line of its head is no field"))?;
            let (name, value) = (&line[..colon], &line[value_in(line, colon)]);
            // An option is trimmed of more white space than a field may hold.
            if name.eq_ignore_ascii_case(b"connection") && !has_control_byte(value) && options.read(value) {
                // Nothing in it goes beyond this connection.
                continue;
            }
            // A name has no white space, so folded lines and spaces before the colon are refused.
            let name = HeaderName::from_bytes(name).map_err(|_| malformed("no name of a field"))?;
            if name == CONTENT_LENGTH {
                length = Some(Lengths::and(length, value));
            } else if name == TRANSFER_ENCODING {
                // No other coding is decoded, and chunked is accepted only once.
                coding = Some(coding.is_none() && value.eq_ignore_ascii_case(b"chunked"));
            }
            let value = HeaderValue::from_maybe_shared(head.slice_ref(value))
                .map_err(|_| malformed("the value of a field has control characters"))?;
            headers.append(name, value);
        }
        let none = bodiless
            || status.is_informational()
            || status == StatusCode::NO_CONTENT
            || status == StatusCode::NOT_MODIFIED;
        // RFC 9112, section 6.3.
        let body = match (coding, length) {
            _ if none => ResponseBody::None,
            (Some(true), _) if version == Version::HTTP_11 => ResponseBody::Chunked,
            (Some(_), _) => return Err(malformed("its body has a transfer coding other than chunked")),
            (None, Some(Lengths::One(0))) => ResponseBody::None,
            (None, Some(Lengths::One(length))) => ResponseBody::Length(length),
            (None, Some(Lengths::Wrong)) => return Err(malformed("the lengths of its body are none, or differ")),
            (None, None) => ResponseBody::ToEnd,
        };
        // A length beside chunks may be an attempt at smuggling (RFC 9112, section 6.1).
        let keeps =
            options.keep(version) && !(coding.is_some() && length.is_some()) && !matches!(body, ResponseBody::ToEnd);
        Ok(Self { response, body, keeps })
    }
}

/// `HTTP/1.x SP status [SP reason]` (RFC 9112, section 4). The space before a reason that is empty may be
/// missing. A minor version above 1 is read as 1 (RFC 9110, section 2.5).
fn status_line(line: &[u8]) -> Result<(Version, StatusCode), ResponseError> {
    let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9', b' ', a, b, c, reason @ ..] = line else {
        return Err(malformed("it does not begin with a status line of HTTP/1"));
    };
    let status = StatusCode::from_bytes(&[*a, *b, *c]).map_err(|_| malformed("no such status"))?;
    if !matches!(reason, [] | [b' ', ..]) || has_control_byte(reason) {
        return Err(malformed("its status line is malformed"));
    }
    Ok((if *minor == b'0' { Version::HTTP_10 } else { Version::HTTP_11 }, status))
}

/// The lines of a head without their ends, which may be a line feed only.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = memchr(b'\n', self.0)?;
        let line = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

/// The lengths in all `Content-Length` fields of a head.
#[derive(Clone, Copy)]
enum Lengths {
    /// One length, given once or several times.
    One(u64),
    /// No lengths, or different ones.
    Wrong,
}

impl Lengths {
    /// Adds one more field to those before it.
    fn and(before: Option<Self>, value: &[u8]) -> Self {
        let and = |before: Option<Self>, part: &[u8]| match (before, content_length(part.trim_ascii())) {
            (None, Some(length)) => Some(Self::One(length)),
            (Some(Self::One(length)), Some(again)) if length == again => before,
            _ => Some(Self::Wrong),
        };
        value.split(|&byte| byte == b',').fold(before, and).unwrap_or(Self::Wrong)
    }
}

fn malformed(what: &'static str) -> ResponseError {
    ResponseError::Malformed(what)
}
