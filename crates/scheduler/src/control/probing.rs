//! Finds the capacity of a site before it is in use, by sending requests at higher and higher rates.
//!
//! The method is that of "Multiple-resource Request Scheduling Algorithms for Proportional System-time
//! Differentiation at Website Gateway", section 3.3.1. While the site answers at the rate at which requests
//! come, it is below full speed. The rate goes up until the site falls behind twice in a row, and then down
//! until it keeps up. At that rate the mean number of running requests is the first window. The mean service
//! time is the bound that [`super::Method::Probe`] uses.
//!
//! The paper compares whole numbers. In a count over some time a few answers are always missing. So here the
//! site keeps up if no more than the part [`ProbingSettings::tolerance`] of the answers is missing. A site
//! that queues its excess could stay within the tolerance with an ever longer queue, and only the queue would
//! be measured. The caller that counts can detect this ([`Measured::grew`]).

use core::fmt;

/// How the search changes the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Search {
    /// By one request a second, as in the paper's figure 3.
    Steps,
    /// Doubles until the site falls behind twice, then halves the interval. The end goes in steps of one,
    /// with the same confirmation as in the paper.
    Doubling,
}

impl Search {
    /// Both searches.
    pub const ALL: [Self; 2] = [Self::Steps, Self::Doubling];

    /// The name in configuration, flags and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Doubling => "doubling",
        }
    }
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Settings of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbingSettings {
    /// How the search changes the rate.
    pub search: Search,
    /// Upper limit of the rate, in requests a second.
    pub most_per_second: u32,
    /// The site keeps up if no more than this part of its answers is missing.
    pub tolerance: f64,
    /// The search stops if more than this part of the requests ends in errors.
    pub most_errors: f64,
    /// Most measurements of a search. A site that never measures the same twice might be searched for ever.
    pub most_steps: u32,
}

impl ProbingSettings {
    /// Settings with a tolerance of 5 % missing answers and 1 % errors.
    pub const fn new(search: Search, most_per_second: u32) -> Self {
        // Each rate once, and some of them again.
        let most_steps = most_per_second.saturating_mul(2).saturating_add(100);
        Self { search, most_per_second, tolerance: 0.05, most_errors: 0.01, most_steps }
    }
}

/// The result of a measurement at one rate. All counts cover one interval, which begins when the site has
/// settled at the rate, and not before the first answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Requests sent.
    pub sent: u64,
    /// Requests answered without an error in the interval, whenever they were sent.
    pub answered: u64,
    /// Requests that ended in an error of the site, a time-out, or a broken connection.
    pub errors: u64,
    /// Mean service time of the answered requests, in nanoseconds.
    pub service_ns: u64,
    /// Mean number of requests at the site.
    pub running: f64,
    /// The number of requests at the site kept growing: it falls behind, however few answers are missing so
    /// far.
    pub grew: bool,
}

/// The next step of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Wait until the site has finished all probing requests, then send at this rate, evenly, and report the
    /// result.
    Measure {
        /// Requests a second.
        per_second: u32,
    },
    /// The search is over.
    Done(Found),
    /// The search is over without a result.
    Stopped {
        /// The reason.
        stop: Stop,
        /// The highest rate at which the site has kept up so far, if any. It is not confirmed.
        best: Option<Found>,
    },
}

/// The capacity of a site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The highest rate at which the site keeps up, in requests a second.
    pub per_second: u32,
    /// The mean number of running requests at that rate, rounded, at least 1.
    pub window: u32,
    /// The mean service time at that rate, in nanoseconds.
    pub bound_ns: u64,
    /// The rate is the highest one allowed: the site may be able to do more.
    pub at_ceiling: bool,
}

/// Why a search has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Too many errors at this rate.
    Errors {
        /// Requests a second.
        per_second: u32,
    },
    /// The site does not keep up even with one request a second.
    TooSlow,
    /// Too many measurements without a confirmed rate.
    Undecided,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errors { per_second } => write!(f, "too many errors at {per_second} requests a second"),
            Self::TooSlow => f.write_str("the site does not keep up with one request a second"),
            Self::Undecided => f.write_str("the site is not the same twice: too many measurements without a result"),
        }
    }
}

/// Why settings of a search are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbingError {
    /// The upper limit of the rate is 0.
    Ceiling,
    /// The tolerance or the part of errors is not a number from 0 to below 1.
    Part,
}

