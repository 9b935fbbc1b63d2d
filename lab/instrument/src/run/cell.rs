//! One measurement.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use workload::{
    demand::Demand,
    outcome::{End, Outcome},
    stats::percentile,
};

use super::measurement::{LoadRun, Measurement};
use crate::{
    LabError,
    bed::{BedConfig, Calibration, Counters, Cpu, Qdisc, TestBed, WanCounters, WanFacts},
    client::LoadResult,
    record::{Facts, Sampled},
    sample::{Sampler, SystemCalls},
    setting::UploadSetting,
    subject::{Environment, Running},
};

impl Measurement<'_> {
    /// Measures on a new bed, and removes the bed.
    pub(super) fn measure(&self, seed: u64, demand: Demand) -> Result<(Vec<Outcome>, Facts), LabError> {
        let mut notes = Vec::new();
        let (bed, calibration) = match self.prepared(seed)? {
            (bed, Ok(calibration)) => (bed, calibration),
            (bed, Err(LabError::TestBed(reason))) if !self.stop.load(Ordering::Relaxed) => {
                // The cause may have passed. Two beds cannot exist at once.
                drop(bed);
                notes.push(format!("this is the second bed, the first was refused: {reason}"));
                let (bed, calibration) = self.prepared(seed)?;
                (bed, calibration?)
            }
            (_, Err(error)) => return Err(error),
        };
        let mut running = self.subject.start(&self.environment(&bed))?;
        let alone = self.measure_alone(&bed)?;

        notes.extend(bed.note());
        let calls = self.count_calls(&bed, &mut notes);
        let before = CounterSnapshot::read(&bed)?;
        let began = Instant::now();
        let (drive, sent, samples) = self.run_load(&bed, demand, &mut notes)?;
        let after = CounterSnapshot::read(&bed)?;
        let measured_s = began.elapsed().as_secs_f64();
        let system_calls = calls.and_then(|calls| calls.stop().map_err(|reason| notes.push(reason)).ok());

        notes.extend(drive.notes);
        let max_lateness_ms = self.plan.setting().count.max_lateness_ms;
        let mut invalid = invalid(&drive.outcomes, max_lateness_ms);
        let wan = after.wan.zip(before.wan).map(|(after, before)| after.since(&before).facts());
        invalid.extend(wan.iter().flat_map(|wan| emulator_failed(wan, max_lateness_ms)));
        if running.has_ended() {
            invalid.push(format!("the server ended during the run; it said: {}", running.last_words()));
        }
        let cpu = after.cpu.since(&before.cpu);
        notes.extend(disturbed(&cpu, measured_s));
        let took_ns = drive.outcomes.iter().map(|outcome| outcome.end_ns).max().unwrap_or(0);
        let facts = Facts {
            command: running.command_line().to_owned(),
            calibration,
            alone,
            server_tcp: after.server_tcp.since(&before.server_tcp),
            client_tcp: after.client_tcp.since(&before.client_tcp),
            qdisc: after.qdisc.since(&before.qdisc),
            qdisc_while_sending: sent.since(&before.qdisc),
            cpu,
            samples,
            system_calls,
            wan,
            connections: drive.connections,
            most_concurrent: drive.most_concurrent,
            took_s: took_ns as f64 / 1e9,
            notes: stop_server(running, notes),
            invalid,
            simulated: None,
        };
        Ok((drive.outcomes, facts))
    }

    /// A bed with the subject's bottleneck, and the result of its calibration.
    fn prepared(&self, seed: u64) -> Result<(TestBed, Result<Calibration, LabError>), LabError> {
        let bed = TestBed::build(BedConfig { seed, ..self.plan.bed.clone() })?;
        self.subject.prepare(&self.environment(&bed))?;
        let calibration = bed.calibrate();
        Ok((bed, calibration))
    }

    fn environment<'b>(&'b self, bed: &'b TestBed) -> Environment<'b> {
        Environment {
            bed,
            setting: self.plan.setting(),
            root: self.root.path(),
            port: self.servers.port,
            serpent: &self.servers.serpent,
            certificate: self.certificate,
        }
    }

    /// Starts counting the server's system calls, if requested.
    fn count_calls(&self, bed: &TestBed, notes: &mut Vec<String>) -> Option<SystemCalls> {
        let wanted = self.plan.setting().count.system_calls;
        wanted.then(|| SystemCalls::count(bed).map_err(|reason| notes.push(reason)).ok()).flatten()
    }

    /// Runs the demand, samples the server's side, and changes the link's rate at the planned times. The
    /// queue's counters are read when the last request has been sent.
    fn run_load(
        &self,
        bed: &TestBed,
        demand: Demand,
        notes: &mut Vec<String>,
    ) -> Result<(LoadResult, Qdisc, Vec<Sampled>), LabError> {
        let start = Instant::now() + Duration::from_millis(50);
        let load_run =
            LoadRun { demand, start, until: self.plan.duration, drain: self.plan.drain, sources: 0, patient: false };
        let sampler = Sampler::start(bed, start, self.servers.port)?;
        // Whether the driver has ended: uploads end with it at the latest.
        let is_over = &AtomicBool::new(false);
        let (drive, sent) = thread::scope(|scope| {
            let driver = scope.spawn(move || {
                let drive = self.load(bed, load_run);
                is_over.store(true, Ordering::Relaxed);
                drive
            });
            let upload = |upload| (upload, scope.spawn(move || bed.upload(upload, start, is_over)));
            let uploads: Vec<_> = self.plan.bed.uploads.iter().map(upload).collect();
            // Stops waiting if the driver has ended early.
            let wait_until = |at: Instant| {
                while !driver.is_finished() && Instant::now() < at {
                    thread::sleep(at.saturating_duration_since(Instant::now()).min(Duration::from_millis(20)));
                }
            };
            for &(at_ns, rate) in self.plan.link.changes() {
                wait_until(start + Duration::from_nanos(at_ns));
                bed.set_rate(rate)?;
                notes.push(format!("{rate} from {:.3} s", start.elapsed().as_secs_f64()));
            }
            wait_until(start + self.plan.duration);
            let sent = bed.qdisc()?;
            let drive = driver.join().map_err(|_| LabError::TestBed("the load generator panicked".to_owned()))??;
            for (UploadSetting { from_s, until_s, streams, congestion }, upload) in uploads {
                let bytes = upload.join().map_err(|_| LabError::TestBed("an upload panicked".to_owned()))??;
                notes.push(format!(
                    "uploads beside the server ({streams} with {congestion}) carried {:.1} MB from {from_s} to {until_s} s",
                    bytes as f64 / 1e6
                ));
            }
            Ok::<_, LabError>((drive, sent))
        })?;
        let (samples, not_sampled) = sampler.stop();
        notes.extend(not_sampled);
        Ok((drive, sent, samples))
    }
}

