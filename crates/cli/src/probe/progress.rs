//! Shows the progress: on a terminal a bar below the lines, elsewhere only the lines.

use std::{io::IsTerminal as _, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

/// Interval at which the shown time is updated. It is long, because drawing takes processor time from the
/// measurement.
const TICK: Duration = Duration::from_secs(1);

/// The destination of progress messages.
#[derive(Debug)]
pub enum Progress {
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
        if std::io::stderr().is_terminal() { Self::Bar(ProgressBar::no_length()) } else { Self::Lines }
    }

    /// Begins a measurement of this many requests; 0 if the number is not known.
    pub fn begin(&self, what: &str, requests: u64) {
        if let Self::Bar(bar) = self {
            let style = if requests > 0 { "{msg} {wide_bar} {pos} of {len}" } else { "{msg} {elapsed}" };
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style);
            }
            bar.reset();
            bar.set_length(requests);
            bar.set_message(what.to_owned());
            bar.enable_steady_tick(TICK);
        }
    }

    /// Shows how many requests have ended.
    pub fn at(&self, ended: u64) {
        if let Self::Bar(bar) = self {
            bar.set_position(ended);
        }
    }

    /// Prints a line about a finished measurement.
    pub fn say(&self, line: &str) {
        match self {
            Self::Bar(bar) => bar.println(line),
            Self::Lines => eprintln!("{line}"),
            #[cfg(test)]
            Self::Nowhere => {}
        }
    }

    /// Removes the bar.
    pub fn end(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
