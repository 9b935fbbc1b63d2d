//! Counters of the kernel: TCP on both sides, the bottleneck's queue, processor time.

use std::collections::BTreeMap;

use kernel::netns::NetNs;
use serde::{Deserialize, Serialize};

use super::tools::output;
use crate::LabError;

/// TCP counters of one namespace, by the kernel's names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counters(BTreeMap<String, u64>);

impl<'a> FromIterator<(&'a str, u64)> for Counters {
    fn from_iter<I: IntoIterator<Item = (&'a str, u64)>>(counters: I) -> Self {
        Self(counters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// The counters that distinguish a healthy run from a faulty one.
const KEPT: [&str; 16] = [
    "ActiveOpens",
    "PassiveOpens",
    "RetransSegs",
    "OutRsts",
    "TCPSynRetrans",
    "TCPTimeouts",
    "TCPLostRetransmit",
    "TCPFastRetrans",
    "TCPSpuriousRTOs",
    "TCPSACKReorder",
    "TCPAbortOnTimeout",
    "ListenOverflows",
    "ListenDrops",
    "SyncookiesSent",
    "TCPReqQFullDrop",
    "TCPReqQFullDoCookies",
];

impl Counters {
    /// Reads the counters of `ns`.
    pub fn read(ns: &NetNs) -> Result<Self, LabError> {
        let _inside = ns.enter().map_err(LabError::io("cannot enter a namespace"))?;
        let mut counters = BTreeMap::new();
        for file in ["snmp", "netstat"] {
            let path = format!("/proc/thread-self/net/{file}");
            let text = std::fs::read_to_string(&path).map_err(LabError::io(format!("cannot read {path}")))?;
            parse(&text, &KEPT, &mut counters);
        }
        Ok(Self(counters))
    }

    /// Differences since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self(self.0.iter().map(|(name, now)| (name.clone(), now.saturating_sub(before.get(name)))).collect())
    }

    /// One counter; 0 if the kernel lacks it.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// Parses the `wanted` counters of `/proc/net/snmp` and `/proc/net/netstat`. Lines come in pairs: `Tcp: Name
/// Name ...`, then `Tcp: value value ...`.
pub(crate) fn parse(text: &str, wanted: &[&str], counters: &mut BTreeMap<String, u64>) {
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks_exact(2) {
        if !pair[0].starts_with("Tcp") {
            continue;
        }
        for (name, value) in pair[0].split_whitespace().zip(pair[1].split_whitespace()).skip(1) {
            if let (true, Ok(value)) = (wanted.contains(&name), value.parse()) {
                counters.insert(name.to_owned(), value);
            }
        }
    }
}

/// Counters of the bottleneck's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qdisc {
    /// Bytes that passed: frames without preamble and checksum.
    pub bytes: u64,
    /// Packets that passed.
    pub packets: u64,
    /// Packets dropped because this queue, or one below it, was full.
    pub drops: u64,
    /// Packets waiting now.
    pub waiting_packets: u64,
}

impl Qdisc {
    /// Differences since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            packets: self.packets - before.packets,
            drops: self.drops - before.drops,
            waiting_packets: self.waiting_packets,
        }
    }
}

/// Packets that a device of the namespace `ns` dropped instead of sending: in its own queue and in its
/// queueing discipline.
pub(super) fn dropped_on_the_way_out(ns: &str, dev: &str) -> Result<u64, LabError> {
    let json = output("ip", &["-n", ns, "-s", "-j", "link", "show", "dev", dev])?;
    let own = parse_tx_dropped(&json)
        .ok_or_else(|| LabError::Machine(format!("`ip -s -j link show` printed what we cannot read: {json}")))?;
    let before = parse_qdisc(&output("tc", &["-n", ns, "-s", "-j", "qdisc", "show", "dev", dev, "root"])?)?;
    Ok(own + before.drops)
}

fn parse_tx_dropped(json: &str) -> Option<u64> {
    let shown: serde_json::Value = serde_json::from_str(json).ok()?;
    let link = shown.as_array()?.iter().find(|link| link["stats64"].is_object())?;
    link["stats64"]["tx"]["dropped"].as_u64()
}

/// The root discipline of a device, from `tc -s -j`.
pub(super) fn parse_qdisc(json: &str) -> Result<Qdisc, LabError> {
    let wrong = || LabError::Machine(format!("`tc -s -j qdisc show` printed what we cannot read: {json}"));
    let shown: serde_json::Value = serde_json::from_str(json).map_err(|_| wrong())?;
    let all = shown.as_array().ok_or_else(wrong)?;
    let root = all.iter().find(|qdisc| qdisc["root"] == true).ok_or_else(wrong)?;
    let field = |name: &str| root[name].as_u64().ok_or_else(wrong);
    Ok(Qdisc {
        bytes: field("bytes")?,
        packets: field("packets")?,
        drops: field("drops")?,
        waiting_packets: field("qlen")?,
    })
}

