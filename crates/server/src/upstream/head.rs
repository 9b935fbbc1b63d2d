//! Message heads as they are passed on. Hop-by-hop fields are removed, fields about the client added
//! ([`super::forwarded`]), and the framing is made new.
//!
//! The framing of a request follows from its body; the client's `Content-Length` and `Transfer-Encoding` are
//! never passed on. `Expect` is not passed on either: this server answers it, and sends the upstream the body
//! immediately.

use std::io;

use bytes::{BufMut as _, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version,
    header::{
        CONNECTION, CONTENT_LENGTH, COOKIE, HOST, PROXY_AUTHENTICATE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
    },
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body::Body as _;
use http1::{Coding, welcomes_trailers, write_field, write_length};

use super::{
    Ask, Outbound,
    forwarded::{self, forget_client, tells_of_client},
};
use crate::body::RequestBody;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");

/// The name of this server in `Via`.
const PSEUDONYM: &[u8] = b"serpent";
/// A request that passed through here more often than this is in a loop.
const MOST_TIMES_HERE: usize = 8;

/// The parts of a request's head, except its fields, that are the same for every attempt.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) method: Method,
    path: PathAndQuery,
    /// The host that the upstream sees; `None`: the server's own.
    host: Option<HeaderValue>,
    /// The protocols that the client asks to upgrade to.
    pub(super) upgrade: Option<HeaderValue>,
    /// Whether the client accepts trailers.
    trailers: bool,
    framing: Framing,
    /// Fields that are not yet in the header map. HTTP/1.1 writes them directly, which saves inserting them.
    ours: Option<Ours>,
}

/// The fields about the client and about this proxy.
#[derive(Debug)]
struct Ours {
    via: HeaderValue,
    client: forwarded::Fields,
}

impl Ours {
    fn each(&self, mut tell: impl FnMut(&HeaderName, &HeaderValue)) {
        tell(&VIA, &self.via);
        self.client.each(tell);
    }
}

/// How the body is framed over HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// No body, and no field about one.
    None,
    /// A body of known length, which may be 0.
    Length(u64),
    Chunked,
}

/// Which special fields a request has. One pass over all names is cheaper than a look-up for each special
/// field.
#[derive(Clone, Copy, Debug, Default)]
struct There {
    via: bool,
    length: bool,
    cookies: bool,
    between: bool,
    tells_of_client: bool,
}

impl There {
    fn of(headers: &HeaderMap) -> Self {
        let mut there = Self::default();
        for name in headers.keys() {
            there.via |= *name == VIA;
            there.length |= *name == CONTENT_LENGTH;
            there.cookies |= *name == COOKIE;
            there.between |= is_between(name);
            there.tells_of_client |= tells_of_client(name);
        }
        there
    }
}

/// Why a request is not passed on.
#[derive(Debug)]
pub(super) enum Unfit {
    /// It has passed through this server too often; how often.
    Loops(usize),
    /// It cannot be expressed in a message to the upstream.
    Unspeakable(io::Error),
}

