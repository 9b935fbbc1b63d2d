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

mod controller;
mod fixed;
mod gradient;
mod knee;
mod probe;
mod probing;
mod settings;

use alloc::boxed::Box;

pub use self::{
    controller::{Change, Controller, Finished, Load, Probed, Reason},
    probing::{Found, Measured, Probing, ProbingError, ProbingSettings, Search, Step, Stop},
    settings::{Method, Settings, SettingsError, Window},
};
use self::{fixed::Fixed, gradient::Gradient, knee::Knee, probe::Probe};

impl Settings {
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

#[cfg(test)]
mod tests;
