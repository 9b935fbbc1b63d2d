//! Measures the promises of shares, with a simulated site behind the gateway.
//!
//! `cargo run -p serpent-simulator --example shares --release` prints the figures; tests check them.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use scheduler::{
    Instant,
    admission::{Admission, Arrival, Decision, RequestId, ResourceId, Settings},
    class::{Class, ClassId},
    share::Policy,
};

use super::{Demand, FinishedRequest, Law, Load, Need, Scenario, Station};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// The weights of the classes.
pub const WEIGHTS: [u32; 3] = [4, 2, 1];

/// How far classes were from their parts of the requests.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Number of requests examined; all classes had waiting requests throughout.
    pub requests: usize,
    /// The largest deviation from a class's part of any 1,000 requests in a row, relative to that part.
    pub of_1000: f64,
    /// The same of any 100.
    pub of_100: f64,
}

/// Weighted sharing of `window` slots, while all classes want more.
pub fn weighted(window: u32, seed: u64) -> Parts {
    let finished = run(Policy::Weighted, window, [0; 3], [users(window); 3], seed);
    let mut started: Vec<(u64, usize)> =
        finished.iter().filter_map(|it| Some((it.started_ns?, it.class.index()))).collect();
    started.retain(|&(at_ns, _)| (WARM_UP_NS..UNTIL_NS).contains(&at_ns));
    started.sort_by_key(|&(at_ns, _)| at_ns);
    let total: u32 = WEIGHTS.iter().sum();
    let off = |run: usize| {
        let of_run = |window: &[(u64, usize)]| {
            (0..3)
                .map(|class| {
                    let due = run as f64 * f64::from(WEIGHTS[class]) / f64::from(total);
                    let had = window.iter().filter(|it| it.1 == class).count() as f64;
                    (had / due - 1.0).abs()
                })
                .fold(0.0, f64::max)
        };
        started.windows(run).map(of_run).fold(0.0, f64::max)
    };
    Parts { requests: started.len(), of_1000: off(1000), of_100: off(100) }
}

/// Counts of held slots.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holdings {
    /// Times at which the state changed.
    pub moments: u64,
    /// Of them, those after which every class had waiting requests.
    pub all_waited: u64,
    /// The largest distance of held slots from the exact share, at these times.
    pub off_slots: f64,
    /// The largest excess of a class over its exact share, at any time.
    pub over_slots: f64,
    /// Times after which a request waited while an unreserved slot was free.
    pub idle: u64,
    /// Slots given to a class at its share, while a waiting class had less than its share.
    pub wronged: u64,
    /// Times after which a class with a reserve waited and held less than the reserve.
    pub reserve_missed: u64,
}

/// Slots divided by a policy. With `busy`, all classes always want more; else the first comes and goes.
pub fn capacity(policy: Policy, window: u32, reserved: [u32; 3], busy: bool, seed: u64) -> Holdings {
    let first = if busy { users(window) } else { window.div_ceil(2) };
    let finished = run(policy, window, reserved, [first, users(window), users(window)], seed);
    let total: u32 = WEIGHTS.iter().sum();
    let exact = WEIGHTS.map(|weight| f64::from(window * weight) / f64::from(total));
    // At equal times, ends come before arrivals before starts.
    let mut events: BTreeMap<u64, Vec<(u8, usize)>> = BTreeMap::new();
    for it in &finished {
        let Some(started_ns) = it.started_ns else { continue };
        for (at_ns, what) in [(it.end_ns, 0), (it.arrived_ns, 1), (started_ns, 2)] {
            events.entry(at_ns).or_default().push((what, it.class.index()));
        }
    }
    let (mut held, mut waiting, mut seen) = ([0i64; 3], [0i64; 3], Holdings::default());
    for (at_ns, mut of_moment) in events {
        let counts = (WARM_UP_NS..UNTIL_NS).contains(&at_ns);
        of_moment.sort_unstable();
        for (what, class) in of_moment {
            match what {
                0 => held[class] -= 1,
                1 => waiting[class] += 1,
                _ => {
                    let has_share = held[class] as f64 >= exact[class].ceil().max(f64::from(reserved[class]));
                    let short = (0..3).any(|other| waiting[other] > 0 && (held[other] as f64) < exact[other].floor());
                    seen.wronged += u64::from(counts && has_share && short);
                    (held[class], waiting[class]) = (held[class] + 1, waiting[class] - 1);
                }
            }
        }
        if !counts {
            continue;
        }
        let off = |class: usize| held[class] as f64 - exact[class];
        seen.moments += 1;
        if waiting.iter().all(|&n| n > 0) {
            seen.all_waited += 1;
            seen.off_slots = (0..3).map(|class| off(class).abs()).fold(seen.off_slots, f64::max);
        }
        seen.over_slots = (0..3).map(off).fold(seen.over_slots, f64::max);
        let kept: i64 = (0..3).map(|class| (i64::from(reserved[class]) - held[class]).max(0)).sum();
        let running: i64 = held.iter().sum();
        seen.idle += u64::from(waiting.iter().any(|&n| n > 0) && running + kept < i64::from(window));
        let missed = (0..3).any(|class| waiting[class] > 0 && held[class] < i64::from(reserved[class]));
        seen.reserve_missed += u64::from(missed);
    }
    seen
}

