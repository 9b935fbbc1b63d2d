//! Simulates one cell: a point, a subject and a seed.

use std::sync::atomic::{AtomicBool, Ordering};

use instrument::{
    LabError,
    plan::{Group, Plan, SingleRequests, Work},
    record::{Alone, Facts, SimulatedFacts},
};
use scheduler::bands::BandLearner;
use simulator::{Clients, Source, Totals, run_groups};
use workload::{
    demand::{Demand, Due},
    outcome::Outcome,
    rate::Link,
    sequence::Request,
    stats::median,
};

use super::{
    args::ModelChoice,
    model::{LinkBytes, Uplink},
    serving::Serving,
};

/// One cell to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Simulation<'a> {
    /// The conditions.
    pub plan: &'a Plan,
    /// The way the subject serves its responses.
    pub serving: &'a Serving,
    /// The model of the uplink.
    pub choice: ModelChoice,
    /// The seed of all random choices.
    pub seed: u64,
}

impl Simulation<'_> {
    /// Simulates the cell. Returns the outcome of each request, sorted by the time of the request, and the
    /// facts about the run.
    ///
    /// # Errors
    /// [`LabError::Interrupted`] when `stop` was set; [`LabError::Request`] for a cell that cannot be
    /// simulated.
    pub fn run(&self, stop: &AtomicBool) -> Result<(Vec<Outcome>, Facts), LabError> {
        let plan = self.plan;
        let Work { sizes_bytes, demand, notes } = plan.work(self.seed)?;
        let sizes = self.learned(&sizes_bytes)?;
        let mut uplink = self.uplink(&sizes, self.seed)?;
        let until_ns = nanoseconds(plan.duration);
        let clients: Vec<Clients> = plan.groups.iter().map(clients).collect();
        let mut outcomes = Vec::new();
        let totals = run_groups(
            &mut Sending { demand, until_ns, stop },
            &mut uplink,
            &clients,
            Some(until_ns.saturating_add(nanoseconds(plan.drain))),
            |served| outcomes.push(served.outcome()),
        );
        if stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        // A load generator reports outcomes in this order. Requests of the same time stay in the order of
        // their ends.
        outcomes.sort_by_key(|outcome| outcome.at_ns);
        let facts = Facts::simulated(SimulatedFacts {
            link_bytes: match uplink.link_bytes() {
                LinkBytes::WhenAsked => Some(carried(&outcomes, &plan.link, until_ns)),
                LinkBytes::Counted(all, while_sending) => Some((all, while_sending)),
                LinkBytes::Unknown => None,
            },
            packets: uplink.packets(),
            command: uplink.described,
            alone: self.alone(&sizes_bytes, &sizes)?,
            most_concurrent: totals.most_present,
            took_s: outcomes.iter().map(|outcome| outcome.end_ns).max().unwrap_or(0) as f64 / 1e9,
            notes,
            invalid: invalid(&totals, &plan.groups, &outcomes),
        });
        Ok((outcomes, facts))
    }

    fn uplink(&self, sizes: &BandLearner, seed: u64) -> Result<Uplink, LabError> {
        Uplink::new(self.choice, self.serving, self.plan, sizes, seed)
    }

    /// Sizes that a server knows after some time of serving: those of this seed's requests, or of all files
    /// if the requests are not known in advance.
    fn learned(&self, sizes_bytes: &[u64]) -> Result<BandLearner, LabError> {
        let mut learner = BandLearner::default();
        if !self.serving.learns(self.choice == ModelChoice::Bands) {
            return Ok(learner);
        }
        match self.plan.requests(self.seed)? {
            Some(requests) => requests.iter().for_each(|request| _ = learner.handle_seen(request.size_bytes)),
            None => sizes_bytes.iter().for_each(|&size_bytes| _ = learner.handle_seen(size_bytes)),
        }
        Ok(learner)
    }

    /// Simulates single requests of a few sizes on the idle link, for each group of clients.
    fn alone(&self, sizes_bytes: &[u64], sizes: &BandLearner) -> Result<Vec<Alone>, LabError> {
        let SingleRequests { files, repeats } = self.plan.single_requests(sizes_bytes);
        // Without packets there is no chance, so repeats would all be equal.
        let repeats = if self.choice == ModelChoice::Packets { repeats } else { 1 };
        let mut alone = Vec::new();
        for file in files {
            let size_bytes = sizes_bytes[file];
            for group in 0..self.plan.groups.len() as u16 {
                let mut times_ms = Vec::new();
                for repeat in 0..repeats as u64 {
                    let request = Request { at_ns: 0, file: file as u32, size_bytes, group };
                    let mut uplink = self.uplink(sizes, self.seed.wrapping_add(repeat))?;
                    let mut demand = Demand::sequence(vec![request]);
                    run_groups(&mut demand, &mut uplink, &[Clients::PATIENT], None, |served| {
                        times_ms.push(served.response_ns() as f64 / 1e6);
                    });
                }
                alone.push(Alone {
                    group,
                    size_bytes,
                    least_ms: times_ms.iter().copied().fold(f64::INFINITY, f64::min),
                    measured_ms: median(times_ms),
                    wire_ms: self.plan.wire_ns(size_bytes) / 1e6,
                });
            }
        }
        Ok(alone)
    }
}