/// Processor time, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Time of the processes in the server's namespace, in user and kernel mode. Kernel work for them in
    /// softirqs during other processes is not included.
    pub server_us: u64,
    /// Time of the whole machine, all processors together, not idle.
    pub machine_us: u64,
    /// Time that the host took from a virtual machine. Nothing runs meanwhile, and nothing is on time.
    pub stolen_us: u64,
    /// Time of processes that are neither the server's nor this one, that is of other users of the machine.
    /// Interrupts are not included.
    #[serde(default)]
    pub others_us: u64,
}

impl Cpu {
    /// Reads all times.
    pub fn read(server: &NetNs) -> Result<Self, LabError> {
        let pids = server.processes().map_err(LabError::io("cannot list the server's processes"))?;
        // A process that has ended since the listing adds no time.
        let ticks =
            pids.iter().filter_map(|pid| process_ticks(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?));
        let stat = std::fs::read_to_string("/proc/stat").map_err(LabError::io("cannot read /proc/stat"))?;
        let machine = machine_ticks(&stat);
        let server = ticks.sum::<u64>();
        let own = std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| process_ticks(&stat)).unwrap_or(0);
        Ok(Self {
            server_us: server * TICK_US,
            machine_us: machine.busy * TICK_US,
            stolen_us: machine.stolen * TICK_US,
            others_us: machine.processes.saturating_sub(server + own) * TICK_US,
        })
    }

    /// Differences since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            server_us: self.server_us.saturating_sub(before.server_us),
            machine_us: self.machine_us.saturating_sub(before.machine_us),
            stolen_us: self.stolen_us.saturating_sub(before.stolen_us),
            others_us: self.others_us.saturating_sub(before.others_us),
        }
    }
}

/// `/proc` counts in hundredths of a second on every Linux (`USER_HZ`).
pub(crate) const TICK_US: u64 = 10_000;

/// User and system time from `/proc/PID/stat`; the name in brackets may contain anything, even spaces and
/// brackets.
pub(crate) fn process_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Time of all processors together since boot.
#[derive(Debug, PartialEq, Eq)]
struct MachineTicks {
    /// User, nice and system time: all processes, with the kernel's own.
    processes: u64,
    /// The same plus interrupts.
    busy: u64,
    stolen: u64,
}

/// From the first line of `/proc/stat`.
fn machine_ticks(stat: &str) -> MachineTicks {
    let line = stat.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().skip(1).map(|field| field.parse().unwrap_or(0)).collect();
    let field = |i: usize| fields.get(i).copied().unwrap_or(0);
    let processes = field(0) + field(1) + field(2);
    MachineTicks { processes, busy: processes + field(5) + field(6), stolen: field(7) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_name_and_subtracted() {
        const WANTED: [&str; 3] = ["ActiveOpens", "RetransSegs", "TCPSynRetrans"];
        let mut before = BTreeMap::new();
        parse("Ip: Forwarding\nIp: 1\nTcp: RtoMin ActiveOpens RetransSegs\nTcp: 200 5 7\n", &WANTED, &mut before);
        let mut after = BTreeMap::new();
        parse(
            "Tcp: RtoMin ActiveOpens RetransSegs\nTcp: 200 9 7\nTcpExt: TCPSynRetrans Odd\nTcpExt: 2 3\n",
            &WANTED,
            &mut after,
        );
        let since = Counters(after).since(&Counters(before));
        assert_eq!(["ActiveOpens", "RetransSegs", "TCPSynRetrans", "Odd"].map(|name| since.get(name)), [4, 0, 2, 0]);
    }

    #[test]
    fn the_root_qdisc_is_found() {
        let json = r#"[{"kind":"htb","handle":"1:","root":true,"options":{},"bytes":900,"packets":3,"drops":1,"qlen":2},
            {"kind":"pfifo","handle":"10:","parent":"1:1","bytes":1,"packets":1,"drops":0,"qlen":0}]"#;
        assert_eq!(parse_qdisc(json).unwrap(), Qdisc { bytes: 900, packets: 3, drops: 1, waiting_packets: 2 });
        assert!(parse_qdisc("[]").is_err() && parse_qdisc("no").is_err());
    }

    #[test]
    fn what_a_device_dropped_is_found() {
        let json = r#"[{},{"ifname":"up0","stats64":{"rx":{"packets":9,"dropped":5},"tx":{"packets":8,"dropped":7}}}]"#;
        assert_eq!(parse_tx_dropped(json), Some(7));
        assert_eq!((parse_tx_dropped("[{}]"), parse_tx_dropped("no")), (None, None));
    }

    #[test]
    fn processor_time_is_read_whatever_the_process_is_called() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194560 100 0 0 0 31 11 0 0 20 0 1 0 5";
        assert_eq!(process_ticks(stat), Some(42));
        assert_eq!(process_ticks("12 (cut"), None);
        let machine = MachineTicks { processes: 10 + 1 + 20, busy: 10 + 1 + 20 + 2 + 3, stolen: 4 };
        assert_eq!(machine_ticks("cpu  10 1 20 5000 300 2 3 4 0 0\ncpu0 1"), machine);
    }
}
