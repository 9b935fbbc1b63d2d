//! Random sequences of events: the invariants of the uplink hold in every order of service.

extern crate std;

use std::{collections::BTreeMap, format, prelude::v1::*};

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::super::*;
use crate::{Chunk, class::Class, link::Pacing, order::Order, units::Rate};

/// A random event. A job is picked by a number, modulo the number of jobs.
#[derive(Clone, Debug)]
enum Event {
    Started { class: u16, group: Option<(u64, Priority)>, size: Option<u64>, path: Path },
    Wants { pick: usize, bytes: u64 },
    Unused { pick: usize, bytes: u64 },
    RemainingKnown { pick: usize, bytes: u64 },
    Path { pick: usize, path: Path },
    Priority { pick: usize, priority: Priority },
    Withdrawn { pick: usize },
    Finished { pick: usize, complete: bool },
    Unranked { bytes: u64 },
    Rate(Option<Rate>),
    Settings(Settings),
    Share { share: Option<ClassShare>, moves: Vec<u16> },
    TimePasses { ns: u64 },
    ClockSetBack { ns: u64 },
    Polled,
    PolledAtTimeout,
}

fn event() -> impl Strategy<Value = Event> {
    let pick = || 0..1000usize;
    let bytes = || prop_oneof![1..3000u64, 1..100_000u64];
    prop_oneof![
        6 => (0..4u16, group(), option::weighted(0.8, bytes()), path())
            .prop_map(|(class, group, size, path)| Event::Started { class, group, size, path }),
        12 => (pick(), bytes()).prop_map(|(pick, bytes)| Event::Wants { pick, bytes }),
        3 => (pick(), bytes()).prop_map(|(pick, bytes)| Event::Unused { pick, bytes }),
        1 => (pick(), bytes()).prop_map(|(pick, bytes)| Event::RemainingKnown { pick, bytes }),
        1 => (pick(), path()).prop_map(|(pick, path)| Event::Path { pick, path }),
        2 => (pick(), priority()).prop_map(|(pick, priority)| Event::Priority { pick, priority }),
        1 => pick().prop_map(|pick| Event::Withdrawn { pick }),
        3 => (pick(), any::<bool>()).prop_map(|(pick, complete)| Event::Finished { pick, complete }),
        1 => bytes().prop_map(|bytes| Event::Unranked { bytes }),
        1 => rate().prop_map(Event::Rate),
        1 => settings().prop_map(Event::Settings),
        1 => (option::weighted(0.9, share()), vec(0..4u16, 0..4))
            .prop_map(|(share, moves)| Event::Share { share, moves }),
        3 => (0..50_000_000u64).prop_map(|ns| Event::TimePasses { ns }),
        1 => (0..50_000_000u64).prop_map(|ns| Event::ClockSetBack { ns }),
        6 => Just(Event::Polled),
        6 => Just(Event::PolledAtTimeout),
    ]
}

fn group() -> impl Strategy<Value = Option<(u64, Priority)>> {
    option::weighted(0.8, (0..3u64, priority()))
}

fn priority() -> impl Strategy<Value = Priority> {
    (select(&[0, 3, 3, 7, 255][..]), any::<bool>()).prop_map(|(urgency, incremental)| Priority { urgency, incremental })
}

fn path() -> impl Strategy<Value = Path> {
    (0..400_000_000u64, 0..200u32, select(&[0, 536, 1448][..]), 0..10_000_000u64).prop_map(
        |(rtt_ns, window_segments, mss_bytes, delivery_bytes_per_second)| Path {
            rtt_ns,
            window_segments,
            mss_bytes,
            delivery_bytes_per_second,
        },
    )
}

fn rate() -> impl Strategy<Value = Option<Rate>> {
    let rates = select(&["8kbit", "1mbit", "10mbit", "1gbit", "1000gbit"][..]);
    option::weighted(0.9, rates.prop_map(|text| text.parse().unwrap()))
}

