//! What a path is really like, seen from its ends: round-trip time, loss and rate of each client group's path, by small
//! datagrams to and fro while nothing else is on the bed.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::{Bed, BedConfig, SERVER, calibrate::PORT, prefix};
use crate::{LabError, realtime::sharpen, setting::PathSetting};

/// What the idle path of one client group showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathCalibration {
    /// Number of the group.
    pub group: usize,
    /// Mean round-trip time of small datagrams, in milliseconds: what was set, and what the machine adds.
    pub rtt_mean_ms: f64,
    /// Its standard deviation.
    pub rtt_deviation_ms: f64,
    /// The least.
    pub rtt_least_ms: f64,
    /// Number of round trips seen.
    pub round_trips: usize,
    /// Share of datagrams that did not arrive.
    pub loss: f64,
    /// Number of datagrams of which it is the share.
    pub datagrams: usize,
    /// Rate of the group's own line in bits per second, frames without preamble and checksum. `None` where none was set, or
    /// none below that of the bottleneck.
    pub rate_bits_per_second: Option<f64>,
    /// TCP congestion control that the server's namespace gives to a connection with the group.
    pub congestion: String,
}

impl Bed {
    /// Probes all paths at once, but for lines of their own, which are probed one by one.
    pub(super) fn probe(&self) -> Result<Vec<PathCalibration>, LabError> {
        let inside = || LabError::io("cannot enter a namespace");
        let failed = || LabError::io("a probe of the path failed");
        let echo = {
            let _inside = self.server().enter().map_err(inside())?;
            UdpSocket::bind((SERVER, PORT)).map_err(failed())?
        };
        let sockets = {
            let _inside = self.client().enter().map_err(inside())?;
            (0..self.groups()).map(connected).collect::<io::Result<Vec<_>>>().map_err(failed())?
        };
        let over = AtomicBool::new(false);
        let mut seen = thread::scope(|scope| {
            let answering = scope.spawn(|| answer(&echo, &over));
            let probing = scope.spawn(|| {
                let _ = sharpen(RANK);
                Prober { config: self.config(), sockets: &sockets }.probe()
            });
            let seen = probing.join();
            over.store(true, Ordering::Relaxed);
            let answered = answering.join();
            let panicked = |_| LabError::Bed("a probe of the path panicked".to_owned());
            answered.map_err(panicked)?.map_err(failed())?;
            seen.map_err(panicked)?.map_err(failed())
        })?;
        let _inside = self.server().enter().map_err(inside())?;
        for path in &mut seen {
            path.congestion = congestion_towards(path.group).map_err(failed())?;
        }
        Ok(seen)
    }
}

impl PathCalibration {
    /// Refuses what is not as it was set.
    pub(super) fn check(&self, set: &PathSetting, config: &BedConfig) -> Result<(), LabError> {
        let refuse = |what: String| Err(LabError::Bed(format!("client group {}: {what}", self.group)));
        if self.round_trips == 0 {
            return refuse("no datagram came back".to_owned());
        }
        let tolerance_ms = 0.5 + 0.02 * set.rtt_ms + 5.0 * set.jitter_ms / (self.round_trips as f64).sqrt();
        if (self.rtt_mean_ms - set.rtt_ms).abs() > tolerance_ms {
            return refuse(format!(
                "a round-trip time of {} ms was set, {:.2} ms is the mean of {} (least {:.2}): is the machine busy with \
                 something else?",
                set.rtt_ms, self.rtt_mean_ms, self.round_trips, self.rtt_least_ms
            ));
        }
        if !chance_allows(self.loss, self.datagrams, set.loss) {
            return refuse(format!(
                "a loss of {:.3} % was set, {:.3} % of {} datagrams were lost",
                set.loss * 100.0,
                self.loss * 100.0,
                self.datagrams
            ));
        }
        if let (Some(set), Some(seen)) = (set.rate, self.rate_bits_per_second)
            && (seen / set.bits_per_second() as f64 - 1.0).abs() > LINE_TOLERANCE
        {
            return refuse(format!("a line of {set} was set, {:.3} Mbit/s were measured", seen / 1e6));
        }
        if self.congestion != config.congestion {
            return refuse(format!("connections with it use {}, not {}", self.congestion, config.congestion));
        }
        Ok(())
    }
}

