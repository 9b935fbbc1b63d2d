//! One measurement.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use workload::{
    demand::Demand,
    outcome::{End, Outcome},
    stats::percentile,
};

use super::runner::Servers;
use crate::{
    LabError,
    bed::{Bed, Counters, Cpu, Qdisc, SERVER},
    client::{ClientGroup, Drive, Load},
    docroot::{Content, DocRoot},
    plan::Plan,
    record::Facts,
    subject::{Place, Running, Subject},
};

/// All that a measurement is made of.
pub(super) struct Measurement<'a> {
    pub(super) plan: &'a Plan,
    pub(super) subject: &'a Subject,
    pub(super) servers: &'a Servers,
    pub(super) root: &'a DocRoot,
    pub(super) content: &'a Content,
    /// Sizes of the files, by number.
    pub(super) sizes_bytes: &'a [u64],
    pub(super) stop: &'a AtomicBool,
}

/// One load to drive: the whole demand, or single requests.
pub(super) struct Errand {
    pub(super) demand: Demand,
    pub(super) start: Instant,
    pub(super) until: Duration,
    pub(super) drain: Duration,
    /// Which /24 of each group's prefix to connect from. Each load has its own: a port that is used again meets the server's
    /// TIME_WAIT, and now and then is reset by it.
    pub(super) sources: u8,
    /// Whether clients lose patience.
    pub(super) patient: bool,
}

impl Measurement<'_> {
    /// Measures on a bed made for it and taken down after.
    pub(super) fn measure(&self, demand: Demand) -> Result<(Vec<Outcome>, Facts), LabError> {
        let bed = Bed::build(self.plan.bed.clone())?;
        let place =
            Place { bed: &bed, root: self.root.path(), port: self.servers.port, serpent: &self.servers.serpent };
        self.subject.prepare(&place)?;
        let calibration = bed.calibrate()?;
        let mut running = self.subject.start(&place)?;
        let alone = self.measure_alone(&bed)?;

        let read = || -> Result<_, LabError> {
            Ok((Counters::read(bed.server())?, Counters::read(bed.client())?, bed.qdisc()?, Cpu::read(bed.server())?))
        };
        let before = read()?;
        let (drive, sent, mut notes) = self.drive(&bed, demand)?;
        let after = read()?;

        notes.extend(drive.notes);
        let mut invalid = invalid(&drive.outcomes, self.plan.setting().count.max_lateness_ms);
        if running.has_ended() {
            invalid.push(format!("the server ended during the run; it said: {}", running.last_words()));
        }
        let took_ns = drive.outcomes.iter().map(|outcome| outcome.end_ns).max().unwrap_or(0);
        let facts = Facts {
            command: running.command_line().to_owned(),
            calibration,
            alone,
            server_tcp: after.0.since(&before.0),
            client_tcp: after.1.since(&before.1),
            qdisc: after.2.since(&before.2),
            qdisc_while_sending: sent.since(&before.2),
            cpu: after.3.since(&before.3),
            samples: Vec::new(),
            system_calls: None,
            connections: drive.connections,
            most_concurrent: drive.most_concurrent,
            took_s: took_ns as f64 / 1e9,
            notes: stop_server(running, notes),
            invalid,
        };
        Ok((drive.outcomes, facts))
    }

    /// Drives the demand, and changes the link's rate when its time has come. The queue's counters are those of the moment when
    /// the last request had been sent.
    fn drive(&self, bed: &Bed, demand: Demand) -> Result<(Drive, Qdisc, Vec<String>), LabError> {
        let start = Instant::now() + Duration::from_millis(50);
        let errand =
            Errand { demand, start, until: self.plan.duration, drain: self.plan.drain, sources: 0, patient: false };
        let mut notes = Vec::new();
        thread::scope(|scope| {
            let driver = scope.spawn(move || self.load(bed, errand));
            // A driver that has ended early waits for nobody.
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
            let drive = driver.join().map_err(|_| LabError::Bed("the load generator panicked".to_owned()))??;
            Ok((drive, sent, notes))
        })
    }

    /// Drives a load from the calling thread, which it takes into the clients' namespace.
    pub(super) fn load(&self, bed: &Bed, errand: Errand) -> Result<Drive, LabError> {
        let _inside = bed.client().enter().map_err(LabError::io("cannot enter a namespace"))?;
        let group = |(number, group): (usize, &crate::plan::Group)| {
            let mut behaviour = group.behaviour.clone();
            if errand.patient {
                (behaviour.abort_after_s, behaviour.retries) = (None, 0);
            }
            ClientGroup {
                sources: Ipv4Addr::new(10, 10 + number as u8, errand.sources, 0),
                behaviour,
                mss_bytes: group.setting.path.mss_bytes,
            }
        };
        let groups: Vec<ClientGroup> = self.plan.groups.iter().enumerate().map(group).collect();
        let load = Load {
            demand: errand.demand,
            groups: &groups,
            server: SocketAddrV4::new(SERVER, self.servers.port),
            tls: None,
            until: errand.until,
            drain: errand.drain,
            content: self.content,
            start: errand.start,
            stop: self.stop,
            progress: None,
        };
        load.drive()
    }
}

/// Why a measurement must not be trusted, as its requests show it.
fn invalid(outcomes: &[Outcome], max_lateness_ms: f64) -> Vec<String> {
    // What was never sent (given up before its time) has no lateness.
    let sent = outcomes.iter().filter(|outcome| outcome.sent_ns > 0);
    let mut lateness_ms: Vec<f64> = sent.map(|outcome| outcome.lateness_ns() as f64 / 1e6).collect();
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

/// Ends the server, and notes it if that was not a clean end.
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
        // One in two hundred may be late, one in fifty not.
        outcomes[0] = outcome(5, End::Done);
        assert_eq!(invalid(&outcomes, 1.0), Vec::<String>::new());
        outcomes[..4].fill(outcome(5, End::Done));
        assert!(invalid(&outcomes, 1.0)[0].contains("5.00 ms late"));
        assert!(invalid(&[outcome(0, End::ClientFault)], 1.0)[0].contains("1 requests could not be sent"));
        assert!(invalid(&[], 1.0)[0].contains("no request"));
    }
}