fn settings() -> impl Strategy<Value = Settings> {
    let guard = option::weighted(0.3, select(&[0.0, 1.0, 3.0, f64::INFINITY, f64::NAN][..]));
    let chunk =
        select(&[Chunk::ByRate, Chunk::BySizes, Chunk::Bytes(600), Chunk::Bytes(5000), Chunk::Bytes(u64::MAX)][..]);
    let (slack_ns, early_percent) = (select(&[0, 0, 50_000, 300_000][..]), select(&[0, 0, 150][..]));
    let pacing = (0..1_000_000u64, slack_ns, early_percent, chunk)
        .prop_map(|(ahead_ns, slack_ns, early_percent, chunk)| Pacing { ahead_ns, slack_ns, early_percent, chunk });
    (select(&Order::ALL[..]), rate(), 0..1500u32, 0..5000u64, guard, pacing).prop_map(
        |(order, rate, segment_overhead_bytes, small_bytes, guard_stretch, pacing)| Settings {
            order,
            rate,
            segment_overhead_bytes,
            small_bytes,
            guard_stretch,
            pacing,
        },
    )
}

/// Random shares; some classes have reserves and deadlines, within the capacity.
fn share() -> impl Strategy<Value = ClassShare> {
    let class = (1..20u32, option::of(0..50_000_000u64), select(&[0, 0, 1][..]));
    (select(&Policy::OF_LINKS[..]), vec(class, 1..4), select(&[None, Some(8)][..])).prop_map(
        |(policy, classes, slots)| {
            let class = |(weight, deadline_ns, reserved_slots)| Class {
                weight,
                deadline_ns,
                reserved_slots,
                ..Class::default()
            };
            let share = ClassShare { policy, classes: classes.into_iter().map(class).collect(), slots };
            let sound = share.check().is_ok();
            let without = |class: Class| Class { reserved_slots: 0, ..class };
            if sound {
                share
            } else {
                ClassShare { classes: share.classes.into_iter().map(without).collect(), ..share }
            }
        },
    )
}

/// The uplink, and a model that it must agree with.
struct Model {
    uplink: Uplink,
    now: Instant,
    jobs: Vec<ModelJob>,
    most_jobs: usize,
    /// Charge of all grants except the latest grant of each present job.
    settled_wire_bytes: u64,
    grants: u64,
}

struct ModelJob {
    id: JobId,
    class: u16,
    path: Path,
    size: Option<u64>,
    attained: u64,
    /// The part of the last grant that was not handed back, and its charge.
    granted: u64,
    granted_wire_bytes: u64,
    wanted: Option<u64>,
}

impl ModelJob {
    /// Bytes that the job may still ask for; a response of unknown length always has more.
    fn left(&self) -> u64 {
        self.size.map_or(u64::MAX, |size| size - self.attained)
    }
}

impl Model {
    fn new(settings: Settings) -> Self {
        Self {
            uplink: Uplink::new(settings),
            now: Instant::from_ns(1_000_000_000),
            jobs: Vec::new(),
            most_jobs: 0,
            settled_wire_bytes: 0,
            grants: 0,
        }
    }

    fn picked(&mut self, pick: usize) -> Option<&mut ModelJob> {
        let jobs = self.jobs.len();
        self.jobs.get_mut(pick.checked_rem(jobs)?)
    }

