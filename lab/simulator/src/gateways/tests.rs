use proptest::prelude::*;
use scheduler::{class::Class, share::Policy};

use super::*;

const SECOND: u64 = 1_000_000_000;

fn classes() -> Vec<Class> {
    let of = |weight, delay_ratio, deadline_ms: u64| Class {
        weight,
        delay_ratio,
        deadline_ns: Some(deadline_ms * 1_000_000),
        ..class()
    };
    vec![of(4, 1, 100), of(2, 2, 200), of(1, 4, 400)]
}

#[test]
fn one_gateway_alone_is_the_queue_of_the_textbook() {
    let mut setup = Setup::new(1, 1, 0.5);
    setup.until_ns = 405 * SECOND;
    let mean_ms = setup.run_alone().all().mean_ms();
    // M/M/1: the service time over the part that is free.
    assert!((mean_ms / 40.0 - 1.0).abs() < 0.05, "{mean_ms}");
}

#[test]
fn a_seed_decides_everything() {
    let mut setup = Setup::new(3, 12, 0.9);
    setup.until_ns = 15 * SECOND;
    setup.network.loss = 0.01;
    let figures = |setup: &Setup| {
        let it = setup.run();
        (it.all().done, it.all().mean_ms().to_bits(), it.messages.to_bits(), it.sound)
    };
    assert_eq!(figures(&setup), figures(&setup));
    let other = Setup { seed: 2, ..setup.clone() };
    assert_ne!(figures(&setup), figures(&other));
    // The requests are the same for any number of gateways.
    let many = Setup { gateways: 7, ..setup.clone() };
    assert_eq!(many.run_alone().all().mean_ms().to_bits(), setup.run_alone().all().mean_ms().to_bits());
}

#[test]
fn several_gateways_are_nearly_as_fast_as_one_and_never_exceed_the_window() {
    for (gateways, window, load, bound) in
        [(1, 40, 0.8, 1.01), (2, 40, 0.8, 1.05), (8, 40, 0.8, 1.05), (2, 40, 0.95, 1.16), (8, 40, 0.95, 1.16)]
    {
        let mut setup = Setup::new(gateways, window, load);
        setup.until_ns = 65 * SECOND;
        let (several, one) = (setup.run(), setup.run_alone());
        let ratio = several.all().mean_ms() / one.all().mean_ms();
        println!("{gateways} {load}: {ratio:.3}, {:.1} asks", several.asks);
        assert!(ratio < bound, "{gateways} gateways at {load}: {ratio}");
        assert_eq!((several.sound.over_ns, several.lost), (0, 0), "{several:?}");
        assert!(several.sound.most <= window && several.faulty.seen_ns == 0);
    }
}

#[test]
fn saturated_gateways_fill_the_window_and_all_have_their_turn() {
    for (gateways, window) in [(2, 10), (8, 40), (8, 4), (64, 32)] {
        let mut setup = Setup::new(gateways, window, 0.0);
        setup.demand = Demand::Users { each: (4 * window / gateways).max(3), first_from_ns: 5 * SECOND };
        setup.until_ns = 35 * SECOND;
        setup.warm_up_ns = 7 * SECOND;
        let it = setup.run();
        println!("{gateways} {window}: unused {:.4}, starved {:.3}, {:?}", it.unused, it.starved_worst, it.followed_ns);
        assert!(it.unused < 0.04, "{gateways} for {window}: {}", it.unused);
        assert_eq!(it.sound.over_ns, 0);
        assert!(it.followed_ns.is_some_and(|ns| ns < 1_500_000_000), "{:?}", it.followed_ns);
        let due = 1.0 - f64::from(window.min(gateways)) / f64::from(gateways);
        assert!(it.starved_worst < due + 0.15, "{gateways} for {window}: {}", it.starved_worst);
    }
}

