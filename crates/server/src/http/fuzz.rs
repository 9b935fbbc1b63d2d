//! Fuzz targets: the bytes of a connection, and paths.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, uri::PathAndQuery};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    Drain, HttpSettings, InFlight, Marks,
    framing::{Fault, Framer},
    head::trim_blanks,
    intake::{Intake, Protocol, REFUSED_TARGET},
    target::Target,
};
use crate::{
    classify::{decoded_path, encoded_path},
    config::Limits,
};

/// The bytes of an HTTP/1 connection. However they are cut, the framer and hyper find the same requests in them, with the same
/// bodies, and these are those that a plain reading of the standard finds.
pub fn requests(bytes: &[u8]) {
    // Below what the framer and hyper take of chunk extensions, each by its own count.
    let bytes = &bytes[..bytes.len().min(4000)];
    // Pieces of a length that the bytes say, so that the input is nothing but a connection.
    let odd = 2 + bytes.iter().fold(0, |sum, byte| (sum * 31 + usize::from(*byte)) % 61);
    let whole = framed(bytes, bytes.len().max(1));
    for piece in [1, odd] {
        let cut = framed(bytes, piece);
        // Where each head ends is seen only when they come one by one.
        assert_eq!((cut.fault, cut.heads.len()), (whole.fault, whole.heads.len()), "pieces of {piece}");
        // How much of a body that breaks goes on makes no difference.
        assert!(cut.released == whole.released || whole.fault == Some(Broken::Body));
    }
    let by_hand = read_plainly(bytes, &framed(bytes, 1));

    let served = serve(bytes, bytes.len().max(1));
    for piece in [1, odd] {
        assert_eq!(serve(bytes, piece), served, "pieces of {piece}");
    }
    let Some(served) = served else { return };
    let mut expected = by_hand.into_iter();
    for request in &served.requests {
        if request.target == REFUSED_TARGET && request.method != "OPTIONS" {
            assert_eq!(request.refused, refused_status(whole.fault), "only the intake writes such a request");
            continue;
        }
        let message = expected.next().expect("hyper has no request that was not released");
        assert_eq!(request.method, message.method);
        // An absolute one is written anew by `Uri`.
        assert!(request.target == message.target || !message.target.starts_with('/'), "{request:?} {message:?}");
        match (&request.body, &message.body) {
            (Some(body), Some(expected)) => assert_eq!(body, expected, "one reading of the body"),
            (body, expected) => assert_eq!(body.is_some(), expected.is_some(), "whether the body is whole"),
        }
    }
    // A request that hyper refuses by itself would have neither a page nor a line in the log.
    let broken = whole.fault == Some(Broken::Body);
    assert!(broken || !served.unread, "hyper takes every head that was released");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Head(u16),
    Body,
}

fn refused_status(fault: Option<Broken>) -> u16 {
    match fault {
        Some(Broken::Head(status)) => status,
        _ => 0,
    }
}

#[derive(Debug)]
struct Framed {
    released: usize,
    fault: Option<Broken>,
    /// Where a head was found to have ended.
    heads: Vec<usize>,
}

fn framed(bytes: &[u8], piece: usize) -> Framed {
    let mut framer = Framer::new(HttpSettings::new(&limits()).head);
    let (mut released, mut heads) = (0, Vec::new());
    let ends = (piece..bytes.len()).step_by(piece).chain((!bytes.is_empty()).then_some(bytes.len()));
    for end in ends {
        loop {
            let accepted = framer.accept(&bytes[released..end]);
            released += accepted.bytes;
            assert!(released <= end);
            while (heads.len() as u64) < framer.heads() {
                heads.push(released);
            }
            if let Some(fault) = accepted.fault {
                let fault = match fault {
                    Fault::Head(refusal) => Broken::Head(refusal.status.as_u16()),
                    Fault::Body => Broken::Body,
                };
                return Framed { released, fault: Some(fault), heads };
            }
            if !framer.holds() {
                break;
            }
            framer.go_on();
        }
    }
    Framed { released, fault: None, heads }
}

#[derive(Debug)]
struct Message {
    method: String,
    target: String,
    /// `None`: broken, or not whole.
    body: Option<Vec<u8>>,
}

