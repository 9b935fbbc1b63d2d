//! Admission to the site: which requests wait, and which may go in. [`scheduler::admission::Admission`]
//! decides; this module drives it.
//!
//! Any thread with an event (a request arrived, the site has finished one, a client is gone) tells the
//! scheduler and carries out the decisions. It does so under a lock that is never held over I/O or a wake-up.
//! When only time passes, the alarm fires in the task that runs [`Admission::drive`].
//!
//! A decision for a waiting request is stored in its ticket until its future is polled. If the future is
//! dropped before that, it returns its slot, so that no slot is lost.

mod desk;
mod routes;
mod windows;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::StatusCode;
use scheduler::{
    admission::{ClassStats, Refusal, RequestId, ResourceId, Settings, SettingsError},
    class::{Class, ClassId},
    control::{self, Probed},
    share::Policy,
};

use self::{
    desk::{Asked, Desk, Outcome},
    windows::Due,
};
use crate::{class_metrics::ClassCounters, config::Classes};

/// Admission to the site. Clones share all state; each worker thread has one.
///
/// A handle uses the numbers of classes and resources in force when it was made, by [`Admission::new`] or
/// [`Admission::reconfigure`]. So a request that was classified before a change can still enter by the old
/// handle.
#[derive(Clone, Debug)]
pub struct Admission {
    desk: Arc<Desk>,
    generation: u64,
}

/// A request that asks for admission.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its class.
    pub class: ClassId,
    /// The resource that it mainly needs.
    pub resource: ResourceId,
    /// A hash of the client's address.
    pub client: u64,
    /// The key of its route, under which service times are learned.
    pub route: u64,
}

/// A refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The class with which it arrived.
    pub class: ClassId,
    /// The reason.
    pub refusal: Refusal,
    /// How long it waited before the refusal.
    pub waited: Duration,
}

/// A contradiction in the settings of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// In the classes, or in the slots shared between them.
    Slots(SettingsError),
    /// In the adjustment of windows.
    Windows(control::SettingsError),
}

/// A probing request to send to the site, to measure how long it takes. Dropping it reports no result.
#[derive(Debug)]
pub struct Probe {
    /// The resource that it mainly needs.
    pub resource: Arc<str>,
    due: Due,
    desk: Arc<Desk>,
    probed: Probed,
}

/// A slot of the site, which is returned when dropped. Call [`Slot::finish`] when the site has done its work,
/// so that the service time counts, and [`Slot::fail`] if the site cannot do it.
#[derive(Debug)]
pub struct Slot {
    /// How long the request waited for it.
    pub waited: Duration,
    held: Option<Held>,
}

/// A slot that counts against limits.
#[derive(Debug)]
struct Held {
    desk: Arc<Desk>,
    request: RequestId,
    route: u64,
    since: scheduler::Instant,
    done: bool,
    counters: Option<ClassCounters>,
}

/// A request that waits for admission, made by [`Admission::enter`]. It arrives at the first poll. Dropping
/// it removes the request from its queue and uses no slot.
#[derive(Debug)]
#[must_use = "it does nothing unless it is awaited"]
pub struct Enter {
    arrival: Arrival,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Admission is off: no request waits.
    Open,
    New {
        desk: Arc<Desk>,
        generation: u64,
    },
    Waiting {
        desk: Arc<Desk>,
        ticket: usize,
    },
    Done,
}

/// Statistics of admission.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// By class, in the order in force.
    pub classes: Vec<(Arc<str>, ClassStats)>,
    /// By resource, in the order in force.
    pub resources: Vec<ResourceStats>,
}

/// Statistics of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceStats {
    /// Its name.
    pub name: Arc<str>,
    /// Its window, if it has one of its own.
    pub window: Option<u32>,
    /// Its requests at the site; resources without a window of their own share one count.
    pub running: u32,
    /// How often its window was adjusted.
    pub window_changes: u64,
    /// Mean service time of its last requests.
    pub mean_service: Option<Duration>,
}

impl Admission {
    /// Makes the admission with no requests.
    ///
    /// # Errors
    /// The settings contradict each other.
    pub fn new(classes: &Classes) -> Result<Self, Contradiction> {
        Ok(Self { desk: Arc::new(Desk::new(classes)?), generation: 0 })
    }

    /// Waits until the request may go in.
    pub fn enter(&self, arrival: Arrival) -> Enter {
        let state = match self.desk.is_open() {
            true => State::Open,
            false => State::New { desk: self.desk.clone(), generation: self.generation },
        };
        Enter { arrival, state }
    }

    /// Fires the alarm when a request has waited for too long. One thread runs it, forever.
    pub async fn drive(&self) {
        self.desk.drive().await;
    }

    /// Applies changed classes and resources, matched by name. Waiting requests keep waiting, in the default
    /// class if theirs is gone. The returned handle uses the new numbers.
    ///
    /// # Errors
    /// The settings contradict each other; then nothing has changed.
    pub fn reconfigure(&self, classes: &Classes) -> Result<Self, Contradiction> {
        let generation = self.desk.reconfigure(classes)?;
        Ok(Self { desk: self.desk.clone(), generation })
    }

    /// Checks settings for contradictions without applying them.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(classes: &Classes) -> Result<(), Contradiction> {
        check(classes)
    }

    /// Waits until a probing request is due. One task calls it.
    pub async fn probe(&self) -> Probe {
        let (due, resource) = self.desk.probe().await;
        Probe { resource, due, desk: self.desk.clone(), probed: Probed::Lost }
    }

    /// Statistics, for metrics.
    pub fn stats(&self) -> Stats {
        self.desk.stats()
    }
}

