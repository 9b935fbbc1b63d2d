//! The files of a site.

use http::{Response, StatusCode};

use crate::{
    config::Source,
    host::{host_and_port, without_port},
    pipeline::{
        answer_body::AnswerBody,
        context::{Failure, RequestContext},
    },
    sites::Routed,
    state::ConfigSnapshot,
};

/// Answers with a file.
pub(super) async fn answer(
    request: &mut RequestContext,
    snapshot: &ConfigSnapshot,
    routed: &Routed<'_>,
) -> Result<Response<AnswerBody>, Failure> {
    let parts = &mut *request.parts;
    let config = &routed.route.config;
    config.request_headers.apply_to_request(&mut parts.headers, request.verdict.client);
    let files = snapshot.sites.files(request.site).ok_or(StatusCode::NOT_FOUND)?;
    // No route has handed it on, and no client may see its text.
    if snapshot.sites.is_script(request.site, routed.target.decoded()) {
        return Err(StatusCode::NOT_FOUND.into());
    }
    let mut response = files.serve_listed(&parts.method, &parts.uri, &parts.headers, config.listing).response().await;
    for other in &config.try_files {
        if response.status() != StatusCode::NOT_FOUND {
            break;
        }
        let source = Source {
            uri: &parts.uri,
            scheme: request.connection.scheme(),
            host: host_and_port(parts).map(without_port).unwrap_or_default(),
            path: routed.target.decoded(),
            rest: routed.rest(),
        };
        if let Some(path) = other.path(&source).filter(|path| !snapshot.sites.is_script(request.site, path.path())) {
            response = files.serve_listed(&parts.method, &path.into(), &parts.headers, config.listing).response().await;
        }
    }
    Ok(response.map(Into::into))
}
