//! A simulated server around the scheduler: it moves imaginary bytes, and decides nothing.

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;
use scheduler::{
    Chunk, Instant, JobId, Path, Rate, Size, Uplink,
    uplink::{Grant, Settings},
};

use crate::plan::{Change, Plan, SizeKnown};

pub struct Server<'a> {
    plan: &'a Plan,
    uplink: Uplink,
    now_ns: u64,
    /// How far the scheduler's clock is ahead.
    clock_ahead_ns: i64,
    /// By place in the plan.
    jobs: Vec<Job>,
    /// The job that has each id of the scheduler now.
    names: Vec<Option<usize>>,
    events: BTreeSet<(u64, Event)>,
    /// When the timer expires.
    rings_ns: Option<u64>,
    granted: VecDeque<(usize, u64)>,
    most_present: usize,
    ledger: Ledger,
}

#[derive(Clone, Debug)]
struct Job {
    name: Option<JobId>,
    path: Path,
    sent_bytes: u64,
    is_told: bool,
    waits: bool,
    /// Bytes in the socket's buffer, and the time of that count.
    buffered_bytes: u64,
    buffered_at_ns: u64,
    ends: u32,
}

impl Job {
    fn new(path: Path) -> Self {
        Self {
            name: None,
            path,
            sent_bytes: 0,
            is_told: false,
            waits: false,
            buffered_bytes: 0,
            buffered_at_ns: 0,
            ends: 0,
        }
    }
}

/// Events; at equal times, they happen in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    ClockSet(i64),
    Changes(usize),
    Arrives(usize),
    Writable(usize),
    GivesUp(usize),
}

impl<'a> Server<'a> {
    pub fn new(plan: &'a Plan) -> Self {
        let mut events = BTreeSet::new();
        for (job, it) in plan.jobs.iter().enumerate() {
            events.insert((it.at_ns, Event::Arrives(job)));
            events.extend(it.gives_up_after_ns.map(|after_ns| (it.at_ns + after_ns, Event::GivesUp(job))));
        }
        events.extend(plan.changes.iter().enumerate().map(|(i, &(at_ns, _))| (at_ns, Event::Changes(i))));
        events.extend(plan.jumps.iter().map(|&(at_ns, by_ns)| (at_ns, Event::ClockSet(by_ns))));
        Self {
            plan,
            uplink: Uplink::new(plan.settings),
            now_ns: 0,
            // Late enough that the scheduler's clock can be set back by minutes.
            clock_ahead_ns: 600_000_000_000,
            jobs: plan.jobs.iter().map(|it| Job::new(it.path)).collect(),
            names: Vec::new(),
            events,
            rings_ns: None,
            granted: VecDeque::new(),
            most_present: 0,
            ledger: Ledger::default(),
        }
    }

    /// Runs from the first arrival to the last end.
    pub fn lives(mut self) -> Result<(), TestCaseError> {
        loop {
            let event_ns = self.events.first().map(|&(at_ns, _)| at_ns);
            let Some(next_ns) = event_ns.into_iter().chain(self.rings_ns).min() else { break };
            self.ledger.time_passes(self.uplink.settings(), next_ns - self.now_ns);
            self.now_ns = next_ns;
            if self.rings_ns == Some(next_ns) {
                self.rings_ns = None;
            } else {
                let (_, event) = self.events.pop_first().expect("it is the next");
                self.happens(event)?;
            }
            self.settles()?;
        }
        for (job, it) in self.jobs.iter().enumerate() {
            prop_assert_eq!(it.ends, 1, "{} of the plan came to its end that often", job);
        }
        self.keeps_nothing()
    }

    /// The scheduler's time.
    fn now(&self) -> Instant {
        Instant::from_ns(self.now_ns.saturating_add_signed(self.clock_ahead_ns))
    }

