//! The request as guards see it, and their decision.

use std::{net::IpAddr, pin::Pin, sync::Arc};

use http::{Response, request::Parts, uri::PathAndQuery};
use limits::Granted;
use scheduler::class::ClassId;
use tokio::time::Instant;

use crate::{classify::Classifier, config::ForwardAuth};
use files::{FileBody, Files};

/// A request, as guards see it.
#[derive(Debug)]
pub(crate) struct Guarded<'a> {
    /// The head, which a guard may change for the origin.
    pub(crate) parts: &'a mut Parts,
    /// `http` or `https`: how the client is connected.
    pub(crate) scheme: &'a str,
    /// Whether the client has spoken TLS, with this server or with a trusted proxy; `None`: the proxy does not say.
    pub(crate) is_secure: Option<bool>,
    /// The decoded path.
    pub(crate) path: &'a str,
    /// The decoded path behind the part that the route's pattern matched.
    pub(crate) rest: &'a str,
    /// The client's address, as told by trusted proxies.
    pub(crate) client: IpAddr,
    /// The class of the request.
    pub(crate) class: ClassId,
    /// The last reading of the clock.
    pub(crate) now: Instant,
    /// Whether the request has come to this route by way of another.
    pub(crate) is_elsewhere: bool,
    /// The names in the client's trusted certificate; `None`: it has none.
    pub(crate) certificate_names: Option<&'a [Box<str>]>,
    /// The files of the site, if it has any.
    pub(crate) files: Option<&'a Files>,
    /// Knows users and keys.
    pub(crate) classifier: &'a Classifier,
}

/// The decision of a guard on a request.
pub(crate) enum Ruling {
    /// The request goes on.
    GoesOn,
    /// The request goes on as that of a user, whose password was checked.
    GoesOnAs(Box<str>),
    /// The request goes on, and holds this until its response is sent.
    GoesOnWith(Granted),
    /// The request takes the steps again, with another path.
    Elsewhere(PathAndQuery),
    /// The request is answered here.
    Answer(Response<FileBody>),
}

/// A ruling, available now, after a check on another thread, or when another server has answered.
pub(crate) enum Checked<'g> {
    /// Here.
    Now(Ruling),
    /// To be awaited; it may be dropped at any time.
    Later(Pin<Box<dyn Future<Output = Ruling> + Send>>),
    /// This server is asked.
    Asks(&'g Arc<ForwardAuth>),
}
