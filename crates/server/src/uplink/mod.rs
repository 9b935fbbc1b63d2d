//! The uplink as the server drives it: the scheduler behind a short lock, the clock, and the timer.
//!
//! Any thread that learns something (a response began, a socket took less than it was granted) tells the scheduler and
//! carries out what follows, under a lock that is never held over I/O or a wake-up. Where nothing happens but time, the
//! alarm rings in the task that runs [`Uplink::drive`].

pub(crate) mod alarm;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    io,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use parking_lot::Mutex;
use scheduler::{
    Instant, JobId, Order, Pacing, Path, Rate, Size,
    bands::{BandLearner, BandPlan},
    class::ClassId,
    estimate::{Estimator, Exactness},
    share::Policy,
    uplink::{ClassShare, Grant, Place, Settings, ShareError},
};
use tokio::net::TcpStream;

use self::alarm::Alarm;
use crate::{
    config::{Classes, Cutoffs, Enforce, UplinkConfig, UplinkRate},
    gate::Gate,
};

/// A handle on the one uplink of this process; cheap to clone.
#[derive(Clone, Debug)]
pub struct Uplink {
    shared: Arc<Shared>,
}

/// Why the uplink cannot be driven as configured: the operator's to mend.
#[derive(Debug)]
pub enum UplinkError {
    /// `enforce = "kernel"`, but no device has our bands.
    NoBands {
        /// The device asked for, if any.
        device: Option<String>,
        /// What the look-up said, where it failed.
        cause: Option<String>,
    },
    /// `enforce = "kernel"`, but the process may not choose a band.
    NoPrivilege,
    /// `enforce = "kernel"` with an order that has no bands.
    NotBandable(Order),
    /// `enforce = "kernel"` with a share between classes, which bands do not have.
    ShareNotBandable(Policy),
    /// The share between classes contradicts itself.
    Share(ShareError),
}

impl std::fmt::Display for UplinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoBands { device, cause } => {
                let on = device.as_deref().map(|device| format!(" on {device}")).unwrap_or_default();
                write!(f, "`enforce = \"kernel\"` needs priority bands, and there are none{on}")?;
                if let Some(cause) = cause {
                    write!(f, " ({cause})")?;
                }
                let device = device.as_deref().unwrap_or("DEV");
                write!(f, "; set them up once, as root: serpent uplink install {device} --rate RATE")
            }
            Self::NoPrivilege => f.write_str(
                "`enforce = \"kernel\"` needs the capability CAP_NET_ADMIN to choose a band; give it to the service \
                 (systemd: AmbientCapabilities=CAP_NET_ADMIN), or use `enforce = \"server\"`, which needs no privilege",
            ),
            Self::NotBandable(order) => write!(
                f,
                "the order `{order}` cannot be put into priority bands; use srpt with `enforce = \"kernel\"`, or \
                 `enforce = \"server\"`"
            ),
            Self::ShareNotBandable(policy) => write!(
                f,
                "priority bands know no classes, so that the uplink cannot be shared by `{policy}` with \
                 `enforce = \"kernel\"`; use `enforce = \"server\"`, or leave out the uplink's share"
            ),
            Self::Share(error) => write!(f, "the uplink cannot be shared between the classes so: {error}"),
        }
    }
}

impl std::error::Error for UplinkError {}

/// A class by its number, and which numbers are meant: a response may begin after a change by which classes have others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassAt {
    /// Its number.
    pub class: ClassId,
    /// As [`Uplink::reconfigure`] said when that was its number; 0 before the first change.
    pub generation: u64,
}

/// What the uplink is doing.
#[derive(Clone, Copy, Debug, Default)]
pub struct UplinkStats {
    /// The rate paced at, in bits per second of wire bytes; `None` while not paced.
    pub rate_bits_per_second: Option<u64>,
    /// Responses under way.
    pub jobs: usize,
    /// Responses waiting for leave.
    pub waiting: usize,
    /// Wire bytes charged so far.
    pub charged_bytes: u64,
    /// Grants so far.
    pub grants: u64,
    /// Responses put ahead by the guard so far.
    pub guarded: u64,
    /// Responses of which the client took too little for a quarter of the write timeout, so far.
    pub stalled: u64,
    /// Those of them that were given up.
    pub given_up: u64,
    /// How often the pacer's timer has failed.
    pub timer_failures: u64,
}

