//! The runs: seed by seed, subject by subject, each on a bed of its own.

use std::{
    fs::File,
    io::{BufWriter, Write},
    net::{Ipv4Addr, SocketAddrV4},
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use signal_hook::{consts::TERM_SIGNALS, flag};
use workload::{outcome::Outcome, sequence::Request, stats::median};

use super::plan::Plan;
use crate::{
    LabError,
    bed::{Bed, Calibration, Counters, Cpu, Qdisc, SERVER},
    client::{Drive, Load},
    docroot::{Content, DocRoot},
    setting::Setting,
    subject::{Certificate, Place, Running, Subject},
};

/// All runs.
#[derive(Debug)]
pub(super) struct Experiment {
    /// The requests of each seed, in the order of the plan's seeds.
    pub(super) sequences: Vec<Vec<Request>>,
    /// Seed by seed, and for each seed subject by subject.
    pub(super) runs: Vec<Run>,
}

/// One subject under one seed.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) seed: u64,
    /// Number of the subject in the plan.
    pub(super) subject: usize,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) facts: Facts,
}

/// What was seen beside the outcomes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Facts {
    /// The command that was measured.
    pub(super) command: String,
    pub(super) calibration: Calibration,
    /// Single requests on the idle bed, before the load.
    pub(super) alone: Vec<Alone>,
    /// TCP counters of the server's and of the clients' side over the run.
    pub(super) server_tcp: Counters,
    pub(super) client_tcp: Counters,
    /// The bottleneck's queue over the run, and over the part in which requests were sent.
    pub(super) qdisc: Qdisc,
    pub(super) qdisc_while_sending: Qdisc,
    pub(super) cpu: Cpu,
    pub(super) connections: u64,
    pub(super) most_concurrent: usize,
    /// From the start of the run to the last byte, or to when it was given up.
    pub(super) took_s: f64,
    /// What must be known to judge the run.
    pub(super) notes: Vec<String>,
}

/// The time of a request on the idle bed.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Alone {
    pub(super) size_bytes: u64,
    /// Median of a few, and the least of them.
    pub(super) measured_ms: f64,
    pub(super) least_ms: f64,
    /// Wire bytes over the link's rate.
    pub(super) wire_ms: f64,
}

/// Does all runs of the plan.
pub(super) fn run(plan: &Plan) -> Result<Experiment, LabError> {
    raise_descriptor_limit();
    let stop = stop_on_signals()?;
    if let Some(dir) = &plan.args.outcomes {
        std::fs::create_dir_all(dir).map_err(LabError::io(format!("cannot make {}", dir.display())))?;
    }
    let root = DocRoot::write(plan.files.sizes_bytes())?;
    let content = Content::new();
    let certificate = Certificate::make()?;
    let sequences: Vec<Vec<Request>> = plan.args.seeds.iter().map(|&seed| plan.requests(seed)).collect();
    let mut runs = Vec::new();
    for (&seed, requests) in plan.args.seeds.iter().zip(&sequences) {
        for (number, subject) in plan.subjects.iter().enumerate() {
            eprintln!("seed {seed}, {subject}: {} requests over {:.0} s", requests.len(), plan.duration.as_secs_f64());
            let one = OneRun { plan, subject, root: &root, content: &content, certificate: &certificate, stop: &stop };
            let (outcomes, facts) = one.measure(requests)?;
            if let Some(dir) = &plan.args.outcomes {
                write_outcomes(&dir.join(format!("seed{seed}-{number}.jsonl")), &outcomes)?;
            }
            runs.push(Run { seed, subject: number, outcomes, facts });
        }
    }
    Ok(Experiment { sequences, runs })
}

struct OneRun<'a> {
    plan: &'a Plan,
    subject: &'a Subject,
    root: &'a DocRoot,
    content: &'a Content,
    certificate: &'a Certificate,
    stop: &'a AtomicBool,
}

