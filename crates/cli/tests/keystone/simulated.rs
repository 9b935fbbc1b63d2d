//! The simulated side: the scheduler in an event loop, without locks, wakers, sockets or alarms.

use std::collections::VecDeque;

use scheduler::{Instant, JobId, Path, Size, Uplink, uplink::Settings};
use server::config::{UplinkConfig, UplinkRate};
use simulator::{Model, Paced, Ticket};
use workload::{rate::Link, sequence::Request, wire::WireModel};

use crate::{
    plan::{self, Plan},
    real::{Decision, Happened, Played},
};

/// Plays a plan. Events that the scheduler does not decide are taken from `real`.
pub fn play(plan: &Plan, real: &Played) -> Vec<Decision> {
    let configs: Vec<Settings> = plan.configs().iter().map(settings).collect();
    let mut simulation = Simulation {
        plan,
        uplink: Uplink::new(configs[0]),
        now: Instant::ORIGIN,
        jobs: real.takes.iter().map(|takes| Job { takes: takes.iter().copied().collect(), ..Job::default() }).collect(),
        names: Vec::new(),
        granted: VecDeque::new(),
        rings_at: None,
        decisions: Vec::new(),
    };
    for &(at_ns, happened) in &real.happened {
        simulation.goes_on_to(Some(Instant::from_ns(at_ns)));
        simulation.now = Instant::from_ns(at_ns);
        match happened {
            Happened::Arrived { job, mss_bytes } => simulation.arrives(job, mss_bytes),
            Happened::Writable { job } => simulation.writes(job),
            Happened::GaveUp { job } => simulation.ends(job, false),
            Happened::Changed { config } => {
                if *simulation.uplink.settings() != configs[config] {
                    simulation.uplink.handle_settings(simulation.now, configs[config]);
                    simulation.grants();
                }
            }
        }
        simulation.settles();
    }
    simulation.goes_on_to(None);
    simulation.decisions
}

/// Plays a plan [of whole responses](plan::of_whole_responses) through the simulator's pacer.
pub fn play_paced(plan: &Plan, real: &Played) -> Vec<Decision> {
    let mss_bytes = real.happened.iter().find_map(|(_, it)| match it {
        Happened::Arrived { mss_bytes, .. } => Some(*mss_bytes),
        _ => None,
    });
    let wire = WireModel {
        head_bytes: HEAD_BYTES,
        segment_bytes: mss_bytes.expect("a plan has jobs").into(),
        overhead_bytes: plan::OVERHEAD_BYTES.into(),
        control_bytes: SEGMENTS_AT_OPEN * u64::from(plan::OVERHEAD_BYTES),
    };
    let link = Link::constant(workload::rate::Rate::from_bits_per_second(plan.rate.bits_per_second()).unwrap());
    let mut pacer = Paced::new(&link, &wire, settings(&plan.configs()[0])).with_decisions();
    for (job, it) in plan.jobs.iter().enumerate() {
        while pacer.poll_end(it.at_ns).is_some() {}
        let request = Request { at_ns: it.at_ns, file: 0, size_bytes: it.body_bytes, group: 0 };
        pacer.handle_request(it.at_ns, Ticket(job as u32), &request);
    }
    while let Some(at_ns) = pacer.poll_timeout() {
        pacer.poll_end(at_ns);
    }
    let decision = |it: simulator::paced::Decision| Decision {
        at_ns: it.at_ns,
        job: it.ticket.0 as usize,
        bytes: it.bytes,
        reason: format!("{:?}", it.reason),
    };
    pacer.take_decisions().into_iter().map(decision).collect()
}

struct Simulation<'a> {
    plan: &'a Plan,
    uplink: Uplink,
    now: Instant,
    jobs: Vec<Job>,
    names: Vec<usize>,
    /// Jobs that were granted bytes and have not written yet, in the order of the decisions.
    granted: VecDeque<(usize, u64)>,
    /// When the scheduler is asked again. Bytes without a grant may move its time after that was noted.
    rings_at: Option<Instant>,
    decisions: Vec<Decision>,
}

#[derive(Default)]
struct Job {
    id: Option<JobId>,
    /// Bytes that the socket accepts of each grant.
    takes: VecDeque<u64>,
    sent_bytes: u64,
    /// Number of grants after waiting.
    turns: u32,
}

