//! The load generator: open loop, one thread, a small state machine for each connection.
//!
//! Every request has its moment, decided before the run. Whatever becomes of the others, it is sent then, and its response
//! time counts from then: a client that waited for answers would spare the very server that is slow. How late requests were
//! sent is recorded, because that is the generator's own error.

mod connection;
mod response;

use std::{
    collections::VecDeque,
    io,
    net::{Ipv4Addr, SocketAddrV4},
    num::NonZero,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rustix::{
    buffer::spare_capacity,
    event::{PollFd, PollFlags, Timespec, epoll, poll},
};
use slab::Slab;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use workload::{
    outcome::{End, Outcome},
    sequence::Request,
};

use self::connection::{Connection, Step};
use crate::{
    LabError,
    docroot::{Content, name},
};

/// What to send, where, and how.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The requests, by time.
    pub requests: &'a [Request],
    /// The server.
    pub server: SocketAddrV4,
    /// A /24 of this machine's own to connect from.
    pub sources: Ipv4Addr,
    /// Whether connections are kept and used again, or each request has its own.
    pub keep_alive: bool,
    /// How long to wait for responses after the last request was sent.
    pub drain: Duration,
    /// The bytes of the files.
    pub content: &'a Content,
    /// Time zero. Later than now, so that the first request is not late.
    pub start: Instant,
    /// Set to end the run early.
    pub stop: &'a AtomicBool,
}

/// What came of it.
#[derive(Debug)]
pub struct Drive {
    /// One for each request, in their order.
    pub outcomes: Vec<Outcome>,
    /// Connections opened.
    pub connections: u64,
    /// Most requests under way at one time.
    pub most_concurrent: usize,
    /// What the system refused the generator.
    pub note: Option<String>,
}

impl Load<'_> {
    /// Sends the requests from the calling thread, which must be in the clients' namespace, and returns when all have ended
    /// or the time to drain is over. The thread's priority and timer are made as sharp as the system lets them be.
    pub fn drive(&self) -> Result<Drive, LabError> {
        let blunt = sharpen();
        let mut generator = Generator::new(self).map_err(LabError::io("cannot make an epoll instance"))?;
        generator.run()?;
        Ok(Drive { note: blunt, ..generator.finish() })
    }
}

/// The timer to a nanosecond instead of 50 us, and the thread ahead of everybody's, for it must never be what is slow. Says so
/// if the system refuses, and then makes do with what an ordinary thread can have.
fn sharpen() -> Option<String> {
    // A coarser timer shows in the lateness.
    let _ = rustix::thread::set_current_timer_slack(NonZero::new(1));
    let fifo = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let realtime = ThreadPriorityValue::try_from(1u8).and_then(|lowest| {
        let lowest = ThreadPriority::Crossplatform(lowest);
        set_thread_priority_and_policy(thread_native_id(), lowest, fifo).map_err(|error| format!("{error:?}"))
    });
    let reason = realtime.err()?;
    // For Linux, "this process" means the calling thread here.
    let _ = rustix::process::setpriority_process(None, -20);
    Some(format!("the generator is an ordinary thread ({reason}): it may be late when the machine is busy"))
}

/// Requests that may be sent between two looks at the sockets: enough for any burst, and a bound.
const SENDS_A_TURN: usize = 64;
/// Events taken from the kernel at once; requests that fall due are sent between any two of them.
const EVENTS_A_TURN: usize = 128;
/// Longest sleep, so that a stop is seen.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

struct Generator<'a> {
    load: &'a Load<'a>,
    epoll: OwnedFd,
    connections: Slab<Connection>,
    /// Keys of idle connections, the last used at the back.
    idle: VecDeque<usize>,
    outcomes: Vec<Outcome>,
    next: usize,
    under_way: usize,
    most_concurrent: usize,
    opened: u64,
    buffer: Vec<u8>,
}

impl<'a> Generator<'a> {
    fn new(load: &'a Load<'a>) -> io::Result<Self> {
        let outcome = |request: &Request| Outcome {
            at_ns: request.at_ns,
            file: request.file,
            size_bytes: request.size_bytes,
            group: request.group,
            attempts: 1,
            sent_ns: 0,
            first_byte_ns: None,
            end_ns: 0,
            body_bytes: 0,
            head_bytes: 0,
            end: End::Unfinished,
        };
        Ok(Self {
            load,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: Slab::new(),
            idle: VecDeque::new(),
            outcomes: load.requests.iter().map(outcome).collect(),
            next: 0,
            under_way: 0,
            most_concurrent: 0,
            opened: 0,
            buffer: vec![0; 1 << 18],
        })
    }

    fn run(&mut self) -> Result<(), LabError> {
        let last_ns = self.load.requests.last().map_or(0, |request| request.at_ns);
        let end_ns = last_ns + self.load.drain.as_nanos() as u64;
        let mut events = Vec::with_capacity(EVENTS_A_TURN);
        while self.next < self.load.requests.len() || self.under_way > 0 {
            self.send_due();
            let now = self.now_ns();
            if now >= end_ns {
                break;
            }
            if self.load.stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            let until = self.load.requests.get(self.next).map_or(end_ns, |request| request.at_ns);
            self.wait(Duration::from_nanos(until.saturating_sub(now)), &mut events)
                .map_err(LabError::io("cannot wait for the sockets"))?;
            for event in events.drain(..) {
                self.handle(event.data.u64() as usize);
                self.send_due();
            }
        }
        Ok(())
    }

