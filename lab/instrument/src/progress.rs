//! Progress messages of a run. A terminal gets a bar with the time left. Other outputs get a line for each
//! measurement, or for many short ones a line now and then.

use std::{
    io::IsTerminal as _,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// Prints a line about a run, beside its results.
pub fn note(text: &str) {
    eprintln!("{}", chart::wrapped(text));
}

/// The progress of a run over its cells.
#[derive(Debug)]
pub struct Progress {
    /// Expected seconds of each remaining cell; the next one is last.
    expected_s: Vec<f64>,
    /// Cells of the whole run, with those done in an earlier session.
    cells: usize,
    /// Expected and real seconds of the finished cells.
    done_s: (f64, f64),
    current: Option<(f64, Instant)>,
    began: Instant,
    /// When [`Progress::one_of_many`] last printed a line.
    said: Option<Instant>,
    /// Expected end of the run.
    ends: Arc<Mutex<Instant>>,
    bar: Option<ProgressBar>,
}

/// Interval of updates. It is long, since drawing takes time from the measured processes.
const TICK: Duration = Duration::from_secs(1);
/// Interval of lines for one of many cells, without a terminal.
const EVERY: Duration = Duration::from_secs(5);

impl Progress {
    /// `expected_s` of each cell to do, in order; `cells` is the number in all.
    pub fn new(expected_s: impl DoubleEndedIterator<Item = f64>, cells: usize) -> Self {
        let expected_s: Vec<f64> = expected_s.rev().collect();
        let ends = Arc::new(Mutex::new(Instant::now()));
        let bar = std::io::stderr().is_terminal().then(|| bar(cells, cells - expected_s.len(), &ends));
        Self { expected_s, cells, done_s: (0.0, 0.0), current: None, began: Instant::now(), said: None, ends, bar }
    }

    /// The next cell begins.
    pub(crate) fn begin(&mut self, what: &str) {
        let number = self.cells + 1 - self.expected_s.len();
        let left = self.left();
        if let Some(expected_s) = self.expected_s.pop() {
            self.current = Some((expected_s, Instant::now()));
        }
        match &self.bar {
            Some(bar) => {
                *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + left;
                bar.set_message(what.to_owned());
                bar.enable_steady_tick(TICK);
            }
            None => note(&format!("{number} of {}, {} left: {what}", self.cells, HumanDuration(left))),
        }
    }

    /// The current cell has ended.
    pub(crate) fn end(&mut self) {
        if let Some((expected_s, began)) = self.current.take() {
            self.done_s.0 += expected_s;
            self.done_s.1 += began.elapsed().as_secs_f64();
        }
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// One of several parallel cells has ended; `expected_s` is its expected duration, in any unit.
    pub fn one_of_many(&mut self, expected_s: f64, what: &str) {
        // They end in any order.
        if let Some(place) = self.expected_s.iter().rposition(|&expected| expected == expected_s) {
            self.expected_s.remove(place);
        }
        self.done_s = (self.done_s.0 + expected_s, self.began.elapsed().as_secs_f64());
        let left = self.left();
        match &self.bar {
            Some(bar) => {
                *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + left;
                bar.set_message(what.to_owned());
                bar.inc(1);
            }
            None if self.expected_s.is_empty() || self.said.is_none_or(|said| said.elapsed() >= EVERY) => {
                let done = self.cells - self.expected_s.len();
                note(&format!("{done} of {} done, {} left: {what}", self.cells, HumanDuration(left)));
                self.said = Some(Instant::now());
            }
            None => {}
        }
    }

    /// Prints a permanent line.
    pub(crate) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| note(text)),
            None => note(text),
        }
    }

    /// Time left: the expected times of the remaining cells, scaled by the speed so far.
    fn left(&self) -> Duration {
        let pace = if self.done_s.0 > 0.0 { self.done_s.1 / self.done_s.0 } else { 1.0 };
        Duration::from_secs((self.expected_s.iter().sum::<f64>() * pace).round() as u64)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(cells: usize, done: usize, ends: &Arc<Mutex<Instant>>) -> ProgressBar {
    let ends = Arc::clone(ends);
    let left = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
        let ends = *ends.lock().unwrap_or_else(PoisonError::into_inner);
        let left = Duration::from_secs(ends.saturating_duration_since(Instant::now()).as_secs());
        // Errors of drawing are ignored.
        let _ = write!(out, "{}", HumanDuration(left));
    };
    // The template is constant and valid; without it the bar would be plain.
    let style = ProgressStyle::with_template("[{bar:20}] {pos} of {len} done, {left} left: {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(cells as u64).with_position(done as u64).with_style(style.with_key("left", left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_cells_to_come() {
        let mut progress = Progress::new([10.0, 20.0, 30.0].into_iter(), 5);
        progress.bar = None;
        assert_eq!(progress.left(), Duration::from_secs(60));
        progress.begin("a");
        assert_eq!(progress.expected_s, [30.0, 20.0]);
        // It took half of the expected time, so the others will too.
        progress.current = None;
        progress.done_s = (10.0, 5.0);
        assert_eq!(progress.left(), Duration::from_secs(25));
    }

    #[test]
    fn of_cells_beside_each_other_any_may_be_the_first_to_end() {
        let mut progress = Progress::new([10.0, 20.0, 30.0].into_iter(), 3);
        progress.bar = None;
        progress.one_of_many(20.0, "b");
        assert_eq!((&progress.expected_s[..], progress.done_s.0), (&[30.0, 10.0][..], 20.0));
        progress.one_of_many(30.0, "c");
        progress.one_of_many(10.0, "a");
        assert_eq!((progress.expected_s.len(), progress.left()), (0, Duration::ZERO));
    }
}
