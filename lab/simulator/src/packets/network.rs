//! The network between server and clients: the settings of the model, its connections, and the frames on their
//! way.

use std::collections::VecDeque;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};
use scheduler::{
    Instant, Uplink,
    bands::BandPlan,
    correction::Load,
    estimate::{RoundTrip, RttKind},
    pace::Pace,
    uplink::Settings,
};
use workload::{rate::Link, wire::WireModel};

use super::{
    agenda::{Agenda, Event},
    bottleneck::{Bottleneck, Shaping},
    connection::{Connection, ConnectionId},
    downloads::OtherDownloads,
    frame::{Cargo, Frame},
    path::{ClientPath, Lane},
    queue::Queueing,
    uploads::{OtherUploads, UPLOADS},
};
use crate::Ended;

/// The rule by which the server sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Discipline {
    /// Every connection writes as much as TCP accepts: nginx.
    Fair,
    /// Serpent with `enforce = "server"`: grants by the production scheduler. The rate of the settings is the
    /// pacing rate, unless [`PacketSettings::pace`] decides it.
    Gate(Settings),
    /// Serpent with `enforce = "kernel"`: a band for each response by its remaining work. The rate of the
    /// settings is ignored.
    Bands(Settings, BandPlan),
}

/// Where the bottleneck is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BottleneckAt {
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
    /// How the bottleneck's queue chooses the next frame. The bands of [`Discipline::Bands`] are queues of [`Queueing::Fifo`].
    pub queueing: Queueing,
    /// Most packets that wait: in each band, or in all of another queue.
    pub queue_packets: u32,
    /// The location of the bottleneck.
    pub bottleneck: BottleneckAt,
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
    /// Whether the groups of clients are neighbours: who measures round trips takes those of a client that is new to be as
    /// those of the others.
    pub are_neighbours: bool,
    /// Requests per connection, at least 1.
    pub requests_per_connection: u32,
    /// From a request's arrival to the first write of its answer, in nanoseconds.
    pub answer_ns: u64,
    /// Finds or corrects the rate of [`Discipline::Gate`] by round trips, as the server does; `None`: the rate is
    /// fixed.
    pub pace: Option<Pace>,
    /// Packets of 1514 bytes of other senders before the same bottleneck.
    pub other: Option<OtherTraffic>,
    /// Others' downloads, behind which requests and acknowledgements wait.
    pub downloads: Option<OtherDownloads>,
    /// Others' uploads before the same bottleneck.
    pub uploads: Option<OtherUploads>,
    /// Seed of packet losses and travel times.
    pub seed: u64,
}

/// Traffic of other senders: a Poisson process of full frames, which does not give way.
#[derive(Clone, Debug)]
pub struct OtherTraffic {
    /// Its mean rate, and its changes.
    pub rate: Link,
    /// When it begins, in nanoseconds since the start.
    pub from_ns: u64,
    /// When it ends.
    pub until_ns: u64,
}

