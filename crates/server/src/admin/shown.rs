//! Classes and admission as JSON.

use std::sync::Arc;

use http::HeaderValue;
use scheduler::{admission::ClassStats, class::ClassId};
use serde_json::{Map, Value, json};

use super::settings;
use crate::{
    admission::ResourceStats,
    class_metrics::{Goal, TimesTotal},
    state::{ConfigSnapshot, ServerState},
};

/// The version of the settings, as an entity tag.
pub(super) fn version(state: &ServerState, snapshot: &ConfigSnapshot) -> HeaderValue {
    // A restarted process begins a new count, so its start time is part of the version.
    let started = state.metrics.started.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    HeaderValue::try_from(format!("\"{started:x}-{}\"", snapshot.version)).expect("hexadecimal and decimal digits")
}

/// All classes, the most important first.
pub(super) fn all_classes(snapshot: &ConfigSnapshot) -> Value {
    let stats = snapshot.admission.stats().classes;
    let classes = (0..snapshot.classes.classes.len()).map(|at| one_class(snapshot, &stats, at)).collect::<Vec<_>>();
    json!({
        "version": snapshot.version,
        "persistent": !snapshot.classes_changed,
        "default": snapshot.classes.classes[snapshot.classes.default.index()].name,
        "classes": classes,
    })
}

/// One class.
pub(super) fn one_class(snapshot: &ConfigSnapshot, stats: &[(Arc<str>, ClassStats)], at: usize) -> Value {
    let config = &snapshot.classes.classes[at];
    let counters = snapshot.class_metrics.of(ClassId(at as u16));
    let totals = counters.totals();
    let stats = stats.iter().find(|(name, _)| **name == *config.name).map(|(_, stats)| *stats).unwrap_or_default();
    let responses: Map<_, _> = (1..).zip(totals.responses).map(|(n, count)| (format!("{n}xx"), count.into())).collect();
    let time = |times: &TimesTotal| json!({ "count": times.count(), "mean_s": times.mean_s() });
    let goal = |goal: Goal| {
        let Goal { kind, target, value, met, .. } = goal;
        json!({ "objective": kind.to_string(), "target": target, "value": value, "met": met })
    };
    json!({
        "name": config.name,
        "position": at,
        "is_default": snapshot.classes.default.index() == at,
        "persistent": !snapshot.classes_changed,
        "settings": settings::class(config),
        "stats": {
            "waiting": stats.waiting,
            "running": stats.running,
            "arrived": stats.arrived,
            "started": stats.started,
            "finished": stats.finished,
            "refused": {
                "queue_full": stats.refused_full,
                "waited_too_long": stats.refused_waited,
                "too_late": stats.refused_late,
            },
            "abandoned": { "waiting": stats.gone_waiting, "running": stats.gone_running },
            "responses": responses,
            "responses_incomplete": totals.incomplete,
            "waiting_time": time(&totals.waiting),
            "service_time": time(&totals.service),
            "system_time": time(&totals.system),
        },
        "objectives": counters.goals().into_iter().map(goal).collect::<Vec<_>>(),
    })
}

/// How slots are shared.
pub(super) fn all_admission(snapshot: &ConfigSnapshot) -> Value {
    let stats = snapshot.admission.stats();
    let resource = |it: &ResourceStats| {
        let mean_service_s = it.mean_service.map(|mean| mean.as_secs_f64());
        json!({
            "name": &*it.name,
            "window": it.window,
            "window_changes": it.window_changes,
            "running": it.running,
            "mean_service_s": mean_service_s,
        })
    };
    let leases = stats.leases.as_ref().map(|it| {
        let cell = |(of, slots, window): &(String, u32, u32)| json!({ "of": of, "slots": slots, "window": window });
        json!({
            "gateways": it.gateways,
            "in_force": it.leased,
            "leads": it.leads,
            "cells": it.cells.iter().map(cell).collect::<Vec<_>>(),
        })
    });
    json!({
        "version": snapshot.version,
        "persistent": !snapshot.classes_changed,
        "settings": settings::admission(&snapshot.classes.admission),
        "stats": {
            "waiting": stats.classes.iter().map(|(_, it)| it.waiting).sum::<usize>(),
            "running": stats.classes.iter().map(|(_, it)| it.running).sum::<usize>(),
            "resources": stats.resources.iter().map(resource).collect::<Vec<_>>(),
            "leases": leases,
        },
    })
}

/// The changes that are kept, the newest first.
pub(super) fn changes(state: &ServerState) -> Value {
    json!(state.changes.lock().newest_first().collect::<Vec<_>>())
}
