//! Gate and record: the response is announced to the uplink, and its outcome is counted and logged.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, UNIX_EPOCH},
};

use access_log::{Processed, Sent};
use heads::{GrpcStatus, PriorityField};
use http::{HeaderMap, Response, StatusCode, Version, header};
use http_body::Body as _;
use recent::Slow;

use super::{
    answer_body::AnswerBody,
    context::{RecordContext, RequestContext},
    spans::Ended,
};
use crate::{
    class_metrics::ClassOutcome,
    gate::{GatedBody, SendOutcome, StreamPriority, Urgency},
};
use files::FileBody;

/// The largest error page that does not wait for its turn. A site may have larger ones, and an origin's are of any length.
const MOST_FIRST_BYTES: u64 = 16 * 1024;

/// Announces the response to the uplink, and puts its body behind the gate. The outcome is recorded when the last byte was
/// sent, or the client was lost.
pub(super) fn announce(request: RequestContext, mut response: Response<AnswerBody>) -> Response<GatedBody<AnswerBody>> {
    let priority = priority(&request, response.headers());
    let RequestContext { connection, mut record, parts, .. } = request;
    if record.is_head && matches!(response.body(), AnswerBody::File(body) if !body.is_end_stream()) {
        // Error pages are made with their body. HTTP/2 would send it, though the client asked for none.
        response = response.map(|_| FileBody::empty().into());
    }
    let status = response.status();
    let stays = record.version == Version::HTTP_2 || status == StatusCode::SWITCHING_PROTOCOLS;
    if !stays && connection.state.is_closing() {
        response.headers_mut().insert(header::CONNECTION, super::finish::CLOSE);
    }
    let urgency = match (status, response.body()) {
        (_, body) if body.is_end_stream() => Urgency::First,
        (StatusCode::OK | StatusCode::PARTIAL_CONTENT, _) => Urgency::Ranked,
        // An error page of this server or of the site.
        (_, AnswerBody::File(body)) if body.size_hint().exact().is_some_and(|bytes| bytes <= MOST_FIRST_BYTES) => {
            Urgency::First
        }
        _ => Urgency::Ranked,
    };
    if let (Some(share), Urgency::Ranked) = (record.share.take(), urgency) {
        response.extensions_mut().insert(Arc::new(share));
    }
    if let Some(priority) = priority {
        response.extensions_mut().insert(priority);
    }
    let (class, version) = (record.class, record.version);
    let shown = &connection.server.metrics;
    let asked = shown.are_shown.load(Relaxed).then(|| Slow::request(parts.method.as_str(), parts.uri.path()));
    connection.flow.clone().response_of(class, version, response, urgency, move |outcome: SendOutcome| {
        let RecordContext {
            started,
            entry,
            log,
            in_flight,
            counters,
            user,
            permits,
            waited,
            refused,
            server,
            attempts,
            cache,
            spans,
            call,
            ..
        } = record;
        let response_time = outcome.ended - started;
        drop((in_flight, permits));
        let call = call.map(|call| call.status());
        connection.metrics.record(status, &outcome, response_time);
        if let Some(call) = call {
            connection.metrics.grpc_calls[usize::from(call.number())].fetch_add(1, Relaxed);
        }
        counters.record(&ClassOutcome {
            waited,
            // The slot has counted it.
            service: None,
            system_time: response_time,
            status,
            refused,
            failed: status.is_server_error() || call.is_some_and(GrpcStatus::is_of_server),
            complete: outcome.complete,
        });
        if let Some(asked) = asked {
            let shown = &connection.server.metrics;
            if outcome.complete && outcome.body_bytes > 0 {
                let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                let ended_ns = ns(outcome.ended.saturating_duration_since(shown.began));
                let send_ns = ns(outcome.send_time);
                let ready_ns = ended_ns.saturating_sub(send_ns);
                shown.last_sent.record(ready_ns, outcome.body_bytes, send_ns);
            }
            shown.slowest.record(response_time, || Slow {
                ended_s: UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
                request: asked,
                status: status.as_u16(),
                class: counters.name().clone(),
                body_bytes: outcome.body_bytes,
                is_complete: outcome.complete,
                response_time_s: response_time.as_secs_f64(),
                slot_s: waited.map(|waited| waited.as_secs_f64()),
                uplink_s: outcome.send_time.as_secs_f64(),
                alone_s: outcome.slowdown.map(|slowdown| outcome.send_time.as_secs_f64() / slowdown),
            });
        }
        let trace = spans.trace_number();
        let of_server = server.as_deref();
        let ended = Ended { started, status, outcome: &outcome, server: of_server, cache, refused };
        spans.record(&connection.server, &ended);
        if let (Some(entry), Some(log)) = (entry, log) {
            let class = counters.name().clone();
            let SendOutcome { body_bytes, complete, slowdown, .. } = outcome;
            let sent = Sent { body_bytes, complete, slowdown };
            let processed = Processed {
                class,
                user,
                waited: waited.unwrap_or_default(),
                upstream: server,
                attempts: Some(attempts).filter(|attempts| *attempts > 0),
                cache,
                trace,
                grpc_status: call.map(GrpcStatus::number),
            };
            entry.write(&log, status, sent, response_time, processed);
        }
    })
}

/// How urgent a response of HTTP/2 is among those of its connection (RFC 9218). The priority that the origin sets
/// overrides that of the client. A connection of a trusted proxy carries many clients, and none of them says what is
/// urgent for others.
fn priority(request: &RequestContext, said: &HeaderMap) -> Option<StreamPriority> {
    let interims = request.interims.as_ref().filter(|_| request.verdict.believed.is_none())?;
    let (client, origin) = (request.record.priority, PriorityField::of(said));
    Some(StreamPriority { stream: interims.stream(), client, origin })
}