    fn happens(&mut self, event: Event) -> Result<(), TestCaseError> {
        let now = self.now();
        match event {
            Event::ClockSet(by_ns) => self.clock_ahead_ns += by_ns,
            Event::Changes(i) => match self.plan.changes[i].1 {
                Change::Rate(rate) => {
                    self.uplink.handle_rate(now, rate);
                    self.ledger.moved_bytes = f64::INFINITY;
                }
                Change::Settings(settings) => {
                    self.uplink.handle_settings(now, settings);
                    self.ledger.moved_bytes = f64::INFINITY;
                }
                Change::Unranked(wire_bytes) => {
                    self.uplink.handle_ungranted(now, wire_bytes);
                    self.ledger.given_ungranted(self.uplink.settings(), wire_bytes);
                }
                Change::Path(job, path) => {
                    if let Some((it, name)) = self.jobs.get_mut(job).and_then(|it| it.name.map(|name| (it, name))) {
                        it.path = path;
                        self.uplink.handle_path(name, path);
                    }
                }
            },
            Event::Arrives(job) => self.arrives(job)?,
            Event::Writable(job) => self.writes(job)?,
            Event::GivesUp(job) => self.ends(job, false)?,
        }
        if self.uplink.settings().rate.is_none() {
            self.ledger.is_unlimited();
        }
        Ok(())
    }

    /// Carries out grants, and sets the timer for the next.
    fn settles(&mut self) -> Result<(), TestCaseError> {
        loop {
            let now = self.now();
            while let Some(grant) = self.uplink.poll_grant(now) {
                let job = self.granted_to(grant)?;
                prop_assert!(self.jobs[job].waits, "it did not ask");
                self.jobs[job].waits = false;
                self.granted.push_back((job, grant.bytes));
            }
            let Some((job, bytes)) = self.granted.pop_front() else { break };
            if self.takes(job, bytes)? {
                self.writes(job)?;
            }
        }
        let (now, stats) = (self.now(), self.uplink.stats());
        let due = self.uplink.poll_timeout();
        prop_assert!(due.is_none_or(|due| due > now), "somebody waits, and not for the link");
        prop_assert_eq!(due.is_some(), stats.waiting > 0);
        prop_assert_eq!(stats.waiting, self.jobs.iter().filter(|it| it.waits).count());
        prop_assert_eq!(stats.jobs, self.jobs.iter().filter(|it| it.name.is_some()).count());
        self.rings_ns = due.map(|due| self.now_ns.saturating_add(due.ns_since(now) + self.plan.late_ns));
        prop_assert_eq!(stats.charged_bytes, self.ledger.given_bytes);
        if let (Some(beyond_bytes), true) =
            (self.ledger.beyond_ahead_bytes(self.uplink.settings()), self.is_clock_true())
            && stats.waiting > 0
        {
            prop_assert!(-beyond_bytes <= self.ledger.rounding_bytes(), "{} bytes more had room", -beyond_bytes);
        }
        Ok(())
    }

    fn arrives(&mut self, job: usize) -> Result<(), TestCaseError> {
        let plan = &self.plan.jobs[job];
        let is_told = plan.told == SizeKnown::AtOnce;
        let size = if is_told { Size::Known(plan.bytes) } else { Size::Unknown };
        let name = self.uplink.handle_started(self.now(), size, plan.path);
        self.most_present = self.most_present.max(self.names.iter().flatten().count() + 1);
        prop_assert!(name.index() < self.most_present, "names are used again");
        self.names.resize(self.names.len().max(name.index() + 1), None);
        prop_assert_eq!(self.names[name.index()].replace(job), None, "a name is given once");
        self.jobs[job] = Job { name: Some(name), is_told, ..Job::new(plan.path) };
        self.writes(job)
    }

    /// Asks for grants and writes, until the job has to wait or is done.
    fn writes(&mut self, job: usize) -> Result<(), TestCaseError> {
        let plan = &self.plan.jobs[job];
        loop {
            let Some(name) = self.jobs[job].name else { return Ok(()) };
            let left_bytes = plan.bytes - self.jobs[job].sent_bytes;
            if left_bytes == 0 {
                return self.ends(job, true);
            }
            let others_wait = self.uplink.stats().waiting > 0;
            let Some(grant) = self.uplink.handle_wants(self.now(), name, left_bytes.min(plan.piece_bytes)) else {
                self.jobs[job].waits = true;
                return Ok(());
            };
            prop_assert!(!others_wait, "others were first");
            prop_assert_eq!(self.granted_to(grant)?, job);
            if !self.takes(job, grant.bytes)? {
                return Ok(());
            }
        }
    }

