//! A packet-level model of a site behind a bottleneck.
//!
//! Each request, or every few of them, has a TCP connection. Its SYN-ACK waits in the bottleneck's queue like
//! all other frames. TCP has slow start with HyStart, CUBIC, Linux's delayed acknowledgements, loss detection
//! by RACK, and time-outs. A connection may only have a limited amount in the queue of its own device (TCP
//! small queues), which makes Linux's own FIFO nearly fair. Behind the bottleneck each group of clients has
//! its distance, jitter and loss.
//!
//! On the server, the discipline decides. Every connection writes as much as TCP accepts, as with nginx
//! ([`Discipline::Fair`]). Or each asks [`scheduler::Uplink`] for grants, as Serpent's gate does
//! ([`Discipline::Gate`]). Or frames go into strict priority bands ([`Discipline::Bands`]).
//!
//! The example `against_lab` compares the model with lab runs at 10 Mbit/s; no constant is fitted to them.
//! The runs are of nginx and of Serpent in the orders fair and srpt, at loads of 0.5 to 0.95. The predicted
//! mean response times are 2 to 10 % too short wherever the machine did not disturb the measurement. Those of
//! six distant groups of waiting users are within 4 %. The error grows with the machine's part of a response
//! time: it is largest for the smallest files at low load.
//!
//! Not modelled: processors and disks beyond a constant time before each answer; loss and queues on the way
//! to the server; limits of the receiver's window; HTTP/2; TLS; a client's own line. A client whose SYN is
//! not answered retries for ever.

mod agenda;
mod bottleneck;
mod connection;
mod cubic;
mod path;
mod receiver;
mod sender;
mod server;

use std::collections::VecDeque;

use scheduler::{Instant, Uplink, bands::BandPlan, uplink::Settings};
use workload::{rate::Link, sequence::Request, wire::WireModel};

use self::{
    agenda::{Agenda, Event},
    bottleneck::{Bottleneck, Cargo, Frame},
    connection::{Connection, ConnectionId, Expected, Handshake},
    path::Lane,
    receiver::{Ack, Receiver},
    sender::{Sender, SmallQueue},
};
pub use self::{bottleneck::Shaping, path::ClientPath};
use crate::{Ended, Model, Ticket};

/// The rule by which the server sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Discipline {
    /// Every connection writes as much as TCP accepts: nginx.
    Fair,
    /// Serpent with `enforce = "server"`: grants by the production scheduler. The rate of the settings is the
    /// pacing rate, commonly 0.97 of the link's.
    Gate(Settings),
    /// Serpent with `enforce = "kernel"`: a band for each response by its remaining work. The rate of the
    /// settings is ignored.
    Bands(Settings, BandPlan),
}

/// Where the bottleneck is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the server's own device: TCP sees its queue, and is told when it is full.
    Server,
    /// On a router further on.
    Router,
}

/// Settings of the packet model.
#[derive(Clone, Debug)]
pub struct PacketSettings {
    /// The bottleneck's rate, and its changes.
    pub link: Link,
    /// How the bottleneck limits the rate.
    pub shaping: Shaping,
    /// Most packets that wait in each band.
    pub queue_packets: u32,
    /// The location of the bottleneck.
    pub place: Place,
    /// Most segments in one packet of the server's stack.
    pub gso_segments: u32,
    /// Head and overhead of a response. Frames without payload are counted individually, so `control_bytes`
    /// is ignored. Segments are those of the paths.
    pub wire: WireModel,
    /// The rule by which the server sends.
    pub discipline: Discipline,
    /// The path to each group of clients; other groups use the first. If empty, all use
    /// [`ClientPath::DIRECT`].
    pub paths: Vec<ClientPath>,
    /// Requests per connection, at least 1.
    pub requests_per_connection: u32,
    /// From a request's arrival to the first write of its answer, in nanoseconds.
    pub answer_ns: u64,
    /// Seed of packet losses and travel times.
    pub seed: u64,
}

impl PacketSettings {
    /// A site like the lab's test bed: HTB on the server's own device with a queue of 1000 packets, clients
    /// nearby, and a connection for each request.
    pub fn new(link: Link, discipline: Discipline) -> Self {
        let burst_bytes = ((link.first_rate().bytes_per_second() * 256e-6) as u64).clamp(1600, 1 << 20);
        Self {
            link,
            shaping: Shaping::Bucket { burst_bytes },
            queue_packets: 1000,
            place: Place::Server,
            gso_segments: 1,
            wire: WireModel::PER_CONNECTION,
            discipline,
            paths: Vec::new(),
            requests_per_connection: 1,
            answer_ns: 100_000,
            seed: 1,
        }
    }
}

