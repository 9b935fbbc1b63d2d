//! Sites that are closed for maintenance, as JSON, and closing them at the admin address.

use serde_json::{Map, Value, json};

use super::settings::Wrong;
use crate::{
    common::{Cluster, closed},
    pipeline::guard::Switch,
    state::ConfigSnapshot,
};

/// All sites that can be closed.
pub(super) fn all(snapshot: &ConfigSnapshot) -> Value {
    let sites: Vec<_> = snapshot.sites.maintenance().map(|switch| one(switch)).collect();
    json!({ "sites": sites })
}

/// The site with this first name. `None`: there is none that can be closed.
pub(super) fn named(snapshot: &ConfigSnapshot, site: &str) -> Option<Value> {
    snapshot.sites.maintenance().find(|switch| switch.site() == site).map(|switch| one(switch))
}

fn one(switch: &Switch) -> Value {
    json!({
        "site": switch.site(),
        "closed": switch.is_closed(),
        "switched": switch.is_turned(),
        "file": switch.path().display().to_string(),
        "file_exists": switch.has_file(),
    })
}

/// The settings that a change can set: whether the switch closes the site. `None`: there is no such site.
pub(super) fn given(snapshot: &ConfigSnapshot, site: &str) -> Option<Map<String, Value>> {
    let switch = snapshot.sites.maintenance().find(|switch| switch.site() == site)?;
    Some(switched(switch.is_turned()))
}

/// The settings of a site whose switch stands so.
pub(super) fn switched(closed: bool) -> Map<String, Value> {
    [("closed".to_owned(), closed.into())].into_iter().collect()
}

/// Reads a change: whether the site is to be closed, if that is said.
pub(super) fn read(patch: &Map<String, Value>) -> Result<Option<bool>, Wrong> {
    let mut turned = None;
    for (field, value) in patch {
        match field.as_str() {
            "closed" => {
                let wrong = || Wrong::new("closed", format!("must be true or false, not {value}"));
                turned = Some(value.as_bool().ok_or_else(wrong)?);
            }
            _ => return Err(Wrong::new(field, "is not known; there is `closed`")),
        }
    }
    Ok(turned)
}

/// Closes a site here and at all other gateways, or takes that back. Does nothing if there is no such site.
pub(super) fn turn(snapshot: &ConfigSnapshot, cluster: Option<&Cluster>, site: &str, turned: bool) {
    let mut switches = snapshot.sites.maintenance().filter(|switch| switch.site() == site).peekable();
    if let (Some(_), Some(cluster)) = (switches.peek(), cluster) {
        cluster.set(&closed(site), if turned { "yes" } else { "no" }.to_owned());
    }
    switches.for_each(|switch| switch.turn(turned));
}
