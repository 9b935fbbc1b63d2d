//! Runs one scenario: the same requests under several policies at once, so that each request is compared with
//! itself.

use scheduler::{Order, bands::BandPlan, uplink::Settings};
use workload::{
    rate::{Link, Rate},
    sequence::Request,
    wire::WireModel,
};

use super::{
    Policy,
    measures::{Measured, Measures, PARTS},
    plan::{Plan, Scenario},
    report::Prediction,
    timeline::Span,
};
use crate::{Banded, Ended, Model, Ordered, ProcessorSharing, Ticket, banded};

/// Most requests in progress at once. With more, real clients would have given up, and memory must stay
/// bounded.
const MAX_UNDER_WAY: usize = 100_000;

/// A running scenario. It takes every request in the order of time, then returns the prediction.
pub(super) struct Run {
    scenario: Scenario,
    contenders: Vec<Contender>,
    /// Requests in progress under at least one policy, by ticket number. All policies share the numbers.
    under_way: Vec<InFlight>,
    free: Vec<u32>,
    most_at_once: usize,
    overloaded: bool,
    wire: WireModel,
    uplink: Rate,
    arrived: u64,
    expected: u64,
    measures: Measures,
    peak_load: f64,
    /// The spans of the plan, counted from the beginning of the log.
    spans: Vec<Span>,
    /// Times of the log, counted from its beginning.
    first_ns: Option<u64>,
    last_ns: u64,
}

struct Contender {
    model: Box<dyn Model>,
    present: usize,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    at_ns: u64,
    size_bytes: u64,
    part: u8,
    /// Number of policies under which the request has not ended.
    left: u8,
    response_ns: [u64; Policy::ALL.len()],
}

impl Run {
    pub(super) fn new(plan: &Plan, scenario: Scenario) -> Self {
        let (site, question) = (&plan.site, &plan.site.question);
        let cutoffs = &site.cutoffs_bytes;
        let models = scenario
            .policies
            .iter()
            .map(|&policy| model(policy, question.uplink, question.utilisation, question.wire, cutoffs));
        Self {
            contenders: models.map(|model| Contender { model, present: 0 }).collect(),
            under_way: Vec::new(),
            free: Vec::new(),
            most_at_once: 0,
            overloaded: false,
            wire: question.wire,
            uplink: question.uplink,
            arrived: 0,
            expected: plan.expected_requests().max(1),
            measures: Measures::new(scenario.policies.len(), site.large_from_bytes),
            peak_load: site.load.peak * scenario.growth,
            spans: plan.spans.iter().map(|span| span.since(site.span.from_ns)).collect(),
            first_ns: None,
            last_ns: 0,
            scenario,
        }
    }

    pub(super) fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Adds a request. Its time is that of the log, counted from the log's beginning.
    pub(super) fn add(&mut self, at_ns: u64, size_bytes: u64) {
        if self.overloaded {
            return;
        }
        let first_ns = *self.first_ns.get_or_insert(at_ns);
        self.last_ns = at_ns;
        let at_ns = ((at_ns - first_ns) as f64 / self.scenario.growth) as u64;
        self.go_on_to(at_ns);
        let part = (self.arrived * PARTS as u64 / self.expected).min(PARTS as u64 - 1) as u8;
        self.arrived += 1;
        let left = self.contenders.len() as u8;
        let entry = InFlight { at_ns, size_bytes, part, left, response_ns: [0; Policy::ALL.len()] };
        let ticket = match self.free.pop() {
            Some(ticket) => {
                self.under_way[ticket as usize] = entry;
                ticket
            }
            None if self.under_way.len() >= MAX_UNDER_WAY => {
                self.overloaded = true;
                return;
            }
            None => {
                self.under_way.push(entry);
                self.under_way.len() as u32 - 1
            }
        };
        let request = Request { at_ns, file: 0, size_bytes, group: 0 };
        for contender in &mut self.contenders {
            contender.model.handle_request(at_ns, Ticket(ticket), &request);
            contender.present += 1;
            self.most_at_once = self.most_at_once.max(contender.present);
        }
    }

