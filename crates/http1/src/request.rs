//! The head of an HTTP/1 request (RFC 9112, sections 2 to 6).
//!
//! Parsers of heads are often lenient where the standard permits it. They accept bare line feeds, merge equal
//! Content-Lengths, and drop one beside a Transfer-Encoding. A server behind others must agree with them
//! where a message ends, so ambiguous heads are refused here. No I/O, no clock.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version, request::Parts, uri::PathAndQuery};
use memchr::memchr;

use crate::{
    fields::{ConnectionOptions, content_length, has_control_byte, value_in, welcomes_trailers},
    host::is_host_and_port,
};

/// Empty lines skipped before a request line (RFC 9112, section 2.2, asks for at least one).
const MAX_LEADING_EMPTY_LINES: u32 = 4;

/// Fields for which an idle connection keeps memory.
const KEPT_FIELDS: usize = 16;

/// Longest target that `http::Uri` can hold.
const MAX_TARGET_BYTES: usize = u16::MAX as usize - 1;

/// The limits of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Most bytes of the whole head.
    pub head_bytes: usize,
    /// Most header fields.
    pub fields: usize,
}

/// The result of scanning the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes are needed.
    Partial,
    /// The head is complete and valid.
    Complete(Head),
    /// The head is invalid by the client's fault; the bytes after it cannot be trusted to be a request.
    Refused(Refusal),
}

/// A complete head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes from the start of the buffer to the end of the head.
    pub len: usize,
    /// The body after it.
    pub body: BodyKind,
    /// Whether another request may follow on the connection.
    pub keeps: bool,
    /// Whether the client sends the body only after a `100 Continue`.
    pub expects_continue: bool,
    /// Whether the client accepts trailers.
    pub takes_trailers: bool,
}

/// The body that follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// No body; the next request follows.
    None,
    /// This many bytes, at least one.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the answer.
    pub status: StatusCode,
    /// Whether the request was a HEAD, whose answer has no body.
    pub head: bool,
}

/// A resumable scan of one head. Each call gets the bytes from the start of the head, with more of them each
/// time. When the head is complete, [`HeadScan::request`] returns its content.
#[derive(Debug, Default)]
pub struct HeadScan {
    /// Start of the line under scan.
    line_start: usize,
    /// Bytes after `line_start` known to hold no line feed.
    searched: usize,
    /// The start of the request line, behind skipped empty lines.
    start: usize,
    empty_lines: u32,
    seen: Option<RequestLine>,
    fields: Vec<Field>,
    hosts: u32,
    length: Option<u64>,
    chunked: bool,
    options: ConnectionOptions,
    expects_continue: bool,
    takes_trailers: bool,
}

#[derive(Clone, Copy, Debug)]
struct RequestLine {
    minor_version: u8,
    head: bool,
    /// The method's length; the target follows after a space.
    method: u32,
    target: u32,
}

impl RequestLine {
    fn version(self) -> Version {
        if self.minor_version == 0 { Version::HTTP_10 } else { Version::HTTP_11 }
    }
}

/// The position of a field.
#[derive(Clone, Debug)]
struct Field {
    name: Range<usize>,
    value: Range<usize>,
}

impl HeadScan {
    /// Whether a byte of the request has arrived, so that the time-out of heads runs.
    pub fn begun(&self, bytes: &[u8]) -> bool {
        bytes.len() > self.start
    }

    /// Scans `bytes`, which start at the head and extend those of the last call.
    pub fn advance(&mut self, bytes: &[u8], limits: &HeadLimits) -> Step {
        match self.lines(bytes, limits) {
            Ok(None) => Step::Partial,
            Ok(Some(head)) => Step::Complete(head),
            Err(status) => Step::Refused(Refusal { status, head: self.is_head(bytes) }),
        }
    }

    /// A refusal for a reason outside the bytes, such as a time-out.
    pub fn refuse(&self, bytes: &[u8], status: StatusCode) -> Refusal {
        Refusal { status, head: self.is_head(bytes) }
    }

    fn is_head(&self, bytes: &[u8]) -> bool {
        self.seen.map_or_else(|| bytes[self.start..].starts_with(b"HEAD "), |line| line.head)
    }

