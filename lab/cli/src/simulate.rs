//! `serpent-lab simulate`: simulates the lab's experiments, many cells at once, and writes a folder in the
//! lab's form.

mod args;
mod cell;
mod flags;
mod gateways;
mod model;
mod pool;
mod serving;

use std::{num::NonZeroUsize, path::Path, process::ExitCode, thread};

use instrument::{
    LabError,
    experiment::Experiment,
    plan::{Inputs, Plan},
    progress::{Progress, note},
    record::{CellRecord, RunRecord, Simulated},
    run,
    store::{Cell, Writer},
    subject::serpent_binary,
};
use scheduler::bands::BandLearner;

pub use self::args::SimulateArgs;
use self::{
    args::{ModelChoice, SimulateCommand},
    cell::Simulation,
    pool::Task,
    serving::Serving,
};

/// Simulates an experiment, or the rest of one, and prints its table. Returns [`ExitCode::FAILURE`] if a part
/// of it is not valid; the table then names it.
pub fn simulate(args: &SimulateArgs) -> Result<ExitCode, LabError> {
    if let Some(SimulateCommand::Gateways(args)) = &args.command {
        return gateways::simulate(args);
    }
    let serpent = serpent_binary(args.serpent.as_deref())?;
    let (writer, changed, ready) = match &args.resume {
        Some(dir) => {
            let writer = Writer::resume(dir)?;
            let record = writer.run().record();
            record.check_resumable(dir, true)?;
            let model = record.simulated.as_ref().map(|simulated| simulated.model.as_str()).unwrap_or_default();
            let choice = model.parse().map_err(|wrong| LabError::Request(format!("{}: {wrong}", dir.display())))?;
            let changed = run::changed_versions(record, &versions());
            let ready = Ready::new(&record.experiment, choice, &serpent)?;
            (writer, changed, ready)
        }
        None => {
            let experiment = match &args.experiment {
                Some(name) => Experiment::find(name)?,
                None => args.flags.experiment()?,
            };
            let experiment = experiment.changed(&args.changes)?;
            let ready = Ready::new(&experiment, args.model.unwrap_or(ModelChoice::Packets), &serpent)?;
            let simulated =
                Simulated { model: ready.choice.to_string(), name: ready.choice.title(), notes: ready.notes.clone() };
            let record = run::simulated_record(experiment, &args.changes, versions(), simulated, args.shard)?;
            // All checks come before this line, so a refused request leaves no folder behind.
            let dir = args.out.clone().unwrap_or_else(|| run::default_dir(&record));
            (Writer::create(&dir, record)?, Vec::new(), ready)
        }
    };
    let (record, dir) = (writer.run().record(), writer.run().dir());
    let seeds = record.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let (name, count) = (&record.experiment.name, record.cells_of_part().count());
    note(&format!("{name}: {count} simulations, seeds {seeds}, {}, into {}", ready.choice.title(), dir.display()));
    ready.notes.iter().chain(&changed).for_each(|text| note(&format!("note: {text}")));
    let jobs = args.jobs.unwrap_or_else(|| thread::available_parallelism().unwrap_or(NonZeroUsize::MIN));
    if let Err(error) = ready.simulate(&writer, &changed, jobs) {
        note(&format!("what was simulated is kept; `{}` goes on", record.resume_command(dir)));
        return match error {
            LabError::Interrupted => Ok(ExitCode::FAILURE),
            other => Err(other),
        };
    }
    run::finish(writer.run())
}

/// A checked experiment: everything known to be impossible has been refused.
struct Ready {
    choice: ModelChoice,
    plans: Vec<Plan>,
    subjects: Vec<Serving>,
    /// Remarks on the parts of it that are not simulated.
    notes: Vec<String>,
}