    fn happens(&mut self, event: &Event) -> Result<(), TestCaseError> {
        let now = self.now;
        match *event {
            Event::Started { class, group, size, path } => {
                let known = size.map_or(Size::Unknown, Size::Known);
                let group = group.map(|(group, priority)| (GroupId(group), priority));
                let id = self.uplink.handle_started_in(now, ClassId(class), group, known, path);
                prop_assert!(self.jobs.iter().all(|job| job.id != id), "the name is taken");
                self.jobs.push(ModelJob {
                    id,
                    class,
                    path,
                    size,
                    attained: 0,
                    granted: 0,
                    granted_wire_bytes: 0,
                    wanted: None,
                });
                self.most_jobs = self.most_jobs.max(self.jobs.len() + self.uplink.groups.stays());
                prop_assert!(id.index() < self.most_jobs, "names are used again");
            }
            Event::Wants { pick, bytes } => {
                let others_wait = self.jobs.iter().any(|job| job.wanted.is_some());
                let Some(job) = self.picked(pick).filter(|job| job.left() > 0) else { return Ok(()) };
                let (id, bytes) = (job.id, bytes.min(job.left()));
                job.wanted = Some(bytes);
                let lends = self.uplink.classes.as_ref().is_none_or(Classes::lends);
                let early = self.uplink.served.is_none_or(|it| it == id);
                let room_bytes = if early { bytes } else { u64::MAX };
                let at_once = !others_wait && self.uplink.link.has_room(now, room_bytes);
                let grant = self.uplink.handle_wants(now, id, bytes);
                prop_assert!(grant.is_some() == at_once || grant.is_none() && !lends, "work is conserved");
                if let Some(grant) = grant {
                    prop_assert_eq!((grant.job, grant.reason), (id, Reason::Alone));
                    self.granted(grant)?;
                }
            }
            Event::Unused { pick, bytes } => {
                let settings = *self.uplink.settings();
                let Some(job) = self.picked(pick) else { return Ok(()) };
                let back = bytes.min(job.granted);
                job.granted -= back;
                job.attained -= back;
                job.granted_wire_bytes = job.granted_wire_bytes.min(settings.wire_bytes(&job.path, job.granted));
                let id = job.id;
                self.uplink.handle_unused(id, bytes);
            }
            Event::RemainingKnown { pick, bytes } => {
                let Some(job) = self.picked(pick) else { return Ok(()) };
                job.size = Some(job.attained + bytes);
                job.wanted = job.wanted.map(|wanted| wanted.min(bytes));
                let (id, wanted) = (job.id, job.wanted);
                self.uplink.handle_remaining_known(id, bytes);
                if let Some(wanted) = wanted {
                    prop_assert_eq!(self.uplink.handle_wants(now, id, wanted), None, "it waits already");
                }
            }
            Event::Priority { pick, priority } => {
                let Some(job) = self.picked(pick) else { return Ok(()) };
                let id = job.id;
                self.uplink.handle_priority(id, priority);
            }
            Event::Path { pick, path } => {
                let Some(job) = self.picked(pick) else { return Ok(()) };
                job.path = path;
                let id = job.id;
                self.uplink.handle_path(id, path);
            }
            Event::Withdrawn { pick } => {
                let Some(job) = self.picked(pick) else { return Ok(()) };
                job.wanted = None;
                let id = job.id;
                self.uplink.handle_withdrawn(id);
            }
            Event::Finished { pick, complete } => {
                let Some(at) = pick.checked_rem(self.jobs.len()) else { return Ok(()) };
                let job = self.jobs.swap_remove(at);
                self.settled_wire_bytes += job.granted_wire_bytes;
                self.uplink.handle_finished(now, job.id, complete);
            }
            Event::Unranked { bytes } => {
                self.settled_wire_bytes += bytes;
                self.uplink.handle_ungranted(now, bytes);
            }
            Event::Rate(rate) => self.uplink.handle_rate(now, rate),
            Event::Settings(settings) => self.uplink.handle_settings(now, settings),
            Event::Share { ref share, ref moves } => {
                let moves: Vec<ClassId> = moves.iter().copied().map(ClassId).collect();
                prop_assert_eq!(self.uplink.handle_share(now, share.clone(), &moves), Ok(()));
                prop_assert_eq!(self.uplink.share(), share.as_ref());
                for job in &mut self.jobs {
                    job.class = moves.get(usize::from(job.class)).map_or(job.class, |class| class.0);
                }
            }
            Event::TimePasses { ns } => self.now = now.add_ns(ns),
            Event::ClockSetBack { ns } => self.now = Instant::from_ns(now.as_ns().saturating_sub(ns)),
            Event::Polled => while self.polled()? {},
            Event::PolledAtTimeout => {
                if let Some(at) = self.uplink.poll_timeout() {
                    self.now = now.max(at);
                    prop_assert!(self.polled()?, "asking at the time given is worth it");
                }
            }
        }
        self.agrees()
    }

