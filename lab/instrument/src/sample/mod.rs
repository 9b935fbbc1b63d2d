//! Samples of the server's side during a measurement: once a second, at low cost, and without the server's
//! help.

mod netlink;
mod processes;
mod queue;
mod sockets;
mod system_calls;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek},
    sync::mpsc::{self, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use kernel::netns::NetNs;

pub use self::system_calls::SystemCalls;
use self::{processes::Processes, queue::Queue, sockets::Sockets};
use crate::{
    LabError,
    bed::{TestBed, parse},
    record::Sampled,
};

/// Time between two samples.
pub const EVERY: Duration = Duration::from_secs(1);

/// A thread that takes samples.
#[derive(Debug)]
pub struct Sampler {
    /// Dropped to stop the thread.
    stop: mpsc::Sender<()>,
    thread: JoinHandle<(Vec<Sampled>, Vec<String>)>,
}

impl Sampler {
    /// Takes a sample at `start` and each second after it. Counters count from this call on. `port` is the
    /// server's listening port.
    pub fn start(bed: &TestBed, start: Instant, port: u16) -> Result<Self, LabError> {
        let mut sources = Sources::open(bed, port)?;
        let before = sources.read();
        let (stop, stopped) = mpsc::channel();
        let work = move || {
            let mut samples = Vec::new();
            let mut at = start;
            // The other end is only dropped, never used.
            while let Err(RecvTimeoutError::Timeout) =
                stopped.recv_timeout(at.saturating_duration_since(Instant::now()))
            {
                let at_s = start.elapsed().as_secs_f64();
                samples.push(sources.read().since(&before, at_s));
                // A second that has already passed is skipped.
                while at <= Instant::now() {
                    at += EVERY;
                }
            }
            (samples, sources.notes)
        };
        let thread = thread::Builder::new().name("sampler".to_owned()).spawn(work);
        Ok(Self { stop, thread: thread.map_err(LabError::io("cannot start a thread"))? })
    }

    /// Stops the thread. Returns the samples, and a note for each source that could not be read; its fields
    /// are 0 in the affected samples.
    pub fn stop(self) -> (Vec<Sampled>, Vec<String>) {
        drop(self.stop);
        self.thread
            .join()
            .unwrap_or_else(|_| (Vec::new(), vec!["the sampling of the server's side panicked".to_owned()]))
    }
}

/// The sources of the samples.
#[derive(Debug)]
struct Sources {
    /// `/proc/net/snmp` and `/proc/net/netstat` of the server's namespace.
    tcp: Source<[File; 2]>,
    sockets: Source<Sockets>,
    queue: Source<Queue>,
    processes: Source<Processes>,
    notes: Vec<String>,
}

/// A source of numbers, or the name of one that could not be opened.
#[derive(Debug)]
struct Source<T> {
    what: &'static str,
    reader: Option<T>,
    /// Whether its failure has a note.
    noted: bool,
}

impl Sources {
    fn open(bed: &TestBed, port: u16) -> Result<Self, LabError> {
        let mut notes = Vec::new();
        let (bottleneck, device) = bed.bottleneck();
        let queue = {
            let ns = NetNs::open(bottleneck).map_err(LabError::io(format!("cannot open namespace {bottleneck}")))?;
            let _inside = ns.enter().map_err(LabError::io("cannot enter a namespace"))?;
            Source::new("the bottleneck's queue", Queue::open(device), &mut notes)
        };
        let (name, _) = bed.server_device();
        let ns = NetNs::open(name).map_err(LabError::io(format!("cannot open namespace {name}")))?;
        let (tcp, sockets) = {
            let _inside = ns.enter().map_err(LabError::io("cannot enter a namespace"))?;
            // Files keep the namespace in which they were opened.
            let open = |file: &str| File::open(format!("/proc/thread-self/net/{file}"));
            let tcp = open("snmp").and_then(|snmp| Ok([snmp, open("netstat")?]));
            (
                Source::new("TCP's counters", tcp, &mut notes),
                Source::new("the listening port's queues", Sockets::open(port), &mut notes),
            )
        };
        let processes = Source::new("the server's processes", Ok(Processes::of(ns)), &mut notes);
        Ok(Self { tcp, sockets, queue, processes, notes })
    }

    fn read(&mut self) -> Sampled {
        let notes = &mut self.notes;
        let mut sampled = Sampled::default();
        if let Some(counters) = self.tcp.read(notes, read_counters) {
            let get = |name: &str| counters.get(name).copied().unwrap_or(0);
            sampled.established = get("CurrEstab");
            sampled.listen_overflows = get("ListenOverflows");
            sampled.syn_drops = get("ListenDrops").saturating_sub(sampled.listen_overflows);
        }
        if let Some(waiting) = self.sockets.read(notes, Sockets::waiting) {
            sampled.accept_queue = waiting.accept_queue;
            sampled.syn_queue = waiting.half_open;
        }
        if let Some(queue) = self.queue.read(notes, Queue::read) {
            sampled.queue_packets = queue.waiting_packets;
            sampled.queue_drops = queue.drops;
            sampled.queue_bytes = queue.bytes;
        }
        if let Some(used) = self.processes.read(notes, Processes::used) {
            sampled.cpu_us = used.cpu_us;
            sampled.resident_bytes = used.resident_bytes;
        }
        sampled
    }
}

impl<T> Source<T> {
    fn new(what: &'static str, opened: io::Result<T>, notes: &mut Vec<String>) -> Self {
        let mut source = Self { what, reader: None, noted: false };
        match opened {
            Ok(reader) => source.reader = Some(reader),
            Err(error) => source.note(notes, &error),
        }
        source
    }

    fn read<R>(&mut self, notes: &mut Vec<String>, read: impl FnOnce(&mut T) -> io::Result<R>) -> Option<R> {
        let result = read(self.reader.as_mut()?);
        result.map_err(|error| self.note(notes, &error)).ok()
    }

    fn note(&mut self, notes: &mut Vec<String>, error: &io::Error) {
        if !self.noted {
            notes.push(format!("{} cannot be sampled, or not always: {error}", self.what));
            self.noted = true;
        }
    }
}

/// The TCP counters used. `ListenDrops` counts every SYN and connection that a listening socket had no place
/// for. `ListenOverflows` counts those for which its accept queue was full. The difference is SYNs without a
/// place among the half-open connections.
const WANTED: [&str; 3] = ["CurrEstab", "ListenDrops", "ListenOverflows"];

fn read_counters(files: &mut [File; 2]) -> io::Result<BTreeMap<String, u64>> {
    let (mut text, mut counters) = (String::new(), BTreeMap::new());
    for file in files {
        text.clear();
        // After a rewind the kernel generates the text again.
        file.rewind()?;
        file.read_to_string(&mut text)?;
        parse(&text, &WANTED, &mut counters);
    }
    Ok(counters)
}

impl Sampled {
    /// This sample, with counters relative to `before`.
    fn since(self, before: &Self, at_s: f64) -> Self {
        Self {
            at_s,
            syn_drops: self.syn_drops.saturating_sub(before.syn_drops),
            listen_overflows: self.listen_overflows.saturating_sub(before.listen_overflows),
            queue_drops: self.queue_drops.saturating_sub(before.queue_drops),
            queue_bytes: self.queue_bytes.saturating_sub(before.queue_bytes),
            cpu_us: self.cpu_us.saturating_sub(before.cpu_us),
            ..self
        }
    }
}
