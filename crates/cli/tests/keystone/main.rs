//! The keystone test: the server's driver and the scheduler in a simulation make the same decisions. The same
//! events on an uplink are played through both, under a clock that the test moves. Times, jobs, bytes and
//! reasons must be equal.
//!
//! In the driver everything is real but the clock: the gate, its wakers and its alarm, and TCP sockets on the
//! loopback. Some sockets accept everything, some only a part of the offered bytes. The kernel decides how
//! much a socket accepts, and when it accepts more. So the test records that together with the arrivals, and
//! the simulation's sockets repeat it. The simulation has to find by itself which job may write how much,
//! when and why.

mod log;
mod plan;
mod real;
mod simulated;

use std::time::Duration;

use proptest::prelude::*;
use scheduler::Order;

use self::{
    plan::{Change, Job, Plan},
    real::Decision,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: plan::cases(64), ..ProptestConfig::default() })]

    #[test]
    fn the_driver_decides_what_a_simulation_of_it_decides(plan in plan::any()) {
        let real = real::play(&plan);
        agree(&real.decisions, &simulated::play(&plan, &real))?;
    }

    /// The pacer of the simulator is the model behind predictions.
    #[test]
    fn the_driver_decides_what_the_pacer_of_the_simulator_decides(plan in plan::of_whole_responses()) {
        let real = real::play(&plan);
        agree(&real.decisions, &simulated::play_paced(&plan, &real))?;
    }
}

fn agree(real: &[Decision], simulated: &[Decision]) -> Result<(), TestCaseError> {
    for (i, (real, simulated)) in real.iter().zip(simulated).enumerate() {
        prop_assert_eq!(real, simulated, "decision {}: the driver's, and the simulation's", i);
    }
    prop_assert_eq!(real.len(), simulated.len(), "decisions in all");
    Ok(())
}

/// A plan of three jobs that overlap, on a link of a byte a microsecond.
fn three(order: Order) -> Plan {
    let job = |at_ns, body_bytes| Job { at_ns, body_bytes, ..Job::plain() };
    Plan {
        order,
        rate: "8mbit".parse().unwrap(),
        guard_stretch: None,
        jobs: vec![job(0, 50_000), job(2_000_000, 20_000), job(9_000_000, 3_000)],
        changes: vec![],
    }
}

/// The order in which jobs were granted bytes, without repeats in a row.
fn turns(plan: &Plan) -> Vec<usize> {
    let mut turns: Vec<usize> = real::play(plan).decisions.iter().map(|it| it.job).collect();
    turns.dedup();
    turns
}

#[test]
fn what_is_compared_is_what_the_orders_mean() {
    assert_eq!(turns(&three(Order::Fifo)), [0, 1, 2]);
    assert_eq!(turns(&three(Order::Srpt)), [0, 1, 2, 1, 0]);
}

#[test]
fn a_change_of_order_and_rate_under_way_counts_from_the_next_decision() {
    let change = |at_ns, order, rate: &str| Change { at_ns, order, rate: rate.parse().unwrap(), guard_stretch: None };
    let changes = vec![change(12_000_000, Order::Srpt, "2mbit"), change(60_000_000, Order::Fifo, "50mbit")];
    let plan = Plan { changes, ..three(Order::Fifo) };
    assert_eq!(turns(&plan), [0, 2, 1, 0, 1]);
    let real = real::play(&plan);
    agree(&real.decisions, &simulated::play(&plan, &real)).unwrap();
}

#[test]
fn a_socket_that_takes_part_and_a_client_that_leaves_make_room_at_once() {
    let mut plan = three(Order::Fifo);
    // The first job's client takes little, in long intervals; the second job's client leaves.
    plan.jobs[0].reads_every_ns = Some(40_000_000);
    plan.jobs[1].gives_up_after_ns = Some(9_000_000);
    let real = real::play(&plan);
    let blocked = real.takes[0].iter().filter(|&&taken| taken == 0).count();
    assert!(blocked > 0, "a socket with a small buffer and a client that does not read is full some time");
    agree(&real.decisions, &simulated::play(&plan, &real)).unwrap();
    let served = |job: usize| real.takes[job].iter().sum::<u64>();
    assert_eq!((served(0), served(2)), (50_250, 3_250));
    assert!(served(1) < 20_250);
}

#[test]
fn leave_that_comes_back_is_for_others_at_once() {
    let earlier = real::earlier_when_leave_comes_back(&three(Order::Fifo).configs()[0]);
    // A chunk of 2896 bytes minus the one that was written, at a byte a microsecond, in one segment on the
    // loopback.
    assert_eq!(earlier, Duration::from_micros(2895));
}
