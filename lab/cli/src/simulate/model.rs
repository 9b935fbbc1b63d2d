//! Chooses the model for a subject under the conditions of a point.

use instrument::{
    LabError,
    bed::Bottleneck,
    plan::{Group, Plan},
    record::PacketCounts,
    setting::{LinkSetting, PathSetting, ServerSetting, Setting, UploadSetting},
    subject::Subject,
};
use scheduler::{
    Order, Pacing,
    bands::{BandLearner, BandPlan},
    uplink::Settings,
};
use simulator::{
    Banded, Ended, Model, Ordered, Paced, ProcessorSharing, Ticket,
    banded::on_wire,
    packets::{BottleneckAt, ClientLine, ClientPath, Discipline, OtherUploads, PacketSettings, PacketStats, Packets},
};
use workload::{behaviour::Protocol, rate::Rate, sequence::Request};

use super::{
    args::ModelChoice,
    serving::{self, Serving, UplinkConfig},
};

/// A model of any kind, on an idle link.
pub struct Uplink {
    engine: Engine,
    /// A description of the model in words.
    pub described: String,
}

enum Engine {
    /// A link that works whenever a request is in progress. The bytes that it carried follow from the
    /// requests.
    Exact(Box<dyn Model>),
    /// Serpent's pacer. Bytes are not counted here.
    Paced(Box<Paced>),
    Packets(Box<Counting>),
}

/// The packet model, with the bytes that had passed by the end of sending.
struct Counting {
    packets: Packets,
    until_ns: u64,
    by_then: Option<PacketStats>,
}

/// The model's knowledge of the bytes that passed the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkBytes {
    /// The capacity of the link over the time with a request in progress.
    WhenAsked,
    /// Counted bytes: in all, and while requests were sent.
    Counted(u64, u64),
    /// The model does not know.
    Unknown,
}

impl Uplink {
    /// Makes the model of `serving`. `sizes` are the requested sizes that the server has learned, and `seed`
    /// decides all random choices.
    ///
    /// # Errors
    /// [`LabError::Request`] for an order that the model cannot follow.
    pub fn new(
        choice: ModelChoice,
        serving: &Serving,
        plan: &Plan,
        sizes: &BandLearner,
        seed: u64,
    ) -> Result<Self, LabError> {
        let (link, wire) = (&plan.link, &plan.wire);
        let settings = |config: &UplinkConfig, share| {
            serving::settings(config, scheduler_rate(plan.link.first_rate()), share, sizes)
        };
        let fair = "even shares".to_owned();
        Ok(match (choice, serving) {
            (ModelChoice::Packets, _) => {
                let (discipline, described) = match serving {
                    Serving::Fair => (Discipline::Fair, fair),
                    Serving::Paced(config) => {
                        let settings = settings(config, None);
                        (Discipline::Gate(settings), paced(&settings))
                    }
                    Serving::Bands(config) => {
                        let bands = bands(config, sizes)?;
                        let described = banded(config.order, &bands);
                        (Discipline::Bands(settings(config, None), bands), described)
                    }
                };
                let packets = Packets::new(packet_settings(plan, discipline, seed));
                let until_ns = u64::try_from(plan.duration.as_nanos()).unwrap_or(u64::MAX);
                let engine = Engine::Packets(Box::new(Counting { packets, until_ns, by_then: None }));
                Self { engine, described: format!("{described}; packets") }
            }
            (_, Serving::Fair) => Self::exact(ProcessorSharing::new(link, wire), fair),
            (_, Serving::Bands(config)) | (ModelChoice::Bands, Serving::Paced(config)) => {
                let bands = bands(config, sizes)?;
                let described = banded(config.order, &bands);
                let bands = on_wire(&bands, config.order, wire);
                Self::exact(Banded::new(link, wire, settings(config, None), bands), described)
            }
            (ModelChoice::Paced(share), Serving::Paced(config)) => {
                let settings = settings(config, share);
                let engine = Engine::Paced(Box::new(Paced::new(link, wire, settings)));
                Self { engine, described: format!("{}; a queue before a bare link", paced(&settings)) }
            }
            (ModelChoice::Bare, Serving::Paced(config)) => {
                let settings = Settings { pacing: Pacing::EXACT, ..settings(config, None) };
                match (settings.order, settings.guard_stretch) {
                    // This model is fair by itself, so it needs no turns.
                    (Order::Fair, None) => Self::exact(ProcessorSharing::new(link, wire), fair),
                    _ => Self::exact(Ordered::new(link, wire, settings), ordered(&settings)),
                }
            }
        })
    }

    /// Bytes that passed the bottleneck.
    pub fn link_bytes(&self) -> LinkBytes {
        match &self.engine {
            Engine::Exact(_) => LinkBytes::WhenAsked,
            Engine::Paced(_) => LinkBytes::Unknown,
            Engine::Packets(counting) => {
                let all = counting.packets.stats();
                LinkBytes::Counted(all.carried_bytes, counting.by_then.unwrap_or(all).carried_bytes)
            }
        }
    }