/// How responses are treated from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    /// Nothing is ranked.
    Pass,
    /// Every response asks for leave.
    Paced,
    /// Every response has a band.
    Bands,
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// The runtime's clock, which is the system's unless a test has stopped it.
    started: tokio::time::Instant,
    mode: AtomicU8,
    /// What the kernel may hold unsent of a connection, so that its order is still ours to choose; 0: no limit.
    unsent_limit_bytes: AtomicU64,
    /// Whether the rate is being found, so that round trips have to be measured.
    estimates: AtomicBool,
    /// Whether a rate is known; to be seen without the lock.
    has_rate: AtomicBool,
    stalled: AtomicU64,
    given_up: AtomicU64,
    core: Mutex<Core>,
    alarm: Alarm,
}

#[derive(Debug)]
struct Core {
    config: UplinkConfig,
    /// Names of the classes, whether or not the uplink is shared between them.
    class_names: Vec<Arc<str>>,
    default: ClassId,
    generation: u64,
    /// How numbers of older generations translate into those in force, the oldest first.
    translations: VecDeque<Vec<ClassId>>,
    /// By class: wire bytes charged before the scheduler began to count anew.
    charged_before_bytes: Vec<u64>,
    machine: scheduler::Uplink,
    /// Finds the rate, where it is not given.
    estimator: Option<Estimator>,
    /// By job: leave given and not yet taken, and whom to wake.
    slots: Vec<Slot>,
    armed_at: Option<Instant>,
    learner: BandLearner,
    plan: BandPlan,
    bands: Option<Bands>,
}

#[derive(Debug, Default)]
struct Slot {
    leave_bytes: u64,
    waker: Option<Waker>,
}

/// The kernel's bands, as far as a socket needs to know them.
#[derive(Clone, Copy, Debug)]
struct Bands {
    /// Priority of band 0; the others follow.
    first_priority: u32,
    /// Bands for responses, band 0 not among them.
    responses: u8,
}

/// Renumberings of classes remembered for responses that were classified before them.
const GENERATIONS: usize = 64;

/// Grants carried out in one turn, so that a turn is short whatever the rate.
const GRANTS_A_TURN: usize = 64;

impl Uplink {
    /// Checks that the configuration can be enforced here (privileges, bands installed) and starts with an idle uplink.
    ///
    /// # Errors
    ///
    /// In kernel mode, where bands or privileges are missing, or the order has no bands, or there is a share between classes;
    /// and where that share contradicts itself.
    pub fn new(config: &UplinkConfig, classes: &Classes) -> Result<Self, UplinkError> {
        Self::with_alarm(config, classes, Alarm::new())
    }

