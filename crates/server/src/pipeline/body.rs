//! Body: the body of a request is read whole, streamed, or thrown away, as its origin needs it.

use http::{StatusCode, header};
use http_body::Body as _;
use tokio::time::Instant;

use super::context::{Failure, RequestContext};
use crate::{
    body::{ClientBody, CollectError, Patience, Pulse, RequestBody},
    sites::{BodyUse, ResolvedRoute},
    state::ConfigSnapshot,
};

/// The body of a request, ready for an origin.
pub(super) struct TakenBody {
    pub(super) body: RequestBody,
    /// A streamed body: lives while the response moves.
    pub(super) pulse: Option<Pulse>,
}

/// Takes the body from the client, as the origin of the route needs it.
pub(super) async fn take(
    request: &mut RequestContext,
    snapshot: &ConfigSnapshot,
    route: &ResolvedRoute,
) -> Result<TakenBody, Failure> {
    let Some(mut body) = request.body.take() else { return Ok(TakenBody { body: RequestBody::Empty, pulse: None }) };
    // A client that asks for another protocol goes on with it right behind the head, not behind a body.
    request.parts.headers.remove(header::UPGRADE);
    let body_use = route.origin.body_use();
    // The messages of a call may go on for ever, and none is kept here.
    let body_use = if request.call.is_some() && body_use == BodyUse::Whole && route.origin.is_upstream() {
        BodyUse::Streamed
    } else {
        body_use
    };
    let most_bytes = if request.call.is_some() { u64::MAX } else { snapshot.limits.request_body_bytes };
    let limit_bytes = route.config.request_body_bytes.unwrap_or(most_bytes);
    let mut pulse = None;
    if body_use == BodyUse::Streamed {
        // The client may send and receive at once, with long pauses in both.
        let of_route = route.origin.idle_timeout().filter(|_| request.call.is_some());
        let time = of_route.unwrap_or(snapshot.limits.idle_timeout);
        body = body.with_patience(Patience::Idle { time, pulse: pulse.insert(Pulse::default()).clone() });
    }
    // In a box, because few requests have a body.
    let body = Box::pin(read(body, body_use, limit_bytes, snapshot)).await;
    let began = std::mem::replace(&mut request.now, Instant::now());
    request.record.spans.body_was_read(began, request.now);
    Ok(TakenBody { body: body?, pulse })
}

async fn read(
    body: ClientBody,
    body_use: BodyUse,
    limit_bytes: u64,
    snapshot: &ConfigSnapshot,
) -> Result<RequestBody, Failure> {
    if body.is_end_stream() {
        return Ok(RequestBody::Empty);
    }
    if body.size_hint().lower() > limit_bytes {
        return Err(Failure::Malformed(StatusCode::PAYLOAD_TOO_LARGE));
    }
    let read = match body_use {
        BodyUse::Streamed => return Ok(RequestBody::streamed(body, limit_bytes)),
        BodyUse::Whole => RequestBody::collect(body, limit_bytes, &snapshot.store).await,
        // The body is read so that the next request can be found.
        BodyUse::Ignored => body.drain(limit_bytes).await.map(|()| RequestBody::Empty),
    };
    read.map_err(|error| match error {
        CollectError::TooLarge => Failure::Malformed(StatusCode::PAYLOAD_TOO_LARGE),
        CollectError::Late => Failure::Malformed(StatusCode::REQUEST_TIMEOUT),
        CollectError::Client => Failure::Malformed(StatusCode::BAD_REQUEST),
        CollectError::Store(error) => {
            tracing::error!(%error, "a request's body cannot be kept");
            StatusCode::INTERNAL_SERVER_ERROR.into()
        }
    })
}
