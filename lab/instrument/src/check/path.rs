//! Compares the emulated path with its settings.

use std::{
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

use super::{
    args::CheckArgs,
    flows::with_flows,
    row::{Row, Spread, machine},
};
use crate::{
    LabError,
    bed::{BedConfig, Cpu, SERVER, TestBed},
    setting::PathSetting,
};

/// A bed without a bottleneck, whose queue would be measured too.
fn bed(args: &CheckArgs, path: PathSetting) -> Result<TestBed, LabError> {
    TestBed::build(BedConfig { paths: vec![path], emulation: args.emulation, seed: args.seed, ..BedConfig::default() })
}

/// Longest error of the round-trip time, in milliseconds, that 1 % of the probes may exceed.
const RTT_ERROR_MS: f64 = 0.5;
/// Least part of the rate that the flows must reach.
const RATE_REACHED: f64 = 0.97;

/// Round trips of probes among the flows, compared with the configured value.
pub(super) fn round_trips(args: &CheckArgs) -> Result<Row, LabError> {
    const APART: Duration = Duration::from_millis(5);
    let over = Duration::from_secs(args.seconds.into());
    let bed = bed(args, PathSetting { rtt_ms: args.rtt, ..PathSetting::default() })?;
    let errors = |times_ms: Vec<f64>| match times_ms.is_empty() {
        true => Err(LabError::TestBed("no probe came back".to_owned())),
        false => Ok(Spread::of(times_ms.into_iter().map(|time| (time - args.rtt).abs()).collect())),
    };
    let idle = errors(bed.round_trips_ms(0, APART, over.min(Duration::from_secs(2)))?)?;

    let measure = || {
        // After the slow start of the flows.
        thread::sleep(Duration::from_secs(1));
        let read =
            || Ok::<_, LabError>((Instant::now(), bed.received_by_clients()?, Cpu::read(bed.server())?, bed.wan()?));
        let before = read()?;
        let times_ms = bed.round_trips_ms(0, APART, over)?;
        Ok((times_ms, before, read()?))
    };
    let (times_ms, before, after) = with_flows(&bed, args.flows, args.rate, measure)?;
    let loaded = errors(times_ms)?;
    let took_s = (after.0 - before.0).as_secs_f64();
    let (packets, bytes) = (after.1.0 - before.1.0, after.1.1 - before.1.1);
    // A TUN device counts no Ethernet headers, a cable does.
    let headers = if bed.wan()?.is_some() { 14 * packets } else { 0 };
    let rate = (bytes + headers) as f64 * 8.0 / took_s;
    let reached = rate >= RATE_REACHED * args.rate.bits_per_second() as f64;

    let mut notes = vec![format!("idle: {idle}")];
    if let (Some(before), Some(after)) = (before.3, after.3) {
        let facts = after.since(&before).facts();
        notes.push(format!(
            "packets left late by p50 {:.0} us, p99 {:.0} us, max {:.0} us",
            facts.lateness_p50_us, facts.lateness_p99_us, facts.lateness_max_us
        ));
    }
    notes.extend(bed.note());
    if !reached {
        notes.push("the flows did not reach the rate".to_owned());
    }
    notes.push(machine(&after.2.since(&before.2), took_s));
    Ok(Row {
        what: format!("round-trip time of {} ms under {} flows at {}", args.rtt, args.flows, args.rate),
        seen: format!("error {loaded}, at {:.1} Mbit/s", rate / 1e6),
        bound: format!("the error's p99 is to be below {RTT_ERROR_MS} ms"),
        holds: loaded.p99 < RTT_ERROR_MS && reached,
        notes,
    })
}

/// Largest difference between measured and configured loss, relative to the latter.
const LOSS_ERROR: f64 = 0.05;

/// Sends datagrams one way, and compares their number with that received by the clients' device.
pub(super) fn loss(args: &CheckArgs, loss: f64) -> Result<Row, LabError> {
    if !(0.000_1..1.0).contains(&loss) {
        return Err(LabError::Request("--losses: give percents from 0.01 to below 100".to_owned()));
    }
    // So many that the bound is four standard deviations of chance.
    let datagrams = ((4.0 / LOSS_ERROR).powi(2) * (1.0 - loss) / loss).ceil() as u64;
    let bed = bed(args, PathSetting { rtt_ms: 20.0, loss, ..PathSetting::default() })?;
    let cpu = Cpu::read(bed.server())?;
    let start = Instant::now();
    let before = bed.received_by_clients()?.0;
    let sent = send(&bed, datagrams)?;
    // Half of the round trip, and time for late packets.
    thread::sleep(Duration::from_millis(300));
    let came = bed.received_by_clients()?.0 - before;
    let took_s = start.elapsed().as_secs_f64();
    let measured = 1.0 - came as f64 / sent as f64;
    let error = measured / loss - 1.0;
    let mut notes = vec![machine(&Cpu::read(bed.server())?.since(&cpu), took_s)];
    if let Some(counters) = bed.wan()? {
        let lane = counters.facts().groups[0].to_clients;
        if lane.packets < sent {
            notes.push(format!("{} were lost before the path: the machine is too slow", sent - lane.packets));
        }
    }
    Ok(Row {
        what: format!("loss of {} %", loss * 100.0),
        seen: format!("{:.3} % of {sent} datagrams, {:+.1} % of the set value", measured * 100.0, error * 100.0),
        bound: format!("the difference is to be within {} % of the set value", LOSS_ERROR * 100.0),
        holds: error.abs() <= LOSS_ERROR,
        notes,
    })
}

/// Sends datagrams to the clients, slowly enough for every queue on the way; returns their number.
fn send(bed: &TestBed, datagrams: u64) -> Result<u64, LabError> {
    const PER_SECOND: f64 = 30_000.0;
    let failed = || LabError::io("cannot send datagrams");
    // The socket is never read: the device counts all received packets.
    let sink = {
        let _inside = bed.client().enter().map_err(LabError::io("cannot enter a namespace"))?;
        UdpSocket::bind((std::net::Ipv4Addr::from_bits(bed.sources(0).to_bits() + 1), 0)).map_err(failed())?
    };
    let socket = {
        let _inside = bed.server().enter().map_err(LabError::io("cannot enter a namespace"))?;
        UdpSocket::bind((SERVER, 0)).map_err(failed())?
    };
    socket.connect(sink.local_addr().map_err(failed())?).map_err(failed())?;
    // Most datagrams sent at once when this thread is late.
    const BURST: u64 = 100;
    let start = Instant::now();
    let mut sent = 0;
    while sent < datagrams {
        let due = (start.elapsed().as_secs_f64() * PER_SECOND) as u64;
        for _ in 0..due.saturating_sub(sent).min(BURST).min(datagrams - sent) {
            socket.send(&[0; 18]).map_err(failed())?;
            sent += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(sent)
}
