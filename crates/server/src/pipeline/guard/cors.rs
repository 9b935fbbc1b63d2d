//! `cors`: a browser asks what a page of another origin may do, before the page does it.

use files::FileBody;
use http::{Response, StatusCode};

use super::ruling::{Guarded, Ruling};
use crate::config::Cors;

/// Answers such a question. Browsers send no password along with it, so it comes before the guards that ask for one.
pub(super) fn check(cors: &Cors, request: &Guarded<'_>) -> Ruling {
    let Some(fields) = cors.preflight(&request.parts.method, &request.parts.headers) else { return Ruling::GoesOn };
    let mut response = Response::new(FileBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    *response.headers_mut() = fields;
    Ruling::Answer(response)
}
