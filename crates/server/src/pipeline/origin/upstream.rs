//! An upstream: another server answers.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};

use heads::{GrpcStatus, set_grpc_timeout};
use http::{HeaderMap, Method, Response, StatusCode, header, request::Parts, uri::PathAndQuery};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use crate::{
    admission::{Admission, Arrival, Slot},
    body::{Afterwards, Pulse, RelayEnd, RequestBody, full, relay},
    connection_state::Tunnel,
    pipeline::{
        admission::Admitted,
        answer_body::{AnswerBody, SlotBody},
        context::{Failure, RequestContext},
        interim::InterimWay,
        presence::Presence,
        target::host_and_port,
        transform::Transform,
        websocket,
    },
    sites::{Routed, UpstreamOrigin},
    state::ConfigSnapshot,
    upstream::{
        self, Ask, Interim, Outbound, Pools, PreparedRequest, SecondSlot, Upgraded, UpstreamBody, UpstreamError,
    },
};
use files::FileBody;

/// A response of announced length up to this is read whole before its client gets any of it. As a rule it is there at once.
const SMALL_BYTES: u64 = 64 * 1024;

/// A request on its way to an upstream.
struct Passing {
    pools: Arc<Pools>,
    prepared: Box<PreparedRequest>,
    interims: InterimSender,
    second: SecondSlots,
    presence: Presence,
    is_head: bool,
    /// A streamed body: lives while the response moves.
    pulse: Option<Pulse>,
}

/// The slot that a request needs at a second server, while the first one works on it.
struct SecondSlots(Option<(Admission, Arrival)>);

impl SecondSlots {
    /// `None`: the site has no room. A request that needs no slot needs none for the second server.
    fn take(&self) -> Option<SecondSlot> {
        match &self.0 {
            None => Some(Box::new(())),
            Some((admission, arrival)) => Some(Box::new(admission.enter_at_once(*arrival)?)),
        }
    }
}

/// The answer of an upstream, as its client gets it.
struct Passed {
    response: Response<AnswerBody>,
    /// The name of the server, for the log.
    server: Arc<str>,
    /// After a 101: the connection, which carries the new protocol from now on.
    upgraded: Option<Box<Upgraded>>,
    /// How many servers were asked.
    attempts: u32,
}

/// No server has answered in a way that the client can get.
struct NotPassed {
    status: StatusCode,
    /// The server that began to answer.
    server: Option<Arc<str>>,
    /// How many servers were asked.
    attempts: u32,
}

/// Passes the request on, and the answer back.
pub(super) async fn answer(
    request: &mut RequestContext,
    snapshot: &Arc<ConfigSnapshot>,
    routed: &Routed<'_>,
    origin: &UpstreamOrigin,
    admitted: Admitted,
) -> Result<Response<AnswerBody>, Failure> {
    let Admitted { body, pulse, slot, presence, arrival } = admitted;
    let transforms = snapshot.sites.transforms(request.site, request.route);
    if let Some(left) = request.call.as_ref().and_then(|call| call.left(Instant::now())) {
        set_grpc_timeout(&mut request.parts.headers, left);
    }
    let headers = if transforms.iter().any(Transform::reads_request) {
        request.parts.headers.clone()
    } else {
        std::mem::take(&mut request.parts.headers)
    };
    let pools = request.connection.pools.of(snapshot);
    let prepared = match prepare(request, routed, origin, &pools, headers, body) {
        Ok(prepared) => prepared,
        Err(Unprepared::Path) => return Err(StatusCode::BAD_REQUEST.into()),
        Err(Unprepared::Upstream(error)) => return Err(give_up(slot, &error).into()),
    };
    let parts = &request.parts;
    let interims = InterimSender::new(request, snapshot);
    let is_head = parts.method == Method::HEAD;
    let second = SecondSlots(arrival.map(|arrival| (snapshot.admission.clone(), arrival)));
    let passing = Passing { pools, prepared, interims, second, presence, is_head, pulse };
    // Pinned here, because an awaited value takes its room twice.
    let passed = match slot {
        Some(slot) if origin.buffer_response && request.call.is_none() => {
            pin!(pass_buffered(passing, snapshot.clone(), slot)).await
        }
        slot => pin!(pass_streamed(passing, slot)).await?,
    };
    match passed {
        Ok(Passed { response, server, upgraded, attempts }) => {
            request.record.server = Some(server);
            request.record.attempts = attempts;
            if let Some(upgraded) = upgraded {
                let idle = origin.times.map(|times| times.idle);
                if let Some(from_client) = request.websocket.take() {
                    let idle = idle.unwrap_or(snapshot.limits.idle_timeout);
                    let stopping = request.connection.server.stopping.clone();
                    return Ok(websocket::answer(response, from_client, *upgraded, stopping, idle));
                }
                let permits = std::mem::take(&mut request.record.permits);
                let class = request.record.class;
                request.connection.state.tunnel(Tunnel { upgraded, class, permits, idle });
            }
            Ok(response)
        }
        Err(NotPassed { status, server, attempts }) => {
            request.record.server = server;
            request.record.attempts = attempts;
            Err(status.into())
        }
    }
}