impl fmt::Display for ProbingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ceiling => "the site may not be asked at all: allow at least one request a second",
            Self::Part => "the tolerance and the part of errors must be numbers from 0 to below 1",
        })
    }
}

impl core::error::Error for ProbingError {}

/// The search. [`Probing::poll_step`] returns the next step, [`Probing::handle_measured`] takes its result.
///
/// ```
/// use serpent_scheduler::control::{Measured, Probing, ProbingSettings, Search, Step};
///
/// // A site that answers up to 40 requests a second, each within 100 ms.
/// let mut probing = Probing::new(ProbingSettings::new(Search::Doubling, 1000))?;
/// let mut asked = Vec::new();
/// let found = loop {
///     match probing.poll_step() {
///         Step::Measure { per_second } => {
///             asked.push(per_second);
///             let answered = u64::from(per_second.min(40)) * 10;
///             let running = if per_second > 40 { 200.0 } else { f64::from(per_second) / 10.0 };
///             let sent = u64::from(per_second) * 10;
///             let measured = Measured { sent, answered, errors: 0, service_ns: 100_000_000, running, grew: false };
///             probing.handle_measured(&measured);
///         }
///         Step::Done(found) => break found,
///         Step::Stopped { stop, .. } => panic!("{stop}"),
///     }
/// };
/// // At 42 requests a second, less than 5 % of the answers are missing.
/// assert_eq!(found.per_second, 42);
/// assert_eq!(asked, [1, 2, 4, 8, 16, 32, 64, 64, 48, 48, 40, 44, 44, 42, 43, 43, 42]);
/// # Ok::<(), serpent_scheduler::control::ProbingError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Probing {
    settings: ProbingSettings,
    state: SearchState,
    steps: u32,
    best: Option<Found>,
}

#[derive(Clone, Copy, Debug)]
enum SearchState {
    /// Upward, to the first rate that is too high.
    Doubling {
        low: u32,
        at: u32,
        again: bool,
    },
    /// Between a rate that is not too high and one that is.
    Between {
        low: u32,
        high: u32,
        again: bool,
    },
    /// The paper's states 0 and 1.
    Up {
        at: u32,
        again: bool,
    },
    /// The paper's state 2.
    Confirm {
        at: u32,
    },
    Over(Step),
}

impl Probing {
    /// Makes a search that has measured nothing yet.
    ///
    /// # Errors
    /// The highest rate is 0, or a part is not a number from 0 to below 1.
    pub fn new(settings: ProbingSettings) -> Result<Self, ProbingError> {
        if settings.most_per_second == 0 {
            return Err(ProbingError::Ceiling);
        }
        if ![settings.tolerance, settings.most_errors].iter().all(|part| (0.0..1.0).contains(part)) {
            return Err(ProbingError::Part);
        }
        let state = match settings.search {
            Search::Steps => SearchState::Up { at: 1, again: false },
            Search::Doubling => SearchState::Doubling { low: 0, at: 1, again: false },
        };
        Ok(Self { settings, state, steps: 0, best: None })
    }

    /// The next step.
    pub fn poll_step(&self) -> Step {
        match self.state {
            SearchState::Over(step) => step,
            _ => Step::Measure { per_second: self.rate() },
        }
    }

    /// The highest rate at which the site has kept up so far, if any. It is not confirmed.
    pub fn best(&self) -> Option<Found> {
        self.best
    }

