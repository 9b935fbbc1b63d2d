//! A program that is run for each request (RFC 3875), or an application behind FastCGI or uwsgi.

use std::{net::SocketAddr, pin::pin, sync::Arc};

use http::{Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use programs::{Application, CgiAnswer, Context};

use super::answer::Answer;
use crate::{
    admission::Slot,
    body::{Afterwards, RelayEnd, relay},
    host::without_port,
    pipeline::{
        admission::Admitted,
        answer_body::AnswerBody,
        context::{Failure, RequestContext},
    },
    sites::Routed,
    state::ConfigSnapshot,
};

/// Has the program answer, and passes its answer on. It works for its client alone: when the client leaves, it ends.
pub(super) async fn answer(
    context: &mut RequestContext,
    snapshot: &Arc<ConfigSnapshot>,
    routed: &Routed<'_>,
    program: &Application,
    admitted: Admitted,
) -> Result<Answer, Failure> {
    let Admitted { body, mut slot, mut presence, .. } = admitted;
    let (parts, connection, verdict) = (&*context.parts, &context.connection, &context.verdict);
    let mut request = Request::new(body);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = parts.uri.clone();
    *request.version_mut() = parts.version;
    *request.headers_mut() = parts.headers.clone();
    let is_head = parts.method == Method::HEAD;
    let class = &snapshot.classes.classes[verdict.class.index()];
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let host = parts.uri.host().map_or_else(|| without_port(host).to_owned(), str::to_owned);
    let rules = &routed.route.config.request_headers;
    let about = Context {
        prefix: routed.prefix(),
        root: snapshot.sites.root(context.site),
        client: SocketAddr::new(verdict.client, connection.peer.port()),
        local: connection.local,
        host: &host,
        tls: connection.tls.is_some(),
        user: verdict.user.as_deref(),
        believed: verdict.believed,
        rules: Some(rules).filter(|rules| !rules.is_empty()),
        class: &class.name,
        priority: class.priority,
        asked: context.asked.as_ref(),
    };
    let answer = match presence.during(pin!(program.run(request, about))).await? {
        Ok(answer) => answer,
        Err(error) => {
            let status = error.status();
            if matches!(status, StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT) {
                slot.into_iter().for_each(Slot::fail);
            }
            return Err(status.into());
        }
    };
    let finish = |slot: Option<Slot>| slot.into_iter().for_each(Slot::finish);
    let response = match answer {
        CgiAnswer::Local(path) => {
            finish(slot);
            return Ok(Answer::Elsewhere(path));
        }
        CgiAnswer::Response(response) => response,
    };
    if let Some(slot) = &mut slot {
        slot.answered(response.status());
    }
    let (head, body) = response.into_parts();
    if is_head || body.is_end_stream() {
        finish(slot);
        return Ok(Answer::Response(Response::from_parts(head, AnswerBody::Program(body))));
    }
    let (relay, relayed) = relay(&snapshot.store, body.size_hint().exact());
    tokio::spawn(async move {
        let end = tokio::select! {
            biased;
            end = relay.pass(body, Afterwards::Nothing) => end,
            () = presence => RelayEnd::ClientGone,
        };
        if end == RelayEnd::Whole {
            finish(slot);
        }
    });
    Ok(Answer::Response(Response::from_parts(head, AnswerBody::Relayed(relayed))))
}
