//! Asks and answers as the function in the store reads and writes them.

use redis::Value;
use scheduler::lease::{Ask, CellSettings, Division, Grant, Others, Reply, Tally};
use serde_json::json;

/// The names of a cell and its classes. The store knows both by name, because gateways may have them in another
/// order while a new configuration is rolled out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellName {
    /// Of the cell.
    pub cell: String,
    /// Of the classes.
    pub classes: Vec<String>,
}

const fn name(division: Division) -> &'static str {
    match division {
        Division::Strict => "strict",
        Division::Weighted => "weighted",
        Division::Shared => "shared",
        Division::Demand => "demand",
    }
}

/// An ask as JSON.
pub(crate) fn encode(ask: &Ask, cells: &[CellSettings], names: &[CellName]) -> String {
    let cells: Vec<_> = (ask.cells.iter().zip(cells).zip(names))
        .map(|((ask, settings), names)| {
            let classes: Vec<_> = (names.classes.iter().zip(&settings.classes).zip(&ask.demands))
                .map(|((name, class), demand)| {
                    json!([name, class.weight, class.reserve, demand.running, demand.waiting])
                })
                .collect();
            json!({
                "name": names.cell,
                "window": if settings.adjusted { ask.window } else { settings.window },
                "adjusted": settings.adjusted,
                "finished": [ask.finished.done, ask.finished.failed, ask.finished.service_us],
                "division": name(settings.division),
                "holds": ask.holds,
                "classes": classes,
            })
        })
        .collect();
    let linger_us = ask.linger_ns / 1000;
    json!({ "seen": ask.seen, "gateways": ask.gateways, "linger": linger_us, "cells": cells }).to_string()
}

/// The answer; `None` if it is not one.
pub(crate) fn decode(answer: &Value) -> Option<Reply> {
    let [number, gateways, leads, cells] = list(answer)? else { return None };
    let grant = |cell: &Value| {
        let [slots, wanted, parts, window, others] = list(cell)? else { return None };
        let [running, waiting, done, failed, service_us] = list(others)? else { return None };
        let parts = list(parts)?.iter().map(small).collect::<Option<_>>()?;
        let finished = Tally { done: small(done)?, failed: small(failed)?, service_us: whole(service_us)? };
        Some(Grant {
            slots: small(slots)?,
            wanted: whole(wanted)? != 0,
            parts,
            window: small(window)?,
            others: Others { running: small(running)?, waiting: small(waiting)?, finished },
        })
    };
    Some(Reply {
        number: whole(number)?,
        gateways: small(gateways)?,
        leads: whole(leads)? != 0,
        cells: list(cells)?.iter().map(grant).collect::<Option<_>>()?,
    })
}

/// A list of numbers; `None` if it is not one.
pub(crate) fn counts(answer: &Value) -> Option<Vec<u32>> {
    list(answer)?.iter().map(small).collect()
}

fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

fn small(value: &Value) -> Option<u32> {
    whole(value)?.try_into().ok()
}

fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => (*number).try_into().ok(),
        _ => None,
    }
}
