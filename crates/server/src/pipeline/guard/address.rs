//! `allow` and `deny`: clients are let in by their address.

use http::StatusCode;

use super::ruling::{Guarded, Ruling};
use crate::config::AddressRules;
use files::error_page;

/// Refuses a client by its address.
pub(super) fn check(rules: &AddressRules, request: &Guarded<'_>) -> Ruling {
    if rules.admit(request.client) { Ruling::GoesOn } else { Ruling::Answer(error_page(StatusCode::FORBIDDEN)) }
}
