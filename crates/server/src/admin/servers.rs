//! Servers of upstreams as JSON, and their changes while the server runs.

use serde_json::{Map, Value, json};

use super::settings::Wrong;
use crate::{
    state::ConfigSnapshot,
    upstream::{ServerChange, ServerMode, ServerStats, UpstreamServer, UpstreamStats},
};

/// The fields of a change.
const FIELDS: [&str; 3] = ["state", "weight", "keep"];
/// Largest weight, as in the configuration file.
const MOST_WEIGHT: u64 = 1_000;
/// The states that a server can be given.
const STATES: [(&str, ServerMode); 3] =
    [("enabled", ServerMode::Enabled), ("draining", ServerMode::Draining), ("disabled", ServerMode::Disabled)];

/// All upstreams.
pub(super) fn all(snapshot: &ConfigSnapshot) -> Value {
    let upstreams = snapshot.upstreams.stats().into_iter().map(|upstream| {
        let UpstreamStats { name, servers, retries, retries_refused, unserved, names, look_ups_failed, hedges } =
            upstream;
        let names: Vec<_> = names
            .into_iter()
            .map(|it| json!({ "name": it.name, "servers": it.servers, "problem": it.problem }))
            .collect();
        let servers: Vec<_> = servers.iter().map(|server| one(snapshot, server)).collect();
        json!({
            "name": &*name,
            "retries": retries,
            "retries_refused": retries_refused,
            "unserved": unserved,
            "hedges": hedges[0],
            "hedges_won": hedges[1],
            "hedges_refused": hedges[2],
            "names": names,
            "look_ups_failed": look_ups_failed,
            "servers": servers,
        })
    });
    json!({ "upstreams": upstreams.collect::<Vec<_>>() })
}

/// The servers of this name in an upstream: one for each class that has its own. `None`: there is none.
pub(super) fn named(snapshot: &ConfigSnapshot, upstream: &str, server: &str) -> Option<Value> {
    let stats = snapshot.upstreams.stats().into_iter().find(|it| *it.name == *upstream)?;
    let servers: Vec<_> = stats.servers.iter().filter(|it| *it.server == *server).map(|it| one(snapshot, it)).collect();
    (!servers.is_empty()).then(|| json!({ "upstream": upstream, "servers": servers }))
}

/// The settings of a server that a change can set. A weight of `null` is that of the configuration file.
pub(super) fn given(snapshot: &ConfigSnapshot, upstream: &str, server: &str) -> Option<Map<String, Value>> {
    let stats = snapshot.upstreams.stats().into_iter().find(|it| *it.name == *upstream)?;
    let server = stats.servers.into_iter().find(|it| *it.server == *server)?;
    let given =
        [("state", name_of(server.mode).into()), ("weight", server.given_weight.into()), ("keep", server.kept.into())];
    Some(given.map(|(name, value): (&str, Value)| (name.to_owned(), value)).into_iter().collect())
}

/// The settings of a server after a change that [`change`] takes.
pub(super) fn after(given: &Map<String, Value>, patch: &Map<String, Value>) -> Map<String, Value> {
    let mut after = given.clone();
    after.extend(patch.clone());
    after
}

fn name_of(mode: ServerMode) -> Option<&'static str> {
    STATES.iter().find(|(_, state)| *state == mode).map(|(name, _)| *name)
}

fn one(snapshot: &ConfigSnapshot, server: &ServerStats) -> Value {
    let class = server.class.and_then(|at| snapshot.names.get(at)).map(|name| name.to_string());
    let is_backup = server.priority == UpstreamServer::BACKUP;
    json!({
        "server": &*server.server,
        "class": class,
        "health": format!("{:?}", server.health).to_ascii_lowercase(),
        "state": name_of(server.mode),
        "weight": server.weight,
        "given_weight": server.given_weight,
        "priority": (!is_backup).then_some(server.priority),
        "backup": is_backup,
        "persistent": !server.changed,
        "keep": server.kept,
        "requests": server.requests,
        "failures": server.failures,
        "in_flight": server.in_flight,
        "connections": server.connections,
    })
}

/// Reads a change. Fields that are not named stay; a weight of `null` is that of the configuration file.
pub(crate) fn change(patch: &Map<String, Value>) -> Result<ServerChange, Wrong> {
    let mut change = ServerChange::default();
    for (field, value) in patch {
        match field.as_str() {
            "state" => {
                let state = STATES.iter().find(|(name, _)| value.as_str() == Some(name)).map(|(_, state)| *state);
                let wrong = || Wrong::new("state", format!("must be enabled, draining or disabled, not {value}"));
                change.mode = Some(state.ok_or_else(wrong)?);
            }
            "weight" if value.is_null() => change.weight = Some(None),
            "weight" => {
                let weight = value.as_u64().filter(|weight| (1..=MOST_WEIGHT).contains(weight));
                let wrong = || Wrong::new("weight", format!("must be from 1 to {MOST_WEIGHT}, or null, not {value}"));
                change.weight = Some(Some(weight.ok_or_else(wrong)? as u32));
            }
            "keep" => {
                let wrong = || Wrong::new("keep", format!("must be true or false, not {value}"));
                change.keep = Some(value.as_bool().ok_or_else(wrong)?);
            }
            _ => return Err(Wrong::new(field, format!("is not known; there are {}", FIELDS.join(", ")))),
        }
    }
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<ServerChange, String> {
        change(value.as_object().unwrap()).map_err(|wrong| wrong.field)
    }

    #[test]
    fn a_change_has_what_is_named_and_nothing_else() {
        assert_eq!(read(json!({})), Ok(ServerChange::default()));
        let all = read(json!({ "state": "draining", "weight": 3, "keep": true }));
        let expected = ServerChange { mode: Some(ServerMode::Draining), weight: Some(Some(3)), keep: Some(true) };
        assert_eq!(all, Ok(expected));
        assert_eq!(read(json!({ "weight": null })), Ok(ServerChange { weight: Some(None), ..ServerChange::default() }));
        for (value, field) in [
            (json!({ "state": "down" }), "state"),
            (json!({ "state": 1 }), "state"),
            (json!({ "weight": 0 }), "weight"),
            (json!({ "weight": 1_001 }), "weight"),
            (json!({ "weight": "2" }), "weight"),
            (json!({ "keep": "yes" }), "keep"),
            (json!({ "drain": true }), "drain"),
        ] {
            assert_eq!(read(value.clone()), Err(field.to_owned()), "{value}");
        }
    }
}
