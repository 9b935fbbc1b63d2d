//! The upstreams, resources and facts that sites and routes can name.

use server::config::{ResourceConfig, UpstreamConfig};

use super::rules::Configured;

/// The upstreams and resources that routes can name.
pub(super) struct Targets<'a> {
    pub upstreams: &'a [UpstreamConfig],
    pub resources: &'a [ResourceConfig],
    pub configured: &'a Configured,
}