    /// The job of a grant. The grant must not be empty, nor exceed the request, or a chunk and a rest of half a chunk.
    fn granted_to(&mut self, grant: Grant) -> Result<usize, TestCaseError> {
        let job = self.names.get(grant.job.index()).copied().flatten();
        let Some(job) = job else { return Err(TestCaseError::fail("leave for nobody")) };
        let (plan, it) = (&self.plan.jobs[job], &self.jobs[job]);
        let (wanted_bytes, settings) = ((plan.bytes - it.sent_bytes).min(plan.piece_bytes), self.uplink.settings());
        let chunk_bytes = self.uplink.chunk_bytes();
        let rest_bytes = if let Chunk::Bytes(_) = settings.pacing.chunk { 0 } else { chunk_bytes / 2 };
        let takes_all = wanted_bytes <= chunk_bytes.saturating_add(rest_bytes);
        prop_assert_eq!(grant.bytes, if takes_all { wanted_bytes } else { chunk_bytes });
        if let (Some(beyond_bytes), true) = (self.ledger.beyond_ahead_bytes(settings), self.is_clock_true()) {
            let shorter_bytes = chunk_bytes.saturating_sub(grant.bytes) as f64;
            let short_bytes = shorter_bytes * settings.pacing.early_percent as f64 / 100.0;
            let early_bytes = self.ledger.early_bytes(settings).max(short_bytes);
            prop_assert!(beyond_bytes <= early_bytes + self.ledger.rounding_bytes(), "{beyond_bytes} bytes too early");
        }
        self.ledger.moved_bytes = 0.0;
        self.ledger.grants += 1;
        self.ledger.given(wire_bytes(&it.path, grant.bytes));
        Ok(job)
    }

    fn is_clock_true(&self) -> bool {
        self.plan.jumps.is_empty()
    }

    /// Writes granted bytes into the socket; returns whether it accepts more.
    fn takes(&mut self, job: usize, leave_bytes: u64) -> Result<bool, TestCaseError> {
        let (plan, it) = (&self.plan.jobs[job], &mut self.jobs[job]);
        let Some(name) = it.name else { return Ok(false) };
        let drained_bytes = plan.socket.drains.bytes_in(self.now_ns - it.buffered_at_ns);
        it.buffered_bytes = it.buffered_bytes.saturating_sub(drained_bytes);
        it.buffered_at_ns = self.now_ns;
        let room_bytes = plan.socket.buffer_bytes - it.buffered_bytes;
        let taken_bytes = leave_bytes.min(room_bytes);
        if plan.socket.buffer_bytes < u64::MAX {
            it.buffered_bytes += taken_bytes;
        }
        it.sent_bytes += taken_bytes;
        let sent_bytes = it.sent_bytes;
        self.ledger.taken_back(wire_bytes(&it.path, leave_bytes) - wire_bytes(&it.path, taken_bytes));
        if taken_bytes < leave_bytes {
            self.uplink.handle_unused(name, leave_bytes - taken_bytes);
            // A third of the buffer must be free before it accepts more.
            let writable_ns = plan.socket.drains.ns_for(plan.socket.buffer_bytes / 3 + 1);
            self.events.insert((self.now_ns + writable_ns, Event::Writable(job)));
        }
        let told = matches!(plan.told, SizeKnown::After(bytes) if bytes <= sent_bytes);
        if told && !self.jobs[job].is_told {
            self.jobs[job].is_told = true;
            self.uplink.handle_remaining_known(name, plan.bytes - sent_bytes);
        }
        prop_assert_eq!(self.uplink.attained_bytes(name), sent_bytes);
        Ok(taken_bytes == leave_bytes)
    }

    fn ends(&mut self, job: usize, complete: bool) -> Result<(), TestCaseError> {
        let it = &mut self.jobs[job];
        let Some(name) = it.name.take() else { return Ok(()) };
        it.waits = false;
        it.ends += 1;
        self.names[name.index()] = None;
        let now = self.now();
        self.uplink.handle_finished(now, name, complete);
        Ok(())
    }

