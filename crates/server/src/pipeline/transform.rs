//! Transforms: changes to the response of an origin, or to a page of this server in its place.

mod compress;

use std::{sync::Arc, time::SystemTime};

use files::{Copies, TypeOfNotModified};
use http::{HeaderMap, HeaderValue, Response, header};

use self::compress::Compress;
pub(crate) use self::compress::Compressing;
use super::answer_body::AnswerBody;
use crate::config::{self, Cors, Expires, HeaderRules, Site};

/// A change to the responses of a route.
#[derive(Debug)]
pub(crate) enum Transform {
    /// `hsts` of the site: browsers stay with TLS.
    Hsts(HeaderValue),
    /// `expires`: how long caches may keep a response.
    Expires(Arc<Expires>),
    /// `cors`: pages of some other origins may read the response.
    Cors(Arc<Cors>),
    /// `response-headers` of the site, then of the route. Holds for error pages, too, so that a field such as
    /// Strict-Transport-Security is on every response of the route.
    Headers(HeaderRules),
    /// `[compression]`: bodies that the client accepts so are compressed while they are sent.
    Compress(Compress),
}

/// A request, as transforms of its response see it.
pub(crate) struct Asked<'a> {
    pub(crate) fields: &'a HeaderMap,
    pub(crate) is_head: bool,
    /// Whether the client has spoken TLS, with this server or with a trusted proxy.
    pub(crate) is_secure: bool,
}

impl Transform {
    /// The transforms of a route, in the order in which they are made.
    pub(crate) fn of(route: &config::Route, site: &Site, copies: &Copies) -> Box<[Self]> {
        let hsts = site.hsts.clone().map(Self::Hsts);
        let expires = route.expires.clone().map(Self::Expires);
        let headers = [&site.response_headers, &route.response_headers].into_iter().filter(|rules| !rules.is_empty());
        // The rules may say the type of a response, and that it is not to be changed.
        let compress = route.compression.clone().map(|config| Compress::new(config, copies.clone()));
        let headers = headers.cloned().map(Self::Headers);
        let cors = route.cors.clone().map(Self::Cors);
        hsts.into_iter().chain(expires).chain(cors).chain(headers).chain(compress.map(Self::Compress)).collect()
    }

    /// Whether it looks at the fields of the request.
    pub(crate) fn reads_request(&self) -> bool {
        match self {
            // Proxies tell there whether their client has spoken TLS.
            Self::Hsts(_) | Self::Compress(_) | Self::Cors(_) => true,
            Self::Expires(_) | Self::Headers(_) => false,
        }
    }

    /// Changes the response to a request. A compression that takes long is returned, to be awaited.
    pub(crate) fn apply(&self, asked: &Asked<'_>, response: &mut Response<AnswerBody>) -> Option<Compressing<'_>> {
        match self {
            // Without TLS an attacker could write it (RFC 6797, section 7.2).
            Self::Hsts(value) if asked.is_secure => {
                response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, value.clone());
            }
            Self::Hsts(_) => {}
            Self::Expires(expires) => {
                let kind = response.extensions().get::<TypeOfNotModified>().map(|kind| kind.0.clone());
                expires.apply(response.status(), kind.as_ref(), response.headers_mut(), SystemTime::now);
            }
            Self::Cors(cors) => cors.apply(asked.fields, response.headers_mut()),
            Self::Headers(rules) => rules.apply(response.headers_mut()),
            Self::Compress(compress) => return compress.apply(asked.fields, asked.is_head, response),
        }
        None
    }
}