    /// Number of measurements so far.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Takes the result of the measurement that [`Probing::poll_step`] asked for. Ignored if no measurement
    /// was asked for.
    pub fn handle_measured(&mut self, measured: &Measured) {
        if matches!(self.state, SearchState::Over(_)) {
            return;
        }
        self.steps += 1;
        let per_second = self.rate();
        let ended = measured.answered.saturating_add(measured.errors).max(1);
        if measured.errors as f64 > self.settings.most_errors * ended as f64 {
            return self.stop(Stop::Errors { per_second });
        }
        let missing = self.settings.tolerance * measured.sent as f64;
        let keeps_up = !measured.grew && measured.answered as f64 >= measured.sent as f64 - missing;
        let ceiling = self.settings.most_per_second;
        let found = Found {
            per_second,
            // Rounded to the nearest integer. A NaN becomes 0 and then 1.
            window: ((measured.running + 0.5) as u32).max(1),
            bound_ns: measured.service_ns,
            at_ceiling: per_second == ceiling,
        };
        if keeps_up && self.best.is_none_or(|best| best.per_second <= per_second) {
            self.best = Some(found);
        }
        self.state = match self.state {
            SearchState::Confirm { .. } if keeps_up => return self.state = SearchState::Over(Step::Done(found)),
            SearchState::Up { again: false, .. } | SearchState::Doubling { .. } if keeps_up && found.at_ceiling => {
                return self.state = SearchState::Over(Step::Done(found));
            }
            SearchState::Confirm { at } => SearchState::Up { at: at - 1, again: false },
            SearchState::Up { at, again: false } if keeps_up => SearchState::Up { at: at + 1, again: false },
            // As in the paper, the rate is measured a third time.
            SearchState::Up { at, again: true } if keeps_up => SearchState::Up { at, again: false },
            SearchState::Up { at, again: false } => SearchState::Up { at, again: true },
            SearchState::Up { at, again: true } => SearchState::Confirm { at: at - 1 },
            SearchState::Doubling { at, .. } if keeps_up => {
                SearchState::Doubling { low: at, at: at.saturating_mul(2).min(ceiling), again: false }
            }
            SearchState::Doubling { low, at, again: false } => SearchState::Doubling { low, at, again: true },
            SearchState::Doubling { low, at, again: true } => between(low, at),
            SearchState::Between { low, high, .. } if keeps_up => between(halfway(low, high), high),
            SearchState::Between { low, high, again: false } => SearchState::Between { low, high, again: true },
            SearchState::Between { low, high, again: true } => between(low, halfway(low, high)),
            over @ SearchState::Over(_) => over,
        };
        if self.rate() == 0 {
            self.stop(Stop::TooSlow);
        } else if self.steps >= self.settings.most_steps {
            self.stop(Stop::Undecided);
        }
    }

    fn stop(&mut self, stop: Stop) {
        self.state = SearchState::Over(Step::Stopped { stop, best: self.best });
    }

    fn rate(&self) -> u32 {
        match self.state {
            SearchState::Doubling { at, .. } | SearchState::Up { at, .. } | SearchState::Confirm { at } => at,
            SearchState::Between { low, high, .. } => halfway(low, high),
            SearchState::Over(_) => 0,
        }
    }
}

fn halfway(low: u32, high: u32) -> u32 {
    low + (high - low) / 2
}

