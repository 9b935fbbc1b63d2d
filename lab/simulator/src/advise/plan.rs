//! Chooses the part of the log and the loads that are simulated.

use super::{
    NotAdvisable, Part, Policy, Survey,
    report::{Simulated, is_not_yet_full},
    spread::Spread,
    survey::Site,
    timeline::Span,
};

/// Loads of the busiest hour to which today's traffic is grown.
const PEAK_LOADS: [f64; 4] = [0.5, 0.8, 0.9, 0.95];
/// Factors by which today's traffic is also grown, whatever load results.
const GROWTHS: [f64; 2] = [1.5, 2.0];
/// Two growths are both simulated only if their ratio is larger than this.
const APART: f64 = 1.05;
/// Stamps with a finer tick are not repeated with other spreads, because a response takes longer than the
/// tick.
const FINE_TICK_NS: u64 = 1_000_000;

/// The part of a log and the scenarios that are simulated. It is made of a [`Survey`] of the whole log.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) site: Site,
    /// The parts of the log that are simulated, by time. An empty list stands for the whole log.
    pub(super) spans: Vec<Span>,
    pub(super) scenarios: Vec<Scenario>,
}

/// The traffic of the log, sped up by a factor, under some policies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scenario {
    pub(super) growth: f64,
    pub(super) spread: Spread,
    pub(super) policies: &'static [Policy],
}

impl Plan {
    /// Decides which parts of the log to simulate, and at which loads.
    ///
    /// # Errors
    /// If the log holds nothing that could be ordered.
    pub fn new(survey: Survey) -> Result<Self, NotAdvisable> {
        let site = survey.finish()?;
        let whole = match site.question.part {
            Part::Auto => site.log.requests <= site.question.quick_requests,
            Part::Whole | Part::Window(..) => true,
        };
        let spans = if whole { Vec::new() } else { site.timeline.busiest(site.question.quick_requests) };
        let seed = site.question.seed;
        let growths = growths(site.load.peak);
        let mut scenarios: Vec<Scenario> = growths
            .iter()
            .map(|&growth| Scenario { growth, spread: Spread::Random(seed), policies: &Policy::ALL })
            .collect();
        if site.tick_ns > FINE_TICK_NS {
            let growth = judged(&growths, site.load.peak);
            let policies = &[Policy::Fair, Policy::Srpt];
            let spreads = [Spread::Random(seed.wrapping_add(1)), Spread::Even, Spread::Together];
            scenarios.extend(spreads.map(|spread| Scenario { growth, spread, policies }));
        }
        Ok(Self { site, spans, scenarios })
    }

    /// Number of scenarios. Each is simulated once, by a [`Batch`](super::Batch).
    pub fn scenarios(&self) -> usize {
        self.scenarios.len()
    }

    /// Whether a record of this time is simulated.
    pub(super) fn simulates(&self, at_ns: u64) -> bool {
        let after = self.spans.partition_point(|span| span.from_ns <= at_ns);
        self.spans.is_empty() || (after > 0 && at_ns < self.spans[after - 1].until_ns)
    }

    /// Number of requests that are simulated, as the timeline counts them. It is exact except for records out
    /// of order at the borders of a span.
    pub(super) fn expected_requests(&self) -> u64 {
        let (_, cells) = self.site.timeline.cells();
        cells.filter(|&(from_ns, _)| self.simulates(from_ns)).map(|(_, cell)| cell.requests).sum()
    }

    pub(super) fn simulated(&self, requests: u64) -> Simulated {
        let whole = [self.site.span];
        let spans = if self.spans.is_empty() { &whole[..] } else { &self.spans };
        let seconds = |span: &Span| (span.from_ns as f64 / 1e9, span.until_ns as f64 / 1e9);
        Simulated { whole: self.spans.is_empty(), requests, spans_unix_s: spans.iter().map(seconds).collect() }
    }
}

/// Factors by which today's traffic is multiplied, today's own (1) first.
fn growths(peak: f64) -> Vec<f64> {
    let mut growths = vec![1.0];
    let apart = |growths: &[f64], new: f64| growths.iter().all(|old| old / new > APART || new / old > APART);
    for load in PEAK_LOADS {
        let growth = load / peak;
        if growth > 1.0 && apart(&growths, growth) {
            growths.push(growth);
        }
    }
    let most = PEAK_LOADS[PEAK_LOADS.len() - 1];
    for growth in GROWTHS {
        if growth * peak <= most && apart(&growths, growth) {
            growths.push(growth);
        }
    }
    growths.sort_by(f64::total_cmp);
    growths
}

/// The growth at which scheduling is judged: the largest at which the peak is not yet full, or today's.
pub(super) fn judged(growths: &[f64], peak: f64) -> f64 {
    let within = growths.iter().filter(|&growth| is_not_yet_full(growth * peak));
    within.copied().fold(1.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_grows_from_today_to_nearly_full() {
        let loads = |peak: f64| growths(peak).into_iter().map(move |growth| (growth * peak * 1000.0).round() / 1000.0);
        assert_eq!(loads(0.2).collect::<Vec<_>>(), [0.2, 0.3, 0.4, 0.5, 0.8, 0.9, 0.95]);
        assert_eq!(loads(0.26).collect::<Vec<_>>(), [0.26, 0.39, 0.5, 0.8, 0.9, 0.95], "twice is near 0.5");
        assert_eq!(loads(0.85).collect::<Vec<_>>(), [0.85, 0.9, 0.95]);
        assert_eq!(loads(0.87).collect::<Vec<_>>(), [0.87, 0.95], "0.9 is near today");
        assert_eq!(loads(0.97).collect::<Vec<_>>(), [0.97]);
        assert_eq!(loads(1.4).collect::<Vec<_>>(), [1.4]);
        assert_eq!(growths(0.2)[0], 1.0);
    }

    #[test]
    fn a_site_is_judged_where_it_is_busy() {
        for (peak, load) in [(0.2, 0.8), (0.79, 0.79), (0.85, 0.85), (2.0, 2.0), (0.001, 0.8)] {
            assert!((judged(&growths(peak), peak) * peak - load).abs() < 1e-9, "{peak}");
        }
    }
}
