//! The driver of the scheduler: the state machine behind a short lock, the clock, and the alarm.
//!
//! Any thread that learns something (a response began, a socket took less than it was granted) tells the scheduler and
//! carries out what follows. The lock is never held over I/O or a wake-up. The driver decides nothing.

mod groups;
mod known;
mod leases;
mod looks;
mod round_trips;
mod stats;
mod telling;

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use parking_lot::Mutex;
use scheduler::{
    Instant, JobId, Order, Path, Rate, Size,
    bands::BandLearner,
    class::ClassId,
    correction::Load,
    pace::{Leased, Pace},
    priority::{GroupId, Priority},
    uplink::{ClassShare, Grant, Precedence, Settings},
};
use tokio::sync::Notify;

use self::looks::Looks;
pub use self::{stats::UplinkStats, telling::Telling};
use super::{
    classes::{self, ClassAt, ClassNumbers},
    doubt::{self, Doubts},
    enforcement::{Enforcement, estimates_rate, settings, teller},
    error::UplinkError,
    line, pace,
    teller::Teller,
};
use crate::{
    alarm::Alarm,
    config::{Classes, Cutoffs, UplinkConfig},
    lease::LeaseAsk,
    wakers::Wakers,
};

/// Grants carried out in one turn, so that a turn is short whatever the rate.
const GRANTS_A_TURN: usize = 64;

/// `TCP_NOTSENT_LOWAT` at low rates. The order of bytes that the kernel holds unsent can no longer change.
const UNSENT_LIMIT_BYTES: u64 = 4096;

/// The same in kernel mode for a connection with several streams. Streams can overtake only what is behind it.
const KERNEL_UNSENT_LIMIT_BYTES: u64 = 16 * 1024;

/// The driver of the one uplink of this process. Every gate and every flow has a handle on it.
#[derive(Debug)]
pub struct Driver {
    /// By the runtime's clock, which is the system's unless a test has stopped it.
    started: tokio::time::Instant,
    /// An [`Enforcement`].
    enforcement: AtomicU8,
    /// Bytes of a connection that the kernel may hold unsent; 0: no limit.
    unsent_limit_bytes: AtomicU64,
    /// Payload of one grant.
    chunk_bytes: AtomicU64,
    /// Whether the rate is found from round trips alone, and not given.
    estimates_rate: AtomicBool,
    /// A doubt in the given rate that is to be logged.
    unsaid_doubt: AtomicBool,
    /// Whether a rate is known. Kept outside of the lock for [`Driver::time_alone`].
    has_rate: AtomicBool,
    looks: Looks,
    stalled: AtomicU64,
    given_up: AtomicU64,
    /// The number of the next group.
    groups: AtomicU64,
    /// An ask for a part of the line is due.
    line_asks: Notify,
    /// The last client that came. Nobody waits for this lock.
    client: Mutex<Option<IpAddr>>,
    state: Mutex<DriverState>,
    alarm: Alarm,
}

#[derive(Debug)]
struct DriverState {
    config: UplinkConfig,
    classes: ClassNumbers,
    /// By class: wire bytes charged before the scheduler began to count anew.
    charged_before_bytes: Vec<u64>,
    machine: scheduler::Uplink,
    /// Decides the rate; `None` where the server does not pace.
    pace: Option<Pace>,
    /// The rate that the kernel holds the device to.
    limit: Option<Rate>,
    /// An ask for a part of the line that was not fetched yet.
    line_ask: Option<LeaseAsk>,
    doubts: Doubts,
    /// By job.
    pending: Vec<PendingLeave>,
    armed_at: Option<Instant>,
    learner: BandLearner,
    teller: Option<Arc<Teller>>,
}

/// Leave that a job was given and has not collected, or the waker of the task that waits for it.
#[derive(Debug, Default)]
struct PendingLeave {
    bytes: u64,
    waker: Option<Waker>,
}

