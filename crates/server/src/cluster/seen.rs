//! The reports of the gateways of a site about themselves, for `/cluster` of the admin address.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::{class_metrics::GoalKind, common::Seen, state::ServerState};

/// The word of a gateway counts for so long.
pub(super) const COUNTS_FOR: Duration = Duration::from_secs(5);
/// Up to so many gateways know of each other all the time; more of them only while the page is open.
const FEW: u32 = 16;
/// The page is open if it asked within this time.
const LOOKS_FOR: Duration = Duration::from_secs(10);

/// Whether this gateway wants to know what the others say.
pub(super) fn is_wanted(state: &ServerState, seen: &Seen) -> bool {
    let looks = seen.looked_at.is_some_and(|at| at.elapsed() < LOOKS_FOR);
    let leases = state.snapshot.load().admission.stats().leases;
    looks || leases.is_none_or(|leases| leases.gateways <= FEW)
}

/// The report of this gateway about itself.
pub(crate) fn says(state: &ServerState) -> Value {
    let snapshot = state.snapshot.load();
    let stats = snapshot.admission.stats();
    let classes: Vec<_> = (snapshot.class_metrics.iter())
        .map(|counters| {
            let (totals, goals) = (counters.totals(), counters.goals());
            let of_class = stats.classes.iter().find(|(name, _)| name == counters.name()).map(|(_, it)| *it);
            let of_class = of_class.unwrap_or_default();
            let goals = goals.into_iter().map(|goal| {
                json!({
                    "objective": goal.kind.to_string(),
                    "percent": match goal.kind { GoalKind::Percentile(percent) => Some(percent), _ => None },
                    "target": goal.target,
                    "met": goal.met,
                    "requests": goal.counted.0,
                    "sum": goal.counted.1,
                })
            });
            json!({
                "name": &**counters.name(),
                "waiting": of_class.waiting,
                "running": of_class.running,
                "refused": of_class.refused_full + of_class.refused_waited + of_class.refused_late,
                "responses": totals.responses.iter().sum::<u64>(),
                "failed": totals.failed,
                "timed": totals.system.count(),
                "system_s": totals.system.sum_us as f64 / 1e6,
                "objectives": goals.collect::<Vec<_>>(),
            })
        })
        .collect();
    let cells = stats.leases.as_ref().map(|leases| {
        let cell = |(of, slots, window): &(String, u32, u32)| json!({ "of": of, "slots": slots, "window": window });
        leases.cells.iter().map(cell).collect::<Vec<_>>()
    });
    json!({
        "host": rustix::system::uname().nodename().to_string_lossy(),
        "version": env!("CARGO_PKG_VERSION"),
        "up_s": state.metrics.started.elapsed().map_or(0, |since| since.as_secs()),
        "draining": state.is_draining.load(std::sync::atomic::Ordering::Relaxed),
        "in_force": stats.leases.as_ref().is_some_and(|leases| leases.leased),
        "leads": stats.leases.as_ref().is_some_and(|leases| leases.leads),
        "cells": cells,
        "line": state.uplink.line_stats().map(|line| json!({
            "in_force": line.leased,
            "rate_bits_per_second": line.rate_bits_per_second,
            "of_bits_per_second": line.whole_bits_per_second,
        })),
        "classes": classes,
    })
}

/// All gateways, and the sums over them. Without a store, or while it does not answer, this gateway alone.
pub(crate) fn site(state: &ServerState) -> Value {
    let mut gateways: Vec<Value> = Vec::new();
    let mut own = "this".to_owned();
    if let Some(cluster) = &state.cluster {
        own = cluster.store.gateway().to_owned();
        let mut seen = cluster.seen.lock();
        seen.looked_at = Some(Instant::now());
        if let Some(since) = seen.heard_at.map(|at| at.elapsed()).filter(|since| *since < COUNTS_FOR) {
            let of_others = seen.said.iter().filter(|(gateway, ..)| *gateway != own);
            gateways.extend(of_others.map(|(gateway, before, says)| line(gateway, *before + since, says.clone())));
        }
    }
    gateways.push(line(&own, Duration::ZERO, says(state)));
    gateways
        .sort_by(|a, b| (a["host"].as_str(), a["gateway"].as_str()).cmp(&(b["host"].as_str(), b["gateway"].as_str())));
    json!({ "this": own, "classes": classes(&gateways), "gateways": gateways })
}

fn line(gateway: &str, since: Duration, mut says: Value) -> Value {
    if let Some(says) = says.as_object_mut() {
        says.insert("gateway".to_owned(), gateway.into());
        says.insert("seen_s".to_owned(), ((since.as_secs_f64() * 1e3).round() / 1e3).into());
    }
    says
}

