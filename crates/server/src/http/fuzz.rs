//! Fuzz targets: the bytes of a connection, of HTTP/1 and of HTTP/2, and paths.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Request, Response,
    request::Parts,
    uri::{Authority, PathAndQuery},
};
use http_body::Body;
use http_body_util::BodyExt as _;
use http2::Incoming as RequestBody;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    drive_http2,
    flood::Account,
    framed::Framed,
    frames::{self, FrameHead, Frames},
    http1::{HTTP2_PREFACE, Protocol, Refused, Session, interim::Interims},
    settings::HttpSettings,
};
use crate::{
    body::{IncomingBody, Upload, full},
    classify::{decoded_path, encoded_path},
    config::Limits,
    connection_state::ConnectionState,
    metrics::WorkerMetrics,
    pipeline::target::Target,
};

/// The bytes of an HTTP/1 connection. However they are cut, the same requests are found in them, with the same bodies;
/// these are those that a plain reading of the standard finds, and hyper does not read them otherwise.
pub fn requests(bytes: &[u8]) {
    // Below what hyper takes of chunk extensions.
    let bytes = &bytes[..bytes.len().min(4000)];
    // Pieces of a length that the bytes say, so that the input is nothing but a connection.
    let odd = 2 + bytes.iter().fold(0, |sum, byte| (sum * 31 + usize::from(*byte)) % 61);
    let served = serve(bytes, bytes.len().max(1));
    for piece in [1, odd] {
        assert_eq!(serve(bytes, piece), served, "pieces of {piece}");
    }
    let Some(served) = served else { return };
    let for_hyper = &served.requests[..read_plainly(bytes, &served.requests)];
    let by_hyper = served_by_hyper(bytes);
    assert!(for_hyper.len() <= by_hyper.len(), "hyper takes whatever is taken here");
    for (ours, hypers) in for_hyper.iter().zip(by_hyper) {
        assert_eq!(ours.method, hypers.method);
        assert_eq!(ours.target, hypers.target);
        assert!(ours.body.is_none() || ours.body == hypers.body, "one reading of the body: {ours:?} {hypers:?}");
    }
}

/// Compares the requests that were found with a plain reading of RFC 9112. Returns how many of them come before the first
/// request of a version that hyper refuses.
fn read_plainly(bytes: &[u8], requests: &[Seen]) -> usize {
    let (mut from, mut for_hyper) = (0, requests.len());
    for (at, request) in requests.iter().enumerate() {
        while bytes[from..].starts_with(b"\r\n") {
            from += 2;
        }
        let head = bytes[from..].windows(4).position(|end| end == b"\r\n\r\n").expect("the end of a head");
        let (head, rest) = (characters(&bytes[from..from + head]), from + head + 4);
        let mut lines = head.split("\r\n");
        let words: Vec<_> = lines.next().expect("a line").split(' ').collect();
        let [method, target, version] = words[..] else { panic!("three words: {head:?}") };
        let minor = version.strip_prefix("HTTP/1.").expect("a version");
        assert!(minor.len() == 1 && minor.bytes().all(|byte| byte.is_ascii_digit()), "{head:?}");
        if !matches!(minor, "0" | "1") {
            for_hyper = for_hyper.min(at);
        }
        assert_eq!(request.method, method);
        // An absolute one is written anew by `Uri`.
        assert!(request.target == target || !target.starts_with('/'), "{request:?} {head:?}");
        let (mut lengths, mut codings, mut hosts, mut fields) = (Vec::new(), Vec::new(), 0, Vec::new());
        for line in lines {
            assert!(!line.contains(['\n', '\r', '\0']), "{line:?}");
            let (name, value) = line.split_once(':').expect("a field");
            assert!(!name.is_empty() && !name.contains([' ', '\t']), "{line:?}");
            let (name, value) = (name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned());
            match name.as_str() {
                "host" => {
                    hosts += 1;
                    assert!(
                        value.is_empty() || value.starts_with([':', '[']) || Authority::try_from(&*value).is_ok(),
                        "{line:?}"
                    );
                }
                "content-length" => lengths.push(value.clone()),
                "transfer-encoding" => codings.push(value.to_ascii_lowercase()),
                _ => {}
            }
            fields.push((name, value));
        }
        fields.sort();
        assert_eq!(request.fields, fields);
        assert!(lengths.len() + codings.len() <= 1, "a body has one length: {head:?}");
        assert!(hosts == 1 || (hosts == 0 && version == "HTTP/1.0"), "{head:?}");
        let rest = &bytes[rest..];
        let body = match (lengths.first(), codings.first()) {
            (Some(length), _) => {
                assert!(length.bytes().all(|byte| byte.is_ascii_digit()));
                let length: usize = length.parse().expect("within the limit");
                rest.get(..length).map(|body| (body.to_vec(), length))
            }
            (_, Some(coding)) => {
                assert_eq!(coding, "chunked");
                dechunked(rest).and_then(|(body, taken)| Some((body?, taken)))
            }
            (None, None) => Some((Vec::new(), 0)),
        };
        let (body, taken) = body.map_or((None, None), |(body, taken)| (Some(body), Some(taken)));
        assert_eq!(request.body, body, "{head:?}");
        match taken {
            Some(taken) => from = bytes.len() - rest.len() + taken,
            None => assert_eq!(at + 1, requests.len(), "nothing is read behind a body that is broken"),
        }
    }
    for_hyper
}

