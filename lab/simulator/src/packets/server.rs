//! The server's side: handshakes, answers, and the rule that decides which connection writes.

use scheduler::{
    JobId, Path, Size,
    estimate::{RttKind, are_prompt, round_trip_of_means},
    pace::Pace,
};

use super::{
    agenda::Event,
    connection::{Connection, ConnectionId, Serving},
    frame::Cargo,
    network::{BottleneckAt, Gate, Packets, SYN_ACK_BYTES, earlier},
    receiver::Ack,
    sender::Outgoing,
};

/// The path is measured again after this many bytes, as in the server's gate.
const REVISIT_BYTES: u64 = 8 * 1024;
/// Linux tells in whole ticks how long ago an acknowledgement came.
const TICK_NS: u64 = 4_000_000;
/// Least number of bytes that a socket accepts beyond those TCP can send.
const UNSENT_LIMIT_BYTES: u64 = 4096;
/// A connection that was sent nothing for so long is no longer looked at.
const LOOKS_FOR_NS: u64 = 4_000_000_000;
/// Frames without payload charged when a connection opens, and when it closes.
const BARE_AT_OPEN: u64 = 1;
const BARE_AT_CLOSE: u64 = 2;

/// When a connection is looked at.
#[derive(Clone, Copy)]
enum Occasion {
    /// It is written to, or read from.
    Use(RttKind),
    /// Neither.
    Rest,
}

impl Packets {
    pub(super) fn answer_syn(&mut self, id: ConnectionId) {
        let now_ns = self.now_ns;
        let Some(connection) = self.connection(id).filter(|it| !it.handshake.server_established) else { return };
        connection.handshake.syn_acks += 1;
        connection.handshake.syn_ack_sent_ns = now_ns;
        self.transmit(id, SYN_ACK_BYTES, Cargo::SynAck);
    }

    pub(super) fn take_request(&mut self, id: ConnectionId, ack: Option<Ack>) {
        let now_ns = self.now_ns;
        let Some(connection) = self.connection(id).filter(|it| !it.client_gone) else { return };
        let handshake = &mut connection.handshake;
        let is_new = !std::mem::replace(&mut handshake.server_established, true);
        if is_new {
            let rtt_ns = (handshake.syn_acks == 1).then(|| now_ns - handshake.syn_ack_sent_ns);
            connection.sender.handle_established(now_ns, rtt_ns);
            connection.looked = connection.sender.mean_rtt();
            let group = connection.group;
            self.charge_bare(BARE_AT_OPEN);
            if let Some(rtt_ns) = rtt_ns {
                self.take_round_trip(group, rtt_ns, RttKind::Handshake, 0);
            }
            // On a connection in use, the answer acknowledges the request.
            self.transmit(id, self.bare_bytes(), Cargo::Bare);
        } else {
            if let Some(ack) = ack {
                self.take_ack(id, ack);
            }
            self.measure(id, Occasion::Use(if ack.is_some() { RttKind::LateData } else { RttKind::Data }));
        }
        self.charge_bare(1);
        self.agenda.add(now_ns + self.settings.answer_ns, Event::Answer(id));
    }

    /// The server begins to write.
    pub(super) fn answer(&mut self, id: ConnectionId) {
        let now = self.instant();
        let head_bytes = self.settings.wire.head_bytes;
        let Some(connection) = self.connection(id) else { return };
        let Some(payload_bytes) = connection.asks.take() else { return };
        let last = connection.uses_left == 0;
        let path = connection.sender.path();
        let mut serving =
            Serving { left_bytes: payload_bytes, job: None, waiting: false, stalled: false, unmeasured_bytes: 0, last };
        let Some(gate) = &mut self.gate else {
            if let Some(connection) = self.connection(id) {
                connection.serving = Some(serving);
            }
            self.write_all(id, head_bytes.min(payload_bytes));
            return;
        };
        let path = match path {
            Some(path) if gate.uplink.settings().order.needs_path() => path,
            Some(path) => Path { mss_bytes: path.mss_bytes, ..Path::UNKNOWN },
            None => Path::UNKNOWN,
        };
        let job = gate.uplink.handle_started(now, Size::Known(payload_bytes), path);
        if gate.jobs.len() <= job.index() {
            gate.jobs.resize(job.index() + 1, ConnectionId::default());
        }
        gate.jobs[job.index()] = id;
        serving.job = Some(job);
        if let Some(connection) = self.connection(id) {
            connection.serving = Some(serving);
        }
        self.ask(id);
        self.turn();
    }

