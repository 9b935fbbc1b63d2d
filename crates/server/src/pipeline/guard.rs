//! Guards: steps before the origin that may answer a request early, or refuse it.

mod address;
mod max_forwards;
mod require;
mod ruling;

pub(crate) use self::ruling::{Checked, Guarded, Ruling};
use crate::{
    config::{self, AddressRules, Redirect, Require},
    host::{host_and_port, without_port},
};
use files::error_page;

/// A step that may answer a request before it gets to an origin.
#[derive(Debug)]
pub(crate) enum Guard {
    /// `allow` and `deny`: clients are let in by their address.
    Address(AddressRules),
    /// `require`: only requests that show a password, a key, a certificate or an address go on.
    Require(Box<Require>),
    /// `redirect` of a route: every request is sent to another address.
    Redirect(Redirect),
    /// Routes to upstreams: an OPTIONS request goes as far as its `Max-Forwards` says.
    MaxForwards,
}

impl Guard {
    /// The guards of a route, in the order in which they are asked: cheap ones first.
    pub(crate) fn of(route: &config::Route) -> Box<[Self]> {
        let mut guards = Vec::new();
        if !route.access.addresses.is_empty() {
            guards.push(Self::Address(route.access.addresses.clone()));
        }
        guards.extend(route.access.require.clone().map(Box::new).map(Self::Require));
        match &route.origin {
            config::Origin::Redirect(redirect) => guards.push(Self::Redirect(redirect.clone())),
            config::Origin::Upstream { .. } => guards.push(Self::MaxForwards),
            config::Origin::Files | config::Origin::Cgi(_) => {}
        }
        guards.into()
    }

    /// Asks the guard about a request.
    pub(crate) fn check(&self, request: &mut Guarded<'_>) -> Checked {
        Checked::Now(match self {
            Self::Require(require) => return require::check(require, request),
            Self::Address(rules) => address::check(rules, request),
            Self::Redirect(redirect) => {
                let mut response = error_page(redirect.status);
                let host = host_and_port(request.parts).map(without_port).unwrap_or_default();
                let location = redirect.location(&request.parts.uri, request.scheme, host, request.rest);
                response.headers_mut().insert(http::header::LOCATION, location);
                Ruling::Answer(response)
            }
            Self::MaxForwards => max_forwards::answer(request.parts).map_or(Ruling::GoesOn, Ruling::Answer),
        })
    }
}
