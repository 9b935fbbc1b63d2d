//! Plans of the test: random responses, clients and changes of the configuration.

use std::env;

use proptest::{bool::weighted, collection::vec, option, prelude::*, sample::select};
use scheduler::{Order, Rate};
use server::config::{Cutoffs, Enforce, UplinkConfig, UplinkRate};

/// The events of a test. Times are in nanoseconds since the start.
#[derive(Clone, Debug)]
pub struct Plan {
    pub order: Order,
    pub rate: Rate,
    pub guard_stretch: Option<f64>,
    pub jobs: Vec<Job>,
    /// Changes of the configuration, by time.
    pub changes: Vec<Change>,
}

/// A response on a connection of its own.
#[derive(Clone, Debug)]
pub struct Job {
    pub at_ns: u64,
    pub head_bytes: u64,
    pub body_bytes: u64,
    /// Whether the length of the body is known when it begins.
    pub announced: bool,
    /// Size of the body's pieces in bytes. Each is offered to the gate when the one before is gone.
    pub piece_bytes: u64,
    /// Whether the job offers only half as much when it comes back with its grant.
    pub shrinks: bool,
    /// A client with a small buffer that reads at intervals; `None` for one that reads at once.
    pub reads_every_ns: Option<u64>,
    pub gives_up_after_ns: Option<u64>,
    /// The job leaves when it has been granted bytes this many times after waiting, with the last grant
    /// unused.
    pub gives_up_at_turn: Option<u32>,
    /// Whether the connection stays when the response is out.
    pub is_kept_alive: bool,
}

/// A change of the configuration by the operator.
#[derive(Clone, Debug)]
pub struct Change {
    pub at_ns: u64,
    pub order: Order,
    pub rate: Rate,
    pub guard_stretch: Option<f64>,
}

/// The cutoff of `quick-fix`.
pub const SMALL_BYTES: u64 = 2_000;
/// Bytes of a segment's headers.
pub const OVERHEAD_BYTES: u32 = 66;

impl Job {
    /// A job at the start, to a client that reads everything at once.
    pub fn plain() -> Self {
        Self {
            at_ns: 0,
            head_bytes: 250,
            body_bytes: 1000,
            announced: true,
            piece_bytes: 1 << 20,
            shrinks: false,
            reads_every_ns: None,
            gives_up_after_ns: None,
            gives_up_at_turn: None,
            is_kept_alive: false,
        }
    }

    /// Unsent bytes of the piece at `sent_bytes`. The head is part of the first piece.
    pub fn offered_bytes(&self, sent_bytes: u64, came_back: bool) -> u64 {
        let ends = |piece: u64| (self.head_bytes + (piece + 1) * self.piece_bytes).min(self.all_bytes());
        let left = ends(sent_bytes.saturating_sub(self.head_bytes) / self.piece_bytes) - sent_bytes;
        if came_back && self.shrinks { left.div_ceil(2) } else { left }
    }

    pub fn all_bytes(&self) -> u64 {
        self.head_bytes + self.body_bytes
    }
}

impl Plan {
    /// The configuration from the start, and after each change.
    pub fn configs(&self) -> Vec<UplinkConfig> {
        let first = (self.order, self.rate, self.guard_stretch);
        let changed = self.changes.iter().map(|it| (it.order, it.rate, it.guard_stretch));
        std::iter::once(first).chain(changed).map(|(order, rate, guard)| config(order, rate, guard)).collect()
    }
}

fn config(order: Order, rate: Rate, guard_stretch: Option<f64>) -> UplinkConfig {
    UplinkConfig {
        rate: UplinkRate::Given(rate),
        order,
        enforce: Enforce::Server,
        line: None,
        cutoffs: Cutoffs::Given(vec![SMALL_BYTES]),
        guard_stretch,
        utilisation: Some(1.0),
        segment_overhead_bytes: OVERHEAD_BYTES,
        device: None,
        keep: Default::default(),
    }
}

/// Random plans: up to 24 responses that keep the link busy most of the time.
pub fn any() -> impl Strategy<Value = Plan> {
    let change = (0..150 * MS, order(), rate(), guard()).prop_map(|(at_ns, order, rate, guard_stretch)| Change {
        at_ns,
        order,
        rate,
        guard_stretch,
    });
    (order(), rate(), guard(), vec(job(), 1..24), vec(change, 0..4)).prop_map(
        |(order, rate, guard_stretch, mut jobs, mut changes)| {
            let mut at_ns = 0;
            for job in &mut jobs {
                // Until here `at_ns` holds the gap to the job before.
                at_ns += job.at_ns;
                job.at_ns = at_ns;
            }
            changes.sort_by_key(|it| it.at_ns);
            Plan { order, rate, guard_stretch, jobs, changes }
        },
    )
}

/// Random plans that [`simulator::Paced`] can play: whole responses on connections that stay open, to clients
/// that read everything at once.
pub fn of_whole_responses() -> impl Strategy<Value = Plan> {
    any().prop_map(|plan| {
        let whole = |it: &Job| Job { at_ns: it.at_ns, body_bytes: it.body_bytes, is_kept_alive: true, ..Job::plain() };
        Plan { jobs: plan.jobs.iter().map(whole).collect(), changes: Vec::new(), ..plan }
    })
}

fn job() -> impl Strategy<Value = Job> {
    let gap_ns = prop_oneof![1 => Just(0), 4 => 0..10 * MS];
    let body_bytes = prop_oneof![1 => Just(0), 6 => 1..4_000u64, 3 => 4_000..20_000u64, 1 => 20_000..60_000u64];
    let piece_bytes = prop_oneof![2 => Just(1 << 20), 1 => 500..10_000u64];
    let reads = option::weighted(0.25, MS..30 * MS);
    let gives_up = (option::weighted(0.15, 0..60 * MS), option::weighted(0.15, 1..6u32));
    let (announced, shrinks) = (weighted(0.8), weighted(0.2));
    (gap_ns, 100..400u64, body_bytes, announced, piece_bytes, shrinks, reads, gives_up).prop_map(
        |(at_ns, head_bytes, body_bytes, announced, piece_bytes, shrinks, reads_every_ns, gives_up)| Job {
            at_ns,
            head_bytes,
            body_bytes,
            announced,
            piece_bytes,
            shrinks,
            reads_every_ns,
            gives_up_after_ns: gives_up.0,
            gives_up_at_turn: gives_up.1,
            is_kept_alive: false,
        },
    )
}

/// Orders that need the path are left out, because TCP measures the loopback path in real time.
fn order() -> impl Strategy<Value = Order> {
    let orders: Vec<Order> = Order::ALL.into_iter().filter(|order| !order.needs_path()).collect();
    select(orders)
}

fn rate() -> impl Strategy<Value = Rate> {
    select(&["2mbit", "8mbit", "9.7mbit", "30mbit", "100mbit"][..]).prop_map(|text| text.parse().unwrap())
}

fn guard() -> impl Strategy<Value = Option<f64>> {
    option::weighted(0.3, 1.0..6.0f64)
}

/// Number of random cases: that of the environment, otherwise `unless_told`.
pub fn cases(unless_told: u32) -> u32 {
    env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(unless_told)
}

const MS: u64 = 1_000_000;
