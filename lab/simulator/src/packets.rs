//! A packet-level model of a site behind a bottleneck.
//!
//! Each request, or every few of them, has a TCP connection. Its SYN-ACK waits in the bottleneck's queue like
//! all other frames. TCP has slow start with HyStart, CUBIC, Linux's delayed acknowledgements, loss detection
//! by RACK, and time-outs. A connection may only have a limited amount in the queue of its own device (TCP
//! small queues), which makes Linux's own FIFO nearly fair. Behind the bottleneck each group of clients has
//! its distance, jitter and loss, and may have a line of its own.
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
//! On the way to the server, packets may wait behind downloads of others. Before the bottleneck, uploads of others may
//! compete.
//!
//! Not modelled: processors and disks beyond a constant time before each answer; loss and other queues on the
//! way to the server; limits of the receiver's window; HTTP/2; TLS. A client whose SYN is not answered retries
//! for ever.

mod agenda;
mod bottleneck;
mod connection;
mod cubic;
mod downloads;
mod frame;
mod network;
mod path;
mod queue;
mod receiver;
mod sender;
mod server;
mod uploads;

use std::collections::VecDeque;

use workload::sequence::Request;

use self::{
    agenda::Event,
    connection::{Connection, ConnectionId, Expected, Handshake},
    frame::{Cargo, Frame},
    network::earlier,
    receiver::Receiver,
    sender::{Sender, SmallQueue},
    uploads::UPLOADS,
};
pub use self::{
    bottleneck::Shaping,
    downloads::OtherDownloads,
    network::{BottleneckAt, Discipline, OtherTraffic, PacketSettings, PacketStats, Packets},
    path::{ClientLine, ClientPath},
    queue::Queueing,
    uploads::OtherUploads,
};
use crate::{Ended, Model, Ticket};

/// More than any upload sends.
const ENDLESS_BYTES: u64 = 1 << 50;
const SYN_TIMEOUT_NS: u64 = 1_000_000_000;
/// SYNs sent at a constant interval before the time-outs double (`tcp_syn_linear_timeouts`).
const SYNS_BEFORE_DOUBLING: u32 = 4;

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
        let ack = connection.receiver.handle_request(now_ns);
        let at = ticket.0 as usize;
        if self.asked.len() <= at {
            self.asked.resize(at + 1, None);
        }
        self.asked[at] = Some(id);
        if established {
            self.send_up(id, Event::Request(id, ack));
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
    fn granted(&self) -> u64 {
        self.gate.as_ref().map_or(0, |gate| gate.uplink.stats().grants)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Link => self.leave(),
            Event::Gate => {
                let before = self.granted();
                self.turn();
                self.stats.rings += u64::from(self.granted() > before);
            }
            Event::Other => self.take_other(),
            Event::Uploads => self.begin_uploads(),
            Event::UploadEnds(id) => self.end_upload(id),
            Event::Syn(id) => self.answer_syn(id),
            Event::SynTimeout(id) => self.ask_again(id),
            Event::Request(id, ack) => self.take_request(id, ack),
            Event::Answer(id) => self.answer(id),
            Event::Arrived(id, cargo) => self.arrive(id, cargo),
            Event::Acked(id, ack) => self.take_ack(id, ack),
            Event::Look(id) => self.look(id),
            Event::ServerTimeout(id) => self.time_out(id),
            Event::ClientTimeout(id) => self.acknowledge_late(id),
            Event::Closed(id) => {
                self.transmit(id, self.bare_bytes(), Cargo::Bare);
                self.remove(id);
            }
            Event::Gone(id) => self.give_up(id),
        }
    }

    fn open(&mut self, group: u16) -> ConnectionId {
        self.stats.connections += 1;
        let uses_left = self.settings.requests_per_connection;
        let id = self.add_connection(group, |connection| connection.uses_left = uses_left);
        self.send_up(id, Event::Syn(id));
        self.agenda.add(self.now_ns + SYN_TIMEOUT_NS, Event::SynTimeout(id));
        id
    }

    /// Adds a connection, whose handshake begins, and changes it as it is told.
    fn add_connection(&mut self, group: u16, change: impl FnOnce(&mut Connection)) -> ConnectionId {
        self.generations = self.generations.wrapping_add(1);
        let segment_bytes = self.lanes[self.lane_of(group)].path().segment_bytes;
        let small_queue = (self.settings.bottleneck == BottleneckAt::Server)
            .then_some(SmallQueue { gso_segments: self.settings.gso_segments });
        let mut connection = Box::new(Connection {
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
            uses_left: 0,
            sender: Sender::new(segment_bytes, small_queue),
            receiver: Receiver::new(segment_bytes),
            serving: None,
            expected: VecDeque::new(),
            promised_bytes: 0,
            client_gone: false,
            last_due_ns: 0,
            band: 0,
            looked: None,
            written_ns: 0,
            armed: [None; 2],
        });
        change(&mut connection);
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.connections.push(None);
            (self.connections.len() - 1) as u32
        });
        self.connections[place as usize] = Some(connection);
        ConnectionId { place, generation: self.generations }
    }

    /// The next uploads begin.
    fn begin_uploads(&mut self) {
        let now_ns = self.now_ns;
        let Some(uploads) = self.settings.uploads.filter(|uploads| now_ns < uploads.until_ns) else { return };
        self.agenda.add(now_ns + uploads.every_ns, Event::Uploads);
        for _ in 0..uploads.connections {
            let id = self.add_connection(UPLOADS, |connection| {
                (connection.handshake.established, connection.handshake.server_established) = (true, true);
                if let Some(segments) = uploads.window_segments {
                    connection.sender.fix_window(segments);
                }
                connection.sender.handle_established(now_ns, Some(uploads.rtt_ns));
                connection.sender.handle_write(now_ns, ENDLESS_BYTES);
            });
            self.agenda.add(uploads.until_ns.min(now_ns + uploads.lasts_ns), Event::UploadEnds(id));
            self.flush(id);
        }
    }

    /// An upload ends. Its packets under way still arrive.
    fn end_upload(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connection(id) {
            connection.sender.handle_no_more();
        }
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
                    self.send_up(id, Event::Request(id, None));
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

    /// A frame leaves the bottleneck.
    fn leave(&mut self) {
        self.link_armed = false;
        let left = self.bottleneck.poll_frame(self.now_ns);
        self.take_dropped();
        let Some(Frame { connection: id, bytes, cargo }) = left else { return };
        let now_ns = self.now_ns;
        if let Some(group) = self.connection(id).map(|it| it.group) {
            if group == UPLOADS {
                self.stats.uploaded_bytes += u64::from(bytes);
            }
            let lane = self.lane_of(group);
            let mut last_due_ns = self.connection(id).map_or(0, |it| it.last_due_ns);
            match self.lanes[lane].handle_packet(now_ns, bytes, &mut last_due_ns) {
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
}

#[cfg(test)]
mod tests;
