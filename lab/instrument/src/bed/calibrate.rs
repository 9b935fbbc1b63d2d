//! Calibration: measures a bed before each run, its rate, its packets and its congestion control.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    thread,
    time::{Duration, Instant},
};

use kernel::netns::NetNs;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::{
    network::UP,
    prefix::SERVER,
    probe::{PORT, PathCalibration},
    test_bed::TestBed,
};
use crate::LabError;

/// Results of one bulk transfer through the bottleneck, and of probes along the path of each client group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Calibration {
    /// Bits per second through the bottleneck, frames without preamble and checksum.
    pub rate_bits_per_second: f64,
    /// The measured rate over the configured rate.
    pub rate_ratio: f64,
    /// Bytes of the mean frame at the device behind the bottleneck. It is larger than a packet if offload
    /// passed it whole.
    pub mean_frame_bytes: f64,
    /// TCP congestion control of a connection that the server's namespace accepted.
    pub congestion: String,
    /// The path of each group of clients, in their order.
    #[serde(default)]
    pub paths: Vec<PathCalibration>,
}

/// Length of the transfer, in seconds at the configured rate.
const SECONDS: f64 = 0.5;
/// Largest relative error of the measured rate.
const RATE_TOLERANCE: f64 = 0.05;
const FULL_FRAME_BYTES: f64 = 1514.0;
/// How long either end waits for the other. Neither may wait for ever for an end that has failed.
const PATIENCE: Duration = Duration::from_secs(10);

impl TestBed {
    /// Sends half a second's worth of bytes through the bottleneck, then probes along each path, which takes
    /// a second or two. Returns an error if the bed differs from its configuration.
    pub fn calibrate(&self) -> Result<Calibration, LabError> {
        let config = self.config();
        let bytes = (config.rate.bytes_per_second() * SECONDS) as usize;
        let frames_before = self.received_frames()?;
        let before = self.qdisc()?;
        let (congestion, took) = thread::scope(|scope| {
            let sender = self.listen()?;
            let sender = scope.spawn(move || send(&sender, bytes));
            let took = self.receive(bytes)?;
            let congestion =
                sender.join().map_err(|_| LabError::TestBed("the sender of the calibration panicked".to_owned()))??;
            Ok::<_, LabError>((congestion, took))
        })?;
        let sent = self.qdisc()?.since(&before);
        let frames = self.received_frames()?;

        let rate = sent.bytes as f64 * 8.0 / took.as_secs_f64();
        let calibration = Calibration {
            rate_bits_per_second: rate,
            rate_ratio: rate / config.rate.bits_per_second() as f64,
            mean_frame_bytes: (frames.1 - frames_before.1) as f64 / (frames.0 - frames_before.0).max(1) as f64,
            congestion,
            paths: self.probe()?,
        };
        calibration.check(self)?;
        Ok(calibration)
    }

    fn listen(&self) -> Result<TcpListener, LabError> {
        let _inside = self.server().enter().map_err(LabError::io("cannot enter a namespace"))?;
        listening((SERVER, PORT), PATIENCE).map_err(LabError::io("cannot listen for the calibration"))
    }

    fn receive(&self, bytes: usize) -> Result<Duration, LabError> {
        let ns = self.behind_bottleneck()?;
        let _inside = ns.enter().map_err(LabError::io("cannot enter a namespace"))?;
        let failed = |error| LabError::TestBed(format!("the calibration's transfer failed: {error}"));
        let transfer = || -> io::Result<Duration> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            // The route back to this address sets the congestion control.
            socket.bind(&SockAddr::from(SocketAddr::from((self.behind_bottleneck_address(), 0))))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.connect_timeout(&SockAddr::from(SocketAddr::from((SERVER, PORT))), PATIENCE)?;
            let start = Instant::now();
            let mut buffer = vec![0; 1 << 16];
            let mut received = 0;
            while received < bytes {
                match (&socket).read(&mut buffer)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    n => received += n,
                }
            }
            Ok(start.elapsed())
        };
        transfer().map_err(failed)
    }

    /// Frames and bytes received by the device behind the bottleneck.
    fn received_frames(&self) -> Result<(u64, u64), LabError> {
        received_frames(&self.behind_bottleneck()?)
    }

    /// Packets and bytes received by the clients' device.
    pub(crate) fn received_by_clients(&self) -> Result<(u64, u64), LabError> {
        received_frames(self.client())
    }
}