    /// Counts of dropped and repeated packets, if the model has packets.
    pub fn packets(&self) -> Option<PacketCounts> {
        let Engine::Packets(counting) = &self.engine else { return None };
        let stats = counting.packets.stats();
        Some(PacketCounts { dropped: stats.dropped, sent_again: stats.retransmitted })
    }

    fn exact(model: impl Model + 'static, described: String) -> Self {
        Self { engine: Engine::Exact(Box::new(model)), described: format!("{described}; a bare link") }
    }

    fn model(&mut self, now_ns: u64) -> &mut dyn Model {
        match &mut self.engine {
            Engine::Exact(model) => &mut **model,
            Engine::Paced(model) => &mut **model,
            Engine::Packets(counting) => {
                if now_ns > counting.until_ns {
                    counting.by_then.get_or_insert_with(|| counting.packets.stats());
                }
                &mut counting.packets
            }
        }
    }
}

impl Model for Uplink {
    fn handle_request(&mut self, now_ns: u64, ticket: Ticket, request: &Request) {
        self.model(now_ns).handle_request(now_ns, ticket, request);
    }

    fn handle_abort(&mut self, now_ns: u64, ticket: Ticket) {
        self.model(now_ns).handle_abort(now_ns, ticket);
    }

    fn poll_timeout(&self) -> Option<u64> {
        match &self.engine {
            Engine::Exact(model) => model.poll_timeout(),
            Engine::Paced(model) => model.poll_timeout(),
            Engine::Packets(counting) => counting.packets.poll_timeout(),
        }
    }

    fn poll_end(&mut self, now_ns: u64) -> Option<Ended> {
        self.model(now_ns).poll_end(now_ns)
    }
}

fn bands(config: &UplinkConfig, sizes: &BandLearner) -> Result<BandPlan, LabError> {
    serving::band_plan(config, sizes)
        .ok_or_else(|| LabError::Request(format!("the order `{}` cannot be put into bands", config.order)))
}

fn ordered(settings: &Settings) -> String {
    let guard = settings.guard_stretch.map(|stretch| format!(", guarded beyond {stretch} times")).unwrap_or_default();
    format!("{}{guard}", settings.order)
}

fn paced(settings: &Settings) -> String {
    let rate = settings.rate.map(|rate| rate.to_string()).unwrap_or_default();
    format!("{}, paced at {rate}", ordered(settings))
}

fn banded(order: Order, bands: &BandPlan) -> String {
    let cutoffs: Vec<String> = bands.cutoffs().iter().map(u64::to_string).collect();
    format!("{order} in bands cut at {}", cutoffs.join(", "))
}

pub(super) fn packet_settings(plan: &Plan, discipline: Discipline, seed: u64) -> PacketSettings {
    PacketSettings {
        queue_packets: plan.bed.queue_packets,
        bottleneck: match plan.bed.bottleneck {
            Bottleneck::Server => BottleneckAt::Server,
            Bottleneck::Router => BottleneckAt::Router,
        },
        gso_segments: plan.bed.gso_segments,
        wire: plan.wire,
        paths: plan.groups.iter().map(|group| client_path(&group.setting.path)).collect(),
        requests_per_connection: match most_common(plan).behaviour.requests_per_connection {
            0 => u32::MAX,
            requests => requests,
        },
        uploads: plan.bed.uploads.first().map(|upload| other_uploads(upload, &plan.groups[0].setting.path)),
        seed,
        ..PacketSettings::new(plan.link.clone(), discipline)
    }
}

/// A full packet in the queue of a client's line.
const FRAME_BYTES: u32 = 1514;

/// Converts uploads, which go to clients at the end of this path.
fn other_uploads(upload: &UploadSetting, path: &PathSetting) -> OtherUploads {
    let [from_ns, until_ns] = [upload.from_s, upload.until_s].map(|s| (s * 1e9) as u64);
    let lasts_ns = until_ns - from_ns;
    let rtt_ns = client_path(path).rtt_ns;
    OtherUploads {
        from_ns,
        until_ns,
        lasts_ns,
        every_ns: lasts_ns,
        connections: upload.streams,
        rtt_ns,
        window_segments: None,
    }
}

/// Converts a path. The distance of a path is added to that of the test bed itself.
fn client_path(path: &PathSetting) -> ClientPath {
    let ns = |ms: f64| (ms * 1e6) as u64;
    let direct = ClientPath::DIRECT;
    ClientPath {
        rtt_ns: direct.rtt_ns + ns(path.rtt_ms),
        jitter_ns: ns(path.jitter_ms),
        loss: path.loss,
        line: path.rate.map(|rate| ClientLine { rate, queue_bytes: path.line_queue_packets() * FRAME_BYTES }),
        // TCP time stamps take 12 bytes of the segment size that clients allow.
        segment_bytes: path.mss_bytes.map_or(direct.segment_bytes, |mss| u32::from(mss).saturating_sub(12).max(1)),
    }
}