/// The sums of the classes, by name, in the order of the first gateway that has them. Gateways may be of different
/// versions. Fields that the first one with the class does not have are left out.
fn classes(gateways: &[Value]) -> Vec<Value> {
    let mut sums: Vec<Map<String, Value>> = Vec::new();
    for class in gateways.iter().flat_map(|gateway| gateway["classes"].as_array().into_iter().flatten()) {
        let Some(class) = class.as_object() else { continue };
        let Some(sum) = sums.iter_mut().find(|sum| sum.get("name") == class.get("name")) else {
            sums.push(class.clone());
            continue;
        };
        for (field, value) in class {
            match (sum.get_mut(field), value) {
                (Some(Value::Array(goals)), Value::Array(more)) => add_goals(goals, more),
                (Some(had), Value::Number(_)) => *had = added(had, value),
                _ => {}
            }
        }
    }
    sums.into_iter().map(|sum| finished(Value::Object(sum))).collect()
}

fn added(a: &Value, b: &Value) -> Value {
    match (a.as_u64(), b.as_u64()) {
        (Some(a), Some(b)) => a.saturating_add(b).into(),
        _ => (a.as_f64().unwrap_or(0.0) + b.as_f64().unwrap_or(0.0)).into(),
    }
}

/// Goals with the same promise are one over all gateways.
fn add_goals(goals: &mut Vec<Value>, more: &[Value]) {
    for goal in more {
        let is_like = |had: &&mut Value| ["objective", "target"].iter().all(|field| had[*field] == goal[*field]);
        match goals.iter_mut().find(is_like) {
            Some(had) => {
                for field in ["requests", "sum"] {
                    had[field] = added(&had[field], &goal[field]);
                }
            }
            None => goals.push(goal.clone()),
        }
    }
}

/// Says what the sums mean: mean times, and whether objectives are met over all gateways.
fn finished(mut class: Value) -> Value {
    let part = |sum: &Value, of: &Value| {
        let of = of.as_f64().filter(|of| *of > 0.0)?;
        Some(sum.as_f64()? / of)
    };
    class["mean_system_s"] = part(&class["system_s"], &class["timed"]).into();
    for goal in class["objectives"].as_array_mut().into_iter().flatten() {
        let value = part(&goal["sum"], &goal["requests"]);
        let percent = goal["percent"].as_f64();
        if let Some(value) = value {
            // Of a percentile, `sum` is how many took longer than promised.
            goal["met"] = match percent {
                Some(percent) => (value <= 1.0 - percent / 100.0 + 1e-9).into(),
                None => goal["target"].as_f64().is_some_and(|target| value <= target).into(),
            };
        }
        goal["value"] = match percent {
            Some(_) => Value::Null,
            None => value.into(),
        };
        goal["within"] = percent.and(value).map(|over| 1.0 - over).into();
    }
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(waiting: u32, requests: u64, sum: f64, over: u64) -> Value {
        json!({ "classes": [{
            "name": "gold", "waiting": waiting, "timed": requests, "system_s": sum,
            "objectives": [
                { "objective": "mean", "percent": null, "target": 0.1, "met": true, "requests": requests, "sum": sum },
                { "objective": "p90", "percent": 90.0, "target": 0.2, "met": true, "requests": requests, "sum": over },
            ],
        }] })
    }

    #[test]
    fn an_objective_is_that_of_all_requests_of_the_site() {
        // 10 fast requests at one, 90 slow ones at the other.
        let all = classes(&[gateway(1, 10, 0.1, 0), gateway(2, 90, 18.0, 10)]);
        let [gold] = &all[..] else { panic!("{all:?}") };
        assert_eq!((gold["waiting"].as_u64(), gold["timed"].as_u64()), (Some(3), Some(100)));
        assert!((gold["mean_system_s"].as_f64().unwrap() - 0.181).abs() < 1e-9);
        let [mean, p90] = &gold["objectives"].as_array().unwrap()[..] else { panic!("{gold}") };
        assert_eq!(
            (mean["met"].as_bool(), p90["met"].as_bool(), p90["within"].as_f64()),
            (Some(false), Some(true), Some(0.9))
        );
        let all = classes(&[gateway(1, 10, 0.1, 0), gateway(2, 90, 1.0, 11)]);
        let goals = &all[0]["objectives"];
        assert_eq!((goals[0]["met"].as_bool(), goals[1]["met"].as_bool()), (Some(true), Some(false)));
    }

    #[test]
    fn what_other_versions_say_is_no_mistake() {
        let odd =
            [json!({}), json!({ "classes": 3 }), json!({ "classes": [7, { "name": "a" }] }), json!([]), Value::Null];
        assert_eq!(classes(&odd).len(), 1);
    }

    #[test]
    fn classes_with_other_promises_are_told_apart() {
        let mut other = gateway(0, 10, 0.1, 0);
        other["classes"][0]["objectives"][0]["target"] = 0.5.into();
        let all = classes(&[gateway(0, 10, 0.1, 0), other]);
        assert_eq!(all[0]["objectives"].as_array().unwrap().len(), 3);
    }
}
