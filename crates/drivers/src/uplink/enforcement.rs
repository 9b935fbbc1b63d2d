//! The configuration of the uplink, translated for the scheduler and for sockets.

use std::sync::Arc;

use scheduler::{Order, Pacing, uplink::Settings};

use super::{error::UplinkError, teller::Teller};
use crate::config::{Cutoffs, Enforce, UplinkConfig, UplinkRate};

/// Which part of the system keeps the order of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Enforcement {
    /// None does: responses are not ranked.
    Off,
    /// The pacer: every response asks for leave.
    Paced,
    /// The kernel: it is told what is left of each response.
    Kernel,
}

impl Enforcement {
    pub(super) fn of(config: &UplinkConfig) -> Self {
        match (config.enforce, config.rate) {
            (Enforce::Off, _) | (Enforce::Server, UplinkRate::Off) => Self::Off,
            (Enforce::Server, _) => Self::Paced,
            (Enforce::Kernel, _) => Self::Kernel,
        }
    }

    /// The inverse of `as u8`.
    pub(super) fn from_u8(number: u8) -> Self {
        match number {
            0 => Self::Off,
            1 => Self::Paced,
            _ => Self::Kernel,
        }
    }
}

/// Whether the rate of the uplink is estimated from round trips.
pub(super) fn estimates_rate(config: &UplinkConfig) -> bool {
    config.enforce == Enforce::Server && config.rate == UplinkRate::Auto
}

/// The scheduler's settings. The rate is that of [`super::pace::Pace`].
pub(super) fn settings(config: &UplinkConfig) -> Settings {
    let small_bytes = match &config.cutoffs {
        Cutoffs::Given(cutoffs) => cutoffs.first().copied().unwrap_or(SMALL_BYTES),
        Cutoffs::Learned => SMALL_BYTES,
    };
    Settings {
        order: config.order,
        rate: None,
        segment_overhead_bytes: config.segment_overhead_bytes,
        small_bytes,
        guard_stretch: config.guard_stretch,
        pacing: Pacing::SERVER,
    }
}

/// The cutoff of QuickFix until the median size is learned ("Implementation of SRPT Scheduling in Web Servers").
const SMALL_BYTES: u64 = 1024;

/// The classifier that keeps the order; `None` where the configuration needs none.
pub(super) fn teller(config: &UplinkConfig) -> Result<Option<Arc<Teller>>, UplinkError> {
    if config.enforce != Enforce::Kernel {
        return Ok(None);
    }
    if !matches!(config.order, Order::Srpt | Order::Las) {
        return Err(UplinkError::NotBandable(config.order));
    }
    Teller::find(config.device.as_deref()).map(|teller| Some(Arc::new(teller))).map_err(UplinkError::Kernel)
}
