//! The shared cache of a route: a stored response answers, or the answer of the origin is stored.
//!
//! A request that a stored response answers needs no slot and no origin. A request that finds nothing goes on as without a
//! cache, and its answer is stored while it is sent. Requests for the same wait for its head meanwhile.

mod asking;
mod renew;
mod reply;
mod store;

use std::{pin::pin, sync::Arc, time::Duration};

use cache::{Freshness, Turn, invalidates};
use http::{HeaderMap, Method, Response, Uri, header};
use tokio::time::timeout;

pub(super) use self::asking::Asking;
use self::reply::{now_ms, respond};
use super::{
    answer_body::AnswerBody,
    context::{Failure, RequestContext},
    origin::Answer,
    presence::Presence,
    target::host_and_port,
};
use crate::{
    config::RouteCache,
    shared_cache::{Done, SharedCache},
    sites::Routed,
    state::ConfigSnapshot,
};

/// The longest that a request waits for what another one has asked for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The result of a look into the cache.
pub(super) enum Looked {
    /// A stored response.
    Answer(Response<AnswerBody>),
    /// The origin has to be asked; then [`Asking::answered`] gets what it says.
    Asks(Box<Asking>),
}

impl Asking {
    /// Stores the answer of the origin where that is allowed, or gives a stored one in its place.
    pub(super) async fn answered(
        mut self,
        request: &mut RequestContext,
        snapshot: &ConfigSnapshot,
        answer: Result<Answer, Failure>,
    ) -> Result<Answer, Failure> {
        let shared = &snapshot.shared_cache;
        request.parts.headers = std::mem::take(&mut self.fields);
        match answer {
            Ok(Answer::Response(response)) => {
                if invalidates(&request.parts.method, response.status()) {
                    invalidate(shared, &self.key, request, response.headers());
                }
                Ok(Answer::Response(store::take(request, shared, self, response).await))
            }
            Ok(elsewhere @ Answer::Elsewhere(_)) => Ok(elsewhere),
            Err(failure) => match self.instead_of(request, shared, &failure).await {
                Some(response) => Ok(Answer::Response(response)),
                None => Err(failure),
            },
        }
    }
}

/// Looks for a stored response, and waits for one that another request has asked for.
pub(super) async fn look(
    request: &mut RequestContext,
    snapshot: &Arc<ConfigSnapshot>,
    routed: &Routed<'_>,
    cache: &Arc<RouteCache>,
) -> Result<Looked, Failure> {
    let shared = &snapshot.shared_cache;
    let key = key(request);
    let asks = |request: &mut RequestContext, fetch, old, why| {
        let fields = HeaderMap::new();
        let (cache, key) = (cache.clone(), key.clone());
        let mut asking = Asking { cache, key, asked_ms: 0, fetch, old, why, fields, validates: false };
        asking.prepare(request);
        Ok(Looked::Asks(Box::new(asking)))
    };
    let is_read = matches!(request.parts.method, Method::GET | Method::HEAD);
    if !is_read || request.parts.headers.contains_key(header::UPGRADE) || request.body.is_some() {
        shared.counts.add(&mut request.record.cache, Done::Passed);
        return asks(request, None, None, if is_read { "bypass" } else { "method" });
    }
    let mut waited = false;
    loop {
        let mut old = shared.store.find(&key, &request.parts.headers);
        let freshness = old.as_ref().map(|found| found.stored.freshness(now_ms()));
        if let (Some(found), Some(freshness)) = (old.take_if(|_| freshness.is_some_and(is_usable)), freshness) {
            let how = if waited { "fwd=uri-miss; collapsed" } else { "hit" };
            let renewed = (!freshness.is_fresh).then(|| request.parts.headers.clone());
            let stored = found.stored.clone();
            let entry = found.entry;
            match respond((&request.parts.headers, request.record.is_head), shared, found, freshness, how).await {
                Some(response) => {
                    if let Some(fields) = renewed {
                        renew::begin(request, snapshot, routed, cache, &key, (entry, stored), fields);
                    }
                    let done = match (waited, freshness.is_fresh) {
                        (true, _) => Done::Collapsed,
                        (false, true) => Done::Hit,
                        (false, false) => Done::Stale,
                    };
                    shared.counts.add(&mut request.record.cache, done);
                    return Ok(Looked::Answer(response));
                }
                // Its file is damaged, or the disk is slow. The time for that is none of the site's.
                None => {
                    request.waited_for(());
                    old = None;
                }
            }
        }
        let why = if old.is_some() { "stale" } else { "uri-miss" };
        // A part, or a head, is not what could be stored.
        if request.parts.method == Method::HEAD || request.parts.headers.contains_key(header::RANGE) {
            shared.counts.add(&mut request.record.cache, Done::Passed);
            return asks(request, None, old, "bypass");
        }
        // A response that is never fresh answers one request only.
        let is_shared = old.as_ref().is_none_or(|old| old.stored.is_shared_at_once());
        let turn = match is_shared && !waited {
            true => shared.store.begin(&key, now_ms()),
            false => Turn::Asks(shared.store.begin_alone(&key)),
        };
        match turn {
            Turn::Asks(fetch) => {
                shared.counts.add(&mut request.record.cache, Done::Missed);
                return asks(request, Some(fetch), old, why);
            }
            Turn::Follows(follow) => {
                let mut presence = Presence::watch(
                    &request.connection.state,
                    &request.connection.flow,
                    request.parts.version,
                    false,
                    request.now,
                );
                let _ = presence.during(pin!(timeout(PATIENCE, follow.wait()))).await?;
                request.waited_for(());
                waited = true;
            }
        }
    }
}

fn is_usable(freshness: Freshness) -> bool {
    freshness.is_fresh || freshness.while_revalidate
}

/// The key of a request's target.
fn key(request: &RequestContext) -> String {
    let target = request.parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let scheme = match request.is_secure() {
        Some(true) => "https",
        Some(false) => "http",
        None => request.connection.scheme(),
    };
    cache::key(scheme, &host_and_port(&request.parts), target)
}

/// Gives up what is stored for the target of an unsafe request, and for the other targets of the same host that its answer
/// names (RFC 9111, section 4.4).
fn invalidate(shared: &SharedCache, key: &str, request: &RequestContext, answer: &HeaderMap) {
    shared.store.invalidate(key);
    let host = host_and_port(&request.parts);
    for name in [header::LOCATION, header::CONTENT_LOCATION] {
        let Some(uri) = answer.get(name).and_then(|value| Uri::try_from(value.as_bytes()).ok()) else { continue };
        let is_ours = uri.authority().is_none_or(|authority| authority.as_str().eq_ignore_ascii_case(&host));
        if let (true, Some(target)) = (is_ours && uri.path().starts_with('/'), uri.path_and_query()) {
            let scheme = key.split("://").next().unwrap_or_default();
            shared.store.invalidate(&cache::key(scheme, &host, target.as_str()));
        }
    }
}