/// The next state of a site that keeps up with `low` and failed twice at `high`.
fn between(low: u32, high: u32) -> SearchState {
    if high - low <= 1 {
        SearchState::Confirm { at: high - 1 }
    } else {
        SearchState::Between { low, high, again: false }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// A site that answers `capacity` requests a second, each in 50 ms; measured over 10 s.
    fn measure(capacity: f64, per_second: u32) -> Measured {
        let sent = u64::from(per_second) * 10;
        let answered = (sent as f64).min(capacity * 10.0) as u64;
        let late = sent - answered;
        Measured {
            sent,
            answered,
            errors: 0,
            service_ns: 50_000_000 + 1_000_000 * late,
            running: answered as f64 / 200.0,
            grew: false,
        }
    }

    fn search(settings: ProbingSettings, mut site: impl FnMut(u32) -> Measured) -> (Vec<u32>, Step) {
        let mut probing = Probing::new(settings).unwrap();
        let mut asked = Vec::new();
        loop {
            match probing.poll_step() {
                Step::Measure { per_second } => {
                    asked.push(per_second);
                    probing.handle_measured(&site(per_second));
                }
                over => {
                    assert_eq!(probing.steps() as usize, asked.len());
                    if let Step::Stopped { best, .. } = over {
                        assert_eq!(probing.best(), best);
                    }
                    // Later measurements change nothing.
                    probing.handle_measured(&site(1));
                    assert_eq!(probing.poll_step(), over);
                    return (asked, over);
                }
            }
        }
    }

    fn exact(search: Search) -> ProbingSettings {
        ProbingSettings { tolerance: 0.0, ..ProbingSettings::new(search, 1000) }
    }

    #[test]
    fn by_steps_as_in_figure_3() {
        let (asked, step) = search(exact(Search::Steps), |rate| measure(4.0, rate));
        assert_eq!(asked, [1, 2, 3, 4, 5, 5, 4]);
        let found = Found { per_second: 4, window: 1, bound_ns: 50_000_000, at_ceiling: false };
        assert_eq!(step, Step::Done(found));
    }

    #[test]
    fn a_slip_is_asked_about_again_and_a_failed_confirmation_leads_one_lower() {
        // The site falls behind once at 2, which has no effect. Then it falls behind twice at 4, and once
        // more while 3 is confirmed.
        let mut slips = [false, true, false, false, false, true, true, true].into_iter();
        let (asked, step) = search(exact(Search::Steps), |rate| {
            let slips = slips.next().unwrap_or(rate > 3);
            measure(if slips { 0.5 } else { 1e9 }, rate)
        });
        assert_eq!(asked, [1, 2, 2, 2, 3, 4, 4, 3, 2, 3, 4, 4, 3]);
        assert!(matches!(step, Step::Done(Found { per_second: 3, .. })), "{step:?}");
    }

    #[test]
    fn both_searches_find_the_same_rate_and_doubling_finds_it_sooner() {
        for capacity in 1..400 {
            let run = |search_by| search(exact(search_by), |rate| measure(f64::from(capacity), rate));
            let ((by_steps, steps), (by_doubling, doubling)) = (run(Search::Steps), run(Search::Doubling));
            assert_eq!(steps, doubling);
            assert!(matches!(steps, Step::Done(Found { per_second, .. }) if per_second == capacity), "{steps:?}");
            assert_eq!(by_steps.len() as u32, capacity + 3);
            let doublings = capacity.ilog2() + 1;
            assert!(by_doubling.len() as u32 <= 3 * doublings + 3, "{capacity}: {by_doubling:?}");
            assert!(by_doubling.iter().all(|&rate| rate <= 2 * capacity));
        }
    }

    #[test]
    fn a_site_that_queues_falls_behind_within_the_tolerance() {
        for search_by in Search::ALL {
            let settings = ProbingSettings { tolerance: 0.05, ..ProbingSettings::new(search_by, 1000) };
            let site = |rate| Measured { grew: rate > 100, ..measure(100.0, rate) };
            let (_, step) = search(settings, site);
            assert!(matches!(step, Step::Done(Found { per_second: 100, .. })), "{step:?}");
            let (_, step) = search(settings, |rate| Measured { grew: false, ..site(rate) });
            assert!(matches!(step, Step::Done(Found { per_second: 105, .. })), "{step:?}");
        }
    }

    #[test]
    fn the_ceiling_is_never_exceeded_and_the_result_says_so() {
        for search_by in Search::ALL {
            let settings = ProbingSettings::new(search_by, 37);
            let (asked, step) = search(settings, |rate| measure(1e9, rate));
            assert_eq!(asked.iter().max(), Some(&37));
            assert!(matches!(step, Step::Done(Found { per_second: 37, at_ceiling: true, .. })), "{step:?}");
        }
    }

    #[test]
    fn errors_end_it_at_once_and_what_was_seen_before_is_kept() {
        for search_by in Search::ALL {
            let settings = ProbingSettings::new(search_by, 1000);
            let (asked, step) = search(settings, |rate| {
                let errors = if rate > 10 { 3 } else { 0 };
                Measured { errors, ..measure(1e9, rate) }
            });
            let Step::Stopped { stop: Stop::Errors { per_second }, best: Some(best) } = step else {
                panic!("{step:?}")
            };
            assert_eq!(asked.iter().filter(|&&rate| rate > 10).count(), 1);
            assert!(per_second > 10 && best.per_second <= 10 && best.per_second > 7, "{step:?}");
        }
    }

    #[test]
    fn a_site_that_does_nothing_or_never_the_same_comes_to_an_end() {
        for search_by in Search::ALL {
            let (_, step) = search(exact(search_by), |rate| measure(0.2, rate));
            assert_eq!(step, Step::Stopped { stop: Stop::TooSlow, best: None });
            let mut turns = 0u32;
            let (asked, step) = search(exact(search_by), |rate| {
                turns += 1;
                measure(if turns.is_multiple_of(3) { 1e9 } else { 0.5 }, rate + 1)
            });
            assert!(asked.len() <= 2100 && !matches!(step, Step::Measure { .. }), "{step:?}");
        }
    }

    #[test]
    fn settings_that_allow_nothing_are_refused() {
        let good = ProbingSettings::new(Search::Steps, 1);
        let refused = |settings| Probing::new(settings).unwrap_err();
        assert_eq!(refused(ProbingSettings { most_per_second: 0, ..good }), ProbingError::Ceiling);
        assert_eq!(refused(ProbingSettings { tolerance: 1.0, ..good }), ProbingError::Part);
        assert_eq!(refused(ProbingSettings { most_errors: f64::NAN, ..good }), ProbingError::Part);
    }
}