/// For tests that pause the runtime's clock and advance it themselves ([`tokio::time::pause`],
/// [`tokio::time::advance`]).
#[cfg(any(test, feature = "test-util"))]
impl Admission {
    /// Does the same as [`Admission::new`], with an alarm that only [`Admission::ring`] fires, not
    /// [`Admission::drive`].
    ///
    /// # Errors
    /// Those of [`Admission::new`].
    pub fn by_hand(classes: &Classes) -> Result<Self, Contradiction> {
        Ok(Self { desk: Arc::new(Desk::by_hand(classes)?), generation: 0 })
    }

    /// When the alarm is due; `None` while it is not set.
    pub fn alarm_at(&self) -> Option<tokio::time::Instant> {
        self.desk.alarm_at()
    }

    /// Fires the alarm, which is then unset unless the consequences set it again.
    pub fn ring(&self) {
        self.desk.ring();
    }
}

impl Slot {
    /// Adds the service time to these counters.
    pub fn counted(mut self, counters: &ClassCounters) -> Self {
        if let Some(held) = &mut self.held {
            held.counters = Some(counters.clone());
        }
        self
    }

    /// Records the status of the site's answer. A server error does not count as work done.
    pub fn answered(&mut self, status: StatusCode) {
        if let Some(held) = &mut self.held {
            held.done = !status.is_server_error();
        }
    }

    /// Returns the slot of a request that the site cannot serve: it is unreachable, broke off, or takes too
    /// long.
    pub fn fail(mut self) {
        if let Some(held) = self.held.take() {
            held.desk.failed(held.request, held.route, held.since);
        }
    }

    /// Returns the slot of a request that the site has served.
    pub fn finish(mut self) {
        if let Some(held) = self.held.take() {
            let service = held.desk.finished(held.request, held.route, held.since, held.done);
            if let Some(counters) = held.counters {
                counters.record_service(service);
            }
        }
    }
}

impl Probe {
    /// Reports a correct answer and the time that it took.
    pub fn answered(mut self, after: Duration) {
        self.probed = Probed::Answered { service_ns: ns(after) };
    }

    /// Reports a failure for which the site is to blame.
    pub fn failed(mut self) {
        self.probed = Probed::Failed;
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.desk.probed(self.due, self.probed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.desk.gone(held.request);
        }
    }
}

impl Future for Enter {
    type Output = Result<Slot, Refused>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (desk, outcome) = match std::mem::replace(&mut this.state, State::Done) {
            State::Open => return Poll::Ready(Ok(Slot { waited: Duration::ZERO, held: None })),
            State::New { desk, generation } => match desk.arrived(this.arrival, generation, cx.waker()) {
                Asked::Decided(outcome) => (desk, outcome),
                Asked::Waits(ticket) => {
                    this.state = State::Waiting { desk, ticket };
                    return Poll::Pending;
                }
            },
            State::Waiting { desk, ticket } => match desk.asked(ticket, cx.waker()) {
                Asked::Decided(outcome) => (desk, outcome),
                Asked::Waits(ticket) => {
                    this.state = State::Waiting { desk, ticket };
                    return Poll::Pending;
                }
            },
            State::Done => panic!("a request that has its answer is not polled again"),
        };
        Poll::Ready(match outcome {
            Outcome::Started { request, since, waited_ns } => {
                let held = Held { desk, request, route: this.arrival.route, since, done: true, counters: None };
                Ok(Slot { waited: Duration::from_nanos(waited_ns), held: Some(held) })
            }
            Outcome::Refused { refusal, waited_ns } => {
                Err(Refused { class: this.arrival.class, refusal, waited: Duration::from_nanos(waited_ns) })
            }
        })
    }
}

impl Drop for Enter {
    fn drop(&mut self) {
        if let State::Waiting { desk, ticket } = &self.state {
            desk.given_up(*ticket);
        }
    }
}

fn check(classes: &Classes) -> Result<(), Contradiction> {
    let mut settings = settings(classes);
    settings.check()?;
    windows::check(classes)?;
    if classes.admission.enabled {
        settings.windows = windows::narrowest(classes);
        settings.check()?;
    }
    Ok(())
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl From<SettingsError> for Contradiction {
    fn from(error: SettingsError) -> Self {
        Self::Slots(error)
    }
}

impl From<control::SettingsError> for Contradiction {
    fn from(error: control::SettingsError) -> Self {
        Self::Windows(error)
    }
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slots(error) => error.fmt(f),
            Self::Windows(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Contradiction {}

/// The scheduler's settings for these classes.
fn settings(classes: &Classes) -> Settings {
    let admission = &classes.admission;
    let given = classes.classes.iter().map(|class| class.given);
    if !admission.enabled {
        // Requests that waited when admission was turned off go in at once; no other setting can contradict
        // that.
        let open = given.map(|_| Class::default()).collect();
        return Settings::uncontrolled(open, admission.resources.len(), Policy::Strict);
    }
    Settings {
        classes: given.collect(),
        windows: admission.resources.iter().map(|resource| resource.window.map(Into::into)).collect(),
        total: admission.total.map(Into::into),
        policy: admission.policy,
        late: admission.late,
        delay_window_ns: ns(admission.delay_window),
    }
}

#[cfg(test)]
mod tests;