/// Counters read before and after.
struct CounterSnapshot {
    server_tcp: Counters,
    client_tcp: Counters,
    qdisc: Qdisc,
    cpu: Cpu,
    wan: Option<WanCounters>,
}

impl CounterSnapshot {
    fn read(bed: &TestBed) -> Result<Self, LabError> {
        Ok(Self {
            server_tcp: Counters::read(bed.server())?,
            client_tcp: Counters::read(bed.client())?,
            qdisc: bed.qdisc()?,
            cpu: Cpu::read(bed.server())?,
            wan: bed.wan()?,
        })
    }
}

/// A note about other programs that used the machine. They can delay the server without delaying the
/// generator, which has a higher priority.
fn disturbed(cpu: &Cpu, measured_s: f64) -> Option<String> {
    let processors = |us: u64| us as f64 / 1e6 / measured_s.max(1e-9);
    let (others, stolen) = (processors(cpu.others_us), processors(cpu.stolen_us));
    (others > DISTURBED_PROCESSORS || stolen > DISTURBED_PROCESSORS).then(|| {
        format!(
            "the machine was not ours alone: other programs used {others:.2} processors and the host took {stolen:.2} \
             while this was measured"
        )
    })
}

/// The system's own housekeeping stays below this.
const DISTURBED_PROCESSORS: f64 = 0.15;

