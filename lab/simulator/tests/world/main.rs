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

use self::{plan::Plan, server::Server};

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