/// Counters of the packet model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketStats {
    /// Bytes that passed the bottleneck.
    pub carried_bytes: u64,
    /// Frames that passed it.
    pub carried_frames: u64,
    /// Frames dropped at a full queue.
    pub dropped: u64,
    /// Frames lost on the way to the clients.
    pub lost: u64,
    /// Connections opened.
    pub connections: u64,
    /// Segments sent again.
    pub retransmitted: u64,
}

/// The packet model. See the head of this module.
#[derive(Debug)]
pub struct Packets {
    settings: PacketSettings,
    now_ns: u64,
    agenda: Agenda,
    bottleneck: Bottleneck,
    link_armed: bool,
    lanes: Vec<Lane>,
    connections: Vec<Option<Box<Connection>>>,
    generations: u32,
    vacant: Vec<u32>,
    /// By group: connections that are ready for another request.
    idle: Vec<Vec<ConnectionId>>,
    /// By ticket: the connection of its response.
    asked: Vec<Option<ConnectionId>>,
    gate: Option<Gate>,
    ended: VecDeque<Ended>,
    stats: PacketStats,
}

/// The scheduler, and the connections of its jobs.
#[derive(Debug)]
struct Gate {
    uplink: Uplink,
    /// Set if the scheduler chooses bands instead of pacing.
    plan: Option<BandPlan>,
    jobs: Vec<ConnectionId>,
    armed: Option<u64>,
}

const SYN_ACK_BYTES: u32 = 74;
const SYN_TIMEOUT_NS: u64 = 1_000_000_000;
/// SYNs sent at a constant interval before the time-outs double (`tcp_syn_linear_timeouts`).
const SYNS_BEFORE_DOUBLING: u32 = 4;
/// Upper limit of the loss. Emulated paths never need more, and some packets must arrive.
const MOST_LOSS: f64 = 0.95;

impl Packets {
    /// An idle site.
    pub fn new(mut settings: PacketSettings) -> Self {
        if settings.paths.is_empty() {
            settings.paths.push(ClientPath::DIRECT);
        }
        settings.requests_per_connection = settings.requests_per_connection.max(1);
        let lanes = settings.paths.iter().zip(0..).map(|(path, stream)| {
            let path =
                ClientPath { loss: path.loss.clamp(0.0, MOST_LOSS), segment_bytes: path.segment_bytes.max(1), ..*path };
            Lane::new(path, settings.seed, stream)
        });
        let (gate, bands) = match &settings.discipline {
            Discipline::Fair => (None, 1),
            Discipline::Gate(rules) => (Some((*rules, None)), 1),
            Discipline::Bands(rules, plan) => {
                let rules = Settings { rate: None, ..*rules };
                (Some((rules, Some(plan.clone()))), plan.cutoffs().len() + 2)
            }
        };
        let gate = gate.map(|(rules, plan)| Gate { uplink: Uplink::new(rules), plan, jobs: Vec::new(), armed: None });
        Self {
            now_ns: 0,
            agenda: Agenda::default(),
            bottleneck: Bottleneck::new(settings.link.clone(), settings.shaping, settings.queue_packets, bands),
            link_armed: false,
            lanes: lanes.collect(),
            connections: Vec::new(),
            generations: 0,
            vacant: Vec::new(),
            idle: Vec::new(),
            asked: Vec::new(),
            gate,
            ended: VecDeque::new(),
            stats: PacketStats::default(),
            settings,
        }
    }

    /// Counters since the start.
    pub fn stats(&self) -> PacketStats {
        let Bottleneck { carried_bytes, carried_frames, .. } = self.bottleneck;
        PacketStats { carried_bytes, carried_frames, ..self.stats }
    }
}

impl Model for Packets {
    fn handle_request(&mut self, now_ns: u64, ticket: Ticket, request: &Request) {
        self.now_ns = self.now_ns.max(now_ns);
        let group = usize::from(request.group);
        let idle = self.idle.get_mut(group).and_then(Vec::pop);
        let id = idle.unwrap_or_else(|| self.open(request.group));
        let head_bytes = self.settings.wire.head_bytes;
        let Some(connection) = self.connection(id) else { return };
        connection.uses_left -= 1;
        let payload_bytes = head_bytes.saturating_add(request.size_bytes).max(1);
        let begin = connection.promised_bytes;
        connection.promised_bytes = begin.saturating_add(payload_bytes);
        let end = connection.promised_bytes;
        connection.expected.push_back(Expected { ticket, begin, end, first_byte_ns: None });
        connection.asks = Some(payload_bytes);
        let established = connection.handshake.established;
        let at = ticket.0 as usize;
        if self.asked.len() <= at {
            self.asked.resize(at + 1, None);
        }
        self.asked[at] = Some(id);
        if established {
            self.send_up(id, Event::Request(id));
        }
    }