    /// Nanoseconds since the start; 0 before it.
    fn now_ns(&self) -> u64 {
        Instant::now().saturating_duration_since(self.load.start).as_nanos() as u64
    }

    /// `epoll_wait` counts in milliseconds; `ppoll` on the epoll instance counts in nanoseconds.
    fn wait(&self, timeout: Duration, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let timeout = timeout.min(LONGEST_WAIT);
        let to_wait = Timespec { tv_sec: 0, tv_nsec: timeout.as_nanos() as _ };
        let ready = match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&to_wait)) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        if ready > 0 {
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            match epoll::wait(&self.epoll, spare_capacity(events), Some(&none)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn send_due(&mut self) {
        for _ in 0..SENDS_A_TURN {
            let Some(request) = self.load.requests.get(self.next) else { return };
            let now = self.now_ns();
            // Before the start the clock stands at 0, and a request at 0 is not due until it moves.
            if now == 0 || request.at_ns > now {
                return;
            }
            let index = self.next;
            self.next += 1;
            self.outcomes[index].sent_ns = now;
            self.under_way += 1;
            self.most_concurrent = self.most_concurrent.max(self.under_way);
            self.send(index);
        }
    }

    /// Sends a request on an idle connection if there is one, else on a new one.
    fn send(&mut self, index: usize) {
        while let Some(key) = self.idle.pop_back() {
            // The server may have closed it meanwhile: then the next one.
            let head = self.head(index);
            if self.connections[key].reuse(index, &self.load.requests[index], head) {
                return self.handle(key);
            }
            self.connections.remove(key);
        }
        self.send_anew(index);
    }

    fn send_anew(&mut self, index: usize) {
        let head = self.head(index);
        let entry = self.connections.vacant_entry();
        let source = source_of(self.load.sources, self.opened);
        self.opened += 1;
        let opened = Connection::open(
            source,
            self.load.server,
            &self.epoll,
            entry.key(),
            index,
            &self.load.requests[index],
            head,
        );
        match opened {
            Ok(connection) => {
                entry.insert(connection);
            }
            // At once, as only a host refuses itself.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => self.end(index, End::Refused),
            Err(_) => self.end(index, End::ClientFault),
        }
    }

    fn head(&self, index: usize) -> Vec<u8> {
        let load = self.load;
        let connection = if load.keep_alive { "" } else { "Connection: close\r\n" };
        let file = name(load.requests[index].file);
        format!(
            "GET /{file} HTTP/1.1\r\nHost: {}\r\nUser-Agent: serpent-lab\r\nAccept: */*\r\n{connection}\r\n",
            load.server
        )
        .into_bytes()
    }

    fn handle(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let step = connection.advance(&mut self.buffer, self.load.content);
        let index = connection.request();
        if let Some(index) = index {
            let now = self.now_ns();
            let progress = self.connections[key].progress();
            let outcome = &mut self.outcomes[index];
            outcome.head_bytes = progress.head_bytes;
            outcome.body_bytes = progress.body_bytes;
            if progress.answered && outcome.first_byte_ns.is_none() {
                outcome.first_byte_ns = Some(now);
            }
        }
        match (step, index) {
            (Step::Pending, _) => {}
            (Step::Done { keep }, Some(index)) => {
                self.end(index, End::Done);
                if keep && self.load.keep_alive {
                    self.connections[key].rest();
                    self.idle.push_back(key);
                } else {
                    self.connections.remove(key);
                }
            }
            // A kept connection that the server closed before it saw the request: asked again, as browsers do; the time
            // runs on.
            (Step::ClosedBeforeAnswer, Some(index)) => {
                self.connections.remove(key);
                self.send_anew(index);
            }
            (Step::Failed(end), Some(index)) => {
                self.end(index, end);
                self.connections.remove(key);
            }
            // An idle connection that ended.
            (_, None) => {
                self.idle.retain(|&idle| idle != key);
                self.connections.remove(key);
            }
        }
    }

    fn end(&mut self, index: usize, end: End) {
        let now = self.now_ns();
        let outcome = &mut self.outcomes[index];
        outcome.end = end;
        outcome.end_ns = now;
        self.under_way -= 1;
    }

    fn finish(mut self) -> Drive {
        let now = self.now_ns();
        for outcome in self.outcomes.iter_mut().filter(|outcome| outcome.end == End::Unfinished) {
            outcome.end_ns = now;
        }
        Drive { outcomes: self.outcomes, connections: self.opened, most_concurrent: self.most_concurrent, note: None }
    }
}

/// Address and port of the n-th connection: 250 addresses of the prefix in turn, each with its ports in turn, so that none is
/// used again within 15 million connections.
fn source_of(prefix: Ipv4Addr, n: u64) -> SocketAddrV4 {
    const ADDRESSES: u64 = 250;
    const FIRST_PORT: u64 = 2_000;
    const PORTS: u64 = 63_000;
    let [a, b, c, _] = prefix.octets();
    let host = (n % ADDRESSES) as u8 + 1;
    SocketAddrV4::new(Ipv4Addr::new(a, b, c, host), (FIRST_PORT + n / ADDRESSES % PORTS) as u16)
}

#[cfg(test)]
mod tests;
