//! The handle on admission, and the futures and slots that it gives.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::StatusCode;
use scheduler::{admission::RequestId, control::Probed};

use super::{
    driver::{AdmissionDriver, Outcome, Polled},
    request::{Arrival, Refused},
    settings::{Contradiction, check},
    stats::Stats,
    windows::{Adjusted, Due, ns},
};
use crate::config::Classes;

/// Admission to the site. Clones share all state; each worker thread has one.
///
/// A handle uses the numbers of classes and resources in force when it was made, by [`Admission::new`] or
/// [`Admission::reconfigure`]. So a request that was classified before a change can still enter by the old
/// handle.
#[derive(Clone, Debug)]
pub struct Admission {
    pub(super) driver: Arc<AdmissionDriver>,
    generation: u64,
}

/// A probing request to send to the site, to measure how long it takes. Dropping it reports no result.
#[derive(Debug)]
pub struct Probe {
    /// The resource that it mainly needs.
    pub resource: Arc<str>,
    due: Due,
    driver: Arc<AdmissionDriver>,
    probed: Probed,
}

/// A record of how long the site takes for requests.
pub trait ServiceTimes: fmt::Debug + Send + Sync {
    /// Records the service time of a request.
    fn record_service(&self, service: Duration);
}

/// A slot of the site, which is returned when dropped. Call [`Slot::finish`] when the site has done its work,
/// so that the service time counts, and [`Slot::fail`] if the site cannot do it.
#[derive(Debug)]
pub struct Slot {
    /// How long the request waited for it.
    pub waited: Duration,
    pub(super) held: Option<Held>,
}

/// A slot that counts against limits.
#[derive(Debug)]
pub(super) struct Held {
    driver: Arc<AdmissionDriver>,
    request: RequestId,
    route: u64,
    since: scheduler::Instant,
    done: bool,
    service_times: Option<Arc<dyn ServiceTimes>>,
}

/// A request that waits for admission, made by [`Admission::enter`]. It arrives at the first poll. Dropping
/// it removes the request from its queue and uses no slot.
#[derive(Debug)]
#[must_use = "it does nothing unless it is awaited"]
pub struct Enter {
    arrival: Arrival,
    pub(super) state: EnterState,
}

#[derive(Debug)]
pub(super) enum EnterState {
    /// Admission is off: no request waits.
    Open,
    New {
        driver: Arc<AdmissionDriver>,
        generation: u64,
    },
    Waiting {
        driver: Arc<AdmissionDriver>,
        ticket: usize,
    },
    Done,
}

impl Admission {
    /// Makes the admission with no requests.
    ///
    /// # Errors
    /// The settings contradict each other.
    pub fn new(classes: impl Into<Classes>) -> Result<Self, Contradiction> {
        Ok(Self { driver: Arc::new(AdmissionDriver::new(&classes.into())?), generation: 0 })
    }

    /// Waits until the request may go in.
    pub fn enter(&self, arrival: Arrival) -> Enter {
        let state = match self.driver.is_open() {
            true => EnterState::Open,
            false => EnterState::New { driver: self.driver.clone(), generation: self.generation },
        };
        Enter { arrival, state }
    }

    /// A slot for a request that does not wait for one. `None`: no slot is free, or another request waits.
    pub fn enter_at_once(&self, arrival: Arrival) -> Option<Slot> {
        if self.driver.is_open() {
            return Some(Slot { waited: Duration::ZERO, held: None });
        }
        match self.driver.arrived_at_once(arrival, self.generation)? {
            Outcome::Started { request, since, .. } => {
                let driver = self.driver.clone();
                let held = Held { driver, request, route: arrival.route, since, done: true, service_times: None };
                Some(Slot { waited: Duration::ZERO, held: Some(held) })
            }
            Outcome::Refused { .. } => None,
        }
    }

    /// Fires the alarm when a request has waited for too long. One thread runs it, forever.
    pub async fn drive(&self) {
        self.driver.drive().await;
    }

    /// Applies changed classes and resources, matched by name. Waiting requests keep waiting, in the default
    /// class if theirs is gone. The returned handle uses the new numbers.
    ///
    /// # Errors
    /// The settings contradict each other; then nothing has changed.
    pub fn reconfigure(&self, classes: impl Into<Classes>) -> Result<Self, Contradiction> {
        let generation = self.driver.reconfigure(&classes.into())?;
        Ok(Self { driver: self.driver.clone(), generation })
    }

    /// Checks settings for contradictions without applying them.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(classes: impl Into<Classes>) -> Result<(), Contradiction> {
        check(&classes.into())
    }

    /// Waits until a probing request is due. One task calls it.
    pub async fn probe(&self) -> Probe {
        let (due, resource) = self.driver.probe().await;
        Probe { resource, due, driver: self.driver.clone(), probed: Probed::Lost }
    }

    /// The last changes of windows, the newest first.
    pub fn decisions(&self) -> Vec<Adjusted> {
        self.driver.decisions()
    }

    /// Statistics, for metrics.
    pub fn stats(&self) -> Stats {
        self.driver.stats()
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
    pub fn by_hand(classes: impl Into<Classes>) -> Result<Self, Contradiction> {
        Ok(Self { driver: Arc::new(AdmissionDriver::by_hand(&classes.into())?), generation: 0 })
    }

    /// When the alarm is due; `None` while it is not set.
    pub fn alarm_at(&self) -> Option<tokio::time::Instant> {
        self.driver.alarm_at()
    }

    /// Fires the alarm, which is then unset unless the consequences set it again.
    pub fn ring(&self) {
        self.driver.ring();
    }
}

impl Slot {
    /// Reports the service time there, when the site has done its work.
    #[must_use]
    pub fn counted(mut self, service_times: Arc<dyn ServiceTimes>) -> Self {
        if let Some(held) = &mut self.held {
            held.service_times = Some(service_times);
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
            held.driver.failed(held.request, held.route, held.since);
        }
    }

    /// Returns the slot of a request that the site has served.
    pub fn finish(mut self) {
        if let Some(held) = self.held.take() {
            let service = held.driver.finished(held.request, held.route, held.since, held.done);
            if let Some(service_times) = held.service_times {
                service_times.record_service(service);
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
        self.driver.probed(self.due, self.probed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.driver.gone(held.request);
        }
    }
}

impl Future for Enter {
    type Output = Result<Slot, Refused>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (driver, outcome) = match std::mem::replace(&mut this.state, EnterState::Done) {
            EnterState::Open => return Poll::Ready(Ok(Slot { waited: Duration::ZERO, held: None })),
            EnterState::New { driver, generation } => match driver.arrived(this.arrival, generation, cx.waker()) {
                Polled::Decided(outcome) => (driver, outcome),
                Polled::Waits(ticket) => {
                    this.state = EnterState::Waiting { driver, ticket };
                    return Poll::Pending;
                }
            },
            EnterState::Waiting { driver, ticket } => match driver.asked(ticket, cx.waker()) {
                Polled::Decided(outcome) => (driver, outcome),
                Polled::Waits(ticket) => {
                    this.state = EnterState::Waiting { driver, ticket };
                    return Poll::Pending;
                }
            },
            EnterState::Done => panic!("a request that has its answer is not polled again"),
        };
        Poll::Ready(match outcome {
            Outcome::Started { request, since, waited_ns } => {
                let held = Held { driver, request, route: this.arrival.route, since, done: true, service_times: None };
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
        if let EnterState::Waiting { driver, ticket } = &self.state {
            driver.given_up(*ticket);
        }
    }
}