/// Whether a share of lost datagrams can come of chance: five standard deviations of the binomial distribution, and two
/// datagrams more, because it is lopsided where few are lost.
fn chance_allows(lost_share: f64, datagrams: usize, set: f64) -> bool {
    let n = datagrams as f64;
    let slack = if set > 0.0 { 2.0 } else { 0.0 };
    (lost_share - set).abs() * n <= 5.0 * (n * set * (1.0 - set)).sqrt() + slack + 1e-6
}

/// How far the measured rate of a line may be from the one that was set.
const LINE_TOLERANCE: f64 = 0.1;
/// Before ordinary threads and the generator, after the emulator.
const RANK: u8 = 10;
/// First byte of a datagram that comes back as it is.
const ECHO: u8 = 1;
/// First byte of a datagram that asks for many.
const TRAIN: u8 = 2;
/// Kind and number.
const HEAD_BYTES: usize = 5;
/// A datagram as small as a frame can be: 60 bytes with its headers.
const SMALL_BYTES: usize = 18;
const SMALL_FRAME_BYTES: f64 = 60.0;
const LARGE_BYTES: usize = 1400;
const LARGE_FRAME_BYTES: f64 = 1442.0;

fn connected(group: usize) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((prefix::calibration_of_group(group), 0))?;
    socket.connect((SERVER, PORT))?;
    socket.set_nonblocking(true)?;
    // A busy machine may be late to take them.
    SockRef::from(&socket).set_recv_buffer_size(1 << 20)?;
    Ok(socket)
}

/// The server's side: sends echoes back, and trains to whoever asks, until it is over.
fn answer(socket: &UdpSocket, over: &AtomicBool) -> io::Result<()> {
    let _ = sharpen(RANK);
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    SockRef::from(socket).set_recv_buffer_size(1 << 20)?;
    let mut datagram = [0; 2048];
    while !over.load(Ordering::Relaxed) {
        let (length, from) = match socket.recv_from(&mut datagram) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
            Err(error) => return Err(error),
        };
        if datagram[0] == TRAIN && length > HEAD_BYTES {
            let cars = datagram[HEAD_BYTES];
            for _ in 0..cars {
                socket.send_to(&datagram[..LARGE_BYTES], from)?;
            }
        } else {
            socket.send_to(&datagram[..length], from)?;
        }
    }
    Ok(())
}

/// Asks the routes, as every connection does, without waiting for anybody to answer.
fn congestion_towards(group: usize) -> io::Result<String> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(SocketAddr::from((SERVER, 0))))?;
    match socket.connect(&SockAddr::from(SocketAddr::from((prefix::calibration_of_group(group), PORT)))) {
        Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => return Err(error),
        _ => {}
    }
    Ok(String::from_utf8_lossy(&socket.tcp_congestion()?).trim_end_matches('\0').to_owned())
}

/// The clients' side.
struct Prober<'a> {
    config: &'a BedConfig,
    sockets: &'a [UdpSocket],
}

/// A datagram to send.
struct Planned {
    at_ns: u64,
    group: usize,
    kind: u8,
    /// What follows the head.
    cars: u8,
}

/// A datagram that came.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// Index of the datagram that it answers.
    number: usize,
    at_ns: u64,
}

