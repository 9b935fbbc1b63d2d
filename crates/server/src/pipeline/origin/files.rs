//! The files of a site.

use http::{Response, StatusCode};

use crate::{
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
    routed.route.config.request_headers.apply(&mut parts.headers);
    let files = snapshot.sites.files(request.site).ok_or(StatusCode::NOT_FOUND)?;
    let response = files.serve(&parts.method, &parts.uri, &parts.headers).response().await;
    Ok(response.map(Into::into))
}