    /// Writes like nginx: the head with its own call, then the file. By Nagle's rule the end of the file
    /// waits for earlier data. The connection is closed a moment later, so the end of the file carries the
    /// FIN.
    fn write_all(&mut self, id: ConnectionId, head_bytes: u64) {
        let now_ns = self.now_ns;
        let Some(connection) = self.connection(id) else { return };
        connection.sender.handle_write(now_ns, head_bytes);
        self.flush(id);
        let Some(connection) = self.connection(id) else { return };
        let Some(serving) = connection.serving.take() else { return };
        let body_bytes = serving.left_bytes - head_bytes;
        connection.sender.handle_write(now_ns, body_bytes);
        let segment_bytes = u64::from(self.segment_bytes(id));
        self.flush(id);
        let Some(connection) = self.connection(id) else { return };
        let rides = connection.sender.unsent_bytes() > 0 || !body_bytes.is_multiple_of(segment_bytes);
        if serving.last && !rides {
            self.transmit(id, self.bare_bytes(), Cargo::Bare);
        }
    }

    /// Asks for grants for a response until it has to wait for the scheduler or for its socket.
    fn ask(&mut self, id: ConnectionId) {
        let now = self.instant();
        let limit_bytes = self.unsent_limit_bytes();
        loop {
            let Some(connection) = self.connection(id) else { return };
            let unsent_bytes = connection.sender.unsent_bytes();
            let Some(serving) = connection.serving.as_mut().filter(|it| !it.waiting) else { return };
            serving.stalled =
                if serving.stalled { 2 * unsent_bytes >= limit_bytes } else { unsent_bytes >= limit_bytes };
            let (Some(job), false) = (serving.job, serving.stalled) else { return };
            let left_bytes = serving.left_bytes;
            self.revisit(id, job);
            let Some(gate) = &mut self.gate else { return };
            match gate.uplink.handle_wants(now, job, left_bytes) {
                Some(grant) => self.write(id, job, grant.bytes),
                None => {
                    if let Some(serving) = self.connection(id).and_then(|it| it.serving.as_mut()) {
                        serving.waiting = true;
                    }
                    return;
                }
            }
        }
    }

    /// Carries out the scheduler's grants, and plans the next call.
    pub(super) fn turn(&mut self) {
        let now = self.instant();
        loop {
            let Some(gate) = &mut self.gate else { return };
            let load = gate.load();
            if let Some(pace) = &mut gate.pace
                && pace.handle_turn(now, load)
            {
                gate.uplink.handle_rate(now, pace.rate());
            }
            if gate.armed.is_some_and(|armed_ns| armed_ns <= now.as_ns()) {
                gate.armed = None;
            }
            // All grants at once, as the server wakes tasks: a job that had its turn asks again only after
            // the other jobs had theirs.
            let grants: Vec<_> = std::iter::from_fn(|| gate.uplink.poll_grant(now)).collect();
            if grants.is_empty() {
                break;
            }
            for grant in grants {
                let Some(id) = self.gate.as_ref().and_then(|gate| gate.jobs.get(grant.job.index())).copied() else {
                    continue;
                };
                if let Some(serving) = self.connection(id).and_then(|it| it.serving.as_mut()) {
                    serving.waiting = false;
                }
                self.write(id, grant.job, grant.bytes);
                self.ask(id);
            }
        }
        let Some(gate) = &mut self.gate else { return };
        let wanted = gate.uplink.poll_timeout().map(|at| at.as_ns().max(now.as_ns()));
        if let Some(at_ns) = earlier(wanted, &mut gate.armed) {
            self.agenda.add(at_ns, Event::Gate);
        }
    }

