//! Heads of messages as they go on: hop-by-hop fields out, the client told of, the framing made new.
//!
//! What frames a request is made new from its body; `Content-Length` and `Transfer-Encoding` of the client never go on. `Expect`
//! does not go on either: the client is answered here, and the upstream is sent the body right away.

use std::io;

use bytes::{BufMut as _, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version,
    header::{
        CONNECTION, CONTENT_LENGTH, COOKIE, FORWARDED, HOST, PROXY_AUTHENTICATE, TE, TRAILER, TRANSFER_ENCODING,
        UPGRADE, VIA,
    },
    request::Parts,
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body::Body as _;

use super::{Ask, http1::Coding};
use crate::{
    body::RequestBody,
    config::{ForwardedField, HeaderRules},
};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");

/// By this name we are in `Via`.
const PSEUDONYM: &[u8] = b"serpent";
/// What has come through here more often goes round in a circle.
pub(super) const MOST_TIMES_HERE: usize = 8;

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

/// Makes the head of a request what every upstream may see of it.
pub(super) fn request(parts: Parts, body: &RequestBody, ask: &Ask<'_>) -> io::Result<(Head, HeaderMap)> {
    let Parts { method, uri, version, mut headers, .. } = parts;
    let refused = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what.to_owned()));
    if method == Method::CONNECT {
        return refused("CONNECT is for proxies of another kind");
    }
    let path = match uri.into_parts().path_and_query {
        Some(path) => path,
        None => PathAndQuery::from_static("/"),
    };
    let had_length = headers.contains_key(CONTENT_LENGTH);
    let (upgrade, trailers) = strip_request(&mut headers);
    headers.append(VIA, via(version));
    let upgrade = upgrade.filter(|_| version == Version::HTTP_11 && matches!(body, RequestBody::Empty));
    tell_of_client(&mut headers, ask);
    let mut host = None;
    if ask.keep_host && !ask.host.is_empty() {
        let Ok(value) = HeaderValue::from_str(ask.host) else { return refused("the host is no field value") };
        host = Some(value);
    }
    if let Some(rules) = ask.rules {
        // The client's is not a rule's.
        headers.remove(HOST);
        apply(rules, &mut headers);
        // What frames the message, and what is between us and the upstream only, is no rule's to say.
        strip_request(&mut headers);
        if let Some(value) = headers.remove(HOST) {
            host = Some(value);
        }
    }
    join_cookies(&mut headers);
    let framing = match body.len_bytes() {
        None if body.is_end_stream() => Framing::Length(0),
        None => Framing::Chunked,
        Some(0) if had_length || matches!(method, Method::POST | Method::PUT | Method::PATCH) => Framing::Length(0),
        Some(0) => Framing::None,
        // Only chunks can have trailers behind them.
        Some(_) if headers.contains_key(TRAILER) => Framing::Chunked,
        Some(length) => Framing::Length(length),
    };
    Ok((Head { method, path, host, upgrade, trailers, framing }, headers))
}