/// A chunked body and what it takes; `None`: broken, or not whole. A body whose trailers are no fields, or too many, is
/// broken too, though its end is known.
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
        let value = characters(&line[colon + 1..]);
        let value: Vec<u8> = value.trim_matches([' ', '\t']).chars().map(|it| it as u8).collect();
        HeaderName::from_bytes(&line[..colon]).is_ok() && HeaderValue::from_bytes(&value).is_ok()
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
    /// The status with which the next request was refused; `None`: none was.
    refused: Option<u16>,
}

#[derive(Debug, PartialEq)]
struct Seen {
    method: String,
    target: String,
    fields: Vec<(String, String)>,
    /// `None`: broken, or not whole.
    body: Option<Vec<u8>>,
}

impl Seen {
    async fn of<B: Body<Data = Bytes>>(parts: &Parts, body: B) -> Self {
        let body = body.collect().await.ok().map(|body| body.to_bytes().to_vec());
        let field = |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), characters(value.as_bytes()));
        let mut fields: Vec<_> = parts.headers.iter().map(field).collect();
        fields.sort();
        Self { method: parts.method.to_string(), target: written(&parts.uri), fields, body }
    }
}

/// The requests that are found on a connection. `None` for HTTP/2, and where nothing comes.
fn serve(bytes: &[u8], piece: usize) -> Option<Served> {
    RUNTIME.with(|runtime| runtime.block_on(connection(bytes, piece)))
}

thread_local! {
    static RUNTIME: tokio::runtime::Runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
}

async fn connection(bytes: &[u8], piece: usize) -> Option<Served> {
    let HttpSettings { head, patience, .. } = HttpSettings::new(&limits());
    let mut session = Session::new(Pieces::new(bytes, piece), head, patience, CancellationToken::new());
    if std::future::poll_fn(|cx| session.poll_protocol(cx)).await != Some(Protocol::Http1) {
        return None;
    }
    let (requests, refused) = (Mutex::new(Vec::new()), Mutex::new(None));
    let answer = |head: Box<Parts>, body: Option<Upload>| {
        let requests = &requests;
        Box::pin(async move {
            let seen = Seen::of(&head, IncomingBody::from(body)).await;
            requests.lock().push(seen);
            Response::new(full(""))
        })
    };
    let refuse = |request: Refused| {
        *refused.lock() = Some(request.status.as_u16());
        Response::new(full(""))
    };
    session.serve(&Interims::default(), answer, refuse).await;
    Some(Served { requests: requests.into_inner(), refused: refused.into_inner() })
}

/// The requests that hyper finds on a connection.
fn served_by_hyper(bytes: &[u8]) -> Vec<Seen> {
    let requests = Mutex::new(Vec::new());
    let service = service_fn(|request: Request<Incoming>| {
        let requests = &requests;
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let seen = Seen::of(&head, body).await;
            requests.lock().push(seen);
            Ok::<_, Infallible>(Response::new(full("")))
        })
    });
    let stream = TokioIo::new(Pieces::new(bytes, bytes.len().max(1)));
    let http = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .header_read_timeout(None)
        .serve_connection(stream, service);
    let _ = RUNTIME.with(|runtime| runtime.block_on(http));
    requests.into_inner()
}

/// A target as the client wrote it, but for absolute ones, which have a path of one way to write it.
fn written(uri: &http::Uri) -> String {
    let text = match (uri.scheme(), uri.authority()) {
        (Some(scheme), Some(authority)) if uri.path() == "*" => format!("{scheme}://{authority}/"),
        _ => uri.to_string(),
    };
    characters(text.as_bytes())
}

