//! A stale response is renewed while its clients have it: a request of its own, in a class of its own, without a client.

use std::sync::Arc;

use cache::{Asking as Asker, Received, Stored, Turn};
use http::{HeaderMap, Method, StatusCode};
use scheduler::class::ClassId;

use super::{
    reply::{is_failure, now_ms},
    store,
};
use crate::{
    admission::Arrival,
    body::RequestBody,
    config::RouteCache,
    pipeline::{
        answer_body::{AnswerBody, SlotBody},
        context::RequestContext,
        origin::upstream,
    },
    shared_cache::{Done, SharedCache},
    sites::{Origin, Routed},
    state::ConfigSnapshot,
    upstream::{Pools, PreparedRequest},
};

/// A request for a new response.
struct Renewal {
    shared: Arc<SharedCache>,
    snapshot: Arc<ConfigSnapshot>,
    cache: Arc<RouteCache>,
    fetch: cache::Fetch,
    old: (u64, Arc<Stored>),
    fields: HeaderMap,
    is_of_user: bool,
    pools: Arc<Pools>,
    prepared: Box<PreparedRequest>,
    arrival: Option<Arrival>,
}

/// Begins to renew a response, unless that is under way already. `fields` are those of the request that found it stale.
pub(super) fn begin(
    request: &RequestContext,
    snapshot: &Arc<ConfigSnapshot>,
    routed: &Routed<'_>,
    cache: &Arc<RouteCache>,
    key: &str,
    old: (u64, Arc<Stored>),
    fields: HeaderMap,
) {
    let Origin::Upstream(origin) = &routed.route.origin else { return };
    let shared = &snapshot.shared_cache;
    if request.parts.method != Method::GET {
        return;
    }
    let fetch = match shared.store.begin(key, now_ms()) {
        Turn::Asks(fetch) if fetch.leads() => fetch,
        Turn::Asks(_) | Turn::Follows(_) => return,
    };
    let mut asked = fields.clone();
    cache::remove_conditions(&mut asked);
    if old.1.can_be_validated() {
        old.1.validate(&mut asked);
    }
    let pools = request.connection.pools.of(snapshot);
    let Ok(prepared) = upstream::prepare(request, routed, origin, &pools, asked, RequestBody::Empty) else { return };
    let own = cache.revalidation_class.as_ref();
    let class = own.and_then(|name| class_named(snapshot, name)).unwrap_or(request.verdict.class);
    let is_admitted = routed.route.config.admitted && snapshot.classes.admission.enabled;
    let arrival = is_admitted.then(|| Arrival {
        class,
        resource: request.verdict.resource.unwrap_or(routed.route.config.resource),
        client: 0,
        route: routed.route.key,
        within: None,
    });
    let renewal = Renewal {
        shared: shared.clone(),
        snapshot: snapshot.clone(),
        cache: cache.clone(),
        fetch,
        old,
        fields,
        is_of_user: request.record.user.is_some() || request.verdict.user.is_some() || request.allowed_by.is_some(),
        pools,
        prepared,
        arrival,
    };
    tokio::spawn(renewal.run());
}

/// The class of this name, which may be gone since a change at the admin address.
fn class_named(snapshot: &ConfigSnapshot, name: &str) -> Option<ClassId> {
    let at = snapshot.classes.classes.iter().position(|class| class.name == name)?;
    u16::try_from(at).ok().map(ClassId)
}

impl Renewal {
    async fn run(self) {
        let Self { shared, snapshot, cache, fetch, old, fields, is_of_user, pools, prepared, arrival } = self;
        let slot = match arrival {
            None => None,
            Some(arrival) => match snapshot.admission.enter(arrival).await {
                Ok(slot) => Some(slot.counted(snapshot.class_metrics.of(arrival.class).service_times())),
                // The site has more to do than it can; the next request tries again.
                Err(_) => return,
            },
        };
        let (asked_ms, began) = (now_ms(), tokio::time::Instant::now());
        let mut slot = slot;
        let answer = match pools.pass(prepared, &mut drop).await {
            Ok(answer) => answer,
            Err(error) => {
                upstream::give_up(slot, &error);
                return;
            }
        };
        if let Some(slot) = &mut slot {
            slot.answered(answer.response.status());
        }
        let response = answer.response.map(|body| AnswerBody::Upstream(Box::new(SlotBody::without_client(body, slot))));
        let received = Received { asked_ms, now_ms: now_ms() };
        let method = Method::GET;
        let asker = Asker { method: &method, headers: &fields, is_of_user };
        let status = response.status();
        if status == StatusCode::NOT_MODIFIED {
            let renewed = Arc::new(old.1.updated(asker, response.headers(), received, &cache.rules));
            store::keep(fetch, old.0, &renewed);
            shared.counts.add(&mut None, Done::Revalidated);
        } else if !is_failure(status) {
            fetch.drop_entry(old.0);
            // A response that is not stored is of no use.
            let _ = store::into_store(fetch, asker, response, received, &cache.rules, began).await;
        }
    }
}