impl Prober<'_> {
    fn probe(&self) -> io::Result<Vec<PathCalibration>> {
        let paths = self.config.groups();
        let mut seen: Vec<PathCalibration> =
            (0..paths.len()).map(|group| PathCalibration { group, ..PathCalibration::default() }).collect();
        self.round_trips(&mut seen)?;
        self.losses(&mut seen)?;
        for (group, path) in paths.iter().enumerate() {
            if path.rate.is_some_and(|rate| rate < self.config.rate) {
                seen[group].rate_bits_per_second = self.line_rate(group, path)?;
            }
        }
        Ok(seen)
    }

    /// Round trips so far apart that jitter does not make one wait for the other.
    fn round_trips(&self, seen: &mut [PathCalibration]) -> io::Result<()> {
        let mut plan = Vec::new();
        for (group, path) in self.config.groups().iter().enumerate() {
            let apart_ms = (4.0 * path.jitter_ms).max(20.0);
            let count = (1000.0 / apart_ms).clamp(10.0, 25.0) as usize;
            let first_ms = group as f64 / seen.len() as f64 * 20.0;
            plan.extend((0..count).map(|i| small(group, first_ms + apart_ms * i as f64)));
        }
        let (plan, sent_ns, arrivals) = self.exchange(plan)?;
        for (group, seen) in seen.iter_mut().enumerate() {
            let times_ms = arrivals
                .iter()
                .filter(|arrival| plan[arrival.number].group == group)
                .map(|arrival| (arrival.at_ns - sent_ns[arrival.number]) as f64 / 1e6);
            let times_ms: Vec<f64> = times_ms.collect();
            seen.round_trips = times_ms.len();
            (seen.rtt_mean_ms, seen.rtt_deviation_ms) = mean_and_deviation(&times_ms);
            seen.rtt_least_ms = times_ms.iter().copied().reduce(f64::min).unwrap_or(0.0);
        }
        Ok(())
    }

    /// Many small datagrams within a second, at no more than half of what bottleneck and lines carry.
    fn losses(&self, seen: &mut [PathCalibration]) -> io::Result<()> {
        const MOST_A_GROUP: f64 = 2000.0;
        const MOST: f64 = 10_000.0;
        let half = |bytes_per_second: f64| bytes_per_second / 2.0 / SMALL_FRAME_BYTES;
        let share = half(self.config.rate.bytes_per_second()).min(MOST) / seen.len() as f64;
        let mut plan = Vec::new();
        for (group, path) in self.config.groups().iter().enumerate() {
            let line = path.rate.map_or(f64::INFINITY, |rate| half(rate.bytes_per_second()));
            let count = share.min(line).clamp(1.0, MOST_A_GROUP) as usize;
            plan.extend((0..count).map(|i| small(group, 1e3 * i as f64 / count as f64)));
            seen[group].datagrams = count;
        }
        let (plan, _, arrivals) = self.exchange(plan)?;
        for (group, seen) in seen.iter_mut().enumerate() {
            let came = arrivals.iter().filter(|arrival| plan[arrival.number].group == group).count();
            seen.loss = 1.0 - came as f64 / seen.datagrams as f64;
        }
        Ok(())
    }

    /// A train of full frames, sent at once, comes out of the line as fast as the line is.
    fn line_rate(&self, group: usize, path: &PathSetting) -> io::Result<Option<f64>> {
        let Some(rate) = path.rate else { return Ok(None) };
        let half_a_second = rate.bytes_per_second() / 2.0 / LARGE_FRAME_BYTES;
        // All must find a place in the line's queue.
        let cars = half_a_second.clamp(8.0, 100.0).min(f64::from(path.line_queue_packets().max(2))) as u8;
        let (_, _, arrivals) = self.exchange(vec![Planned { at_ns: 0, group, kind: TRAIN, cars }])?;
        let [first, .., last] = arrivals[..] else { return Ok(None) };
        // Lost ones take no time on the line.
        let bits = (arrivals.len() - 1) as f64 * LARGE_FRAME_BYTES * 8.0;
        Ok(Some(bits / ((last.at_ns - first.at_ns) as f64 / 1e9)))
    }

    /// Sends everything when its time has come, and receives until all that can come has come.
    fn exchange(&self, mut plan: Vec<Planned>) -> io::Result<(Vec<Planned>, Vec<u64>, Vec<Arrival>)> {
        plan.sort_by_key(|planned| planned.at_ns);
        let expected: usize = plan.iter().map(|planned| usize::from(planned.cars)).sum();
        let patience_ns = self.patience_ns(&plan);
        let mut sent_ns = Vec::with_capacity(plan.len());
        let mut arrivals = Vec::with_capacity(expected);
        let start = Instant::now();
        let now_ns = || start.elapsed().as_nanos() as u64;
        let mut datagram = [0; 2048];
        while arrivals.len() < expected {
            while let Some(planned) = plan.get(sent_ns.len()).filter(|planned| planned.at_ns <= now_ns()) {
                let mut bytes = [0; SMALL_BYTES];
                bytes[0] = planned.kind;
                bytes[1..HEAD_BYTES].copy_from_slice(&(sent_ns.len() as u32).to_le_bytes());
                bytes[HEAD_BYTES] = planned.cars;
                sent_ns.push(now_ns());
                self.sockets[planned.group].send(&bytes)?;
            }
            let until_ns = match plan.get(sent_ns.len()) {
                Some(next) => next.at_ns,
                None => sent_ns.last().copied().unwrap_or(0) + patience_ns,
            };
            let wait_ns = until_ns.saturating_sub(now_ns());
            if wait_ns == 0 && sent_ns.len() == plan.len() {
                break;
            }
            let timeout =
                Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as _ };
            let mut fds: Vec<PollFd> = self.sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
            match poll(&mut fds, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for socket in
                self.sockets.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty()).map(|(socket, _)| socket)
            {
                match socket.recv(&mut datagram) {
                    Ok(_) => {
                        let [_, a, b, c, d, ..] = datagram;
                        let number = u32::from_le_bytes([a, b, c, d]) as usize;
                        // Anything else is a straggler of the exchange before.
                        if number < sent_ns.len() && plan[number].kind == datagram[0] {
                            arrivals.push(Arrival { number, at_ns: now_ns() });
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok((plan, sent_ns, arrivals))
    }

    /// Time after which what has not come is lost.
    fn patience_ns(&self, plan: &[Planned]) -> u64 {
        let longest_ms = plan.iter().map(|planned| {
            let path = &self.config.groups()[planned.group];
            let train_ns = path.rate.map_or(0.0, |rate| rate.ns_for(f64::from(planned.cars) * LARGE_FRAME_BYTES));
            path.rtt_ms + 8.0 * path.jitter_ms + train_ns / 1e6 * 1.5
        });
        ((longest_ms.fold(0.0, f64::max) + 300.0) * 1e6) as u64
    }
}

fn small(group: usize, at_ms: f64) -> Planned {
    Planned { at_ns: (at_ms * 1e6) as u64, group, kind: ECHO, cars: 1 }
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> PathCalibration {
        PathCalibration {
            rtt_mean_ms: 100.1,
            round_trips: 25,
            loss: 0.05,
            datagrams: 1000,
            congestion: "cubic".to_owned(),
            ..PathCalibration::default()
        }
    }

    fn refusal(seen: &PathCalibration, set: &PathSetting) -> Option<String> {
        seen.check(set, &BedConfig::default()).err().map(|error| error.to_string())
    }

    #[test]
    fn a_path_that_is_not_what_was_set_is_refused_with_what_it_is() {
        let set = PathSetting { rtt_ms: 100.0, loss: 0.05, ..PathSetting::default() };
        assert_eq!(refusal(&seen(), &set), None);
        let late = refusal(&PathCalibration { rtt_mean_ms: 102.6, ..seen() }, &set).unwrap();
        assert!(late.contains("100 ms was set, 102.60 ms"), "{late}");
        let jittery = PathSetting { jitter_ms: 5.0, ..set.clone() };
        assert_eq!(refusal(&PathCalibration { rtt_mean_ms: 102.6, ..seen() }, &jittery), None);
        let lossy = refusal(&PathCalibration { loss: 0.09, ..seen() }, &set).unwrap();
        assert!(lossy.contains("5.000 % was set, 9.000 %"), "{lossy}");
        let line = PathSetting { rate: "2mbit".parse().ok(), ..set.clone() };
        let slow = refusal(&PathCalibration { rate_bits_per_second: Some(1.7e6), ..seen() }, &line).unwrap();
        assert!(slow.contains("2mbit was set, 1.700"), "{slow}");
        let bbr = refusal(&PathCalibration { congestion: "bbr".to_owned(), ..seen() }, &set).unwrap();
        assert!(bbr.contains("use bbr, not cubic"), "{bbr}");
        assert!(refusal(&PathCalibration::default(), &set).unwrap().contains("no datagram came back"));
    }

    #[test]
    fn chance_is_five_standard_deviations() {
        assert!(chance_allows(0.0, 1000, 0.0) && !chance_allows(0.001, 1000, 0.0));
        // 50 of 1000 are expected, 6.9 is the standard deviation.
        assert!(chance_allows(0.086, 1000, 0.05) && !chance_allows(0.088, 1000, 0.05));
        assert!(chance_allows(0.014, 1000, 0.05) && !chance_allows(0.013, 1000, 0.05));
        assert!(chance_allows(0.007, 1000, 0.001), "few are lost, and the distribution is lopsided");
    }
}