    fn handle_abort(&mut self, now_ns: u64, ticket: Ticket) {
        self.now_ns = self.now_ns.max(now_ns);
        let Some(id) = self.asked.get_mut(ticket.0 as usize).and_then(Option::take) else { return };
        if let Some(connection) = self.connection(id) {
            connection.client_gone = true;
            self.send_up(id, Event::Gone(id));
        }
    }

    fn poll_timeout(&self) -> Option<u64> {
        if self.ended.is_empty() { self.agenda.poll_timeout() } else { Some(self.now_ns) }
    }

    fn poll_end(&mut self, now_ns: u64) -> Option<Ended> {
        loop {
            if let Some(ended) = self.ended.pop_front() {
                return Some(ended);
            }
            let Some((at_ns, event)) = self.agenda.take(now_ns) else {
                self.now_ns = self.now_ns.max(now_ns);
                return None;
            };
            self.now_ns = at_ns;
            self.happen(event);
        }
    }
}

impl Packets {
    fn happen(&mut self, event: Event) {
        match event {
            Event::Link => self.leave(),
            Event::Gate => self.turn(),
            Event::Syn(id) => self.answer_syn(id),
            Event::SynTimeout(id) => self.ask_again(id),
            Event::Request(id) => self.take_request(id),
            Event::Answer(id) => self.answer(id),
            Event::Arrived(id, cargo) => self.arrive(id, cargo),
            Event::Acked(id, ack) => self.take_ack(id, ack),
            Event::ServerTimeout(id) => self.time_out(id),
            Event::ClientTimeout(id) => self.acknowledge_late(id),
            Event::Closed(id) => {
                self.transmit(id, self.bare_bytes(), Cargo::Bare);
                self.remove(id);
            }
            Event::Gone(id) => self.give_up(id),
        }
    }

    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(id.place as usize)?.as_deref_mut()?;
        (connection.generation == id.generation).then_some(connection)
    }

    fn lane_of(&self, group: u16) -> usize {
        if usize::from(group) < self.lanes.len() { usize::from(group) } else { 0 }
    }

    fn open(&mut self, group: u16) -> ConnectionId {
        self.generations = self.generations.wrapping_add(1);
        self.stats.connections += 1;
        let segment_bytes = self.lanes[self.lane_of(group)].path().segment_bytes;
        let small_queue =
            (self.settings.place == Place::Server).then_some(SmallQueue { gso_segments: self.settings.gso_segments });
        let connection = Connection {
            generation: self.generations,
            group,
            handshake: Handshake {
                established: false,
                server_established: false,
                syns: 1,
                syn_acks: 0,
                syn_ack_sent_ns: 0,
            },
            asks: None,
            uses_left: self.settings.requests_per_connection,
            sender: Sender::new(segment_bytes, small_queue),
            receiver: Receiver::new(segment_bytes),
            serving: None,
            expected: VecDeque::new(),
            promised_bytes: 0,
            client_gone: false,
            last_due_ns: 0,
            band: 0,
            armed: [None; 2],
        };
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.connections.push(None);
            (self.connections.len() - 1) as u32
        });
        self.connections[place as usize] = Some(Box::new(connection));
        let id = ConnectionId { place, generation: self.generations };
        self.send_up(id, Event::Syn(id));
        self.agenda.add(self.now_ns + SYN_TIMEOUT_NS, Event::SynTimeout(id));
        id
    }

    fn remove(&mut self, id: ConnectionId) {
        if self.connection(id).is_some() {
            self.connections[id.place as usize] = None;
            self.vacant.push(id.place);
        }
    }

    /// Schedules an event at the server when a client's packet arrives there.
    fn send_up(&mut self, id: ConnectionId, event: Event) {
        let Some(group) = self.connection(id).map(|it| it.group) else { return };
        let travel_ns = self.lanes[self.lane_of(group)].path().upward_ns();
        self.agenda.add(self.now_ns + travel_ns, event);
    }

    /// The client's SYN was not answered in time; it is sent again.
    fn ask_again(&mut self, id: ConnectionId) {
        let now_ns = self.now_ns;
        let Some(connection) = self.connection(id).filter(|it| !it.handshake.established && !it.client_gone) else {
            return;
        };
        connection.handshake.syns += 1;
        let doublings = connection.handshake.syns.saturating_sub(SYNS_BEFORE_DOUBLING).min(6);
        self.agenda.add(now_ns + (SYN_TIMEOUT_NS << doublings), Event::SynTimeout(id));
        self.send_up(id, Event::Syn(id));
    }

    /// A frame has reached its client.
    fn arrive(&mut self, id: ConnectionId, cargo: Cargo) {
        let now_ns = self.now_ns;
        let Some(connection) = self.connection(id).filter(|it| !it.client_gone) else { return };
        match cargo {
            Cargo::SynAck => {
                if !std::mem::replace(&mut connection.handshake.established, true) {
                    self.send_up(id, Event::Request(id));
                }
            }
            Cargo::Data { seq, payload_bytes, pushed } => {
                let ack = connection.receiver.handle_data(now_ns, seq, payload_bytes, pushed);
                if let Some(ack) = ack {
                    self.send_up(id, Event::Acked(id, ack));
                }
                self.arm_client(id);
                self.deliver(id);
            }
            Cargo::Bare => {}
        }
    }

    /// Reports new data of responses.
    fn deliver(&mut self, id: ConnectionId) {
        let now_ns = self.now_ns;
        let Some(connection) = self.connection(id) else { return };
        let next = connection.receiver.next();
        let mut done = None;
        if let Some(first) = connection.expected.front_mut().filter(|first| next > first.begin) {
            let first_byte_ns = *first.first_byte_ns.get_or_insert(now_ns);
            if next >= first.end {
                done = Some(Ended { ticket: first.ticket, first_byte_ns, end_ns: now_ns });
                connection.expected.pop_front();
            }
        }
        let Some(ended) = done else { return };
        let (group, is_last) = (usize::from(connection.group), connection.uses_left == 0);
        self.asked[ended.ticket.0 as usize] = None;
        self.ended.push_back(ended);
        if is_last {
            self.send_up(id, Event::Closed(id));
            return;
        }
        if self.idle.len() <= group {
            self.idle.resize_with(group + 1, Vec::new);
        }
        self.idle[group].push(id);
    }

    fn acknowledge_late(&mut self, id: ConnectionId) {
        let now_ns = self.now_ns;
        let Some(connection) = self.connection(id).filter(|it| it.armed[1] == Some(now_ns)) else { return };
        connection.armed[1] = None;
        if let Some(ack) = connection.receiver.handle_timeout(now_ns) {
            self.send_up(id, Event::Acked(id, ack));
        }
        self.arm_client(id);
    }

    fn arm_client(&mut self, id: ConnectionId) {
        let Some(connection) = self.connection(id) else { return };
        let wanted = connection.receiver.poll_timeout();
        if let Some(at_ns) = earlier(wanted, &mut connection.armed[1]) {
            self.agenda.add(at_ns, Event::ClientTimeout(id));
        }
    }

    fn bare_bytes(&self) -> u32 {
        self.settings.wire.overhead_bytes as u32
    }

    /// The server sends a frame.
    fn transmit(&mut self, id: ConnectionId, bytes: u32, cargo: Cargo) {
        let Some(band) = self.connection(id).map(|it| it.band) else { return };
        let band = if matches!(cargo, Cargo::Data { .. }) { band } else { 0 };
        if !self.bottleneck.handle_frame(self.now_ns, band, Frame { connection: id, bytes, cargo }) {
            self.stats.dropped += 1;
            if let (Cargo::Data { payload_bytes, .. }, Some(connection)) = (cargo, self.connection(id)) {
                connection.sender.handle_left(payload_bytes);
            }
        }
        self.arm_link();
    }

    fn arm_link(&mut self) {
        if self.link_armed {
            return;
        }
        if let Some(at_ns) = self.bottleneck.poll_timeout(self.now_ns) {
            self.link_armed = true;
            self.agenda.add(at_ns, Event::Link);
        }
    }

    /// A frame leaves the bottleneck.
    fn leave(&mut self) {
        self.link_armed = false;
        let Some(Frame { connection: id, cargo, .. }) = self.bottleneck.poll_frame(self.now_ns) else { return };
        let now_ns = self.now_ns;
        if let Some(group) = self.connection(id).map(|it| it.group) {
            let lane = self.lane_of(group);
            let mut last_due_ns = self.connection(id).map_or(0, |it| it.last_due_ns);
            match self.lanes[lane].handle_packet(now_ns, &mut last_due_ns) {
                Some(due_ns) => self.agenda.add(due_ns, Event::Arrived(id, cargo)),
                None => self.stats.lost += 1,
            }
            if let Some(connection) = self.connection(id) {
                connection.last_due_ns = last_due_ns;
                if let Cargo::Data { payload_bytes, .. } = cargo {
                    connection.sender.handle_left(payload_bytes);
                    self.flush(id);
                }
            }
        }
        self.arm_link();
    }

    fn instant(&self) -> Instant {
        Instant::from_ns(self.now_ns)
    }
}

/// The time to add to the agenda for a timer at `wanted`; `None` if an earlier entry exists.
fn earlier(wanted: Option<u64>, armed: &mut Option<u64>) -> Option<u64> {
    let at_ns = wanted.filter(|&at_ns| armed.is_none_or(|armed_ns| at_ns < armed_ns))?;
    *armed = Some(at_ns);
    Some(at_ns)
}

#[cfg(test)]
mod tests;
