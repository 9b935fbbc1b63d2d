//! The way into the site: who waits, who goes in. [`scheduler::admission::Admission`] decides; this drives it.
//!
//! Any thread that learns something (a request came, the site is done with one, a client is gone) tells the scheduler and
//! carries out what follows, under a lock that is never held over I/O or a wake-up. Where nothing happens but time, the
//! alarm rings in the task that runs [`Admission::drive`].
//!
//! What is decided for a request that waits lies in its ticket until its future is polled. If the future is dropped before
//! that, it gives back what it was given, so that no slot is lost between the two.

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

/// The gate before the site. Clones share everything; all worker threads have one.
///
/// A handle speaks the numbers of classes and resources that were in force when it was made, by [`Admission::new`] or
/// [`Admission::reconfigure`]. So a request that was classified before a change may enter after it by the old handle.
#[derive(Clone, Debug)]
pub struct Admission {
    desk: Arc<Desk>,
    generation: u64,
}

/// A request that wants in.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its class.
    pub class: ClassId,
    /// What it mainly needs.
    pub resource: ResourceId,
    /// A hash of its client's address.
    pub client: u64,
    /// Its route: a number by which service times are learned.
    pub route: u64,
}

/// Why a request does not get in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its class, as it came.
    pub class: ClassId,
    /// Why.
    pub refusal: Refusal,
    /// How long it waited for that.
    pub waited: Duration,
}

/// What contradicts itself in settings of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// Classes, and slots shared between them.
    Slots(SettingsError),
    /// How windows are adjusted.
    Windows(control::SettingsError),
}

/// A request of our own that is to be sent to the site, to see how long it takes. Dropping it says that nothing is known.
#[derive(Debug)]
pub struct Probe {
    /// What it mainly needs.
    pub resource: Arc<str>,
    due: Due,
    desk: Arc<Desk>,
    probed: Probed,
}

/// A place in the site. Given back when dropped; say [`Slot::finish`] where the site has done its work, so that its service
/// time counts, and [`Slot::fail`] where it cannot.
#[derive(Debug)]
pub struct Slot {
    /// How long the request waited for it.
    pub waited: Duration,
    held: Option<Held>,
}

/// A slot that was counted.
#[derive(Debug)]
struct Held {
    desk: Arc<Desk>,
    request: RequestId,
    route: u64,
    since: scheduler::Instant,
    done: bool,
    counters: Option<ClassCounters>,
}

/// A request on its way in, made by [`Admission::enter`]. It arrives when it is first polled. Dropping it takes it out of its
/// queue: it has spent no slot.
#[derive(Debug)]
#[must_use = "it does nothing unless it is awaited"]
pub struct Enter {
    arrival: Arrival,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nobody waits.
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

/// Plain numbers of the gate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// By class, in the order in force.
    pub classes: Vec<(Arc<str>, ClassStats)>,
    /// By resource, in the order in force.
    pub resources: Vec<ResourceStats>,
}

/// Plain numbers of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceStats {
    /// Its name.
    pub name: Arc<str>,
    /// Its window, if it has one of its own.
    pub window: Option<u32>,
    /// Requests for it at the site; those without a window of their own have one number together.
    pub running: u32,
    /// How often its window was adjusted.
    pub window_changes: u64,
    /// Mean service time of its last requests.
    pub mean_service: Option<Duration>,
}

impl Admission {
    /// Nobody waits.
    ///
    /// # Errors
    /// What contradicts itself in the settings.
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

    /// Rings when somebody has waited for too long; to be run by one thread, for ever.
    pub async fn drive(&self) {
        self.desk.drive().await;
    }

    /// Takes over changed classes and resources, by their names. Who waits goes on waiting, or in the default class if its own
    /// is gone. What is returned speaks the new numbers.
    ///
    /// # Errors
    /// What contradicts itself; then nothing has changed.
    pub fn reconfigure(&self, classes: &Classes) -> Result<Self, Contradiction> {
        let generation = self.desk.reconfigure(classes)?;
        Ok(Self { desk: self.desk.clone(), generation })
    }

    /// What contradicts itself in settings, without taking them over.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(classes: &Classes) -> Result<(), Contradiction> {
        check(classes)
    }

    /// Waits until a probing request is to be sent; to be called by one task.
    pub async fn probe(&self) -> Probe {
        let (due, resource) = self.desk.probe().await;
        Probe { resource, due, desk: self.desk.clone(), probed: Probed::Lost }
    }

    /// Plain numbers, for metrics.
    pub fn stats(&self) -> Stats {
        self.desk.stats()
    }
}

/// For tests that stop the runtime's clock and move it themselves ([`tokio::time::pause`], [`tokio::time::advance`]).
#[cfg(any(test, feature = "test-util"))]
impl Admission {
    /// As [`Admission::new`], with an alarm that only [`Admission::ring`] rings, in place of [`Admission::drive`].
    ///
    /// # Errors
    /// As [`Admission::new`].
    pub fn by_hand(classes: &Classes) -> Result<Self, Contradiction> {
        Ok(Self { desk: Arc::new(Desk::by_hand(classes)?), generation: 0 })
    }

    /// When the alarm is due; `None` while it is not set.
    pub fn alarm_at(&self) -> Option<tokio::time::Instant> {
        self.desk.alarm_at()
    }

    /// Rings the alarm. It is not set any more then, unless what follows sets it again.
    pub fn ring(&self) {
        self.desk.ring();
    }
}

impl Slot {
    /// Its service time is counted here.
    pub fn counted(mut self, counters: &ClassCounters) -> Self {
        if let Some(held) = &mut self.held {
            held.counters = Some(counters.clone());
        }
        self
    }

    /// What the site answered. An error of its own is no work done.
    pub fn answered(&mut self, status: StatusCode) {
        if let Some(held) = &mut self.held {
            held.done = !status.is_server_error();
        }
    }

    /// The site cannot do its work: it is not there, broke off, or takes too long.
    pub fn fail(mut self) {
        if let Some(held) = self.held.take() {
            held.desk.failed(held.request, held.route, held.since);
        }
    }

    /// The site has done its work.
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
    /// It was answered as it should be, after so long.
    pub fn answered(mut self, after: Duration) {
        self.probed = Probed::Answered { service_ns: ns(after) };
    }

    /// It was not, and the site is to blame.
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

/// What the scheduler is to do.
fn settings(classes: &Classes) -> Settings {
    let admission = &classes.admission;
    let given = classes.classes.iter().map(|class| class.given);
    if !admission.enabled {
        // Who waited when it was turned off goes in at once, and no setting contradicts that.
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
