//! The answer of an origin on its way into the store and to its client.

use std::{future::poll_fn, sync::Arc, time::Duration};

use cache::{Asking as Asker, Fetch, FoundBody, Received, Stored, Writer};
use http::{HeaderMap, Method, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::{
    asking::Asking,
    reply::{finish, from_stored, is_failure, now_ms, respond, tell},
};
use crate::{
    config::CacheRules,
    pipeline::{answer_body::AnswerBody, context::RequestContext},
    shared_cache::{Done, SharedCache},
};

/// How long a body is read for the store that no client waits for.
const ALONE: Duration = Duration::from_secs(60);

/// Stores the answer to a request, if that is allowed, and makes the response for its client.
pub(super) async fn take(
    request: &mut RequestContext,
    shared: &Arc<SharedCache>,
    mut asking: Asking,
    mut response: Response<AnswerBody>,
) -> Response<AnswerBody> {
    let status = response.status();
    if is_failure(status)
        && let Some(old) = asking.old.take_if(|old| old.stored.freshness(now_ms()).if_error)
    {
        let freshness = old.stored.freshness(now_ms());
        let detail = format!("fwd=stale; fwd-status={}", status.as_u16());
        if let Some(response) =
            respond((&request.parts.headers, request.record.is_head), shared, old, freshness, &detail).await
        {
            shared.counts.add(&mut request.record.cache, Done::Stale);
            return response;
        }
    }
    let why = asking.why;
    let Some(fetch) = asking.fetch.take() else {
        tell(response.headers_mut(), format_args!("serpent; fwd={why}; fwd-status={}", status.as_u16()));
        return response;
    };
    let is_of_user = request.record.user.is_some() || request.verdict.user.is_some() || request.allowed_by.is_some();
    let received = Received { asked_ms: asking.asked_ms, now_ms: now_ms() };
    let fields = &request.parts.headers;
    let asker = Asker { method: &request.parts.method, headers: fields, is_of_user };
    if status == StatusCode::NOT_MODIFIED && asking.validates {
        if let Some(old) = asking.old.take() {
            let renewed = Arc::new(old.stored.updated(asker, response.headers(), received, &asking.cache.rules));
            keep(fetch, old.entry, &renewed);
            shared.counts.add(&mut request.record.cache, Done::Revalidated);
            let freshness = renewed.freshness(received.now_ms);
            let found = cache::Found { stored: renewed, ..old };
            let how = format!("fwd={why}; fwd-status=304");
            let asked = (&request.parts.headers, request.record.is_head);
            if let Some(answered) = respond(asked, shared, found, freshness, &how).await {
                return answered;
            }
        }
        // Its file has gone meanwhile.
        let mut failed = files::error_page(StatusCode::BAD_GATEWAY).map(AnswerBody::File);
        tell(failed.headers_mut(), format_args!("serpent; fwd={why}; fwd-status=304; detail=lost"));
        return failed;
    }
    // The response stays as it came if it is not stored.
    if let Some(old) = asking.old.take()
        && !is_failure(status)
    {
        fetch.drop_entry(old.entry);
    }
    let began = request.now;
    let stored = into_store(fetch, asker, response, received, &asking.cache.rules, began).await;
    let is_stored = stored.is_ok();
    let mut response = match stored {
        Ok((stored, body)) => {
            let mut response = from_stored(&stored, fields, body, false);
            if stored.headers.contains_key(header::AGE) {
                finish(&mut response, &stored, stored.freshness(received.now_ms));
            }
            response
        }
        Err(response) => response,
    };
    let more = if is_stored { "; stored" } else { "" };
    tell(response.headers_mut(), format_args!("serpent; fwd={why}; fwd-status={}{more}", status.as_u16()));
    response
}

/// A 304 has come: the stored response stays with its new head, or goes.
pub(super) fn keep(fetch: Fetch, entry: u64, renewed: &Arc<Stored>) {
    if renewed.may_stay() {
        fetch.refresh(entry, renewed.clone());
    } else {
        fetch.drop_entry(entry);
    }
}

/// Puts an answer into the store, as far as that is allowed. Its body is in the store or on its way there then.
///
/// # Errors
/// It may not be stored.
pub(super) async fn into_store(
    fetch: Fetch,
    asker: Asker<'_>,
    response: Response<AnswerBody>,
    received: Received,
    rules: &CacheRules,
    began: Instant,
) -> Result<(Stored, FoundBody), Response<AnswerBody>> {
    let Some(stored) = storable(asker, &response, received, rules) else {
        if !response.status().is_server_error() {
            fetch.is_not_stored(received.now_ms);
        }
        return Err(response);
    };
    let (head, body) = response.into_parts();
    let mut body = body;
    if let AnswerBody::File(_) = &body {
        // It was read whole already.
        return match body.collect().await {
            Ok(whole) => {
                let bytes = whole.to_bytes();
                let mut stored = stored;
                stored.cost_us = micros(began);
                fetch.whole(stored.clone(), bytes.clone());
                Ok((stored, FoundBody::Whole(bytes)))
            }
            // Bytes in memory do not break off.
            Err(_) => Err(files::error_page(StatusCode::BAD_GATEWAY).map(AnswerBody::File)),
        };
    }
    match fetch.fill(stored.clone(), body.size_hint().exact()) {
        Ok((writer, reader)) => {
            body.leave_client();
            tokio::spawn(fill(body, writer, began));
            Ok((stored, FoundBody::Filling(reader)))
        }
        Err(fetch) => {
            fetch.is_not_stored(received.now_ms);
            Err(Response::from_parts(head, body))
        }
    }
}

fn storable(
    asker: Asker<'_>,
    response: &Response<AnswerBody>,
    received: Received,
    rules: &CacheRules,
) -> Option<Stored> {
    (*asker.method == Method::GET)
        .then(|| Stored::of(asker, response.status(), response.headers(), received, rules))
        .flatten()
}

/// Takes a body from the origin. Goes on for a while when its clients are gone.
async fn fill(body: AnswerBody, mut writer: Writer, began: Instant) {
    let mut body = std::pin::pin!(body);
    let mut trailers: Option<HeaderMap> = None;
    let mut alone_until = None;
    loop {
        let has_room = poll_fn(|cx| writer.poll_room(cx)).await;
        if !has_room {
            return writer.fail("its client is gone");
        }
        let until = match writer.is_read() {
            true => {
                alone_until = None;
                // The origin's own time limits end what does not move.
                Instant::now() + ALONE
            }
            false => *alone_until.get_or_insert_with(|| Instant::now() + ALONE),
        };
        let frame = match tokio::time::timeout_at(until, body.frame()).await {
            Ok(frame) => frame,
            Err(_) if writer.is_read() => continue,
            Err(_) => return writer.fail("no client waits for it"),
        };
        match frame {
            None => return writer.finish(trailers, micros(began)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => writer.push(data),
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
            Some(Err(error)) => return writer.fail(&error.to_string()),
        }
        if body.is_end_stream() {
            return writer.finish(trailers, micros(began));
        }
    }
}

fn micros(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}
