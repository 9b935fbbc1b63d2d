//! Guards: steps before the origin that may answer a request early, or refuse it.

mod max_forwards;

use http::{Response, request::Parts};

use crate::{
    config::{self, Redirect},
    host::{host_and_port, without_port},
};
use files::{FileBody, error_page};

/// A step that may answer a request before it gets to an origin.
#[derive(Debug)]
pub(crate) enum Guard {
    /// `redirect` of a route: every request is sent to another address.
    Redirect(Redirect),
    /// Routes to upstreams: an OPTIONS request goes as far as its `Max-Forwards` says.
    MaxForwards,
}

/// What a guard sees of a request.
#[derive(Debug)]
pub(crate) struct Guarded<'a> {
    /// The head, which a guard may change for the origin.
    pub(crate) parts: &'a mut Parts,
    /// `http` or `https`: how the client is connected.
    pub(crate) scheme: &'a str,
    /// The decoded path behind the part that the route's pattern matched.
    pub(crate) rest: &'a str,
}

impl Guard {
    /// The guards of a route, in the order in which they are asked.
    pub(crate) fn of(route: &config::Route) -> Box<[Self]> {
        let mut guards = Vec::new();
        match &route.origin {
            config::Origin::Redirect(redirect) => guards.push(Self::Redirect(redirect.clone())),
            config::Origin::Upstream { .. } => guards.push(Self::MaxForwards),
            config::Origin::Files | config::Origin::Cgi(_) => {}
        }
        guards.into()
    }

    /// The early answer; `None`: the request goes on.
    pub(crate) fn check(&self, request: &mut Guarded<'_>) -> Option<Response<FileBody>> {
        match self {
            Self::Redirect(redirect) => {
                let mut response = error_page(redirect.status);
                let host = host_and_port(request.parts).map(without_port).unwrap_or_default();
                let location = redirect.location(&request.parts.uri, request.scheme, host, request.rest);
                response.headers_mut().insert(http::header::LOCATION, location);
                Some(response)
            }
            Self::MaxForwards => max_forwards::answer(request.parts),
        }
    }
}