/// What stands in the heads that were let through, and what follows them, by the letter of RFC 9112.
fn read_plainly(bytes: &[u8], framed: &Framed) -> Vec<Message> {
    let mut from = 0;
    let mut messages = Vec::new();
    for &end in &framed.heads {
        let head = characters(&bytes[from..end]);
        let head = head.trim_start_matches("\r\n");
        let mut lines = head.split("\r\n");
        let mut words = lines.next().expect("a line").split(' ');
        let (method, target, version) = (words.next(), words.next(), words.next());
        assert!(words.next().is_none() && matches!(version, Some("HTTP/1.1" | "HTTP/1.0")), "{head:?}");
        let (mut lengths, mut codings, mut hosts) = (Vec::new(), Vec::new(), 0);
        let mut empty = 0;
        for line in lines {
            if line.is_empty() {
                empty += 1;
                continue;
            }
            assert_eq!(empty, 0, "an empty line ends a head: {head:?}");
            assert!(!line.contains(['\n', '\r', '\0']), "{line:?}");
            let (name, value) = line.split_once(':').expect("a field");
            assert!(!name.is_empty() && !name.contains([' ', '\t']), "{line:?}");
            match name.to_ascii_lowercase().as_str() {
                "host" => hosts += 1,
                "content-length" => lengths.push(value.trim_matches([' ', '\t']).to_owned()),
                "transfer-encoding" => codings.push(value.trim_matches([' ', '\t']).to_ascii_lowercase()),
                _ => {}
            }
        }
        assert!(lengths.len() + codings.len() <= 1, "a body has one length: {head:?}");
        assert!(hosts == 1 || (hosts == 0 && version == Some("HTTP/1.0")), "{head:?}");
        let rest = &bytes[end..];
        let (body, taken) = match (lengths.first(), codings.first()) {
            (Some(length), _) => {
                assert!(length.bytes().all(|byte| byte.is_ascii_digit()));
                let length: usize = length.parse().expect("within the limit");
                let body = rest.get(..length).map(<[u8]>::to_vec);
                let taken = if body.is_some() { length } else { usize::MAX };
                (body, taken)
            }
            (_, Some(coding)) => {
                assert_eq!(coding, "chunked");
                dechunked(rest).map_or((None, usize::MAX), |(body, taken)| (body, taken))
            }
            (None, None) => (Some(Vec::new()), 0),
        };
        messages.push(Message {
            method: method.expect("a method").to_owned(),
            target: target.expect("a target").to_owned(),
            body,
        });
        if taken == usize::MAX {
            break;
        }
        from = end + taken;
    }
    assert_eq!(messages.len(), framed.heads.len(), "nothing is read behind a body that is broken");
    messages
}

/// A chunked body and what it takes; `None`: broken, or not whole. A body whose trailers are no fields, or too many for hyper, is
/// broken too, though its end is known: hyper closes the connection behind it.
fn dechunked(bytes: &[u8]) -> Option<(Option<Vec<u8>>, usize)> {
    let line = |at: usize| {
        let len = bytes.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
        let line = &bytes[at..at + len];
        (!line.contains(&b'\n') && !line.contains(&b'\r')).then_some((line, at + len + 2))
    };
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let (size, data) = line(at)?;
        let size = std::str::from_utf8(size.split(|byte| *byte == b';').next()?).ok()?;
        if size.is_empty() || size.len() > 16 || !size.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let size = usize::from_str_radix(size, 16).ok()?;
        at = data;
        if size == 0 {
            break;
        }
        let end = at.checked_add(size)?;
        body.extend_from_slice(bytes.get(at..end)?);
        if bytes.get(end..end + 2)? != b"\r\n" {
            return None;
        }
        at = end + 2;
    }
    let is_field = |line: &[u8]| {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
        HeaderName::from_bytes(&line[..colon]).is_ok()
            && HeaderValue::from_bytes(trim_blanks(&line[colon + 1..])).is_ok()
    };
    let (mut trailers, mut sound) = (0, true);
    loop {
        let (trailer, next) = line(at)?;
        at = next;
        if trailer.is_empty() {
            return Some(((sound && trailers <= 100).then_some(body), at));
        }
        trailers += 1;
        sound &= is_field(trailer);
    }
}

/// Small, so that they are met.
fn limits() -> Limits {
    Limits {
        request_head_bytes: 1024,
        request_headers: 16,
        request_body_bytes: 2048,
        head_timeout: Duration::from_secs(3600),
        idle_timeout: Duration::from_secs(3600),
        ..Limits::default()
    }
}

#[derive(Debug, PartialEq)]
struct Served {
    requests: Vec<Seen>,
    /// Whether hyper gave up on what it was given.
    unread: bool,
}

#[derive(Debug, PartialEq)]
struct Seen {
    method: String,
    target: String,
    body: Option<Vec<u8>>,
    refused: u16,
}

