//! The limits of a configuration as HTTP needs them.

use std::time::Duration;

use ::http1::HeadLimits;

use super::http1::Patience;
use crate::config::Limits;

/// The settings of HTTP, made once for all connections of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct HttpSettings {
    pub(super) http2: http2::Settings,
    pub(super) head: HeadLimits,
    pub(super) patience: Patience,
}

impl HttpSettings {
    pub(crate) fn new(limits: &Limits) -> Self {
        let head_bytes = u32::try_from(limits.request_head_bytes).unwrap_or(u32::MAX);
        // An idle client that answers is closed by `idle_timeout`.
        let [quiet, patience] = [limits.idle_timeout, limits.head_timeout].map(|time| time.max(Duration::from_secs(1)));
        Self {
            http2: http2::Settings::new(limits.http2_streams, head_bytes, quiet, patience),
            head: HeadLimits { head_bytes: limits.request_head_bytes, fields: limits.request_headers },
            patience: Patience { head: limits.head_timeout, idle: limits.idle_timeout },
        }
    }
}
