use workload::pattern::Pattern;

use super::*;
use crate::theory::{Policy, Queue, Sizes, TheoryError};

const LINK: f64 = 1_250_000.0;

fn sizes() -> Sizes {
    Sizes::bounded_pareto(1.1, 500.0, 2e6).unwrap()
}

fn alternating(pattern: &str) -> Alternating {
    Alternating::new(sizes(), &pattern.parse().unwrap(), LINK).unwrap()
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * b.abs()
}

#[test]
fn under_a_constant_load_the_closed_forms_come_out() {
    for load in [0.3, 0.8] {
        let constant = alternating(&format!("10s@{load}"));
        let queue = Queue::new(sizes(), load).unwrap();
        let (sharing, shortest) = (constant.sharing(), constant.shortest());
        let (ps, srpt) = (queue.solve(&Policy::Ps), queue.solve(&Policy::Srpt));
        for x in [500.0, 2000.0, 50_000.0, 2e6] {
            let (approximate, exact) = (sharing.response(x), ps.response(x));
            assert!(close(approximate, exact, 0.005), "ps {load} {x}: {approximate} {exact}");
            let (approximate, exact) = (shortest.response(x), srpt.response(x));
            assert!(close(approximate, exact, 0.01), "srpt {load} {x}: {approximate} {exact}");
        }
        assert!(close(sharing.mean_response(), ps.mean_response(), 0.005));
        assert!(close(shortest.mean_response(), srpt.mean_response(), 0.02));
        assert!(close(sharing.most_present(), load / (1.0 - load), 0.005));
    }
}

#[test]
fn in_overload_sharing_grows_as_its_fluid_limit() {
    // Exponential sizes of mean 1: the number present grows by g = load - 1 per unit of time, since g = load
    // (1 - 1 / (1 + g)).
    let (load, seconds) = (1.5, 4000.0);
    let pattern: Pattern = format!("{seconds}s@{load},20000s@0.1").parse().unwrap();
    let alternating = Alternating::new(Sizes::exponential(1.0).unwrap(), &pattern, 1.0).unwrap();
    let most = alternating.sharing().most_present();
    assert!(close(most, (load - 1.0) * seconds, 0.01), "{most}");
}

#[test]
fn in_overload_shortest_leaves_alone_what_is_below_the_size_at_which_the_load_is_1() {
    let w1 = alternating("w1");
    let shortest = w1.shortest();
    let queue = Queue::new(sizes(), 0.7).unwrap();
    let of_size = |x: f64| shortest.response(x) / LINK;
    // At 1.2 the load of the smaller requests is 1 where they have 1 / 1.2 of the bytes.
    let mut x = 500.0;
    while queue.sizes().moment_up_to(1, x) * 1.2 < queue.sizes().mean() {
        x *= 1.1;
    }
    assert!(of_size(x / 8.0) < 0.2, "{x}: {}", of_size(x / 8.0));
    assert!(of_size(2e6) > 10.0, "{}", of_size(2e6));
    // Small requests are a hundred times faster than under sharing, and the very largest about equal.
    let sharing = w1.sharing();
    assert!(sharing.response(1000.0) > 20.0 * shortest.response(1000.0));
    assert!(
        close(sharing.response(2e6), shortest.response(2e6), 0.3),
        "{} {}",
        sharing.response(2e6),
        shortest.response(2e6)
    );
}

#[test]
fn work_is_kept() {
    // Under any policy the link serves all arrivals, so the idle time is 1 - mean load. For SRPT it is how
    // the work of the largest size falls, and for sharing it is the service of the present requests.
    let w1 = alternating("w1");
    let shortest = w1.shortest();
    let scale = w1.sizes.moment(2) / (2.0 * w1.sizes.mean());
    let work = shortest.work(2e6, 1.0);
    let busy: f64 =
        work.iter().enumerate().map(|(i, w)| w1.grid.step(i).0 * w / (w + scale)).sum::<f64>() / w1.grid.period();
    assert!(close(busy, 0.7, 0.005), "{busy}");
}

#[test]
fn a_load_of_1_or_more_on_average_is_refused() {
    let pattern = "1s@0.5,1s@1.5".parse().unwrap();
    assert_eq!(Alternating::new(sizes(), &pattern, LINK).unwrap_err(), TheoryError::Load(1.0));
    let busy = "1s@1000/s".parse().unwrap();
    assert!(matches!(Alternating::new(sizes(), &busy, LINK), Err(TheoryError::Load(load)) if load > 1.0));
}

#[test]
fn requests_per_second_are_a_load_of_their_mean_size() {
    let load = 100.0 * sizes().mean() / LINK;
    let pattern = "10s@100/s".parse().unwrap();
    let by_rate = Alternating::new(sizes(), &pattern, LINK).unwrap();
    assert!(close(by_rate.sharing().response(1e5), 1e5 / (1.0 - load), 0.005));
}
