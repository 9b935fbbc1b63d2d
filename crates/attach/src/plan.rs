//! The queues of an attached device, as messages to the kernel.
//!
//! ```text
//! 5e7:                HTB at the root; packets of no class go to the last band
//! └─ 5e7:100          the link, with the rate
//!    ├─ 5e7:1         band 0, a FIFO: packets that no response may delay
//!    └─ 5e7:2..5e7:8  bands 1 to 7; in each a pfifo_fast with three strict bands of its own: 21 ranks for responses
//! ```
//!
//! The kernel gives a `pfifo_fast` queues as long as those of its device are when it is made, so the device's are made long
//! first (`txqueuelen`).
//!
//! All messages are sent by one call, and the kernel carries out all of a call. So a process that is killed leaves all of
//! them or none.

use std::fmt;

use kernel::bands::link::{burst_bytes, frame_bytes, own_rate_bits_per_second};
use netlink_packet_core::{DefaultNla, Emitable as _};

/// Handle of the root, and major number of the classes.
pub(crate) const MAJOR: u32 = 0x05e7;
/// Minor number of the class of the whole link.
const LINK_MINOR: u32 = 0x100;
/// Handles of the queues in the bands: this and the band's minor number.
pub(crate) const LEAF_MAJOR: u32 = 0x5e70;
/// Bands, as many as HTB has priorities.
pub(crate) const BANDS: u32 = 8;
/// Packets that wait in the queue of band 0.
const FIRST_QUEUE_PACKETS: u32 = 1000;
/// Packets that wait in the queue of a rank. Under overload each response of a starved rank has its first ten here, for
/// minutes. If the first packet of a response finds the queue full, Linux tries again each half second, 8 or 15 times.
/// Then it gives the connection up, and the client is not told. A place costs 8 bytes; the packets of local connections
/// are in the memory of their sockets in any case.
pub(crate) const QUEUE_PACKETS: u32 = 10_000;
/// Parent of the queueing discipline at the root.
pub(crate) const ROOT: u32 = u32::MAX;
/// Every filter of the classifier's: of all protocols, and the first one.
const FILTER_INFO: u32 = 1 << 16 | (0x0003u16.to_be() as u32);

/// The object of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Qdisc,
    Class,
    Filter,
}

/// One message to the kernel's traffic control, and the command of `tc` that would send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub subject: Subject,
    pub is_deletion: bool,
    pub parent: u32,
    pub handle: u32,
    pub info: u32,
    pub kind: String,
    /// The value of the attribute TCA_OPTIONS.
    pub options: Vec<u8>,
    /// Options as `tc` writes them.
    pub words: String,
}

/// The properties that the queues of a device follow from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub rate_bits_per_second: u64,
    pub overhead_bytes: u16,
    pub mtu_bytes: u32,
}

impl Shape {
    /// The messages that make the queues, with the classifier whose descriptor is given. The first one makes the root.
    /// `in_place`: of a queue that may be full.
    ///
    /// HTB sends packets of no class at once. So the default class is made before all others, and `in_place` of a
    /// queue, packets that come before it are refused. The kernel may do something else between two messages, and a
    /// line slower than the device would lose the packets that leave then. The classifier comes last, when its packets
    /// have a band.
    pub fn install(&self, program: i32, in_place: bool) -> Vec<Step> {
        let mut steps = vec![self.root(in_place), self.link()];
        for band in (0..BANDS).rev() {
            steps.push(self.band(band));
            steps.push(self.leaf(band));
        }
        steps.push(filter(program));
        steps
    }

    fn root(&self, in_place: bool) -> Step {
        // struct tc_htb_glob: version, rate2quantum, default class, debug, packets sent directly.
        let mut options = nla(2, words_of(&[3, 10, BANDS, 0, 0]));
        let mut words = format!("default {BANDS:x}");
        if in_place {
            // Places for packets of no class.
            options.extend(nla(5, words_of(&[0])));
            words += " direct_qlen 0";
        }
        qdisc(ROOT, MAJOR << 16, "htb", options, words)
    }

    fn link(&self) -> Step {
        let rate = self.rate_bits_per_second;
        let burst = burst_bytes(rate, self.mtu_bytes);
        self.class(MAJOR << 16, LINK_MINOR, rate, burst, burst, 0)
    }

