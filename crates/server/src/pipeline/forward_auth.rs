//! `forward-auth`: another server, such as one for single sign-on, says whether a request goes on.
//!
//! It gets the head of the request by GET, without a body, and with `X-Forwarded-Method` and `X-Forwarded-Uri`. Caddy
//! and Traefik send the same, so servers that are made for them can be asked. An answer of 2xx lets the request go on;
//! some of its fields may go on with the request, and some to the client, such as a cookie that is renewed. Any other
//! answer goes to the client, for example a redirect to a page for signing in. Without an answer the request is
//! refused.

use std::{pin::pin, sync::Arc};

use files::FileBody;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};

use super::{
    context::{Failure, RequestContext},
    guard::Ruling,
    presence::Presence,
    target::host_and_port,
};
use crate::{
    body::RequestBody,
    config::{ForwardAuth, HeaderRules},
    state::ConfigSnapshot,
    upstream::{Ask, Outbound, UpstreamError},
};

const X_FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
/// The longest body of an answer that a client gets: a page where people sign in.
const MOST_BYTES: usize = 256 * 1024;

/// Asks the server about a request. The fields of its answer that are to be copied are in the request then.
pub(super) async fn ask(
    request: &mut RequestContext,
    snapshot: &ConfigSnapshot,
    auth: &Arc<ForwardAuth>,
) -> Result<Ruling, Failure> {
    // The request has come from another route, where the same was asked.
    if request.allowed_by.as_ref().is_some_and(|by| Arc::ptr_eq(by, auth)) {
        return Ok(Ruling::GoesOn);
    }
    let (connection, parts) = (&request.connection, &request.parts);
    let method = HeaderValue::from_str(parts.method.as_str()).map_err(|_| StatusCode::BAD_REQUEST)?;
    let path = request.asked.as_ref().or(parts.uri.path_and_query()).map_or("/", |path| path.as_str());
    let path = HeaderValue::from_str(path).map_err(|_| StatusCode::BAD_REQUEST)?;
    // Set when the client's own are gone.
    let mut set = vec![(X_FORWARDED_METHOD, method), (X_FORWARDED_URI, path)];
    set.extend(request.record.spans.traceparent());
    let rules = HeaderRules { set, ..HeaderRules::default() };
    let outbound = Outbound {
        method: Method::GET,
        path: auth.path.clone(),
        version: parts.version,
        headers: without_body_and_conditions(&parts.headers),
        body: RequestBody::Empty,
    };
    let ask = Ask {
        upstream: auth.upstream,
        class: request.verdict.class.index(),
        client: connection.client_address(),
        client_ip: request.verdict.client,
        ends: Some(connection.ends_of(request.verdict.client)),
        scheme: connection.scheme(),
        host: &host_and_port(parts),
        keep_host: true,
        believed: request.verdict.believed,
        rules: Some(&rules),
        times: None,
        until: None,
    };
    let pools = connection.pools.of(snapshot);
    let prepared = pools.prepare(outbound, ask, request.now).map_err(|error| failed(&error))?;
    let still_sends = request.body.is_some();
    let mut presence = Presence::watch(&connection.state, &connection.flow, parts.version, still_sends, request.now);
    let answered = pin!(async {
        let answer = pools.pass(prepared, &mut drop).await?;
        let (head, body) = answer.response.into_parts();
        // Read in any case, so that the connection can be used again.
        Ok((head, Limited::new(body, MOST_BYTES).collect().await, answer.server))
    });
    let (head, body, server) = presence.during(answered).await?.map_err(|error: UpstreamError| failed(&error))?;
    request.waited_for(());
    if head.status.is_success() {
        copy(&auth.copy, &head.headers, &mut request.parts.headers);
        for name in &auth.to_client {
            request.of_auth.extend(head.headers.get_all(name).iter().map(|value| (name.clone(), value.clone())));
        }
        request.allowed_by = Some(auth.clone());
        return Ok(Ruling::GoesOn);
    }
    match body {
        Ok(body) => Ok(Ruling::Answer(Response::from_parts(head, FileBody::from(body.to_bytes())))),
        Err(error) => {
            tracing::warn!(%server, error, most_bytes = MOST_BYTES, "the answer of forward-auth cannot be passed on");
            Err(StatusCode::BAD_GATEWAY.into())
        }
    }
}

fn failed(error: &UpstreamError) -> Failure {
    error.log();
    error.status().into()
}

/// The fields of a request for a question about it, whose answer is no part of anything and always new.
fn without_body_and_conditions(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    for name in [
        header::CONTENT_TYPE,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::EXPECT,
        header::IF_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_NONE_MATCH,
        header::IF_RANGE,
        header::IF_UNMODIFIED_SINCE,
        header::RANGE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ] {
        kept.remove(name);
    }
    kept
}

/// Replaces fields of a request by those of the answer. A client cannot write them, neither with `_` in place of `-`, which
/// programs cannot tell apart (RFC 3875, section 4.1.18).
fn copy(names: &[HeaderName], answer: &HeaderMap, request: &mut HeaderMap) {
    for name in names {
        let same = |other: &HeaderName| {
            let alike = |(a, b): (u8, u8)| a == b || (a == b'_' && b == b'-');
            other.as_str().len() == name.as_str().len() && other.as_str().bytes().zip(name.as_str().bytes()).all(alike)
        };
        let of_client: Vec<_> = request.keys().filter(|other| same(other)).cloned().collect();
        for name in of_client {
            request.remove(name);
        }
        for value in answer.get_all(name) {
            request.append(name, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_answer_replace_those_of_the_client_in_any_writing() {
        let names = [HeaderName::from_static("remote-user"), HeaderName::from_static("remote-groups")];
        let mut request = HeaderMap::new();
        for name in ["remote-user", "remote_user", "remote-groups", "x-other"] {
            request.append(name, HeaderValue::from_static("client"));
        }
        let mut answer = HeaderMap::new();
        answer.append("remote-user", HeaderValue::from_static("ann"));
        answer.append("x-other", HeaderValue::from_static("answer"));
        copy(&names, &answer, &mut request);
        assert_eq!(request.get_all("remote-user").iter().collect::<Vec<_>>(), ["ann"]);
        assert!(!request.contains_key("remote_user") && !request.contains_key("remote-groups"));
        assert_eq!(request["x-other"], "client");
    }
}