    fn with_alarm(config: &UplinkConfig, classes: &Classes, alarm: Alarm) -> Result<Self, UplinkError> {
        let share = share(config, classes)?;
        let bands = find_bands(config)?;
        let mut machine = scheduler::Uplink::new(settings(config));
        let class_names = class_names(classes);
        machine.handle_share(Instant::ORIGIN, share, &[]).map_err(UplinkError::Share)?;
        let shared = Shared {
            started: tokio::time::Instant::now(),
            mode: AtomicU8::new(mode(config) as u8),
            unsent_limit_bytes: AtomicU64::new(0),
            estimates: AtomicBool::new(estimates(config)),
            has_rate: AtomicBool::new(false),
            stalled: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            core: Mutex::new(Core {
                machine,
                charged_before_bytes: vec![0; class_names.len()],
                class_names,
                default: classes.default,
                generation: 0,
                translations: VecDeque::new(),
                estimator: estimates(config).then(|| Estimator::new(config.utilisation)),
                slots: Vec::new(),
                armed_at: None,
                learner: BandLearner::default(),
                plan: first_plan(config),
                bands,
                config: config.clone(),
            }),
            alarm,
        };
        {
            let mut core = shared.core.lock();
            let rate = core.estimator.as_ref().map(Estimator::rate);
            if let Some(rate) = rate {
                core.machine.handle_rate(shared.now(), rate);
            }
            shared.follow_rate(&mut core);
        }
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Drives the timer until dropped. Exactly one task runs this, on a runtime that is never blocked.
    pub async fn drive(&self) {
        // What an earlier driver has heard and not done.
        self.shared.turn();
        self.shared.alarm.listen(|| self.shared.turn()).await;
    }

    /// Puts a connection behind the gate. Every connection passes here, right after its accept.
    pub fn gate(&self, stream: TcpStream) -> Gate {
        Gate::new(stream, self.shared.clone())
    }

    /// Prepares a listening socket: in kernel mode SYN-ACKs, and whatever a connection sends before its first response,
    /// leave in band 0.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the priority.
    pub fn prepare_listener(&self, listener: &socket2::Socket) -> io::Result<()> {
        match self.shared.core.lock().bands {
            Some(bands) => kernel::socket::set_priority(listener, bands.first_priority),
            None => Ok(()),
        }
    }

    /// Takes over a changed configuration; responses under way are ranked by it from their next chunk on. What is returned is the
    /// generation of the classes' numbers from now on.
    ///
    /// # Errors
    ///
    /// As [`Uplink::new`]; nothing is changed then.
    pub fn reconfigure(&self, config: &UplinkConfig, classes: &Classes) -> Result<u64, UplinkError> {
        let share = share(config, classes)?;
        let names = class_names(classes);
        let bands = find_bands(config)?;
        let (generation, wakers) = {
            let mut core = self.shared.core.lock();
            core.default = classes.default;
            let same_share = core.machine.share() == share.as_ref() && core.class_names == names;
            if core.config == *config && same_share {
                return Ok(core.generation);
            }
            let now = self.shared.now();
            if !same_share {
                core.share(now, share, names)?;
            }
            core.bands = bands;
            core.learner = BandLearner::default();
            core.plan = first_plan(config);
            core.config = config.clone();
            let mut settings = settings(config);
            if !estimates(config) {
                core.estimator = None;
            } else {
                // What was found so far stays good.
                let estimator = core.estimator.get_or_insert_with(|| Estimator::new(config.utilisation));
                estimator.set_utilisation(config.utilisation);
                settings.rate = estimator.rate();
            }
            core.machine.handle_settings(now, settings);
            self.shared.follow_rate(&mut core);
            self.shared.estimates.store(estimates(config), Ordering::Relaxed);
            self.shared.mode.store(mode(config) as u8, Ordering::Relaxed);
            (core.generation, self.shared.pump(&mut core, now))
        };
        wakers.wake();
        Ok(generation)
    }

    /// Wire bytes charged for each class so far, for metrics: while the uplink was shared between classes.
    pub fn class_bytes(&self) -> Vec<(Arc<str>, u64)> {
        let core = self.shared.core.lock();
        core.class_names.iter().enumerate().map(|(at, name)| (name.clone(), core.charged_bytes(at))).collect()
    }

    /// What the uplink is doing, for metrics.
    pub fn stats(&self) -> UplinkStats {
        let core = self.shared.core.lock();
        let stats = core.machine.stats();
        UplinkStats {
            rate_bits_per_second: core.machine.settings().rate.map(Rate::bits_per_second),
            jobs: stats.jobs,
            waiting: stats.waiting,
            charged_bytes: stats.charged_bytes,
            grants: stats.grants,
            guarded: stats.guarded,
            stalled: self.shared.stalled.load(Ordering::Relaxed),
            given_up: self.shared.given_up.load(Ordering::Relaxed),
            timer_failures: self.shared.alarm.failures(),
        }
    }
}

#[cfg(test)]
impl Uplink {
    /// One that holds nothing back.
    pub(crate) fn with_rate_off() -> Self {
        let config = UplinkConfig {
            rate: UplinkRate::Off,
            order: Order::Srpt,
            enforce: Enforce::Off,
            cutoffs: Cutoffs::Learned,
            guard_stretch: None,
            utilisation: 1.0,
            segment_overhead_bytes: 66,
            device: None,
        };
        Self::new(&config, &Classes::one()).expect("nothing is needed for it")
    }
}

/// For tests that stop the runtime's clock and move it themselves ([`tokio::time::pause`], [`tokio::time::advance`]).
#[cfg(feature = "test-util")]
impl Uplink {
    /// As [`Uplink::new`], with an alarm that only [`Uplink::ring`] rings, in place of [`Uplink::drive`].
    ///
    /// # Errors
    ///
    /// As [`Uplink::new`].
    pub fn by_hand(config: &UplinkConfig, classes: &Classes) -> Result<Self, UplinkError> {
        Self::with_alarm(config, classes, Alarm::ByHand(Mutex::default()))
    }

