//! One gateway: admission and its leases.

use scheduler::{
    Instant,
    admission::{Admission, Arrival, Decision, RequestId, ResourceId, Settings},
    class::ClassId,
    lease::{Ask, Member},
};

use super::{
    agenda::{Event, Life},
    setup::Setup,
};

const RESOURCE: ResourceId = ResourceId(0);

/// A gateway.
#[derive(Debug)]
pub(super) struct Gateway {
    pub life: Life,
    admission: Admission,
    /// `None`: it has the whole window.
    member: Option<Member>,
    /// When the ask under way was sent.
    asked_ns: Option<u64>,
    /// By [`RequestId::index`].
    jobs: Vec<Option<Job>>,
    /// The timer that is set.
    pub timer_ns: Option<u64>,
    /// Events that came while it stood still; `None`: it does not.
    pub standing: Option<Vec<Event>>,
    /// Whether messages to and from the store are lost.
    pub split: bool,
    pub up: bool,
}

/// A request that a gateway has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub class: u16,
    pub born_ns: u64,
    pub service_ns: u64,
}

/// The actions of a gateway in one poll.
#[derive(Debug, Default)]
pub(super) struct Did {
    pub started: Vec<(RequestId, Job)>,
    pub refused: u64,
    pub ask: Option<Ask>,
}

impl Gateway {
    pub fn new(setup: &Setup, leased: bool, life: Life, now_ns: u64) -> Self {
        let settings = Settings::multi_resource(setup.classes.clone(), setup.policy, &[setup.window]);
        let member = leased.then(|| Member::new(Instant::from_ns(now_ns), setup.times, &settings, false));
        Self {
            life,
            admission: Admission::new(settings).expect("the setup has classes with weights and a window"),
            member,
            asked_ns: None,
            jobs: Vec::new(),
            timer_ns: None,
            standing: None,
            split: false,
            up: true,
        }
    }

    pub fn handle_arrived(&mut self, now_ns: u64, job: Job) -> Result<(), ()> {
        let arrival =
            Arrival { class: ClassId(job.class), resource: RESOURCE, client: 0, expected_ns: None, within_ns: None };
        let id = self.admission.handle_arrived(Instant::from_ns(now_ns), arrival).map_err(drop)?;
        if self.jobs.len() <= id.index() {
            self.jobs.resize(id.index() + 1, None);
        }
        self.jobs[id.index()] = Some(job);
        Ok(())
    }

    pub fn handle_done(&mut self, now_ns: u64, request: RequestId, service_ns: u64) -> Option<Job> {
        let job = self.jobs.get_mut(request.index())?.take()?;
        self.admission.handle_finished(Instant::from_ns(now_ns), request);
        if let Some(member) = &mut self.member {
            member.handle_finished(RESOURCE, ClassId(job.class), true, service_ns);
        }
        Some(job)
    }

    pub fn handle_reply(&mut self, asked_ns: u64, reply: &scheduler::lease::Reply) {
        if let Some(member) = self.member.as_mut().filter(|_| self.asked_ns == Some(asked_ns)) {
            member.handle_reply(Instant::from_ns(asked_ns), reply);
            self.asked_ns = None;
        }
    }

    pub fn handle_refused(&mut self, now_ns: u64, asked_ns: u64) {
        if let Some(member) = self.member.as_mut().filter(|_| self.asked_ns == Some(asked_ns)) {
            member.handle_failed(Instant::from_ns(now_ns));
            self.asked_ns = None;
        }
    }

    pub fn handle_notice(&mut self) {
        if let Some(member) = &mut self.member {
            member.handle_notice();
        }
    }

    /// Does what is due.
    pub fn poll(&mut self, now_ns: u64) -> Did {
        let now = Instant::from_ns(now_ns);
        let mut did = Did::default();
        if let (Some(member), Some(asked_ns)) = (&mut self.member, self.asked_ns)
            && now_ns >= asked_ns + member.holder().timeout_ns()
        {
            member.handle_failed(now);
            self.asked_ns = None;
        }
        if let Some(member) = &mut self.member {
            member.apply(now, &mut self.admission);
        }
        while let Some(decision) = self.admission.poll_decision(now) {
            match decision {
                Decision::Start(start) => {
                    if let Some(member) = &mut self.member {
                        member.handle_started(RESOURCE, start.class);
                    }
                    let job = self.jobs[start.request.index()].expect("what starts has arrived");
                    did.started.push((start.request, job));
                }
                Decision::Refuse { request, .. } => {
                    self.jobs[request.index()] = None;
                    did.refused += 1;
                }
            }
        }
        if let Some(member) = &mut self.member {
            member.observe(now, &self.admission);
            did.ask = member.poll_ask(now, &self.admission);
            if did.ask.is_some() {
                self.asked_ns = Some(now_ns);
            }
        }
        did
    }

    /// When to poll if nothing happens before.
    pub fn poll_timeout(&self, now_ns: u64) -> Option<u64> {
        let member = self.member.as_ref();
        let leases = member.and_then(|member| member.poll_timeout(Instant::from_ns(now_ns)));
        let late = member.zip(self.asked_ns).map(|(member, asked_ns)| asked_ns + member.holder().timeout_ns());
        let ends = [leases, self.admission.poll_timeout()].into_iter().flatten().map(Instant::as_ns);
        ends.chain(late).min()
    }

    pub fn running(&self) -> u32 {
        self.admission.running(RESOURCE)
    }

    pub fn waiting(&self) -> u32 {
        let classes = (0..self.admission.settings().classes.len() as u16).map(ClassId);
        classes.map(|class| self.admission.waiting(class, RESOURCE) as u32).sum()
    }
}
