//! The log on standard error: which lines are written, and how many.
//!
//! Clients can cause lines, so all have a bound. It is kept here for every place in the code that writes lines, so that a new
//! place cannot forget it.

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use tracing::{Event, Level, Subscriber, callsite::Identifier, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter,
    filter::ParseError,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// Lines of one place in the code that are written at once, and how many more each second.
const AT_ONCE: f64 = 100.0;
const PER_SECOND: f64 = 10.0;

/// Our crates have this in common.
const OURS: &str = "serpent";

/// Reads `--log`. A level up to `info` without a target is for this program's own lines. Libraries warn of what clients do, which is
/// no matter of the operator's.
pub fn filter(said: &str) -> Result<EnvFilter, ParseError> {
    let directive = |directive: &str| match directive.parse::<LevelFilter>() {
        Ok(level) if level <= LevelFilter::INFO => format!("{OURS}={level}"),
        _ => directive.to_owned(),
    };
    EnvFilter::try_new(said.split(',').map(str::trim).map(directive).collect::<Vec<_>>().join(","))
}

/// Writes so many lines of each place and no more, and how many were left out. Lines for debugging have no bound.
pub struct Bounded<F> {
    lines: F,
    places: Mutex<Places<Identifier>>,
}

impl<F> Bounded<F> {
    pub fn new(lines: F) -> Self {
        Self { lines, places: Mutex::new(Places(HashMap::new())) }
    }
}

impl<S, N, F> FormatEvent<S, N> for Bounded<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        if *metadata.level() <= Level::INFO {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            match places.pass(metadata.callsite(), Instant::now()) {
                None => return Ok(()),
                Some(0) => {}
                Some(1) => writeln!(to, "(one line like the next was left out)")?,
                Some(left_out) => writeln!(to, "({left_out} lines like the next were left out)")?,
            }
        }
        self.lines.format_event(context, to, event)
    }
}

/// Places in the code that have written lines.
struct Places<K>(HashMap<K, Place>);

struct Place {
    leave: f64,
    at: Instant,
    left_out: u64,
}

impl<K: Eq + Hash> Places<K> {
    /// How many lines were left out since the last one that was written; `None`: this one is left out, too.
    fn pass(&mut self, place: K, now: Instant) -> Option<u64> {
        let place = self.0.entry(place).or_insert(Place { leave: AT_ONCE, at: now, left_out: 0 });
        let more = now.saturating_duration_since(place.at).as_secs_f64() * PER_SECOND;
        (place.leave, place.at) = ((place.leave + more).min(AT_ONCE), now);
        if place.leave < 1.0 {
            place.left_out += 1;
            return None;
        }
        place.leave -= 1.0;
        Some(std::mem::take(&mut place.left_out))
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc, time::Duration};

    use tracing_subscriber::fmt::format;

    use super::*;

    /// What is written with this filter.
    fn written(said: &str, log: impl FnOnce()) -> String {
        struct Lines(Arc<Mutex<Vec<u8>>>);
        impl io::Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let lines = Arc::<Mutex<Vec<u8>>>::default();
        let to = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter(said).unwrap())
            .with_writer(move || Lines(to.clone()))
            .event_format(Bounded::new(format().without_time().with_target(false).with_ansi(false)));
        tracing::subscriber::with_default(subscriber.finish(), log);
        let lines = lines.lock().unwrap().clone();
        String::from_utf8(lines).unwrap()
    }

    fn each_level() {
        tracing::error!("error");
        tracing::warn!("warn");
        tracing::info!(target: "serpent_server::http", "info");
        tracing::debug!("debug");
        tracing::error!(target: "h2", "h2 error");
        tracing::warn!(target: "h2::proto", "h2 warn");
        tracing::debug!(target: "h2", "h2 debug");
    }

    #[test]
    fn libraries_are_heard_when_debugging_or_when_asked() {
        let levels = |said: &str| {
            let written = written(said, each_level);
            written
                .lines()
                .map(|line| line.trim_start().split_once(' ').unwrap().1.trim().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(levels("error"), ["error"]);
        assert_eq!(levels("warn"), ["error", "warn"]);
        assert_eq!(levels("INFO"), ["error", "warn", "info"]);
        assert_eq!(levels("off"), [""; 0]);
        assert_eq!(levels("debug"), ["error", "warn", "info", "debug", "h2 error", "h2 warn", "h2 debug"]);
        assert_eq!(levels("error, h2=warn"), ["error", "h2 error", "h2 warn"]);
        assert_eq!(levels("h2=debug"), ["h2 error", "h2 warn", "h2 debug"]);
        assert!(filter("serpent=loud").is_err());
    }

    #[test]
    fn a_line_that_is_caused_again_and_again_is_written_a_hundred_times() {
        let one = || tracing::warn!("one");
        let said = written("warn", || (0..100_000).for_each(|_| one()));
        let lines = said.lines().filter(|line| line.ends_with("one")).count();
        // Some more while this took its time.
        assert!((100..2_000).contains(&lines), "{lines}");
        let debugging = written("debug", || (0..1_000).for_each(|_| tracing::debug!("all of them")));
        assert_eq!(debugging.lines().count(), 1_000);
    }

    #[test]
    fn places_have_bounds_of_their_own_and_tell_what_was_left_out() {
        let (one, other) = ("one", "other");
        let (mut places, now) = (Places(HashMap::new()), Instant::now());
        assert_eq!((0..250).filter(|_| places.pass(one, now) == Some(0)).count(), 100);
        assert_eq!(places.pass(other, now), Some(0));
        let later = now + Duration::from_millis(100);
        assert_eq!(places.pass(one, later), Some(150));
        assert_eq!(places.pass(one, later), None);
        let much_later = now + Duration::from_secs(3600);
        assert_eq!(places.pass(one, much_later), Some(1));
        assert_eq!((0..250).filter(|_| places.pass(one, much_later).is_some()).count(), 99);
    }
}
