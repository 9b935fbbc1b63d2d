//! The main loop of the generator: due requests, ready sockets, and clients that give up.

use std::{
    collections::BTreeSet,
    io,
    os::fd::OwnedFd,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rustix::{
    buffer::spare_capacity,
    event::{PollFd, PollFlags, Timespec, epoll, poll},
};
use slab::Slab;
use workload::{
    behaviour::Protocol,
    demand::Due,
    outcome::{End, Outcome},
    sequence::Request,
};

use super::{
    connection::Connection,
    group::{Group, Sources},
    load::{Load, LoadResult},
    report::{BYTES_A_TURN, ConnectionState, Report, RequestState},
    transport::Transport,
};
use crate::LabError;

/// Most requests sent, and aborted, before sockets are checked again: enough for any burst, and a bound.
const SENDS_A_TURN: usize = 64;
/// Events taken from the kernel at once; due requests are sent between any two of them.
const EVENTS_A_TURN: usize = 128;
/// Longest sleep, so that a stop is noticed.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// Sources skipped in a row because an earlier load's connection from there is in TIME_WAIT.
const MOST_TAKEN: usize = 1000;
/// Most retries of a request that the server did not process: a server that never does must not keep the
/// generator busy.
const MOST_UNSEEN: u8 = 10;

/// The state of a run.
pub(super) struct Generator<'a> {
    load: Load<'a>,
    until_ns: u64,
    groups: Vec<Group>,
    sources: Sources,
    epoll: OwnedFd,
    connections: Slab<Connection>,
    /// Keys of connections with more to read than one turn allows.
    more: Vec<usize>,
    /// A counter, so that the connection that became free last is used first.
    freed: u64,
    opened: u64,
    asks: Slab<Ask>,
    /// When clients give up, with the key of the request in `asks`.
    deadlines: BTreeSet<(u64, usize)>,
    /// Requests to be retried on another connection.
    unseen: Vec<usize>,
    /// Grows as requests are sent. The allocator moves a large one without copying it.
    outcomes: Vec<Outcome>,
    most_concurrent: usize,
    notes: Vec<String>,
    buffer: Vec<u8>,
    reports: Vec<Report>,
}

/// A request under way.
#[derive(Debug)]
struct Ask {
    request: Request,
    /// Number of its outcome.
    outcome: usize,
    user: Option<u32>,
    /// Key of its connection, if it has one.
    connection: Option<usize>,
    deadline_ns: Option<u64>,
    unseen: u8,
}