/// Why the emulator of the paths makes a measurement invalid.
fn emulator_failed(wan: &WanFacts, max_lateness_ms: f64) -> Vec<String> {
    let mut reasons = Vec::new();
    if wan.lateness_p99_us > max_lateness_ms * 1e3 {
        reasons.push(format!(
            "1 % of the packets left the emulated path more than {:.2} ms late (limit {max_lateness_ms} ms): the machine was too slow",
            wan.lateness_p99_us / 1e3
        ));
    }
    let astray = wan.overflows + wan.refused + wan.unread;
    if astray > 0 {
        reasons.push(format!("the emulated path lost {astray} packets that it should not have lost"));
    }
    reasons
}

/// Why its requests make a measurement invalid.
fn invalid(outcomes: &[Outcome], max_lateness_ms: f64) -> Vec<String> {
    let mut lateness_ms: Vec<f64> = outcomes.iter().map(|outcome| outcome.lateness_ns() as f64 / 1e6).collect();
    lateness_ms.sort_unstable_by(f64::total_cmp);
    let faults = outcomes.iter().filter(|outcome| outcome.end == End::ClientFault).count();
    let mut reasons = Vec::new();
    if !lateness_ms.is_empty() && percentile(&lateness_ms, 0.99) > max_lateness_ms {
        reasons.push(format!(
            "1 % of the requests were sent more than {:.2} ms late (limit {max_lateness_ms} ms): the generator was too slow",
            percentile(&lateness_ms, 0.99)
        ));
    }
    if faults > 0 {
        reasons.push(format!("{faults} requests could not be sent by the generator itself"));
    }
    if outcomes.is_empty() {
        reasons.push("no request was asked for".to_owned());
    }
    reasons
}

/// Stops the server, and adds a note if it did not end cleanly.
fn stop_server(running: Running, mut notes: Vec<String>) -> Vec<String> {
    match running.stop() {
        Some(status) if status.success() => {}
        Some(status) => notes.push(format!("the server ended with {status}")),
        None => notes.push("the server did not end within 5 s of SIGTERM and was killed".to_owned()),
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(late_ms: u64, end: End) -> Outcome {
        let at_ns = 1_000_000;
        Outcome {
            at_ns,
            file: 0,
            size_bytes: 1,
            group: 0,
            attempts: 1,
            sent_ns: at_ns + late_ms * 1_000_000,
            first_byte_ns: None,
            end_ns: at_ns,
            body_bytes: 0,
            head_bytes: 0,
            end,
        }
    }

    #[test]
    fn a_generator_that_was_late_or_failed_spoils_the_measurement() {
        let mut outcomes = vec![outcome(0, End::Done); 200];
        assert_eq!(invalid(&outcomes, 1.0), Vec::<String>::new());
        // One late request in two hundred is allowed, one in fifty is not.
        outcomes[0] = outcome(5, End::Done);
        assert_eq!(invalid(&outcomes, 1.0), Vec::<String>::new());
        outcomes[..4].fill(outcome(5, End::Done));
        assert!(invalid(&outcomes, 1.0)[0].contains("5.00 ms late"));
        assert!(invalid(&[outcome(0, End::ClientFault)], 1.0)[0].contains("1 requests could not be sent"));
        assert!(invalid(&[], 1.0)[0].contains("no request"));
    }

    #[test]
    fn others_on_the_machine_are_told_of() {
        let cpu = Cpu { server_us: 9_000_000, machine_us: 20_000_000, stolen_us: 100_000, others_us: 1_000_000 };
        assert_eq!(disturbed(&cpu, 10.0), None);
        let busy = Cpu { others_us: 8_000_000, ..cpu };
        assert!(disturbed(&busy, 10.0).unwrap().contains("other programs used 0.80 processors and the host took 0.01"));
        assert!(disturbed(&Cpu { stolen_us: 3_000_000, ..cpu }, 10.0).is_some());
    }

    #[test]
    fn an_emulator_that_was_late_or_lost_packets_spoils_the_measurement() {
        let sound = WanFacts { lateness_p99_us: 900.0, lateness_max_us: 5000.0, ..WanFacts::default() };
        assert_eq!(emulator_failed(&sound, 1.0), Vec::<String>::new());
        assert!(emulator_failed(&sound, 0.5)[0].contains("0.90 ms late"));
        assert!(
            emulator_failed(&WanFacts { overflows: 2, refused: 1, unread: 4, ..sound }, 1.0)[0]
                .contains("lost 7 packets")
        );
    }
}