const WARM_UP_NS: u64 = 2 * SECOND;
/// Requests that come by then have ended when the run ends.
const UNTIL_NS: u64 = 40 * SECOND;

/// Enough users that some always wait.
fn users(window: u32) -> u32 {
    3 * window + 20
}

fn run(policy: Policy, window: u32, reserved: [u32; 3], users: [u32; 3], seed: u64) -> Vec<FinishedRequest> {
    let class = |class: usize| Class { weight: WEIGHTS[class], reserved_slots: reserved[class], ..Class::default() };
    let load = |class: usize| Load {
        class: ClassId(class as u16),
        resource: ResourceId(0),
        needs: vec![Need { station: 0, mean_ns: 10 * MS, law: Law::Exponential }],
        demand: Demand::Closed { users: users[class], think_ns: 10 * MS },
        patience_ns: None,
        silent_ns: None,
    };
    let scenario = Scenario {
        stations: vec![Station { servers: window, ..Station::SINGLE }],
        loads: (0..3).map(load).collect(),
        admission: Settings::single_window((0..3).map(class).collect(), 1, policy, window),
        warm_up_ns: 0,
        measured_ns: UNTIL_NS + 10 * SECOND,
        seed,
    };
    let mut finished = Vec::new();
    scenario.run(|request| finished.push(request)).expect("the scenario is sound");
    finished
}

/// A few requests with deadlines, in whole units of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Arrival, service time and deadline of each request.
    pub requests: Vec<(u64, u64, u64)>,
    /// Slots; each serves one request at a time.
    pub slots: u32,
}

/// A kind of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One slot; all requests are there from the beginning.
    Together,
    /// Equal service times; requests come at multiples of it.
    EqualInStep,
    /// Equal service times.
    Equal,
    /// Any service times, at any time, one slot.
    Any,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Together, Self::EqualInStep, Self::Equal, Self::Any];

    /// A random instance of the kind.
    pub fn instance(self, random: &mut impl RngExt) -> Instance {
        let slots = if matches!(self, Self::Equal | Self::EqualInStep) { random.random_range(1..=3) } else { 1 };
        let requests = (0..random.random_range(2..=6)).map(|_| {
            let (comes, service) = match self {
                Self::Together => (0, random.random_range(1..=6)),
                Self::EqualInStep => (4 * random.random_range(0..4), 4),
                Self::Equal => (random.random_range(0..14), 4),
                Self::Any => (random.random_range(0..14), random.random_range(1..=6)),
            };
            (comes, service, comes + service + random.random_range(0..12u64))
        });
        Instance { requests: requests.collect(), slots }
    }
}

/// Counts of instances whose deadlines were met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Instances tried.
    pub instances: u64,
    /// Instances in which some order meets all deadlines; slots may stay free on purpose.
    pub possible: u64,
    /// Of these, those in which *edf* did.
    pub met: u64,
    /// Instances in which some order meets all deadlines without a free slot while a request waits.
    pub possible_working: u64,
    /// Of these, those in which *edf* did.
    pub met_working: u64,
}

/// Tries random instances of a kind with every possible order, and with the gateway's *edf*.
pub fn deadlines(kind: Kind, instances: u64, seed: u64) -> Kept {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut kept = Kept { instances, ..Kept::default() };
    for _ in 0..instances {
        let instance = kind.instance(&mut random);
        let met = u64::from(instance.edf_meets_all());
        let (possible, working) = (instance.is_possible(true), instance.is_possible(false));
        kept.possible += u64::from(possible);
        kept.possible_working += u64::from(working);
        kept.met += u64::from(possible) * met;
        kept.met_working += u64::from(working) * met;
    }
    kept
}

impl Instance {
    /// Whether the gateway meets all deadlines; each request has its own class.
    pub fn edf_meets_all(&self) -> bool {
        let class =
            |&(comes, _, due): &(u64, u64, u64)| Class { deadline_ns: Some((due - comes) * MS), ..Class::default() };
        let classes = self.requests.iter().map(class).collect();
        let settings = Settings::single_window(classes, 1, Policy::Edf, self.slots);
        let mut admission = Admission::new(settings).expect("the settings are sound");
        let mut ids: Vec<Option<RequestId>> = vec![None; self.requests.len()];
        let mut ends: BTreeMap<(u64, usize), RequestId> = BTreeMap::new();
        let mut met = true;
        let end = self.requests.iter().map(|&(comes, service, _)| comes + service).sum();
        for time in 0..=end {
            let now = Instant::from_ns(time * MS);
            while let Some(entry) = ends.first_entry().filter(|entry| entry.key().0 <= time) {
                admission.handle_finished(now, entry.remove());
            }
            for (i, &(_, service, _)) in self.requests.iter().enumerate().filter(|(_, it)| it.0 == time) {
                let (class, expected_ns) = (ClassId(i as u16), Some(service * MS));
                let arrival = Arrival { class, resource: ResourceId(0), client: 0, expected_ns, within_ns: None };
                ids[i] = admission.handle_arrived(now, arrival).ok();
            }
            while let Some(decision) = admission.poll_decision(now) {
                let Decision::Start(start) = decision else { continue };
                let i = ids.iter().position(|id| *id == Some(start.request)).expect("whoever starts has come");
                let (_, service, due) = self.requests[i];
                ends.insert((time + service, i), start.request);
                met &= time + service <= due;
            }
        }
        met && ends.is_empty()
    }