impl<'a> Generator<'a> {
    pub(super) fn new(load: Load<'a>) -> Result<Self, LabError> {
        let mut sources = Sources::default();
        let groups =
            load.groups.iter().enumerate().map(|(number, group)| Group::new(number, group, &load, &mut sources));
        let groups = groups.collect::<Result<_, _>>()?;
        Ok(Self {
            until_ns: nanoseconds(load.until),
            groups,
            sources,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)
                .map_err(io::Error::from)
                .map_err(LabError::io("cannot make an epoll instance"))?,
            connections: Slab::new(),
            more: Vec::new(),
            freed: 0,
            opened: 0,
            asks: Slab::new(),
            deadlines: BTreeSet::new(),
            unseen: Vec::new(),
            outcomes: Vec::new(),
            most_concurrent: 0,
            notes: Vec::new(),
            buffer: vec![0; BYTES_A_TURN],
            reports: Vec::new(),
            load,
        })
    }

    pub(super) fn run(&mut self) -> Result<(), LabError> {
        let end_ns = self.until_ns.saturating_add(nanoseconds(self.load.drain));
        let mut events = Vec::with_capacity(EVENTS_A_TURN);
        loop {
            self.send_due()?;
            self.abort_due();
            let next_ns = self.next_ns();
            if self.now_ns() >= end_ns || (self.asks.is_empty() && next_ns.is_none()) {
                return self.send_none();
            }
            if self.load.stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            let deadline_ns = self.deadlines.first().map(|&(at_ns, _)| at_ns);
            let wake_ns = [next_ns, deadline_ns].into_iter().flatten().fold(end_ns, u64::min);
            let wait = if self.more.is_empty() { self.time_until(wake_ns) } else { Duration::ZERO };
            self.wait(wait, &mut events).map_err(LabError::io("cannot wait for the sockets"))?;
            let more = std::mem::take(&mut self.more);
            for key in events.drain(..).map(|event| event.data.u64() as usize).chain(more) {
                self.turn(key);
                self.ask_unseen();
                self.send_due()?;
            }
        }
    }

    pub(super) fn finish(mut self) -> LoadResult {
        let now_ns = self.now_ns();
        for outcome in self.outcomes.iter_mut().filter(|outcome| outcome.end == End::Unfinished) {
            outcome.end_ns = now_ns;
        }
        LoadResult {
            outcomes: self.outcomes,
            connections: self.opened,
            most_concurrent: self.most_concurrent,
            notes: self.notes,
        }
    }

    /// Nanoseconds since the start; 0 before it.
    fn now_ns(&self) -> u64 {
        nanoseconds(Instant::now().saturating_duration_since(self.load.start))
    }

    fn time_until(&self, at_ns: u64) -> Duration {
        (self.load.start + Duration::from_nanos(at_ns)).saturating_duration_since(Instant::now())
    }

    /// The time of the next request, unless it is after the end.
    fn next_ns(&self) -> Option<u64> {
        self.load.demand.poll_timeout().filter(|&at_ns| at_ns <= self.until_ns)
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

    fn send_due(&mut self) -> Result<(), LabError> {
        for _ in 0..SENDS_A_TURN {
            let now_ns = self.now_ns();
            // Before the start the clock stands at 0, and a request at 0 is due when it moves.
            if now_ns == 0 || self.next_ns().is_none() {
                return Ok(());
            }
            let Some(due) = self.load.demand.poll_request(now_ns) else { return Ok(()) };
            let ask = self.begin(due, now_ns)?;
            self.attempt(ask, now_ns, true);
            self.ask_unseen();
        }
        Ok(())
    }

    /// Also records requests that were due but could not be sent before the end: the lateness shows it.
    fn send_none(&mut self) -> Result<(), LabError> {
        let now_ns = self.now_ns();
        while self.next_ns().is_some()
            && let Some(due) = self.load.demand.poll_request(now_ns)
        {
            self.begin(due, now_ns)?;
        }
        Ok(())
    }

    fn begin(&mut self, Due { request, user }: Due, now_ns: u64) -> Result<usize, LabError> {
        if usize::from(request.group) >= self.groups.len() {
            return Err(LabError::Request(format!(
                "a request is asked of client group {}, and there are {}",
                request.group,
                self.groups.len()
            )));
        }
        self.outcomes.push(Outcome {
            at_ns: request.at_ns,
            file: request.file,
            size_bytes: request.size_bytes,
            group: request.group,
            attempts: 0,
            sent_ns: now_ns,
            first_byte_ns: None,
            end_ns: 0,
            body_bytes: 0,
            head_bytes: 0,
            end: End::Unfinished,
        });
        let outcome = self.outcomes.len() - 1;
        let ask = self.asks.insert(Ask { request, outcome, user, connection: None, deadline_ns: None, unseen: 0 });
        self.most_concurrent = self.most_concurrent.max(self.asks.len());
        Ok(ask)
    }

    /// Sends a request for the first time, or again after an abort. The results of an earlier attempt are
    /// dropped.
    fn attempt(&mut self, ask: usize, now_ns: u64, may_reuse: bool) {
        let Ask { request, outcome, .. } = self.asks[ask];
        let outcome = &mut self.outcomes[outcome];
        outcome.attempts += 1;
        (outcome.first_byte_ns, outcome.head_bytes, outcome.body_bytes) = (None, 0, 0);
        if let Some(after_ns) = self.groups[usize::from(request.group)].abort_after_ns {
            let deadline_ns = now_ns.saturating_add(after_ns);
            self.asks[ask].deadline_ns = Some(deadline_ns);
            self.deadlines.insert((deadline_ns, ask));
        }
        self.ask(ask, may_reuse);
    }

    /// Gives the request to a free connection of its group, if there is one and reuse is allowed, else to a
    /// new one.
    fn ask(&mut self, ask: usize, may_reuse: bool) {
        let group = usize::from(self.asks[ask].request.group);
        while may_reuse && let Some(&key) = self.groups[group].free.values().next_back() {
            // The server may have closed it meanwhile; then the next one is tried.
            self.turn(key);
            if self
                .connections
                .get(key)
                .is_some_and(|connection| connection.group == group && connection.free.is_some())
            {
                return self.give(ask, key);
            }
        }
        if let Some(key) = self.open(ask, group) {
            self.give(ask, key);
        }
    }

    fn give(&mut self, ask: usize, key: usize) {
        let Ask { request, connection, .. } = &mut self.asks[ask];
        *connection = Some(key);
        self.connections[key].give(ask, request, &self.groups[usize::from(request.group)]);
        self.turn(key);
    }

    /// Opens a connection for a request; if that fails, the request fails.
    fn open(&mut self, ask: usize, number: usize) -> Option<usize> {
        let group = &self.groups[number];
        let mut source = self.sources.next(group.sources);
        let entry = self.connections.vacant_entry();
        let key = entry.key();
        let mut transport = Transport::open(&group.endpoint, source, &self.epoll, key);
        for _ in 0..MOST_TAKEN {
            if !transport.as_ref().is_err_and(is_taken) {
                break;
            }
            source = self.sources.next(group.sources);
            transport = Transport::open(&group.endpoint, source, &self.epoll, key);
        }
        match transport {
            Ok(transport) => {
                self.opened += 1;
                entry.insert(Connection::new(number, group, transport));
                Some(key)
            }
            // Immediate, since only the own host refuses so.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.end(ask, End::Refused);
                None
            }
            Err(error) => {
                self.note(format!("the clients could not open a connection: {error}"));
                self.end(ask, End::ClientFault);
                None
            }
        }
    }

    /// Lets a connection do its work.
    fn turn(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let mut reports = std::mem::take(&mut self.reports);
        let state = connection.turn(&mut self.buffer, self.load.content, &mut reports);
        for report in reports.drain(..) {
            self.handle(report);
        }
        self.reports = reports;
        self.settle(key, state);
    }

    fn handle(&mut self, Report { ask, progress, what }: Report) {
        let now_ns = self.now_ns();
        let outcome = &mut self.outcomes[self.asks[ask].outcome];
        outcome.head_bytes = progress.head_bytes;
        outcome.body_bytes = progress.body_bytes;
        if progress.answered && outcome.first_byte_ns.is_none() {
            outcome.first_byte_ns = Some(now_ns);
        }
        match what {
            RequestState::UnderWay => {}
            RequestState::Done => self.end(ask, End::Done),
            RequestState::Failed(end, why) => {
                why.into_iter().for_each(|why| self.note(why));
                self.end(ask, end);
            }
            RequestState::Unseen => {
                self.asks[ask].connection = None;
                self.unseen.push(ask);
            }
        }
    }

    /// After a turn: drops the connection, or updates whether it is free.
    fn settle(&mut self, key: usize, state: ConnectionState) {
        let connection = &mut self.connections[key];
        let free = &mut self.groups[connection.group].free;
        let is_free = state != ConnectionState::Closed && connection.is_free();
        match connection.free {
            None if is_free => {
                self.freed += 1;
                connection.free = Some(self.freed);
                free.insert(self.freed, key);
            }
            Some(place) if !is_free => {
                connection.free = None;
                free.remove(&place);
            }
            _ => {}
        }
        match state {
            ConnectionState::Open => {}
            ConnectionState::More => self.more.push(key),
            ConnectionState::Closed => {
                self.connections.remove(key);
            }
        }
    }

    /// Retries requests that servers did not process, as browsers do; their time continues.
    fn ask_unseen(&mut self) {
        while let Some(ask) = self.unseen.pop() {
            self.asks[ask].unseen += 1;
            if self.asks[ask].unseen > MOST_UNSEEN {
                self.end(ask, End::Broken);
            } else {
                self.ask(ask, false);
            }
        }
    }

    /// Aborts requests whose clients give up.
    fn abort_due(&mut self) {
        for _ in 0..SENDS_A_TURN {
            let Some(&(deadline_ns, ask)) = self.deadlines.first() else { return };
            let now_ns = self.now_ns();
            if deadline_ns > now_ns {
                return;
            }
            self.deadlines.pop_first();
            self.asks[ask].deadline_ns = None;
            if let Some(key) = self.asks[ask].connection.take() {
                let state = self.connections[key].cancel(ask);
                self.settle(key, state);
            }
            let Ask { request, outcome, .. } = self.asks[ask];
            let group = &self.groups[usize::from(request.group)];
            if self.outcomes[outcome].attempts > group.retries {
                self.end(ask, End::Aborted);
            } else {
                let may_reuse = group.endpoint.protocol == Protocol::Http2;
                self.attempt(ask, now_ns, may_reuse);
            }
            self.ask_unseen();
        }
    }

    fn end(&mut self, ask: usize, end: End) {
        let now_ns = self.now_ns();
        let Ask { outcome, user, deadline_ns, .. } = self.asks.remove(ask);
        if let Some(deadline_ns) = deadline_ns {
            self.deadlines.remove(&(deadline_ns, ask));
        }
        let outcome = &mut self.outcomes[outcome];
        outcome.end = end;
        outcome.end_ns = now_ns;
        if let Some(user) = user {
            self.load.demand.handle_end(user, now_ns);
        }
    }

    /// Records a note once, and only a few notes in all.
    fn note(&mut self, text: String) {
        const MOST_NOTES: usize = 10;
        if self.notes.len() < MOST_NOTES && !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