    /// When the alarm is due; `None` while it is not set.
    pub fn alarm_at(&self) -> Option<tokio::time::Instant> {
        self.shared.alarm.due()
    }

    /// Rings the alarm. It is not set any more then, unless what follows sets it again.
    pub fn ring(&self) {
        self.shared.alarm.unset();
        self.shared.turn();
    }
}

impl Shared {
    pub fn now(&self) -> Instant {
        self.at(tokio::time::Instant::now())
    }

    /// That time, as the scheduler counts it.
    pub fn at(&self, time: tokio::time::Instant) -> Instant {
        let since = time.saturating_duration_since(self.started);
        Instant::from_ns(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    pub fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Relaxed) {
            0 => Mode::Pass,
            1 => Mode::Paced,
            _ => Mode::Bands,
        }
    }

    /// The clients of so many responses take too little of them.
    pub fn count_stalled(&self, responses: u64) {
        self.stalled.fetch_add(responses, Ordering::Relaxed);
    }

    /// So many responses were given up for that.
    pub fn count_given_up(&self, responses: u64) {
        self.given_up.fetch_add(responses, Ordering::Relaxed);
    }

    /// Whether the uplink's rate is being found by measuring round trips.
    pub fn estimates(&self) -> bool {
        self.estimates.load(Ordering::Relaxed)
    }

    /// A round trip was measured just now, on the path to a client (or its neighbours) with this name.
    pub fn round_trip(&self, path: u64, rtt_ns: u64, exactness: Exactness) {
        let mut core = self.core.lock();
        let sent_bytes = core.machine.stats().charged_bytes;
        let now = self.now();
        if let Some(estimator) = &mut core.estimator {
            estimator.handle_round_trip(now, path, rtt_ns, exactness, sent_bytes);
        }
    }

    /// What the kernel may hold unsent of a connection; `None` for no limit.
    pub fn unsent_limit_bytes(&self) -> Option<u32> {
        match self.unsent_limit_bytes.load(Ordering::Relaxed) {
            0 => None,
            bytes => Some(u32::try_from(bytes).unwrap_or(u32::MAX)),
        }
    }

    pub fn started(&self, class: ClassAt, size: Size, path: Option<Path>) -> JobId {
        let mut core = self.core.lock();
        let now = self.now();
        let class = core.translate(class);
        let job = core.machine.handle_started_of(now, class, size, path.unwrap_or(Path::UNKNOWN));
        tracing::trace!(at_ns = now.as_ns(), job = job.index(), class = class.index(), ?size, "begins");
        if core.slots.len() <= job.index() {
            core.slots.resize_with(job.index() + 1, Slot::default);
        }
        core.slots[job.index()] = Slot::default();
        core.learn(now, job);
        job
    }

    pub fn length_known(&self, job: JobId, left_bytes: u64) {
        self.core.lock().machine.handle_remaining_known(job, left_bytes);
    }

    pub fn path(&self, job: JobId, path: Path) {
        self.core.lock().machine.handle_path(job, path);
    }

    /// Whether the order looks at the path, so that it has to be measured.
    pub fn needs_path(&self) -> bool {
        self.core.lock().machine.settings().order.needs_path()
    }

    /// Asks leave for a job to write up to `bytes`. `None`: the waker is woken when it is worth asking again.
    pub fn ask(&self, job: JobId, bytes: u64, waker: &Waker) -> Option<u64> {
        let (leave, wakers) = {
            let mut core = self.core.lock();
            let core = &mut *core;
            let given = std::mem::take(&mut core.slots[job.index()].leave_bytes);
            if 0 < given && given <= bytes {
                return Some(given);
            }
            let now = self.now();
            if given > 0 {
                core.unused(job, given - bytes);
                (Some(bytes), self.pump(core, now))
            } else if let Some(grant) = core.machine.handle_wants(now, job, bytes) {
                tell(now, &grant);
                return Some(grant.bytes);
            } else {
                // Whoever asks is awake: what the turn gives it is told by what is returned.
                let kept = core.slots[job.index()].waker.take();
                let wakers = self.pump(core, now);
                let slot = &mut core.slots[job.index()];
                match std::mem::take(&mut slot.leave_bytes) {
                    0 => {
                        let mut kept = kept.unwrap_or_else(|| waker.clone());
                        kept.clone_from(waker);
                        slot.waker = Some(kept);
                        (None, wakers)
                    }
                    given => (Some(given), wakers),
                }
            }
        };
        wakers.wake();
        leave
    }

