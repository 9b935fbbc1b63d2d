//! A check and its result.

use std::fmt;

use workload::stats::percentile;

use crate::bed::Cpu;

/// A check and its result.
#[derive(Debug)]
pub(super) struct Row {
    pub what: String,
    pub seen: String,
    /// The required bound.
    pub bound: String,
    pub holds: bool,
    /// Notes, for example about other programs that ran.
    pub notes: Vec<String>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds { "holds" } else { "DOES NOT HOLD" };
        write!(f, "{}\n    {}\n    {verdict}: {}", self.what, self.seen, self.bound)?;
        self.notes.iter().try_for_each(|note| write!(f, "\n    {note}"))
    }
}

/// Median, 99th percentile and largest of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Spread {
    /// Computed from at least one value.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { p50: percentile(&values, 0.5), p99: percentile(&values, 0.99), max: percentile(&values, 1.0) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {:.3} ms, p99 {:.3} ms, max {:.3} ms", self.p50, self.p99, self.max)
    }
}

/// The load of the machine, by this program and by others.
pub(super) fn machine(cpu: &Cpu, took_s: f64) -> String {
    let cores = |us: u64| us as f64 / 1e6 / took_s.max(1e-9);
    format!("machine busy {:.2} cores, stolen {:.2}", cores(cpu.machine_us), cores(cpu.stolen_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_its_extremes() {
        let spread = Spread::of((0..=100).rev().map(f64::from).collect());
        assert_eq!(spread, Spread { p50: 50.0, p99: 99.0, max: 100.0 });
    }

    #[test]
    fn a_row_says_whether_it_holds() {
        let row = Row {
            what: "loss".to_owned(),
            seen: "5.1 %".to_owned(),
            bound: "within 5 %".to_owned(),
            holds: false,
            notes: vec!["machine busy".to_owned()],
        };
        assert_eq!(row.to_string(), "loss\n    5.1 %\n    DOES NOT HOLD: within 5 %\n    machine busy");
    }
}