fn received_frames(ns: &NetNs) -> Result<(u64, u64), LabError> {
    let _inside = ns.enter().map_err(LabError::io("cannot enter a namespace"))?;
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").map_err(LabError::io("cannot read net/dev"))?;
    parse_received(&text, UP).ok_or_else(|| LabError::TestBed(format!("a namespace of the bed has no device {UP}")))
}

/// A listener with a time limit for connections, and for sending on them.
fn listening(address: (Ipv4Addr, u16), patience: Duration) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(SocketAddr::from(address)))?;
    socket.listen(1)?;
    // This also limits accept, and connections inherit it from their listener.
    socket.set_read_timeout(Some(patience))?;
    socket.set_write_timeout(Some(patience))?;
    Ok(socket.into())
}

fn send(listener: &TcpListener, bytes: usize) -> Result<String, LabError> {
    let transfer = || -> io::Result<String> {
        let (mut connection, _) = listener.accept()?;
        let congestion = SockRef::from(&connection).tcp_congestion()?;
        connection.write_all(&vec![0; bytes])?;
        Ok(String::from_utf8_lossy(&congestion).trim_end_matches('\0').to_owned())
    };
    transfer().map_err(|error| LabError::TestBed(format!("the calibration's sender failed: {error}")))
}

impl Calibration {
    fn check(&self, bed: &TestBed) -> Result<(), LabError> {
        let config = bed.config();
        if (self.rate_ratio - 1.0).abs() > RATE_TOLERANCE {
            return Err(LabError::TestBed(format!(
                "{} was set, {:.2} Mbit/s was measured: is the machine busy with something else?",
                config.rate,
                self.rate_bits_per_second / 1e6
            )));
        }
        let largest = FULL_FRAME_BYTES * f64::from(config.gso_segments);
        if self.mean_frame_bytes > largest {
            return Err(LabError::TestBed(format!(
                "frames of {:.0} bytes on average passed, {largest} is the most: segmentation offload is on",
                self.mean_frame_bytes
            )));
        }
        if self.congestion != config.congestion {
            return Err(LabError::TestBed(format!(
                "the server's connections use {}, not {}",
                self.congestion, config.congestion
            )));
        }
        self.paths.iter().zip(config.groups()).try_for_each(|(seen, set)| seen.check(set, config))
    }
}

/// Packets and bytes received, from `/proc/net/dev`.
fn parse_received(text: &str, dev: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(dev)?.strip_prefix(':'))?;
    let mut fields = line.split_whitespace();
    let bytes = fields.next()?.parse().ok()?;
    let packets = fields.next()?.parse().ok()?;
    Some((packets, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_does_not_come_does_not_stop_everything() {
        let listener = listening((Ipv4Addr::LOCALHOST, 0), Duration::from_millis(1)).unwrap();
        assert!(send(&listener, 1).unwrap_err().to_string().contains("the calibration's sender failed"));
    }

    #[test]
    fn whoever_does_not_take_what_was_sent_does_not_stop_everything() {
        let listener = listening((Ipv4Addr::LOCALHOST, 0), Duration::from_millis(1)).unwrap();
        let _silent = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // More than the buffers of both ends.
        assert!(send(&listener, 64 << 20).unwrap_err().to_string().contains("the calibration's sender failed"));
    }

    #[test]
    fn received_frames_are_read_from_the_right_device() {
        let text = "Inter-|   Receive\n face |bytes    packets\n    lo: 1 2 3\n  up01: 5 6 0\n   up0: 3000 2 0 0\n";
        assert_eq!(parse_received(text, "up0"), Some((2, 3000)));
        assert_eq!(parse_received(text, "up9"), None);
    }
}
