//! Guards: steps before the origin that may answer a request early, or refuse it.

mod acme_challenge;
mod address;
mod cors;
mod fallback;
mod limit;
mod maintenance;
mod max_forwards;
mod redirect;
mod require;
mod respond;
mod ruling;
mod to_https;

use std::{sync::Arc, time::Instant};

use acme::Challenges;
use files::error_page;
use http::StatusCode;
use limits::Limiter;

pub(crate) use self::{
    fallback::Fallback,
    maintenance::Switch,
    ruling::{Checked, Guarded, Ruling},
};
use crate::config::{
    self, AddressRules, Certificate, Cors, ForwardAuth, Redirect, Require, Respond, Rewrite, RouteLimit, Site,
};

/// A step that may answer a request before it gets to an origin.
#[derive(Debug)]
pub(crate) enum Guard {
    /// `internal` of a route: no client reaches it by its path.
    Internal,
    /// `maintenance` of the site: its requests are refused while a file exists.
    Maintenance(Arc<Switch>),
    /// `acme` of the site: the authority finds the answer to its challenge.
    AcmeChallenge(Arc<Challenges>),
    /// `https-redirect` of the site: requests without TLS are sent to the same address with TLS.
    ToHttps(Redirect),
    /// `allow` and `deny`: clients are let in by their address.
    Address(AddressRules),
    /// `limit`: a client gets so many requests answered.
    Limit(Arc<Limiter>),
    /// `limit` of the site: the same, once for each request.
    LimitOfSite(Arc<Limiter>),
    /// `cors`: a browser asks what a page of another origin may do.
    Cors(Arc<Cors>),
    /// `require`: only requests that show a password, a key, a certificate or an address go on.
    Require(Box<Require>),
    /// `forward-auth`: another server says whether a request goes on.
    ForwardAuth(Arc<ForwardAuth>),
    /// `redirect` of a route: every request is sent to another address.
    Redirect(Redirect),
    /// `rewrite` of a route: every request goes on with another path.
    Rewrite(Rewrite),
    /// `respond` of a route: every request gets the same answer.
    Respond(Respond),
    /// Routes of files, with `fallback` or scripts among their indexes: what is no file goes on with another path.
    Fallback(Box<Fallback>),
    /// Routes to upstreams: an OPTIONS request goes as far as its `Max-Forwards` says.
    MaxForwards,
}

impl Guard {
    /// Its limit, if it is one, and whether that is of the whole site.
    pub(crate) fn limiter(&self) -> Option<(bool, &Arc<Limiter>)> {
        match self {
            Self::Limit(limiter) => Some((false, limiter)),
            Self::LimitOfSite(limiter) => Some((true, limiter)),
            _ => None,
        }
    }

    /// The guards of a route, in the order in which they are asked: cheap ones first.
    pub(crate) fn of(
        route: &config::Route,
        site: &Site,
        limiter: Option<&Arc<Limiter>>,
        challenges: Option<&Arc<Challenges>>,
        maintenance: Option<&Arc<Switch>>,
    ) -> Box<[Self]> {
        let mut guards = Vec::new();
        if route.internal {
            guards.push(Self::Internal);
        }
        if let Some(Certificate::Acme(_)) = site.certificate {
            guards.extend(challenges.cloned().map(Self::AcmeChallenge));
        }
        // Before a password is asked for.
        guards.extend(site.to_https.clone().map(Self::ToHttps));
        guards.extend(maintenance.filter(|_| route.maintenance).cloned().map(Self::Maintenance));
        if !route.access.addresses.is_empty() {
            guards.push(Self::Address(route.access.addresses.clone()));
        }
        match &route.limit {
            RouteLimit::OfSite => guards.extend(limiter.cloned().map(Self::LimitOfSite)),
            RouteLimit::Own(limit) => guards.push(Self::Limit(Arc::new(Limiter::new(limit, Instant::now())))),
            RouteLimit::Off => {}
        }
        guards.extend(route.cors.clone().map(Self::Cors));
        guards.extend(route.access.require.clone().map(Box::new).map(Self::Require));
        guards.extend(route.access.forward_auth.clone().map(Self::ForwardAuth));
        match &route.origin {
            config::Origin::Redirect(redirect) => guards.push(Self::Redirect(redirect.clone())),
            config::Origin::Rewrite(rewrite) => guards.push(Self::Rewrite(rewrite.clone())),
            config::Origin::Respond(respond) => guards.push(Self::Respond(respond.clone())),
            config::Origin::Upstream { .. } => guards.push(Self::MaxForwards),
            config::Origin::Files => guards.extend(Fallback::of(route, site).map(Box::new).map(Self::Fallback)),
            config::Origin::Cgi(_) | config::Origin::FastCgi(_) | config::Origin::Uwsgi(_) => {}
        }
        guards.into()
    }

    /// Asks the guard about a request.
    pub(crate) fn check<'g>(&'g self, request: &mut Guarded<'_>) -> Checked<'g> {
        Checked::Now(match self {
            Self::Require(require) => return require::check(require, request),
            Self::ForwardAuth(auth) => return Checked::Asks(auth),
            Self::Fallback(fallback) => return fallback::check(fallback, request),
            Self::Internal if !request.is_elsewhere => Ruling::Answer(error_page(StatusCode::NOT_FOUND)),
            Self::Internal => Ruling::GoesOn,
            Self::Maintenance(switch) => switch.check(request),
            Self::AcmeChallenge(challenges) => acme_challenge::check(challenges, request),
            Self::ToHttps(redirect) => to_https::check(redirect, request),
            Self::Address(rules) => address::check(rules, request),
            Self::LimitOfSite(_) if request.is_elsewhere => Ruling::GoesOn,
            Self::Limit(limiter) | Self::LimitOfSite(limiter) => limit::check(limiter, request),
            Self::Cors(cors) => cors::check(cors, request),
            Self::Redirect(redirect) => redirect::redirect(redirect, request),
            Self::Rewrite(rewrite) => redirect::rewrite(rewrite, request),
            Self::Respond(respond) => respond::answer(respond),
            Self::MaxForwards => max_forwards::answer(request.parts).map_or(Ruling::GoesOn, Ruling::Answer),
        })
    }
}