impl Simulation<'_> {
    /// Advances from one wake-up of the scheduler to the next.
    fn goes_on_to(&mut self, until: Option<Instant>) {
        while let Some(at) = self.rings_at.take_if(|&mut at| until.is_none_or(|until| at <= until)) {
            self.now = self.now.max(at);
            let (before, is_due) =
                (self.decisions.len(), self.uplink.poll_timeout().is_some_and(|due| due <= self.now));
            self.grants();
            self.settles();
            assert!(self.decisions.len() > before || !is_due, "asking at the time given is worth it");
        }
    }

    fn settles(&mut self) {
        while let Some((job, leave_bytes)) = self.granted.pop_front() {
            let (plan, it) = (&self.plan.jobs[job], &mut self.jobs[job]);
            it.turns += 1;
            if Some(it.turns) == plan.gives_up_at_turn {
                self.uplink.handle_unused(it.id.expect("it is under way"), leave_bytes);
                self.ends(job, false);
                continue;
            }
            let offered_bytes = plan.offered_bytes(it.sent_bytes, true);
            if self.takes(job, leave_bytes, leave_bytes.min(offered_bytes)) {
                self.writes(job);
            }
        }
    }

    fn arrives(&mut self, job: usize, mss_bytes: u32) {
        let plan = &self.plan.jobs[job];
        self.segments(SEGMENTS_AT_OPEN);
        let size = if plan.announced { Size::Known(plan.body_bytes + HEAD_BYTES) } else { Size::Unknown };
        let id = self.uplink.handle_started(self.now, size, Path { mss_bytes, ..Path::UNKNOWN });
        self.names.resize(self.names.len().max(id.index() + 1), usize::MAX);
        self.names[id.index()] = job;
        self.jobs[job].id = Some(id);
        self.writes(job);
    }

    /// Asks for grants and writes, until the job has to wait or is done.
    fn writes(&mut self, job: usize) {
        loop {
            let it = &self.jobs[job];
            if it.sent_bytes == self.plan.jobs[job].all_bytes() {
                return self.ends(job, true);
            }
            let offered_bytes = self.plan.jobs[job].offered_bytes(it.sent_bytes, false);
            let id = it.id.expect("it is under way");
            let bytes = match self.uplink.handle_wants(self.now, id, offered_bytes) {
                Some(grant) => {
                    self.decided(&grant);
                    grant.bytes
                }
                None => {
                    // It may be its turn, or another's, before the grant was announced.
                    self.grants();
                    let Some(at) = self.granted.iter().position(|&(granted, _)| granted == job) else { return };
                    self.granted.remove(at).expect("it was found").1
                }
            };
            if !self.takes(job, bytes, bytes) {
                return;
            }
        }
    }

    /// Lets the socket accept bytes of a grant, at most `may_bytes`. Returns whether it accepts more.
    fn takes(&mut self, job: usize, leave_bytes: u64, may_bytes: u64) -> bool {
        let it = &mut self.jobs[job];
        // In another order than the driver's, a socket may be offered bytes more often. It is full then.
        let taken_bytes = it.takes.pop_front().unwrap_or(0).min(may_bytes);
        it.sent_bytes += taken_bytes;
        let id = it.id.expect("it is under way");
        // First the bytes that were not offered, then those that were not accepted.
        for unused_bytes in [leave_bytes - may_bytes, may_bytes - taken_bytes] {
            if unused_bytes > 0 {
                self.uplink.handle_unused(id, unused_bytes);
                self.grants();
            }
        }
        taken_bytes > 0
    }

    fn ends(&mut self, job: usize, complete: bool) {
        let id = self.jobs[job].id.take().expect("it is under way");
        self.uplink.handle_finished(self.now, id, complete);
        self.grants();
        if !(complete && self.plan.jobs[job].is_kept_alive) {
            self.segments(SEGMENTS_AT_CLOSE);
        }
    }

    /// Takes all grants that are due, and notes when the next one is.
    fn grants(&mut self) {
        while let Some(grant) = self.uplink.poll_grant(self.now) {
            self.decided(&grant);
            self.granted.push_back((self.names[grant.job.index()], grant.bytes));
        }
        self.rings_at = self.uplink.poll_timeout().or(self.rings_at);
    }

    fn segments(&mut self, segments: u64) {
        self.uplink.handle_ungranted(self.now, segments * u64::from(plan::OVERHEAD_BYTES));
    }

    fn decided(&mut self, grant: &scheduler::uplink::Grant) {
        self.decisions.push(Decision {
            at_ns: self.now.as_ns(),
            job: self.names[grant.job.index()],
            bytes: grant.bytes,
            reason: format!("{:?}", grant.reason),
        });
    }
}

/// The server's estimate of a head.
const HEAD_BYTES: u64 = 250;
/// Segments of a connection: SYN-ACK when it opens; FIN and the acknowledgement of the client's FIN when it
/// closes.
const SEGMENTS_AT_OPEN: u64 = 1;
const SEGMENTS_AT_CLOSE: u64 = 2;

/// The scheduler's settings for a configuration. The other values are the defaults of docs/DEFAULTS.md.
fn settings(config: &UplinkConfig) -> Settings {
    let UplinkRate::Given(rate) = config.rate else { unreachable!("plans give their rates") };
    Settings {
        order: config.order,
        rate: Some(rate),
        segment_overhead_bytes: config.segment_overhead_bytes,
        small_bytes: plan::SMALL_BYTES,
        guard_stretch: config.guard_stretch,
        ..Settings::default()
    }
}
