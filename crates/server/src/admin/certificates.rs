//! The certificates of sites, as the admin address shows them.

use serde_json::{Value, json};

use crate::{config::Certificate, state::ConfigSnapshot};

/// The name of a site: its first host name.
pub(super) fn site_name(snapshot: &ConfigSnapshot, site: usize) -> &str {
    snapshot.sites.names_of(site).first().map_or("default", String::as_str)
}

/// All certificates.
pub(super) fn all(snapshot: &ConfigSnapshot) -> Value {
    let ends: Vec<_> = snapshot.tls.iter().flat_map(|tls| tls.ends()).collect();
    let statuses = snapshot.acme.as_ref().map(|acme| acme.statuses()).unwrap_or_default();
    let sites = (0..snapshot.sites.count()).filter_map(|site| {
        let certificate = snapshot.sites.certificate(site)?;
        let end_s = ends.iter().find(|(of, _)| *of == site).map(|(_, end_s)| *end_s);
        let status = match certificate {
            Certificate::Files(_) => None,
            Certificate::Acme(names) => statuses.iter().find(|status| status.names == *names),
        };
        Some(json!({
            "site": site_name(snapshot, site),
            "names": snapshot.sites.names_of(site),
            "from": if certificate.files().is_some() { "files" } else { "acme" },
            "valid_until_s": end_s,
            "next_order_s": status.map(|status| status.next_order_s),
            "failures": status.map(|status| status.failures),
            "last_error": status.and_then(|status| status.last_error.as_ref()),
        }))
    });
    json!({ "certificates": sites.collect::<Vec<_>>() })
}
