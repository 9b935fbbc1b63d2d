//! The line that several gateways send through, as the driver looks at it.

use std::sync::Arc;

use scheduler::{
    Instant, Uplink,
    class::ClassId,
    lease::{Line, Seen},
};

use crate::lease::{CellNames, LeaseAsk};

/// The line that several gateways send through, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineStats {
    /// The rate of the whole line, in bits per second of wire bytes.
    pub whole_bits_per_second: u64,
    /// The part of that rate at which this gateway may send.
    pub rate_bits_per_second: u64,
    /// How many gateways send through it, as far as it is known.
    pub gateways: u32,
    /// Whether a lease is in force; otherwise the gateway has its equal part.
    pub leased: bool,
}

impl LineStats {
    pub(super) fn of(line: &Line, now: Instant) -> Self {
        Self {
            whole_bits_per_second: line.whole().bits_per_second(),
            rate_bits_per_second: line.rate(now).bits_per_second(),
            gateways: line.holder().gateways(),
            leased: line.holder().is_leased(now),
        }
    }
}

/// Looks at what the responses want of the line, when no grant is due any more. Returns the ask that is due then.
/// `classes` are the names of those that share the uplink, if they do.
pub(super) fn ask(
    line: &mut Line,
    now: Instant,
    machine: &Uplink,
    classes: &[Arc<str>],
    name: Option<&str>,
) -> Option<LeaseAsk> {
    let shared = machine.share().is_some();
    line.observe(now, |class| match shared {
        true => {
            let its = machine.class_stats(ClassId(class as u16));
            Seen { waiting: its.waiting, sent_bytes: its.charged_bytes }
        }
        false => {
            let all = machine.stats();
            Seen { waiting: all.waiting, sent_bytes: all.charged_bytes }
        }
    });
    let ask = line.poll_ask(now)?;
    let of_classes = if shared { classes.to_vec() } else { vec![Arc::from("all")] };
    let names = vec![CellNames { cell: "line".to_owned(), classes: of_classes }];
    Some(LeaseAsk { line: name.map(str::to_owned), ask, cells: vec![line.cell().clone()], names, asked_at: now })
}
