//! The way of a request, top to bottom: from its head to the record of its response.
//!
//! ```text
//! site         which site the request is for
//! class        whose request it is, and what it is worth
//! route        which route of the site takes it
//! guards       answer early, or refuse
//! early hints  the client may be told what the page will need
//! cache        a stored response answers, where the route has a cache
//! body         read whole, or streamed
//! admission    wait for a slot of the site, where the origin needs one
//! origin       files, an upstream, or a program answers
//! error page   the site's page replaces the body of an error; gRPC calls get a gRPC status
//! transforms   change the response
//! gate         the response is announced to the uplink
//! record       log and metrics
//! ```
//!
//! One [`RequestContext`] travels; each step borrows it, and no step knows the next one. A route holds its guards, its
//! origin and its transforms in closed lists ([`Guard`], [`Origin`], [`Transform`]), made when the configuration is
//! resolved. An empty list costs nothing. A new guard or transform is a file, a variant, and a setting
//! (CONTRIBUTING.md).
//!
//! The class comes before the guards, because the classifier also finds the client's address behind trusted proxies, by
//! which guards decide.

mod admission;
pub(crate) mod answer_body;
mod asked_for;
mod body;
mod cached;
mod call;
mod class;
mod context;
pub(crate) mod error_page;
mod finish;
mod forward_auth;
mod grpc;
pub(crate) mod guard;
mod interim;
mod origin;
mod presence;
mod record;
mod site;
mod spans;
pub(crate) mod target;
pub(crate) mod transform;
mod websocket;

use std::{pin::Pin, sync::Arc};

use files::FileBody;
use http::{Method, Request, Response, StatusCode, Uri, request::Parts, uri::PathAndQuery};

use self::{
    answer_body::AnswerBody,
    cached::Looked,
    context::{Failure, RequestContext},
    guard::{Checked, Ruling},
    origin::Answer,
};
use crate::{body::IncomingBody, connection::Connection, gate::GatedBody, sites::Routed, state::ConfigSnapshot};

/// How often one request may go to another path, because a program or `rewrite` of a route says so.
const MAX_TIMES_ELSEWHERE: u32 = 10;

/// Answers a request. `interims`: where interim responses of HTTP/2 go; those of HTTP/1 go to the connection. If the
/// future is dropped because the client is gone, a request that waits for a slot leaves its queue.
pub(crate) fn respond(
    connection: &Arc<Connection>,
    parts: Box<Parts>,
    body: IncomingBody,
    interims: Option<http2::Interims>,
) -> Pin<Box<impl Future<Output = Response<GatedBody<AnswerBody>>> + Send + use<>>> {
    let snapshot = connection.server.snapshot.load_full();
    let request = RequestContext::new(connection.clone(), &snapshot, parts, body, interims);
    // The future is made in its box, not copied there.
    Box::into_pin(Box::write(Box::new_uninit(), run(request, snapshot)))
}

async fn run(mut request: RequestContext, snapshot: Arc<ConfigSnapshot>) -> Response<GatedBody<AnswerBody>> {
    let mut response = match answer(&mut request, &snapshot).await {
        Ok(response) => response,
        Err(failure) => failure.response(&mut request, &snapshot),
    };
    if request.websocket.is_some() && response.status().is_success() {
        // Its client would take what follows for a WebSocket.
        response = Failure::from(StatusCode::NOT_IMPLEMENTED).response(&mut request, &snapshot);
    }
    // A class has the page of its refused requests.
    if request.call.is_some() {
        response = grpc::answer(&request, response);
    } else if response.status().as_u16() >= 400 && request.record.refused.is_none() {
        let of_origin = request.route.filter(|_| request.is_answered_by_origin);
        if let Some((files, page)) = snapshot.sites.error_page(request.site, of_origin, response.status()) {
            response = Box::pin(error_page::put(files, page, response)).await;
        }
    }
    let (route, class) = (snapshot.sites.route_name(request.site, request.route), request.record.counters.name());
    request.record.spans.is_of(route, request.verdict.client, class);
    if let Some(compressing) = finish::finish(&mut request, &snapshot, &mut response) {
        compressing.finish(&mut response).await;
    }
    record::announce(request, response)
}