    /// Writes granted bytes; bytes that the socket refuses are handed back.
    fn write(&mut self, id: ConnectionId, job: JobId, granted_bytes: u64) {
        let now = self.instant();
        let limit_bytes = self.unsent_limit_bytes();
        let Some(connection) = self.connection(id) else { return };
        let Connection { sender, serving: Some(serving), .. } = connection else { return };
        let takes_bytes = sender.room_bytes(limit_bytes).min(granted_bytes).min(serving.left_bytes);
        serving.left_bytes -= takes_bytes;
        serving.unmeasured_bytes += takes_bytes;
        connection.written_ns = now.as_ns();
        serving.stalled = takes_bytes < granted_bytes;
        let (done, last) = (serving.left_bytes == 0, serving.last);
        sender.handle_write(now.as_ns(), takes_bytes);
        if done {
            connection.serving = None;
        }
        if let Some(gate) = &mut self.gate {
            if takes_bytes < granted_bytes {
                gate.uplink.handle_unused(job, granted_bytes - takes_bytes);
            }
            if done {
                gate.uplink.handle_finished(now, job, true);
            }
        }
        self.flush(id);
        if done && !last {
            self.look_later(id);
        }
        if done && last {
            self.charge_bare(BARE_AT_CLOSE);
            let rides = self.connection(id).is_some_and(|it| it.sender.keeps_tail());
            if !rides {
                self.transmit(id, self.bare_bytes(), Cargo::Bare);
            }
        }
    }

    /// Updates the path in the scheduler, and the connection's band, before a grant is requested.
    fn revisit(&mut self, id: ConnectionId, job: JobId) {
        let now = self.instant();
        let Some(connection) = self.connection(id) else { return };
        let path = connection.sender.path();
        let Some(serving) = &mut connection.serving else { return };
        let due = serving.unmeasured_bytes >= REVISIT_BYTES;
        if due {
            serving.unmeasured_bytes = 0;
            self.measure(id, Occasion::Use(RttKind::Data));
        }
        let Some(Gate { uplink, plan, .. }) = &mut self.gate else { return };
        if let (true, true, Some(path)) = (due, uplink.settings().order.needs_path(), path) {
            uplink.handle_path(job, path);
        }
        if let Some(band) = plan.as_ref().and_then(|plan| Some(plan.band(uplink.measure(now, job)?)))
            && let Some(connection) = self.connection(id)
        {
            connection.band = band;
        }
    }

    /// Where few round trips are measured, the connection is looked at when its last bytes may have been acknowledged.
    fn look_later(&mut self, id: ConnectionId) {
        let now_ns = self.now_ns;
        let Some(gate) = &self.gate else { return };
        let after_ns = gate.pace.as_ref().and_then(Pace::looks_after_ns);
        if after_ns.is_none_or(|after_ns| now_ns - gate.measured_ns < after_ns / 2) {
            return;
        }
        let fresh_ns = gate.uplink.fresh_ns();
        let Some(&mut Connection { ref sender, written_ns, .. }) = self.connection(id) else { return };
        let Some(mean) = sender.mean_rtt() else { return };
        self.agenda.add((now_ns + fresh_ns).max(written_ns + mean.ns + TICK_NS), Event::Look(id));
    }

    /// Looks at a connection that was sent nothing since.
    pub(super) fn look(&mut self, id: ConnectionId) {
        let now_ns = self.now_ns;
        let Some(gate) = &self.gate else { return };
        let after_ns = gate.pace.as_ref().and_then(Pace::looks_after_ns);
        let is_due = after_ns.is_some_and(|after_ns| now_ns - gate.measured_ns >= after_ns);
        let Some(connection) = self.connection(id) else { return };
        let Connection { sender, written_ns, serving, asks, .. } = connection;
        if serving.is_some() || asks.is_some() || now_ns - *written_ns > LOOKS_FOR_NS {
            return;
        }
        let is_under_way = sender.in_flight() > 0;
        if is_due {
            self.measure(id, Occasion::Rest);
        }
        if is_under_way {
            self.look_later(id);
        }
    }