    /// Asks once for a grant, and returns whether there was one.
    fn polled(&mut self) -> Result<bool, TestCaseError> {
        let now = self.now;
        let mut ahead = self.uplink.clone();
        ahead.advance(now);
        ahead.find_late(now);
        let lines = ahead.queues.len() as u16;
        // The first place of each class, and the job that it serves. The share picks one of them.
        let mut firsts: BTreeMap<u16, JobId> = BTreeMap::new();
        let mut largest_bytes = 0;
        for class in 0..lines {
            let asking = || self.jobs.iter().filter(|job| job.wanted.is_some() && job.class.min(lines - 1) == class);
            let Some(&first) = ahead.queues[usize::from(class)].places.first() else {
                prop_assert_eq!(asking().count(), 0, "a job waits, and its class has no place");
                continue;
            };
            for job in asking().filter(|job| !ahead.jobs[job.id.index()].is_spent()) {
                prop_assert!(first <= (ahead.rank(job.id), job.id), "not the first of its class");
            }
            let place = &ahead.jobs[first.1.index()];
            let group = |job: JobId| ahead.jobs[job.index()].member.map(|member| member.group);
            let turn = |job: &ModelJob| (ahead.settings.turn(&ahead.jobs[job.id.index()]), job.id);
            let of_group = asking().filter(|job| group(job.id) == group(first.1));
            let serves = match place.member.is_some() && place.lendable_bytes() > 0 {
                true => of_group.map(turn).min().expect("a place is there for its group").1,
                false => first.1,
            };
            let (_, most_bytes) = ahead.groups.beneficiary(&ahead.jobs, first.1);
            let wanted_bytes = asking().find(|job| job.id == serves).and_then(|job| job.wanted);
            largest_bytes = largest_bytes.max(wanted_bytes.map_or(0, |bytes| bytes.min(most_bytes)));
            firsts.insert(class, serves);
        }
        let lends = ahead.classes.as_ref().is_none_or(Classes::lends);
        let (ahead_ns, slack_ns) = (ahead.settings.pacing.ahead_ns, ahead.settings.pacing.slack_ns);
        let taken_ns = ahead.link.free_at().ns_since(now);
        let due = self.uplink.poll_timeout().is_some_and(|at| at <= now);
        prop_assert!(!due || ahead.settings.rate.is_none() || taken_ns <= ahead_ns + slack_ns, "the link has no room");
        let room = self.uplink.link.has_room(now, u64::MAX);
        prop_assert!(due || !room || firsts.is_empty() || !lends, "the link has room, and a job waits for it");
        prop_assert!(!due || !firsts.is_empty(), "no job waits");
        // Without slack it is due when the link has room, and only then.
        prop_assert!(slack_ns > 0 || due == (room && !firsts.is_empty()) || !due && !lends);
        let early = self.uplink.served.is_none() && self.uplink.link.has_room(now, largest_bytes) && !firsts.is_empty();
        let grant = self.uplink.poll_grant(now);
        prop_assert!(grant.is_some() || !due, "leave is given when it was said to be");
        prop_assert!(grant.is_none() || due || early, "and earlier only if it is short");
        prop_assert!(grant.is_some() || !early || !lends);
        if let Some(grant) = grant {
            let class = firsts.iter().find(|&(_, &first)| first == grant.job).map(|(&class, _)| class);
            prop_assert!(class.is_some(), "not the first of its class");
            if ahead.classes.as_ref().is_some_and(|classes| classes.policy() == Policy::Strict) {
                prop_assert_eq!(class, firsts.keys().next().copied());
            }
        }
        if let Some(grant) = grant {
            self.granted(grant)?;
        }
        Ok(grant.is_some())
    }

    fn granted(&mut self, grant: Grant) -> Result<(), TestCaseError> {
        let settings = *self.uplink.settings();
        let job = self.jobs.iter_mut().find(|job| job.id == grant.job).expect("whoever is granted is here");
        let wanted = job.wanted.take().expect("whoever is granted waits");
        let most_bytes = self.uplink.link.grant_bytes(wanted);
        match self.uplink.jobs[grant.job.index()].member {
            // A place earns no more than its own job's bytes, and a rest of those goes with the chunk before it.
            Some(_) => {
                let chunk_bytes = self.uplink.chunk_bytes();
                let most_bytes = self.uplink.link.grant_bytes(wanted.min(chunk_bytes.saturating_add(chunk_bytes / 2)));
                prop_assert!((1..=most_bytes).contains(&grant.bytes));
            }
            None => prop_assert_eq!(grant.bytes, most_bytes),
        }
        self.settled_wire_bytes += job.granted_wire_bytes;
        job.granted = grant.bytes;
        job.granted_wire_bytes = settings.wire_bytes(&job.path, grant.bytes);
        job.attained += grant.bytes;
        self.grants += 1;
        prop_assert!(job.size.is_none_or(|size| job.attained <= size), "served more than its size");
        Ok(())
    }

