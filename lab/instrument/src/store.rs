//! The folder of a run, as [`crate::record`] describes it. It is written cell by cell, so that a stopped run
//! loses no measurement, and read by reports.

use std::{
    fmt,
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Serialize, de::DeserializeOwned};
use workload::outcome::Outcome;

use crate::{
    LabError,
    record::{CellRecord, RunRecord},
};

/// A run on disk.
#[derive(Debug)]
pub struct Run {
    dir: PathBuf,
    record: RunRecord,
}

/// The exclusive right to write into a run.
#[derive(Debug)]
pub struct Writer {
    run: Run,
    /// Locked; the lock ends with the file.
    _lock: File,
}

const RUN_FILE: &str = "run.json";
const CELLS: &str = "cells";
/// zstd's own default: outcomes shrink to a tenth, faster than a disk can write them.
const COMPRESSION: i32 = 3;

impl Run {
    /// Opens a folder that `serpent-lab run` or `serpent-lab simulate` wrote, finished or not.
    pub fn open(dir: &Path) -> Result<Self, LabError> {
        let path = dir.join(RUN_FILE);
        if !path.exists() {
            return Err(LabError::Request(format!(
                "{} is not the folder of a run: it has no {RUN_FILE}",
                dir.display()
            )));
        }
        Ok(Self { dir: dir.to_owned(), record: read_json(&path)? })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The record of the run.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// The measured cells, in order.
    pub fn cells(&self) -> Result<Vec<CellRecord>, LabError> {
        let measured = (1..=self.record.cells_count()).filter(|&number| self.has_cell(number));
        measured.map(|number| self.cell(number)).collect()
    }

    /// A measured cell.
    pub fn cell(&self, number: usize) -> Result<CellRecord, LabError> {
        read_json(&self.cell_path(number, "json"))
    }

    /// Whether a cell has been measured.
    pub fn has_cell(&self, number: usize) -> bool {
        // Its requests are stored before it.
        self.cell_path(number, "json").exists()
    }

    /// The requests of a cell, one by one. An error is the last item.
    pub fn outcomes(&self, number: usize) -> Result<Outcomes, LabError> {
        let path = self.cell_path(number, "ndjson.zst");
        let open = || File::open(&path).and_then(zstd::Decoder::new);
        let lines = open().map_err(LabError::io(format!("cannot read {}", path.display())))?;
        Ok(Outcomes { lines: Some(Box::new(BufReader::new(lines))), line: String::new(), number: 0, path })
    }

    fn cell_path(&self, number: usize, ending: &str) -> PathBuf {
        self.dir.join(CELLS).join(format!("{number:04}.{ending}"))
    }
}

impl RunRecord {
    /// The cells of the whole run, as numbers of point, seed and subject: points outermost, then seeds, then
    /// subjects. Cell numbers begin at 1.
    pub fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        let (seeds, subjects) = (self.seeds.len(), self.subjects.len());
        (0..self.cells_count()).map(move |index| Cell {
            number: index + 1,
            point: index / (seeds * subjects),
            seed: self.seeds[index / subjects % seeds],
            subject: index % subjects,
        })
    }

    /// The same cells in the order of measurement. The first subject alternates from seed to seed and point
    /// to point, so that effects of being first or last affect all equally.
    pub fn cells_in_turn(&self) -> impl Iterator<Item = Cell> + '_ {
        let subjects = self.subjects.len().max(1);
        let cells: Vec<Cell> = self.cells().collect();
        let mut turns: Vec<Vec<Cell>> = cells.chunks(subjects).map(<[Cell]>::to_vec).collect();
        for (number, turn) in turns.iter_mut().enumerate() {
            let (point, seed) = (number / self.seeds.len(), number % self.seeds.len());
            let first = (point + seed) % turn.len();
            turn.rotate_left(first);
        }
        turns.into_iter().flatten()
    }

    /// The cells of the part that this record is of, in the order of measurement.
    pub fn cells_of_part(&self) -> impl Iterator<Item = Cell> + '_ {
        self.cells_in_turn()
            .filter(|cell| self.shard.is_none_or(|shard| shard.has((cell.number - 1) / self.subjects.len())))
    }

    /// Number of cells of the whole run.
    pub fn cells_count(&self) -> usize {
        self.points.len() * self.seeds.len() * self.subjects.len()
    }
}

