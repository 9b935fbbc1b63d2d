//! How the load moves over time: constant, the papers' alternating and intermittent overloads, or any steps.

use std::{fmt, str::FromStr};

use serde::Serialize;

const NS_PER_S: f64 = 1e9;

/// Loads in turn, repeated for as long as a run lasts. A load is a fraction of the link's rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pattern {
    name: String,
    phases: Vec<Phase>,
}

/// A load held for a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// How long, in nanoseconds; not zero.
    pub duration_ns: u64,
    /// Bytes asked for over bytes that the link can carry; may be above 1.
    pub load: f64,
}

/// The overloads of "Web Servers Under Overload: How Scheduling Can Help", table 1: seconds at the low load, seconds at
/// the high one, low, high.
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
    /// One load throughout. `None` unless it is positive and finite.
    pub fn constant(load: f64) -> Option<Self> {
        Self::from_seconds(&load.to_string(), &[(1.0, load)])
    }

    /// One of `w1` to `w10`, in any case.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let &(name, low_s, high_s, low, high) = NAMED.iter().find(|(known, ..)| *known == name)?;
        Self::from_seconds(name, &[(low_s, low), (high_s, high)])
    }

    fn from_seconds(name: &str, phases: &[(f64, f64)]) -> Option<Self> {
        let phases = phases
            .iter()
            .map(|&(seconds, load)| {
                let duration_ns = (seconds * NS_PER_S).round() as u64;
                // Not `load >= 0`, which lets infinity through and needs a second look at NaN.
                ((0.0..1e6).contains(&load) && duration_ns > 0).then_some(Phase { duration_ns, load })
            })
            .collect::<Option<Vec<_>>>()?;
        phases.iter().any(|phase| phase.load > 0.0).then_some(Self { name: name.to_owned(), phases })
    }

    /// What it is called, for reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the load never changes.
    pub fn is_constant(&self) -> bool {
        self.phases.len() == 1
    }

    /// Time after which it begins again, in nanoseconds.
    pub fn period_ns(&self) -> u64 {
        self.phases.iter().map(|phase| phase.duration_ns).sum()
    }

    /// Its phases from the start of a run, repeated without end: `(from_ns, until_ns, load)`.
    pub fn phases(&self) -> impl Iterator<Item = (u64, u64, f64)> + '_ {
        let mut from_ns = 0;
        self.phases.iter().cycle().map(move |phase| {
            let from = from_ns;
            from_ns += phase.duration_ns;
            (from, from_ns, phase.load)
        })
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    /// Reads `w1` to `w10`, or steps such as `25s@0.2,25s@1.2`.
    fn from_str(text: &str) -> Result<Self, PatternError> {
        if let Some(named) = Self::named(text) {
            return Ok(named);
        }
        let step = |step: &str| {
            let (seconds, load) = step.trim().split_once('@')?;
            Some((seconds.strip_suffix('s')?.parse().ok()?, load.parse().ok()?))
        };
        let steps: Option<Vec<(f64, f64)>> = text.split(',').map(step).collect();
        steps.and_then(|steps| Self::from_seconds(text, &steps)).ok_or_else(|| PatternError(text.to_owned()))
    }
}

/// A text that is no pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError(String);

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a load pattern: use w1 to w10, or seconds and loads such as `25s@0.2,25s@1.2`", self.0)
    }
}

impl std::error::Error for PatternError {}

#[cfg(test)]
mod tests {
    use super::*;

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
            let pattern: Pattern = name.parse().unwrap();
            let offered: f64 = pattern.phases.iter().map(|p| p.load * p.duration_ns as f64).sum();
            // The paper prints one digit.
            assert!((offered / pattern.period_ns() as f64 - mean).abs() < 0.05, "{name}");
        }
    }

    #[test]
    fn steps_repeat() {
        let pattern: Pattern = "1s@0.5,0.5s@2".parse().unwrap();
        let first: Vec<_> = pattern.phases().take(3).collect();
        assert_eq!(
            first,
            [(0, 1_000_000_000, 0.5), (1_000_000_000, 1_500_000_000, 2.0), (1_500_000_000, 2_500_000_000, 0.5)]
        );
    }

    #[test]
    fn what_is_no_load_is_refused() {
        for text in ["", "w11", "1s@", "0s@0.5", "1@0.5", "1s@-1", "1s@inf", "1s@NaN", "1s@0"] {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
        assert!(Pattern::constant(0.0).is_none());
        assert!(Pattern::constant(f64::NAN).is_none());
    }
}
