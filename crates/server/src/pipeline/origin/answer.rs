//! The answers of origins.

use http::{Response, uri::PathAndQuery};

use crate::pipeline::answer_body::AnswerBody;

/// The answer of an origin.
pub(in crate::pipeline) enum Answer {
    /// A response.
    Response(Response<AnswerBody>),
    /// A program sends the request to another path (RFC 3875, section 6.2.2).
    Elsewhere(PathAndQuery),
}
