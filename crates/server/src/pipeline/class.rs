//! Class: whose request it is.

use std::time::SystemTime;

use http::request::Parts;
use tokio::time::Instant;

use super::context::RequestContext;
use crate::{
    classify::{Classified, Facts},
    connection::Connection,
    host::{host_and_port, normal},
    state::ConfigSnapshot,
};

/// Finds the class, which waits only where a password has to be checked.
pub(super) async fn classify(request: &mut RequestContext, snapshot: &ConfigSnapshot) {
    if snapshot.classifier.is_trivial() {
        return;
    }
    let classified = {
        let host = host_and_port(&request.parts).map(normal).unwrap_or_default();
        snapshot.classifier.classify(facts(&request.connection, snapshot, request.site, &request.parts, &host))
    };
    let verdict = match classified {
        Classified::Now(verdict) => verdict,
        Classified::Later(verdict) => {
            let verdict = verdict.await;
            request.now = Instant::now();
            verdict
        }
    };
    request.classified(snapshot, verdict);
}

/// The facts about a request that the classifier needs.
fn facts<'a>(
    connection: &'a Connection,
    snapshot: &ConfigSnapshot,
    site: usize,
    parts: &'a Parts,
    host: &'a str,
) -> Facts<'a> {
    let names = connection.certificate_names(snapshot, site);
    Facts {
        parts,
        host,
        peer: connection.peer,
        local: connection.local,
        certificate_names: names.unwrap_or_default(),
        has_certificate: names.is_some(),
        tls: connection.tls.is_some(),
        now: SystemTime::now(),
    }
}
