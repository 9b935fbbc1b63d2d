//! Heads of responses, as a server sends them.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body_util::Empty;
use memchr::memchr;

use super::Broken;
use crate::{
    message::{Options, chunked::Chunks, content_length, has_control_byte, value_in},
    upstream::{Interim, head},
};

/// Interim responses before one response. All together they may be as large as one head. Who works for half an hour, and says every
/// 20 seconds that it does (102, as for WebDAV), stays below.
pub(super) const MOST_INTERIMS: usize = 100;
/// As many fields as hyper takes.
const MOST_FIELDS: usize = 100;

/// The head of a response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) response: Response<()>,
    pub(super) body: Body,
    /// Nothing in it says that the connection ends.
    pub(super) keeps: bool,
}

/// What is to come of a body.
#[derive(Debug)]
pub(super) enum Body {
    /// First its head.
    Awaited,
    Length(u64),
    Chunked(Chunks),
    /// Only these.
    Trailers(HeaderMap),
    /// All until the connection is closed.
    ToEnd,
    Ended,
}

/// Whether these bytes may become a response.
pub(super) fn may_begin(bytes: &[u8]) -> bool {
    // Half of an empty line, or the beginning of what is none.
    bytes == b"\r" || bytes.iter().zip(b"HTTP/1.").all(|(byte, expected)| byte == expected)
}

/// Whether these bytes begin a response that is interim.
pub(super) fn is_interim(bytes: &[u8]) -> bool {
    matches!(bytes, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', b'1', ..])
}

/// Reads a whole head, of about so many fields. `bodiless`: the request was HEAD.
pub(super) fn parse(head: &Bytes, fields_about: usize, bodiless: bool) -> Result<Answer, Broken> {
    let mut lines = Lines(head);
    let (version, status) = status_line(lines.next().unwrap_or_default())?;
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = version;
    let headers = response.headers_mut();
    headers.reserve(fields_about.min(MOST_FIELDS));
    let (mut length, mut coding, mut options, mut fields) = (None, None, Options::default(), 0);
    for line in lines.take_while(|line| !line.is_empty()) {
        fields += 1;
        if fields > MOST_FIELDS {
            return Err(Broken::HeadTooLarge);
        }
        let colon = memchr(b':', line).ok_or_else(|| malformed("a line of its head is no field"))?;
        let (name, value) = (&line[..colon], &line[value_in(line, colon)]);
        if name.eq_ignore_ascii_case(b"connection") && options.read(value) {
            // It says nothing beyond this connection.
            continue;
        }
        // White space is in no name, so that neither a folded line nor a space before the colon is taken.
        let name = HeaderName::from_bytes(name).map_err(|_| malformed("no name of a field"))?;
        if name == CONTENT_LENGTH {
            length = Some(Lengths::and(length, value));
        } else if name == TRANSFER_ENCODING {
            // We take off no other, and not twice.
            coding = Some(coding.is_none() && value.eq_ignore_ascii_case(b"chunked"));
        }
        let value = HeaderValue::from_maybe_shared(head.slice_ref(value))
            .map_err(|_| malformed("the value of a field has control characters"))?;
        headers.append(name, value);
    }
    let none =
        bodiless || status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
    // RFC 9112, section 6.3.
    let body = match (coding, length) {
        _ if none => Body::Ended,
        (Some(true), _) if version == Version::HTTP_11 => Body::Chunked(Chunks::of_server()),
        (Some(_), _) => return Err(malformed("its body has a transfer coding other than chunked")),
        (None, Some(Lengths::One(0))) => Body::Ended,
        (None, Some(Lengths::One(length))) => Body::Length(length),
        (None, Some(Lengths::Wrong)) => return Err(malformed("the lengths of its body are none, or differ")),
        (None, None) => Body::ToEnd,
    };
    // A length beside chunks is a lie, or somebody's trick (RFC 9112, section 6.1).
    let keeps = options.keep(version) && !(coding.is_some() && length.is_some()) && !matches!(body, Body::ToEnd);
    Ok(Answer { response, body, keeps })
}

/// `HTTP/1.x SP status [SP reason]` (RFC 9112, section 4). The space before a reason that is empty may be missing.
fn status_line(line: &[u8]) -> Result<(Version, StatusCode), Broken> {
    let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ (b'0' | b'1'), b' ', a, b, c, reason @ ..] = line else {
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

/// What all of `Content-Length` says.
#[derive(Clone, Copy)]
enum Lengths {
    /// The same, as often as it is said.
    One(u64),
    Wrong,
}

impl Lengths {
    /// What was said before, and one more field.
    fn and(before: Option<Self>, value: &[u8]) -> Self {
        let and = |before: Option<Self>, part: &[u8]| match (before, content_length(part.trim_ascii())) {
            (None, Some(length)) => Some(Self::One(length)),
            (Some(Self::One(length)), Some(again)) if length == again => before,
            _ => Some(Self::Wrong),
        };
        value.split(|&byte| byte == b',').fold(before, and).unwrap_or(Self::Wrong)
    }
}

impl Answer {
    /// One that is interim, as any client may see it.
    pub(super) fn into_interim(self) -> Interim {
        let mut interim = self.response.map(|()| Empty::new());
        *interim.version_mut() = Version::HTTP_11;
        head::response(interim.status(), interim.headers_mut(), Some(0), &Method::GET);
        interim
    }
}

fn malformed(what: &'static str) -> Broken {
    Broken::Malformed(what.into())
}
