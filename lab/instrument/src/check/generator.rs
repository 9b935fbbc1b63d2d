//! The lateness of the load generator when it is busy.

use std::{
    net::SocketAddrV4,
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use workload::{
    behaviour::Behaviour,
    demand::Demand,
    outcome::{End, Outcome},
    rate::Rate,
    sequence::Request,
};

use super::{
    args::CheckArgs,
    row::{Row, Spread, machine},
};
use crate::{
    LabError,
    bed::{BedConfig, Cpu, SERVER, TestBed},
    client::{ClientGroup, Load, LoadResult},
    docroot::{Content, DocRoot},
    setting::Setting,
    subject::{Certificate, Environment, serpent_binary},
};

/// Longest lateness, in milliseconds, that 1 % of the requests may exceed.
const LATENESS_MS: f64 = 1.0;
const SIZE_BYTES: u64 = 1000;
const PORT: u16 = 8080;
const GIGABIT: Rate = Rate::from_bits_per_second(1_000_000_000).expect("it is in range");

/// Requests at the times of a Poisson process, each on its own connection.
pub(super) fn lateness(args: &CheckArgs) -> Result<Row, LabError> {
    let serpent = serpent_binary(args.serpent.as_deref())?;
    args.subject.is_installed(&serpent)?;
    let root = DocRoot::write(&[SIZE_BYTES])?;
    let bed = TestBed::build(BedConfig { rate: GIGABIT, gso_segments: 4, ..BedConfig::default() })?;
    let (setting, certificate) = (Setting::default(), Certificate::make()?);
    let environment = Environment {
        bed: &bed,
        setting: &setting,
        root: root.path(),
        port: PORT,
        serpent: &serpent,
        certificate: &certificate,
    };
    args.subject.prepare(&environment)?;
    let running = args.subject.start(&environment)?;
    let requests = requests(args);
    let cpu = Cpu::read(bed.server())?;
    let start = Instant::now();
    let drive = drive(&bed, &requests, args.seconds)?;
    let took_s = start.elapsed().as_secs_f64();
    let mut notes = vec![machine(&Cpu::read(bed.server())?.since(&cpu), took_s)];
    notes.extend(drive.notes);
    running.stop();

    let done = drive.outcomes.iter().filter(|outcome| outcome.end == End::Done).count();
    let faults = drive.outcomes.iter().filter(|outcome| outcome.end == End::ClientFault).count();
    let times_ms = |time: fn(&Outcome) -> u64| -> Vec<f64> {
        drive.outcomes.iter().map(|outcome| time(outcome) as f64 / 1e6).collect()
    };
    let late = Spread::of(times_ms(Outcome::lateness_ns));
    notes.push(format!("{done} of {} answered, in {}", requests.len(), Spread::of(times_ms(Outcome::response_ns))));
    Ok(Row {
        what: format!("load generator at {} requests/s against {}", args.requests, args.subject),
        seen: format!("late by {late}; {faults} could not be sent"),
        bound: format!("the lateness's p99 is to be below {LATENESS_MS} ms"),
        holds: late.p99 < LATENESS_MS && faults == 0,
        notes,
    })
}

fn requests(args: &CheckArgs) -> Vec<Request> {
    let mut dice = ChaCha8Rng::seed_from_u64(args.seed);
    let count = u64::from(args.requests) * u64::from(args.seconds);
    let span_ns = f64::from(args.seconds) * 1e9;
    // This many uniform random times in an interval are a Poisson process with a known count.
    let mut moments_ns: Vec<u64> = (0..count).map(|_| (dice.random::<f64>() * span_ns) as u64).collect();
    moments_ns.sort_unstable();
    moments_ns.into_iter().map(|at_ns| Request { at_ns, file: 0, size_bytes: SIZE_BYTES, group: 0 }).collect()
}

/// On its own thread, because the generator's priority stays with its thread.
fn drive(bed: &TestBed, requests: &[Request], seconds: u32) -> Result<LoadResult, LabError> {
    let load = || {
        let _inside = bed.client().enter().map_err(LabError::io("cannot enter a namespace"))?;
        let group = ClientGroup { sources: bed.sources(0), behaviour: Behaviour::default(), mss_bytes: None };
        Load {
            demand: Demand::sequence(requests.to_vec()),
            groups: &[group],
            server: SocketAddrV4::new(SERVER, PORT),
            tls: None,
            until: Duration::from_secs(seconds.into()),
            drain: Duration::from_secs(5),
            content: &Content::new(),
            start: Instant::now() + Duration::from_millis(50),
            stop: &AtomicBool::new(false),
        }
        .drive()
    };
    thread::scope(|scope| scope.spawn(load).join())
        .map_err(|_| LabError::TestBed("the load generator panicked".to_owned()))?
}