#[test]
fn classes_have_what_they_have_with_one_gateway() {
    for policy in [Policy::Strict, Policy::Weighted, Policy::Shared, Policy::Fixed, Policy::Ratio, Policy::Edf] {
        for placement in [Placement::Even, Placement::ByClass, Placement::Skewed] {
            let mut setup = Setup::new(4, 35, 0.95);
            (setup.policy, setup.classes, setup.mix, setup.placement) = (policy, classes(), vec![1.0; 3], placement);
            if policy == Policy::Fixed {
                // The mix follows the weights, so that no class has more than it can be given.
                setup.mix = vec![4.0, 2.0, 1.0];
                setup.demand = Demand::Open { load: 0.8 };
            }
            setup.until_ns = 65 * SECOND;
            let (several, one) = (setup.run(), setup.run_alone());
            let (ours, ideal) = (several.ratios(), one.ratios());
            let slower = several.all().mean_ms() / one.all().mean_ms();
            println!("{policy} {placement:?}: {ours:.2?} for {ideal:.2?}, {slower:.3} times as long");
            assert!(slower < 2.0, "{policy} {placement:?}: {slower}");
            assert_eq!(several.sound.over_ns, 0);
        }
    }
}

#[test]
fn load_that_moves_is_followed() {
    let mut setup = Setup::new(4, 40, 0.8);
    setup.placement = Placement::Moving(SECOND);
    setup.until_ns = 35 * SECOND;
    let (several, one) = (setup.run(), setup.run_alone());
    let slower = several.all().mean_ms() / one.all().mean_ms();
    println!("{slower:.3} times as long, {:?}", several.sound);
    assert!(slower < 1.4, "{slower}");
    assert_eq!(several.sound.over_ns, 0);
}

#[test]
fn without_the_store_each_gateway_goes_on() {
    let mut setup = Setup::new(4, 40, 0.5);
    setup.faults = vec![Fault { during_ns: 10 * SECOND..20 * SECOND, kind: FaultKind::Store(None) }];
    setup.until_ns = 40 * SECOND;
    let it = setup.run();
    // A quarter of the window each is enough for half of the load, nearly always.
    println!("{:.2} ms, unused {:.4}, {:?}", it.all().mean_ms(), it.unused, it.faulty);
    assert!(it.all().mean_ms() < 25.0, "{}", it.all().mean_ms());
    assert!(it.faulty.most <= 40 && it.sound.most <= 40 && it.lost == 0);
    assert!(it.faulty.seen_ns >= 10 * SECOND);
}

#[test]
fn the_lease_of_a_killed_gateway_is_used_by_others() {
    let mut setup = Setup::new(2, 10, 0.0);
    setup.demand = Demand::Users { each: 20, first_from_ns: 0 };
    setup.faults = vec![Fault { during_ns: 10 * SECOND..20 * SECOND, kind: FaultKind::Kill(0) }];
    (setup.warm_up_ns, setup.until_ns) = (13 * SECOND, 20 * SECOND);
    let it = setup.run();
    assert!(it.unused < 0.01 && it.faulty.most == 10, "{it:?}");
}

fn policies() -> impl Strategy<Value = Policy> {
    prop::sample::select(vec![Policy::Strict, Policy::Weighted, Policy::Shared, Policy::Ratio, Policy::Edf])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.min(24), ..ProptestConfig::default() })]

    /// Once the leases of before a fault have ended, no more than the window is in use, and no slot is left unused for
    /// long.
    #[test]
    fn faults_leave_nothing_behind(
        gateways in 1_u32..7,
        window in 7_u32..24,
        policy in policies(),
        load in 0.3_f64..1.2,
        seed in any::<u64>(),
    ) {
        let mut setup = Setup::new(gateways, window, load);
        (setup.policy, setup.classes, setup.mix, setup.seed) = (policy, classes(), vec![1.0, 2.0, 3.0], seed);
        (setup.warm_up_ns, setup.until_ns) = (2 * SECOND, 30 * SECOND);
        setup.service.shape = Shape::Even;
        setup.faults = Fault::random(seed, gateways, 3 * SECOND, 24 * SECOND);
        prop_assert!(!setup.faults.is_empty());
        let it = setup.run();
        prop_assert!(it.sound.most <= window, "{:?} of {window} with {:?}", it.sound, setup.faults);
        prop_assert!(it.sound.seen_ns > 0);
        // After the last fault and its leases all is as without it.
        setup.warm_up_ns = 28 * SECOND;
        let after = setup.run();
        prop_assert!(after.sound.most > 0 && after.unused < 0.15, "{} with {:?}", after.unused, setup.faults);
    }
}
