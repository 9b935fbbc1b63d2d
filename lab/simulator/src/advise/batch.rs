//! Runs several scenarios on one reading of the log.

use workload::trace::Record;

use super::{
    plan::{Plan, Scenario},
    report::Prediction,
    run::Run,
    spread::Spreader,
    survey::Window,
};

/// Some of a plan's scenarios while they run. A batch takes the records that the survey got, in the same
/// order.
pub struct Batch<'a> {
    plan: &'a Plan,
    window: Window,
    /// Scenarios, grouped by how they spread the times within a tick. The spreading is done once for a group.
    feeds: Vec<Feed>,
}

struct Feed {
    spreader: Spreader,
    runs: Vec<(usize, Run)>,
}

/// The result of one scenario of a [`Batch`].
#[derive(Clone, Debug)]
pub struct Outcome {
    pub(super) number: usize,
    pub(super) scenario: Scenario,
    pub(super) prediction: Prediction,
}

impl<'a> Batch<'a> {
    /// Starts the scenarios with these numbers. Numbers from [`Plan::scenarios`] on are ignored.
    pub fn new(plan: &'a Plan, numbers: impl IntoIterator<Item = usize>) -> Self {
        let mut feeds: Vec<(super::spread::Spread, Feed)> = Vec::new();
        for number in numbers {
            let Some(scenario) = plan.scenarios.get(number) else { continue };
            let run = (number, Run::new(plan, scenario.clone()));
            match feeds.iter_mut().find(|(spread, _)| *spread == scenario.spread) {
                Some((_, feed)) => feed.runs.push(run),
                None => {
                    feeds.push((scenario.spread, Feed { spreader: Spreader::new(scenario.spread), runs: vec![run] }))
                }
            }
        }
        Self { plan, window: plan.site.window, feeds: feeds.into_iter().map(|(_, feed)| feed).collect() }
    }

    /// Takes one record.
    pub fn add(&mut self, record: &Record<'_>) {
        if !self.window.has(record.at_ns) || !self.plan.simulates(record.at_ns) {
            return;
        }
        // A late record may have a time before the beginning of the span; it counts as of the beginning.
        let at_ns = record.at_ns.saturating_sub(self.plan.site.span.from_ns);
        let size_bytes = self.plan.site.sizes.of(record);
        for Feed { spreader, runs } in &mut self.feeds {
            spreader.add(at_ns, record.tick_ns, size_bytes, |at_ns, size| {
                runs.iter_mut().for_each(|(_, run)| run.add(at_ns, size));
            });
        }
    }

    /// Ends all scenarios and returns their outcomes.
    pub fn finish(self) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for Feed { mut spreader, mut runs } in self.feeds {
            spreader.flush(|at_ns, size| runs.iter_mut().for_each(|(_, run)| run.add(at_ns, size)));
            outcomes.extend(runs.into_iter().map(|(number, run)| {
                let scenario = run.scenario().clone();
                Outcome { number, scenario, prediction: run.finish() }
            }));
        }
        outcomes
    }
}
