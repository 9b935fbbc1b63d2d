//! A request of a route with a cache that goes to the origin.

use std::sync::Arc;

use cache::{Fetch, Found, remove_conditions};
use http::{HeaderMap, Response};

use super::reply::{is_failure, now_ms, respond};
use crate::{
    config::RouteCache,
    pipeline::{
        answer_body::AnswerBody,
        context::{Failure, RequestContext},
    },
    shared_cache::{Done, SharedCache},
};

/// A request that goes to the origin.
pub(in crate::pipeline) struct Asking {
    pub(super) cache: Arc<RouteCache>,
    pub(super) key: String,
    pub(super) asked_ms: u64,
    /// `None`: the answer is not stored.
    pub(super) fetch: Option<Fetch>,
    /// The stored response that cannot be used as it is; `None`: there is none.
    pub(super) old: Option<Found>,
    /// Why it goes there, in the words of RFC 9211.
    pub(super) why: &'static str,
    /// The fields that the client sent.
    pub(super) fields: HeaderMap,
    /// Whether the origin is asked if `old` is still right.
    pub(super) validates: bool,
}

impl Asking {
    /// Makes the request one whose answer can be stored, or whether what is stored is still right.
    pub(super) fn prepare(&mut self, request: &mut RequestContext) {
        self.fields = request.parts.headers.clone();
        self.asked_ms = now_ms();
        let Some(fetch) = &self.fetch else { return };
        let fields = &mut request.parts.headers;
        if let Some(old) = self.old.as_ref().filter(|old| old.stored.can_be_validated()) {
            old.stored.validate(fields);
            self.validates = true;
        } else if fetch.leads() {
            // All of it is wanted, though the client may have it.
            remove_conditions(fields);
        }
    }

    /// A stored response in place of a failure, where that is allowed.
    pub(super) async fn instead_of(
        mut self,
        request: &mut RequestContext,
        shared: &Arc<SharedCache>,
        failure: &Failure,
    ) -> Option<Response<AnswerBody>> {
        let old = self.old.take()?;
        let freshness = old.stored.freshness(now_ms());
        let is_allowed = match failure {
            Failure::Refused(_) => (self.cache.stale_when_busy && freshness.may_be_stale) || freshness.if_error,
            Failure::Status(status) => freshness.if_error && is_failure(*status),
            Failure::Misplaced | Failure::Malformed(_) => false,
        };
        if !is_allowed {
            return None;
        }
        let detail = match failure {
            Failure::Refused(_) => "hit; detail=busy",
            _ => "fwd=stale; detail=error",
        };
        let response =
            respond((&request.parts.headers, request.record.is_head), shared, old, freshness, detail).await?;
        shared.counts.add(&mut request.record.cache, Done::Stale);
        Some(response)
    }
}