/// Why a request cannot be prepared for its upstream.
pub(in crate::pipeline) enum Unprepared {
    /// Its path cannot be written.
    Path,
    Upstream(UpstreamError),
}

/// Makes the request for the upstream: that of the client, with these fields and this body.
pub(in crate::pipeline) fn prepare(
    request: &RequestContext,
    routed: &Routed<'_>,
    origin: &UpstreamOrigin,
    pools: &Pools,
    headers: HeaderMap,
    body: RequestBody,
) -> Result<Box<PreparedRequest>, Unprepared> {
    let (connection, parts) = (&request.connection, &request.parts);
    let path = path(parts, routed, origin).ok_or(Unprepared::Path)?;
    // The fields may have moved out of the head.
    let in_field =
        headers.get(header::HOST).filter(|_| parts.uri.authority().is_none()).and_then(|it| it.to_str().ok());
    let host = in_field.map_or_else(|| host_and_port(parts), Into::into);
    let outbound = Outbound { method: parts.method.clone(), path, version: parts.version, headers, body };
    let ask = Ask {
        upstream: origin.upstream,
        class: request.verdict.class.index(),
        client: connection.client_address(),
        client_ip: request.verdict.client,
        ends: Some(connection.ends_of(request.verdict.client)),
        scheme: connection.scheme(),
        host: &host,
        keep_host: origin.keep_host,
        believed: request.verdict.believed,
        rules: Some(&routed.route.config.request_headers).filter(|rules| !rules.is_empty()),
        times: origin.times,
        until: request.call.as_ref().and_then(|call| call.until),
    };
    pools.prepare(outbound, ask, request.now).map_err(Unprepared::Upstream)
}

/// Passes the response on as its client takes it, which holds the slot.
async fn pass_streamed(passing: Passing, mut slot: Option<Slot>) -> Result<Result<Passed, NotPassed>, Failure> {
    let Passing { pools, prepared, interims, second, mut presence, pulse, .. } = passing;
    let mut send = |interim| interims.send(interim);
    let mut slots = || second.take();
    let upstream::Passed { answered, attempts } =
        presence.during(pin!(pools.pass_hedged(prepared, &mut send, &mut slots))).await?;
    let answer = match answered {
        Ok(answer) => answer,
        Err(error) => return Ok(Err(NotPassed { status: give_up(slot, &error), server: None, attempts })),
    };
    if let Some(slot) = &mut slot {
        let failed = GrpcStatus::of(answer.response.headers()).is_some_and(GrpcStatus::is_of_server);
        slot.answered(if failed { StatusCode::INTERNAL_SERVER_ERROR } else { answer.response.status() });
    }
    let response =
        answer.response.map(|body| AnswerBody::Upstream(Box::new(SlotBody::new(body, slot, presence, pulse))));
    Ok(Ok(Passed { response, server: answer.server, upgraded: answer.upgraded, attempts }))
}

