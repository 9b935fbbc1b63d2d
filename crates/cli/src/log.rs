//! The log on standard error: which lines are written, and how many.
//!
//! Clients can cause lines, so their number is bounded for every call site in the code. The bound is kept here, so that
//! no call site can forget it.

mod json;
mod target;

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::{Instant, SystemTime},
};

use tracing::{Event, Level, Subscriber, callsite::Identifier, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{self, Format, Full, Writer},
    },
    registry::LookupSpan,
};

use target::Form;
pub use target::{OpenedLog, Target, close, follow, open};

/// Largest number of lines that one call site writes at once.
const BURST_LINES: f64 = 100.0;
/// Lines a second that a call site may write beyond that.
const LINES_PER_SECOND: f64 = 10.0;

/// The beginning of the names of this workspace's crates.
const OWN_CRATES: &str = "serpent";

/// Reads `--log`. A level up to `info` without a target applies to this program's own lines. Libraries warn of mistakes
/// of clients, which the operator cannot mend.
pub fn filter(said: &str) -> Result<EnvFilter, String> {
    // The library takes any word for a target, of which nothing is logged.
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic());
    if let Some(word) = said.split(',').map(str::trim).find(|word| is_word(word) && !is_level(word)) {
        return Err(format!(
            "`{word}` is no level: write `error`, `warn`, `info`, `debug` or `trace`, or a level of a part, as in \
             `serpent_server=debug`"
        ));
    }
    let directive = |directive: &str| match directive.parse::<LevelFilter>() {
        Ok(level) if level <= LevelFilter::INFO => format!("{OWN_CRATES}={level}"),
        _ => directive.to_owned(),
    };
    let directives = said.split(',').map(str::trim).map(directive).collect::<Vec<_>>().join(",");
    EnvFilter::try_new(directives).map_err(|error| error.to_string())
}

/// Writes a bounded number of lines for each call site, and how many were left out. Lines for debugging have no bound.
pub struct Bounded<F> {
    lines: F,
    /// For receivers that know time and severity anyway.
    messages: Format<Full, ()>,
    call_sites: Mutex<CallSites<Identifier>>,
}

impl<F> Bounded<F> {
    pub fn new(lines: F) -> Self {
        let messages = format::format().without_time().with_level(false);
        Self { lines, messages, call_sites: Mutex::new(CallSites(HashMap::new())) }
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
        let mut left_out = 0;
        if *metadata.level() <= Level::INFO {
            let mut call_sites = self.call_sites.lock().unwrap_or_else(PoisonError::into_inner);
            match call_sites.admit(metadata.callsite(), Instant::now()) {
                None => return Ok(()),
                Some(number) => left_out = number,
            }
        }
        let form = target::form();
        if form == Form::Json {
            return to.write_str(&json::line(event, SystemTime::now(), left_out));
        }
        match left_out {
            0 => {}
            1 => writeln!(to, "(one line like the next was left out)")?,
            left_out => writeln!(to, "({left_out} lines like the next were left out)")?,
        }
        // A terminal has colours, of which a file and a receiver know nothing.
        let mut text = String::new();
        match form {
            Form::Terminal | Form::Json => return self.lines.format_event(context, to, event),
            Form::Lines => self.lines.format_event(context, Writer::new(&mut text), event)?,
            Form::Messages => self.messages.format_event(context, Writer::new(&mut text), event)?,
        }
        to.write_str(&text)
    }
}

/// The call sites that have written lines, each with a token bucket.
struct CallSites<K>(HashMap<K, Bucket>);

struct Bucket {
    /// Lines that may be written now.
    tokens: f64,
    refilled_at: Instant,
    /// Lines left out since the last one that was written.
    left_out: u64,
}

impl<K: Eq + Hash> CallSites<K> {
    /// The number of lines left out since the last one that was written; `None` if this one is left out, too.
    fn admit(&mut self, call_site: K, now: Instant) -> Option<u64> {
        let full = Bucket { tokens: BURST_LINES, refilled_at: now, left_out: 0 };
        let bucket = self.0.entry(call_site).or_insert(full);
        let more = now.saturating_duration_since(bucket.refilled_at).as_secs_f64() * LINES_PER_SECOND;
        (bucket.tokens, bucket.refilled_at) = ((bucket.tokens + more).min(BURST_LINES), now);
        if bucket.tokens < 1.0 {
            bucket.left_out += 1;
            return None;
        }
        bucket.tokens -= 1.0;
        Some(std::mem::take(&mut bucket.left_out))
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc, time::Duration};

    use tracing_subscriber::fmt::format;

    use super::*;

    /// The lines that this filter lets through.
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
        let (mut call_sites, now) = (CallSites(HashMap::new()), Instant::now());
        assert_eq!((0..250).filter(|_| call_sites.admit(one, now) == Some(0)).count(), 100);
        assert_eq!(call_sites.admit(other, now), Some(0));
        let later = now + Duration::from_millis(100);
        assert_eq!(call_sites.admit(one, later), Some(150));
        assert_eq!(call_sites.admit(one, later), None);
        let much_later = now + Duration::from_secs(3600);
        assert_eq!(call_sites.admit(one, much_later), Some(1));
        assert_eq!((0..250).filter(|_| call_sites.admit(one, much_later).is_some()).count(), 99);
    }
}
