//! The page for a browser that runs no scripts: the present, in tables.

use std::fmt::Write as _;

use serde_json::Value;

use super::live;
use crate::state::ServerState;

/// In place of the tables, for a client that may not read them.
pub(super) const LOCKED: &str = "<p>This is read without a password only on the machine itself. From elsewhere the page needs scripts, and the token.</p>";

/// The present, in tables.
pub(super) fn tables(state: &ServerState) -> String {
    let now = live::show(state, f64::MAX).0;
    let last =
        state.metrics.history.lock().seconds().last().map(|point| serde_json::to_value(point).unwrap_or_default());
    let last = last.unwrap_or_default();
    let mbit = |bits: &Value| bits.as_f64().map_or(Value::Null, |bits| format!("{:.2} Mbit/s", bits / 1e6).into());
    let mut html = String::new();
    table(
        &mut html,
        "Uplink",
        &["Order", "Rate", "Sent", "Waiting", "Under way", "Responses/s", "Errors/s"],
        [vec![
            now["uplink"]["order"].clone(),
            mbit(&now["uplink"]["rate_bits_per_second"]),
            mbit(&last["uplink_bits_per_second"]),
            last["waiting"].clone(),
            last["under_way"].clone(),
            last["responses_per_second"].clone(),
            last["errors_per_second"].clone(),
        ]],
    );
    let class = |it: &Value| {
        let goals: Vec<_> = it["objectives"].as_array().into_iter().flatten().map(goal).collect();
        let stats = &it["stats"];
        let times = ["waiting_time", "system_time"].map(|time| seconds(&stats[time]["mean_s"]));
        let [waiting, system] = times;
        let refused: u64 = stats["refused"].as_object().into_iter().flatten().filter_map(|(_, it)| it.as_u64()).sum();
        vec![
            it["name"].clone(),
            it["settings"]["weight"].clone(),
            stats["running"].clone(),
            stats["waiting"].clone(),
            refused.into(),
            stats["responses"]["5xx"].clone(),
            waiting,
            system,
            goals.join("; ").into(),
        ]
    };
    table(
        &mut html,
        "Classes",
        &[
            "Class",
            "Weight",
            "Running",
            "Waiting",
            "Refused",
            "Errors",
            "Waited, mean",
            "System time, mean",
            "Objectives",
        ],
        now["classes"]["classes"].as_array().into_iter().flatten().map(class),
    );
    let upstreams = now["upstreams"].as_array().into_iter().flatten();
    let servers = upstreams.flat_map(|upstream| {
        let servers = upstream["servers"].as_array().into_iter().flatten();
        servers.map(|it| {
            let fields = ["server", "health", "state", "in_flight", "requests", "failures", "weight"];
            let mut row = vec![upstream["name"].clone()];
            row.extend(fields.map(|field| it[field].clone()));
            row
        })
    });
    table(
        &mut html,
        "Upstreams",
        &["Upstream", "Server", "Health", "State", "At work", "Requests", "Failures", "Weight"],
        servers,
    );
    let site = |it: &Value| {
        let state = if it["closed"] == true { "closed" } else { "open" };
        vec![it["site"].clone(), state.into(), it["file"].clone()]
    };
    table(
        &mut html,
        "Maintenance",
        &["Site", "State", "Closed while this file exists"],
        now["maintenance"].as_array().into_iter().flatten().map(site),
    );
    let slow = |it: &Value| {
        let times = ["response_time_s", "slot_s", "uplink_s"].map(|time| seconds(&it[time]));
        let [all, slot, uplink] = times;
        vec![
            it["request"].clone(),
            it["status"].clone(),
            it["class"].clone(),
            it["body_bytes"].clone(),
            all,
            slot,
            uplink,
        ]
    };
    table(
        &mut html,
        "Slowest of the last 10 minutes",
        &["Request", "Status", "Class", "Bytes", "Time", "Of it in the queue of its class", "Of it on the uplink"],
        now["slowest"].as_array().into_iter().flatten().map(slow),
    );
    html
}

fn goal(it: &Value) -> String {
    let met = match it["met"].as_bool() {
        Some(true) => "kept",
        Some(false) => "missed",
        None => "no requests",
    };
    format!("{}: {met}", it["objective"].as_str().unwrap_or_default())
}

fn seconds(value: &Value) -> Value {
    value.as_f64().map_or(Value::Null, |s| format!("{:.1} ms", s * 1e3).into())
}

/// A table, unless it has no rows.
fn table(html: &mut String, title: &str, heads: &[&str], rows: impl IntoIterator<Item = Vec<Value>>) {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return;
    }
    let _ = write!(html, "<h2>{title}</h2><div class=\"scrolls\"><table><thead><tr>");
    heads.iter().for_each(|head| {
        let _ = write!(html, "<th scope=\"col\">{head}</th>");
    });
    html.push_str("</tr></thead><tbody>");
    for row in rows {
        html.push_str("<tr>");
        for value in row {
            let _ = write!(html, "<td>{}</td>", text(&value));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>\n");
}

/// A value as text of a page.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => escaped(text),
        Value::Number(number) if number.is_f64() => format!("{:.1}", number.as_f64().unwrap_or_default()),
        other => escaped(&other.to_string()),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_from_outside_are_text() {
        let mut html = String::new();
        table(&mut html, "T", &["a", "b", "c"], [vec![json!("<b> & \"c\""), Value::Null, json!(1.25)]]);
        assert!(html.contains("<td>&lt;b&gt; &amp; &quot;c&quot;</td><td>-</td><td>1.2</td>"), "{html}");
        html.clear();
        table(&mut html, "T", &["a"], []);
        assert_eq!(html, "", "a table without rows");
    }
}
