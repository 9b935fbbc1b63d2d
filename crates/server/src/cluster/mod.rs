//! Several gateways of a site: talks to the store that they share.

mod leases;
mod limits;
mod seen;
mod session_keys;
mod values;

use std::time::Duration;

use scheduler::lease::Times;

pub(crate) use self::{
    leases::{hold_leases, hold_line, leave},
    limits::share_limits,
    seen::site,
    values::{apply, share_values},
};

/// Messages about the store are at least so far apart.
const QUIET: Duration = Duration::from_secs(60);
/// An ask without an answer counts as lost after this time: well before a lease ends.
const ANSWER_TIMEOUT: Duration = Duration::from_nanos(Times::DEFAULT.timeout_ns);