    fn agrees(&self) -> Result<(), TestCaseError> {
        let (uplink, stats) = (&self.uplink, self.uplink.stats());
        let waiting = self.jobs.iter().filter(|job| job.wanted.is_some()).count();
        let charged = self.settled_wire_bytes + self.jobs.iter().map(|job| job.granted_wire_bytes).sum::<u64>();
        prop_assert_eq!((stats.jobs, stats.waiting), (self.jobs.len(), waiting));
        prop_assert_eq!((stats.charged_bytes, stats.grants), (charged, self.grants));
        prop_assert_eq!(uplink.poll_timeout().is_some(), waiting > 0);
        for job in &self.jobs {
            prop_assert_eq!(uplink.attained_bytes(job.id), job.attained);
            prop_assert_eq!(uplink.remaining_bytes(job.id), job.size.map(|size| size - job.attained));
            let kept = uplink.jobs[job.id.index()].waiting;
            prop_assert_eq!(kept.map(|kept| kept.wanted_bytes), job.wanted);
            let it = &uplink.jobs[job.id.index()];
            let queued = it.queued;
            if it.lent_bytes() == 0 {
                prop_assert_eq!(queued.is_some(), job.wanted.is_some());
            }
            if let Some(rank) = queued {
                prop_assert!(
                    uplink.queues[uplink.class_of(job.id)].places.contains(&(rank, job.id)),
                    "it waits outside the queue"
                );
                prop_assert_eq!(rank, uplink.rank(job.id), "its place is out of date");
            }
            if let Guard::AheadFrom(at) = uplink.jobs[job.id.index()].guard {
                prop_assert!(uplink.fair_sharing.deadlines.iter().any(|&(when, _, id)| (when, id) == (at, job.id)));
            }
        }
        let mut lent: BTreeMap<_, i64> = BTreeMap::new();
        for (_, it) in &uplink.jobs {
            if let Some(member) = it.member {
                *lent.entry((member.group, member.class)).or_default() += member.lent_bytes;
                prop_assert!(!member.has_ended || member.lent_bytes < 0, "a place stays for nothing");
            }
        }
        prop_assert!(lent.values().all(|&lent| lent <= 0), "more is lent than owed: {lent:?}");
        let guarded = uplink.jobs.iter().filter(|(_, it)| matches!(it.guard, Guard::AheadFrom(_)));
        prop_assert_eq!(uplink.fair_sharing.deadlines.len(), guarded.count(), "a deadline without its job");
        Ok(())
    }

    /// Every job is served to its end, in as many grants as needed, each at the promised time.
    fn ends(mut self) -> Result<(), TestCaseError> {
        // A job of unknown length has one more byte.
        while let Some(at) = self.jobs.iter().position(|job| job.size.is_none()) {
            self.happens(&Event::RemainingKnown { pick: at, bytes: 1 })?;
        }
        while !self.jobs.is_empty() {
            for pick in (0..self.jobs.len()).rev() {
                let left = self.jobs[pick].left();
                match left {
                    0 => self.happens(&Event::Finished { pick, complete: true })?,
                    _ => self.happens(&Event::Wants { pick, bytes: left })?,
                }
            }
            let (waiting, before) = (self.uplink.stats().waiting, self.grants);
            self.happens(&Event::PolledAtTimeout)?;
            prop_assert_eq!(self.grants - before, u64::from(waiting > 0), "a grant at every time-out");
        }
        // Simulated jobs end too some day, and then no state is left.
        self.now = Instant::from_ns(u64::MAX >> 1);
        self.happens(&Event::Started { class: 0, group: None, size: Some(1), path: Path::UNKNOWN })?;
        self.happens(&Event::Finished { pick: 0, complete: false })?;
        prop_assert!(
            self.uplink.queues.iter().all(|line| line.places.is_empty() && line.waiting == 0)
                && self.uplink.groups.is_empty()
                && self.uplink.fair_sharing.deadlines.is_empty()
                && self.uplink.fair_sharing.simulated.is_idle()
        );
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_invariants_hold_whatever_happens(
        settings in settings(),
        share in option::of(share()),
        events in vec(event(), 1..150),
    ) {
        for order in Order::ALL {
            let mut model = Model::new(Settings { order, ..settings });
            model.uplink.handle_share(model.now, share.clone(), &[]).unwrap();
            for (i, event) in events.iter().enumerate() {
                model.happens(event).map_err(|error| TestCaseError::fail(format!("{order}, event {i}: {error}")))?;
            }
            model.ends().map_err(|error| TestCaseError::fail(format!("{order}, at the end: {error}")))?;
        }
    }
}