impl Driver {
    pub(super) fn new(config: &UplinkConfig, classes: &Classes, alarm: Alarm) -> Result<Self, UplinkError> {
        let share = classes::share(config, classes)?;
        let teller = teller(config)?;
        let mut machine = scheduler::Uplink::new(settings(config));
        let pace = pace::of(Instant::ORIGIN, config, share.as_ref());
        machine.handle_share(Instant::ORIGIN, share, &[]).map_err(UplinkError::Share)?;
        let classes = ClassNumbers::new(classes);
        let driver = Self {
            started: tokio::time::Instant::now(),
            enforcement: AtomicU8::new(Enforcement::of(config) as u8),
            unsent_limit_bytes: AtomicU64::new(0),
            chunk_bytes: AtomicU64::new(0),
            estimates_rate: AtomicBool::new(estimates_rate(config)),
            unsaid_doubt: AtomicBool::new(false),
            has_rate: AtomicBool::new(false),
            looks: Looks::new(),
            stalled: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            groups: AtomicU64::new(0),
            line_asks: Notify::new(),
            client: Mutex::new(None),
            state: Mutex::new(DriverState {
                machine,
                charged_before_bytes: vec![0; classes.names.len()],
                classes,
                pace,
                limit: None,
                line_ask: None,
                doubts: Doubts::default(),
                pending: Vec::new(),
                armed_at: None,
                learner: BandLearner::default(),
                teller,
                config: config.clone(),
            }),
            alarm,
        };
        {
            let mut state = driver.state.lock();
            let rate = state.pace.as_ref().map(Pace::rate);
            if let Some(rate) = rate {
                state.machine.handle_rate(driver.now(), rate);
            }
            driver.follow_rate(&mut state);
        }
        Ok(driver)
    }

    /// Replaces the configuration; returns the generation of the classes' numbers. On an error nothing is changed.
    pub(super) fn handle_config(&self, config: &UplinkConfig, classes: &Classes) -> Result<u64, UplinkError> {
        let share = classes::share(config, classes)?;
        let names = classes::names(classes);
        let teller = teller(config)?;
        let (generation, wakers) = {
            let mut state = self.state.lock();
            state.classes.default = classes.default;
            // The device may have been attached anew.
            state.teller = teller;
            let same_share = state.machine.share() == share.as_ref() && state.classes.names == names;
            if state.config == *config && same_share {
                return Ok(state.classes.generation);
            }
            let now = self.now();
            if !same_share {
                state.handle_share(now, share, names)?;
            }
            state.learner = BandLearner::default();
            {
                let state = &mut *state;
                if pace::follow(&mut state.pace, now, &state.config, config, state.machine.share()) {
                    if let Some(Pace::Found(finder)) = &mut state.pace {
                        finder.handle_limit(now, state.limit);
                    }
                    (state.doubts, state.line_ask) = (Doubts::default(), None);
                    // The task that asks for the line may have to leave it.
                    self.line_asks.notify_one();
                }
            }
            state.config = config.clone();
            let rate = state.pace.as_ref().and_then(Pace::rate);
            state.machine.handle_settings(now, Settings { rate, ..settings(config) });
            self.follow_rate(&mut state);
            self.estimates_rate.store(estimates_rate(config), Ordering::Relaxed);
            self.enforcement.store(Enforcement::of(config) as u8, Ordering::Relaxed);
            (state.classes.generation, self.pump(&mut state, now))
        };
        wakers.wake();
        Ok(generation)
    }

    /// Listens to the alarm until dropped. One task does that at a time.
    pub async fn listen(&self) {
        // An earlier task may have heard the alarm and ended before it did anything.
        self.handle_alarm();
        self.alarm.listen(|| self.handle_alarm()).await;
    }

    /// The alarm, for tests that ring it themselves.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// The time now, as the scheduler counts it.
    pub fn now(&self) -> Instant {
        self.at(tokio::time::Instant::now())
    }

