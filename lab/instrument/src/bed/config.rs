//! The configuration of a bed.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use workload::rate::Rate;

use super::prefix::MOST_GROUPS;
use crate::{
    LabError,
    setting::{Bottleneck, LONGEST_S, LinkSetting, PathSetting, ServerSetting, UploadSetting},
};

/// The emulator of distance and loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Emulation {
    /// The kernel's netem where it works and no path has jitter, else our own: under load, netem's jitter
    /// lengthens the delay.
    #[default]
    Auto,
    /// The kernel's netem, or an error.
    Netem,
    /// Our own: a thread between two TUN devices. Loss and jitter follow from the seed. Jitter keeps the
    /// order of each connection, and connections do not wait for each other.
    Own,
}

/// Each takes two threads of this program.
const MOST_STREAMS: u32 = 100;

/// The configuration of a bed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct BedConfig {
    /// Rate of the bottleneck.
    pub rate: Rate,
    /// Packets that the bottleneck's queue holds.
    pub queue_packets: u32,
    /// Where the bottleneck is.
    pub bottleneck: Bottleneck,
    /// Most segments in one packet of the stack: 1 is realistic, more saves processor time at high rates.
    pub gso_segments: u32,
    /// TCP congestion control of the server.
    pub congestion: String,
    /// Limits of the server's network stack.
    pub server: ServerSetting,
    /// The path to each group of clients; empty means one group without a path. At most [`MOST_GROUPS`].
    pub paths: Vec<PathSetting>,
    /// The emulator of these paths.
    pub emulation: Emulation,
    /// Uploads of another machine.
    pub uploads: Vec<UploadSetting>,
    /// Seed of losses and delays, where the emulation is our own.
    pub seed: u64,
}

impl Default for BedConfig {
    fn default() -> Self {
        let link = LinkSetting::default();
        Self {
            rate: link.rate,
            queue_packets: link.queue_packets,
            bottleneck: link.bottleneck,
            gso_segments: 1,
            congestion: link.congestion,
            server: ServerSetting::default(),
            paths: Vec::new(),
            emulation: Emulation::default(),
            uploads: Vec::new(),
            seed: 1,
        }
    }
}

impl BedConfig {
    /// Burst of the shaper in bytes: a packet, or a quarter of a millisecond at rates where timers would be
    /// too coarse.
    pub fn burst_bytes(&self) -> u64 {
        ((self.rate.bytes_per_second() * 256e-6) as u64).clamp(1600, 1 << 20)
    }

    /// The path of each group, of which there is at least one.
    pub(super) fn groups(&self) -> &[PathSetting] {
        const DIRECT: [PathSetting; 1] =
            [PathSetting { rtt_ms: 0.0, jitter_ms: 0.0, loss: 0.0, rate: None, queue_packets: None, mss_bytes: None }];
        if self.paths.is_empty() { const { &DIRECT } } else { &self.paths }
    }

    /// Returns an error for a configuration that is impossible on any machine.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        if self.paths.len() > MOST_GROUPS {
            return Err(LabError::Request(format!(
                "{} groups of clients are too many: a bed holds {MOST_GROUPS}",
                self.paths.len()
            )));
        }
        if self.server.initial_rto_s.is_some_and(|seconds| !(0.05..=60.0).contains(&seconds)) {
            return Err(LabError::Request("a first retransmission time-out is between 0.05 and 60 s".to_owned()));
        }
        for UploadSetting { from_s, until_s, streams, .. } in &self.uploads {
            let wrong = |what: &str| Err(LabError::Request(format!("`link.uploads`: {what}")));
            if self.bottleneck == Bottleneck::Server {
                return wrong("another machine shares the bottleneck only if `link.bottleneck` is `router`");
            }
            if !(0.0 <= *from_s && from_s < until_s && *until_s <= LONGEST_S) {
                return wrong("an upload has a `from-s`, from 0 on, and a later `until-s`, within a day");
            }
            if !(1..=MOST_STREAMS).contains(streams) {
                return wrong(&format!("an upload has 1 to {MOST_STREAMS} streams"));
            }
        }
        for (group, path) in self.paths.iter().enumerate() {
            let wrong = |what: &str| Err(LabError::Request(format!("the path of client group {group}: {what}")));
            const LONGEST_MS: f64 = 60_000.0;
            // NaN is in no range.
            if !(0.0..=LONGEST_MS).contains(&path.rtt_ms) || !(0.0..=LONGEST_MS).contains(&path.jitter_ms) {
                return wrong("round-trip time and jitter are between 0 and 60000 ms");
            }
            if !(0.0..1.0).contains(&path.loss) {
                return wrong("loss is a share from 0 to below 1");
            }
            if path.jitter_ms > path.rtt_ms / 4.0 {
                // All jitter is on the way to the clients, which takes half of the round trip.
                return wrong(
                    "a jitter over a quarter of the round-trip time would let packets arrive before they left",
                );
            }
            if path.mss_bytes.is_some_and(|mss| !(88..=1460).contains(&mss)) {
                return wrong("the largest segment has 88 to 1460 bytes");
            }
        }
        Ok(())
    }
}
