//! A simulated link under the uplink scheduler: jobs with a time of arrival and a size, and sockets that
//! accept everything at once. Time advances to the next arrival or to the time the uplink asked for,
//! whichever is first.

use serpent_scheduler::{
    Chunk, Instant, JobId, Pacing, Path, Size, Uplink,
    class::ClassId,
    share::Policy,
    uplink::{ClassShare, Grant, Reason, Settings, Stats},
};

/// A future job.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub at_ns: u64,
    pub bytes: u64,
    pub told: SizeKnown,
    pub path: Path,
    pub class: u16,
}

/// When the uplink learns the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeKnown {
    AtOnce,
    /// After this many bytes were granted.
    After(u64),
    Never,
}

impl Arrival {
    pub fn new(at_ns: u64, bytes: u64) -> Self {
        Self { at_ns, bytes, told: SizeKnown::AtOnce, path: Path::UNKNOWN, class: 0 }
    }
}

/// The record of a run; jobs are numbered in order of arrival.
#[derive(Debug, Default)]
pub struct Run {
    /// The grants, in order.
    pub served: Vec<Served>,
    /// For each grant, the jobs that waited for it.
    pub waited: Vec<Vec<usize>>,
    /// For each job, when the link had sent its last byte.
    pub ended_ns: Vec<u64>,
    pub stats: Stats,
}

/// A grant that was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    pub job: usize,
    pub bytes: u64,
    pub reason: Reason,
    pub decided_ns: u64,
}

/// The pacing of the server, with chunks of one size: the promises are stated in these.
pub const PACING: Pacing = Pacing { chunk: Chunk::ByRate, ..Pacing::SERVER };

/// The longest time for which a new job can find the link taken: the longest grant decided just before, which begins as
/// far ahead as the uplink decides. Shorter grants are given earlier, and end no later than that.
pub fn taken_ns(settings: &Settings) -> u64 {
    ahead_ns(settings) + grant_ns(settings)
}

/// Payload of the longest grant: a chunk, and a rest of half a chunk.
pub fn grant_bytes(settings: &Settings) -> u64 {
    Uplink::new(*settings).chunk_bytes() * 3 / 2
}

/// Time that the longest grant takes on the link.
pub fn grant_ns(settings: &Settings) -> u64 {
    let bytes = Uplink::new(*settings).wire_bytes(grant_bytes(settings));
    settings.rate.expect("a bare link has a rate").ns_for(bytes)
}

/// How far ahead of the link the uplink decides, found by asking an uplink with a second of work.
pub fn ahead_ns(settings: &Settings) -> u64 {
    let (mut uplink, rate) = (Uplink::new(*settings), settings.rate.expect("a bare link has a rate"));
    let bytes = rate.bytes_in(1_000_000_000);
    uplink.handle_ungranted(Instant::ORIGIN, bytes);
    let job = uplink.handle_started(Instant::ORIGIN, Size::Known(1), Path::UNKNOWN);
    assert_eq!(uplink.handle_wants(Instant::ORIGIN, job, 1), None, "a second of work is enough to wait for");
    rate.ns_for(bytes) - uplink.poll_timeout().expect("it waits").as_ns()
}

/// Serves the arrivals, sorted by time, on a link that is first busy with `busy_bytes`.
pub fn run(settings: &Settings, busy_bytes: u64, arrivals: &[Arrival]) -> Run {
    run_shared(settings, None, busy_bytes, arrivals)
}

