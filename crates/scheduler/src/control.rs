//! Concurrency windows: how many requests of each resource type the site works on at once.
//!
//! A window that is too small leaves the site idle while requests wait. A window that is too large slows all
//! requests. This module has two state machines; neither has a clock or sends requests:
//!
//! - [`Probing`] finds the first window before the site is in use. It sends requests at higher and higher
//!   rates ("Multiple-resource Request Scheduling Algorithms for Proportional System-time Differentiation at
//!   Website Gateway", section 3.3.1).
//! - A [`Controller`] adjusts the windows from then on. There are four kinds, see [`Method`].
//!
//! Order of calls to a controller. Call [`Controller::handle_finished`] for every request that the site has
//! answered. Call [`Controller::handle_load`] when the number of running or waiting requests has changed.
//! After either, and again at [`Controller::poll_timeout`], call [`Controller::poll_window`] until it returns
//! `None`. Pass its answers to [`crate::admission::Admission::handle_window`].
//!
//! ```
//! use serpent_scheduler::{
//!     Instant,
//!     admission::ResourceId,
//!     control::{Controller, Method, Probed, Settings, Window},
//! };
//!
//! let disk = ResourceId(0);
//! let window = Window { bound_ns: Some(420_000_000), ..Window::new(7) };
//! let mut control = Settings::new(Method::Probe, vec![Some(window)]).build()?;
//! // Ten probing requests in a row that come back in time: the site can take one more.
//! for second in 60..70 {
//!     let now = Instant::from_ns(second * 1_000_000_000);
//!     assert_eq!(control.poll_probe(now), Some(disk));
//!     assert_eq!(control.poll_window(now), None);
//!     control.handle_probed(now, disk, Probed::Answered { service_ns: 300_000_000 });
//! }
//! let change = control.poll_window(Instant::from_ns(70_000_000_000)).expect("ten of ten were in time");
//! assert_eq!((change.resource, change.window), (disk, 8));
//! # Ok::<(), serpent_scheduler::control::SettingsError>(())
//! ```
//!
//! Invariants, tested for every controller: a window is never below 1, never outside of the operator's
//! limits, and changes only through `poll_window`.

mod fixed;
mod gradient;
mod knee;
mod probe;
mod probing;

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

pub use self::probing::{Found, Measured, Probing, ProbingError, ProbingSettings, Search, Step, Stop};
use self::{fixed::Fixed, gradient::Gradient, knee::Knee, probe::Probe};
use crate::{admission::ResourceId, time::Instant};

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

    fn clamp(&self, window: u32) -> u32 {
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

    /// Makes a controller with these settings.
    ///
    /// # Errors
    /// The same errors as [`Settings::check`].
    pub fn build(&self) -> Result<Box<dyn Controller + Send>, SettingsError> {
        self.check()?;
        Ok(match self.method {
            Method::Fixed => Box::new(Fixed::new(self)),
            Method::Probe => Box::new(Probe::new(self)),
            Method::Knee => Box::new(Knee::new(self)),
            Method::Gradient => Box::new(Gradient::new(self)),
        })
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

/// Adjusts the windows of a site's resource types. The head of this module gives the order of calls.
pub trait Controller: fmt::Debug {
    /// The site has finished an ordinary request.
    fn handle_finished(&mut self, _now: Instant, _finished: &Finished) {}

    /// The load of a type has changed. Called after every change, when admission has no decision left to
    /// make.
    fn handle_load(&mut self, _now: Instant, _resource: ResourceId, _load: Load) {}

    /// Returns the type that gets a probing request now. The request counts as sent and takes no slot. Ask
    /// until `None`.
    fn poll_probe(&mut self, _now: Instant) -> Option<ResourceId> {
        None
    }

    /// Reports the outcome of a probing request.
    fn handle_probed(&mut self, _now: Instant, _resource: ResourceId, _probed: Probed) {}

    /// Returns the next change of a window, which takes effect at once. Ask until `None`.
    fn poll_window(&mut self, now: Instant) -> Option<Change>;

    /// When to ask again if no event comes before.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The window in force; `None` for a type without a window.
    fn window(&self, resource: ResourceId) -> Option<u32>;
}

/// An ordinary request that the site has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The resource type of the request.
    pub resource: ResourceId,
    /// A key of the route, or of another group of requests with similar work. Service times are compared
    /// within a key.
    pub route: u64,
    /// Time from the start of the request to the end of the site's work on it, in nanoseconds.
    pub service_ns: u64,
    /// Whether the site did its work. False for an error of the site, a time-out or a broken connection. True
    /// for an answer that blames the client (such as 404).
    pub done: bool,
}

/// The load of a resource type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests of the type that the site works on.
    pub running: u32,
    /// Whether requests of the type wait.
    pub waiting: bool,
}

/// The outcome of a probing request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// The site answered it.
    Answered {
        /// Service time in nanoseconds.
        service_ns: u64,
    },
    /// The site did not answer, or answered with an error. Counts as late.
    Failed,
    /// The probe says nothing about the site: the page does not exist, or no request could be sent. Does not
    /// count.
    Lost,
}

/// A new window for a resource type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The resource type.
    pub resource: ResourceId,
    /// The new window, within the operator's limits.
    pub window: u32,
    /// Why the window changes.
    pub reason: Reason,
}

/// Why a window is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Probing requests were late often enough.
    Late,
    /// Probing requests were in time often enough.
    InTime,
    /// A step from a small window towards the configured first window.
    Approach,
    /// Another window is tried, or compared once more.
    Trial,
    /// The new window served more, or as much with fewer requests at once.
    Better,
    /// The other window served no more.
    NoBetter,
    /// The trial has no result: the site fails, or there were too few requests.
    Interrupted,
    /// The ratio of the least to the recent service times.
    Ratio,
    /// To measure the least service time.
    Least,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Late => "probing requests were late",
            Self::InTime => "probing requests were in time",
            Self::Approach => "the first window is approached from a small one",
            Self::Trial => "to try another window",
            Self::Better => "it serves more, or as much with fewer at once",
            Self::NoBetter => "another window serves no more",
            Self::Interrupted => "what was tried says nothing",
            Self::Ratio => "the ratio of the least to the late service times",
            Self::Least => "to measure the least service time",
        })
    }
}

const SECOND_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
