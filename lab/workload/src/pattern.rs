//! The load over time: constant, the papers' alternating and intermittent overloads, or any steps and ramps.

use std::{fmt, str::FromStr};

use serde::Serialize;

const NS_PER_S: f64 = 1e9;

/// A sequence of levels, repeated for the length of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pattern {
    name: String,
    unit: Unit,
    phases: Vec<Phase>,
}

/// The unit of the levels of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Requested bytes over bytes that the link can carry; may be above 1.
    Load,
    /// Requests per second, independent of sizes and link.
    RequestsPerSecond,
}

/// A level that is constant or moves linearly for a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// The duration, in nanoseconds; at least a millisecond.
    pub duration_ns: u64,
    /// The level at its start.
    pub from: f64,
    /// The level at its end; equal to `from` unless it is a ramp.
    pub to: f64,
}

/// A phase with its position in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Its start, in nanoseconds since the start of the run.
    pub from_ns: u64,
    /// Its end.
    pub until_ns: u64,
    /// The level at its start.
    pub from: f64,
    /// The level at its end; the level moves linearly.
    pub to: f64,
}

/// The overloads of "Web Servers Under Overload: How Scheduling Can Help", table 1: seconds at the low load,
/// seconds at the high one, low, high.
const NAMED: [(&str, f64, f64, f64, f64); 10] = [
    ("w1", 25.0, 25.0, 0.2, 1.2),
    ("w2", 10.0, 10.0, 0.2, 1.2),
    ("w3", 50.0, 50.0, 0.2, 1.6),
    ("w4", 25.0, 25.0, 0.4, 1.4),
    ("w5", 10.0, 10.0, 0.4, 1.4),
    ("w6", 40.0, 40.0, 0.1, 1.7),
    ("w7", 63.0, 6.0, 0.4, 5.0),
    ("w8", 63.0, 10.0, 0.45, 3.0),
    ("w9", 20.0, 3.0, 0.735, 2.0),
    ("w10", 13.3, 2.0, 0.735, 2.0),
];

impl Pattern {
    /// A constant load. `None` unless it is positive and below a million.
    pub fn constant(load: f64) -> Option<Self> {
        Self::held(load.to_string(), Unit::Load, load)
    }

    /// A constant number of requests per second. `None` unless it is positive and below a million.
    pub fn requests_per_second(rate: f64) -> Option<Self> {
        Self::held(format!("{rate}/s"), Unit::RequestsPerSecond, rate)
    }

    fn held(name: String, unit: Unit, level: f64) -> Option<Self> {
        Self::new(name, unit, vec![Phase::new(1.0, level, level)?])
    }

    /// One of `w1` to `w10`, in any case.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let &(name, low_s, high_s, low, high) = NAMED.iter().find(|(known, ..)| *known == name)?;
        Self::new(name.to_owned(), Unit::Load, vec![Phase::new(low_s, low, low)?, Phase::new(high_s, high, high)?])
    }

    /// `None` if all levels are 0.
    fn new(name: String, unit: Unit, phases: Vec<Phase>) -> Option<Self> {
        phases.iter().any(|phase| phase.from > 0.0 || phase.to > 0.0).then_some(Self { name, unit, phases })
    }

    /// Parses a pattern file: a line for each phase, with its seconds, its load, and for a ramp the load at
    /// its end. Requests per second are written with `/s`, in all lines or none. A `#` starts a comment.
    ///
    /// ```text
    /// # seconds load [load at the end]
    /// 30  0.2
    /// 10  0.2  1.2
    /// ```
    ///
    /// # Errors
    ///
    /// The number of the first invalid line and its problem; or that no level is above 0.
    pub fn parse_file(text: &str) -> Result<Self, PatternError> {
        let mut unit = None;
        let mut phases = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let problem = |problem: String| PatternError::Line { number, problem };
            let fields: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let (seconds, from, to) = match fields[..] {
                [] => continue,
                [seconds, level] => (seconds, level, level),
                [seconds, from, to] => (seconds, from, to),
                _ => {
                    let found = fields.len();
                    return Err(problem(format!(
                        "{found} fields where `seconds load [load at the end]` are two or three"
                    )));
                }
            };
            let number_in = |text: &str| text.parse::<f64>().map_err(|_| problem(format!("`{text}` is not a number")));
            let mut level_in = |text: &str| {
                let (digits, found) = match text.strip_suffix("/s") {
                    Some(digits) => (digits, Unit::RequestsPerSecond),
                    None => (text, Unit::Load),
                };
                if *unit.get_or_insert(found) != found {
                    return Err(problem("loads and requests per second (`/s`) in one pattern".to_owned()));
                }
                number_in(digits)
            };
            let phase = Phase::new(number_in(seconds)?, level_in(from)?, level_in(to)?);
            phases.push(phase.ok_or_else(|| {
                problem("seconds are from 0.001 to 10 million, and levels at least 0 and below a million".to_owned())
            })?);
        }
        Self::new("file".to_owned(), unit.unwrap_or(Unit::Load), phases).ok_or(PatternError::Silent)
    }

    /// This pattern with another name, such as that of its file.
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The name for reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The unit of its levels.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Whether the level never changes.
    pub fn is_constant(&self) -> bool {
        let first = self.phases[0].from;
        self.phases.iter().all(|phase| phase.from == first && phase.to == first)
    }

    /// Time after which the pattern repeats, in nanoseconds.
    pub fn period_ns(&self) -> u64 {
        self.phases.iter().fold(0, |sum: u64, phase| sum.saturating_add(phase.duration_ns))
    }

    /// The mean level over a period.
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.phases.iter().map(|phase| (phase.from + phase.to) / 2.0 * phase.duration_ns as f64).sum();
        sum / self.period_ns() as f64
    }

    /// Its phases from the start of a run, repeated without end.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        let mut next_ns = 0_u64;
        self.phases.iter().cycle().map(move |phase| {
            let from_ns = next_ns;
            next_ns = next_ns.saturating_add(phase.duration_ns);
            Span { from_ns, until_ns: next_ns, from: phase.from, to: phase.to }
        })
    }
}