    fn lines(&mut self, bytes: &[u8], limits: &HeadLimits) -> Result<Option<Head>, StatusCode> {
        loop {
            // Another protocol on this port (such as TLS) is refused immediately, not after the time-out.
            let is_foreign = |&byte: &u8| byte != b'\r' && !is_token_byte(byte);
            if self.seen.is_none() && bytes.get(self.start).is_some_and(is_foreign) {
                return Err(StatusCode::BAD_REQUEST);
            }
            let rest = &bytes[self.line_start..];
            let Some(at) = memchr(b'\n', &rest[self.searched..]).map(|at| at + self.searched) else {
                self.searched = rest.len();
                return self.partial(bytes, limits);
            };
            let end = self.line_start + at + 1;
            if end - self.start > limits.head_bytes {
                return Err(self.too_large());
            }
            let [line @ .., b'\r', b'\n'] = &rest[..=at] else { return Err(StatusCode::BAD_REQUEST) };
            match self.seen {
                None if line.is_empty() => {
                    self.empty_lines += 1;
                    if self.empty_lines > MAX_LEADING_EMPTY_LINES {
                        return Err(StatusCode::BAD_REQUEST);
                    }
                    self.start = end;
                }
                None => self.seen = Some(request_line(line)?),
                Some(request) if line.is_empty() => return self.finish(request, end).map(Some),
                Some(request) => {
                    if self.fields.len() == limits.fields {
                        return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
                    }
                    self.field(line, request)?;
                }
            }
            self.line_start = end;
            self.searched = 0;
        }
    }

    fn partial(&self, bytes: &[u8], limits: &HeadLimits) -> Result<Option<Head>, StatusCode> {
        if bytes.len() - self.start > limits.head_bytes {
            return Err(self.too_large());
        }
        Ok(None)
    }

    fn too_large(&self) -> StatusCode {
        if self.seen.is_none() { StatusCode::URI_TOO_LONG } else { StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE }
    }

