//! The shared cache of responses, as a route uses it.

use ::cache::Rules;

/// How the responses of a route are cached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteCache {
    /// The rules of the route for storing responses, and for using stored ones.
    pub rules: Rules,
    /// Whether a request that would be refused for lack of a slot gets a stale response.
    pub stale_when_busy: bool,
    /// The name of the class of requests that renew stale responses, without a client that waits. `None`: that of the
    /// request that found the response stale.
    pub revalidation_class: Option<String>,
}
