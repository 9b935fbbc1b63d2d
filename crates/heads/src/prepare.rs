//! Heads of requests and responses, and trailers, for the next connection.

use bytes::{BufMut as _, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, PROXY_AUTHENTICATE, TE, TRANSFER_ENCODING, UPGRADE},
};
use http1::welcomes_trailers;

use crate::{
    connection::{Options, take_connection},
    forwarded::tells_of_client,
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");

/// Wishes of a client that were in removed fields, and that a proxy may pass on.
#[derive(Debug, Default)]
pub struct Kept {
    /// The protocols that the client asks to upgrade to, as a value of `Upgrade`.
    pub upgrade: Option<HeaderValue>,
    /// Whether the client accepts trailers.
    pub trailers: bool,
}

/// Removes hop-by-hop fields and the framing from the head of a request.
pub fn prepare_request(headers: &mut HeaderMap) -> Kept {
    let options = take_connection(headers);
    let trailers = headers.get_all(TE).iter().any(|value| welcomes_trailers(value.as_bytes()));
    let upgrade = if options.upgrade { protocols(headers) } else { None };
    for name in options.named {
        headers.remove(name);
    }
    let found: Vec<HeaderName> = headers.keys().filter(|name| is_hop_by_hop(name)).cloned().collect();
    for name in found {
        headers.remove(name);
    }
    Kept { upgrade, trailers }
}

/// Whether a field of a request is hop-by-hop or frames its body.
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
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

/// Prepares the head of a response for any client. `exact` is the length of its body, if known; `method` is
/// the request's.
pub fn prepare_response(status: StatusCode, headers: &mut HeaderMap, exact: Option<u64>, method: &Method) {
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

/// Removes fields that a trailer must not have (RFC 9110, section 6.5.1), because a recipient that merges
/// them into the head would be deceived. They are fields about framing, routing, handling, content and
/// identity, and hop-by-hop fields.
pub fn prepare_trailers(trailers: &mut HeaderMap) {
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

#[cfg(test)]
mod tests {
    use super::*;

    type Fields<'a> = &'a [(&'static str, &'static str)];

    fn map(fields: Fields) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
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
        let mut fields = map(&[&stays[..], &goes[..]].concat());
        prepare_trailers(&mut fields);
        assert_eq!(lines(&fields), stays.map(|(name, value)| format!("{name}: {value}")));
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
            let mut headers = map(fields);
            prepare_response(StatusCode::from_u16(*status).unwrap(), &mut headers, Some(4), &method.parse().unwrap());
            assert_eq!(lines(&headers), *expected, "{status} {method} {fields:?}");
        }
    }
}