/// A cell to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its number, from 1.
    pub number: usize,
    /// Number of the point, from 0.
    pub point: usize,
    /// The seed.
    pub seed: u64,
    /// Number of the subject, from 0.
    pub subject: usize,
}

impl Writer {
    /// Makes the folder of a new run; it must not contain a run yet.
    pub fn create(dir: &Path, record: RunRecord) -> Result<Self, LabError> {
        if dir.join(RUN_FILE).exists() {
            // An unreadable run counts as a run.
            let begun =
                Run::open(dir).map_or_else(|_| record.resume_command(dir), |run| run.record.resume_command(dir));
            return Err(LabError::Request(format!(
                "{} holds a run already: give another folder, or go on with it by `{begun}`",
                dir.display()
            )));
        }
        fs::create_dir_all(dir.join(CELLS)).map_err(LabError::io(format!("cannot make {}", dir.display())))?;
        write_json(&dir.join(RUN_FILE), &record)?;
        Self::locked(Run { dir: dir.to_owned(), record })
    }

    /// Opens a run to continue it.
    pub fn resume(dir: &Path) -> Result<Self, LabError> {
        Self::locked(Run::open(dir)?)
    }

    fn locked(run: Run) -> Result<Self, LabError> {
        let dir = run.dir.display();
        let lock = File::open(&run.dir).map_err(LabError::io(format!("cannot open {dir}")))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { run, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(LabError::Request(format!("another process is writing into {dir}")))
            }
            Err(error) => Err(LabError::Io(format!("cannot lock {dir}"), error.into())),
        }
    }

    /// The run.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Stores a cell: its requests first, so that a cell with a record is complete.
    pub fn keep(&self, cell: &CellRecord, outcomes: &[Outcome]) -> Result<(), LabError> {
        write_whole(&self.run.cell_path(cell.number, "ndjson.zst"), |file| {
            let mut lines = zstd::Encoder::new(file, COMPRESSION)?;
            for outcome in outcomes {
                serde_json::to_writer(&mut lines, outcome)?;
                lines.write_all(b"\n")?;
            }
            lines.finish().map(drop)
        })?;
        write_json(&self.run.cell_path(cell.number, "json"), cell)
    }
}

/// The requests of a cell, read on demand.
pub struct Outcomes {
    /// `None` after the end or an error.
    lines: Option<Box<dyn BufRead>>,
    line: String,
    number: u64,
    path: PathBuf,
}

impl fmt::Debug for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcomes").field("path", &self.path).field("number", &self.number).finish_non_exhaustive()
    }
}

impl Iterator for Outcomes {
    type Item = Result<Outcome, LabError>;

    fn next(&mut self) -> Option<Self::Item> {
        let lines = self.lines.as_mut()?;
        self.line.clear();
        self.number += 1;
        let read = match lines.read_line(&mut self.line) {
            Ok(0) => {
                self.lines = None;
                return None;
            }
            Ok(_) => serde_json::from_str(&self.line).map_err(io::Error::from),
            Err(error) => Err(error),
        };
        Some(read.map_err(|error| {
            self.lines = None;
            LabError::Io(format!("{}, line {}", self.path.display(), self.number), error)
        }))
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, LabError> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(LabError::io(format!("cannot read {shown}")))?;
    serde_json::from_str(&text).map_err(|error| {
        let wrong = match error.classify() {
            serde_json::error::Category::Eof => "is cut short",
            serde_json::error::Category::Data => {
                "is not what this version of serpent reads; another one may have written it"
            }
            _ => "is no JSON",
        };
        LabError::Request(format!("{shown} {wrong}: {error}"))
    })
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), LabError> {
    write_whole(path, |file| {
        serde_json::to_writer_pretty(&mut *file, value)?;
        file.write_all(b"\n")
    })
}

/// Writes a file under another name, and renames it when it is completely on the disk.
fn write_whole(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), LabError> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".part");
    let all = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(&unfinished)?);
        write(&mut file)?;
        file.into_inner()?.sync_all()?;
        fs::rename(&unfinished, path)
    };
    all().map_err(LabError::io(format!("cannot write {}", path.display())))
}

#[cfg(test)]
mod tests;