/// Keeps the response here until its client takes it, so that a slow client holds no slot. The site works on the
/// request whether or not its client stays; for so long the request holds its slot.
fn pass_buffered(
    passing: Passing,
    snapshot: Arc<ConfigSnapshot>,
    mut slot: Slot,
) -> impl Future<Output = Result<Passed, NotPassed>> {
    // Not the connection: work that outlives its client must not keep the client's socket open.
    let Passing { pools, prepared, interims, second, is_head, pulse, .. } = passing;
    Outliving::new(async move {
        let mut slots = || second.take();
        let upstream::Passed { answered, attempts } =
            pools.pass_hedged(prepared, &mut |interim| interims.send(interim), &mut slots).await;
        let answer = match answered {
            Ok(answer) => answer,
            Err(error) => return Err(NotPassed { status: give_up(Some(slot), &error), server: None, attempts }),
        };
        let upstream::Answer { response, server, upgraded } = answer;
        let (head, body) = response.into_parts();
        slot.answered(head.status);
        let exact_bytes = body.size_hint().exact();
        let body = if head.status == StatusCode::SWITCHING_PROTOCOLS || is_head || body.is_end_stream() {
            slot.finish();
            AnswerBody::Upstream(Box::new(SlotBody::ended(body)))
        } else if exact_bytes.is_some_and(|bytes| bytes <= SMALL_BYTES) {
            match read_whole(body).await {
                Ok(body) => {
                    slot.finish();
                    body
                }
                Err(error) => {
                    let error = UpstreamError::of_body(error);
                    return Err(NotPassed { status: give_up(Some(slot), &error), server: Some(server), attempts });
                }
            }
        } else {
            let (relay, relayed) = relay(&snapshot.store, exact_bytes);
            let body = body.map_frame(move |frame| {
                pulse.iter().for_each(Pulse::beat);
                frame
            });
            tokio::spawn(async move {
                match relay.pass(body, Afterwards::ALittle).await {
                    RelayEnd::Whole => slot.finish(),
                    RelayEnd::BrokenOff(error) => {
                        tracing::warn!(%error, "a response of an upstream broke off");
                        slot.fail();
                    }
                    RelayEnd::NotKept | RelayEnd::ClientGone => {}
                }
            });
            AnswerBody::Relayed(relayed)
        };
        Ok(Passed { response: Response::from_parts(head, body), server, upgraded, attempts })
    })
}

/// Sends the upstream's interim responses to the client of a request.
struct InterimSender {
    way: InterimWay,
    snapshot: Arc<ConfigSnapshot>,
    site: usize,
    route: Option<usize>,
}

impl InterimSender {
    fn new(request: &RequestContext, snapshot: &Arc<ConfigSnapshot>) -> Self {
        Self { way: InterimWay::of(request), snapshot: snapshot.clone(), site: request.site, route: request.route }
    }

    /// Of the rules for a response, only those hold that remove fields; and the name of the origin goes, as in a response.
    fn send(&self, mut interim: Interim) {
        interim.headers_mut().remove(header::SERVER);
        for transform in self.snapshot.sites.transforms(self.site, self.route) {
            if let Transform::Headers(rules) = transform {
                for name in &rules.remove {
                    interim.headers_mut().remove(name);
                }
            }
        }
        self.way.send(interim);
    }
}

/// Work that goes on by itself when its result is not awaited any more.
struct Outliving<F: Future + Send + 'static>(Option<Pin<Box<F>>>);

impl<F: Future + Send + 'static> Outliving<F> {
    fn new(work: F) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<F: Future + Send + 'static> Future for Outliving<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let output = ready!(self.0.as_mut().expect("polled after its end").as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(output)
    }
}

impl<F: Future + Send + 'static> Drop for Outliving<F> {
    fn drop(&mut self) {
        if let Some(work) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { drop(work.await) });
        }
    }
}

/// Gives the slot back, tells the operator why there is no answer, and returns the status for the client.
pub(in crate::pipeline) fn give_up(slot: Option<Slot>, error: &UpstreamError) -> StatusCode {
    if let Some(slot) = slot
        && error.is_of_upstream()
    {
        slot.fail();
    }
    error.log();
    error.status()
}

/// Reads a small body whole.
async fn read_whole(body: UpstreamBody) -> std::io::Result<AnswerBody> {
    let body = body.collect().await?;
    let trailers = body.trailers().cloned();
    let bytes = body.to_bytes();
    Ok(match trailers {
        None => AnswerBody::File(FileBody::from(bytes)),
        // In HTTP/2 they can follow a body of announced length.
        Some(trailers) => {
            let body = full(bytes).with_trailers(std::future::ready(Some(Ok(trailers))));
            AnswerBody::Program(body.boxed_unsync())
        }
    })
}

/// The path for the upstream, with the query.
fn path(parts: &Parts, routed: &Routed<'_>, origin: &UpstreamOrigin) -> Option<PathAndQuery> {
    let replaced = origin.replace_prefix.as_deref().map(|prefix| (prefix, routed.rest()));
    let path = routed.target.forwarded(replaced);
    match (parts.uri.path_and_query(), parts.uri.query()) {
        (Some(same), _) if path == parts.uri.path() => Some(same.clone()),
        (_, Some(query)) => format!("{path}?{query}").parse().ok(),
        (_, None) => path.parse().ok(),
    }
}
