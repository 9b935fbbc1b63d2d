//! Runs the search: the scheduler's state machine chooses the rates, and this module measures them.

use scheduler::control::{Found, Measured, Probing, ProbingError, ProbingSettings, Search, Step, Stop};

use super::{
    load::{self, ClosedLoop, Halt, Limits, Page, Plan, RateMeasurement},
    progress::Progress,
};

/// Number of measurements for each number at once. It gives a median, and spreads changes of the site over
/// all numbers.
pub const REPEATS: usize = 3;

/// Numbers of requests at once that are measured around a window.
const KNEE_NUMBERS: usize = 3;

/// Settings of a search.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most requests a second.
    pub ceiling: u32,
    /// Seconds at each rate.
    pub seconds: f64,
    /// Least number of counted requests at each rate.
    pub least: u32,
}

/// The end of a search.
#[derive(Debug)]
pub enum End {
    /// With a result.
    Done(Found),
    /// Without a result, or with one that does not count.
    Stopped(Stop, Option<Found>),
    /// The site must not be asked any more.
    Halted(Halt, Option<Found>),
}

/// A finished search.
#[derive(Debug)]
pub struct Searched {
    /// The way the rate was changed.
    pub search: Search,
    /// The measurements, in their order.
    pub rates: Vec<RateMeasurement>,
    /// The end.
    pub end: End,
}

impl Searched {
    /// The result, if there is one.
    pub fn found(&self) -> Option<Found> {
        if let End::Done(found) = self.end { Some(found) } else { None }
    }
}

/// Searches. `name` is the name of the resource.
///
/// # Errors
/// If the settings allow no rate.
pub async fn search(
    page: &Page,
    name: &str,
    by: Search,
    settings: Settings,
    limits: &Limits,
    progress: &Progress,
) -> Result<Searched, ProbingError> {
    let machine = ProbingSettings::new(by, settings.ceiling);
    let limits = Limits { most_errors: machine.most_errors, ..limits.clone() };
    let mut probing = Probing::new(machine)?;
    let mut rates = Vec::new();
    let end = loop {
        match probing.poll_step() {
            Step::Measure { per_second } => {
                let plan = Plan::new(per_second, settings.seconds, settings.least);
                progress.at_most(at_most_s(&probing, settings));
                progress.begin(&format!("{name}, {by}: {per_second}/s"), u64::from(plan.requests()));
                match load::at_rate(page, plan, &limits, &|ended| progress.at(ended)).await {
                    Ok(rate) => {
                        probing.handle_measured(&rate.measured);
                        progress.at_most(at_most_s(&probing, settings));
                        let left = match probing.poll_step() {
                            Step::Measure { .. } => progress.left().map(|left| format!("; {left}")).unwrap_or_default(),
                            Step::Done(_) | Step::Stopped { .. } => String::new(),
                        };
                        progress.say(&(said(name, by, &rate) + &left));
                        rates.push(rate);
                    }
                    Err(halt) => break End::Halted(halt, probing.best()),
                }
            }
            Step::Done(found) => break End::Done(found),
            Step::Stopped { stop, best } => break End::Stopped(stop, best),
        }
    };
    progress.end();
    Ok(Searched { search: by, rates, end })
}

/// How long a whole search takes at most, in seconds.
pub fn whole_s(by: Search, settings: Settings) -> f64 {
    Probing::new(ProbingSettings::new(by, settings.ceiling)).map_or(0.0, |probing| at_most_s(&probing, settings))
}

/// How long the measurements around a window take, in seconds.
pub fn knee_s(settings: Settings) -> f64 {
    (KNEE_NUMBERS * REPEATS) as f64 * settings.seconds
}

/// How long a search takes at most from here on, in seconds. The search is played to its end with sites of any
/// capacity; one that never measures the same twice may take longer.
fn at_most_s(probing: &Probing, settings: Settings) -> f64 {
    let play = |capacity: u32| {
        let (mut probing, mut seconds) = (probing.clone(), 0.0);
        while let Step::Measure { per_second } = probing.poll_step() {
            let plan = Plan::new(per_second, settings.seconds, settings.least);
            seconds += f64::from(plan.requests()) / f64::from(per_second);
            let keeps_up = per_second <= capacity;
            let sent = u64::from(plan.counted);
            let answered = if keeps_up { sent } else { 0 };
            let measured = Measured { sent, answered, errors: 0, service_ns: 1, running: 1.0, grew: !keeps_up };
            probing.handle_measured(&measured);
        }
        seconds
    };
    // The longest way leads to just below a power of two, or to the highest rate.
    let below =
        std::iter::successors(Some(1_u32), |rate| rate.checked_mul(2)).take_while(|rate| *rate < settings.ceiling);
    let ends = below
        .flat_map(|rate| [rate, rate.saturating_mul(2) - 1])
        .chain((0..4).map(|below| settings.ceiling.saturating_sub(below)));
    ends.map(|capacity| play(capacity.min(settings.ceiling))).fold(0.0, f64::max)
}

