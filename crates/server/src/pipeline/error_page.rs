//! Error pages of a site: files of its root in place of what an origin, or this server, says with an error.

use files::Files;
use http::{HeaderMap, HeaderName, Method, Response, StatusCode, Uri, header};

use super::answer_body::AnswerBody;

/// The fields that describe a body, which are those of the page then. The policy is that of the page that is replaced.
const OF_BODY: [HeaderName; 10] = [
    header::ACCEPT_RANGES,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_SECURITY_POLICY,
    header::CONTENT_TYPE,
    header::ETAG,
    header::LAST_MODIFIED,
    header::TRAILER,
];

/// Puts the page at a path into a response. Status and other fields stay. A page that cannot be read leaves the response as it
/// is.
pub(super) async fn put(files: &Files, path: &Uri, response: Response<AnswerBody>) -> Response<AnswerBody> {
    let page = files.serve(&Method::GET, path, &HeaderMap::new()).response().await;
    if page.status() != StatusCode::OK {
        tracing::warn!(%path, status = page.status().as_u16(), "an error page of a site cannot be read");
        return response;
    }
    let (mut head, _) = response.into_parts();
    let (of_page, body) = page.into_parts();
    for name in OF_BODY {
        head.headers.remove(name);
    }
    for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH] {
        if let Some(value) = of_page.headers.get(&name) {
            head.headers.insert(name, value.clone());
        }
    }
    Response::from_parts(head, body.into())
}
