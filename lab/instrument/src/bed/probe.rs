//! Measures round-trip time, loss and rate of each client group's path from the clients' end, by ICMP echoes
//! (RFC 792), while the bed is otherwise idle. The server's kernel answers them, so the scheduling delay of a
//! server thread is not measured.

use std::{
    io::{self, Read as _},
    net::SocketAddr,
    sync::atomic::{AtomicU8, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use workload::stats::median;

use super::{
    config::BedConfig,
    prefix::{self, SERVER},
    test_bed::TestBed,
};
use crate::{LabError, realtime::sharpen, setting::PathSetting};

/// A port without a listener in a new namespace.
pub(super) const PORT: u16 = 9;

/// Measurements of the idle path of one client group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathCalibration {
    /// Number of the group.
    pub group: usize,
    /// Mean round-trip time of small packets, in milliseconds: the configured value, and the machine's
    /// addition.
    pub rtt_mean_ms: f64,
    /// The median in milliseconds; a single packet delayed by a busy machine does not change it.
    pub rtt_median_ms: f64,
    /// Its standard deviation.
    pub rtt_deviation_ms: f64,
    /// The least.
    pub rtt_least_ms: f64,
    /// Number of round trips measured.
    pub round_trips: usize,
    /// Fraction of packets that did not arrive.
    pub loss: f64,
    /// Number of packets sent for it.
    pub packets: usize,
    /// Rate of the group's own line in bits per second, frames without preamble and checksum. `None` if none
    /// is configured, or none below that of the bottleneck.
    pub rate_bits_per_second: Option<f64>,
    /// TCP congestion control of the server's connections with the group.
    pub congestion: String,
}

impl TestBed {
    /// Probes all paths at once, except their own lines, which are probed one by one.
    pub(super) fn probe(&self) -> Result<Vec<PathCalibration>, LabError> {
        let mut seen = self.with_prober(|prober| prober.probe())?;
        let _inside = self.server().enter().map_err(LabError::io("cannot enter a namespace"))?;
        for path in &mut seen {
            path.congestion = congestion_towards(path.group)
                .map_err(LabError::io("cannot ask a route for its congestion control"))?;
        }
        Ok(seen)
    }

    /// Round-trip times of small packets to one group, in milliseconds; the arguments are the interval and
    /// the total time.
    pub(crate) fn round_trips_ms(&self, group: usize, apart: Duration, over: Duration) -> Result<Vec<f64>, LabError> {
        let apart_ms = apart.as_secs_f64() * 1e3;
        let count = (over.as_secs_f64() * 1e3 / apart_ms) as usize;
        let plan = || (0..count).map(|i| small(group, apart_ms * i as f64)).collect();
        self.with_prober(|prober| {
            let exchange = prober.exchange(plan())?;
            Ok(exchange.round_trips_ms(group))
        })
    }

    /// Runs `probe` on a thread with a socket of each client group.
    fn with_prober<T: Send>(&self, probe: impl FnOnce(&Prober) -> io::Result<T> + Send) -> Result<T, LabError> {
        let failed = || LabError::io("a probe of the path failed");
        let sockets = {
            let _inside = self.client().enter().map_err(LabError::io("cannot enter a namespace"))?;
            (0..self.groups()).map(connected).collect::<io::Result<Vec<_>>>().map_err(failed())?
        };
        let probing = || {
            let _ = sharpen(RANK);
            probe(&Prober { config: self.config(), sockets: &sockets, exchanges: AtomicU8::new(0) })
        };
        let seen = thread::scope(|scope| scope.spawn(probing).join());
        seen.map_err(|_| LabError::TestBed("a probe of the path panicked".to_owned()))?.map_err(failed())
    }
}

impl PathCalibration {
    /// Returns an error for values that differ from the configuration.
    pub(super) fn check(&self, set: &PathSetting, config: &BedConfig) -> Result<(), LabError> {
        let refuse = |what: String| Err(LabError::TestBed(format!("client group {}: {what}", self.group)));
        if self.round_trips == 0 {
            return refuse("no packet came back".to_owned());
        }
        // Five standard errors of a median.
        let chance_ms = 5.0 * 1.25 * set.jitter_ms / (self.round_trips as f64).sqrt();
        if (self.rtt_median_ms - set.rtt_ms).abs() > 0.5 + 0.02 * set.rtt_ms + chance_ms {
            return refuse(format!(
                "a round-trip time of {} ms was set, {:.2} ms is the median of {} (least {:.2}, mean {:.2}): is the \
                 machine busy with something else?",
                set.rtt_ms, self.rtt_median_ms, self.round_trips, self.rtt_least_ms, self.rtt_mean_ms
            ));
        }
        if !chance_allows(self.loss, self.packets, set.loss) {
            return refuse(format!(
                "a loss of {:.3} % was set, {:.3} % of {} packets were lost",
                set.loss * 100.0,
                self.loss * 100.0,
                self.packets
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

/// Whether a fraction of lost packets can be chance: within five standard deviations of the binomial
/// distribution, and two packets more, because it is skewed where few are lost.
fn chance_allows(lost_share: f64, packets: usize, set: f64) -> bool {
    let n = packets as f64;
    let slack = if set > 0.0 { 2.0 } else { 0.0 };
    (lost_share - set).abs() * n <= 5.0 * (n * set * (1.0 - set)).sqrt() + slack + 1e-6
}

/// Largest relative error of the measured rate of a line.
const LINE_TOLERANCE: f64 = 0.1;
/// Before ordinary threads and the generator, after the emulator.
const RANK: u8 = 10;
/// The ICMP header: type, code, checksum, identifier and sequence number, which the kernel fills in.
const ICMP_BYTES: usize = 8;
const ICMP_ECHO_REQUEST: u8 = 8;
/// Bytes of link and network headers.
const OTHER_HEADERS_BYTES: usize = 14 + 20;
/// Sizes of a minimal and of a maximal echo frame.
const SMALL_FRAME_BYTES: usize = 60;
const LARGE_FRAME_BYTES: usize = 1514;

fn connected(group: usize) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::ICMPV4))?;
    socket.bind(&SockAddr::from(SocketAddr::from((prefix::calibration_of_group(group), 0))))?;
    socket.connect(&SockAddr::from(SocketAddr::from((SERVER, 0))))?;
    socket.set_nonblocking(true)?;
    // A busy machine may be late to read them.
    socket.set_recv_buffer_size(1 << 20)?;
    socket.set_send_buffer_size(1 << 20)?;
    Ok(socket)
}

/// Queries the routes, as every connection does, without waiting for an answer.
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

/// The clients' end.
struct Prober<'a> {
    config: &'a BedConfig,
    sockets: &'a [Socket],
    /// Number of exchanges so far: a late echo of one is no answer in the next.
    exchanges: AtomicU8,
}

/// An echo to send.
struct Planned {
    at_ns: u64,
    group: usize,
    frame_bytes: usize,
}

/// A received echo.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// Index of the echo that it answers.
    number: usize,
    at_ns: u64,
}

/// Sent echoes with their times, and received ones.
struct Exchange {
    plan: Vec<Planned>,
    sent_ns: Vec<u64>,
    arrivals: Vec<Arrival>,
}

impl Exchange {
    fn round_trips_ms(&self, group: usize) -> Vec<f64> {
        let of_group = self.arrivals.iter().filter(|arrival| self.plan[arrival.number].group == group);
        of_group.map(|arrival| (arrival.at_ns - self.sent_ns[arrival.number]) as f64 / 1e6).collect()
    }
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

    /// Measures round trips at intervals so long that jitter does not make one packet wait for another.
    fn round_trips(&self, seen: &mut [PathCalibration]) -> io::Result<()> {
        let mut plan = Vec::new();
        for (group, path) in self.config.groups().iter().enumerate() {
            let apart_ms = (4.0 * path.jitter_ms).max(20.0);
            let count = (1000.0 / apart_ms).clamp(10.0, 25.0) as usize;
            let first_ms = group as f64 / seen.len() as f64 * 20.0;
            plan.extend((0..count).map(|i| small(group, first_ms + apart_ms * i as f64)));
        }
        let exchange = self.exchange(plan)?;
        for (group, seen) in seen.iter_mut().enumerate() {
            let times_ms = exchange.round_trips_ms(group);
            seen.round_trips = times_ms.len();
            seen.rtt_median_ms = if times_ms.is_empty() { 0.0 } else { median(times_ms.iter().copied()) };
            (seen.rtt_mean_ms, seen.rtt_deviation_ms) = mean_and_deviation(&times_ms);
            seen.rtt_least_ms = times_ms.iter().copied().reduce(f64::min).unwrap_or(0.0);
        }
        Ok(())
    }

    /// Measures losses with many small packets within a second, at no more than half of the rate of
    /// bottleneck and lines.
    fn losses(&self, seen: &mut [PathCalibration]) -> io::Result<()> {
        const MOST_A_GROUP: f64 = 2000.0;
        const MOST: f64 = 10_000.0;
        let half = |bytes_per_second: f64| bytes_per_second / 2.0 / SMALL_FRAME_BYTES as f64;
        let share = half(self.config.rate.bytes_per_second()).min(MOST) / seen.len() as f64;
        let mut plan = Vec::new();
        for (group, path) in self.config.groups().iter().enumerate() {
            let line = path.rate.map_or(f64::INFINITY, |rate| half(rate.bytes_per_second()));
            let count = share.min(line).clamp(1.0, MOST_A_GROUP) as usize;
            plan.extend((0..count).map(|i| small(group, 1e3 * i as f64 / count as f64)));
            seen[group].packets = count;
        }
        let exchange = self.exchange(plan)?;
        for (group, seen) in seen.iter_mut().enumerate() {
            seen.loss = 1.0 - exchange.round_trips_ms(group).len() as f64 / seen.packets as f64;
        }
        Ok(())
    }

    /// Measures a line: a train of full frames, sent at once, leaves the line at the line's rate.
    fn line_rate(&self, group: usize, path: &PathSetting) -> io::Result<Option<f64>> {
        let Some(rate) = path.rate else { return Ok(None) };
        // The kernel's own echoes have room for about 60 before the bottleneck.
        const MOST: f64 = 40.0;
        let half_a_second = rate.bytes_per_second() / 2.0 / LARGE_FRAME_BYTES as f64;
        // All must fit into the line's queue.
        let cars = half_a_second.clamp(8.0, MOST).min(f64::from(path.line_queue_packets().max(2))) as usize;
        let train = (0..cars).map(|_| Planned { at_ns: 0, group, frame_bytes: LARGE_FRAME_BYTES });
        let Exchange { arrivals, .. } = self.exchange(train.collect())?;
        let [first, .., last] = arrivals[..] else { return Ok(None) };
        // Lost frames take no time on the line.
        let bits = (arrivals.len() - 1) as f64 * LARGE_FRAME_BYTES as f64 * 8.0;
        Ok(Some(bits / ((last.at_ns - first.at_ns) as f64 / 1e9)))
    }

    /// Sends every echo at its time, and receives until no more can arrive.
    fn exchange(&self, mut plan: Vec<Planned>) -> io::Result<Exchange> {
        let exchange = self.exchanges.fetch_add(1, Ordering::Relaxed);
        plan.sort_by_key(|planned| planned.at_ns);
        let patience_ns = self.patience_ns(&plan);
        let mut sent_ns = Vec::with_capacity(plan.len());
        let mut arrivals = Vec::with_capacity(plan.len());
        let mut packet = [0; LARGE_FRAME_BYTES];
        // Delays by a busy machine are not made up at once: a burst would fill queues that a steady stream
        // does not fill.
        let mut shift_ns = 0;
        let start = Instant::now();
        let now_ns = || start.elapsed().as_nanos() as u64;
        while arrivals.len() < plan.len() {
            while let Some(planned) = plan.get(sent_ns.len()).filter(|planned| planned.at_ns + shift_ns <= now_ns()) {
                let late_ns = now_ns() - planned.at_ns - shift_ns;
                if late_ns > LATE_NS {
                    shift_ns += late_ns;
                }
                let bytes = &mut packet[..planned.frame_bytes - OTHER_HEADERS_BYTES];
                bytes.fill(0);
                bytes[0] = ICMP_ECHO_REQUEST;
                write_label(&mut bytes[ICMP_BYTES..], exchange, sent_ns.len());
                sent_ns.push(now_ns());
                match self.sockets[planned.group].send(bytes) {
                    // A queue on the way is full: the packet is lost there, and counts as lost.
                    Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {}
                    sent => drop(sent?),
                }
            }
            let until_ns = match plan.get(sent_ns.len()) {
                Some(next) => next.at_ns + shift_ns,
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
            let ready = self.sockets.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
            for (mut socket, _) in ready {
                let length = match socket.read(&mut packet) {
                    Ok(length) => length,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Err(error) => return Err(error),
                };
                let at_ns = now_ns();
                match read_label(packet[..length].get(ICMP_BYTES..).unwrap_or_default()) {
                    Some((of, number)) if of == exchange && number < sent_ns.len() => {
                        arrivals.push(Arrival { number, at_ns });
                    }
                    // A late echo of an earlier exchange.
                    _ => {}
                }
            }
        }
        Ok(Exchange { plan, sent_ns, arrivals })
    }

    /// Time after which missing echoes count as lost.
    fn patience_ns(&self, plan: &[Planned]) -> u64 {
        let longest_ms = plan.iter().map(|planned| {
            let path = &self.config.groups()[planned.group];
            path.rtt_ms + 8.0 * path.jitter_ms
        });
        // In the worst case they all wait for one line.
        let line_ms = plan.iter().filter_map(|planned| {
            let rate = self.config.groups()[planned.group].rate?;
            Some(rate.ns_for(planned.frame_bytes as f64) / 1e6)
        });
        let line_ms =
            if plan.iter().all(|planned| planned.at_ns == 0) { line_ms.sum() } else { line_ms.fold(0.0, f64::max) };
        ((longest_ms.fold(0.0, f64::max) + line_ms + 300.0) * 1e6) as u64
    }
}

/// Lateness of a packet from which on the rest of the plan is delayed too.
const LATE_NS: u64 = 2_000_000;

/// Bytes of a label: number of the exchange, and of the packet in it.
const LABEL_BYTES: usize = 5;

fn write_label(payload: &mut [u8], exchange: u8, number: usize) {
    payload[0] = exchange;
    payload[1..LABEL_BYTES].copy_from_slice(&(number as u32).to_le_bytes());
}

fn read_label(payload: &[u8]) -> Option<(u8, usize)> {
    let (&exchange, rest) = payload.split_first()?;
    let number = rest.first_chunk().copied()?;
    Some((exchange, u32::from_le_bytes(number) as usize))
}

fn small(group: usize, at_ms: f64) -> Planned {
    Planned { at_ns: (at_ms * 1e6) as u64, group, frame_bytes: SMALL_FRAME_BYTES }
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
            rtt_mean_ms: 100.5,
            rtt_median_ms: 100.1,
            round_trips: 25,
            loss: 0.05,
            packets: 1000,
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
        let late = refusal(&PathCalibration { rtt_median_ms: 102.6, ..seen() }, &set).unwrap();
        assert!(late.contains("100 ms was set, 102.60 ms"), "{late}");
        let jittery = PathSetting { jitter_ms: 5.0, ..set.clone() };
        assert_eq!(refusal(&PathCalibration { rtt_median_ms: 102.6, ..seen() }, &jittery), None);
        let lossy = refusal(&PathCalibration { loss: 0.09, ..seen() }, &set).unwrap();
        assert!(lossy.contains("5.000 % was set, 9.000 %"), "{lossy}");
        let line = PathSetting { rate: "2mbit".parse().ok(), ..set.clone() };
        let slow = refusal(&PathCalibration { rate_bits_per_second: Some(1.7e6), ..seen() }, &line).unwrap();
        assert!(slow.contains("2mbit was set, 1.700"), "{slow}");
        let bbr = refusal(&PathCalibration { congestion: "bbr".to_owned(), ..seen() }, &set).unwrap();
        assert!(bbr.contains("use bbr, not cubic"), "{bbr}");
        assert!(refusal(&PathCalibration::default(), &set).unwrap().contains("no packet came back"));
    }

    #[test]
    fn a_label_comes_back_as_it_went() {
        let mut payload = [9; 18];
        write_label(&mut payload, 255, 70_000);
        assert_eq!(read_label(&payload), Some((255, 70_000)));
        assert_eq!((read_label(&[]), read_label(&payload[..4])), (None, None));
    }

    #[test]
    fn chance_is_five_standard_deviations() {
        assert!(chance_allows(0.0, 1000, 0.0) && !chance_allows(0.001, 1000, 0.0));
        // 50 of 1000 are expected, with a standard deviation of 6.9.
        assert!(chance_allows(0.086, 1000, 0.05) && !chance_allows(0.088, 1000, 0.05));
        assert!(chance_allows(0.014, 1000, 0.05) && !chance_allows(0.013, 1000, 0.05));
        assert!(chance_allows(0.007, 1000, 0.001), "few are lost, and the distribution is lopsided");
    }
}