    /// Of the leave given, so many bytes were not used.
    pub fn unused(&self, job: JobId, bytes: u64) {
        let wakers = {
            let mut core = self.core.lock();
            core.unused(job, bytes);
            self.pump(&mut core, self.now())
        };
        wakers.wake();
    }

    pub fn finished(&self, job: JobId, complete: bool) {
        let wakers = {
            let mut core = self.core.lock();
            let slot = std::mem::take(&mut core.slots[job.index()]);
            if slot.leave_bytes > 0 {
                core.unused(job, slot.leave_bytes);
            }
            let now = self.now();
            core.machine.handle_finished(now, job, complete);
            tracing::trace!(at_ns = now.as_ns(), job = job.index(), complete, "ends");
            self.pump(&mut core, now)
        };
        wakers.wake();
    }

    /// Payload went out that needs no leave.
    pub fn unranked(&self, payload_bytes: u64) {
        let mut core = self.core.lock();
        let wire_bytes = core.machine.wire_bytes(payload_bytes);
        core.machine.handle_unranked(self.now(), wire_bytes);
    }

    /// Segments without payload went out: SYN-ACK, acknowledgements, FIN.
    pub fn bare_segments(&self, segments: u64) {
        let mut core = self.core.lock();
        let wire_bytes = segments * u64::from(core.config.segment_overhead_bytes);
        core.machine.handle_unranked(self.now(), wire_bytes);
    }

    /// The job's place by the share and the order in force: smaller goes first.
    pub fn place(&self, job: JobId) -> Place {
        self.core.lock().machine.place(job)
    }

    /// Payload granted at a time.
    pub fn chunk_bytes(&self) -> u64 {
        self.core.lock().machine.chunk_bytes()
    }

    /// The priority that a socket must have for the job to be in its band, or, without a job, in band 0; `None` outside
    /// kernel mode.
    pub fn priority(&self, job: Option<JobId>) -> Option<u32> {
        let core = self.core.lock();
        let bands = core.bands?;
        let Some(job) = job else { return Some(bands.first_priority) };
        let measure = core.machine.measure(self.now(), job)?;
        let band = core.plan.band(measure).min(bands.responses);
        Some(bands.first_priority + u32::from(band))
    }

    /// Time the bytes would take with the uplink for themselves; `None` where its rate is not known.
    pub fn time_alone(&self, payload_bytes: u64) -> Option<Duration> {
        if !self.has_rate.load(Ordering::Relaxed) {
            return None;
        }
        let core = self.core.lock();
        let rate = core.machine.settings().rate?;
        Some(Duration::from_nanos(rate.ns_for(core.machine.wire_bytes(payload_bytes))))
    }

    /// The alarm rang.
    fn turn(&self) {
        let wakers = {
            let mut core = self.core.lock();
            core.armed_at = None;
            self.pump(&mut core, self.now())
        };
        wakers.wake();
    }

    /// Carries out what the scheduler says, and sets the alarm for the rest.
    fn pump(&self, core: &mut Core, now: Instant) -> Wakers {
        if let Some(estimator) = &mut core.estimator {
            let stats = core.machine.stats();
            if estimator.handle_turn(now, stats.charged_bytes, stats.waiting > 0) {
                let rate = estimator.rate();
                tracing::debug!(
                    rate = rate.map_or_else(|| "unlimited".into(), |rate| rate.to_string()),
                    phase = estimator.phase_name(),
                    queue = ?estimator.queue(now),
                    "the uplink's rate"
                );
                core.machine.handle_rate(now, rate);
                self.follow_rate(core);
            }
        }
        let mut wakers = Wakers::default();
        for _ in 0..GRANTS_A_TURN {
            let Some(grant) = core.machine.poll_grant(now) else { break };
            tell(now, &grant);
            let slot = &mut core.slots[grant.job.index()];
            slot.leave_bytes = grant.bytes;
            wakers.extend(slot.waker.take());
        }
        if let Some(at) = core.machine.poll_timeout()
            && core.armed_at.is_none_or(|armed_at| at < armed_at || armed_at < now)
        {
            core.armed_at = Some(at);
            self.alarm.set(at - now);
        }
        wakers
    }

