//! The host that a request is for.

use std::borrow::Cow;

use http::{HeaderValue, StatusCode, Version, header, request::Parts};
use http1::is_host_and_port;

/// The host that a request is for, with its port.
///
/// An absolute target comes before `Host` (RFC 9112, section 3.2.2). That an HTTP/1 request has at most one host, and
/// one from HTTP/1.1 on, was checked with its head. HTTP/2 has the host in `:authority`, and a differing `Host` is
/// malformed (RFC 9113, section 8.3.1).
pub(crate) fn host_and_port(parts: &Parts) -> Result<&str, StatusCode> {
    let field = parts.headers.get(header::HOST);
    let text = field.map(HeaderValue::to_str).transpose().map_err(|_| StatusCode::BAD_REQUEST)?;
    let authority = parts.uri.authority().map(http::uri::Authority::as_str);
    if parts.version == Version::HTTP_2 {
        let more = parts.headers.get_all(header::HOST).iter().nth(1).is_some();
        let differs = matches!((authority, text), (Some(one), Some(other)) if !one.eq_ignore_ascii_case(other));
        if more || differs || (authority.is_none() && text.is_none()) {
            return Err(StatusCode::BAD_REQUEST);
        }
    }
    let host = authority.or(text).unwrap_or_default();
    // The host of HTTP/1 was checked with the head.
    if parts.version == Version::HTTP_2 && (host.is_empty() || !is_host_and_port(host.as_bytes())) {
        return Err(StatusCode::BAD_REQUEST);
    }
    Ok(host)
}

/// A host without its port.
pub(crate) fn without_port(host: &str) -> &str {
    match memchr::memrchr2(b':', b']', host.as_bytes()) {
        // The colons of an IPv6 address are within brackets.
        Some(at) if host.as_bytes()[at] == b':' => &host[..at],
        _ => host,
    }
}

/// A host without port and trailing dot, in lower case.
pub(crate) fn normal(host: &str) -> Cow<'_, str> {
    let name = without_port(host);
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}