/// What a service sees of a connection. `None` for HTTP/2, and where nothing comes.
fn serve(bytes: &[u8], piece: usize) -> Option<Served> {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(connection(bytes, piece)))
}

async fn connection(bytes: &[u8], piece: usize) -> Option<Served> {
    let settings = HttpSettings::new(&limits());
    let marks = Arc::new(Marks::new(Arc::new(Drain::default())));
    let stream = Pieces::new(bytes, piece);
    let mut intake = Intake::new(stream, settings.head, settings.patience, marks.clone());
    let protocol = std::future::poll_fn(|cx| intake.poll_protocol(cx)).await.expect("nothing fails here");
    if protocol != Some(Protocol::Http1) {
        return None;
    }
    let seen = Mutex::new(Vec::new());
    let service = service_fn(|request: Request<Incoming>| {
        let under_way = InFlight::begin(marks.clone());
        let (seen, marks) = (&seen, &marks);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.ok().map(|body| body.to_bytes().to_vec());
            let (method, target) = (parts.method.to_string(), written(&parts.uri));
            let refused = if target == REFUSED_TARGET && method != "OPTIONS" { marks.refused().as_u16() } else { 0 };
            let broken = body.is_none();
            seen.lock().push(Seen { method, target, body, refused });
            drop(under_way);
            let mut response = Response::new(Empty::<Bytes>::new());
            if broken {
                *response.status_mut() = http::StatusCode::BAD_REQUEST;
            }
            Ok::<_, Infallible>(response)
        })
    });
    let mut http = settings.http1.serve_connection(TokioIo::new(intake), service);
    let result = std::future::poll_fn(|cx| http.poll_without_shutdown(cx)).await;
    drop(http);
    Some(Served { requests: seen.into_inner(), unread: result.is_err_and(|error| error.is_parse()) })
}

/// A target as the client wrote it, but for absolute ones.
fn written(uri: &http::Uri) -> String {
    characters(uri.to_string().as_bytes())
}

/// One for each byte, whatever they are.
fn characters(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// Somebody who sends bytes in pieces, closes that side, and takes whatever comes.
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
}

impl Pieces {
    pub(crate) fn new(bytes: &[u8], piece: usize) -> Self {
        Self { bytes: bytes.to_vec(), at: 0, piece }
    }

    /// Whether all were read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }
}

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let len = self.piece.min(self.bytes.len() - self.at).min(buf.remaining());
        buf.put_slice(&self.bytes[self.at..self.at + len]);
        self.at += len;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The path of a request. What routes and rules match, what an upstream gets, and what that would match are one path, with nothing
/// left in it that climbs.
pub fn paths(bytes: &[u8]) {
    let Ok(target) = PathAndQuery::try_from(bytes) else { return };
    let Ok(path) = Target::parse(target.path()) else { return };
    let decoded = path.decoded();
    sound(decoded);
    assert_eq!(decoded_path(&encoded_path(decoded)).as_deref(), Some(decoded), "what is written reads back");
    let forwarded = path.forwarded(None);
    assert_eq!(decoded_path(&forwarded).as_deref(), Some(decoded), "an upstream sees the path that was matched");
    unclimbing(&forwarded);
    for (at, _) in decoded.match_indices('/').chain([(decoded.len(), "")]) {
        for (prefix, end) in [("/", at), ("/base", at), ("/base/", at), ("/base/", (at + 1).min(decoded.len()))] {
            let replaced = path.forwarded(Some((prefix, &decoded[end..])));
            PathAndQuery::try_from(replaced.as_ref()).expect("a path for an upstream");
            unclimbing(&replaced);
            let seen = decoded_path(&replaced).expect("a path for an upstream");
            assert!(seen.starts_with(prefix.trim_end_matches('/')), "{replaced} is not below {prefix}");
        }
    }
}

fn sound(path: &str) {
    let names = path.strip_prefix('/').expect("a path starts with a slash");
    assert!(!path.contains('\0'));
    let names: Vec<_> = names.split('/').collect();
    let (last, folders) = names.split_last().expect("at least one");
    assert!(folders.iter().all(|name| !matches!(*name, "" | "." | "..")), "{path:?}");
    assert!(!matches!(*last, "." | ".."), "{path:?}");
}

/// However often it is decoded on its way, nothing in it is a dot segment.
fn unclimbing(path: &str) {
    let once: Vec<u8> = percent_encoding::percent_decode_str(path).collect();
    assert!(once.split(|byte| *byte == b'/').all(|name| name != b"." && name != b".."), "{path:?}");
}
