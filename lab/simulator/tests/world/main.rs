//! Whole simulated lives of a server with the scheduler. Clients come, read slowly and leave. Sockets accept
//! part of the offered bytes. Sizes are told late or never. An operator changes rate and order, and the clock
//! jumps.
//!
//! The assertions need no model of the scheduler. No job is lost, and none is served twice or beyond its
//! size. A waiting job waits only for the link. The link never gets more than it can carry. At the end no
//! state is left.

mod plan;
mod server;

use proptest::prelude::*;
use scheduler::{Chunk, Order, Pacing, Path, uplink::Settings};

use self::{
    plan::{Change, Job, Plan, SizeKnown, Socket},
    server::Server,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: plan::cases(200), ..ProptestConfig::default() })]

    #[test]
    fn everybody_is_served_once_and_the_link_is_kept_busy(plan in plan::any()) {
        Server::new(&plan).lives()?;
    }

    #[test]
    fn a_clock_that_jumps_loses_nobody(plan in plan::any(), jumps in plan::jumps()) {
        Server::new(&Plan { jumps, ..plan }).lives()?;
    }
}

/// A grant takes 705 ms of the link at 300 kbit/s; 1 ns later come bytes without a grant. The job waits for
/// its last byte.
fn ungranted_behind_a_long_grant(ungranted_bytes: u64) -> Result<(), TestCaseError> {
    let settings = Settings {
        order: Order::Fair,
        rate: "300kbit".parse().ok(),
        pacing: Pacing { chunk: Chunk::Bytes(23_547), ..Pacing::EXACT },
        ..Settings::default()
    };
    let job = Job {
        at_ns: 6_283_507,
        bytes: 23_548,
        told: SizeKnown::AtOnce,
        path: Path { rtt_ns: 1, window_segments: 1, mss_bytes: 536, delivery_bytes_per_second: 0 },
        piece_bytes: u64::MAX,
        socket: Socket::ROOMY,
        gives_up_after_ns: None,
    };
    let changes = vec![(6_283_508, Change::Unranked(ungranted_bytes))];
    Server::new(&Plan { settings, jobs: vec![job], changes, jumps: Vec::new(), late_ns: 0 }).lives()
}

#[test]
fn bytes_without_a_grant_are_carried_even_behind_a_long_grant() -> Result<(), TestCaseError> {
    // 295 ms: together they take 560 us more than a second.
    ungranted_behind_a_long_grant(11_070)
}

#[test]
fn a_flood_of_bytes_without_a_grant_delays_the_next_grant_by_a_second() -> Result<(), TestCaseError> {
    // 27 s.
    ungranted_behind_a_long_grant(1_000_000)
}