    /// A time of the runtime's clock, as the scheduler counts it.
    pub fn at(&self, time: tokio::time::Instant) -> Instant {
        let since = time.saturating_duration_since(self.started);
        Instant::from_ns(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Which part of the system keeps the order now.
    pub fn enforcement(&self) -> Enforcement {
        Enforcement::from_u8(self.enforcement.load(Ordering::Relaxed))
    }

    /// Whether the rate is found from round trips alone, and not given.
    pub fn estimates_rate(&self) -> bool {
        self.estimates_rate.load(Ordering::Relaxed)
    }

    /// Bytes of a connection that the kernel may hold unsent; `None`: no limit.
    pub fn unsent_limit_bytes(&self) -> Option<u32> {
        match self.unsent_limit_bytes.load(Ordering::Relaxed) {
            0 => None,
            bytes => Some(u32::try_from(bytes).unwrap_or(u32::MAX)),
        }
    }

    /// Counts responses whose clients take too little of them.
    pub fn count_stalled(&self, responses: u64) {
        self.stalled.fetch_add(responses, Ordering::Relaxed);
    }

    /// Counts stalled responses that are given up.
    pub fn count_given_up(&self, responses: u64) {
        self.given_up.fetch_add(responses, Ordering::Relaxed);
    }

    /// A response begins; it is a job of the scheduler from now on. `group`: that of its connection, and how urgent it
    /// is there.
    pub fn handle_started_in(
        &self,
        group: Option<(GroupId, Priority)>,
        class: ClassAt,
        size: Size,
        path: Option<Path>,
    ) -> JobId {
        let mut state = self.state.lock();
        let now = self.now();
        let class = state.classes.translate(class);
        let job = state.machine.handle_started_in(now, class, group, size, path.unwrap_or(Path::UNKNOWN));
        self.follow_chunk(&state);
        tracing::trace!(at_ns = now.as_ns(), job = job.index(), class = class.index(), ?size, "begins");
        if state.pending.len() <= job.index() {
            state.pending.resize_with(job.index() + 1, PendingLeave::default);
        }
        state.pending[job.index()] = PendingLeave::default();
        state.learn(now, job);
        job
    }

    /// The length of a response became known.
    pub fn handle_length(&self, job: JobId, left_bytes: u64) {
        self.state.lock().machine.handle_remaining_known(job, left_bytes);
    }

    /// The path of a job was measured.
    pub fn handle_path(&self, job: JobId, path: Path) {
        self.state.lock().machine.handle_path(job, path);
    }

    /// The client says anew how urgent a job is in its group.
    pub fn handle_priority(&self, job: JobId, priority: Priority) {
        self.state.lock().machine.handle_priority(job, priority);
    }

    /// Asks leave for a job to write up to `bytes`. `None`: the waker is woken when the job should ask again.
    pub fn ask(&self, job: JobId, bytes: u64, waker: &Waker) -> Option<u64> {
        let (leave, wakers) = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let given = std::mem::take(&mut state.pending[job.index()].bytes);
            if 0 < given && given <= bytes {
                return Some(given);
            }
            let now = self.now();
            if given > 0 {
                state.handle_unused(job, given - bytes);
                (Some(bytes), self.pump(state, now))
            } else if let Some(grant) = state.machine.handle_wants(now, job, bytes) {
                trace_grant(now, &grant);
                return Some(grant.bytes);
            } else {
                // The task that asks is awake, so its own waker stays out of this turn: the return value tells it.
                let kept = state.pending[job.index()].waker.take();
                let wakers = self.pump(state, now);
                let pending = &mut state.pending[job.index()];
                match std::mem::take(&mut pending.bytes) {
                    0 => {
                        let mut kept = kept.unwrap_or_else(|| waker.clone());
                        kept.clone_from(waker);
                        pending.waker = Some(kept);
                        (None, wakers)
                    }
                    given => (Some(given), wakers),
                }
            }
        };
        wakers.wake();
        leave
    }

    /// A job did not use so many bytes of its leave.
    pub fn handle_unused(&self, job: JobId, bytes: u64) {
        let wakers = {
            let mut state = self.state.lock();
            state.handle_unused(job, bytes);
            self.pump(&mut state, self.now())
        };
        wakers.wake();
    }

    /// A response has ended.
    pub fn handle_finished(&self, job: JobId, complete: bool) {
        let wakers = {
            let mut state = self.state.lock();
            let pending = std::mem::take(&mut state.pending[job.index()]);
            if pending.bytes > 0 {
                state.handle_unused(job, pending.bytes);
            }
            let now = self.now();
            state.machine.handle_finished(now, job, complete);
            tracing::trace!(at_ns = now.as_ns(), job = job.index(), complete, "ends");
            self.pump(&mut state, now)
        };
        wakers.wake();
    }

    /// Payload was sent that needs no leave.
    pub fn handle_ungranted(&self, payload_bytes: u64) {
        let mut state = self.state.lock();
        let wire_bytes = state.machine.wire_bytes(payload_bytes);
        state.machine.handle_ungranted(self.now(), wire_bytes);
    }

    /// Segments without payload were sent: SYN-ACK, acknowledgements, FIN.
    pub fn handle_bare_segments(&self, segments: u64) {
        let mut state = self.state.lock();
        let wire_bytes = segments * u64::from(state.config.segment_overhead_bytes);
        state.machine.handle_ungranted(self.now(), wire_bytes);
    }

    /// The alarm rang.
    pub fn handle_alarm(&self) {
        let wakers = {
            let mut state = self.state.lock();
            state.armed_at = None;
            self.pump(&mut state, self.now())
        };
        wakers.wake();
        if self.unsaid_doubt.swap(false, Ordering::Relaxed) {
            let (doubt, rate) = {
                let state = self.state.lock();
                (state.doubts.last(), state.config.rate)
            };
            doubt::say(doubt, rate);
        }
    }

    /// Whether the order uses the path, so that it has to be measured.
    pub fn needs_path(&self) -> bool {
        self.state.lock().machine.settings().order.needs_path()
    }

    /// The place of a job by the share and the order in force. The smallest goes first.
    pub fn place(&self, job: JobId) -> Precedence {
        self.state.lock().machine.precedence(job)
    }

    /// Payload bytes of one grant.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes.load(Ordering::Relaxed)
    }