impl Head {
    /// Writes the head for a server of HTTP/1.1, with these fields.
    pub(super) fn write(&self, headers: &HeaderMap, own_host: &HeaderValue, out: &mut Vec<u8>) {
        out.extend_from_slice(self.method.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.path.as_str().as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        write_field(&HOST, self.host.as_ref().unwrap_or(own_host), out);
        for (name, value) in headers {
            if *name != HOST {
                write_field(name, value, out);
            }
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
            Framing::Length(length) => write_field(&CONTENT_LENGTH, &length.into(), out),
            Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
        out.extend_from_slice(b"\r\n");
    }

    /// How the body is framed behind it.
    pub(super) fn coding(&self) -> Coding {
        match self.framing {
            Framing::None | Framing::Length(0) => Coding::None,
            Framing::Length(length) => Coding::Length(length),
            Framing::Chunked => Coding::Chunked,
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

/// Writes a field as HTTP/1.1 has it.
pub(super) fn write_field(name: &HeaderName, value: &HeaderValue, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
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
pub(super) fn times_here(headers: &HeaderMap) -> usize {
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
    // One look at what is there is cheaper than to look for each of what is not.
    if !headers.keys().any(is_between) {
        return (None, false);
    }
    let options = take_connection(headers);
    let trailers = headers.get_all(TE).iter().any(|value| {
        value.as_bytes().split(|&byte| byte == b',').any(|coding| {
            coding.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii().eq_ignore_ascii_case(b"trailers")
        })
    });
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

/// `X-Forwarded-*` and `Forwarded` (RFC 7239). The word of earlier proxies stays only where it is believed.
fn tell_of_client(headers: &mut HeaderMap, ask: &Ask<'_>) {
    forget_client(headers, ask.believed);
    // Of what is told, something may be there already only where somebody is believed.
    let told = ask.believed.is_some();
    let mut text = BytesMut::with_capacity(128 + 2 * ask.host.len());

    if told {
        append(&mut text, headers, &X_FORWARDED_FOR);
    }
    text.put_slice(ask.client.0.as_bytes());
    set(headers, X_FORWARDED_FOR, &mut text);

    if told {
        append(&mut text, headers, &FORWARDED);
    }
    let (open, close): (&[u8], &[u8]) = if ask.client.0.contains(':') { (b"for=\"[", b"]\"") } else { (b"for=", b"") };
    text.put_slice(open);
    text.put_slice(ask.client.0.as_bytes());
    text.put_slice(close);
    if !ask.host.is_empty() {
        text.put_slice(b";host=");
        put_token_or_string(&mut text, ask.host);
    }
    text.put_slice(b";proto=");
    text.put_slice(ask.scheme.as_bytes());
    set(headers, FORWARDED, &mut text);

    let scheme_told = told && headers.contains_key(X_FORWARDED_PROTO);
    if !scheme_told {
        let scheme = match ask.scheme {
            "http" => Some(HeaderValue::from_static("http")),
            "https" => Some(HeaderValue::from_static("https")),
            other => HeaderValue::from_str(other).ok(),
        };
        if let Some(scheme) = scheme {
            headers.insert(X_FORWARDED_PROTO, scheme);
        }
    }
    let host_told = told && headers.contains_key(X_FORWARDED_HOST);
    if !host_told && !ask.host.is_empty() {
        text.put_slice(ask.host.as_bytes());
        set(headers, X_FORWARDED_HOST, &mut text);
    }
}

/// Takes out all that upstreams take for a proxy's word, but for the field that is believed. `X-Forwarded-For` is believed with its
/// whole family (`-Proto`, `-Host`, ...). A spelling with `_`, which is the same to CGI and WSGI programs, is nobody's word.
fn forget_client(headers: &mut HeaderMap, believed: Option<ForwardedField>) {
    let stays = |name: &HeaderName| match believed {
        Some(ForwardedField::XForwardedFor) => {
            name.as_str().starts_with("x-forwarded-") && !name.as_str().contains('_')
        }
        Some(ForwardedField::Forwarded) => *name == FORWARDED,
        None => false,
    };
    let found: Vec<HeaderName> = headers.keys().filter(|name| tells_of_client(name) && !stays(name)).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

/// Whether upstreams take a field for a proxy's word.
fn tells_of_client(name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    let is = |expected: &str, name: &[u8]| {
        name.len() == expected.len()
            && name
                .iter()
                .zip(expected.bytes())
                .all(|(&byte, expected)| byte == expected || byte == b'_' && expected == b'-')
    };
    match name.first() {
        Some(b'f') => is("forwarded", name),
        Some(b'x') => is("x-forwarded", &name[..name.len().min(11)]) || is("x-real-ip", name),
        _ => false,
    }
}

/// The values of a field, to be added to.
fn append(text: &mut BytesMut, headers: &HeaderMap, name: &HeaderName) {
    for value in headers.get_all(name) {
        if !value.is_empty() {
            text.put_slice(value.as_bytes());
            text.put_slice(b", ");
        }
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, text: &mut BytesMut) {
    // What was a field value, an address, or a host that was checked, is one.
    match HeaderValue::from_maybe_shared(text.split().freeze()) {
        Ok(value) => {
            headers.insert(name, value);
        }
        Err(_) => {
            headers.remove(name);
        }
    }
}

fn put_token_or_string(text: &mut BytesMut, value: &str) {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if value.bytes().all(is_token) {
        text.put_slice(value.as_bytes());
        return;
    }
    text.put_u8(b'"');
    for byte in value.bytes() {
        if matches!(byte, b'"' | b'\\') {
            text.put_u8(b'\\');
        }
        text.put_u8(byte);
    }
    text.put_u8(b'"');
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

/// Changes to a header, in this order: removed, set, added.
pub(super) fn apply(rules: &HeaderRules, headers: &mut HeaderMap) {
    for name in &rules.remove {
        headers.remove(name);
    }
    for (name, value) in &rules.set {
        headers.insert(name.clone(), value.clone());
    }
    for (name, value) in &rules.add {
        headers.append(name.clone(), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::{super::ClientAddress, *};
    use crate::{body::Store, config::Limits};

    type Fields<'a> = &'a [(&'a str, &'a str)];

    static CLIENT: ClientAddress = ClientAddress(std::borrow::Cow::Borrowed("192.0.2.7"));

    const ASK: Ask<'static> = Ask {
        upstream: 0,
        class: 0,
        client: &CLIENT,
        scheme: "https",
        host: "shop.example",
        keep_host: false,
        believed: None,
        rules: None,
    };

    fn address(text: &str) -> ClientAddress {
        text.parse::<std::net::IpAddr>().unwrap().into()
    }

    fn parts(method: &str, version: Version, fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).version(version).uri("/a?b=c");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn whole(bytes: &'static [u8]) -> RequestBody {
        RequestBody::from_bytes(bytes, &Store::new(&Limits::default()))
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    /// The fields that an upstream sees, without those that tell of the client.
    fn seen(http2: bool, method: &str, version: Version, fields: &[(&str, &str)], body: &RequestBody) -> Vec<String> {
        let mut lines = all_seen(http2, parts(method, version, fields), body, &ASK);
        let ours = ["x-forwarded-", "forwarded:", "via: 1.0 serpent", "via: 1.1 serpent", "via: 2.0 serpent"];
        lines.retain(|line| !ours.iter().any(|ours| line.starts_with(ours)));
        lines
    }

    fn all_seen(http2: bool, parts: Parts, body: &RequestBody, ask: &Ask<'_>) -> Vec<String> {
        let (head, headers) = request(parts, body, ask).unwrap();
        if http2 {
            let authority = Authority::from_static("app:8080");
            let made = head.request(headers, (), false, &authority).unwrap();
            if !ask.keep_host {
                assert_eq!(made.uri(), "http://app:8080/a?b=c");
            }
            return lines(made.headers());
        }
        let written = written(&head, &headers);
        let mut lines: Vec<_> = written.strip_suffix("\r\n\r\n").unwrap().split("\r\n").map(str::to_owned).collect();
        let line = lines.remove(0);
        assert!(line.ends_with(" /a?b=c HTTP/1.1"), "{line}");
        lines.sort();
        lines
    }

    fn written(head: &Head, headers: &HeaderMap) -> String {
        let mut written = Vec::new();
        head.write(headers, &HeaderValue::from_static("app:8080"), &mut written);
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn what_is_for_the_next_hop_only_does_not_go_on() {
        let table: &[(Fields, &[&str])] = &[
            (&[("connection", "keep-alive"), ("keep-alive", "timeout=5"), ("accept", "*/*")], &["accept: */*"]),
            (&[("connection", "close, X-Mine"), ("x-mine", "1"), ("x-yours", "2")], &["x-yours: 2"]),
            (
                &[("connection", "a"), ("connection", "b , C"), ("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")],
                &["d: 4"],
            ),
            (&[("connection", "not a name!,, ,x"), ("x", "1")], &[]),
            (
                &[("proxy-connection", "keep-alive"), ("proxy-authorization", "Basic x"), ("authorization", "Basic y")],
                &["authorization: Basic y"],
            ),
            (&[("expect", "100-continue")], &[]),
            (&[("te", "gzip"), ("connection", "te")], &[]),
            (&[("upgrade", "websocket")], &[]),
            (&[("connection", "upgrade"), ("upgrade", "h2c"), ("http2-settings", "AAMAAABkAAQ")], &[]),
            (&[("connection", "upgrade"), ("upgrade", "TLS/1.3, HTTP/2.0")], &[]),
            (&[("connection", "host"), ("host", "evil.example")], &[]),
        ];
        for (fields, expected) in table {
            for http2 in [false, true] {
                let mut expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
                if !http2 {
                    expected.push("host: app:8080".to_owned());
                }
                expected.sort();
                assert_eq!(seen(http2, "GET", Version::HTTP_11, fields, &RequestBody::Empty), expected, "{fields:?}");
            }
        }
    }

    #[test]
    fn trailers_and_upgrades_are_asked_for_again() {
        let trailers: &[(&str, &str)] = &[("connection", "TE"), ("te", "deflate;q=0.5, Trailers")];
        let get = |http2, version, fields: &[_]| seen(http2, "GET", version, fields, &RequestBody::Empty);
        assert_eq!(get(false, Version::HTTP_11, trailers), ["connection: te", "host: app:8080", "te: trailers"]);
        assert_eq!(get(true, Version::HTTP_11, trailers), ["te: trailers"]);
        let upgrade: &[(&str, &str)] =
            &[("connection", "keep-alive, Upgrade"), ("upgrade", "h2c, websocket"), ("sec-websocket-key", "x")];
        let expected = ["connection: upgrade", "host: app:8080", "sec-websocket-key: x", "upgrade: websocket"];
        assert_eq!(get(false, Version::HTTP_11, upgrade), expected);
        assert_eq!(get(true, Version::HTTP_11, upgrade), ["sec-websocket-key: x"]);
        assert_eq!(get(false, Version::HTTP_10, upgrade), ["host: app:8080", "sec-websocket-key: x"]);
        let with_body = seen(false, "POST", Version::HTTP_11, upgrade, &whole(b"x"));
        assert_eq!(with_body, ["content-length: 1", "host: app:8080", "sec-websocket-key: x"]);
    }

    #[test]
    fn framing_is_made_of_the_body_whatever_the_client_said() {
        let lies: &[&[(&str, &str)]] = &[
            &[("content-length", "7"), ("transfer-encoding", "chunked")],
            &[("content-length", "5"), ("content-length", "6")],
            &[("transfer-encoding", "chunked, identity"), ("transfer-encoding", "chunked")],
            &[("content-length", "+5")],
            &[("connection", "content-length, transfer-encoding"), ("content-length", "9")],
        ];
        for lie in lies {
            for http2 in [false, true] {
                // Over HTTP/2, hyper adds the length that it knows of the body.
                let expected: &[&str] = if http2 { &[] } else { &["content-length: 5", "host: app:8080"] };
                assert_eq!(seen(http2, "POST", Version::HTTP_11, lie, &whole(b"hello")), expected, "{lie:?}");
            }
            let empty = seen(false, "POST", Version::HTTP_11, lie, &RequestBody::Empty);
            assert_eq!(empty, ["content-length: 0", "host: app:8080"], "{lie:?}");
        }
        assert_eq!(seen(false, "GET", Version::HTTP_11, &[], &RequestBody::Empty), ["host: app:8080"]);
        let trailer = seen(false, "POST", Version::HTTP_11, &[("trailer", "x-sum")], &whole(b"hello"));
        assert_eq!(trailer, ["host: app:8080", "trailer: x-sum", "transfer-encoding: chunked"]);
    }

    #[test]
    fn cookie_crumbs_become_one_field_for_http1() {
        let crumbs: &[(&str, &str)] = &[("cookie", "a=1"), ("cookie", "b=2; c=3"), ("cookie", "d=4")];
        let expected = ["cookie: a=1; b=2; c=3; d=4", "host: app:8080"];
        assert_eq!(seen(false, "GET", Version::HTTP_2, crumbs, &RequestBody::Empty), expected);
    }

    #[test]
    fn the_client_is_told_of_and_cannot_pretend() {
        let ours = [
            "forwarded: for=192.0.2.7;host=shop.example;proto=https",
            "host: app:8080",
            "via: 1.1 serpent",
            "x-forwarded-for: 192.0.2.7",
            "x-forwarded-host: shop.example",
            "x-forwarded-proto: https",
        ];
        let pretended: &[(&str, &str)] = &[
            ("x-forwarded-for", "10.0.0.1"),
            ("x_forwarded_for", "10.0.0.1"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-port", "443"),
            ("x-forwarded-prefix", "/admin"),
            ("x-forwarded-host", "evil.example"),
            ("x-real-ip", "10.0.0.1"),
            ("x_real_ip", "10.0.0.1"),
            ("forwarded", "for=10.0.0.1"),
            ("host", "evil.example"),
        ];
        let get = |fields: &[_], ask: &Ask<'_>| {
            all_seen(false, parts("GET", Version::HTTP_11, fields), &RequestBody::Empty, ask)
        };
        assert_eq!(get(pretended, &ASK), ours);

        let trusted: &[(&str, &str)] = &[
            ("x-forwarded-for", "203.0.113.1, 10.0.0.9"),
            ("x_forwarded_for", "10.0.0.1"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded_proto", "https"),
            ("x-forwarded-host", "front.example"),
            ("x-forwarded-port", "80"),
            ("x-real-ip", "10.0.0.1"),
            ("forwarded", "for=203.0.113.1"),
        ];
        let ask = Ask {
            believed: Some(ForwardedField::XForwardedFor),
            client: &address("2001:db8::1"),
            host: "shop.example:8443",
            keep_host: true,
            ..ASK
        };
        assert_eq!(
            get(trusted, &ask),
            [
                "forwarded: for=\"[2001:db8::1]\";host=\"shop.example:8443\";proto=https",
                "host: shop.example:8443",
                "via: 1.1 serpent",
                "x-forwarded-for: 203.0.113.1, 10.0.0.9, 2001:db8::1",
                "x-forwarded-host: front.example",
                "x-forwarded-port: 80",
                "x-forwarded-proto: http",
            ]
        );
        let ask = Ask { believed: Some(ForwardedField::Forwarded), ..ask };
        assert_eq!(
            get(trusted, &ask),
            [
                "forwarded: for=203.0.113.1, for=\"[2001:db8::1]\";host=\"shop.example:8443\";proto=https",
                "host: shop.example:8443",
                "via: 1.1 serpent",
                "x-forwarded-for: 2001:db8::1",
                "x-forwarded-host: shop.example:8443",
                "x-forwarded-proto: https",
            ]
        );
        let mapped = address("::ffff:192.0.2.7");
        let mapped = Ask { client: &mapped, ..ASK };
        assert_eq!(get(&[], &mapped), ours, "an IPv4 client of an IPv6 socket");
    }

    #[test]
    fn who_passed_a_request_on_is_told_and_counted() {
        for (version, ours) in [
            (Version::HTTP_10, "via: 1.0 serpent"),
            (Version::HTTP_11, "via: 1.1 serpent"),
            (Version::HTTP_2, "via: 2.0 serpent"),
        ] {
            let fields: &[(&str, &str)] = &[("via", "1.0 fred, 1.1 p.example")];
            let mut seen = all_seen(false, parts("GET", version, fields), &RequestBody::Empty, &ASK);
            seen.retain(|line| line.starts_with("via"));
            assert_eq!(seen, ["via: 1.0 fred, 1.1 p.example", ours]);
        }
        let table: &[(Fields, usize)] = &[
            (&[], 0),
            (&[("via", "1.1 fred"), ("via", "serpent")], 0),
            (&[("via", "1.1 serpent, HTTP/2.0  Serpent (a comment) ,1.0\tserpent"), ("via", "1.1 serpent")], 4),
            (&[("via", "1.1 serpents, 1.1 serpent:80"), ("server", "1.1 serpent")], 0),
        ];
        for (fields, times) in table {
            assert_eq!(times_here(&parts("GET", Version::HTTP_11, fields).headers), *times, "{fields:?}");
        }
    }

    #[test]
    fn what_must_not_be_a_trailer_is_none() {
        let stays = [("etag", "e"), ("grpc-status", "0"), ("server-timing", "x"), ("x-sum", "5")];
        let goes = [
            ("authorization", "Basic x"),
            ("connection", "x-hop"),
            ("content-length", "5"),
            ("content-type", "text/html"),
            ("cookie", "a=b"),
            ("forwarded", "for=10.0.0.1"),
            ("host", "evil.example"),
            ("if-none-match", "*"),
            ("proxy-authorization", "Basic x"),
            ("set-cookie", "a=b"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("via", "1.1 fred"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x_forwarded_for", "10.0.0.1"),
            ("x-hop", "1"),
            ("x-real-ip", "10.0.0.1"),
        ];
        let mut fields = parts("GET", Version::HTTP_11, &[&stays[..], &goes[..]].concat()).headers;
        trailers(&mut fields);
        assert_eq!(lines(&fields), stays.map(|(name, value)| format!("{name}: {value}")));
    }

    #[test]
    fn rules_come_last_and_no_client_undoes_them() {
        let value = HeaderValue::from_static;
        let rules = HeaderRules {
            remove: vec![X_FORWARDED_HOST, FORWARDED],
            set: vec![
                (HeaderName::from_static("x-user"), value("alice")),
                (X_FORWARDED_PROTO, value("http")),
                (HOST, value("inner")),
                (CONTENT_LENGTH, value("99")),
            ],
            add: vec![(HeaderName::from_static("x-more"), value("2")), (CONNECTION, value("x-user"))],
        };
        let fields: &[(&str, &str)] = &[("connection", "x-user"), ("x-user", "mallory"), ("x-more", "1")];
        let ask = Ask { rules: Some(&HeaderRules { add: rules.add[..1].to_vec(), ..rules.clone() }), ..ASK };
        let seen = all_seen(false, parts("GET", Version::HTTP_11, fields), &RequestBody::Empty, &ask);
        let expected = [
            "host: inner",
            "via: 1.1 serpent",
            "x-forwarded-for: 192.0.2.7",
            "x-forwarded-proto: http",
            "x-more: 1",
            "x-more: 2",
            "x-user: alice",
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_cannot_go_on_is_refused() {
        let connect = Request::connect("shop.example:443").body(()).unwrap().into_parts().0;
        assert!(request(connect, &RequestBody::Empty, &ASK).is_err());
        let ask = Ask { host: "a\r\nb", keep_host: true, ..ASK };
        assert!(request(parts("GET", Version::HTTP_11, &[]), &RequestBody::Empty, &ask).is_err());
        let ask = Ask { host: "a b", keep_host: true, ..ASK };
        let (head, headers) = request(parts("GET", Version::HTTP_11, &[]), &RequestBody::Empty, &ask).unwrap();
        assert!(head.request(headers, (), false, &Authority::from_static("app")).is_err());
    }

    #[test]
    fn targets_of_all_kinds() {
        let table = [
            ("http://shop.example/x?y", "/x?y", "https://app/x?y"),
            ("http://shop.example", "/", "https://app/"),
            ("*", "*", "https://app*"),
        ];
        for (uri, http1, http2) in table {
            let parts = Request::options(uri).version(Version::HTTP_2).body(()).unwrap().into_parts().0;
            let (head, headers) = request(parts, &RequestBody::Empty, &ASK).unwrap();
            let one = written(&head, &headers);
            assert!(one.starts_with(&format!("OPTIONS {http1} HTTP/1.1\r\n")), "{one}");
            let authority = Authority::from_static("app");
            let two = head.request(headers, (), true, &authority).unwrap();
            assert_eq!((two.uri().path(), two.uri().authority()), (http1.split('?').next().unwrap(), Some(&authority)));
            assert_eq!(two.uri().to_string(), http2);
        }
    }

    #[test]
    fn responses_keep_what_is_for_the_client() {
        let table: &[(u16, &str, Fields, &[&str])] = &[
            (
                200,
                "GET",
                &[("connection", "close, x-hop"), ("x-hop", "1"), ("keep-alive", "5"), ("etag", "e")],
                &["etag: e"],
            ),
            (
                200,
                "GET",
                &[("transfer-encoding", "chunked"), ("content-length", "9"), ("trailer", "x")],
                &["trailer: x"],
            ),
            (200, "GET", &[("content-length", "4"), ("content-length", "4")], &["content-length: 4"]),
            (200, "GET", &[("content-length", "4, 4")], &["content-length: 4"]),
            (200, "HEAD", &[("content-length", "70")], &["content-length: 70"]),
            (200, "HEAD", &[("content-length", "70, 70")], &["content-length: 70"]),
            (200, "HEAD", &[("content-length", "70"), ("content-length", "71")], &[]),
            (200, "HEAD", &[("content-length", "-1")], &[]),
            (304, "GET", &[("content-length", "70")], &["content-length: 70"]),
            (204, "GET", &[("content-length", "0")], &[]),
            (
                407,
                "GET",
                &[("proxy-authenticate", "Basic"), ("www-authenticate", "Basic")],
                &["www-authenticate: Basic"],
            ),
            (200, "GET", &[("upgrade", "h2,h2c"), ("connection", "Upgrade")], &[]),
            (
                101,
                "GET",
                &[("upgrade", "websocket"), ("connection", "Upgrade")],
                &["connection: upgrade", "upgrade: websocket"],
            ),
        ];
        for (status, method, fields, expected) in table {
            let mut headers = parts("GET", Version::HTTP_11, fields).headers;
            response(StatusCode::from_u16(*status).unwrap(), &mut headers, Some(4), &method.parse().unwrap());
            assert_eq!(lines(&headers), *expected, "{status} {method} {fields:?}");
        }
    }
}