/// The steps to an answer. A program or a guard may send the request to another path, where it takes the steps again.
async fn answer(request: &mut RequestContext, snapshot: &Arc<ConfigSnapshot>) -> Result<Response<AnswerBody>, Failure> {
    request.site = site::find(&request.connection, snapshot, &request.parts)?;
    request.choose_log(snapshot);
    if let Some(response) = site::options(&request.parts) {
        return Ok(response);
    }
    class::classify(request, snapshot).await;
    for times in 0..=MAX_TIMES_ELSEWHERE {
        let uri = request.parts.uri.clone();
        let routed = site::route(request, snapshot, &uri)?;
        match ask_guards(request, snapshot, &routed, times > 0).await? {
            Some(Early::Response(response)) => return Ok(response.map(Into::into)),
            Some(Early::Elsewhere(path)) => {
                request.go_on_with(path);
                continue;
            }
            None => {}
        }
        interim::hint(request, &routed);
        let mut asking = None;
        if let Some(cache) = &routed.route.config.cache {
            // In a box, because few routes have one.
            match Box::pin(cached::look(request, snapshot, &routed, cache)).await? {
                Looked::Answer(response) => {
                    request.is_answered_by_origin = true;
                    return Ok(response);
                }
                Looked::Asks(of_cache) => asking = Some(of_cache),
            }
        }
        let mut answer = ask_origin(request, snapshot, &routed).await;
        if let Some(asking) = asking {
            answer = Box::pin(asking.answered(request, snapshot, answer)).await;
        }
        match answer? {
            Answer::Response(response) => {
                request.is_answered_by_origin = true;
                return Ok(response);
            }
            Answer::Elsewhere(path) => request.go_elsewhere(path),
        }
    }
    tracing::error!(path = request.parts.uri.path(), "programs or rewrites lead to each other without end");
    Err(StatusCode::BAD_GATEWAY.into())
}

/// The steps behind the guards, for a request that no stored response answers.
async fn ask_origin(
    request: &mut RequestContext,
    snapshot: &Arc<ConfigSnapshot>,
    routed: &Routed<'_>,
) -> Result<Answer, Failure> {
    let body = body::take(request, snapshot, routed.route).await?;
    let admitted = admission::wait(request, snapshot, routed.route, body).await?;
    request.record.spans.asks(request.now, &routed.route.origin);
    let answer = origin::answer(request, snapshot, routed, admitted).await;
    request.record.spans.is_answered();
    answer
}

/// The end of a request that guards do not let go on.
enum Early {
    Response(Response<FileBody>),
    /// The request takes the steps again, with this path.
    Elsewhere(PathAndQuery),
}

/// Asks the guards of a route, until one stops the request. `is_elsewhere`: the request comes from another route.
async fn ask_guards(
    request: &mut RequestContext,
    snapshot: &ConfigSnapshot,
    routed: &Routed<'_>,
    is_elsewhere: bool,
) -> Result<Option<Early>, Failure> {
    for guard in &routed.route.guards {
        let checked = guard.check(&mut request.guarded(snapshot, routed, is_elsewhere));
        let ruling = match checked {
            Checked::Now(ruling) => ruling,
            Checked::Later(ruling) => request.waited_for(ruling.await),
            Checked::Asks(server) => Box::pin(forward_auth::ask(request, snapshot, server)).await?,
        };
        match ruling {
            Ruling::GoesOn => {}
            Ruling::GoesOnAs(user) => request.is_of(user),
            Ruling::GoesOnWith(granted) => request.record.is_granted(granted),
            Ruling::Elsewhere(path) => return Ok(Some(Early::Elsewhere(path))),
            Ruling::Answer(response) => return Ok(Some(Early::Response(response))),
        }
    }
    Ok(None)
}

/// Answers a request of HTTP/1 whose head is malformed. `line` is what the head begins with, for the log.
pub(crate) fn refuse(
    connection: &Arc<Connection>,
    status: StatusCode,
    is_head: bool,
    line: Box<[u8]>,
) -> Response<GatedBody<AnswerBody>> {
    let mut head = Request::new(());
    *head.method_mut() = if is_head { Method::HEAD } else { Method::GET };
    *head.uri_mut() = Uri::from_static("*");
    let snapshot = connection.server.snapshot.load_full();
    let parts = Box::new(head.into_parts().0);
    let mut request = RequestContext::refused(connection.clone(), &snapshot, parts, line);
    let mut response = Failure::Malformed(status).response(&mut request, &snapshot);
    // An error page of this server is never compressed.
    let _ = finish::finish(&mut request, &snapshot, &mut response);
    record::announce(request, response)
}
