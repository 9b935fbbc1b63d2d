//! The counters of an attached device, for people and for programs.

use std::fmt::{self, Write as _};

use kernel::bands::{self, BandsError};
use serde::Serialize;

use crate::{
    attach::{Root, device, root},
    error::AttachError,
    maps::{Counters, Settings},
    netlink::Netlink,
    program::Running,
    verdict::{Observed, Verdict},
};

/// An attached device, its queues and counters. Counters begin when the device is attached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// The device.
    pub device: String,
    /// The rate at which packets leave, in bits per second, as far as `tc` prints its digits.
    pub rate_bits_per_second: u64,
    /// The ports whose responses are put in order.
    pub ports: Vec<u16>,
    /// Responses whose length was read from their heads.
    pub responses_with_length: u64,
    /// Responses without one: encrypted, chunked, or not HTTP/1.
    pub responses_without_length: u64,
    /// Packets without data: SYN-ACKs, acknowledgements.
    pub control_packets: u64,
    /// Packets of other ports and protocols.
    pub foreign_packets: u64,
    /// Packets with data whose socket is in another network namespace or on another machine.
    pub forwarded_packets: u64,
    /// Packets that stayed behind others of their connection.
    pub held_packets: u64,
    /// Packets for whose connection there was no memory; they went last.
    pub unknown_packets: u64,
    /// The bands of the kernel.
    pub bands: Vec<BandShown>,
    /// The ranks of responses.
    pub ranks: Vec<RankShown>,
    /// The last moment.
    pub observed: Observed,
    /// Whether the queue is here.
    pub verdict: Verdict,
}

/// One of the kernel's bands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BandShown {
    /// Its number: 0 goes first.
    pub band: u8,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent, with the heads of Ethernet.
    pub bytes: u64,
    /// Packets that wait.
    pub waiting_packets: u64,
    /// Bytes that wait.
    pub waiting_bytes: u64,
    /// Packets dropped because the band was full.
    pub dropped_packets: u64,
}

/// One of the ranks of responses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankShown {
    /// Its number: 1 goes first.
    pub rank: u32,
    /// The number of its class.
    pub class: u32,
    /// A response of this rank has less than this left, in bytes; `None` for the last rank of a class.
    pub less_than_bytes: Option<u32>,
    /// Packets given to it.
    pub packets: u64,
    /// Bytes of responses given to it.
    pub bytes: u64,
}

/// Shows an attached device.
pub fn show(name: &str) -> Result<Shown, AttachError> {
    let netlink = Netlink::open()?;
    let device = device(&netlink, name)?;
    let found = match root(&netlink, &device)? {
        Root::Ours(Some(program)) => {
            let running = Running::find(program)?;
            let bands = bands::show(name).map_err(|error| match error {
                BandsError::NotPermitted { what } => AttachError::NotPermitted { what },
                error => AttachError::Program { problem: error.to_string() },
            })?;
            let settings = running.settings()?;
            let observed = Observed::watch(&netlink, device.index, &ports(&settings))?;
            return Ok(shown(name, &bands, &running.counters()?, &settings, observed));
        }
        Root::Ours(None) => "Serpent's bands without a classifier".into(),
        Root::Default => "the kernel's default".into(),
        Root::Foreign(found) => format!("{} {:x}:", found.kind, found.handle >> 16),
    };
    Err(AttachError::NotAttached { device: name.into(), found })
}

fn ports(settings: &Settings) -> Vec<u16> {
    settings.ports.iter().take(settings.port_count as usize).map(|&port| port as u16).collect()
}

fn shown(name: &str, bands: &bands::Shown, counters: &Counters, settings: &Settings, observed: Observed) -> Shown {
    let bands_shown: Vec<BandShown> = bands
        .bands
        .iter()
        .map(|band| BandShown {
            band: band.band,
            packets: band.packets,
            bytes: band.bytes,
            waiting_packets: band.backlog_packets,
            waiting_bytes: band.backlog_bytes,
            dropped_packets: band.dropped_packets,
        })
        .collect();
    let mut ranks = Vec::new();
    for (number, class) in settings.classes.iter().enumerate() {
        for step in 0..class.ranks {
            let rank = class.first_rank + step;
            let cutoff = class.cutoffs[step as usize];
            ranks.push(RankShown {
                rank,
                class: number as u32,
                less_than_bytes: (step + 1 < class.ranks && cutoff < u32::MAX).then_some(cutoff),
                packets: counters.packets.get(rank as usize).copied().unwrap_or(0),
                bytes: counters.bytes.get(rank as usize).copied().unwrap_or(0),
            });
        }
    }
    Shown {
        device: name.into(),
        rate_bits_per_second: bands.rate_bits_per_second.unwrap_or(0),
        ports: ports(settings),
        responses_with_length: counters.known,
        responses_without_length: counters.unknown,
        control_packets: counters.control,
        foreign_packets: counters.foreign,
        forwarded_packets: counters.strangers,
        held_packets: counters.held,
        unknown_packets: counters.lost,
        bands: bands_shown,
        ranks,
        verdict: observed.verdict(counters.known + counters.unknown),
        observed,
    }
}

