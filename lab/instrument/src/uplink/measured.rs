//! The measurements that a report is made of.

use workload::outcome::Outcome;

use crate::{
    plan::Plan,
    record::{CellRecord, RunRecord},
};

/// All measurements.
pub(super) struct Measured<'a> {
    pub record: &'a RunRecord,
    /// The plan of the only point.
    pub plan: &'a Plan,
    /// By seed, and within each seed by subject.
    pub runs: &'a [Run],
    /// Number of files.
    pub files: usize,
}

/// One subject under one seed.
pub(super) struct Run {
    pub cell: CellRecord,
    pub outcomes: Vec<Outcome>,
}