    /// Parses a field line without its line end (RFC 9112, section 5). A folded line starts with a space, so
    /// it is no name.
    fn field(&mut self, line: &[u8], request: RequestLine) -> Result<(), StatusCode> {
        let colon = memchr(b':', line).ok_or(StatusCode::BAD_REQUEST)?;
        let Range { start, end } = value_in(line, colon);
        let (name, value) = (&line[..colon], &line[start..end]);
        if !is_token(name) || has_control_byte(value) {
            return Err(StatusCode::BAD_REQUEST);
        }
        let at = self.line_start;
        if self.fields.is_empty() {
            self.fields.reserve(KEPT_FIELDS);
        }
        self.fields.push(Field { name: at..at + colon, value: at + start..at + end });
        match name.len() {
            2 if name.eq_ignore_ascii_case(b"te") => self.takes_trailers |= welcomes_trailers(value),
            4 if name.eq_ignore_ascii_case(b"host") => {
                self.hosts += 1;
                if self.hosts > 1 || !is_host_and_port(value) {
                    return Err(StatusCode::BAD_REQUEST);
                }
            }
            6 if name.eq_ignore_ascii_case(b"expect") => {
                self.expects_continue = request.minor_version > 0 && value.eq_ignore_ascii_case(b"100-continue");
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.options.read(value);
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if self.length.is_some() {
                    return Err(StatusCode::BAD_REQUEST);
                }
                self.length = Some(content_length(value).ok_or(StatusCode::BAD_REQUEST)?);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if request.minor_version == 0 || self.chunked {
                    return Err(StatusCode::BAD_REQUEST);
                }
                transfer_coding(value)?;
                self.chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&self, request: RequestLine, len: usize) -> Result<Head, StatusCode> {
        if request.minor_version > 0 && self.hosts == 0 {
            return Err(StatusCode::BAD_REQUEST);
        }
        let body = match (self.chunked, self.length) {
            (true, Some(_)) => return Err(StatusCode::BAD_REQUEST),
            (true, None) => BodyKind::Chunked,
            (false, None | Some(0)) => BodyKind::None,
            (false, Some(length)) => BodyKind::Length(length),
        };
        let keeps = self.options.keep(request.version());
        Ok(Head { len, body, keeps, expects_continue: self.expects_continue, takes_trailers: self.takes_trailers })
    }

    /// The request whose complete head is in these bytes, which must be the scanned ones.
    ///
    /// # Errors
    /// The status of the answer, if [`http`] cannot represent the head. The scan has checked everything, so
    /// this is not expected.
    pub fn request(&self, head: &Bytes) -> Result<Box<Parts>, StatusCode> {
        let line = self.seen.ok_or(StatusCode::BAD_REQUEST)?;
        let wrong = StatusCode::BAD_REQUEST;
        // Boxed from the start, because it is moved many times.
        let mut request = Box::new(Request::new(()).into_parts().0);
        let target = self.start + line.method as usize + 1;
        let target_bytes = line.target as usize;
        request.method = Method::from_bytes(&head[self.start..target - 1]).map_err(|_| wrong)?;
        let uri = Uri::from_maybe_shared(head.slice(target..target + target_bytes)).map_err(|_| wrong)?;
        request.uri = with_whole_path(uri, target_bytes, &request.method).map_err(|_| wrong)?;
        request.version = line.version();
        let headers = &mut request.headers;
        headers.try_reserve(self.fields.len()).map_err(|_| StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)?;
        for field in &self.fields {
            let name = HeaderName::from_bytes(&head[field.name.clone()]).map_err(|_| wrong)?;
            headers.append(name, HeaderValue::from_maybe_shared(head.slice(field.value.clone())).map_err(|_| wrong)?);
        }
        Ok(request)
    }

    /// Starts over for the next head.
    pub fn restart(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        fields.shrink_to(KEPT_FIELDS);
        *self = Self { fields, ..Self::default() };
    }
}

/// `method SP target SP version`, with single spaces (RFC 9112, section 3).
fn request_line(line: &[u8]) -> Result<RequestLine, StatusCode> {
    let mut parts = line.split(|&byte| byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(StatusCode::BAD_REQUEST);
    };
    if !is_token(method) || has_control_byte(target) {
        return Err(StatusCode::BAD_REQUEST);
    }
    let minor_version = match version {
        b"HTTP/1.0" => 0,
        // A higher minor version is treated as the highest one supported (RFC 9110, section 2.5).
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1'..=b'9'] => 1,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
            return Err(StatusCode::HTTP_VERSION_NOT_SUPPORTED);
        }
        _ => return Err(StatusCode::BAD_REQUEST),
    };
    match method {
        // CONNECT's target has a form of its own, and no file can answer CONNECT or TRACE.
        b"CONNECT" | b"TRACE" => return Err(StatusCode::METHOD_NOT_ALLOWED),
        b"OPTIONS" if target == b"*" => {}
        _ if target.len() > MAX_TARGET_BYTES => return Err(StatusCode::URI_TOO_LONG),
        _ if target.starts_with(b"/") && target.iter().all(|&byte| is_plain_target_byte(byte)) => {}
        // Targets that `http` cannot represent are refused here.
        _ if (target.starts_with(b"/") || is_absolute(target)) && !target.contains(&b'#') => {
            let uri = Uri::try_from(target).map_err(|_| StatusCode::BAD_REQUEST)?;
            if uri.authority().is_some_and(|authority| !is_host_and_port(authority.as_str().as_bytes())) {
                return Err(StatusCode::BAD_REQUEST);
            }
        }
        _ => return Err(StatusCode::BAD_REQUEST),
    }
    let bytes = |part: &[u8]| u32::try_from(part.len()).map_err(|_| StatusCode::URI_TOO_LONG);
    Ok(RequestLine { minor_version, head: method == b"HEAD", method: bytes(method)?, target: bytes(target)? })
}

/// Completes the path of an absolute target (RFC 9112, sections 3.2.1 and 3.2.4): `/` if it is empty, or `*`
/// for OPTIONS without path and query. Other forms of targets stay.
fn with_whole_path(uri: Uri, target_bytes: usize, method: &Method) -> Result<Uri, http::Error> {
    let (Some(scheme), Some(authority), Some(path)) = (uri.scheme_str(), uri.authority(), uri.path_and_query()) else {
        return Ok(uri);
    };
    let has_no_path = scheme.len() + "://".len() + authority.as_str().len() == target_bytes;
    let path = if has_no_path && *method == Method::OPTIONS {
        PathAndQuery::from_static("*")
    } else if path.as_str().starts_with('?') {
        PathAndQuery::try_from(format!("/{}", path.as_str()))?
    } else {
        return Ok(uri);
    };
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(path);
    Ok(Uri::from_parts(parts)?)
}

fn is_absolute(target: &[u8]) -> bool {
    [b"http://".as_slice(), b"https://"]
        .iter()
        .any(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

/// Only `chunked` is supported. Chunked anywhere but at the end is malformed (RFC 9112, section 6.3). Any
/// other coding is well-formed but unsupported (section 6.1: 501).
fn transfer_coding(value: &[u8]) -> Result<(), StatusCode> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut codings = value.rsplit(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    let well_formed = codings.next().is_some_and(|last| !last.is_empty())
        && codings.all(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"chunked"));
    Err(if well_formed { StatusCode::NOT_IMPLEMENTED } else { StatusCode::BAD_REQUEST })
}

fn is_token(text: &[u8]) -> bool {
    // Always to the end, which takes less than to stop at each byte.
    !text.is_empty() && text.iter().fold(TOKEN, |all, &byte| all & KINDS[usize::from(byte)]) == TOKEN
}

fn is_token_byte(byte: u8) -> bool {
    KINDS[usize::from(byte)] & TOKEN != 0
}

fn is_plain_target_byte(byte: u8) -> bool {
    KINDS[usize::from(byte)] & PLAIN_TARGET != 0
}

/// `tchar` of RFC 9110, section 5.6.2.
const TOKEN: u8 = 1;
/// Bytes that most targets consist of, and that are valid in every target.
const PLAIN_TARGET: u8 = 2;

/// The classes of each byte. Every byte of a head is looked up here.
static KINDS: [u8; 256] = {
    let mut kinds = [0; 256];
    let sets: [(u8, &[u8]); 2] = [(TOKEN, b"!#$%&'*+-.^_`|~"), (PLAIN_TARGET, b"/-._~%?=&+,;:@")];
    let mut set = 0;
    while set < sets.len() {
        let (kind, others) = sets[set];
        let mut at = 0;
        while at < others.len() {
            kinds[others[at] as usize] |= kind;
            at += 1;
        }
        let mut byte = 0;
        while byte < 128_u8 {
            if byte.is_ascii_alphanumeric() {
                kinds[byte as usize] |= kind;
            }
            byte += 1;
        }
        set += 1;
    }
    kinds
};

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { head_bytes: 200, fields: 4 };

    /// The result for a text, which must not depend on how it is cut.
    fn scan(text: &str) -> Step {
        let whole = HeadScan::default().advance(text.as_bytes(), &LIMITS);
        let mut scan = HeadScan::default();
        let bytewise = (1..=text.len())
            .map(|end| scan.advance(&text.as_bytes()[..end], &LIMITS))
            .find(|step| *step != Step::Partial)
            .unwrap_or(Step::Partial);
        match (whole, bytewise) {
            (Step::Refused(whole), Step::Refused(bytewise)) => assert_eq!(whole.status, bytewise.status, "{text:?}"),
            (whole, bytewise) => assert_eq!(whole, bytewise, "{text:?}"),
        }
        whole
    }

    fn status(text: &str) -> u16 {
        match scan(text) {
            Step::Refused(refusal) => refusal.status.as_u16(),
            Step::Complete(_) => 200,
            Step::Partial => 100,
        }
    }

    #[test]
    fn a_head_ends_at_its_empty_line_and_tells_its_body() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(
            HeadScan::default().advance(format!("{text}GET /next").as_bytes(), &LIMITS),
            Step::Complete(Head {
                len: text.len(),
                body: BodyKind::None,
                keeps: true,
                expects_continue: false,
                takes_trailers: false
            })
        );
        let body = |text: &str| match scan(text) {
            Step::Complete(head) => head.body,
            other => panic!("{other:?}"),
        };
        assert_eq!(body("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n"), BodyKind::Length(12));
        assert_eq!(body("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"), BodyKind::None);
        assert_eq!(body("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"), BodyKind::Chunked);
        assert_eq!(body("\r\n\r\nGET / HTTP/1.0\r\n\r\n"), BodyKind::None);
    }