/// The demand, until sending ends or `stop` is set.
struct Sending<'a> {
    demand: Demand,
    until_ns: u64,
    stop: &'a AtomicBool,
}

impl Source for Sending<'_> {
    fn poll_timeout(&self) -> Option<u64> {
        let next_ns = self.demand.poll_timeout().filter(|&at_ns| at_ns <= self.until_ns)?;
        (!self.stop.load(Ordering::Relaxed)).then_some(next_ns)
    }

    fn poll_request(&mut self, now_ns: u64) -> Option<Due> {
        self.poll_timeout()?;
        self.demand.poll_request(now_ns)
    }

    fn handle_end(&mut self, user: u32, now_ns: u64) {
        self.demand.handle_end(user, now_ns);
    }
}

fn clients(group: &Group) -> Clients {
    Clients {
        abort_after_ns: group.behaviour.abort_after_s.map(|seconds| (seconds * 1e9) as u64),
        retries: group.behaviour.retries.into(),
    }
}

/// Bytes carried by a link that works whenever a request is in progress: in all, and until `until_ns`.
fn carried(outcomes: &[Outcome], link: &Link, until_ns: u64) -> (u64, u64) {
    let (mut all, mut while_sending) = (0.0, 0.0);
    let mut add = |from_ns: u64, to_ns: u64| {
        let between = |from_ns: u64, to_ns: u64| link.capacity_at(to_ns as f64) - link.capacity_at(from_ns as f64);
        all += between(from_ns, to_ns);
        while_sending += between(from_ns.min(until_ns), to_ns.min(until_ns));
    };
    // Outcomes are sorted by the time of the request.
    let mut busy: Option<(u64, u64)> = None;
    for outcome in outcomes {
        match &mut busy {
            Some((_, to_ns)) if outcome.at_ns <= *to_ns => *to_ns = outcome.end_ns.max(*to_ns),
            _ => {
                busy.into_iter().for_each(|(from_ns, to_ns)| add(from_ns, to_ns));
                busy = Some((outcome.at_ns, outcome.end_ns));
            }
        }
    }
    busy.into_iter().for_each(|(from_ns, to_ns)| add(from_ns, to_ns));
    (all.round() as u64, while_sending.round() as u64)
}

fn invalid(totals: &Totals, groups: &[Group], outcomes: &[Outcome]) -> Vec<String> {
    let mut reasons = Vec::new();
    if outcomes.is_empty() {
        reasons.push("no request was asked for".to_owned());
    }
    if let Some(outcome) = outcomes.iter().find(|outcome| usize::from(outcome.group) >= groups.len()) {
        reasons.push(format!("a request is asked of client group {}, and there are {}", outcome.group, groups.len()));
    }
    debug_assert_eq!(totals.served + totals.aborted + totals.unfinished, outcomes.len() as u64);
    reasons
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
