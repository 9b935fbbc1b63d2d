//! What is said while it goes on: on a terminal a bar below the lines, elsewhere the lines alone.

use std::{io::IsTerminal as _, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

/// How often the time is shown anew. Rarely: what draws takes time from what is measured.
const TICK: Duration = Duration::from_secs(1);

/// Where it is told.
#[derive(Debug)]
pub enum Progress {
    /// On a terminal.
    Bar(ProgressBar),
    /// Lines on standard error.
    Lines,
    /// Nowhere.
    #[cfg(test)]
    Nowhere,
}

impl Progress {
    /// Standard error, whatever that is.
    pub fn new() -> Self {
        if std::io::stderr().is_terminal() { Self::Bar(ProgressBar::no_length()) } else { Self::Lines }
    }

    /// A measurement of so many requests begins; 0: nobody knows how many.
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

    /// So many have ended.
    pub fn at(&self, ended: u64) {
        if let Self::Bar(bar) = self {
            bar.set_position(ended);
        }
    }

    /// Something was measured.
    pub fn say(&self, line: &str) {
        match self {
            Self::Bar(bar) => bar.println(line),
            Self::Lines => eprintln!("{line}"),
            #[cfg(test)]
            Self::Nowhere => {}
        }
    }

    /// There is nothing more.
    pub fn end(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