    #[test]
    fn every_proper_prefix_of_a_head_is_partial() {
        let text = "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(HeadScan::default().advance(&text.as_bytes()[..end], &LIMITS), Step::Partial, "{end}");
        }
        assert_eq!(status(text), 200);
    }

    #[test]
    fn request_lines() {
        for (line, expected) in [
            ("GET / HTTP/1.1", 200),
            ("GET http://a/b HTTP/1.1", 200),
            ("GET HTTPS://a HTTP/1.1", 200),
            ("FROB /x HTTP/1.1", 200),
            ("GET /caf\u{e9}?q='*' HTTP/1.1", 200),
            ("GET /a?b=\"c\" HTTP/1.1", 400),
            ("GET /a#b HTTP/1.1", 400),
            ("GET /a<b HTTP/1.1", 400),
            ("GET http:///a HTTP/1.1", 400),
            ("GET  / HTTP/1.1", 400),
            ("GET / HTTP/1.1 ", 400),
            (" GET / HTTP/1.1", 400),
            ("GET /", 400),
            ("GET a HTTP/1.1", 400),
            ("GET * HTTP/1.1", 400),
            ("GET /\u{1}b HTTP/1.1", 400),
            ("G(T / HTTP/1.1", 400),
            ("GET / HTTP/1.10", 400),
            ("GET / http/1.1", 400),
            ("GET / FTP/1.1", 400),
            ("GET / HTTP/2.0", 505),
            ("GET / HTTP/0.9", 505),
            ("GET / HTTP/1.2", 200),
            ("GET / HTTP/1.9", 200),
            ("GET http://a:x/b HTTP/1.1", 400),
            ("GET http://[::1/b HTTP/1.1", 400),
            ("GET http://a%/b HTTP/1.1", 400),
            ("GET http://u@a/b HTTP/1.1", 400),
            ("CONNECT a:443 HTTP/1.1", 405),
            ("TRACE / HTTP/1.1", 405),
            ("\u{16}\u{3}\u{1}", 400),
        ] {
            assert_eq!(status(&format!("{line}\r\nHost: a\r\n\r\n")), expected, "{line:?}");
        }
    }

    #[test]
    fn an_absolute_target_has_the_path_that_it_stands_for() {
        for (line, expected) in [
            ("GET http://b?q HTTP/1.1", "/?q"),
            ("GET http://b? HTTP/1.1", "/?"),
            ("GET http://b/?q HTTP/1.1", "/?q"),
            ("GET http://b HTTP/1.1", "/"),
            ("OPTIONS http://b HTTP/1.1", "*"),
            ("OPTIONS HTTPS://b:80 HTTP/1.1", "*"),
            ("OPTIONS http://b/ HTTP/1.1", "/"),
            ("OPTIONS http://b?q HTTP/1.1", "/?q"),
            ("OPTIONS http://b/http://b HTTP/1.1", "/http://b"),
            ("OPTIONS * HTTP/1.1", "*"),
            ("GET /?q HTTP/1.1", "/?q"),
        ] {
            let text = Bytes::from(format!("{line}\r\nHost: a\r\n\r\n"));
            let mut scan = HeadScan::default();
            assert!(matches!(scan.advance(&text, &LIMITS), Step::Complete(_)), "{line}");
            let uri = scan.request(&text).unwrap().uri;
            assert_eq!(uri.path_and_query().unwrap().as_str(), expected, "{line}");
        }
    }

    #[test]
    fn fields_that_smuggle_are_refused() {
        for (fields, expected) in [
            ("Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked", 400),
            ("Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 1", 400),
            ("Host: a\r\nContent-Length: 1\r\nContent-Length: 2", 400),
            ("Host: a\r\nContent-Length: 1\r\nContent-Length: 1", 400),
            ("Host: a\r\nContent-Length: 1, 1", 400),
            ("Host: a\r\nContent-Length: +1", 400),
            ("Host: a\r\nContent-Length: -1", 400),
            ("Host: a\r\nContent-Length: 0x1", 400),
            ("Host: a\r\nContent-Length:", 400),
            ("Host: a\r\nContent-Length: 99999999999999999999", 400),
            ("Host: a\r\nContent-Length: 18446744073709551615", 400),
            ("Host: a\r\nContent-Length: 9223372036854775808", 400),
            ("Host: a\r\nTransfer-Encoding: gzip", 501),
            ("Host: a\r\nTransfer-Encoding: gzip, chunked", 501),
            ("Host: a\r\nTransfer-Encoding: identity", 501),
            ("Host: a\r\nTransfer-Encoding: xchunked", 501),
            ("Host: a\r\nTransfer-Encoding: chunked, gzip", 400),
            ("Host: a\r\nTransfer-Encoding: chunked, chunked", 400),
            ("Host: a\r\nTransfer-Encoding: ,", 400),
            ("Host: a\r\nTransfer-Encoding:", 400),
            ("Host: a\r\nTransfer-Encoding: \u{b}chunked", 400),
            ("Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
            ("Host: a\r\nTransfer-Encoding : chunked", 400),
            ("Host: a\r\n Transfer-Encoding: chunked", 400),
            ("Host: a\r\nX: a\r\n b", 400),
            ("Host: a\r\nno colon", 400),
            ("Host: a\r\n: empty", 400),
            ("Host: a\r\nX: a\rb", 400),
            ("Host: a\r\nX: a\0b", 400),
            ("Host: a\r\nContent-Length: 1\r", 400),
            ("Host: a\r\nContent-Length: \u{c}1", 400),
            ("Host: a\r\nTransfer-Encoding: \u{c}chunked", 400),
            ("Host: a\r\nTransfer-Encoding: chunked\r", 400),
            ("Host: a\r\nX: a\u{c}", 400),
            ("Host: a\r\nX:\r", 400),
            ("Host: a\nX: b", 400),
            ("Host: a\r\nHost: a", 400),
            ("Host: a b", 400),
            ("Host: a,b", 400),
            ("Host: u@a", 400),
            ("Host: a/b", 400),
            ("Host: [::1", 400),
            ("Host: a:x", 400),
            ("Host: a:80:80", 400),
            ("Host: %", 400),
            ("X: no host", 400),
            ("Host: [::1]:80", 200),
            ("Host:", 200),
            ("host:\ta\t", 200),
        ] {
            assert_eq!(status(&format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n")), expected, "{fields:?}");
        }
        assert_eq!(status("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/1.0\n\n"), 400);
        assert_eq!(status("\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.0\r\n\r\n"), 400);
    }

    #[test]
    fn a_long_target_is_414_and_long_fields_are_431() {
        let long = "x".repeat(300);
        assert_eq!(status(&format!("GET /{long}")), 414);
        assert_eq!(status(&format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")), 414);
        assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}")), 431);
        assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n\r\n"), 431);
        assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n"), 200);
    }

    #[test]
    fn a_refusal_knows_a_head_request() {
        let refusal = |text: &str| match HeadScan::default().advance(text.as_bytes(), &LIMITS) {
            Step::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        };
        assert!(refusal("HEAD / HTTP/1.1\r\n\r\n").head);
        assert!(refusal("HEAD / HTTP/3.0\r\n\r\n").head);
        assert!(!refusal("GET / HTTP/1.1\r\n\r\n").head);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_in_any_cuts_give_one_verdict(text in "(GET|HEAD|P) ?(/|\\*|a) ?HTTP/[0-3]\\.[01](\r\n|\n)([Hh]ost: ?[a\t ]|[a-zC]{1,3}:? ?[b\r]|Content-Length: [0-9,]{1,3}|Transfer-Encoding: (chunked|gzip|,)|\r\n|\n){0,6}") {
            scan(&text);
        }
    }
}