    /// Bands borrow the link's rate in the order of their priority, but send at their own rate out of order. So that is
    /// next to nothing, except for band 0.
    fn band(&self, band: u32) -> Step {
        let rate = self.rate_bits_per_second;
        let (frame, burst) = (frame_bytes(self.mtu_bytes), burst_bytes(rate, self.mtu_bytes));
        let (own, own_burst) =
            if band == 0 { (rate, burst) } else { (own_rate_bits_per_second(frame), u64::from(frame)) };
        self.class(MAJOR << 16 | LINK_MINOR, band + 1, own, own_burst, burst, band)
    }

    fn leaf(&self, band: u32) -> Step {
        let (parent, handle) = (MAJOR << 16 | (band + 1), (LEAF_MAJOR + band + 1) << 16);
        if band > 0 {
            qdisc(parent, handle, "pfifo_fast", Vec::new(), String::new())
        } else {
            qdisc(parent, handle, "pfifo", words_of(&[FIRST_QUEUE_PACKETS]), format!("limit {FIRST_QUEUE_PACKETS}"))
        }
    }

    fn class(&self, parent: u32, minor: u32, rate: u64, burst: u64, ceil_burst: u64, prio: u32) -> Step {
        let (ceil, quantum) = (self.rate_bits_per_second, frame_bytes(self.mtu_bytes));
        let mut parms = Vec::new();
        for bits_per_second in [rate, ceil] {
            parms.extend(self.rate_spec(bits_per_second));
        }
        // struct tc_htb_opt: bursts as times, quantum, level, priority.
        parms.extend(words_of(&[ticks(burst, rate), ticks(ceil_burst, ceil), quantum, 0, prio]));
        let mut options = nla(1, parms);
        for (kind, bits_per_second) in [(6, rate), (7, ceil)] {
            if bits_per_second / 8 > u64::from(u32::MAX) {
                options.extend(nla(kind, (bits_per_second / 8).to_ne_bytes().to_vec()));
            }
        }
        let overhead = match self.overhead_bytes {
            0 => String::new(),
            overhead => format!(" overhead {overhead} mpu {}", 60 + overhead),
        };
        Step {
            subject: Subject::Class,
            is_deletion: false,
            parent,
            handle: MAJOR << 16 | minor,
            info: 0,
            kind: "htb".into(),
            options,
            words: format!(
                "prio {prio} rate {rate}bit ceil {ceil}bit burst {burst} cburst {ceil_burst} quantum {quantum}{overhead}"
            ),
        }
    }

    /// struct tc_ratespec, with lengths as of Ethernet: the kernel then needs no table of times.
    fn rate_spec(&self, bits_per_second: u64) -> Vec<u8> {
        const ETHERNET: u8 = 1;
        // The smallest Ethernet frame is 60 bytes without its checksum.
        let mpu = if self.overhead_bytes > 0 { 60 + self.overhead_bytes } else { 0 };
        let bytes_per_second = u32::try_from(bits_per_second / 8).unwrap_or(u32::MAX);
        let mut spec = vec![0, ETHERNET];
        spec.extend(self.overhead_bytes.to_ne_bytes());
        spec.extend((-1i16).to_ne_bytes());
        spec.extend(mpu.to_ne_bytes());
        spec.extend(bytes_per_second.to_ne_bytes());
        spec
    }
}

/// The message that deletes the root, with all that is below it.
pub(crate) fn delete_root() -> Step {
    Step { is_deletion: true, ..qdisc(ROOT, 0, "", Vec::new(), String::new()) }
}

/// The message that makes the classifier, or puts another program into its place.
pub(crate) fn filter(program: i32) -> Step {
    // TCA_BPF_CLASSID, TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS: the program's own word is the class.
    let mut options = nla(3, words_of(&[MAJOR << 16 | 1]));
    options.extend(nla(6, program.to_ne_bytes().to_vec()));
    options.extend(nla(7, b"serpent\0".to_vec()));
    options.extend(nla(8, words_of(&[1])));
    Step {
        subject: Subject::Filter,
        is_deletion: false,
        parent: MAJOR << 16,
        handle: 1,
        info: FILTER_INFO,
        kind: "bpf".into(),
        options,
        words: "direct-action, attach.bpf.o, flowid 5e7:1".into(),
    }
}

