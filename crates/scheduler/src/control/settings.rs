//! The settings of a controller: its method, and the window of each resource type.

use alloc::vec::Vec;
use core::fmt;

use crate::{admission::ResourceId, time::SECOND_NS};

/// The rule by which windows are adjusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Windows stay as they are.
    Fixed,
    /// By the service times of probing requests, as in section 3.5.2 of the paper.
    Probe,
    /// By trying neighbouring windows and keeping the one that serves more requests. Sends no probing
    /// requests.
    Knee,
    /// By the ratio of the least to the recent service time, as Envoy's adaptive concurrency is documented.
    /// For comparison.
    Gradient,
}

impl Method {
    /// All methods, in the order shown to users.
    pub const ALL: [Self; 4] = [Self::Fixed, Self::Probe, Self::Knee, Self::Gradient];

    /// The name in configuration, flags and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Probe => "probe",
            Self::Knee => "knee",
            Self::Gradient => "gradient",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The window of a resource type, as the operator configures it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The window at the start.
    pub first: u32,
    /// Lower limit of the window, at least 1.
    pub least: u32,
    /// Upper limit of the window.
    pub most: u32,
    /// Bound on the service time of a probing request, in nanoseconds. Only [`Method::Probe`] needs it.
    pub bound_ns: Option<u64>,
}

impl Window {
    /// A window with this start value that may become anything from 1 to 1000.
    pub const fn new(first: u32) -> Self {
        // A window above a thousand limits nothing: no site that needs a window works on so many requests at
        // once.
        let most = if first > 1000 { first } else { 1000 };
        Self { first, least: 1, most, bound_ns: None }
    }

    pub(super) fn clamp(&self, window: u32) -> u32 {
        window.clamp(self.least, self.most)
    }
}

/// Settings of a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The rule by which windows are adjusted.
    pub method: Method,
    /// The window of each resource type. `None` means that the type has no window of its own and is left
    /// alone.
    pub windows: Vec<Option<Window>>,
    /// Interval between probing requests to one type, in nanoseconds ([`Method::Probe`]). This is the paper's
    /// P, for which the paper gives no value.
    pub probe_every_ns: u64,
    /// Time before the first probing request, in nanoseconds. An idle site is fast, and its answers say
    /// nothing of a busy one; the paper waits for a minute (section 4.3).
    pub probe_after_ns: u64,
    /// A window shrinks when the paper's adjCounter exceeds this.
    pub shrink_above: i32,
    /// A window grows when the paper's adjCounter is below this.
    pub grow_below: i32,
}

impl Settings {
    /// Settings with the paper's thresholds and one probing request every second.
    pub const fn new(method: Method, windows: Vec<Option<Window>>) -> Self {
        Self {
            method,
            windows,
            probe_every_ns: SECOND_NS,
            probe_after_ns: 60 * SECOND_NS,
            shrink_above: 4,
            grow_below: -9,
        }
    }

    /// Checks that the settings are consistent.
    ///
    /// # Errors
    /// The first inconsistency, and the resource type that has it.
    pub fn check(&self) -> Result<(), SettingsError> {
        for (window, id) in self.windows.iter().zip((0..).map(ResourceId)) {
            let Some(Window { first, least, most, bound_ns }) = *window else { continue };
            if least == 0 {
                return Err(SettingsError::Least(id));
            }
            if first < least || first > most {
                return Err(SettingsError::First(id));
            }
            if self.method == Method::Probe && bound_ns.is_none_or(|bound_ns| bound_ns == 0) {
                return Err(SettingsError::Bound(id));
            }
        }
        let probes = self.method == Method::Probe;
        if probes && (self.probe_every_ns == 0 || self.shrink_above < 0 || self.grow_below > 0) {
            return Err(SettingsError::Probes);
        }
        Ok(())
    }
}

/// Why settings for windows are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// The lower limit of the window is 0.
    Least(ResourceId),
    /// The first window is outside of its limits.
    First(ResourceId),
    /// [`Method::Probe`] has no bound on the service time.
    Bound(ResourceId),
    /// The interval between probing requests is 0, or a threshold is on the wrong side of 0.
    Probes,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Least(ResourceId(resource)) => {
                write!(f, "resource type {resource} may have a window of 0: the least is 1")
            }
            Self::First(ResourceId(resource)) => {
                write!(f, "the first window of resource type {resource} is not between its least and its most")
            }
            Self::Bound(ResourceId(resource)) => write!(
                f,
                "resource type {resource} has no bound on the service time of its probing requests: measure it by probing \
                 the site, or use another method"
            ),
            Self::Probes => f.write_str(
                "probing requests need some time between them, a threshold of 0 or more for shrinking, and one of 0 or less \
                 for growing",
            ),
        }
    }
}

impl core::error::Error for SettingsError {}