impl OneRun<'_> {
    fn measure(&self, requests: &[Request]) -> Result<(Vec<Outcome>, Facts), LabError> {
        let bed = Bed::build(self.plan.bed.clone())?;
        let place = Place {
            bed: &bed,
            setting: &Setting::default(),
            root: self.root.path(),
            port: self.plan.args.port,
            serpent: &self.plan.serpent,
            certificate: self.certificate,
        };
        self.subject.prepare(&place)?;
        let calibration = bed.calibrate()?;
        let mut running = self.subject.start(&place)?;
        let alone = self.measure_alone(&bed)?;

        let read = || -> Result<_, LabError> {
            Ok((Counters::read(bed.server())?, Counters::read(bed.client())?, bed.qdisc()?, Cpu::read(bed.server())?))
        };
        let before = read()?;
        let (drive, sent, rate_notes) = self.drive(&bed, requests)?;
        let after = read()?;

        let mut notes = rate_notes;
        notes.extend(drive.note);
        if running.has_ended() {
            notes.push(format!("the server ended during the run; it said: {}", running.last_words()));
        }
        let took_ns = drive.outcomes.iter().map(|outcome| outcome.end_ns).max().unwrap_or(0);
        let facts = Facts {
            command: running.command_line().to_owned(),
            calibration,
            alone,
            server_tcp: after.0.since(&before.0),
            client_tcp: after.1.since(&before.1),
            qdisc: after.2.since(&before.2),
            qdisc_while_sending: sent.since(&before.2),
            cpu: after.3.since(&before.3),
            connections: drive.connections,
            most_concurrent: drive.most_concurrent,
            took_s: took_ns as f64 / 1e9,
            notes: stop_server(running, notes),
        };
        Ok((drive.outcomes, facts))
    }

    /// Drives the load from a thread in the clients' namespace, and changes the link's rate when its time has come. The queue's
    /// counters are those of the moment when the last request had been sent.
    fn drive(&self, bed: &Bed, requests: &[Request]) -> Result<(Drive, Qdisc, Vec<String>), LabError> {
        let start = Instant::now() + Duration::from_millis(50);
        let mut notes = Vec::new();
        thread::scope(|scope| {
            let driver = scope.spawn(move || self.load(bed, requests, start, self.plan.drain, 0));
            // A driver that has ended early waits for nobody.
            let wait_until = |at: Instant| {
                while !driver.is_finished() && Instant::now() < at {
                    thread::sleep(at.saturating_duration_since(Instant::now()).min(Duration::from_millis(20)));
                }
            };
            for &(at_ns, rate) in self.plan.link.changes() {
                wait_until(start + Duration::from_nanos(at_ns));
                bed.set_rate(rate)?;
                notes.push(format!("{rate} from {:.3} s", start.elapsed().as_secs_f64()));
            }
            wait_until(start + self.plan.duration);
            let sent = bed.qdisc()?;
            let drive = driver.join().map_err(|_| LabError::Bed("the load generator panicked".to_owned()))??;
            Ok((drive, sent, notes))
        })
    }

    /// `sources` is the /24 of the clients' prefix to connect from. Each load has its own: a port that is used again meets the
    /// server's TIME_WAIT, and now and then is reset by it.
    fn load(
        &self,
        bed: &Bed,
        requests: &[Request],
        start: Instant,
        drain: Duration,
        sources: u8,
    ) -> Result<Drive, LabError> {
        let _inside = bed.client().enter().map_err(LabError::io("cannot enter a namespace"))?;
        let load = Load {
            requests,
            server: SocketAddrV4::new(SERVER, self.plan.args.port),
            sources: Ipv4Addr::new(10, 10, sources, 0),
            keep_alive: self.plan.args.keepalive,
            drain,
            content: self.content,
            start,
            stop: self.stop,
        };
        load.drive()
    }

    /// Single requests on the idle bed, of five sizes from the smallest to the 99th percentile.
    fn measure_alone(&self, bed: &Bed) -> Result<Vec<Alone>, LabError> {
        const REPEATS: usize = 5;
        let (sizes, rate) = (self.plan.files.sizes_bytes(), self.plan.args.rate);
        // By place in the set of files: half of it is the body up to the 90th percentile, the last quarter the largest 1 %.
        let chosen = [0.0, 0.25, 0.5, 0.625, 0.75].map(|part| (part * (sizes.len() - 1) as f64) as usize);
        let mut alone = Vec::new();
        for (file, sources) in chosen.into_iter().zip(1..) {
            let wire_ns = rate.ns_for(self.plan.wire.bytes_for(sizes[file]) as f64);
            // Far enough apart that none meets the one before.
            let gap_ns = wire_ns as u64 * 3 + 5_000_000;
            let requests: Vec<Request> = (0..REPEATS)
                .map(|i| Request { at_ns: i as u64 * gap_ns, file: file as u32, size_bytes: sizes[file], group: 0 })
                .collect();
            let start = Instant::now() + Duration::from_millis(5);
            let drive = thread::scope(|scope| {
                let driver = scope.spawn(|| self.load(bed, &requests, start, Duration::from_secs(10), sources));
                driver.join().map_err(|_| LabError::Bed("the load generator panicked".to_owned()))?
            })?;
            if let Some(failed) = drive.outcomes.iter().find(|outcome| outcome.end != workload::outcome::End::Done) {
                return Err(LabError::Subject(format!(
                    "a single request for {} bytes on the idle bed ended as {:?}",
                    failed.size_bytes, failed.end
                )));
            }
            let times_ms = || drive.outcomes.iter().map(|outcome| outcome.response_ns() as f64 / 1e6);
            alone.push(Alone {
                size_bytes: sizes[file],
                measured_ms: median(times_ms()),
                least_ms: times_ms().fold(f64::INFINITY, f64::min),
                wire_ms: wire_ns / 1e6,
            });
        }
        Ok(alone)
    }
}

/// Ends the server, and notes it if that was not a clean end.
fn stop_server(running: Running, mut notes: Vec<String>) -> Vec<String> {
    match running.stop() {
        Some(status) if status.success() => {}
        Some(status) => notes.push(format!("the server ended with {status}")),
        None => notes.push("the server did not end within 5 s of SIGTERM and was killed".to_owned()),
    }
    notes
}

fn write_outcomes(path: &Path, outcomes: &[Outcome]) -> Result<(), LabError> {
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for outcome in outcomes {
            serde_json::to_writer(&mut file, outcome)?;
            file.write_all(b"\n")?;
        }
        file.flush()
    };
    write().map_err(LabError::io(format!("cannot write {}", path.display())))
}

/// Tens of thousands of connections on each side. What the system refuses shows as faults of the client.
fn raise_descriptor_limit() {
    const WANTED: u64 = 262_144;
    let limit = getrlimit(Resource::Nofile);
    let raised = |maximum| Rlimit { current: Some(WANTED), maximum };
    if limit.current.is_some_and(|current| current < WANTED) {
        let enough = limit.maximum.is_none_or(|maximum| maximum >= WANTED);
        let _ = setrlimit(Resource::Nofile, raised(if enough { limit.maximum } else { Some(WANTED) }));
    }
}

/// Ctrl-C and SIGTERM set the flag; a second one ends the program at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>, LabError> {
    let stop = Arc::new(AtomicBool::new(false));
    for &signal in TERM_SIGNALS {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(LabError::io("cannot watch for signals"))?;
    }
    Ok(stop)
}
