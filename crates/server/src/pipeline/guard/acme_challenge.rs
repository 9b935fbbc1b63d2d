//! `acme`: the authority finds the answer to its challenge (RFC 8555, section 8.3).

use std::sync::Arc;

use acme::Challenges;
use http::{HeaderValue, Response, header};

use super::ruling::{Guarded, Ruling};
use files::FileBody;

/// Answers for a token that is open. Another token may be that of a program which looks after other certificates.
pub(super) fn check(challenges: &Arc<Challenges>, request: &Guarded<'_>) -> Ruling {
    let token = request.path.strip_prefix(Challenges::PATH);
    let Some(answer) = token.and_then(|token| challenges.http_answer(token)) else { return Ruling::GoesOn };
    let mut response = Response::new(FileBody::from(bytes::Bytes::from(answer.clone())));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(answer.len()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ruling::Answer(response)
}