/// Returns the group with the largest share.
fn most_common(plan: &Plan) -> &Group {
    let most = plan.groups.iter().max_by(|a, b| a.setting.share.total_cmp(&b.setting.share));
    most.expect("a plan has a group at least")
}

/// Converts a rate to the scheduler's type.
fn scheduler_rate(rate: Rate) -> scheduler::Rate {
    // Both types have the same range.
    scheduler::Rate::clamped(rate.bits_per_second() as f64)
}

/// Lists the conditions that the model does not have, a sentence each.
pub fn lacks(choice: ModelChoice, plan: &Plan) -> Vec<String> {
    let Setting { link, server, count, .. } = plan.setting();
    let any = |of: &dyn Fn(&Group) -> bool| plan.groups.iter().any(of);
    let mut lacks = Vec::new();
    let mut lack = |is_lacking: bool, what: &str| {
        if is_lacking {
            lacks.push(what.to_owned());
        }
    };
    lack(
        any(&|group| group.behaviour.tls),
        "TLS is not simulated: neither its handshakes nor its records cost anything",
    );
    lack(
        any(&|group| group.behaviour.protocol == Protocol::Http2),
        "HTTP/2 is not simulated: its requests are as those of HTTP/1.1",
    );
    lack(
        *server != ServerSetting::default(),
        "the limits of the server's kernel are not simulated (syn-queue, accept-queue, syn-cookies, initial-rto-s): nobody is \
         turned away",
    );
    lack(count.system_calls, "there are no system calls to be counted");
    let defaults = LinkSetting::default();
    if choice == ModelChoice::Packets {
        let per_connection = most_common(plan).behaviour.requests_per_connection;
        lack(
            link.congestion != defaults.congestion,
            "the congestion control is simulated as cubic, which is not what `link.congestion` says",
        );
        let first = &plan.groups[0].setting.path;
        lack(
            !link.uploads.is_empty() && !PathSetting { rtt_ms: 0.0, ..first.clone() }.is_none(),
            "uploads meet neither jitter, loss nor the line of the first group's clients",
        );
        lack(link.uploads.len() > 1, "of several `link.uploads` the first alone is simulated");
        lack(
            link.uploads.first().is_some_and(|upload| upload.congestion != defaults.congestion),
            "uploads are simulated as with cubic, which is not what `link.uploads` says",
        );
        lack(
            any(&|group| group.behaviour.requests_per_connection != per_connection),
            "connections are kept alike by all groups, as by the one with the largest share",
        );
    } else {
        lack(!link.uploads.is_empty(), "uploads of another machine are not simulated without packets");
        let has_way = |path: &PathSetting| !PathSetting { mss_bytes: None, ..path.clone() }.is_none();
        lack(
            any(&|group| has_way(&group.setting.path)),
            "paths are not simulated without packets (round trips, jitter, loss, lines of the clients' own)",
        );
        lack(
            link.queue_packets < defaults.queue_packets,
            "the bottleneck's queue drops nothing without packets, however short it is set to be",
        );
    }
    lacks
}

/// Lists the settings of a subject that the model does not have. `link_changes` tells whether the link's rate
/// changes at some point.
pub fn subject_lacks(choice: ModelChoice, subject: &Subject, serving: &Serving, link_changes: bool) -> Vec<String> {
    let (config, in_bands) = match serving {
        Serving::Fair => return Vec::new(),
        Serving::Paced(config) => (config, choice == ModelChoice::Bands),
        Serving::Bands(config) => (config, true),
    };
    let is_told = config.rate.is_some();
    let finds_rate = matches!(subject, Subject::Serpent { uplink: Some(uplink), .. } if uplink == "auto");
    let is_paced = !in_bands && matches!(choice, ModelChoice::Packets | ModelChoice::Paced(_));
    let of = [
        (
            finds_rate && is_paced && link_changes,
            "its pacer does not follow the changes of the link's rate, as one that looks for the rate would: it keeps to the first",
        ),
        (
            choice == ModelChoice::Bare && is_told && !in_bands,
            "on a bare link it does not count which rate the pacer is told",
        ),
        (
            in_bands && matches!(serving, Serving::Paced(_)),
            "simulated in bands, although its pacer keeps the exact order",
        ),
        (in_bands && config.guard_stretch.is_some(), "bands have no guard"),
    ];
    of.into_iter().filter(|(lacks, _)| *lacks).map(|(_, what)| format!("`{subject}`: {what}")).collect()
}
