//! Admission: a request waits for a slot of the site, where its origin needs one.

use std::{
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    net::IpAddr,
    pin::pin,
    time::Duration,
};

use http::StatusCode;
use tokio::time::Instant;

use super::{
    body::TakenBody,
    context::{Failure, RequestContext},
    presence::{ClientGone, Presence},
};
use crate::{
    admission::{Arrival, Slot},
    body::{Pulse, RequestBody},
    sites::ResolvedRoute,
    state::ConfigSnapshot,
};

/// A request that may go to its origin.
pub(super) struct Admitted {
    pub(super) body: RequestBody,
    /// A streamed body: lives while the response moves.
    pub(super) pulse: Option<Pulse>,
    /// The slot of the site; `None`: the request needs none.
    pub(super) slot: Option<Slot>,
    /// Tells whether the client is still there.
    pub(super) presence: Presence,
    /// How the request arrived at the site, if it needs a slot.
    pub(super) arrival: Option<Arrival>,
}

/// Waits for a slot as long as the client does.
///
/// An HTTP/2 client that goes away resets its stream, which drops this future. The kernel is asked about the
/// connection, too, because a connection that takes nothing is not read either.
pub(super) async fn wait(
    request: &mut RequestContext,
    snapshot: &ConfigSnapshot,
    route: &ResolvedRoute,
    TakenBody { body, pulse }: TakenBody,
) -> Result<Admitted, Failure> {
    let still_sends = matches!(body, RequestBody::Streamed(_));
    let mut presence = Presence::watch(
        &request.connection.state,
        &request.connection.flow,
        request.parts.version,
        still_sends,
        request.now,
    );
    if request.call.as_ref().and_then(|call| call.left(request.now)) == Some(Duration::ZERO) {
        return Err(StatusCode::GATEWAY_TIMEOUT.into());
    }
    if !route.config.admitted || !snapshot.classes.admission.enabled {
        return Ok(Admitted { body, pulse, slot: None, presence, arrival: None });
    }
    let arrival = Arrival {
        class: request.verdict.class,
        resource: request.verdict.resource.unwrap_or(route.config.resource),
        client: client_key(request.verdict.client),
        route: route.key,
        within: request.call.as_ref().and_then(|call| call.left(Instant::now())),
    };
    request.record.spans.waits(request.now);
    let slot = presence.during(pin!(snapshot.admission.enter(arrival))).await?.map_err(Failure::Refused)?;
    if slot.waited > Duration::ZERO {
        if presence.has_ended() {
            // The slot goes to the next request.
            return Err(ClientGone.into());
        }
        request.now = Instant::now();
    }
    request.record.waited = Some(slot.waited);
    let service_times = request.record.spans.has_slot(request.now, request.record.counters.service_times());
    Ok(Admitted { body, pulse, slot: Some(slot.counted(service_times)), presence, arrival: Some(arrival) })
}

fn client_key(client: IpAddr) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(client)
}
