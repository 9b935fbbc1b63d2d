//! Heads of responses, as a server sends them.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body_util::Empty;

use super::Broken;
use crate::{
    message::{Options, chunked::Chunks, content_length},
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
    let version = response.version();
    let headers = response.headers_mut();
    headers.reserve(parsed.headers.len());
    let (mut length, mut coding, mut options) = (None, None, Options::default());
    for field in parsed.headers {
        if field.name.eq_ignore_ascii_case("connection") && options.read(field.value) {
            // It says nothing beyond this connection.
            continue;
        }
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| malformed("no name of a field"))?;
        if name == CONTENT_LENGTH {
            length = Some(Lengths::and(length, field.value));
        } else if name == TRANSFER_ENCODING {
            // We take off no other, and not twice.
            coding = Some(coding.is_none() && field.value.trim_ascii().eq_ignore_ascii_case(b"chunked"));
        }
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value))
            .map_err(|_| malformed("the value of a field has control characters"))?;
        headers.append(name, value);
    }
    let status = response.status();
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
