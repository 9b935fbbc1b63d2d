//! The events of a test; times are in nanoseconds since the start.

use std::env;

use proptest::{collection::vec, option, prelude::*, sample::select};
use scheduler::{Chunk, Order, Pacing, Path, Rate, uplink::Settings};

#[derive(Clone, Debug)]
pub struct Plan {
    pub settings: Settings,
    pub jobs: Vec<Job>,
    /// By time.
    pub changes: Vec<(u64, Change)>,
    /// Changes of the scheduler's clock: the time and the shift, by time.
    pub jumps: Vec<(u64, i64)>,
    /// Delay of timers.
    pub late_ns: u64,
}

#[derive(Clone, Debug)]
pub struct Job {
    pub at_ns: u64,
    pub bytes: u64,
    pub told: SizeKnown,
    pub path: Path,
    /// Bytes that are ready at a time.
    pub piece_bytes: u64,
    pub socket: Socket,
    pub gives_up_after_ns: Option<u64>,
}

/// When the scheduler is told the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeKnown {
    AtOnce,
    /// After this many bytes were sent.
    After(u64),
    Never,
}

/// A buffer that the client empties at a rate.
#[derive(Clone, Copy, Debug)]
pub struct Socket {
    pub buffer_bytes: u64,
    pub drains: Rate,
}

impl Socket {
    pub const ROOMY: Self = Self { buffer_bytes: u64::MAX, drains: Rate::MAX };
}

#[derive(Clone, Copy, Debug)]
pub enum Change {
    Rate(Option<Rate>),
    Settings(Settings),
    Path(usize, Path),
    /// Bytes without a grant.
    Unranked(u64),
}

/// Random plans, on links between idle and overloaded.
pub fn any() -> impl Strategy<Value = Plan> {
    let late_ns = prop_oneof![Just(0), 0..3 * MS];
    let changes = vec((0..300 * MS, change()), 0..6);
    (settings(), vec(job(), 1..40), changes, late_ns).prop_map(|(settings, mut jobs, mut changes, late_ns)| {
        let mut at_ns = 0;
        for job in &mut jobs {
            // Until here `at_ns` holds the gap to the job before.
            at_ns += job.at_ns;
            job.at_ns = at_ns;
        }
        changes.sort_by_key(|&(at_ns, _)| at_ns);
        Plan { settings, jobs, changes, jumps: Vec::new(), late_ns }
    })
}

/// Shifts of the clock, forward and back, up to half a minute.
pub fn jumps() -> impl Strategy<Value = Vec<(u64, i64)>> {
    let by_ns = prop_oneof![
        -(MS as i64)..MS as i64,
        -200 * (MS as i64)..200 * MS as i64,
        -30_000 * (MS as i64)..30_000 * MS as i64
    ];
    vec((0..300 * MS, by_ns), 1..8).prop_map(|mut jumps| {
        jumps.sort_by_key(|&(at_ns, _)| at_ns);
        jumps
    })
}

/// Number of random cases: from the environment, or this default.
pub fn cases(unless_told: u32) -> u32 {
    env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(unless_told)
}

fn job() -> impl Strategy<Value = Job> {
    let gap_ns = prop_oneof![2 => Just(0), 6 => 0..8 * MS, 1 => 0..100 * MS];
    let bytes = prop_oneof![6 => 1..4_000u64, 3 => 4_000..20_000u64, 1 => 20_000..200_000u64];
    let told = prop_oneof![
        6 => Just(SizeKnown::AtOnce),
        1 => (0..30_000u64).prop_map(SizeKnown::After),
        1 => Just(SizeKnown::Never),
    ];
    let piece_bytes = prop_oneof![2 => Just(u64::MAX), 1 => 1..10_000u64];
    let gives_up = option::weighted(0.15, 0..100 * MS);
    (gap_ns, bytes, told, path(), piece_bytes, socket(), gives_up).prop_map(
        |(at_ns, bytes, told, path, piece_bytes, socket, gives_up_after_ns)| Job {
            at_ns,
            bytes,
            told,
            path,
            piece_bytes,
            socket,
            gives_up_after_ns,
        },
    )
}

fn socket() -> impl Strategy<Value = Socket> {
    let drains = select(&["100kbit", "1mbit", "50mbit"][..]).prop_map(|text| text.parse().unwrap());
    let narrow = (500..30_000u64, drains).prop_map(|(buffer_bytes, drains)| Socket { buffer_bytes, drains });
    prop_oneof![2 => Just(Socket::ROOMY), 1 => narrow]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => option::weighted(0.9, rate()).prop_map(Change::Rate),
        3 => settings().prop_map(Change::Settings),
        1 => (0..40usize, path()).prop_map(|(job, path)| Change::Path(job, path)),
        1 => prop_oneof![3 => 1..20_000u64, 1 => 20_000..500_000u64].prop_map(Change::Unranked),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let guard = option::weighted(0.4, 1.0..6.0f64);
    let pacing = prop_oneof![
        3 => Just(Pacing::SERVER),
        1 => Just(Pacing { chunk: Chunk::Bytes(1448), ..Pacing::EXACT }),
        1 => (0..3 * MS, 0..MS, 0..200u64, 1..50_000u64).prop_map(|(ahead_ns, slack_ns, early_percent, bytes)| {
            Pacing { ahead_ns, slack_ns, early_percent, chunk: Chunk::Bytes(bytes) }
        }),
    ];
    let small_bytes = 1..10_000u64;
    (select(&Order::ALL[..]), rate(), guard, pacing, small_bytes).prop_map(
        |(order, rate, guard_stretch, pacing, small_bytes)| Settings {
            order,
            rate: Some(rate),
            guard_stretch,
            pacing,
            small_bytes,
            ..Settings::default()
        },
    )
}

fn rate() -> impl Strategy<Value = Rate> {
    select(&["300kbit", "2mbit", "9.7mbit", "100mbit", "1gbit"][..]).prop_map(|text| text.parse().unwrap())
}

fn path() -> impl Strategy<Value = Path> {
    (1..300 * MS, 1..80u32, select(&[536, 1448][..]), prop_oneof![Just(0), 1_000..10_000_000u64]).prop_map(
        |(rtt_ns, window_segments, mss_bytes, delivery_bytes_per_second)| Path {
            rtt_ns,
            window_segments,
            mss_bytes,
            delivery_bytes_per_second,
        },
    )
}

const MS: u64 = 1_000_000;