    fn follow_rate(&self, core: &mut Core) {
        let limit = match mode(&core.config) {
            Mode::Pass => 0,
            // Two chunks keep the socket busy; more would be out of our hands.
            Mode::Paced => core.machine.chunk_bytes().saturating_mul(2).max(UNSENT_LIMIT_BYTES),
            Mode::Bands => UNSENT_LIMIT_BYTES,
        };
        self.unsent_limit_bytes.store(limit, Ordering::Relaxed);
        self.has_rate.store(core.machine.settings().rate.is_some(), Ordering::Relaxed);
    }
}

/// `TCP_NOTSENT_LOWAT` at low rates: what the kernel holds unsent keeps its order whatever comes later.
const UNSENT_LIMIT_BYTES: u64 = 4096;

/// Decisions are told at a level that is off but for tests and to look for faults: there, the log is written under the lock.
fn tell(now: Instant, grant: &Grant) {
    let Grant { job, bytes, reason, share } = *grant;
    tracing::trace!(at_ns = now.as_ns(), job = job.index(), bytes, ?reason, ?share, "leave");
}

impl Core {
    /// The number in force of a class.
    fn translate(&self, class: ClassAt) -> ClassId {
        let ClassAt { class, generation } = class;
        let Some(age) = self.generation.checked_sub(generation).filter(|&age| age > 0) else { return class };
        let moves = usize::try_from(age).ok().and_then(|age| self.translations.len().checked_sub(age));
        moves.and_then(|at| self.translations[at].get(class.index()).copied()).unwrap_or(self.default)
    }

    /// Shares the uplink between classes of these names from now on.
    fn share(&mut self, now: Instant, share: Option<ClassShare>, names: Vec<Arc<str>>) -> Result<(), UplinkError> {
        let moves = moves(&self.class_names, &names, self.default);
        let charged: Vec<_> = (0..self.class_names.len()).map(|class| self.charged_bytes(class)).collect();
        self.machine.handle_share(now, share, &moves).map_err(UplinkError::Share)?;
        let before = |name: &Arc<str>| self.class_names.iter().position(|it| it == name).map_or(0, |old| charged[old]);
        self.charged_before_bytes = names.iter().map(before).collect();
        if names != self.class_names {
            for older in &mut self.translations {
                older.iter_mut().for_each(|class| *class = moves[class.index()]);
            }
            self.translations.push_back(moves);
            if self.translations.len() > GENERATIONS {
                self.translations.pop_front();
            }
            self.generation += 1;
            self.class_names = names;
        }
        Ok(())
    }

    fn charged_bytes(&self, class: usize) -> u64 {
        self.charged_before_bytes[class] + self.machine.class_stats(ClassId(class as u16)).charged_bytes
    }

    /// Leave comes back.
    fn unused(&mut self, job: JobId, bytes: u64) {
        tracing::trace!(job = job.index(), bytes, "unused");
        self.machine.handle_unused(job, bytes);
    }

    /// A response began: its size counts for the cutoffs.
    fn learn(&mut self, now: Instant, job: JobId) {
        let learns =
            self.config.cutoffs == Cutoffs::Learned && (self.bands.is_some() || self.config.order == Order::QuickFix);
        if !learns {
            return;
        }
        let bands = self.bands.map_or(2, |bands| bands.responses);
        let measure = match self.config.order {
            Order::QuickFix => self.machine.remaining_bytes(job),
            // Everybody begins with nothing attained: what counts is how far responses get, so their size.
            Order::Las => self.machine.remaining_bytes(job),
            _ => self.machine.measure(now, job),
        };
        let Some(measure) = measure else { return };
        if self.learner.handle_seen(measure)
            && let Some(plan) = self.learner.plan(bands)
        {
            tracing::debug!(cutoffs = ?plan.cutoffs(), "cutoffs learned");
            if self.config.order == Order::QuickFix {
                let settings = *self.machine.settings();
                self.machine.handle_settings(now, Settings { small_bytes: plan.cutoffs()[0], ..settings });
            } else {
                self.plan = plan;
            }
        }
    }
}

/// Wakers to be woken once the lock is released.
#[derive(Default)]
pub(crate) struct Wakers {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Wakers {
    pub fn extend(&mut self, waker: Option<Waker>) {
        match (&self.first, waker) {
            (_, None) => {}
            (None, waker) => self.first = waker,
            (Some(_), Some(waker)) => self.more.push(waker),
        }
    }

