//! The scheduler in whole simulated lives of a server: clients that come, read slowly and leave, sockets that take part of what
//! they are offered, sizes that are told late or never, an operator who changes rate and order, and a clock that jumps.
//!
//! What is asserted needs no model of the scheduler: nobody is lost, nobody is served twice or more than there is, whoever
//! waits waits for the link and for nothing else, the link is never given more than it carries, and in the end nothing is kept.

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
