//! Reads what a run left behind, as far as it got: see [`crate::record`] for the layout.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};
use workload::outcome::Outcome;

use crate::{
    LabError,
    record::{CellRecord, RunRecord},
};

/// A run's directory, its outcomes unread.
#[derive(Debug)]
pub(super) struct RunDir {
    pub(super) path: PathBuf,
    pub(super) run: RunRecord,
    /// By point, seed and subject, all by their place in the run's lists: points outermost, then seeds, then subjects.
    pub(super) cells: BTreeMap<Place, StoredCell>,
    /// Cells whose files are there and cannot be used.
    pub(super) unusable: Vec<Unusable>,
}

/// Where a cell belongs: place of the point, of the seed, of the subject.
pub(super) type Place = (usize, usize, usize);

/// A cell that can be read.
#[derive(Debug)]
pub(super) struct StoredCell {
    pub(super) record: CellRecord,
    outcomes: PathBuf,
}

/// A file that is there and says nothing that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unusable {
    /// Its name within the directory.
    pub file: String,
    /// Why.
    pub reason: String,
}

impl RunDir {
    /// Reads `run.json` and the record of each cell that is there.
    pub(super) fn open(path: &Path) -> Result<Self, LabError> {
        let file = path.join("run.json");
        if !file.is_file() {
            let what = if path.is_dir() { "has no run.json" } else { "is not a directory" };
            return Err(LabError::Request(format!(
                "{} {what}: name the directory that `serpent lab run` has written",
                path.display()
            )));
        }
        let run: RunRecord =
            read_json(&file).map_err(|reason| LabError::Request(format!("{}: {reason}", file.display())))?;
        let mut dir = Self { path: path.to_owned(), run, cells: BTreeMap::new(), unusable: Vec::new() };
        for record in cell_files(&path.join("cells"))? {
            let name = format!("cells/{}", record.file_name().unwrap_or_default().to_string_lossy());
            match dir.read_cell(&record) {
                Ok((place, cell)) => {
                    if let Some(twice) = dir.cells.insert(place, cell) {
                        let reason = format!("the same point, seed and subject as cell {}", twice.record.number);
                        dir.unusable.push(Unusable { file: name, reason });
                    }
                }
                Err(reason) => dir.unusable.push(Unusable { file: name, reason }),
            }
        }
        Ok(dir)
    }

    fn read_cell(&self, path: &Path) -> Result<(Place, StoredCell), String> {
        let record: CellRecord = read_json(path)?;
        let place = self.place(&record).ok_or_else(|| {
            let CellRecord { point, subject, seed, .. } = record;
            format!("point {point}, subject {subject} and seed {seed} are not of this run")
        })?;
        let outcomes = path.with_extension("ndjson.zst");
        if !outcomes.is_file() {
            return Err("its requests (.ndjson.zst) are not there".to_owned());
        }
        Ok((place, StoredCell { record, outcomes }))
    }

    fn place(&self, record: &CellRecord) -> Option<Place> {
        let seed = self.run.seeds.iter().position(|&seed| seed == record.seed)?;
        let known = record.point < self.run.points.len() && record.subject < self.run.subjects.len();
        known.then_some((record.point, seed, record.subject))
    }

    /// All places that a whole run has, in order.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        let (points, seeds, subjects) = (self.run.points.len(), self.run.seeds.len(), self.run.subjects.len());
        (0..points).flat_map(move |point| {
            (0..seeds).flat_map(move |seed| (0..subjects).map(move |subject| (point, seed, subject)))
        })
    }

    /// The requests of the cell at `place`. A cell that cannot be read moves to the unusable ones, and is `None`.
    pub(super) fn outcomes(&mut self, place: Place) -> Option<Vec<Outcome>> {
        let cell = self.cells.get(&place)?;
        match read_outcomes(&cell.outcomes) {
            Ok(outcomes) => Some(outcomes),
            Err(reason) => {
                let name = cell.outcomes.file_name().unwrap_or_default().to_string_lossy();
                self.unusable.push(Unusable { file: format!("cells/{name}"), reason });
                self.cells.remove(&place);
                None
            }
        }
    }
}

/// The records of cells, by name. None if the run has not got to its first.
fn cell_files(dir: &Path) -> Result<Vec<PathBuf>, LabError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(LabError::io(format!("cannot read {}", dir.display()))(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(LabError::io(format!("cannot read {}", dir.display())))?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    serde_json::from_str(&text).map_err(|error| match error.classify() {
        serde_json::error::Category::Eof => format!("is cut short: {error}"),
        serde_json::error::Category::Data => {
            format!("is not what this version of serpent reads, so another one may have written it: {error}")
        }
        _ => format!("is no JSON: {error}"),
    })
}

fn read_outcomes(path: &Path) -> Result<Vec<Outcome>, String> {
    let file = File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    let decoder = zstd::Decoder::new(file).map_err(|error| format!("cannot be unpacked: {error}"))?;
    let mut reader = BufReader::new(decoder);
    let (mut outcomes, mut line) = (Vec::new(), String::new());
    loop {
        line.clear();
        let number = outcomes.len() + 1;
        match reader.read_line(&mut line) {
            Ok(0) => return Ok(outcomes),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(format!("is cut short after {} requests", outcomes.len()));
            }
            Err(error) => return Err(format!("cannot be unpacked after {} requests: {error}", outcomes.len())),
        }
        outcomes.push(serde_json::from_str(&line).map_err(|error| format!("line {number} is no outcome: {error}"))?);
    }
}