impl PacketSettings {
    /// A site like the lab's test bed: HTB on the server's own device with a queue of 1000 packets, clients
    /// nearby, and a connection for each request.
    pub fn new(link: Link, discipline: Discipline) -> Self {
        let burst_bytes = ((link.first_rate().bytes_per_second() * 256e-6) as u64).clamp(1600, 1 << 20);
        Self {
            link,
            shaping: Shaping::Bucket { burst_bytes },
            queueing: Queueing::Fifo,
            queue_packets: 1000,
            bottleneck: BottleneckAt::Server,
            gso_segments: 1,
            wire: WireModel::PER_CONNECTION,
            discipline,
            paths: Vec::new(),
            are_neighbours: false,
            requests_per_connection: 1,
            answer_ns: 100_000,
            pace: None,
            other: None,
            downloads: None,
            uploads: None,
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
    /// Frames dropped by the bottleneck's queue.
    pub dropped: u64,
    /// Frames lost on the way to the clients.
    pub lost: u64,
    /// Connections opened.
    pub connections: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Bytes of others' uploads that passed the bottleneck.
    pub uploaded_bytes: u64,
    /// How often the pacer's timer gave leave.
    pub rings: u64,
}

/// The scheduler, and the connections of its jobs.
#[derive(Debug)]
pub(super) struct Gate {
    pub uplink: Uplink,
    /// Set if the scheduler chooses bands instead of pacing.
    pub plan: Option<BandPlan>,
    pub jobs: Vec<ConnectionId>,
    pub armed: Option<u64>,
    pub pace: Option<Pace>,
    /// When the last round trip was measured that was not a late one.
    pub measured_ns: u64,
}

/// Bytes of a frame of other senders.
const OTHER_BYTES: u32 = 1514;
/// The stream of a seed that decides the times of other senders' frames. The lanes have those from 0 on.
const OTHER_STREAM: u64 = u64::MAX;

pub(super) const SYN_ACK_BYTES: u32 = 74;

/// Upper limit of the loss. Emulated paths never need more, and some packets must arrive.
const MOST_LOSS: f64 = 0.95;

/// The packet model. See the head of this module.
#[derive(Debug)]
pub struct Packets {
    pub(super) settings: PacketSettings,
    pub(super) now_ns: u64,
    pub(super) agenda: Agenda,
    pub(super) bottleneck: Bottleneck,
    pub(super) link_armed: bool,
    pub(super) lanes: Vec<Lane>,
    pub(super) connections: Vec<Option<Box<Connection>>>,
    pub(super) generations: u32,
    pub(super) vacant: Vec<u32>,
    /// By group: connections that are ready for another request.
    pub(super) idle: Vec<Vec<ConnectionId>>,
    /// By ticket: the connection of its response.
    pub(super) asked: Vec<Option<ConnectionId>>,
    pub(super) gate: Option<Gate>,
    pub(super) ended: VecDeque<Ended>,
    pub(super) stats: PacketStats,
    /// Decides the times of other senders' frames.
    pub(super) dice: ChaCha8Rng,
}

impl Packets {
    /// An idle site.
    pub fn new(mut settings: PacketSettings) -> Self {
        if settings.paths.is_empty() {
            settings.paths.push(ClientPath::DIRECT);
        }
        settings.requests_per_connection = settings.requests_per_connection.max(1);
        let uploads = settings.uploads.map(|uploads| ClientPath { rtt_ns: uploads.rtt_ns, ..ClientPath::DIRECT });
        let lanes = settings.paths.iter().chain(&uploads).zip(0..).map(|(path, stream)| {
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
        let pace = settings.pace.take().filter(|_| matches!(settings.discipline, Discipline::Gate(_)));
        let gate = gate.map(|(rules, plan)| {
            let mut uplink = Uplink::new(rules);
            if let Some(pace) = &pace {
                uplink.handle_rate(Instant::ORIGIN, pace.rate());
            }
            Gate { uplink, plan, jobs: Vec::new(), armed: None, pace, measured_ns: 0 }
        });
        let mut dice = ChaCha8Rng::seed_from_u64(settings.seed);
        dice.set_stream(OTHER_STREAM);
        let mut agenda = Agenda::default();
        if let Some(other) = &settings.other {
            agenda.add(other.from_ns, Event::Other);
        }
        if let Some(uploads) = &settings.uploads {
            agenda.add(uploads.from_ns, Event::Uploads);
        }
        Self {
            now_ns: 0,
            agenda,
            bottleneck: Bottleneck::new(
                settings.link.clone(),
                settings.shaping,
                settings.queueing,
                settings.queue_packets,
                bands,
                settings.seed,
            ),
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
            dice,
            settings,
        }
    }

    /// Counters since the start.
    pub fn stats(&self) -> PacketStats {
        let &Bottleneck { carried_bytes, carried_frames, .. } = &self.bottleneck;
        PacketStats { carried_bytes, carried_frames, ..self.stats }
    }

    /// The machine that finds or corrects the rate, if there is one.
    pub fn pace(&self) -> Option<&Pace> {
        self.gate.as_ref()?.pace.as_ref()
    }

    /// Whether a response waits for leave.
    pub fn waits(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.load().waits)
    }
}

impl Gate {
    pub fn load(&self) -> Load {
        let stats = self.uplink.stats();
        Load {
            sent_bytes: stats.charged_bytes,
            room_at: self.uplink.room_at(),
            waits: stats.waiting > 0,
            chunk_bytes: self.uplink.chunk_bytes(),
        }
    }
}

impl Packets {
    pub(super) fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(id.place as usize)?.as_deref_mut()?;
        (connection.generation == id.generation).then_some(connection)
    }

    pub(super) fn lane_of(&self, group: u16) -> usize {
        match usize::from(group) {
            _ if group == UPLOADS => self.lanes.len() - 1,
            at if at < self.settings.paths.len() => at,
            _ => 0,
        }
    }

    pub(super) fn remove(&mut self, id: ConnectionId) {
        if self.connection(id).is_some() {
            self.connections[id.place as usize] = None;
            self.vacant.push(id.place);
        }
    }

    /// Schedules an event at the server when a client's packet arrives there.
    pub(super) fn send_up(&mut self, id: ConnectionId, event: Event) {
        let Some(group) = self.connection(id).map(|it| it.group) else { return };
        let travel_ns = self.lanes[self.lane_of(group)].path().upward_ns();
        let reached_ns = self.now_ns + travel_ns;
        let wait_ns = self.settings.downloads.map_or(0, |downloads| downloads.wait_ns(reached_ns));
        self.agenda.add(reached_ns + wait_ns, event);
    }

    pub(super) fn bare_bytes(&self) -> u32 {
        self.settings.wire.overhead_bytes as u32
    }

    /// The server sends a frame.
    pub(super) fn transmit(&mut self, id: ConnectionId, bytes: u32, cargo: Cargo) {
        let Some(band) = self.connection(id).map(|it| it.band) else { return };
        let band = if matches!(cargo, Cargo::Data { .. }) { band } else { 0 };
        self.bottleneck.handle_frame(self.now_ns, band, Frame { connection: id, bytes, cargo });
        self.take_dropped();
        self.arm_link();
    }

    /// Frames that the bottleneck has dropped are no longer in the device's queue.
    pub(super) fn take_dropped(&mut self) {
        while let Some(frame) = self.bottleneck.dropped.pop() {
            self.stats.dropped += 1;
            if let (Cargo::Data { payload_bytes, .. }, Some(connection)) =
                (frame.cargo, self.connection(frame.connection))
            {
                connection.sender.handle_left(payload_bytes);
            }
        }
    }

    pub(super) fn arm_link(&mut self) {
        if self.link_armed {
            return;
        }
        if let Some(at_ns) = self.bottleneck.poll_timeout(self.now_ns) {
            self.link_armed = true;
            self.agenda.add(at_ns, Event::Link);
        }
    }

    /// Another sender's frame comes to the bottleneck.
    pub(super) fn take_other(&mut self) {
        let Some(other) = self.settings.other.as_ref().filter(|other| self.now_ns < other.until_ns) else { return };
        let mean_ns = other.rate.rate_at(self.now_ns).ns_for(f64::from(OTHER_BYTES));
        let gap: f64 = Exp1.sample(&mut self.dice);
        self.agenda.add(self.now_ns + (gap * mean_ns) as u64, Event::Other);
        let frame = Frame { connection: ConnectionId::default(), bytes: OTHER_BYTES, cargo: Cargo::Bare };
        self.bottleneck.handle_frame(self.now_ns, 0, frame);
        self.take_dropped();
        self.arm_link();
    }

    /// A round trip was measured.
    pub(super) fn take_round_trip(&mut self, group: u16, ns: u64, kind: RttKind, age_ns: u64) {
        let now = self.instant();
        if let Some(gate) = &mut self.gate {
            let load = gate.load();
            if kind != RttKind::LateData {
                gate.measured_ns = self.now_ns;
            }
            if let Some(pace) = &mut gate.pace {
                let path = if self.settings.are_neighbours { u64::from(group) } else { u64::from(group) << 16 };
                pace.handle_round_trip(now, RoundTrip { path, ns, kind, age_ns }, load);
            }
        }
    }

    pub(super) fn instant(&self) -> Instant {
        Instant::from_ns(self.now_ns)
    }
}

/// The time to add to the agenda for a timer at `wanted`; `None` if an earlier entry exists.
pub(super) fn earlier(wanted: Option<u64>, armed: &mut Option<u64>) -> Option<u64> {
    let at_ns = wanted.filter(|&at_ns| armed.is_none_or(|armed_ns| at_ns < armed_ns))?;
    *armed = Some(at_ns);
    Some(at_ns)
}
