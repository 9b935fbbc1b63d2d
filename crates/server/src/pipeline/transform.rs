//! Transforms: changes to the response of an origin, or to a page of this server in its place.

use http::Response;

use super::answer_body::AnswerBody;
use crate::config::{self, HeaderRules};

/// A change to the responses of a route.
#[derive(Debug)]
pub(crate) enum Transform {
    /// `response-headers` of a route. Holds for error pages, too, so that a field such as Strict-Transport-Security is on
    /// every response of the route.
    Headers(HeaderRules),
}

impl Transform {
    /// The transforms of a route, in the order in which they are made.
    pub(crate) fn of(route: &config::Route) -> Box<[Self]> {
        let headers = Some(&route.response_headers).filter(|rules| !rules.is_empty());
        headers.cloned().map(Self::Headers).into_iter().collect()
    }

    /// Changes a response.
    pub(crate) fn apply(&self, response: &mut Response<AnswerBody>) {
        match self {
            Self::Headers(rules) => rules.apply(response.headers_mut()),
        }
    }
}
