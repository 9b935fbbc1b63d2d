//! Emulated distance on one machine: the path between the bottleneck and each group of clients.
//!
//! It has two TUN devices, one in the path's namespace and one in the clients', and a thread of this process
//! between them. On the way to the clients, packets may be lost, wait for the group's line, and take half of
//! the round-trip time and all of its jitter. On the way back they take the other half. Loss happens behind
//! the bottleneck and never on the sender's own device, which would tell TCP that the packet was not sent.

mod counters;
mod delay_line;
mod emulator;
mod flow;
mod lane;
pub(super) mod netem;

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use kernel::tun::Tun;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

pub use self::counters::{GroupCounters, LaneCounters, WanCounters, WanFacts};
use self::emulator::{Direction, Emulator};
use crate::{LabError, realtime::sharpen, setting::PathSetting};

/// A running emulator. Dropping it ends its thread and removes its devices.
#[derive(Debug)]
pub(super) struct Wan {
    /// Requests for the counters. When the sender is dropped, the thread ends.
    questions: Option<Sender<SyncSender<WanCounters>>>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<()>>>,
    blunt: Option<String>,
}

impl Wan {
    /// Carries packets between the two devices, by the path of their group.
    pub(super) fn start(to_server: Tun, to_clients: Tun, paths: &[PathSetting], seed: u64) -> Result<Self, LabError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| LabError::Io("cannot make an eventfd".to_owned(), error.into()))?;
        let wake = Arc::new(wake);
        let (questions, asked) = channel();
        let (ready, started) = sync_channel(1);
        let emulator = Emulator::new(paths, seed);
        let driver = Driver { to_server, to_clients, wake: Arc::clone(&wake), asked, emulator, start: Instant::now() };
        let body = move || {
            // The receiver waits for it.
            let _ = ready.send(sharpen(RANK));
            driver.run()
        };
        let thread = thread::Builder::new()
            .name("lab-wan".to_owned())
            .spawn(body)
            .map_err(LabError::io("cannot start the emulator's thread"))?;
        let blunt = started.recv().map_err(|_| LabError::TestBed("the emulator's thread ended at once".to_owned()))?;
        Ok(Self { questions: Some(questions), wake, thread: Some(thread), blunt })
    }

    /// Counters since the start.
    pub(super) fn counters(&self) -> Result<WanCounters, LabError> {
        let gone = || LabError::TestBed("the emulator of the path has ended: its devices failed".to_owned());
        let (reply, answer) = sync_channel(1);
        self.questions.as_ref().ok_or_else(gone)?.send(reply).map_err(|_| gone())?;
        self.wake();
        answer.recv().map_err(|_| gone())
    }

    /// The priority or timer that the system refused to the thread.
    pub(super) fn note(&self) -> Option<String> {
        let reason = self.blunt.as_ref()?;
        Some(format!(
            "the path's emulator is an ordinary thread ({reason}): packets may be late when the machine is busy"
        ))
    }

    fn wake(&self) {
        // It fails only after 2^64 wake-ups that the thread did not read.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        self.questions = None;
        self.wake();
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the emulator of the path failed: {error}");
        }
    }
}

/// Among the lab's real-time threads, the path goes before the generator: its lateness is in every measured
/// time.
const RANK: u8 = 20;
/// Packets read from one device before due packets are sent.
const READS_A_TURN: usize = 16;
/// The largest IP packet.
const LARGEST_BYTES: usize = 1 << 16;

struct Driver {
    to_server: Tun,
    to_clients: Tun,
    wake: Arc<OwnedFd>,
    asked: Receiver<SyncSender<WanCounters>>,
    emulator: Emulator,
    start: Instant,
}

impl Driver {
    fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; LARGEST_BYTES];
        loop {
            self.deliver();
            let read = self.read(Direction::ToClients, &mut buffer)? + self.read(Direction::ToServer, &mut buffer)?;
            if read > 0 {
                continue;
            }
            if self.wait()? {
                let mut count = [0; 8];
                let _ = rustix::io::read(&self.wake, &mut count);
                loop {
                    match self.asked.try_recv() {
                        // The requester may be gone.
                        Ok(reply) => drop(reply.try_send(self.emulator.counters().clone())),
                        Err(TryRecvError::Empty) => break,
                        Err(TryRecvError::Disconnected) => return Ok(()),
                    }
                }
            }
        }
    }

    fn deliver(&mut self) {
        while let Some(packet) = self.emulator.poll_packet(now_ns(self.start)) {
            let device = match packet.direction {
                Direction::ToClients => &self.to_clients,
                Direction::ToServer => &self.to_server,
            };
            if device.write(&packet.bytes).is_err() {
                self.emulator.handle_refusal();
            }
            self.emulator.recycle(packet);
        }
    }

    /// Reads waiting packets of a direction, up to the limit of a turn; returns their number.
    fn read(&mut self, direction: Direction, buffer: &mut [u8]) -> io::Result<usize> {
        // Packets to the clients come from the server's side.
        let device = match direction {
            Direction::ToClients => &self.to_server,
            Direction::ToServer => &self.to_clients,
        };
        for read in 0..READS_A_TURN {
            match device.read(buffer) {
                Ok(length) => self.emulator.handle_packet(now_ns(self.start), direction, &buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(read + 1),
                Err(error) => return Err(error),
            }
        }
        Ok(READS_A_TURN)
    }

    /// Waits for a packet, a due time or a request for counters; returns whether there was a request.
    fn wait(&self) -> io::Result<bool> {
        let timeout = self.emulator.poll_timeout().map(|due_ns| {
            let wait_ns = due_ns.saturating_sub(now_ns(self.start));
            Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as _ }
        });
        let mut fds = [
            PollFd::new(&self.to_server, PollFlags::IN),
            PollFd::new(&self.to_clients, PollFlags::IN),
            PollFd::new(&self.wake, PollFlags::IN),
        ];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => Ok(!fds[2].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn now_ns(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}
