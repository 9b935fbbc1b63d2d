//! Parts of a run, so that many machines do it together: `--shard I/N`, and the parts joined again.

use std::{collections::BTreeMap, fmt, path::Path, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    LabError,
    record::RunRecord,
    store::{Cell, Run},
};

/// A part of a run: every `of`-th pair of a point and a seed, with all its subjects, so that one machine measures all
/// that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// The part, from 0.
    pub index: u32,
    /// Number of parts.
    pub of: u32,
}

impl Shard {
    /// Whether a cell belongs to the part.
    pub fn has(self, cell: &Cell, record: &RunRecord) -> bool {
        let pair = (cell.number - 1) / record.subjects.len().max(1);
        pair % self.of as usize == self.index as usize
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((index, of)) if index < of => Ok(Self { index, of }),
            _ => {
                Err(format!("`{text}` is no part: write I/N with I from 0 to N - 1, as in `0/4` for the first of four"))
            }
        }
    }
}

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

/// What keeps two records from being of one run.
fn difference(a: &RunRecord, b: &RunRecord) -> Option<&'static str> {
    let models = (a.simulated.as_ref().map(|it| &it.model), b.simulated.as_ref().map(|it| &it.model));
    let parts = (a.shard.map(|it| it.of), b.shard.map(|it| it.of));
    let same = [
        ("experiments", a.experiment == b.experiment && a.points == b.points && a.quick == b.quick),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_and_shown() {
        assert_eq!("0/4".parse(), Ok(Shard { index: 0, of: 4 }));
        assert_eq!("3/4".parse::<Shard>().unwrap().to_string(), "3/4");
        for bad in ["", "4/4", "-1/4", "1", "1/0", "a/b", "1/4/2"] {
            assert!(bad.parse::<Shard>().unwrap_err().contains("I/N"), "{bad}");
        }
    }
}
