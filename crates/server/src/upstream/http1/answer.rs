//! Heads of responses, as a server sends them.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version,
    header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body_util::Empty;

use super::Broken;
use crate::{
    chunked::Chunks,
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
    bytes.iter().zip(b"HTTP/1.").all(|(byte, expected)| byte == expected)
}

/// Whether these bytes begin a response that is interim.
pub(super) fn is_interim(bytes: &[u8]) -> bool {
    matches!(bytes, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', b'1', ..])
}

/// Reads a whole head. `bodiless`: the request was HEAD.
pub(super) fn parse(head: &Bytes, bodiless: bool) -> Result<Answer, Broken> {
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    match httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, head, &mut fields) {
        Ok(httparse::Status::Complete(end)) if end == head.len() => {}
        Ok(_) => return Err(malformed("the head of its response ends in the midst of it")),
        Err(httparse::Error::TooManyHeaders) => return Err(Broken::HeadTooLarge),
        Err(error) => return Err(Broken::Malformed(Box::new(error))),
    }
    let mut response = Response::new(());
    *response.status_mut() =
        parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or_else(|| malformed("no such status"))?;
    *response.version_mut() = if parsed.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    response.headers_mut().reserve(parsed.headers.len());
    let (mut length, mut coding, mut connection) = (false, false, false);
    for field in parsed.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| malformed("no name of a field"))?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value))
            .map_err(|_| malformed("the value of a field has control characters"))?;
        length |= name == CONTENT_LENGTH;
        coding |= name == TRANSFER_ENCODING;
        connection |= name == CONNECTION;
        response.headers_mut().append(name, value);
    }
    let keeps = keeps(&response, connection);
    let status = response.status();
    let headers = response.headers();
    let none =
        bodiless || status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
    // RFC 9112, section 6.3.
    let body = if none {
        Body::Ended
    } else if coding {
        // We take off no other.
        if parsed.version == Some(0) || !is_chunked(headers) {
            return Err(malformed("its body has a transfer coding other than chunked"));
        }
        Body::Chunked(Chunks::of_server())
    } else if length {
        match length_of(headers).ok_or_else(|| malformed("the lengths of its body are none, or differ"))? {
            0 => Body::Ended,
            length => Body::Length(length),
        }
    } else {
        Body::ToEnd
    };
    // A length beside chunks is a lie, or somebody's trick (RFC 9112, section 6.1).
    let keeps = keeps && !(coding && length) && !matches!(body, Body::ToEnd);
    Ok(Answer { response, body, keeps })
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

fn keeps(response: &Response<()>, said: bool) -> bool {
    let kept = response.version() == Version::HTTP_11;
    if !said {
        return kept;
    }
    let says = |option: &[u8]| {
        let values = response.headers().get_all(CONNECTION).iter();
        values
            .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
            .any(|said| said.trim_ascii().eq_ignore_ascii_case(option))
    };
    !says(b"close") && (kept || says(b"keep-alive"))
}

fn is_chunked(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    codings.next().is_some_and(|coding| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"))
        && codings.next().is_none()
}

/// The one length that is said, as often as it is.
fn length_of(headers: &HeaderMap) -> Option<u64> {
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        for part in value.as_bytes().split(|&byte| byte == b',') {
            let part = part.trim_ascii();
            if part.is_empty() || !part.iter().all(u8::is_ascii_digit) {
                return None;
            }
            let part: u64 = std::str::from_utf8(part).ok()?.parse().ok()?;
            if length.is_some_and(|length| length != part) {
                return None;
            }
            length = Some(part);
        }
    }
    length
}

/// Reads trailers: lines, without an empty one at the end.
pub(super) fn trailers(lines: &[u8]) -> Result<HeaderMap, Broken> {
    let mut trailers = HeaderMap::new();
    if lines.is_empty() {
        return Ok(trailers);
    }
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let lines = [lines, b"\n"].concat();
    match httparse::parse_headers(&lines, &mut fields) {
        Ok(httparse::Status::Complete((end, fields))) if end == lines.len() => {
            for field in fields {
                let name = HeaderName::from_bytes(field.name.as_bytes());
                let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(field.value)) else {
                    return Err(malformed("a trailer is malformed"));
                };
                trailers.append(name, value);
            }
            Ok(trailers)
        }
        _ => Err(malformed("its trailers are malformed")),
    }
}

fn malformed(what: &'static str) -> Broken {
    Broken::Malformed(what.into())
}
