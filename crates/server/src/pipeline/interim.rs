//! Interim responses (RFC 9110, section 15.2): how they come to the client of a request.

use std::sync::Arc;

use heads::Page;
use http::{Response, Version};

use super::context::RequestContext;
use crate::{connection_state::ConnectionState, sites::Routed};

/// The way of interim responses to the client of a request. Usable from any task; from the response on, they are dropped.
pub(super) enum InterimWay {
    /// The connection writes them. It knows its requests by number.
    Http1(Arc<ConnectionState>, u64),
    /// The stream of the request sends them.
    Http2(http2::Interims),
    /// Clients of HTTP/1.0 know no interim responses.
    Nowhere,
}

impl InterimWay {
    pub(super) fn of(request: &RequestContext) -> Self {
        match (&request.interims, request.record.version) {
            (Some(interims), _) => Self::Http2(interims.clone()),
            (None, Version::HTTP_11) => {
                let connection = request.connection.state.clone();
                let number = connection.interims.next();
                Self::Http1(connection, number)
            }
            (None, _) => Self::Nowhere,
        }
    }

    pub(super) fn send(&self, interim: Response<()>) {
        match self {
            Self::Http1(connection, request) => connection.interims.push(*request, &interim),
            Self::Http2(interims) => interims.push(interim),
            Self::Nowhere => {}
        }
    }
}

/// Tells the client what the page will need, where the route says so and it is known. Guards have let the request go on.
pub(super) fn hint(request: &mut RequestContext, routed: &Routed<'_>) {
    let Some(known) = &routed.route.early_hints else { return };
    request.page = Page::of(&request.parts);
    if let Some(hints) = request.page.as_ref().and_then(|page| known.of(page, &request.parts)) {
        InterimWay::of(request).send(hints);
    }
}