fn qdisc(parent: u32, handle: u32, kind: &str, options: Vec<u8>, words: String) -> Step {
    Step { subject: Subject::Qdisc, is_deletion: false, parent, handle, info: 0, kind: kind.into(), options, words }
}

/// The time that a burst takes, in the kernel's ticks of 64 ns.
fn ticks(burst_bytes: u64, bits_per_second: u64) -> u32 {
    let ns = u128::from(burst_bytes) * 8_000_000_000 / u128::from(bits_per_second.max(1));
    u32::try_from(ns / 64).unwrap_or(u32::MAX)
}

fn words_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn nla(kind: u16, value: Vec<u8>) -> Vec<u8> {
    let attribute = DefaultNla::new(kind, value);
    let mut bytes = vec![0; attribute.buffer_len()];
    attribute.emit(&mut bytes);
    bytes
}

/// A handle as `tc` writes it.
fn handle(f: &mut fmt::Formatter<'_>, handle: u32) -> fmt::Result {
    match (handle >> 16, handle & 0xffff) {
        (major, 0) => write!(f, "{major:x}:"),
        (major, minor) => write!(f, "{major:x}:{minor:x}"),
    }
}

impl fmt::Display for Step {
    /// The words behind `tc`, without the device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, name) = match self.subject {
            Subject::Qdisc => ("qdisc", "handle"),
            Subject::Class => ("class", "classid"),
            Subject::Filter => ("filter", "handle"),
        };
        write!(f, "{subject} {}", if self.is_deletion { "del" } else { "add" })?;
        if self.parent == ROOT {
            write!(f, " root")?;
        } else {
            write!(f, " parent ")?;
            handle(f, self.parent)?;
        }
        if self.is_deletion {
            return Ok(());
        }
        write!(f, " {name} ")?;
        if self.subject == Subject::Filter {
            write!(f, "{:x}", self.handle)?
        } else {
            handle(f, self.handle)?
        }
        write!(f, " {}", self.kind)?;
        if self.words.is_empty() { Ok(()) } else { write!(f, " {}", self.words) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape { rate_bits_per_second: 10_000_000, overhead_bytes: 0, mtu_bytes: 1500 }
    }

    #[test]
    fn steps_read_as_commands() {
        let words: Vec<String> = shape().install(7, false).iter().map(Step::to_string).collect();
        assert_eq!(
            words[..6],
            [
                "qdisc add root handle 5e7: htb default 8",
                "class add parent 5e7: classid 5e7:100 htb prio 0 rate 10000000bit ceil 10000000bit burst 1600 cburst 1600 \
                 quantum 1600",
                "class add parent 5e7:100 classid 5e7:8 htb prio 7 rate 128bit ceil 10000000bit burst 1600 cburst 1600 \
                 quantum 1600",
                "qdisc add parent 5e7:8 handle 5e78: pfifo_fast",
                "class add parent 5e7:100 classid 5e7:7 htb prio 6 rate 128bit ceil 10000000bit burst 1600 cburst 1600 \
                 quantum 1600",
                "qdisc add parent 5e7:7 handle 5e77: pfifo_fast",
            ]
        );
        assert_eq!(
            words[16..],
            [
                "class add parent 5e7:100 classid 5e7:1 htb prio 0 rate 10000000bit ceil 10000000bit burst 1600 cburst 1600 \
                 quantum 1600",
                "qdisc add parent 5e7:1 handle 5e71: pfifo limit 1000",
                "filter add parent 5e7: handle 1 bpf direct-action, attach.bpf.o, flowid 5e7:1",
            ]
        );
        assert_eq!(shape().install(7, true)[0].to_string(), "qdisc add root handle 5e7: htb default 8 direct_qlen 0");
        assert_eq!(delete_root().to_string(), "qdisc del root");
    }

    #[test]
    fn a_burst_is_given_as_its_time() {
        assert_eq!(ticks(1600, 10_000_000), 20_000);
        assert_eq!(ticks(1600, 128), 1_562_500_000);
    }

    #[test]
    fn high_rates_have_64_bits() {
        let fast = Shape { rate_bits_per_second: 100_000_000_000, ..shape() };
        assert_eq!(fast.link().options.len(), shape().link().options.len() + 2 * 12);
    }
}