/// The same on a link that is shared between classes.
pub fn run_shared(settings: &Settings, share: Option<&ClassShare>, busy_bytes: u64, arrivals: &[Arrival]) -> Run {
    let mut uplink = Uplink::new(*settings);
    uplink.handle_share(Instant::ORIGIN, share.cloned(), &[]).expect("the share is sound");
    let mut link = BareLink {
        rate: settings.rate.expect("a bare link has a rate"),
        uplink,
        lends: share.is_none_or(lends),
        waiting: Vec::new(),
        now_ns: 0,
        free_ns: 0,
        ahead_ns: ahead_ns(settings),
        names: Vec::new(),
        left: arrivals.iter().map(|it| it.bytes).collect(),
        told: arrivals.iter().map(|it| it.told).collect(),
        run: Run { ended_ns: vec![0; arrivals.len()], ..Run::default() },
    };
    link.free_ns = link.rate.ns_for(busy_bytes);
    link.uplink.handle_free_at(Instant::from_ns(link.free_ns));

    let mut next = 0;
    loop {
        let arrives_ns = arrivals.get(next).map(|it| it.at_ns);
        let due_ns = link.due_ns();
        match arrives_ns.into_iter().chain(due_ns).min() {
            Some(at_ns) => link.now_ns = link.now_ns.max(at_ns),
            None => break,
        }
        while let Some(it) = arrivals.get(next).filter(|it| it.at_ns <= link.now_ns) {
            link.arrives(next, it);
            next += 1;
        }
        while let Some(grant) = link.uplink.poll_grant(Instant::from_ns(link.now_ns)) {
            link.carry_out(grant);
        }
    }
    link.run.stats = link.uplink.stats();
    assert_eq!(link.run.stats.jobs, 0, "every job comes to its end");
    assert_eq!(link.left.iter().sum::<u64>(), 0, "every byte is sent");
    link.run
}

/// Whether the link is never idle while a job waits.
pub fn lends(share: &ClassShare) -> bool {
    match share.policy {
        Policy::Fixed => false,
        Policy::Shared => share.classes.iter().all(|class| class.reserved_slots == 0),
        _ => true,
    }
}

struct BareLink {
    uplink: Uplink,
    lends: bool,
    /// The jobs that wait now.
    waiting: Vec<usize>,
    rate: serpent_scheduler::Rate,
    now_ns: u64,
    /// When the link has sent all granted bytes.
    free_ns: u64,
    ahead_ns: u64,
    /// The job that has each id now.
    names: Vec<Option<usize>>,
    left: Vec<u64>,
    told: Vec<SizeKnown>,
    run: Run,
}

impl BareLink {
    fn due_ns(&self) -> Option<u64> {
        let due_ns = self.uplink.poll_timeout()?.as_ns();
        // The uplink's model must match the simulated link, or the ends counted here mean nothing.
        let room_ns = self.free_ns.saturating_sub(self.ahead_ns);
        assert!(due_ns == room_ns || due_ns > room_ns && !self.lends, "the uplink is off the link");
        Some(due_ns)
    }

    fn arrives(&mut self, job: usize, it: &Arrival) {
        let size = if it.told == SizeKnown::AtOnce { Size::Known(it.bytes) } else { Size::Unknown };
        let name = self.uplink.handle_started_of(Instant::from_ns(self.now_ns), ClassId(it.class), size, it.path);
        if self.names.len() <= name.index() {
            self.names.resize(name.index() + 1, None);
        }
        assert_eq!(self.names[name.index()].replace(job), None, "a name is given once");
        self.asks(name, job);
    }

    fn asks(&mut self, name: JobId, job: usize) {
        self.waiting.push(job);
        if let Some(grant) = self.uplink.handle_wants(Instant::from_ns(self.now_ns), name, self.left[job]) {
            self.carry_out(grant);
        }
    }

    fn carry_out(&mut self, grant: Grant) {
        let job = self.names[grant.job.index()].expect("whoever is granted is here");
        let Grant { bytes, reason, .. } = grant;
        assert!((1..=self.left[job]).contains(&bytes), "no more than asked for, and no less than a byte");
        self.free_ns = self.free_ns.max(self.now_ns) + self.rate.ns_for(self.uplink.wire_bytes(bytes));
        self.left[job] -= bytes;
        self.run.waited.push(self.waiting.clone());
        self.waiting.retain(|&it| it != job);
        self.run.served.push(Served { job, bytes, reason, decided_ns: self.now_ns });
        if self.left[job] == 0 {
            self.run.ended_ns[job] = self.free_ns;
            self.names[grant.job.index()] = None;
            self.uplink.handle_finished(Instant::from_ns(self.now_ns), grant.job, true);
            return;
        }
        if matches!(self.told[job], SizeKnown::After(bytes) if self.uplink.attained_bytes(grant.job) >= bytes) {
            self.told[job] = SizeKnown::AtOnce;
            self.uplink.handle_remaining_known(grant.job, self.left[job]);
        }
        self.asks(grant.job, job);
    }
}