impl Phase {
    fn new(seconds: f64, from: f64, to: f64) -> Option<Self> {
        // Ranges refuse NaN too. Phases below a millisecond would make more spans than a long run has
        // requests.
        let is_level = |level: f64| (0.0..1e6).contains(&level);
        ((1e-3..=1e7).contains(&seconds) && is_level(from) && is_level(to)).then(|| Self {
            duration_ns: (seconds * NS_PER_S).round() as u64,
            from,
            to,
        })
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    /// Parses `w1` to `w10`; steps and ramps such as `25s@0.2,10s@0.2-1.2,25s@1.2`; and requests per second
    /// such as `60s@100-500/s`.
    fn from_str(text: &str) -> Result<Self, PatternError> {
        if let Some(named) = Self::named(text.trim()) {
            return Ok(named);
        }
        let steps: Option<Vec<(Phase, Unit)>> = text.split(',').map(step).collect();
        let pattern = steps.and_then(|steps| {
            let unit = steps.first()?.1;
            let phases = steps.iter().map(|&(phase, found)| (found == unit).then_some(phase)).collect::<Option<_>>()?;
            Self::new(text.trim().to_owned(), unit, phases)
        });
        pattern.ok_or_else(|| PatternError::Text(text.to_owned()))
    }
}

/// `25s@0.2`, `25s@0.2-1.2`, `25s@100/s`, `25s@100-500/s`.
fn step(text: &str) -> Option<(Phase, Unit)> {
    let (seconds, levels) = text.trim().split_once('@')?;
    let (levels, unit) = match levels.strip_suffix("/s") {
        Some(levels) => (levels, Unit::RequestsPerSecond),
        None => (levels, Unit::Load),
    };
    // A minus after an `e` belongs to a number such as 1e-3.
    let bytes = levels.as_bytes();
    let dash = (1..bytes.len()).find(|&i| bytes[i] == b'-' && !bytes[i - 1].eq_ignore_ascii_case(&b'e'));
    let (from, to) = dash.map_or((levels, levels), |dash| (&levels[..dash], &levels[dash + 1..]));
    let phase = Phase::new(seconds.strip_suffix('s')?.parse().ok()?, from.parse().ok()?, to.parse().ok()?)?;
    Some((phase, unit))
}

/// The text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// Neither a name nor steps.
    Text(String),
    /// A line of a pattern file is wrong.
    Line {
        /// Its number, from 1.
        number: usize,
        /// The problem with it.
        problem: String,
    },
    /// The file has no level above 0.
    Silent,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(
                f,
                "`{text}` is not a load pattern: use w1 to w10, seconds and loads such as `25s@0.2,10s@0.2-1.2`, \
                 or requests per second such as `60s@100-500/s`"
            ),
            Self::Line { number, problem } => write!(f, "line {number} of the load pattern: {problem}"),
            Self::Silent => {
                f.write_str("the load pattern asks for nothing: give a line `seconds load` with a load above 0")
            }
        }
    }
}

