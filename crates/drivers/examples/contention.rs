//! The cost of the one lock of the uplink: responses a second through one driver that all threads share, beside as many
//! through a driver for each thread. The link is so fast that nothing waits for it. `cargo run --release -p
//! serpent-drivers --example contention`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
    time::Duration,
};

use scheduler::{Order, Size, class::ClassId};
use serpent_drivers::{
    Classes, Cutoffs, Enforce, UplinkConfig, UplinkRate,
    uplink::{ClassAt, Uplink, driver::Driver},
};

const MEASURED: Duration = Duration::from_secs(1);
/// Payload of a response: two grants at the lowest rates, one here.
const RESPONSE_BYTES: u64 = 2 * 1448;

fn main() {
    println!("{:>8}{:>16}{:>16}{:>18}", "threads", "shared /s", "own each /s", "shared, us each");
    for threads in [1, 2, 8, 32] {
        let one = uplink();
        let shared = responses_a_second((0..threads).map(|_| one.driver().clone()));
        let own = responses_a_second((0..threads).map(|_| uplink().driver().clone()));
        println!("{threads:>8}{shared:>16.0}{own:>16.0}{:>18.3}", 1e6 / shared);
    }
}

fn uplink() -> Uplink {
    let config = UplinkConfig {
        rate: UplinkRate::Given("1000gbit".parse().expect("a rate")),
        order: Order::Srpt,
        enforce: Enforce::Server,
        line: None,
        cutoffs: Cutoffs::Learned,
        guard_stretch: None,
        utilisation: Some(1.0),
        segment_overhead_bytes: 66,
        device: None,
        keep: Default::default(),
    };
    Uplink::new(&config, Classes::one()).expect("pacing needs no privilege")
}

/// A thread for each driver; all responses of all threads together.
fn responses_a_second(drivers: impl Iterator<Item = Arc<Driver>>) -> f64 {
    let (stop, responses) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = drivers
        .map(|driver| {
            let (stop, responses) = (stop.clone(), responses.clone());
            std::thread::spawn(move || {
                let mut done = 0;
                while !stop.load(Relaxed) {
                    respond(&driver);
                    done += 1;
                }
                responses.fetch_add(done, Relaxed);
            })
        })
        .collect();
    std::thread::sleep(MEASURED);
    stop.store(true, Relaxed);
    for thread in threads {
        thread.join().expect("no thread panics");
    }
    responses.load(Relaxed) as f64 / MEASURED.as_secs_f64()
}

/// The calls of a gate for one response of one grant on a new connection.
fn respond(driver: &Driver) {
    driver.handle_bare_segments(1);
    let class = ClassAt { class: ClassId(0), generation: 0 };
    let job = driver.handle_started(class, Size::Known(RESPONSE_BYTES), None);
    driver.handle_bare_segments(1);
    assert!(driver.ask(job, RESPONSE_BYTES, Waker::noop()).is_some(), "the link is never busy");
    driver.handle_finished(job, true);
    driver.handle_bare_segments(2);
}
