//! Asks and answers as the function in the store reads and writes them.

use std::time::Duration;

use redis::Value;
use scheduler::lease::{Ask, CellSettings, Division, Grant, Others, Reply, Tally};
use serde_json::json;

use crate::shared::{SharedAsk, SharedReply, Tell};

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

/// An ask as JSON, to a store that is a process with this number.
pub(crate) fn encode(ask: &Ask, store: u64, cells: &[CellSettings], names: &[CellName]) -> String {
    let cells: Vec<_> = (ask.cells.iter().zip(cells).zip(names))
        .map(|((ask, settings), names)| {
            let started = ask.started.iter().copied().chain(std::iter::repeat(0));
            let classes: Vec<_> = (names.classes.iter().zip(&settings.classes).zip(&ask.demands).zip(started))
                .map(|(((name, class), demand), started)| {
                    json!([name, class.weight, class.reserve, demand.running, demand.waiting, started])
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
    json!({
        "seen": ask.seen,
        "gateways": ask.gateways,
        "linger": ask.linger_ns / 1000,
        "keep": ask.keep_ns / 1000,
        "store": store,
        "cells": cells,
    })
    .to_string()
}

/// The answer; `None` if it is not one.
pub(crate) fn decode(answer: &Value) -> Option<Reply> {
    let [number, gateways, leads, cells] = list(answer)? else { return None };
    let grant = |cell: &Value| {
        let [slots, wanted, parts, factors, window, others] = list(cell)? else { return None };
        let [running, waiting, done, failed, service_us] = list(others)? else { return None };
        let small_list = |of| list(of)?.iter().map(small).collect::<Option<Vec<u32>>>();
        let finished = Tally { done: small(done)?, failed: small(failed)?, service_us: whole(service_us)? };
        Some(Grant {
            slots: small(slots)?,
            wanted: whole(wanted)? != 0,
            parts: small_list(parts)?,
            factors: small_list(factors)?,
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
pub(crate) fn counts(answer: &Value) -> Option<Vec<u64>> {
    list(answer)?.iter().map(whole).collect()
}

/// A message about common values, as arguments of the store's function.
pub(crate) fn words(ask: &SharedAsk) -> Vec<String> {
    let mut words = vec![ask.epoch.to_string(), ask.version.to_string()];
    for (tell, name, stamp, value) in &ask.told {
        let kind = match tell {
            Tell::Set => "set",
            Tell::First => "first",
            Tell::Keep => "keep",
        };
        words.extend([kind.to_owned(), name.clone(), stamp.to_string(), value.clone()]);
    }
    for name in &ask.held {
        words.extend(["held".to_owned(), name.clone(), "0".to_owned(), String::new()]);
    }
    words
}

/// The answer about common values; `None` if it is none.
pub(crate) fn decode_shared(answer: &Value) -> Option<SharedReply> {
    let [epoch, version, now_us, has_values, values, held] = list(answer)? else { return None };
    let values = list(values)?.chunks(3).map(|it| {
        let [name, stamp, value] = it else { return None };
        Some((text(name)?, whole(stamp)?, text(value)?))
    });
    let values = values.collect::<Option<Vec<_>>>()?;
    Some(SharedReply {
        epoch: whole(epoch)?,
        version: whole(version)?,
        now_us: whole(now_us)?,
        values: (whole(has_values)? != 0).then_some(values),
        held: list(held)?.iter().map(text).collect::<Option<_>>()?,
    })
}

/// The reports of gateways about themselves; `None` if the answer is none.
pub(crate) fn decode_seen(answer: &Value) -> Option<Vec<(String, Duration, String)>> {
    let one = |it: &[Value]| {
        let [gateway, since_ms, says] = it else { return None };
        Some((text(gateway)?, Duration::from_millis(whole(since_ms)?), text(says)?))
    };
    list(answer)?.chunks(3).map(one).collect()
}

/// Clients and their counts; `None` if it is not that.
pub(crate) fn decode_under_way(answer: &Value) -> Option<Vec<(String, u64)>> {
    let one = |it: &[Value]| match it {
        [client, count] => Some((text(client)?, whole(count)?)),
        _ => None,
    };
    list(answer)?.chunks(2).map(one).collect()
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
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