    /// Whether any order meets all deadlines, with or without slots free on purpose.
    pub fn is_possible(&self, may_idle: bool) -> bool {
        let mut left = self.requests.clone();
        possible(&mut left, &mut vec![0; self.slots as usize], may_idle)
    }
}

fn possible(left: &mut Vec<(u64, u64, u64)>, free_from: &mut [u64], may_idle: bool) -> bool {
    let Some(first_comes) = left.iter().map(|it| it.0).min() else { return true };
    let slot = (0..free_from.len()).min_by_key(|&slot| free_from[slot]).expect("there is a slot");
    let free = free_from[slot];
    // Without idling, a present request goes when the slot is free, or else the first to come.
    let decided = free.max(first_comes);
    for i in 0..left.len() {
        let (comes, service, due) = left[i];
        let start = free.max(comes);
        if start + service > due || (!may_idle && comes > decided) {
            continue;
        }
        left.swap_remove(i);
        free_from[slot] = start + service;
        let met = possible(left, free_from, may_idle);
        free_from[slot] = free;
        left.push((comes, service, due));
        let last = left.len() - 1;
        left.swap(i, last);
        if met {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weighted_gives_four_to_two_to_one() {
        for (window, seed) in [(1, 1), (8, 2), (30, 3)] {
            let parts = weighted(window, seed);
            assert!(parts.requests > 3_000, "{parts:?}");
            assert!(parts.of_1000 <= 0.02 && parts.of_100 <= 0.1, "{parts:?}");
        }
    }

    #[test]
    fn shared_and_fixed_capacity_are_exact_to_a_slot_at_every_moment() {
        for policy in [Policy::Shared, Policy::Fixed] {
            for window in [7, 10, 16, 50] {
                let held = capacity(policy, window, [0; 3], true, 1);
                assert!(held.all_waited > 5_000 && held.all_waited == held.moments, "{policy} {window}: {held:?}");
                assert!(held.off_slots < 1.0 && held.over_slots < 1.0, "{policy} {window}: {held:?}");
                assert_eq!((held.idle, held.wronged), (0, 0), "{policy} {window}: {held:?}");
            }
        }
    }

    #[test]
    fn what_one_class_does_not_use_is_lent_or_not_and_reserves_never() {
        for window in [7, 16, 50] {
            let fixed = capacity(Policy::Fixed, window, [0; 3], false, 1);
            assert!(fixed.over_slots < 1.0 && fixed.idle > 0, "{window}: {fixed:?}");
            let shared = capacity(Policy::Shared, window, [0; 3], false, 1);
            assert!(shared.over_slots > 1.0, "{window}: {shared:?}");
            assert_eq!((shared.idle, shared.wronged), (0, 0), "{window}: {shared:?}");
            let reserved = capacity(Policy::Shared, window, [2, 0, 0], false, 1);
            assert_eq!((reserved.idle, reserved.wronged, reserved.reserve_missed), (0, 0, 0), "{window}: {reserved:?}");
        }
    }

    #[test]
    fn edf_meets_every_deadline_that_any_order_could_meet_as_far_as_that_goes() {
        for kind in [Kind::Together, Kind::EqualInStep] {
            let kept = deadlines(kind, 600, 1);
            assert!(kept.possible > 50 && kept.met == kept.possible, "{kind:?}: {kept:?}");
        }
        // At any time: compared with all orders that keep no slot free on purpose.
        let kept = deadlines(Kind::Equal, 600, 1);
        assert!(kept.possible_working > 50 && kept.met_working == kept.possible_working, "{kept:?}");
    }

    #[test]
    fn beyond_that_it_does_not() {
        // Waiting for the second request is the only solution.
        let idle = Instance { requests: vec![(0, 4, 10), (1, 4, 5)], slots: 1 };
        assert!(idle.is_possible(true) && !idle.is_possible(false) && !idle.edf_meets_all());
        // Unequal service times: the short request must go first, though the long one is due earlier, so that
        // the slot is free.
        let unequal = Instance { requests: vec![(0, 4, 8), (0, 1, 9), (1, 1, 2)], slots: 1 };
        assert!(unequal.is_possible(false) && !unequal.edf_meets_all());
    }
}