    /// Time that these bytes would take alone on the uplink; `None` where its rate is not known.
    pub fn time_alone(&self, payload_bytes: u64) -> Option<Duration> {
        if !self.has_rate.load(Ordering::Relaxed) {
            return None;
        }
        let state = self.state.lock();
        let rate = state.machine.settings().rate?;
        Some(Duration::from_nanos(rate.ns_for(state.machine.wire_bytes(payload_bytes))))
    }

    /// Wire bytes charged for each class so far.
    pub fn class_bytes(&self) -> Vec<(Arc<str>, u64)> {
        let state = self.state.lock();
        state.classes.names.iter().enumerate().map(|(at, name)| (name.clone(), state.charged_bytes(at))).collect()
    }

    /// The responses under way of known size: since when, and their bytes.
    pub fn under_way(&self) -> Vec<(Duration, u64)> {
        let state = self.state.lock();
        let now = self.now();
        let since = |began: Instant| Duration::from_nanos(now.as_ns().saturating_sub(began.as_ns()));
        state.machine.under_way().filter_map(|(began, bytes)| Some((since(began), bytes?))).collect()
    }

    /// Responses of a class that wait for leave.
    #[cfg(test)]
    pub fn waiting_of(&self, class: ClassId) -> usize {
        self.state.lock().machine.class_stats(class).waiting
    }

    /// Carries out the decisions of the scheduler, and sets the alarm for the next ones.
    fn pump(&self, state: &mut DriverState, now: Instant) -> Wakers {
        let load = state.load();
        if let Some(pace) = &mut state.pace {
            if pace::turn(pace, now, load) {
                let rate = pace.rate();
                state.machine.handle_rate(now, rate);
                self.follow_rate(state);
            }
            if state.doubts.note(now, state.pace.as_ref().and_then(Pace::doubt)) {
                self.unsaid_doubt.store(true, Ordering::Relaxed);
            }
        }
        let mut wakers = Wakers::default();
        for _ in 0..GRANTS_A_TURN {
            let Some(grant) = state.machine.poll_grant(now) else { break };
            trace_grant(now, &grant);
            let pending = &mut state.pending[grant.job.index()];
            pending.bytes = grant.bytes;
            wakers.extend(pending.waker.take());
        }
        let line_at = self.ask_for_line(state, now);
        if let Some(at) = [state.machine.poll_timeout(), line_at].into_iter().flatten().min()
            && state.armed_at != Some(at)
        {
            state.armed_at = Some(at);
            self.alarm.set(at - now);
        }
        wakers
    }

