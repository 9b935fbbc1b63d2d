//! What a run leaves behind, so that its report can be made, and made again, without running it.
//!
//! ```text
//! DIR/run.json                what was asked for, of whom, on which machine
//! DIR/cells/0001.json         one measurement: its conditions, and what was seen beside the requests
//! DIR/cells/0001.ndjson.zst   its requests, one [`workload::outcome::Outcome`] a line
//! ```
//!
//! A cell is one point of the experiment, one subject, one seed. Its files are there whole or not at all.
//!
//! A simulation of the experiment leaves the same behind; then [`RunRecord::simulated`] says so.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    LabError,
    bed::{Calibration, Counters, Cpu, Qdisc, WanFacts},
    experiment::Experiment,
    setting::Setting,
};

/// A run as a whole: `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// The experiment, with everything that flags changed.
    pub experiment: Experiment,
    /// Whether it is the short form.
    pub quick: bool,
    /// What to type to do it again.
    pub command: String,
    /// Kernel, processors, and the version that each program prints of itself.
    pub versions: Vec<String>,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// The points, in order; the same list in the same order decides the cells.
    pub points: Vec<Point>,
    /// The subjects, in order; the first is the one that the others are compared with.
    pub subjects: Vec<String>,
    /// The seeds, in order.
    pub seeds: Vec<u64>,
    /// By what it was simulated; `None` if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Simulated>,
}

/// That nothing of a run was measured, and by what it was simulated instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Simulated {
    /// The model, as it is asked for: `packets`, `paced=1.1`.
    pub model: String,
    /// What people call it: `packet model`.
    pub name: String,
    /// What of the experiment it does not have, a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl RunRecord {
    /// What to type to go on with it, if it is in `dir`.
    pub fn resume_command(&self, dir: &Path) -> String {
        let command = if self.simulated.is_some() { "serpent-lab simulate" } else { "serpent-lab run" };
        format!("{command} --resume {}", dir.display())
    }

    /// Makes sure that it can be gone on with as it was begun: what was simulated is not measured to its end, nor the other way
    /// round, and the points are those that its experiment means today.
    ///
    /// # Errors
    /// [`LabError::Request`] if not, with what to type instead.
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

/// A point of an experiment: one combination of what it varies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What reports call it.
    pub label: String,
    /// What is varied, by dotted key of [`Setting`], and its value here as a text.
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
    /// What was seen beside the requests.
    pub facts: Facts,
}

/// What was seen beside the outcomes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// The command that was measured.
    pub command: String,
    /// What the bed was before the run.
    pub calibration: Calibration,
    /// Single requests on the idle bed, before the load.
    pub alone: Vec<Alone>,
    /// TCP counters of the server's side over the run.
    pub server_tcp: Counters,
    /// And of the clients'.
    pub client_tcp: Counters,
    /// The bottleneck's queue over the run.
    pub qdisc: Qdisc,
    /// And over the part in which requests were sent.
    pub qdisc_while_sending: Qdisc,
    /// Processor time.
    pub cpu: Cpu,
    /// The server's side over time, once a second.
    #[serde(default)]
    pub samples: Vec<Sampled>,
    /// System calls of the server over the run, where they could be counted.
    #[serde(default)]
    pub system_calls: Option<u64>,
    /// What our own emulator of distance and loss did, if the path is its.
    #[serde(default)]
    pub wan: Option<WanFacts>,
    /// Connections that the clients opened.
    pub connections: u64,
    /// Most requests under way at one time.
    pub most_concurrent: usize,
    /// From the start of the run to the last byte, or to when it was given up.
    pub took_s: f64,
    /// What must be known to judge the run.
    pub notes: Vec<String>,
    /// Why it must not be trusted; empty if it may be.
    #[serde(default)]
    pub invalid: Vec<String>,
    /// If it was simulated: which of the counters above the model has. The others are zero and say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Counted>,
}

/// What a simulation counted beside the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Bytes through the bottleneck: [`Facts::qdisc`] and [`Facts::qdisc_while_sending`].
    pub link_bytes: bool,
    /// Packets dropped, and segments sent again.
    pub packets: bool,
}

/// What a simulation knows beside the outcomes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// What stood for the subject, in words.
    pub command: String,
    /// Single requests on the idle model.
    pub alone: Vec<Alone>,
    /// Bytes through the bottleneck, and those of them while requests were sent, where the model counts them.
    pub link_bytes: Option<(u64, u64)>,
    /// Packets, where the model has any.
    pub packets: Option<PacketCounts>,
    /// Most requests under way at one time.
    pub most_concurrent: usize,
    /// From the start to the last byte, or to when it was given up.
    pub took_s: f64,
    /// What must be known to judge it.
    pub notes: Vec<String>,
    /// Why it must not be trusted; empty if it may be.
    pub invalid: Vec<String>,
}

/// Packets that did not come through at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// That found no place in the bottleneck's queue.
    pub dropped: u64,
    /// Segments that the server sent again.
    pub sent_again: u64,
}

impl Facts {
    /// Of a simulation.
    pub fn simulated(seen: Seen) -> Self {
        let Seen { command, alone, link_bytes, packets, most_concurrent, took_s, notes, invalid } = seen;
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

    /// Of a measurement that could not be made, for this reason; with it belong no requests.
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
    /// And the least of them.
    pub least_ms: f64,
    /// Wire bytes over the link's rate.
    pub wire_ms: f64,
}

/// The server's side at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// Seconds since the start of the run.
    pub at_s: f64,
    /// Connections that are established.
    pub established: u64,
    /// Half-open connections.
    pub syn_queue: u64,
    /// Connections that wait to be accepted.
    pub accept_queue: u64,
    /// Since the start: SYNs dropped for want of a place.
    pub syn_drops: u64,
    /// Since the start: connections dropped because the accept queue was full.
    pub listen_overflows: u64,
    /// Packets in the bottleneck's queue.
    pub queue_packets: u64,
    /// Since the start: packets that found no place in it.
    pub queue_drops: u64,
    /// Since the start: bytes through it.
    pub queue_bytes: u64,
    /// Since the start: processor time of the server's processes, in microseconds.
    pub cpu_us: u64,
    /// Memory of the server's processes that is resident, in bytes.
    pub resident_bytes: u64,
}
