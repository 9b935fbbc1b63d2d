//! Measures the cells in order, each on its own bed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use workload::outcome::Outcome;

use super::{
    machine,
    measurement::{Measurement, Servers},
};
use crate::{
    LabError,
    docroot::{Content, DocRoot},
    plan::{self, Inputs, Plan, Work},
    progress::Progress,
    record::{CellRecord, Facts, RunRecord},
    store::Cell,
    subject::{Certificate, Subject},
};

/// A checked run: everything that could be known to be impossible was refused.
#[derive(Debug)]
pub(crate) struct Runner {
    plans: Vec<Plan>,
    subjects: Vec<Subject>,
    servers: Servers,
    stop: Arc<AtomicBool>,
}

/// Stores a measured cell.
type Keep<'a> = dyn FnMut(CellRecord, Vec<Outcome>) -> Result<(), LabError> + 'a;

impl Runner {
    /// Resolves every point, and refuses impossible ones.
    pub(crate) fn new(record: &RunRecord, servers: Servers) -> Result<Self, LabError> {
        let about = |label: &str, error| match error {
            LabError::Request(what) => LabError::Request(format!("point `{label}`: {what}")),
            other => other,
        };
        let subjects = parse_subjects(&record.subjects)?;
        let mut inputs = Inputs::default();
        let mut plans = Vec::with_capacity(record.points.len());
        for point in &record.points {
            let plan = Plan::new(&point.setting, &mut inputs).map_err(|error| about(&point.label, error))?;
            for subject in &subjects {
                subject.can(&point.setting).map_err(|error| about(&point.label, error))?;
            }
            plans.push(plan);
        }
        plan::check_machine(&plans, &subjects, &servers.serpent)?;
        Ok(Self { plans, subjects, servers, stop: machine::stop_on_signals()? })
    }

    /// The plan of a point.
    pub(crate) fn plan(&self, point: usize) -> &Plan {
        &self.plans[point]
    }

    /// Measures the cells of `todo` in order, and passes each to `keep`. `notes` are added to each. A cell
    /// whose server or bed fails is stored without requests, as invalid.
    pub(crate) fn measure(
        &self,
        record: &RunRecord,
        todo: &[Cell],
        notes: &[String],
        keep: &mut Keep<'_>,
    ) -> Result<(), LabError> {
        machine::raise_descriptor_limit();
        let expected_s = todo.iter().map(|cell| plan::estimated_s(self.plans[cell.point].setting()));
        let mut progress = Progress::new(expected_s, record.cells_of_part().count());
        let mut files = Files { content: Content::new(), certificate: Certificate::make()?, written: None };
        for &cell in todo {
            if self.stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            let subject = &self.subjects[cell.subject];
            progress.begin(&format!("{}, seed {}, {subject}", record.points[cell.point].label, cell.seed));
            let (outcomes, mut facts) = match self.cell(cell, &mut files) {
                // A program that was making the bed received the same Ctrl-C.
                Err(_) if self.stop.load(Ordering::Relaxed) => return Err(LabError::Interrupted),
                // Other cells may succeed, and so may this one under other conditions.
                Err(error @ (LabError::TestBed(_) | LabError::Subject(_))) => {
                    (Vec::new(), Facts::failed(format!("nothing was measured: {error}")))
                }
                other => other?,
            };
            for reason in &facts.invalid {
                progress.say(&format!("measurement {} is NOT VALID: {reason}", cell.number));
            }
            facts.notes.extend_from_slice(notes);
            let Cell { number, point, seed, subject } = cell;
            keep(CellRecord { number, point, subject, seed, facts }, outcomes)?;
            progress.end();
        }
        Ok(())
    }

    fn cell(&self, cell: Cell, files: &mut Files) -> Result<(Vec<Outcome>, Facts), LabError> {
        let plan = &self.plans[cell.point];
        let Work { sizes_bytes, demand, notes } = plan.work(cell.seed)?;
        let (root, content, certificate) = files.with(&sizes_bytes)?;
        let measurement = Measurement {
            plan,
            subject: &self.subjects[cell.subject],
            servers: &self.servers,
            root,
            content,
            certificate,
            sizes_bytes: &sizes_bytes,
            stop: &self.stop,
        };
        let (outcomes, mut facts) = measurement.measure(cell.seed, demand)?;
        facts.notes.extend(notes);
        Ok((outcomes, facts))
    }
}

/// The files to serve, rewritten only when they change.
struct Files {
    content: Content,
    certificate: Certificate,
    written: Option<(Vec<u64>, DocRoot)>,
}

impl Files {
    fn with(&mut self, sizes_bytes: &[u64]) -> Result<(&DocRoot, &Content, &Certificate), LabError> {
        if self.written.as_ref().is_some_and(|(sizes, _)| sizes != sizes_bytes) {
            // Removes the old files first: there may not be room for both.
            self.written = None;
        }
        let (_, root) = match &mut self.written {
            Some(written) => written,
            none => none.insert((sizes_bytes.to_vec(), DocRoot::write(sizes_bytes)?)),
        };
        Ok((root, &self.content, &self.certificate))
    }
}

/// Parses the subjects of an experiment.
///
/// # Errors
/// [`LabError::Request`] for an invalid subject.
pub fn parse_subjects(names: &[String]) -> Result<Vec<Subject>, LabError> {
    names.iter().map(|name| name.parse().map_err(|error| LabError::Request(format!("{error}")))).collect()
}