    /// Looks at the mean of the round trips, and works out the last ones.
    fn measure(&mut self, id: ConnectionId, occasion: Occasion) {
        let now_ns = self.now_ns;
        let Some(fresh_ns) = self.gate.as_ref().map(|gate| gate.uplink.fresh_ns()) else { return };
        let Some(connection) = self.connection(id) else { return };
        let (group, written_ns) = (connection.group, connection.written_ns);
        let Some(mean) = connection.sender.mean_rtt() else { return };
        let Some(before) = connection.looked.replace(mean) else { return };
        let ticks = |ns: u64| ns / TICK_NS;
        let age_ns = (ticks(now_ns) - ticks(mean.measured_ns)).saturating_sub(1) * TICK_NS;
        let acks = mean.measured - before.measured;
        let rtt_ns = round_trip_of_means(before.ns, mean.ns, acks);
        let (kind, idle_ns) = match occasion {
            Occasion::Rest if are_prompt(mean.segments - before.segments, u64::from(acks)) => (RttKind::Data, 0),
            Occasion::Rest => (RttKind::LateData, 0),
            Occasion::Use(kind) => (kind, now_ns.saturating_sub(written_ns + mean.ns)),
        };
        if let Some(rtt_ns) = rtt_ns.filter(|_| age_ns.max(idle_ns) <= fresh_ns) {
            self.take_round_trip(group, rtt_ns, kind, age_ns);
        }
    }

    pub(super) fn take_ack(&mut self, id: ConnectionId, ack: Ack) {
        let now_ns = self.now_ns;
        let Some(connection) = self.connection(id) else { return };
        connection.sender.handle_ack(now_ns, ack);
        self.flush(id);
        // The server is woken by acknowledgements only where its socket was full.
        let is_stalled = self.connection(id).is_some_and(|it| it.serving.as_ref().is_some_and(|it| it.stalled));
        if is_stalled && self.gate.is_some() {
            self.ask(id);
            self.turn();
        }
    }

    pub(super) fn time_out(&mut self, id: ConnectionId) {
        let now_ns = self.now_ns;
        let Some(connection) = self.connection(id).filter(|it| it.armed[0] == Some(now_ns)) else { return };
        connection.armed[0] = None;
        if let Some(outgoing) = connection.sender.handle_timeout(now_ns) {
            self.send(id, outgoing);
        }
        self.flush(id);
    }

    /// Sends the segments that TCP allows.
    pub(super) fn flush(&mut self, id: ConnectionId) {
        let now_ns = self.now_ns;
        let on_device = self.settings.bottleneck == BottleneckAt::Server;
        loop {
            let Some(band) = self.connection(id).map(|it| it.band) else { return };
            let has_place = !on_device || self.bottleneck.has_place(band);
            let Some(connection) = self.connection(id) else { return };
            let Some(outgoing) = connection.sender.poll_segment(now_ns, has_place) else { break };
            self.send(id, outgoing);
        }
        let Some(connection) = self.connection(id) else { return };
        let wanted = connection.sender.poll_timeout();
        if let Some(at_ns) = earlier(wanted, &mut connection.armed[0]) {
            self.agenda.add(at_ns, Event::ServerTimeout(id));
        }
    }

    fn send(&mut self, id: ConnectionId, outgoing: Outgoing) {
        let Outgoing { seq, payload_bytes, pushed, again } = outgoing;
        self.stats.retransmitted += u64::from(again);
        self.transmit(id, payload_bytes + self.bare_bytes(), Cargo::Data { seq, payload_bytes, pushed });
    }

    /// The client closed the connection.
    pub(super) fn give_up(&mut self, id: ConnectionId) {
        let now = self.instant();
        let Some(connection) = self.connection(id) else { return };
        let job = connection.serving.take().and_then(|serving| serving.job);
        if let (Some(gate), Some(job)) = (&mut self.gate, job) {
            gate.uplink.handle_finished(now, job, false);
        }
        self.remove(id);
        self.turn();
    }

    fn charge_bare(&mut self, frames: u64) {
        let now = self.instant();
        if let Some(gate) = self.gate.as_mut().filter(|gate| gate.plan.is_none()) {
            let overhead_bytes = u64::from(gate.uplink.settings().segment_overhead_bytes);
            gate.uplink.handle_ungranted(now, frames * overhead_bytes);
        }
    }

    /// Most unsent bytes of a connection in the kernel: two grants keep it busy; more would escape the
    /// scheduler.
    fn unsent_limit_bytes(&self) -> u64 {
        match &self.gate {
            Some(Gate { uplink, plan: None, .. }) => uplink.chunk_bytes().saturating_mul(2).max(UNSENT_LIMIT_BYTES),
            _ => UNSENT_LIMIT_BYTES,
        }
    }

    fn segment_bytes(&mut self, id: ConnectionId) -> u32 {
        let group = self.connection(id).map_or(0, |it| it.group);
        self.lanes[self.lane_of(group)].path().segment_bytes
    }
}
