//! Several scenarios, fed by one reading of the log.

use workload::trace::Record;

use super::{
    plan::{Plan, Scenario},
    report::Prediction,
    run::Run,
    spread::Spreader,
    survey::Window,
};

/// Some of a plan's scenarios under way. Give it the records that the survey got, in the same order.
pub struct Batch<'a> {
    plan: &'a Plan,
    window: Window,
    /// Scenarios by how the times within a tick are spread, which is done once for those that share it.
    feeds: Vec<Feed>,
}

struct Feed {
    spreader: Spreader,
    runs: Vec<(usize, Run)>,
}

/// What the scenarios of a [`Batch`] came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub(super) number: usize,
    pub(super) scenario: Scenario,
    pub(super) prediction: Prediction,
}

impl<'a> Batch<'a> {
    /// The scenarios of these numbers, below [`Plan::scenarios`]; other numbers are none.
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

    /// Takes a record.
    pub fn add(&mut self, record: &Record<'_>) {
        if !self.window.has(record.at_ns) || !self.plan.simulates(record.at_ns) {
            return;
        }
        // Before the beginning there is nothing: a late record is of now.
        let at_ns = record.at_ns.saturating_sub(self.plan.site.span.from_ns);
        let size_bytes = self.plan.site.sizes.of(record);
        for Feed { spreader, runs } in &mut self.feeds {
            spreader.add(at_ns, record.tick_ns, size_bytes, |at_ns, size| {
                runs.iter_mut().for_each(|(_, run)| run.add(at_ns, size));
            });
        }
    }

    /// What they came to.
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
