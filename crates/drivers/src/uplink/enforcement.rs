//! The configuration of the uplink, translated for the scheduler and for sockets.

use scheduler::{Order, Pacing, bands::BandPlan, uplink::Settings};

use super::error::UplinkError;
use crate::config::{Cutoffs, Enforce, UplinkConfig, UplinkRate};

/// Which part of the system keeps the order of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Enforcement {
    /// None does: responses are not ranked.
    Off,
    /// The pacer: every response asks for leave.
    Paced,
    /// The kernel: every response has a priority band.
    Bands,
}

impl Enforcement {
    pub(super) fn of(config: &UplinkConfig) -> Self {
        match (config.enforce, config.rate) {
            (Enforce::Off, _) | (Enforce::Server, UplinkRate::Off) => Self::Off,
            (Enforce::Server, _) => Self::Paced,
            (Enforce::Kernel, _) => Self::Bands,
        }
    }

    /// The inverse of `as u8`.
    pub(super) fn from_u8(number: u8) -> Self {
        match number {
            0 => Self::Off,
            1 => Self::Paced,
            _ => Self::Bands,
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

/// The bands of responses until their cutoffs are learned.
pub(super) fn first_plan(config: &UplinkConfig) -> BandPlan {
    BandPlan::first(config.order, config.cutoffs.given())
}

/// The kernel's priority bands, as far as a socket needs to know them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bands {
    /// Socket priority of band 0; the other bands follow.
    pub first_priority: u32,
    /// Bands for responses. Band 0 is not among them.
    pub responses: u8,
}

impl Bands {
    /// Finds the installed bands; `None` where the configuration needs none.
    pub fn find(config: &UplinkConfig) -> Result<Option<Self>, UplinkError> {
        if config.enforce != Enforce::Kernel {
            return Ok(None);
        }
        if config.order == Order::Fsp {
            return Err(UplinkError::NotBandable(config.order));
        }
        let no_bands = |cause| UplinkError::NoBands { device: config.device.clone(), cause };
        let installed =
            kernel::bands::find(config.device.as_deref()).map_err(|error| no_bands(Some(error.to_string())))?;
        let installed = installed.ok_or_else(|| no_bands(None))?;
        // If the privilege cannot be determined, the first socket reports the error.
        if !kernel::capabilities::may_set_high_priority().unwrap_or(true) {
            return Err(UplinkError::NoPrivilege);
        }
        Ok(Some(Self { first_priority: installed.priority(0), responses: installed.last_band() }))
    }
}
