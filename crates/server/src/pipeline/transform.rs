//! Transforms: changes to the response of an origin, or to a page of this server in its place.

mod compress;

use http::{HeaderMap, Response};

use self::compress::Compress;
use super::answer_body::AnswerBody;
use crate::config::{self, HeaderRules};

/// A change to the responses of a route.
#[derive(Debug)]
pub(crate) enum Transform {
    /// `response-headers` of a route. Holds for error pages, too, so that a field such as Strict-Transport-Security is on
    /// every response of the route.
    Headers(HeaderRules),
    /// `[compression]`: bodies that the client accepts so are compressed while they are sent.
    Compress(Compress),
}

impl Transform {
    /// The transforms of a route, in the order in which they are made.
    pub(crate) fn of(route: &config::Route) -> Box<[Self]> {
        let headers = Some(&route.response_headers).filter(|rules| !rules.is_empty());
        // The rules may say the type of a response, and that it is not to be changed.
        let compress = route.compression.clone().map(Compress::new);
        headers.cloned().map(Self::Headers).into_iter().chain(compress.map(Self::Compress)).collect()
    }

    /// Changes the response to a request with these fields.
    pub(crate) fn apply(&self, asked: &HeaderMap, is_head: bool, response: &mut Response<AnswerBody>) {
        match self {
            Self::Headers(rules) => rules.apply(response.headers_mut()),
            Self::Compress(compress) => compress.apply(asked, is_head, response),
        }
    }
}
