//! Benchmarks of reading, summarising and collecting logs, in records per second.
//! Run with `cargo bench -p serpent-workload`.

use std::{hint::black_box, io::Write, ops::ControlFlow};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serpent_workload::trace::{Options, Reader, Record, Summary, replay::Collector};

const RECORDS: u64 = 100_000;

/// Lines such as those of the NASA log: 2500 clients, 1800 objects, two requests a second.
fn text(header: &str, line: impl Fn(u64, u64, u64, u64) -> String) -> Vec<u8> {
    let mut text = header.as_bytes().to_vec();
    for i in 0..RECORDS {
        let any = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        text.extend(line(i / 2, any >> 32 & 0x7ff, any >> 48 & 0x7ff, any >> 40 & 0xffff).as_bytes());
    }
    text
}

fn common(second: u64, client: u64, object: u64, size: u64) -> String {
    let (hour, minute, second) = (second / 3600 % 24, second / 60 % 60, second % 60);
    format!(
        "host{client}.example.com - - [01/Aug/1995:{hour:02}:{minute:02}:{second:02} -0400] \
         \"GET /shuttle/missions/{object}/news.html HTTP/1.0\" 200 {size}\n"
    )
}

fn csv(second: u64, client: u64, object: u64, size: u64) -> String {
    format!("{second},host{client},/shuttle/missions/{object}/news.html,200,{size}\n")
}

fn json(second: u64, client: u64, object: u64, size: u64) -> String {
    format!(
        "{{\"ts\":{second}.25,\"request\":{{\"remote_ip\":\"10.0.0.{client}\",\"method\":\"GET\",\"uri\":\"/missions/{object}\",\
         \"headers\":{{\"User-Agent\":[\"curl\"]}}}},\"status\":200,\"size\":{size},\"duration\":0.001}}\n"
    )
}

fn world_cup() -> Vec<u8> {
    let record = |i: u64| {
        let words = [893_971_817 + (i / 100) as u32, (i % 2500) as u32, (i % 1800) as u32, (i % 65_536) as u32];
        words.map(u32::to_be_bytes).concat().into_iter().chain([0, 0x42, 1, 0])
    };
    (0..RECORDS).flat_map(record).collect()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).and_then(|()| encoder.finish()).expect("memory can be written to")
}

fn read(data: &[u8], mut each: impl FnMut(&Record<'_>)) {
    let mut reader = Reader::open(data, &Options::default()).expect("it is a log");
    let read = reader.read(|record| {
        each(record);
        ControlFlow::Continue(())
    });
    read.expect("it is in order");
    assert_eq!(reader.tally().records, RECORDS);
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("trace");
    group.throughput(Throughput::Elements(RECORDS)).sample_size(10);
    let logs = [
        ("common", text("", common)),
        ("csv", text("time,client,path,status,size\n", csv)),
        ("json", text("", json)),
        ("world-cup", world_cup()),
    ];
    let compressed = ("common-gzip", gzip(&logs[0].1));
    for (name, log) in logs.iter().chain([&compressed]) {
        group.bench_function(format!("read/{name}"), |bench| {
            bench.iter(|| {
                read(log, |record| {
                    black_box(record.size_bytes);
                })
            })
        });
        group.bench_function(format!("summarise/{name}"), |bench| {
            bench.iter(|| {
                let mut summary = Summary::default();
                read(log, |record| summary.add(record));
                summary.bytes()
            });
        });
    }
    group.bench_function("gather/common", |bench| {
        bench.iter(|| {
            let mut collector = Collector::new(None, Vec::new());
            read(&logs[0].1, |record| {
                let _ = collector.add(record);
            });
            collector.finish().requests()
        });
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
