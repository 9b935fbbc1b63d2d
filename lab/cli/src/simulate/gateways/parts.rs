//! Parts of a simulation of gateways, from `--shard I/N`, and the whole that they are together.

use std::{collections::BTreeMap, fs, path::Path};

use instrument::{LabError, shard::Shard};
use serde::{Deserialize, Serialize};
use simulator::gateways::{InUse, Measures};

use super::conditions::Conditions;

/// A file of results.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    /// Of the program.
    pub version: String,
    pub conditions: Conditions,
    /// `None`: all.
    pub shard: Option<Shard>,
    /// By the number of the simulation, from 0.
    pub shown: BTreeMap<usize, Shown>,
}

/// The results of a simulation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shown {
    pub mean_ms: f64,
    pub p99_ms: f64,
    /// Mean and 99th percentile of one gateway; `None` at full load, where one gateway has nothing to show.
    pub one_ms: Option<(f64, f64)>,
    pub followed_ns: Option<u64>,
    pub starved: f64,
    pub unused: f64,
    pub sound: Above,
    pub faulty: Above,
    pub asks: f64,
    pub messages: f64,
}

/// Requests at the site.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Above {
    pub most: u32,
    /// The part of the time with more than the window.
    pub part: f64,
}

impl Shown {
    pub fn new(several: &Measures, one: Option<&Measures>) -> Self {
        let times = |of: &Measures| {
            let all = of.all();
            (all.mean_ms(), all.p99_ms())
        };
        let above = |of: &InUse| Above { most: of.most, part: of.over_ns as f64 / of.seen_ns.max(1) as f64 };
        let (mean_ms, p99_ms) = times(several);
        Self {
            mean_ms,
            p99_ms,
            one_ms: one.map(times),
            followed_ns: several.followed_ns,
            starved: several.starved_worst,
            unused: several.unused,
            sound: above(&several.sound),
            faulty: above(&several.faulty),
            asks: several.asks,
            messages: several.messages,
        }
    }
}

impl Part {
    /// Writes the file.
    pub fn write(&self, path: &Path) -> Result<(), LabError> {
        let text = serde_json::to_string_pretty(self).expect("numbers and texts") + "\n";
        fs::write(path, text).map_err(|error| LabError::Io(format!("cannot write {}", path.display()), error))
    }

    fn read(path: &Path) -> Result<Self, LabError> {
        let text =
            fs::read_to_string(path).map_err(|error| LabError::Io(format!("cannot read {}", path.display()), error))?;
        serde_json::from_str(&text)
            .map_err(|error| LabError::Request(format!("{} is no part of a simulation: {error}", path.display())))
    }
}

/// Reads parts of one simulation, and returns all that they have, and the parts that are missing.
pub fn join(paths: &[impl AsRef<Path>]) -> Result<(Part, Vec<Shard>), LabError> {
    let mut parts = Vec::new();
    for path in paths {
        parts.push((path.as_ref(), Part::read(path.as_ref())?));
    }
    let mut parts = parts.into_iter();
    let Some((first, mut whole)) = parts.next() else { return Err(LabError::Request("--join: no file".to_owned())) };
    let mut shards: Vec<Shard> = whole.shard.into_iter().collect();
    for (path, part) in parts {
        let refuse = |why: &str| Err(LabError::Request(format!("{} and {} {why}", first.display(), path.display())));
        if part.conditions != whole.conditions {
            return refuse("are not of one simulation: their flags differ");
        }
        if part.version != whole.version {
            return refuse("are of different versions of serpent-lab");
        }
        if part.shard.map(|it| it.of) != whole.shard.map(|it| it.of) {
            return refuse("are not of one simulation: their numbers of parts differ");
        }
        shards.extend(part.shard);
        for (number, shown) in part.shown {
            if whole.shown.insert(number, shown).is_some() {
                return Err(LabError::Request(format!(
                    "{}: another file has the same simulations: leave one of them out",
                    path.display()
                )));
            }
        }
    }
    let all =
        (0..whole.shard.map_or(0, |it| it.of)).map(|index| Shard { index, of: whole.shard.map_or(0, |it| it.of) });
    let missing = all.filter(|shard| !shards.contains(shard)).collect();
    Ok((whole, missing))
}
