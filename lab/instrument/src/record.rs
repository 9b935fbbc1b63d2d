//! The stored results of a run. Its report can be made from them at any time without another run.
//!
//! ```text
//! DIR/run.json                the experiment, its subjects, and the machine
//! DIR/cells/0001.json         one measurement: its conditions, and facts beside the requests
//! DIR/cells/0001.ndjson.zst   its requests, one [`workload::outcome::Outcome`] per line
//! ```
//!
//! A cell is one point of the experiment, one subject, one seed. Its files are either complete or absent.
//!
//! A simulation of the experiment stores the same files, and [`RunRecord::simulated`] is set.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    LabError,
    bed::{Calibration, Counters, Cpu, Qdisc, WanFacts},
    experiment::Experiment,
    setting::Setting,
    shard::Shard,
};

/// A run as a whole: `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// The experiment, with all changes by flags.
    pub experiment: Experiment,
    /// Whether it is the short form.
    pub quick: bool,
    /// The other changes by flags, as they are written: `--set time.seconds=20`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// The command that repeats the run.
    pub command: String,
    /// Kernel, processors, and the version that each program reports.
    pub versions: Vec<String>,
    /// Start time, in seconds since 1970.
    pub began_unix_s: u64,
    /// The points in order; the list decides the numbers of the cells.
    pub points: Vec<Point>,
    /// The subjects in order; the first is the baseline.
    pub subjects: Vec<String>,
    /// The seeds, in order.
    pub seeds: Vec<u64>,
    /// The simulation model; `None` if the run was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Simulated>,
    /// The part of the run that is in this folder; `None` for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

/// The model of a simulated run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Simulated {
    /// The model's name on the command line: `packets`, `paced=1.1`.
    pub model: String,
    /// The model's name in reports: `packet model`.
    pub name: String,
    /// Parts of the experiment that the model lacks, a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl RunRecord {
    /// The command that continues the run in `dir`.
    pub fn resume_command(&self, dir: &Path) -> String {
        let command = if self.simulated.is_some() { "serpent-lab simulate" } else { "serpent-lab run" };
        format!("{command} --resume {}", dir.display())
    }

    /// Checks that the run can be continued. A simulated run cannot be continued by measuring, nor the other
    /// way round. The points must still follow from the experiment.
    ///
    /// # Errors
    /// [`LabError::Request`] if not, with the command to use instead.
    pub fn check_resumable(&self, dir: &Path, simulating: bool) -> Result<(), LabError> {
        let how = |simulated: bool| if simulated { "simulated" } else { "measured" };
        if self.simulated.is_some() != simulating {
            return Err(LabError::Request(format!(
                "the run in {} is {}, and cannot be {} to its end: `{}` goes on with it",
                dir.display(),
                how(!simulating),
                how(simulating),
                self.resume_command(dir)
            )));
        }
        if self.experiment.points()? != self.points {
            return Err(LabError::Request(
                "this version of Serpent understands the experiment otherwise than the one that began the run: begin a new run"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

/// A point of an experiment: one combination of its varied keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its name in reports.
    pub label: String,
    /// The varied keys, as dotted keys of [`Setting`], with their values as text.
    pub values: BTreeMap<String, String>,
    /// All conditions.
    pub setting: Setting,
}

/// One measurement: `cells/NUMBER.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CellRecord {
    /// Its number: points outermost, then seeds, then subjects.
    pub number: usize,
    /// Number of the point in [`RunRecord::points`].
    pub point: usize,
    /// Number of the subject.
    pub subject: usize,
    /// The seed.
    pub seed: u64,
    /// Measurements beside the requests.
    pub facts: Facts,
}

/// Measurements beside the outcomes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// The measured command.
    pub command: String,
    /// Calibration of the bed before the run.
    pub calibration: Calibration,
    /// Single requests on the idle bed, before the load.
    pub alone: Vec<Alone>,
    /// TCP counters of the server's side over the run.
    pub server_tcp: Counters,
    /// TCP counters of the clients' side over the run.
    pub client_tcp: Counters,
    /// The bottleneck's queue over the run.
    pub qdisc: Qdisc,
    /// The bottleneck's queue while requests were sent.
    pub qdisc_while_sending: Qdisc,
    /// Processor time.
    pub cpu: Cpu,
    /// Samples of the server's side, once a second.
    #[serde(default)]
    pub samples: Vec<Sampled>,
    /// System calls of the server during the run, if they were counted.
    #[serde(default)]
    pub system_calls: Option<u64>,
    /// Counters of our own emulator, if it makes the path.
    #[serde(default)]
    pub wan: Option<WanFacts>,
    /// Connections that the clients opened.
    pub connections: u64,
    /// Most requests under way at one time.
    pub most_concurrent: usize,
    /// Seconds from the start of the run to the last byte, or to the end of waiting.
    pub took_s: f64,
    /// Notes for judging the run.
    pub notes: Vec<String>,
    /// Why the run is invalid; empty if it is valid.
    #[serde(default)]
    pub invalid: Vec<String>,
    /// For a simulation: which of the counters above the model has. The others are zero and meaningless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Counted>,
}

/// Counters that a simulation provides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Bytes through the bottleneck: [`Facts::qdisc`] and [`Facts::qdisc_while_sending`].
    pub link_bytes: bool,
    /// Dropped packets and retransmitted segments.
    pub packets: bool,
}

