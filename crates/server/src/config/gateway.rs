//! Routes of a site, and the origins behind them: files, upstreams, programs.

use std::sync::Arc;

use access_log::LogChoice;
use heads::{Cors, Expires, HeaderRules};
use limits::Limit;
use rewrites::{Redirect, Rewrite};
use scheduler::admission::ResourceId;

use super::{
    Access, CgiConfig, CompressionConfig, FastCgiConfig, Filter, PathPattern, Respond, RouteCache, Times, UwsgiConfig,
};

/// A route to an origin. The first route of a site that matches a request serves it; without a match the
/// site's files do.
#[derive(Clone, Debug)]
pub struct Route {
    /// The name in logs, metrics and `serpent explain`: the text of the pattern.
    pub name: String,
    /// The paths that it matches.
    pub pattern: PathPattern,
    /// Which requests for these paths it takes.
    pub filter: Filter,
    /// The origin that answers.
    pub origin: Origin,
    /// The resource of the site that its requests mainly need.
    pub resource: ResourceId,
    /// Whether its requests wait for a slot of the site. On by default, except for files.
    pub admitted: bool,
    /// Changes to the request's header before it goes to the origin.
    pub request_headers: HeaderRules,
    /// Changes to the response's header before it goes to the client.
    pub response_headers: HeaderRules,
    /// How its responses are compressed while they are sent; `None`: they are not.
    pub compression: Option<Arc<CompressionConfig>>,
    /// How long its responses may be kept, by their type; `None`: nothing is said.
    pub expires: Option<Arc<Expires>>,
    /// Which pages of other origins may read its responses; `None`: nothing is said.
    pub cors: Option<Arc<Cors>>,
    /// The requests that it refuses.
    pub access: Access,
    /// How many of its requests are answered.
    pub limit: RouteLimit,
    /// Whether it is closed with its site for maintenance.
    pub maintenance: bool,
    /// Files of the site, the first of which answers where there is no file for a path. Only for files.
    pub try_files: Vec<Rewrite>,
    /// Where a request goes for which there is no file: with this path, the routes are tried anew. Only for files.
    pub fallback: Option<Rewrite>,
    /// Whether directories without an index are listed; `None`: as the site says. Only for files.
    pub listing: Option<bool>,
    /// The largest body of its requests; `None`: as everywhere.
    pub request_body_bytes: Option<u64>,
    /// Whether clients are told early what its pages need. Not for files, which are there at once.
    pub early_hints: bool,
    /// Whether no client reaches it by its path: only `fallback`, `rewrite` and programs lead to it.
    pub internal: bool,
    /// Whether error pages of the site take the place of the errors of its origin, too, and not only of this server's.
    pub replaces_errors: bool,
    /// How its responses are cached; `None`: they are not. Only for upstreams.
    pub cache: Option<Arc<RouteCache>>,
    /// Where the outcomes of its requests are written.
    pub access_log: LogChoice,
}

/// The limit of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RouteLimit {
    /// The site's, if it has one.
    #[default]
    OfSite,
    /// One of its own.
    Own(Limit),
    /// None.
    Off,
}

impl Route {
    /// The route of a site's files, for all paths that no other route takes.
    pub fn of_files(
        access: Access,
        compression: Option<Arc<CompressionConfig>>,
        expires: Option<Arc<Expires>>,
        cors: Option<Arc<Cors>>,
    ) -> Self {
        Self {
            name: "/".to_owned(),
            pattern: PathPattern::Prefix(String::new()),
            filter: Filter::default(),
            origin: Origin::Files,
            resource: ResourceId(0),
            admitted: false,
            request_headers: HeaderRules::default(),
            response_headers: HeaderRules::default(),
            compression,
            expires,
            cors,
            access,
            limit: RouteLimit::OfSite,
            maintenance: true,
            try_files: Vec::new(),
            fallback: None,
            listing: None,
            request_body_bytes: None,
            early_hints: false,
            internal: false,
            replaces_errors: true,
            cache: None,
            access_log: LogChoice::Outer,
        }
    }
}

/// The origin of answers.
#[derive(Clone, Debug)]
pub enum Origin {
    /// The files of the site's root.
    Files,
    /// Upstream servers.
    Upstream {
        /// The index in [`super::Config::upstreams`].
        upstream: usize,
        /// The replacement of the matched prefix; `None`: the path stays. Only with [`PathPattern::Prefix`].
        replace_prefix: Option<String>,
        /// Whether the client's `Host` is passed on, rather than the upstream's own.
        keep_host: bool,
        /// Whether the body is read whole before the request waits for its slot, so that a slow upload holds
        /// none.
        buffer_request: bool,
        /// Whether a response that the client reads slowly is buffered here, so that it holds no slot.
        buffer_response: bool,
        /// Time limits in place of those of the upstream; the one of silence holds for a tunnel (WebSocket), too. `None`:
        /// those of the upstream, and a tunnel has that of the client's connection.
        times: Option<Times>,
    },
    /// A program run for each request (RFC 3875).
    Cgi(CgiConfig),
    /// An application that answers by FastCGI.
    FastCgi(Box<FastCgiConfig>),
    /// An application that answers by uwsgi.
    Uwsgi(Box<UwsgiConfig>),
    /// None: each request is sent to another address.
    Redirect(Redirect),
    /// None: each request goes on with another path.
    Rewrite(Rewrite),
    /// None: all requests get the same answer.
    Respond(Respond),
}
