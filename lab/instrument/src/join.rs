//! The parts of a run, joined again.

use std::{collections::BTreeMap, path::Path};

use crate::{LabError, record::RunRecord, shard::Shard, store::Run};

/// Checks that runs are parts of one plan, and finds the run that has each cell.
///
/// # Errors
/// [`LabError::Request`] if they are of different plans, or two have the same cell.
pub fn join(parts: &[Run]) -> Result<BTreeMap<usize, usize>, LabError> {
    let mut places = BTreeMap::new();
    let Some(first) = parts.first() else { return Ok(places) };
    for (number, part) in parts.iter().enumerate() {
        if let Some(what) = difference(first.record(), part.record()) {
            return Err(refused(first.dir(), part.dir(), &format!("are not of one run: their {what} differ")));
        }
        for cell in part.record().cells().filter(|cell| part.has_cell(cell.number)) {
            if let Some(other) = places.insert(cell.number, number) {
                let of = &part.record().points[cell.point].label;
                let which = format!("`{of}`, seed {}, {}", cell.seed, part.record().subjects[cell.subject]);
                let both = format!("both have the measurement of {which}: leave one of them out");
                return Err(refused(parts[other].dir(), part.dir(), &both));
            }
        }
    }
    Ok(places)
}

/// The parts `I/N` that are not among the runs; none if the runs are no parts.
pub fn missing(parts: &[Run]) -> Vec<Shard> {
    let shards: Vec<Shard> = parts.iter().filter_map(|part| part.record().shard).collect();
    let Some(&Shard { of, .. }) = shards.first() else { return Vec::new() };
    let all = (0..of).map(|index| Shard { index, of });
    all.filter(|shard| shards.iter().all(|it| it.of == of) && !shards.contains(shard)).collect()
}

/// The first difference that keeps two records from being of one run.
fn difference(a: &RunRecord, b: &RunRecord) -> Option<&'static str> {
    let models = (a.simulated.as_ref().map(|it| &it.model), b.simulated.as_ref().map(|it| &it.model));
    let parts = (a.shard.map(|it| it.of), b.shard.map(|it| it.of));
    let same = [
        ("experiments", a.experiment == b.experiment && a.points == b.points),
        ("forms", a.quick == b.quick && a.flags == b.flags),
        ("subjects", a.subjects == b.subjects),
        ("seeds", a.seeds == b.seeds),
        ("models", models.0 == models.1),
        ("numbers of parts", parts.0.is_none() || parts.1.is_none() || parts.0 == parts.1),
    ];
    same.into_iter().find(|(_, same)| !same).map(|(what, _)| what)
}

fn refused(a: &Path, b: &Path, why: &str) -> LabError {
    LabError::Request(format!("{} and {} {why}", a.display(), b.display()))
}
