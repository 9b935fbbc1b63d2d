//! `https-redirect`: requests without TLS are sent to the same address with TLS.

use acme::Challenges;

use super::{
    redirect::redirect,
    ruling::{Guarded, Ruling},
};
use crate::{config::Redirect, host::host_and_port};

/// Sends a client to TLS that has not spoken it.
pub(super) fn check(to: &Redirect, request: &Guarded<'_>) -> Ruling {
    // A proxy that does not say how its client is connected may have spoken TLS with it: a redirect would never end.
    let goes_on = request.is_secure != Some(false)
        // Authorities look for answers to challenges there, at first without TLS (RFC 8555, section 8.3).
        || request.path.starts_with(Challenges::PATH)
        // In HTTP/1.0 a request need not say its host.
        || host_and_port(request.parts).map_or(true, str::is_empty);
    if goes_on { Ruling::GoesOn } else { redirect(to, request) }
}