    /// Looks at what the responses want of a line that several gateways send through, if there is one. Returns when to look
    /// again.
    fn ask_for_line(&self, state: &mut DriverState, now: Instant) -> Option<Instant> {
        let Some(Pace::Leased(Leased { line, .. })) = &mut state.pace else { return None };
        let due = line::ask(line, now, &state.machine, &state.classes.names, state.config.line.as_deref());
        if due.is_some() {
            state.line_ask = due;
            self.line_asks.notify_one();
        }
        line.poll_timeout(now)
    }

    /// The rate or its enforcement may have changed.
    fn follow_rate(&self, state: &mut DriverState) {
        self.follow_chunk(state);
        self.looks.handle_rate(state.pace.as_ref().and_then(Pace::looks_after_ns));
        self.has_rate.store(state.machine.settings().rate.is_some(), Ordering::Relaxed);
    }

    /// The size of a grant may have changed.
    fn follow_chunk(&self, state: &DriverState) {
        let chunk_bytes = state.machine.chunk_bytes();
        self.chunk_bytes.store(chunk_bytes, Ordering::Relaxed);
        let limit = match Enforcement::of(&state.config) {
            Enforcement::Off => 0,
            // Two chunks keep the socket busy. The order of more could no longer change.
            Enforcement::Paced => chunk_bytes.saturating_mul(2).max(UNSENT_LIMIT_BYTES),
            Enforcement::Kernel => KERNEL_UNSENT_LIMIT_BYTES,
        };
        self.unsent_limit_bytes.store(limit, Ordering::Relaxed);
    }
}

/// Logs a decision, under the lock. That level is on only in tests and to look for faults.
fn trace_grant(now: Instant, grant: &Grant) {
    let Grant { job, bytes, reason, share } = *grant;
    tracing::trace!(at_ns = now.as_ns(), job = job.index(), bytes, ?reason, ?share, "leave");
}

impl DriverState {
    /// Shares the uplink between classes of these names from now on.
    fn handle_share(
        &mut self,
        now: Instant,
        share: Option<ClassShare>,
        names: Vec<Arc<str>>,
    ) -> Result<(), UplinkError> {
        let moves = self.classes.moves(&names);
        let charged: Vec<_> = (0..self.classes.names.len()).map(|class| self.charged_bytes(class)).collect();
        self.machine.handle_share(now, share, &moves).map_err(UplinkError::Share)?;
        let before =
            |name: &Arc<str>| self.classes.names.iter().position(|it| it == name).map_or(0, |old| charged[old]);
        self.charged_before_bytes = names.iter().map(before).collect();
        self.classes.renumber(names, moves);
        Ok(())
    }

    /// The state of the pacer, as its rate depends on it.
    fn load(&self) -> Load {
        let stats = self.machine.stats();
        Load {
            sent_bytes: stats.charged_bytes,
            room_at: self.machine.room_at(),
            waits: stats.waiting > 0,
            chunk_bytes: self.machine.chunk_bytes(),
        }
    }

    fn charged_bytes(&self, class: usize) -> u64 {
        self.charged_before_bytes[class] + self.machine.class_stats(ClassId(class as u16)).charged_bytes
    }

    fn handle_unused(&mut self, job: JobId, bytes: u64) {
        tracing::trace!(job = job.index(), bytes, "unused");
        self.machine.handle_unused(job, bytes);
    }

    /// A response began: the cutoff of QuickFix is learned from its size.
    fn learn(&mut self, now: Instant, job: JobId) {
        if self.config.cutoffs != Cutoffs::Learned || self.config.order != Order::QuickFix {
            return;
        }
        let Some(bytes) = self.machine.remaining_bytes(job) else { return };
        if self.learner.handle_seen(bytes)
            && let Some(plan) = self.learner.plan(2)
        {
            tracing::debug!(cutoffs = ?plan.cutoffs(), "cutoffs learned");
            let settings = *self.machine.settings();
            self.machine.handle_settings(now, Settings { small_bytes: plan.cutoffs()[0], ..settings });
        }
    }
}