fn said(name: &str, by: Search, rate: &RateMeasurement) -> String {
    let measured = &rate.measured;
    let errors = match &rate.error {
        Some(first) => format!(", {} errors ({first})", measured.errors),
        None => String::new(),
    };
    let grew = if measured.grew { " and growing" } else { "" };
    format!(
        "{name}, {by}: {}/s: {} of {} answered, {:.1} ms, {:.1} at once{grew}{errors}",
        rate.per_second,
        measured.answered,
        measured.sent,
        measured.service_ns as f64 / 1e6,
        measured.running
    )
}

/// Repeated measurements with one number of requests at once.
#[derive(Debug)]
pub struct AtOnce {
    /// The number at once.
    pub at_once: u32,
    /// The measurements, in their order.
    pub times: Vec<ClosedLoop>,
}

impl AtOnce {
    /// Answers per second: median, least and most.
    pub fn throughput(&self) -> (f64, f64, f64) {
        let mut all: Vec<f64> = self.times.iter().map(|closed| closed.throughput).collect();
        all.sort_by(f64::total_cmp);
        let end = |it: Option<&f64>| it.copied().unwrap_or(0.0);
        (median(&all), end(all.first()), end(all.last()))
    }

    /// Median over the measurements of the mean service time.
    pub fn service_ms(&self) -> f64 {
        let mut all: Vec<f64> = self.times.iter().map(|closed| closed.service_ns as f64 / 1e6).collect();
        all.sort_by(f64::total_cmp);
        median(&all)
    }
}

fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => (sorted[even / 2 - 1] + sorted[even / 2]) / 2.0,
    }
}

/// Measures around a window: with one request fewer at once, as many, and two more. The order is reversed in
/// every other round.
pub async fn knee(
    page: &Page,
    name: &str,
    window: u32,
    settings: Settings,
    limits: &Limits,
    progress: &Progress,
) -> (Vec<AtOnce>, Option<Halt>) {
    let numbers: [u32; KNEE_NUMBERS] = [window.saturating_sub(1), window, window.saturating_add(2)];
    let mut all: Vec<AtOnce> =
        numbers.into_iter().filter(|&it| it > 0).map(|at_once| AtOnce { at_once, times: Vec::new() }).collect();
    let lasts = std::time::Duration::from_secs_f64(settings.seconds);
    let most_errors = ProbingSettings::new(Search::Steps, settings.ceiling).most_errors;
    let limits = Limits { most_errors, ..limits.clone() };
    for turn in 0..REPEATS {
        let mut places: Vec<usize> = (0..all.len()).collect();
        if turn % 2 == 1 {
            places.reverse();
        }
        for place in places {
            let at_once = all[place].at_once;
            let done = all.iter().map(|at_once| at_once.times.len()).sum::<usize>();
            progress.at_most((all.len() * REPEATS - done) as f64 * settings.seconds);
            progress.begin(&format!("{name}: {at_once} at once, {} of {REPEATS}", turn + 1), 0);
            match load::at_once(page, at_once, lasts, &limits).await {
                Ok(ClosedLoop { errors: Some(error), .. }) => {
                    progress.say(&format!("{name}: {at_once} at once: too many errors ({error})"));
                    progress.end();
                    return (all, None);
                }
                Ok(closed) => {
                    progress.say(&format!("{name}: {at_once} at once: {:.2}/s", closed.throughput));
                    all[place].times.push(closed);
                }
                Err(halt) => {
                    progress.end();
                    return (all, Some(halt));
                }
            }
        }
    }
    progress.end();
    (all, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_site_takes_longer_than_was_said_at_any_step() {
        let settings = Settings { ceiling: 200, seconds: 20.0, least: 40 };
        for (by, capacity) in Search::ALL.into_iter().flat_map(|by| (0..=200).map(move |capacity| (by, capacity))) {
            let mut probing = Probing::new(ProbingSettings::new(by, settings.ceiling)).unwrap();
            let (mut seconds, mut said) = (0.0, Vec::new());
            while let Step::Measure { per_second } = probing.poll_step() {
                said.push(seconds + at_most_s(&probing, settings));
                let plan = Plan::new(per_second, settings.seconds, settings.least);
                seconds += f64::from(plan.requests()) / f64::from(per_second);
                let (sent, grew) = (u64::from(plan.counted), per_second > capacity);
                let answered = if grew { 0 } else { sent };
                probing.handle_measured(&Measured { sent, answered, errors: 0, service_ns: 1, running: 1.0, grew });
            }
            for end in said {
                assert!(seconds <= end + 1e-6, "{by}, {capacity} a second: {seconds} s, and at most {end} s was said");
            }
        }
    }
}