    pub fn wake(self) {
        self.first.into_iter().chain(self.more).for_each(Waker::wake);
    }
}

fn mode(config: &UplinkConfig) -> Mode {
    match (config.enforce, config.rate) {
        (Enforce::Off, _) | (Enforce::Server, UplinkRate::Off) => Mode::Pass,
        (Enforce::Server, _) => Mode::Paced,
        (Enforce::Kernel, _) => Mode::Bands,
    }
}

fn estimates(config: &UplinkConfig) -> bool {
    config.enforce == Enforce::Server && config.rate == UplinkRate::Auto
}

fn settings(config: &UplinkConfig) -> Settings {
    let rate = match (config.enforce, config.rate) {
        (Enforce::Server, UplinkRate::Given(rate)) => Some(rate.scaled(config.utilisation)),
        _ => None,
    };
    let small_bytes = match &config.cutoffs {
        Cutoffs::Given(cutoffs) => cutoffs.first().copied().unwrap_or(SMALL_BYTES),
        Cutoffs::Learned => SMALL_BYTES,
    };
    Settings {
        order: config.order,
        rate,
        segment_overhead_bytes: config.segment_overhead_bytes,
        small_bytes,
        guard_stretch: config.guard_stretch,
        pacing: Pacing::SERVER,
    }
}

/// How the uplink is shared between classes. A class's reserve is as large a part of it as of the site's slots.
fn share(config: &UplinkConfig, classes: &Classes) -> Result<Option<ClassShare>, UplinkError> {
    let Some(policy) = classes.uplink_share else { return Ok(None) };
    if config.enforce == Enforce::Kernel {
        return Err(UplinkError::ShareNotBandable(policy));
    }
    let admission = &classes.admission;
    let slots = admission.total.or_else(|| admission.resources.iter().filter_map(|it| it.window).max());
    let given = classes.classes.iter().map(|class| class.given).collect();
    let share = ClassShare { policy, classes: given, slots: slots.map(NonZeroU32::get) };
    share.check().map_err(UplinkError::Share)?;
    Ok(Some(share))
}

fn class_names(classes: &Classes) -> Vec<Arc<str>> {
    classes.classes.iter().map(|class| class.name.as_str().into()).collect()
}

/// Where responses under way of the old classes go: to the class of the same name, or else to that of requests which no rule
/// matches.
fn moves(old: &[Arc<str>], new: &[Arc<str>], default: ClassId) -> Vec<ClassId> {
    let now = |name: &Arc<str>| new.iter().position(|it| it == name).map_or(default, |class| ClassId(class as u16));
    old.iter().map(now).collect()
}

/// The quick fix's cutoff until the site's median is learned ("Implementation of SRPT Scheduling in Web Servers").
const SMALL_BYTES: u64 = 1024;

fn first_plan(config: &UplinkConfig) -> BandPlan {
    BandPlan::first(config.order, config.cutoffs.given())
}

fn find_bands(config: &UplinkConfig) -> Result<Option<Bands>, UplinkError> {
    if config.enforce != Enforce::Kernel {
        return Ok(None);
    }
    if config.order == Order::Fsp {
        return Err(UplinkError::NotBandable(config.order));
    }
    let no_bands = |cause| UplinkError::NoBands { device: config.device.clone(), cause };
    let installed = kernel::bands::find(config.device.as_deref()).map_err(|error| no_bands(Some(error.to_string())))?;
    let installed = installed.ok_or_else(|| no_bands(None))?;
    // Where the trial itself fails, the sockets will tell.
    if !kernel::capabilities::may_set_high_priority().unwrap_or(true) {
        return Err(UplinkError::NoPrivilege);
    }
    Ok(Some(Bands { first_priority: installed.priority(0), responses: installed.last_band() }))
}