    /// Long after the last end, one more job comes and leaves, and finds no state of earlier ones.
    fn keeps_nothing(mut self) -> Result<(), TestCaseError> {
        self.clock_ahead_ns = i64::MAX / 2;
        let name = self.uplink.handle_started(self.now(), Size::Known(1), Path::UNKNOWN);
        prop_assert!(name.index() < self.most_present.max(1));
        self.uplink.handle_finished(self.now(), name, false);
        let stats = self.uplink.stats();
        prop_assert_eq!((stats.jobs, stats.waiting, stats.on_paper), (0, 0, 0));
        Ok(())
    }
}

/// A model of the link that differs from the scheduler's: it counts bytes instead of time.
#[derive(Default)]
struct Ledger {
    given_bytes: u64,
    queue: Queue,
    /// The queue if there were only granted bytes.
    granted: Queue,
    grants: u64,
    /// By how much the moment of room was moved since the last grant; infinite where the rate changed.
    moved_bytes: f64,
}

/// The balance is bytes given less bytes that the link could carry. The queue is the distance of the balance
/// from its lowest value so far.
#[derive(Default)]
struct Queue {
    balance_bytes: f64,
    lowest_bytes: f64,
}

impl Queue {
    fn carried(&mut self, bytes: f64) {
        self.balance_bytes -= bytes;
        self.lowest_bytes = self.lowest_bytes.min(self.balance_bytes);
    }

    fn bytes(&self) -> f64 {
        self.balance_bytes - self.lowest_bytes
    }
}

impl Ledger {
    fn time_passes(&mut self, settings: &Settings, ns: u64) {
        match settings.rate {
            Some(rate) => {
                let bytes = rate.bytes_per_second() * ns as f64 / 1e9;
                self.queue.carried(bytes);
                self.granted.carried(bytes);
            }
            None => self.is_unlimited(),
        }
    }

    /// Without a limit, nothing is queued.
    fn is_unlimited(&mut self) {
        (self.queue, self.granted) = (Queue::default(), Queue::default());
    }

    fn given(&mut self, wire_bytes: u64) {
        self.given_bytes += wire_bytes;
        self.queue.balance_bytes += wire_bytes as f64;
        self.granted.balance_bytes += wire_bytes as f64;
    }

    /// Bytes without a grant. They delay grants by a second at most: the link drops the rest of a flood.
    fn given_ungranted(&mut self, settings: &Settings, wire_bytes: u64) {
        self.given_bytes += wire_bytes;
        let Some(rate) = settings.rate else { return };
        let room_bytes = rate.bytes_per_second() + self.granted.bytes() - self.queue.bytes();
        let carried_bytes = room_bytes.clamp(0.0, wire_bytes as f64);
        self.queue.balance_bytes += carried_bytes;
        self.moved_bytes += carried_bytes;
    }

    fn taken_back(&mut self, wire_bytes: u64) {
        self.given_bytes -= wire_bytes;
        self.queue.balance_bytes -= wire_bytes as f64;
        self.granted.balance_bytes -= wire_bytes as f64;
    }

    /// Excess of the queue over the allowed run-ahead; `None` without a limit.
    fn beyond_ahead_bytes(&self, settings: &Settings) -> Option<f64> {
        let rate = settings.rate?;
        let ahead_bytes = rate.bytes_per_second() * settings.pacing.ahead_ns as f64 / 1e9;
        Some(self.queue.bytes() - ahead_bytes)
    }

    /// How much too early the next grant may be: by what moved the moment of room since it was announced, within the slack.
    fn early_bytes(&self, settings: &Settings) -> f64 {
        let slack_bytes = |rate: Rate| rate.bytes_per_second() * settings.pacing.slack_ns as f64 / 1e9;
        settings.rate.map_or(0.0, slack_bytes).min(self.moved_bytes)
    }

    /// A nanosecond for each grant, at the highest rate of the plans, and a byte for each change of the rate.
    fn rounding_bytes(&self) -> f64 {
        20.0 + self.grants as f64 * 0.125
    }
}

/// Bytes on the wire; each segment has 66 bytes of headers.
fn wire_bytes(path: &Path, bytes: u64) -> u64 {
    bytes + bytes.div_ceil(u64::from(path.mss_bytes)) * 66
}
