//! Heads of messages as they go on: hop-by-hop fields out, the client told of ([`super::forwarded`]), the framing made new.
//!
//! What frames a request is made new from its body; `Content-Length` and `Transfer-Encoding` of the client never go on. `Expect`
//! does not go on either: the client is answered here, and the upstream is sent the body right away.

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

/// By this name we are in `Via`.
const PSEUDONYM: &[u8] = b"serpent";
/// What has come through here more often goes round in a circle.
const MOST_TIMES_HERE: usize = 8;

/// What of a request's head is the same for every attempt, beside its fields.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) method: Method,
    path: PathAndQuery,
    /// The host that the upstream is to see; `None`: the server's own.
    host: Option<HeaderValue>,
    /// The protocols that the client would rather speak.
    pub(super) upgrade: Option<HeaderValue>,
    /// Whether trailers are taken.
    trailers: bool,
    framing: Framing,
    /// What of our fields is not among the others: there is no map to put them into that nobody looks at.
    ours: Option<Ours>,
}

/// Fields that tell of the client and of us.
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
    /// No body, and nothing said about it.
    None,
    /// Of known length, which may be 0.
    Length(u64),
    Chunked,
}

/// What of the fields of a request is there that has to be looked at. One look at all is cheaper than one for each that is not there.
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
    /// It has come through here so often.
    Loops(usize),
    /// The upstream could not be told of it.
    Unspeakable(io::Error),
}

/// Makes the head of a request what every upstream may see of it.
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
        // A proxy that is believed has told of the client too, and rules may speak of all fields.
        headers.append(VIA, via);
        forwarded::tell_behind(&mut headers, &client);
    }
    let mut host = None;
    if ask.keep_host && !ask.host.is_empty() {
        let Ok(value) = HeaderValue::from_str(ask.host) else { return refused("the host is no field value") };
        host = Some(value);
    }
    if let Some(rules) = ask.rules {
        // The client's is not a rule's.
        headers.remove(HOST);
        rules.apply(&mut headers);
        // What frames the message, and what is between us and the upstream only, is no rule's to say.
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
        // Only chunks can have trailers behind them.
        Some(_) if headers.contains_key(TRAILER) => Framing::Chunked,
        Some(length) => Framing::Length(length),
    };
    Ok((Head { method, path, host, upgrade, trailers, framing, ours }, headers, body))
}

impl Head {
    /// Writes the head for a server of HTTP/1.1, with these fields.
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

    /// How the body is framed behind it.
    pub(super) fn coding(&self) -> Coding {
        match self.framing {
            Framing::None | Framing::Length(0) => Coding::None,
            Framing::Length(length) => Coding::Length(length),
            Framing::Chunked => Coding::Chunked { trailers: true },
        }
    }

    /// The request for a server of HTTP/2.
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

/// What `Via` says of us (RFC 9110 7.6.3), after the protocol that the client speaks.
fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_09 | Version::HTTP_10 => "1.0 serpent",
        Version::HTTP_2 => "2.0 serpent",
        _ => "1.1 serpent",
    })
}

/// How often a request has come through here, or through others of our name, as `Via` says.
fn times_here(headers: &HeaderMap) -> usize {
    let is_ours = |entry: &&[u8]| {
        let mut words = entry.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.nth(1).is_some_and(|by| by.eq_ignore_ascii_case(PSEUDONYM))
    };
    let entries = |value: &HeaderValue| value.as_bytes().split(|&byte| byte == b',').filter(is_ours).count();
    headers.get_all(VIA).iter().map(entries).sum()
}

/// Takes out of a trailer what must not be there (RFC 9110 6.5.1), because whoever merges it into the head would be deceived: what
/// frames and routes a message, what changes how it is handled or read, who somebody is, and what is for the next hop only.
pub(super) fn trailers(trailers: &mut HeaderMap) {
    let options = take_connection(trailers);
    let barred = |name: &&HeaderName| {
        let name = name.as_str();
        let barred = matches!(
            name,
            // Framing, routing, and the next hop.
            "content-length" | "transfer-encoding" | "trailer" | "host" | "te" | "upgrade" | "keep-alive"
                | "proxy-connection" | "http2-settings" | "via"
            // How the body is read.
                | "content-encoding" | "content-type" | "content-range"
            // How the message is handled.
                | "cache-control" | "expect" | "max-forwards" | "pragma" | "range" | "age" | "date" | "expires"
                | "location" | "retry-after" | "vary" | "warning"
            // Who somebody is.
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

/// Makes the head of a response what any client may see of it. `exact` is the length of its body, where it is known, and `method`
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
        // If there was one the body was read by it; a length beside it would be believed by others.
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

/// One length, said once. Of lengths that differ there is no body.
fn mend_length(headers: &mut HeaderMap, exact: Option<u64>, bodiless: bool) {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return };
    if lengths.next().is_none() && !first.is_empty() && first.as_bytes().iter().all(u8::is_ascii_digit) {
        return;
    }
    // Of a response to HEAD, nobody has looked at the length.
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

/// What `Connection` says.
#[derive(Default)]
struct Options {
    upgrade: bool,
    /// Other fields that are for the next hop only.
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

/// Takes out what is between the client and us. The protocols of an upgrade, and whether trailers are taken.
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

/// Whether a field of a request is between the client and us only, or frames its body.
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

/// The protocols that may be changed to. Not HTTP/2 and TLS: whoever speaks these past us is seen by no rule.
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

/// Sets a field to a text made of field values.
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

/// One `Cookie` field out of the crumbs of HTTP/2 (RFC 9113 8.2.3), of which HTTP/1.1 has none.
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