    /// Runs all requests to their end and returns the prediction.
    pub(super) fn finish(mut self) -> Prediction {
        if !self.overloaded {
            self.go_on_to_the_end();
        }
        let capacity = self.uplink.bytes_per_second() * self.simulated_s() / self.scenario.growth;
        Prediction {
            growth: self.scenario.growth,
            peak_load: self.peak_load,
            load: if capacity > 0.0 { self.measures.wire_bytes() / capacity } else { 0.0 },
            requests: self.measures.requests(),
            overloaded: self.overloaded,
            most_at_once: self.most_at_once as u64,
            policies: if self.overloaded { Vec::new() } else { self.measures.finish(self.scenario.policies) },
        }
    }

    /// Seconds of the log from the first request to the last, without the time between the simulated parts.
    fn simulated_s(&self) -> f64 {
        let all = Span { from_ns: self.first_ns.unwrap_or(self.last_ns), until_ns: self.last_ns };
        let parts = if self.spans.is_empty() { std::slice::from_ref(&all) } else { &self.spans };
        parts.iter().map(|part| part.common_seconds(all)).sum()
    }

    /// Advances the uplink of every policy to `now_ns`.
    fn go_on_to(&mut self, now_ns: u64) {
        for policy in 0..self.contenders.len() {
            while let Some(ended) = self.contenders[policy].model.poll_end(now_ns) {
                self.ended(policy, ended);
            }
        }
    }

    /// Advances the uplink of every policy until all requests have ended.
    fn go_on_to_the_end(&mut self) {
        for policy in 0..self.contenders.len() {
            while let Some(now_ns) = self.contenders[policy].model.poll_timeout() {
                while let Some(ended) = self.contenders[policy].model.poll_end(now_ns) {
                    self.ended(policy, ended);
                }
            }
        }
    }

    fn ended(&mut self, policy: usize, Ended { ticket, end_ns, .. }: Ended) {
        self.contenders[policy].present -= 1;
        let entry = &mut self.under_way[ticket.0 as usize];
        entry.response_ns[policy] = end_ns - entry.at_ns;
        entry.left -= 1;
        if entry.left > 0 {
            return;
        }
        let InFlight { size_bytes, part, response_ns, .. } = *entry;
        self.free.push(ticket.0);
        let wire_bytes = self.wire.bytes_for(size_bytes);
        self.measures.add(Measured {
            size_bytes,
            wire_bytes,
            part: usize::from(part),
            alone_ns: self.uplink.ns_for(wire_bytes as f64),
            response_ns: &response_ns[..self.contenders.len()],
        });
    }
}

/// The model of the uplink under a policy.
fn model(policy: Policy, uplink: Rate, utilisation: f64, wire: WireModel, cutoffs: &[u64]) -> Box<dyn Model> {
    let whole = Link::constant(uplink);
    let paced = (uplink.bits_per_second() as f64 * utilisation).round() as u64;
    let paced = Link::constant(Rate::from_bits_per_second(paced).unwrap_or(uplink));
    let ordered = |order, guard_stretch| {
        let settings = Settings { order, guard_stretch, ..Settings::default() };
        Box::new(Ordered::new(&paced, &wire, settings)) as Box<dyn Model>
    };
    match policy {
        Policy::Fair => Box::new(ProcessorSharing::new(&whole, &wire)),
        Policy::Srpt => ordered(Order::Srpt, None),
        Policy::Guarded => ordered(Order::Srpt, Some(Policy::GUARD_STRETCH)),
        Policy::Fsp => ordered(Order::Fsp, None),
        Policy::Las => ordered(Order::Las, None),
        Policy::Banded => {
            let settings = Settings { order: Order::Srpt, ..Settings::default() };
            let plan = BandPlan::first(settings.order, Some(cutoffs));
            Box::new(Banded::new(&paced, &wire, settings, banded::on_wire(&plan, settings.order, &wire)))
        }
    }
}