impl std::error::Error for PatternError {}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap()
    }

    #[test]
    fn the_papers_patterns_have_their_published_mean_loads() {
        for (name, mean) in [
            ("W1", 0.7),
            ("W2", 0.7),
            ("W3", 0.9),
            ("W4", 0.9),
            ("W5", 0.9),
            ("W6", 0.9),
            ("W7", 0.8),
            ("W8", 0.8),
            ("W9", 0.9),
            ("W10", 0.9),
        ] {
            // The paper prints one digit.
            assert!((pattern(name).mean() - mean).abs() < 0.05, "{name}");
        }
    }

    #[test]
    fn steps_and_ramps_repeat() {
        let pattern = pattern("1s@0.5,0.5s@2-1e-1");
        let first: Vec<_> = pattern.spans().take(3).collect();
        let span = |from_ns, until_ns, from, to| Span { from_ns, until_ns, from, to };
        assert_eq!(
            first,
            [
                span(0, SECOND, 0.5, 0.5),
                span(SECOND, SECOND * 3 / 2, 2.0, 0.1),
                span(SECOND * 3 / 2, SECOND * 5 / 2, 0.5, 0.5)
            ]
        );
        assert!((pattern.mean() - (0.5 + 0.5 * 1.05) / 1.5).abs() < 1e-12);
    }

    #[test]
    fn only_one_level_throughout_is_constant() {
        assert!(pattern("3s@0.5,2s@0.5").is_constant());
        assert!(!pattern("3s@0.5-0.6").is_constant());
        assert!(!pattern("w1").is_constant());
    }

    #[test]
    fn requests_per_second_are_told_from_loads() {
        assert_eq!(pattern("60s@100-500/s").unit(), Unit::RequestsPerSecond);
        assert_eq!(pattern("60s@100-500/s").mean(), 300.0);
        assert_eq!(Pattern::requests_per_second(35.0).unwrap().name(), "35/s");
        assert_eq!(pattern("60s@1").unit(), Unit::Load);
        assert!("1s@5/s,1s@5".parse::<Pattern>().is_err(), "one unit a pattern");
    }

    #[test]
    fn a_file_says_what_steps_say() {
        let file = "# up and down\n25 0.2\n\n 10 0.2 1.2  # ramp\n25\t1.2\n";
        let read = Pattern::parse_file(file).unwrap();
        assert!(read.spans().take(3).eq(pattern("25s@0.2,10s@0.2-1.2,25s@1.2").spans().take(3)));
        assert_eq!(read.with_name("up.txt").name(), "up.txt");
        assert_eq!(Pattern::parse_file("5 100/s 200/s").unwrap().unit(), Unit::RequestsPerSecond);
    }

    #[test]
    fn a_files_errors_name_their_line() {
        for (text, number, hint) in [
            ("1 0.5\n\n1 0.5 0.6 0.7", 3, "4 fields"),
            ("# nothing\n1", 2, "1 fields"),
            ("one 0.5", 1, "`one` is not a number"),
            ("1 0.5\n1 high", 2, "`high` is not a number"),
            ("1 0.5\n0 0.5", 2, "0.001"),
            ("1 -0.5", 1, "at least 0"),
            ("1 NaN", 1, "at least 0"),
            ("1 0.5\n1 5/s", 2, "in one pattern"),
        ] {
            let error = Pattern::parse_file(text).unwrap_err();
            assert!(matches!(error, PatternError::Line { number: found, .. } if found == number), "{text:?}: {error}");
            assert!(error.to_string().contains(hint), "{text:?}: {error}");
        }
        assert_eq!(Pattern::parse_file("# nothing\n5 0\n"), Err(PatternError::Silent));
    }

    #[test]
    fn what_is_no_load_is_refused() {
        for text in [
            "",
            "w11",
            "1s@",
            "0s@0.5",
            "1e-9s@0.5",
            "1@0.5",
            "1s@-1",
            "1s@0.5-",
            "1s@1--2",
            "1s@inf",
            "1s@NaN",
            "1s@0",
        ] {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
        assert!(Pattern::constant(0.0).is_none());
        assert!(Pattern::constant(f64::NAN).is_none());
        assert!(Pattern::requests_per_second(f64::INFINITY).is_none());
    }
}
