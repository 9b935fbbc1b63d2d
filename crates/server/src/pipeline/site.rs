//! Site and route: which configuration applies to a request.

use h2::ext::Protocol;
use http::{HeaderValue, Method, Response, StatusCode, Uri, Version, header, request::Parts, uri::PathAndQuery};

use super::{
    answer_body::AnswerBody,
    context::{Failure, RequestContext},
};
use crate::{config::Filter, connection::Connection, host::host_and_port, sites::Routed, state::ConfigSnapshot};
use files::FileBody;

const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

/// The answer to `OPTIONS *`, which asks about the server as a whole (RFC 9110, section 9.3.7).
pub(super) fn options(parts: &Parts) -> Option<Response<AnswerBody>> {
    if parts.method != Method::OPTIONS || parts.uri.path() != "*" {
        return None;
    }
    let mut response = Response::new(FileBody::empty().into());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(header::ALLOW, ALLOW);
    Some(response)
}

/// The route that takes a request to `uri`.
pub(super) fn route<'a>(
    request: &mut RequestContext,
    snapshot: &'a ConfigSnapshot,
    uri: &'a Uri,
) -> Result<Routed<'a>, Failure> {
    // After a redirect by a program, the rules of its own route are over, also for an error.
    request.route = None;
    let takes = |filter: &Filter| filter.takes(&request.parts, request.verdict.client);
    let routed = snapshot.sites.route(request.site, uri.path(), takes).map_err(|_| StatusCode::BAD_REQUEST)?;
    request.route = routed.number;
    request.choose_log(snapshot);
    Ok(routed)
}

/// The index of the site that a request is for, or why it is not answered.
pub(super) fn find(connection: &Connection, snapshot: &ConfigSnapshot, parts: &Parts) -> Result<usize, Failure> {
    if connection.is_misplaced {
        return Err(Failure::Misplaced);
    }
    // In HTTP/1 that is refused with the head.
    if parts.version == Version::HTTP_2 {
        http2_head(snapshot, parts).map_err(Failure::Malformed)?;
    }
    if parts.extensions.get::<Protocol>().is_some() && parts.method == Method::CONNECT {
        return Err(Failure::Malformed(StatusCode::NOT_IMPLEMENTED));
    }
    if matches!(parts.method, Method::CONNECT | Method::TRACE) {
        return Err(Failure::Malformed(StatusCode::METHOD_NOT_ALLOWED));
    }
    let host = host_and_port(parts).map_err(Failure::Malformed)?;
    let site = snapshot.sites.find(host);
    let asked = connection.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
    if asked.is_some_and(|asked| !snapshot.sites.same_certificate(asked, site)) {
        // The request is sound, only its connection is the wrong one.
        return Err(StatusCode::MISDIRECTED_REQUEST.into());
    }
    Ok(site)
}

/// Refuses a malformed path (RFC 9113, section 8.3.1) and too many fields in a head of HTTP/2. A client may send each
/// cookie in a field of its own (section 8.2.3), so all cookies count as one field.
fn http2_head(snapshot: &ConfigSnapshot, parts: &Parts) -> Result<(), StatusCode> {
    let path = parts.uri.path_and_query().map_or("", PathAndQuery::as_str);
    if !path.starts_with('/') && (path != "*" || parts.method != Method::OPTIONS) && parts.method != Method::CONNECT {
        return Err(StatusCode::BAD_REQUEST);
    }
    let most = snapshot.limits.request_headers;
    if parts.headers.len() > most {
        let cookies = parts.headers.get_all(header::COOKIE).iter().count();
        if parts.headers.len() - cookies.saturating_sub(1) > most {
            return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        }
    }
    Ok(())
}