/// Prepares the head of a request for any server of its upstream.
pub(super) fn request(request: Outbound, ask: &Ask<'_>) -> Result<(Head, HeaderMap, RequestBody), Unfit> {
    let Outbound { method, path, version, mut headers, body } = request;
    let there = There::of(&headers);
    if there.via {
        let times = times_here(&headers);
        if times > MOST_TIMES_HERE {
            return Err(Unfit::Loops(times));
        }
    }
    let refused = |what: &str| Err(Unfit::Unspeakable(io::Error::new(io::ErrorKind::InvalidInput, what.to_owned())));
    if method == Method::CONNECT {
        return refused("CONNECT is for proxies of another kind");
    }
    let (upgrade, trailers) = if there.between { strip_request(&mut headers) } else { (None, false) };
    let upgrade = upgrade.filter(|_| version == Version::HTTP_11 && matches!(body, RequestBody::Empty));
    if there.tells_of_client {
        forget_client(&mut headers, ask.believed);
    }
    let mut ours = Some(Ours { via: via(version), client: forwarded::Fields::of(ask) });
    if let Some(Ours { via, client }) = ours.take_if(|_| ask.believed.is_some() || ask.rules.is_some()) {
        // A trusted proxy sent fields about the client too, and header rules may name any field, so the map
        // gets them now.
        headers.append(VIA, via);
        forwarded::tell_behind(&mut headers, &client);
    }
    let mut host = None;
    if ask.keep_host && !ask.host.is_empty() {
        let Ok(value) = HeaderValue::from_str(ask.host) else { return refused("the host is no field value") };
        host = Some(value);
    }
    if let Some(rules) = ask.rules {
        // A `Host` field present after the rules was set by them, not by the client.
        headers.remove(HOST);
        rules.apply(&mut headers);
        // Header rules cannot set the framing or hop-by-hop fields.
        strip_request(&mut headers);
        if let Some(value) = headers.remove(HOST) {
            host = Some(value);
        }
    }
    if there.cookies || ask.rules.is_some() {
        join_cookies(&mut headers);
    }
    let framing = match body.len_bytes() {
        None if body.is_end_stream() => Framing::Length(0),
        None => Framing::Chunked,
        Some(0) if there.length || matches!(method, Method::POST | Method::PUT | Method::PATCH) => Framing::Length(0),
        Some(0) => Framing::None,
        // Only a chunked body can have trailers.
        Some(_) if headers.contains_key(TRAILER) => Framing::Chunked,
        Some(length) => Framing::Length(length),
    };
    Ok((Head { method, path, host, upgrade, trailers, framing, ours }, headers, body))
}

impl Head {
    /// Writes the head for an HTTP/1.1 server, with these fields.
    pub(super) fn write(&self, headers: &HeaderMap, own_host: &HeaderValue, out: &mut Vec<u8>) {
        out.extend_from_slice(self.method.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.path.as_str().as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        write_field(&HOST, self.host.as_ref().unwrap_or(own_host), out);
        for (name, value) in headers.iter().filter(|(name, _)| **name != HOST) {
            write_field(name, value, out);
        }
        if let Some(ours) = &self.ours {
            ours.each(|name, value| write_field(name, value, out));
        }
        out.extend_from_slice(match (&self.upgrade, self.trailers) {
            (Some(_), true) => b"connection: upgrade, te\r\n",
            (Some(_), false) => b"connection: upgrade\r\n",
            (None, true) => b"connection: te\r\n",
            (None, false) => b"",
        });
        if let Some(protocols) = &self.upgrade {
            write_field(&UPGRADE, protocols, out);
        }
        if self.trailers {
            out.extend_from_slice(b"te: trailers\r\n");
        }
        match self.framing {
            Framing::None => {}
            Framing::Length(length) => write_length(length, out),
            Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The framing of the body over HTTP/1.1.
    pub(super) fn coding(&self) -> Coding {
        match self.framing {
            Framing::None | Framing::Length(0) => Coding::None,
            Framing::Length(length) => Coding::Length(length),
            Framing::Chunked => Coding::Chunked { trailers: true },
        }
    }

    /// The request for an HTTP/2 server.
    pub(super) fn request<B>(
        &self,
        mut headers: HeaderMap,
        body: B,
        tls: bool,
        authority: &Authority,
    ) -> io::Result<Request<B>> {
        headers.remove(HOST);
        if let Some(ours) = &self.ours {
            ours.each(|name, value| {
                headers.append(name, value.clone());
            });
        }
        if self.trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        let authority = match &self.host {
            Some(host) => Authority::try_from(host.as_bytes())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("host: {error}")))?,
            None => authority.clone(),
        };
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
        uri.authority = Some(authority);
        uri.path_and_query = Some(self.path.clone());
        let uri = Uri::from_parts(uri).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// This proxy's entry in `Via` (RFC 9110, section 7.6.3), which names the client's protocol.
fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_09 | Version::HTTP_10 => "1.0 serpent",
        Version::HTTP_2 => "2.0 serpent",
        _ => "1.1 serpent",
    })
}