impl Ready {
    fn new(experiment: &Experiment, choice: ModelChoice, serpent: &Path) -> Result<Self, LabError> {
        let points = experiment.points()?;
        let link_changes = points.iter().any(|point| !point.setting.link.rate_changes.is_empty());
        let (mut subjects, mut notes) = (Vec::new(), Vec::new());

        for subject in run::parse_subjects(&experiment.subjects)? {
            let (serving, lacks) = Serving::of(&subject, serpent)?;
            notes.extend(lacks);
            notes.extend(model::subject_lacks(choice, &subject, &serving, link_changes));
            subjects.push(serving);
        }
        let (mut plans, mut inputs) = (Vec::with_capacity(points.len()), Inputs::default());
        let mut lacks: Vec<(String, usize)> = Vec::new();
        for point in &points {
            let at_point = |error| match error {
                LabError::Request(what) => LabError::Request(format!("point `{}`: {what}", point.label)),
                other => other,
            };
            let plan = Plan::new(&point.setting, &mut inputs).map_err(at_point)?;
            for lack in model::lacks(choice, &plan) {
                match lacks.iter_mut().find(|(known, _)| *known == lack) {
                    Some((_, of)) => *of += 1,
                    None => lacks.push((lack, 1)),
                }
            }
            for serving in &subjects {
                model::Uplink::new(choice, serving, &plan, &BandLearner::default(), 0).map_err(at_point)?;
            }
            plans.push(plan);
        }
        let all = plans.len();
        notes.extend(lacks.into_iter().map(|(lack, of)| match of {
            of if of == all => lack,
            of => format!("{lack} (of {of} of {all} points)"),
        }));
        Ok(Self { choice, plans, subjects, notes })
    }

    /// Simulates the cells that are missing.
    fn simulate(&self, writer: &Writer, notes: &[String], jobs: NonZeroUsize) -> Result<(), LabError> {
        let (run, record) = (writer.run(), writer.run().record());
        let stop = run::stop_on_signals()?;
        let todo = record.cells_of_part().filter(|cell| !run.has_cell(cell.number));
        let tasks: Vec<Task<Cell>> = todo.map(|cell| self.task(record, cell)).collect();
        let mut progress = Progress::new(tasks.iter().map(|task| task.expected), record.cells_of_part().count());
        pool::all(&tasks, jobs, &mut progress, &stop, |&Cell { number, point, seed, subject }| {
            let (plan, serving) = (&self.plans[point], &self.subjects[subject]);
            let simulation = Simulation { plan, serving, choice: self.choice, seed };
            let (outcomes, mut facts) = simulation.run(&stop)?;
            facts.notes.extend_from_slice(notes);
            writer.keep(&CellRecord { number, point, subject, seed, facts }, &outcomes)
        })
    }

    fn task(&self, record: &RunRecord, cell: Cell) -> Task<Cell> {
        let setting = self.plans[cell.point].setting();
        let (label, subject) = (&record.points[cell.point].label, &record.subjects[cell.subject]);
        Task {
            what: cell,
            // The approximate number of bytes to send.
            expected: setting.time.seconds * setting.link.rate.bytes_per_second(),
            name: format!("{label}, seed {}, {subject}", cell.seed),
        }
    }
}

/// Version of the simulator.
fn versions() -> Vec<String> {
    vec![format!("serpent {}, simulator", env!("CARGO_PKG_VERSION"))]
}

#[cfg(test)]
mod tests {
    use simulator::packets::{Discipline, PacketSettings};

    use super::*;

    fn ready(toml: &str, model: &str) -> Result<Ready, String> {
        let experiment = Experiment::parse("x.toml", toml).unwrap();
        Ready::new(&experiment, model.parse().unwrap(), Path::new("/no/such/serpent"))
            .map_err(|error| error.to_string())
    }

    const PLAIN: &str =
        "name = 'x'\ntitle = 'y'\nsubjects = ['nginx', 'serpent:srpt']\nsetting.demand = { files = 20, load = 0.5 }\n";

