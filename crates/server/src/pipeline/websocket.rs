//! WebSocket over HTTP/2 (RFC 8441): a request of the method CONNECT that names the protocol.
//!
//! It takes the way of the request that HTTP/1.1 has for the same, so one reading holds for both: guards, rules and the
//! upstream see a GET with `Upgrade: websocket`.

use std::time::Duration;

use h2::ext::Protocol;
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, UPGRADE},
    request::Parts,
};
use tokio_util::sync::CancellationToken;

use super::answer_body::AnswerBody;
use crate::{body::IncomingBody, gate::InBursts, http::tunnel, upstream::Upgraded};

/// Makes the request one of HTTP/1.1, and takes what its client sends. `None`: it is another request.
pub(super) fn take(parts: &mut Parts, body: &mut IncomingBody) -> Option<IncomingBody> {
    if parts.method != Method::CONNECT || parts.extensions.get::<Protocol>()?.as_str() != "websocket" {
        return None;
    }
    parts.method = Method::GET;
    parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    parts.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    Some(std::mem::replace(body, IncomingBody::from(None)))
}

/// The answer for a client of HTTP/2 whose WebSocket the upstream has taken.
pub(super) fn answer(
    response: Response<AnswerBody>,
    from_client: IncomingBody,
    upgraded: Upgraded,
    stopping: CancellationToken,
    idle: Duration,
) -> Response<AnswerBody> {
    let mut response = response.map(|_| AnswerBody::Tunnel(tunnel::of_stream(from_client, upgraded, stopping, idle)));
    *response.status_mut() = StatusCode::OK;
    for name in [CONNECTION, UPGRADE, SEC_WEBSOCKET_ACCEPT] {
        response.headers_mut().remove(name);
    }
    response.extensions_mut().insert(InBursts);
    response
}