impl Shown {
    /// The counters in the text format of Prometheus.
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        let device = &self.device;
        let mut metric = |name: &str, kind: &str, help: &str, rows: Vec<(String, u64)>| {
            let _ = writeln!(text, "# HELP serpent_attach_{name} {help}\n# TYPE serpent_attach_{name} {kind}");
            for (labels, value) in rows {
                let _ = writeln!(text, "serpent_attach_{name}{{device=\"{device}\"{labels}}} {value}");
            }
        };
        metric(
            "responses_total",
            "counter",
            "Responses, by whether their length was known.",
            vec![
                (",length=\"known\"".into(), self.responses_with_length),
                (",length=\"unknown\"".into(), self.responses_without_length),
            ],
        );
        metric(
            "other_packets_total",
            "counter",
            "Packets that are of no response.",
            vec![
                (",kind=\"control\"".into(), self.control_packets),
                (",kind=\"foreign\"".into(), self.foreign_packets),
                (",kind=\"forwarded\"".into(), self.forwarded_packets),
                (",kind=\"held\"".into(), self.held_packets),
                (",kind=\"unknown\"".into(), self.unknown_packets),
            ],
        );
        let by_rank = |value: fn(&RankShown) -> u64| {
            self.ranks.iter().map(|rank| (format!(",rank=\"{}\"", rank.rank), value(rank))).collect()
        };
        metric("rank_packets_total", "counter", "Packets of responses by rank.", by_rank(|rank| rank.packets));
        metric("rank_bytes_total", "counter", "Bytes of responses by rank.", by_rank(|rank| rank.bytes));
        let by_band = |value: fn(&BandShown) -> u64| {
            self.bands.iter().map(|band| (format!(",band=\"{}\"", band.band), value(band))).collect()
        };
        metric("band_packets_total", "counter", "Packets sent by band.", by_band(|band| band.packets));
        metric("band_bytes_total", "counter", "Bytes sent by band.", by_band(|band| band.bytes));
        metric(
            "band_dropped_packets_total",
            "counter",
            "Packets dropped by band.",
            by_band(|band| band.dropped_packets),
        );
        metric("band_waiting_packets", "gauge", "Packets that wait, by band.", by_band(|band| band.waiting_packets));
        metric("band_waiting_bytes", "gauge", "Bytes that wait, by band.", by_band(|band| band.waiting_bytes));
        let verdicts = Verdict::ALL
            .map(|verdict| (format!(",verdict=\"{}\"", verdict.name()), u64::from(verdict == self.verdict)));
        metric("verdict", "gauge", "1 for the verdict on where the queue is.", verdicts.to_vec());
        metric("rate_bits_per_second", "gauge", "The rate given.", vec![(String::new(), self.rate_bits_per_second)]);
        text
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        let mbit = self.rate_bits_per_second as f64 / 1e6;
        writeln!(f, "{}: attached at {mbit} Mbit/s, ports {}", self.device, ports.join(", "))?;
        writeln!(
            f,
            "responses: {} with a length, {} without; packets of others: {}; forwarded: {}; kept behind their connection's: {}",
            self.responses_with_length,
            self.responses_without_length,
            self.foreign_packets,
            self.forwarded_packets,
            self.held_packets
        )?;
        writeln!(
            f,
            "{:>4} {:>12} {:>16} {:>16} {:>14} {:>8}",
            "band", "packets", "bytes", "waiting packets", "waiting bytes", "dropped"
        )?;
        for band in &self.bands {
            writeln!(
                f,
                "{:>4} {:>12} {:>16} {:>16} {:>14} {:>8}",
                band.band, band.packets, band.bytes, band.waiting_packets, band.waiting_bytes, band.dropped_packets
            )?;
        }
        writeln!(f, "{:>4} {:>5} {:>16} {:>12} {:>16}", "rank", "class", "left, below", "packets", "bytes")?;
        for rank in &self.ranks {
            let below = rank.less_than_bytes.map_or_else(|| "-".into(), |bytes| bytes.to_string());
            writeln!(f, "{:>4} {:>5} {:>16} {:>12} {:>16}", rank.rank, rank.class, below, rank.packets, rank.bytes)?;
        }
        let dropped: u64 = self.bands.iter().map(|band| band.dropped_packets).sum();
        if dropped > 0 {
            writeln!(f, "{dropped} packets were dropped because a band was full: admit fewer connections.")?;
        }
        write!(f, "{}\n{}", self.observed, self.verdict.sentence())
    }
}