/// How often a request has passed through this proxy or others of its name, counted in `Via`.
fn times_here(headers: &HeaderMap) -> usize {
    let is_ours = |entry: &&[u8]| {
        let mut words = entry.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.nth(1).is_some_and(|by| by.eq_ignore_ascii_case(PSEUDONYM))
    };
    let entries = |value: &HeaderValue| value.as_bytes().split(|&byte| byte == b',').filter(is_ours).count();
    headers.get_all(VIA).iter().map(entries).sum()
}

/// Removes fields that a trailer must not have (RFC 9110, section 6.5.1), because a recipient that merges
/// them into the head would be deceived. They are fields about framing, routing, handling, content and
/// identity, and hop-by-hop fields.
pub(super) fn trailers(trailers: &mut HeaderMap) {
    let options = take_connection(trailers);
    let barred = |name: &&HeaderName| {
        let name = name.as_str();
        let barred = matches!(
            name,
            // Framing, routing and hop-by-hop.
            "content-length" | "transfer-encoding" | "trailer" | "host" | "te" | "upgrade" | "keep-alive"
                | "proxy-connection" | "http2-settings" | "via"
            // Interpretation of the body.
                | "content-encoding" | "content-type" | "content-range"
            // Handling of the message.
                | "cache-control" | "expect" | "max-forwards" | "pragma" | "range" | "age" | "date" | "expires"
                | "location" | "retry-after" | "vary" | "warning"
            // Identity.
                | "authorization" | "www-authenticate" | "proxy-authenticate" | "proxy-authorization"
                | "proxy-authentication-info" | "cookie" | "set-cookie"
        );
        barred || name.starts_with("if-")
    };
    let found: Vec<HeaderName> =
        trailers.keys().filter(|name| barred(name) || tells_of_client(name)).cloned().collect();
    for name in options.named.into_iter().chain(found) {
        trailers.remove(name);
    }
}

/// Prepares the head of a response for any client. `exact` is the length of its body, if known; `method` is
/// the request's.
pub(super) fn response(status: StatusCode, headers: &mut HeaderMap, exact: Option<u64>, method: &Method) {
    let (mut connection, mut between, mut length) = (false, false, false);
    for name in headers.keys() {
        match name.as_str() {
            "connection" => connection = true,
            "content-length" => length = true,
            "upgrade"
            | "transfer-encoding"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authentication-info"
            | "te" => between = true,
            _ => {}
        }
    }
    let options = if connection { take_connection(headers) } else { Options::default() };
    let (mut protocols, mut length_is_wrong) = (None, false);
    if between {
        protocols = headers.remove(UPGRADE);
        // The transfer coding framed the body. A length beside it could be believed by another recipient.
        length_is_wrong = headers.remove(TRANSFER_ENCODING).is_some();
        for name in [KEEP_ALIVE, PROXY_CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHENTICATION_INFO, TE] {
            headers.remove(name);
        }
    }
    if status == StatusCode::SWITCHING_PROTOCOLS {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        if let Some(protocols) = protocols {
            headers.insert(UPGRADE, protocols);
        }
    }
    length_is_wrong |= status == StatusCode::NO_CONTENT || status.is_informational();
    if length && length_is_wrong {
        headers.remove(CONTENT_LENGTH);
    } else if length {
        mend_length(headers, exact, *method == Method::HEAD || status == StatusCode::NOT_MODIFIED);
    }
    for name in options.named {
        headers.remove(name);
    }
}

/// Reduces `Content-Length` to one valid value. Lengths that differ are removed.
fn mend_length(headers: &mut HeaderMap, exact: Option<u64>, bodiless: bool) {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return };
    if lengths.next().is_none() && !first.is_empty() && first.as_bytes().iter().all(u8::is_ascii_digit) {
        return;
    }
    // For a response to HEAD, the length has not been checked by the framing.
    let said = || {
        let mut said = None;
        for value in headers.get_all(CONTENT_LENGTH) {
            for part in value.to_str().ok()?.split(',') {
                let part: u64 = part.trim().parse().ok()?;
                if said.is_some_and(|said| said != part) {
                    return None;
                }
                said = Some(part);
            }
        }
        said
    };
    let length = if bodiless { said() } else { exact };
    headers.remove(CONTENT_LENGTH);
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
}

