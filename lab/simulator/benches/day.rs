//! Benchmark: a day of the 1998 World Cup as papers describe it, 4.5 million requests at a load of 0.8, on
//! one core: `cargo bench -p serpent-simulator`. Requests are drawn on demand and not stored.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use scheduler::uplink::Settings;
use serpent_simulator::{Clients, Model, Ordered, ProcessorSharing, Stream, run};
use workload::{
    rate::{Link, Rate},
    sequence::Request,
    sizes::{FileSet, HeavyTail},
    wire::WireModel,
};

const REQUESTS: usize = 4_500_000;
const DAY_NS: f64 = 86_400e9;
const LOAD: f64 = 0.8;
const WIRE: WireModel = WireModel::KEPT_ALIVE;

fn link(files: &FileSet) -> Link {
    let bytes_per_second = files.mean_of(|size| WIRE.bytes_for(size)) * REQUESTS as f64 / (DAY_NS / 1e9) / LOAD;
    Link::constant(Rate::from_bits_per_second((bytes_per_second * 8.0) as u64).expect("a usual rate"))
}

fn day(files: &FileSet) -> impl Iterator<Item = Request> {
    let mut rng = ChaCha12Rng::seed_from_u64(1998);
    let mut at_ns = 0.0;
    (0..REQUESTS).map(move |_| {
        at_ns -= (1.0 - rng.random::<f64>()).ln() * DAY_NS / REQUESTS as f64;
        let file = files.draw(&mut rng);
        Request { at_ns: at_ns as u64, file, size_bytes: files.sizes_bytes()[file as usize], group: 0 }
    })
}

fn serve(files: &FileSet, model: &mut impl Model) -> u64 {
    let mut sum_ns = 0;
    let totals =
        run(&mut Stream::new(day(files)), model, &Clients::PATIENT, None, |served| sum_ns += served.response_ns());
    assert_eq!(totals.served, REQUESTS as u64);
    sum_ns
}

fn bench(criterion: &mut Criterion) {
    let files = FileSet::new(&HeavyTail::WORLD_CUP, 2000);
    let link = link(&files);
    let mut group = criterion.benchmark_group("day");
    group.sample_size(10).throughput(Throughput::Elements(REQUESTS as u64));
    group.bench_function("requests alone", |bench| bench.iter(|| day(&files).map(|it| it.size_bytes).sum::<u64>()));
    group.bench_function("srpt", |bench| {
        bench.iter(|| serve(&files, &mut Ordered::new(&link, &WIRE, Settings::default())))
    });
    group.bench_function("ps", |bench| bench.iter(|| serve(&files, &mut ProcessorSharing::new(&link, &WIRE))));
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
