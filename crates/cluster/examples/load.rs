//! The load of many gateways on a store: messages a second, the time until they are answered, and the store's processor.
//!
//! `redis-server --port 6390 --save ""`, then
//! `cargo run --release -p serpent-cluster --example load -- redis://127.0.0.1:6390 GATEWAYS CLASSES SECONDS [SEED]`

use std::{
    env,
    time::{Duration, Instant},
};

use scheduler::lease::{Ask, CellAsk, CellSettings, ClassSettings, Demand, Division};
use serpent_cluster::{CellName, Store, Trust};

const EVERY: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    let address = arguments.first().expect("the address of a store").clone();
    let (gateways, classes, seconds, seed) = (number(1, 1000), number(2, 3) as usize, number(3, 10), number(4, 1));
    let begin = Instant::now() + Duration::from_secs(2);
    let end = begin + Duration::from_secs(seconds);
    let tasks: Vec<_> = (0..gateways)
        .map(|id| tokio::spawn(gateway(address.clone(), id, gateways, classes, seed, (begin, end))))
        .collect();
    let mut times_us = Vec::new();
    for task in tasks {
        times_us.extend(task.await.expect("a gateway ends"));
    }
    times_us.sort_unstable();
    let at = |part: f64| times_us[((times_us.len() - 1) as f64 * part) as usize] as f64 / 1000.0;
    println!(
        "{gateways} gateways, {classes} classes, seed {seed}: {:.0} messages/s, answered after {:.2} ms (median), {:.2} ms (p99)",
        times_us.len() as f64 / seconds as f64,
        at(0.5),
        at(0.99)
    );
}

/// Asks ten times a second, and returns the times of the answers in microseconds, without the first two seconds.
async fn gateway(
    address: String,
    id: u64,
    gateways: u64,
    classes: usize,
    seed: u64,
    (begin, end): (Instant, Instant),
) -> Vec<u64> {
    let store = Store::new(&address, &Trust::default(), "load", &format!("{id:016x}")).expect("an address");
    // They begin one after the other, as in operation.
    tokio::time::sleep(EVERY.mul_f64(id as f64 / gateways as f64)).await;
    let mut connection = store.connect(Duration::from_secs(5)).await.expect("a connection");
    let class = ClassSettings { weight: 1, reserve: 0 };
    let cells = [CellSettings {
        window: 2 * gateways as u32,
        adjusted: false,
        division: Division::Weighted,
        classes: vec![class; classes],
    }];
    let names = [CellName { cell: "total".to_owned(), classes: (0..classes).map(|n| format!("class-{n}")).collect() }];
    let mut chance = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(id);
    let (mut seen, mut holds, mut times_us) = (0, 0, Vec::new());
    while Instant::now() < end {
        let mut random = |most: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((chance >> 33) % (most + 1)) as u32
        };
        // In the mean a little more than there are slots for.
        let mut demands: Vec<_> =
            (0..classes).map(|_| Demand { running: 0, waiting: random(6 / classes as u64 + 1) }).collect();
        demands[0].running = random(u64::from(holds));
        let ask = CellAsk { holds, demands, ..CellAsk::default() };
        let ask = Ask { seen, gateways: gateways as u32, linger_ns: 100_000_000, keep_ns: 0, cells: vec![ask] };
        let asked = Instant::now();
        let reply = connection.ask(Duration::from_secs(1), &ask, &cells, &names).await.expect("an answer");
        if asked >= begin {
            times_us.push(asked.elapsed().as_micros() as u64);
        }
        (seen, holds) = (reply.number, reply.cells[0].slots);
        tokio::time::sleep(EVERY.saturating_sub(asked.elapsed())).await;
    }
    times_us
}
