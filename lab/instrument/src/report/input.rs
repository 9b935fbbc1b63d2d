//! Reads the usable part of a run's folder. A report names missing parts instead of failing.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Serialize;
use workload::outcome::Outcome;

use crate::{
    LabError, join,
    record::{CellRecord, RunRecord},
    store::{Cell, Run},
};

/// A run's folder, or those of its parts. Its outcomes are read later.
#[derive(Debug)]
pub(super) struct RunDir {
    parts: Vec<Run>,
    /// The part that has each cell.
    places: BTreeMap<usize, usize>,
    /// The usable cells, by number.
    pub(super) cells: BTreeMap<usize, CellRecord>,
    /// Cells whose files are present but not usable.
    pub(super) unusable: Vec<Unusable>,
}

/// A cell whose files are present but not usable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unusable {
    /// Its number.
    pub cell: usize,
    /// The reason.
    pub reason: String,
}

impl RunDir {
    /// Reads `run.json` of each part, at least one, and the record of each present cell. Says which parts are missing.
    pub(super) fn join(paths: &[PathBuf]) -> Result<Self, LabError> {
        let parts: Vec<Run> = paths.iter().map(|path| Run::open(path)).collect::<Result<_, _>>()?;
        let places = join::join(&parts)?;
        for missing in join::missing(&parts) {
            eprintln!("note: part {missing} is missing");
        }
        let mut dir = Self { cells: BTreeMap::new(), unusable: Vec::new(), parts, places };
        let expected: Vec<Cell> = dir.record().cells().collect();
        for cell in expected.into_iter().filter(|cell| dir.places.contains_key(&cell.number)) {
            match dir.read_cell(cell) {
                Ok(record) => drop(dir.cells.insert(cell.number, record)),
                Err(reason) => dir.unusable.push(Unusable { cell: cell.number, reason }),
            }
        }
        Ok(dir)
    }

    pub(super) fn path(&self) -> &Path {
        self.parts[0].dir()
    }

    pub(super) fn record(&self) -> &RunRecord {
        self.parts[0].record()
    }

    fn part_of(&self, number: usize) -> &Run {
        &self.parts[self.places.get(&number).copied().unwrap_or(0)]
    }

    fn read_cell(&self, cell: Cell) -> Result<CellRecord, String> {
        let record = self.part_of(cell.number).cell(cell.number).map_err(|error| error.to_string())?;
        if (record.point, record.seed, record.subject) != (cell.point, cell.seed, cell.subject) {
            return Err(format!(
                "it is of point {}, seed {} and subject {}, which is another cell of this run or of none",
                record.point, record.seed, record.subject
            ));
        }
        Ok(record)
    }

    /// Reads the requests of a cell. For a cell that cannot be read it returns `None`, and moves the cell to
    /// the unusable ones.
    pub(super) fn outcomes(&mut self, number: usize) -> Option<Vec<Outcome>> {
        self.cells.get(&number)?;
        match self.part_of(number).outcomes(number).and_then(Iterator::collect) {
            Ok(outcomes) => Some(outcomes),
            Err(error) => {
                self.unusable.push(Unusable { cell: number, reason: error.to_string() });
                self.cells.remove(&number);
                None
            }
        }
    }
}
