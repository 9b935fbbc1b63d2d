//! Shows the progress: on a terminal a bar below the lines, elsewhere only the lines.

use std::{
    cell::Cell,
    fmt,
    io::IsTerminal as _,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chart::wrapped;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// Interval at which the shown time is updated. It is long, because drawing takes processor time from the
/// measurement.
const TICK: Duration = Duration::from_secs(1);

/// The progress of a probe.
#[derive(Debug)]
pub struct Progress {
    to: Destination,
    /// How long what follows the present search takes at most, in seconds.
    later_s: Cell<f64>,
    /// When the probe ends at the latest, as far as that is known.
    ends: Arc<Mutex<Option<Instant>>>,
}

/// The destination of progress messages.
#[derive(Debug)]
enum Destination {
    /// A bar on a terminal.
    Bar(ProgressBar),
    /// Lines on standard error.
    Lines,
    /// No output.
    #[cfg(test)]
    Nowhere,
}

impl Progress {
    /// Progress on standard error, whether or not it is a terminal.
    pub fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self::to(if is_terminal { Destination::Bar(ProgressBar::no_length()) } else { Destination::Lines })
    }

    /// No output.
    #[cfg(test)]
    pub fn nowhere() -> Self {
        Self::to(Destination::Nowhere)
    }

    fn to(to: Destination) -> Self {
        Self { to, later_s: Cell::new(0.0), ends: Arc::default() }
    }

    /// The steps after the present search take so many seconds at most.
    pub fn later(&self, seconds: f64) {
        self.later_s.set(seconds);
    }

    /// The present search takes so many seconds more, at most.
    pub fn at_most(&self, seconds: f64) {
        let left = Duration::try_from_secs_f64(seconds + self.later_s.get()).unwrap_or(Duration::MAX);
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now().checked_add(left);
    }

    /// How long the probe takes at most, as far as that is known.
    pub fn left(&self) -> Option<Left> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).map(Left)
    }

    /// Begins a measurement of this many requests; 0 if the number is not known.
    pub fn begin(&self, what: &str, requests: u64) {
        if let Destination::Bar(bar) = &self.to {
            let style = if requests > 0 { "{msg} {wide_bar} {pos} of {len}{left}" } else { "{msg} {elapsed}{left}" };
            if let Ok(style) = ProgressStyle::with_template(style) {
                let ends = self.ends.clone();
                let left = move |_: &ProgressState, out: &mut dyn fmt::Write| {
                    if let Some(ends) = *ends.lock().unwrap_or_else(PoisonError::into_inner) {
                        // An error of drawing is ignored.
                        let _ = write!(out, ", {}", Left(ends));
                    }
                };
                bar.set_style(style.with_key("left", left));
            }
            bar.reset();
            bar.set_length(requests);
            bar.set_message(what.to_owned());
            bar.enable_steady_tick(TICK);
        }
    }

    /// Shows how many requests have ended.
    pub fn at(&self, ended: u64) {
        if let Destination::Bar(bar) = &self.to {
            bar.set_position(ended);
        }
    }

    /// Prints a line about a finished measurement.
    pub fn say(&self, line: &str) {
        match &self.to {
            Destination::Bar(bar) => bar.println(wrapped(line)),
            Destination::Lines => eprintln!("{}", wrapped(line)),
            #[cfg(test)]
            Destination::Nowhere => {}
        }
    }

    /// Removes the bar.
    pub fn end(&self) {
        if let Destination::Bar(bar) = &self.to {
            bar.finish_and_clear();
        }
    }
}

/// The end of a probe, shown as the time until then.
#[derive(Clone, Copy, Debug)]
pub struct Left(Instant);

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.saturating_duration_since(Instant::now()).as_secs();
        write!(f, "at most {:#} left", HumanDuration(Duration::from_secs(seconds)))
    }
}