    #[test]
    fn what_is_not_simulated_is_said() {
        assert_eq!(ready(PLAIN, "bare").unwrap().notes, [""; 0]);
        let far = ready(&format!("{PLAIN}[sweep]\n'groups.0.path.rtt-ms' = [0, 50, 100]"), "bare").unwrap();
        assert!(
            far.notes[0].starts_with("paths are not simulated") && far.notes[0].ends_with("(of 2 of 3 points)"),
            "{:?}",
            far.notes
        );
        let upload = "setting.link = { bottleneck = 'router', uploads = [{ until-s = 9, congestion = 'bbr' }] }";
        let [bare, packets] =
            ["bare", "packets"].map(|model| ready(&format!("{PLAIN}{upload}"), model).unwrap().notes[0].clone());
        assert!(bare.contains("uploads of another machine") && packets.contains("as with cubic"), "{bare} {packets}");
        let tls = ready(&format!("{PLAIN}setting.clients = {{ tls = true, protocol = 'http2' }}"), "bare").unwrap();
        assert!(tls.notes[0].contains("TLS") && tls.notes[1].contains("HTTP/2"), "{:?}", tls.notes);
        let kernel = ready(&format!("{PLAIN}setting.server.syn-queue = 5\nsetting.link.queue-packets = 10"), "paced");
        let notes = kernel.unwrap().notes;
        assert!(notes[0].contains("syn-queue") && notes[1].contains("drops nothing"), "{notes:?}");
        let told = PLAIN.replace("serpent:srpt", "serpent:srpt,uplink=20mbit,guard=2");
        assert!(ready(&told, "bare").unwrap().notes[0].contains("does not count"));
        assert!(ready(&told, "bands").unwrap().notes[1].contains("bands have no guard"));
        let changes = format!("{PLAIN}setting.link.rate-changes = [[5, '1mbit']]");
        let finds = changes.replace("serpent:srpt", "serpent:srpt,uplink=auto");
        for (toml, model, says) in [
            (&finds, "packets", true),
            (&finds, "paced", true),
            (&finds, "bare", false),
            (&finds.replace("setting.link", "# "), "packets", false),
            // The server has no rate of its own. The lab tells it the link's first rate in a measurement too.
            (&changes, "packets", false),
        ] {
            let notes = ready(toml, model).unwrap().notes;
            assert_eq!(
                notes.iter().any(|note| note.contains("does not follow the changes")),
                says,
                "{model}: {notes:?}"
            );
        }
    }

    #[test]
    fn packets_meet_uploads_and_the_lines_of_clients() {
        let text = "setting.link = { bottleneck = 'router', uploads = [{ from-s = 2, until-s = 9, streams = 3 }] }\n\
                    [[setting.groups]]\npath = { rtt-ms = 20, rate = '5mbit' }";
        let Ready { plans, notes, .. } = ready(&format!("{PLAIN}{text}"), "packets").unwrap();
        assert!(notes[0].contains("nor the line"), "{notes:?}");
        let PacketSettings { uploads, paths, .. } = model::packet_settings(&plans[0], Discipline::Fair, 1);
        let upload = uploads.unwrap();
        assert_eq!((upload.from_ns, upload.until_ns, upload.connections), (2_000_000_000, 9_000_000_000, 3));
        assert_eq!(upload.rtt_ns, paths[0].rtt_ns);
        let line = paths[0].line.unwrap();
        assert_eq!((line.rate.to_string(), line.queue_bytes), ("5mbit".to_owned(), 151_400));
    }

    #[test]
    fn what_cannot_be_simulated_is_refused_before_anything_is() {
        let refusal = |toml: &str, model: &str| ready(toml, model).err().unwrap();
        assert!(refusal(&PLAIN.replace("nginx", "cmd:x"), "bare").contains("`cmd:x` cannot be simulated"));
        assert!(refusal(&PLAIN.replace(":srpt", ":fsp"), "bands").contains("`fsp` cannot be put into bands"));
        let load = refusal(&format!("{PLAIN}[sweep]\n'demand.load' = [0.5, -1.0]"), "bare");
        assert!(load.contains("point `load -1.0`") || load.contains("point `load -1`"), "{load}");
    }
}