/// Results of a simulation beside the outcomes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimulatedFacts {
    /// A description of the simulated subject.
    pub command: String,
    /// Single requests on the idle model.
    pub alone: Vec<Alone>,
    /// Bytes through the bottleneck in all, and while requests were sent, if the model counts them.
    pub link_bytes: Option<(u64, u64)>,
    /// Packet counts, if the model has packets.
    pub packets: Option<PacketCounts>,
    /// Most requests under way at one time.
    pub most_concurrent: usize,
    /// Seconds from the start to the last byte, or to the end of waiting.
    pub took_s: f64,
    /// Notes for judging it.
    pub notes: Vec<String>,
    /// Why it is invalid; empty if it is valid.
    pub invalid: Vec<String>,
}

/// Counts of dropped and repeated packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Packets dropped at the bottleneck's full queue.
    pub dropped: u64,
    /// Segments retransmitted by the server.
    pub sent_again: u64,
}

impl Facts {
    /// The facts of a simulation.
    pub fn simulated(seen: SimulatedFacts) -> Self {
        let SimulatedFacts { command, alone, link_bytes, packets, most_concurrent, took_s, notes, invalid } = seen;
        let counted = Counted { link_bytes: link_bytes.is_some(), packets: packets.is_some() };
        let (bytes, bytes_while_sending) = link_bytes.unwrap_or_default();
        let PacketCounts { dropped, sent_again } = packets.unwrap_or_default();
        Self {
            command,
            alone,
            server_tcp: [("RetransSegs", sent_again)].into_iter().collect(),
            qdisc: Qdisc { bytes, drops: dropped, ..Qdisc::default() },
            qdisc_while_sending: Qdisc { bytes: bytes_while_sending, ..Qdisc::default() },
            most_concurrent,
            took_s,
            notes,
            invalid,
            simulated: Some(counted),
            ..Self::nothing()
        }
    }

    /// The facts of a measurement that failed for this reason; it has no requests.
    pub(crate) fn failed(reason: String) -> Self {
        Self { invalid: vec![reason], ..Self::nothing() }
    }

    pub(crate) fn nothing() -> Self {
        let nothing_read = Calibration {
            rate_bits_per_second: 0.0,
            rate_ratio: 0.0,
            mean_frame_bytes: 0.0,
            congestion: String::new(),
            paths: Vec::new(),
        };
        Self {
            command: String::new(),
            calibration: nothing_read,
            alone: Vec::new(),
            server_tcp: Counters::default(),
            client_tcp: Counters::default(),
            qdisc: Qdisc::default(),
            qdisc_while_sending: Qdisc::default(),
            cpu: Cpu::default(),
            samples: Vec::new(),
            system_calls: None,
            wan: None,
            connections: 0,
            most_concurrent: 0,
            took_s: 0.0,
            notes: Vec::new(),
            invalid: Vec::new(),
            simulated: None,
        }
    }
}

/// The time of a request on the idle bed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alone {
    /// Number of the client group.
    #[serde(default)]
    pub group: u16,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Median of a few.
    pub measured_ms: f64,
    /// The least of them.
    pub least_ms: f64,
    /// Wire bytes over the link's rate.
    pub wire_ms: f64,
}

/// The server's side at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// Seconds since the start of the run.
    pub at_s: f64,
    /// Established connections.
    pub established: u64,
    /// Half-open connections.
    pub syn_queue: u64,
    /// Connections waiting to be accepted.
    pub accept_queue: u64,
    /// SYNs dropped at a full queue, since the start.
    pub syn_drops: u64,
    /// Connections dropped at the full accept queue, since the start.
    pub listen_overflows: u64,
    /// Packets in the bottleneck's queue.
    pub queue_packets: u64,
    /// Packets dropped at its full queue, since the start.
    pub queue_drops: u64,
    /// Bytes that passed it, since the start.
    pub queue_bytes: u64,
    /// Processor time of the server's processes in microseconds, since the start.
    pub cpu_us: u64,
    /// Resident memory of the server's processes, in bytes.
    pub resident_bytes: u64,
}
