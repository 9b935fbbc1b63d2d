//! Tells the kernel the ranks of responses where it keeps the order.

use std::sync::Arc;

use scheduler::{JobId, Order};

use super::Driver;
use crate::uplink::{
    classes::ClassAt,
    teller::{Measure, Teller},
};

/// How the kernel is told of the responses of a class.
#[derive(Clone, Debug)]
pub struct Telling {
    /// The way to the kernel.
    pub teller: Arc<Teller>,
    /// The number of the class.
    pub class: u8,
    /// The number of classes.
    pub classes: u8,
    /// Whether the order looks only at the bytes that were sent.
    pub by_sent: bool,
}

impl Driver {
    /// How the kernel is told of the responses of a class; `None` unless it keeps the order.
    pub fn telling(&self, class: ClassAt) -> Option<Telling> {
        let state = self.state.lock();
        let teller = state.teller.clone()?;
        let by_sent = state.config.order == Order::Las;
        let Some(share) = state.machine.share() else { return Some(Telling { teller, class: 0, classes: 1, by_sent }) };
        let (class, classes) = (state.classes.translate(class).index(), share.classes.len());
        let narrow = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        Some(Telling { teller, class: narrow(class), classes: narrow(classes), by_sent })
    }

    /// The measure by which the kernel ranks a job, while `ahead_bytes` that have leave were not sent.
    pub fn kernel_measure(&self, job: JobId, ahead_bytes: u64) -> Measure {
        let state = self.state.lock();
        let left_bytes = state.machine.remaining_bytes(job).filter(|_| state.config.order != Order::Las);
        match left_bytes {
            Some(bytes) => Measure::Left(bytes.saturating_add(ahead_bytes)),
            None => Measure::Sent(state.machine.attained_bytes(job).saturating_sub(ahead_bytes)),
        }
    }
}