/// The options of `Connection`.
#[derive(Default)]
struct Options {
    upgrade: bool,
    /// Other fields that are hop-by-hop.
    named: Vec<HeaderName>,
}

/// Takes out `Connection` and the fields that it names.
pub(crate) fn take_named(headers: &mut HeaderMap) {
    for name in take_connection(headers).named {
        headers.remove(name);
    }
}

fn take_connection(headers: &mut HeaderMap) -> Options {
    let mut options = Options::default();
    for value in headers.get_all(CONNECTION) {
        for option in value.as_bytes().split(|&byte| byte == b',') {
            let option = option.trim_ascii();
            if option.eq_ignore_ascii_case(b"keep-alive") || option.eq_ignore_ascii_case(b"close") {
                continue;
            }
            if option.eq_ignore_ascii_case(b"upgrade") {
                options.upgrade = true;
            } else if let Ok(name) = HeaderName::from_bytes(option) {
                options.named.push(name);
            }
        }
    }
    headers.remove(CONNECTION);
    options
}

/// Removes hop-by-hop fields from a request. Returns the protocols of an upgrade, and whether trailers are
/// accepted.
fn strip_request(headers: &mut HeaderMap) -> (Option<HeaderValue>, bool) {
    let options = take_connection(headers);
    let trailers = headers.get_all(TE).iter().any(|value| welcomes_trailers(value.as_bytes()));
    let upgrade = if options.upgrade { protocols(headers) } else { None };
    for name in options.named {
        headers.remove(name);
    }
    let found: Vec<HeaderName> = headers.keys().filter(|name| is_between(name)).cloned().collect();
    for name in found {
        headers.remove(name);
    }
    (upgrade, trailers)
}

/// Whether a field of a request is hop-by-hop or frames its body.
fn is_between(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "te"
            | "upgrade"
            | "transfer-encoding"
            | "content-length"
            | "expect"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authorization"
            | "proxy-authenticate"
            | "http2-settings"
    )
}

/// The protocols to which an upgrade is allowed. HTTP/2 and TLS are excluded, because they would carry
/// requests past all rules.
fn protocols(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut kept = BytesMut::new();
    for value in headers.get_all(UPGRADE) {
        for protocol in value.as_bytes().split(|&byte| byte == b',') {
            let protocol = protocol.trim_ascii();
            let name = protocol.split(|&byte| byte == b'/').next().unwrap_or_default();
            let barred: [&[u8]; 4] = [b"h2c", b"h2", b"http", b"tls"];
            if name.is_empty() || barred.iter().any(|barred| name.eq_ignore_ascii_case(barred)) {
                continue;
            }
            if !kept.is_empty() {
                kept.put_slice(b", ");
            }
            kept.put_slice(protocol);
        }
    }
    if kept.is_empty() { None } else { HeaderValue::from_maybe_shared(kept.freeze()).ok() }
}

/// Sets a field to a text composed of field values.
pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, text: &mut BytesMut) {
    match HeaderValue::from_maybe_shared(text.split().freeze()) {
        Ok(value) => {
            headers.insert(name, value);
        }
        Err(_) => {
            headers.remove(name);
        }
    }
}

/// Joins the `Cookie` fields of HTTP/2 (RFC 9113, section 8.2.3) into one, as HTTP/1.1 requires.
fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).iter();
    if crumbs.next().is_none() || crumbs.next().is_none() {
        return;
    }
    let mut whole = BytesMut::new();
    for crumb in headers.get_all(COOKIE) {
        if !whole.is_empty() {
            whole.put_slice(b"; ");
        }
        whole.put_slice(crumb.as_bytes());
    }
    set(headers, COOKIE, &mut whole);
}

#[cfg(test)]
mod tests;