/// One for each byte, whatever they are.
fn characters(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// A client that sends bytes in pieces, closes that side, and takes all that comes.
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
}

impl Pieces {
    pub(crate) fn new(bytes: &[u8], piece: usize) -> Self {
        Self { bytes: bytes.to_vec(), at: 0, piece }
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

/// The bytes of an HTTP/2 client behind the preface. However they are cut, they have the same frames, which are those
/// of a plain reading, and as many are taken. The connection ends with its input, and the client gets whole frames.
pub fn http2(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(32_000)];
    let plain = frames_plainly(bytes);
    let (frames, taken) = frames_in(bytes, bytes.len().max(1));
    assert_eq!(frames, plain);
    let odd = 2 + bytes.iter().fold(0, |sum, byte| (sum * 31 + usize::from(*byte)) % 61);
    for piece in [1, odd] {
        assert_eq!(frames_in(bytes, piece), (frames.clone(), taken), "pieces of {piece}");
    }
    for piece in [odd, bytes.len().max(1)] {
        let (sent, floods) = served_over_http2(bytes, piece);
        let mut ours = Frames::behind(0);
        let mut last = None;
        ours.read(&sent, |frame| last = Some(frame.kind));
        assert!(ours.is_between(), "whole frames: {}", sent.escape_ascii());
        assert!(floods <= u64::from(taken < frames.len()), "none is cut off that sends what it may");
        assert!(floods == 0 || last == Some(frames::kind::GOAWAY), "{}", sent.escape_ascii());
    }
}

/// The frames whose head is whole, and how many of them a client may send.
fn frames_in(bytes: &[u8], piece: usize) -> (Vec<FrameHead>, usize) {
    let (mut frames, mut heads) = (Frames::behind(0), Vec::new());
    for piece in bytes.chunks(piece) {
        frames.read(piece, |head| heads.push(head));
    }
    let now = Instant::now();
    let mut account = Account::new(now);
    let taken = heads.iter().take_while(|head| account.received(**head, now).is_ok()).count();
    (heads, taken)
}

/// The same by the letter of RFC 9113, section 4.1.
fn frames_plainly(mut bytes: &[u8]) -> Vec<FrameHead> {
    let mut heads = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(9) {
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum: u32, byte| sum << 8 | u32::from(*byte));
        let len = number(&head[..3]) as usize;
        heads.push(FrameHead { len, kind: head[3], stream: number(&head[5..]) % (1 << 31) });
        bytes = rest.get(len..).unwrap_or_default();
    }
    heads
}

/// The bytes that the client gets, and how often it is cut off.
fn served_over_http2(bytes: &[u8], piece: usize) -> (Vec<u8>, u64) {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let bytes = [HTTP2_PREFACE, bytes].concat();
    // Between two pieces, all else that can go on does.
    let polls = 4 * bytes.len().div_ceil(piece) + 10_000;
    let stream = YieldingPieces { pieces: Pieces::new(&bytes, piece), rests: false, sent: sent.clone() };
    let metrics = Arc::<WorkerMetrics>::default();
    let answer = |request: Request<RequestBody>, _| async move {
        let length = 100 * request.uri().path().len();
        let body = request.into_body().collect().await;
        Response::new(full(if body.is_ok() { "x".repeat(length) } else { String::new() }))
    };
    // Of its own, so that streams which are left over end with it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let stream = Framed::new(stream, Bytes::new(), metrics.clone());
        let mut serving = drive_http2(
            stream,
            &HttpSettings::new(&limits()),
            Arc::new(ConnectionState::new(CancellationToken::new())),
            || false,
            answer,
        );
        for _ in 0..polls {
            if std::future::poll_fn(|cx| Poll::Ready(serving.as_mut().poll(cx))).await.is_ready() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("the connection does not end with its input");
    });
    drop(runtime);
    let sent = std::mem::take(&mut *sent.lock());
    (sent, metrics.http2_floods.load(Relaxed))
}

/// As [`Pieces`], but other tasks have their turn between two pieces, and the bytes sent are kept.
struct YieldingPieces {
    pieces: Pieces,
    rests: bool,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for YieldingPieces {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.rests = !self.rests;
        if self.rests {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Pin::new(&mut self.pieces).poll_read(cx, buf)
    }
}

impl AsyncWrite for YieldingPieces {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.sent.lock().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The path of a request. Routes and rules match the path that an upstream gets, and no segment that climbs is left in
/// it.
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
