//! `redirect` and `rewrite`: requests are sent to another address, or go on with another path.

use http::{StatusCode, header};

use super::ruling::{Guarded, Ruling};
use crate::{
    config::{Redirect, Rewrite, Source},
    host::{host_and_port, without_port},
};
use files::error_page;

/// Sends the client to another address.
pub(super) fn redirect(redirect: &Redirect, request: &Guarded<'_>) -> Ruling {
    let mut response = error_page(redirect.status);
    response.headers_mut().insert(header::LOCATION, redirect.location(&source(request)));
    Ruling::Answer(response)
}

/// Has the request go on with another path.
pub(super) fn rewrite(rewrite: &Rewrite, request: &Guarded<'_>) -> Ruling {
    match rewrite.path(&source(request)) {
        Some(path) => Ruling::Elsewhere(path),
        None => Ruling::Answer(error_page(StatusCode::URI_TOO_LONG)),
    }
}

/// The parts of a request that are put into a target.
pub(super) fn source<'a>(request: &'a Guarded<'_>) -> Source<'a> {
    Source {
        uri: &request.parts.uri,
        scheme: request.scheme,
        host: host_and_port(request.parts).map(without_port).unwrap_or_default(),
        path: request.path,
        rest: request.rest,
    }
}
