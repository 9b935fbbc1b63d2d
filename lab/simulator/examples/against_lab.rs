//! Replays the requests of measured runs in the packet model and prints predicted beside measured values.
//!
//!     cargo run --release -p serpent-simulator --example against_lab -- [--users] [--line] [--router] RUN_FOLDER...
//!
//! A run folder is the output of `serpent-lab run --out`. Every cell is replayed with its own requests at the
//! times at which they were sent, so only the server, TCP and the bottleneck are predicted. The gate is given its
//! rate or finds it, as in the run. (With users that wait for responses, these times are themselves results; a
//! slower predicted server is then asked too early.)
//!
//! Means omit cells that the lab marked invalid, and disturbed cells. A cell is disturbed if clients are
//! nearby and requests were waiting, yet the link carried less than its rate. The threshold is a hundredth
//! beyond the part that the server itself leaves unused. Only measured values decide this.
//!
//! `--users` lets users send requests by themselves, each after its responses, instead of repeating the
//! measured times. `--line` and `--router` remove a mechanism to show its effect: the shaper's bucket, and
//! TCP's knowledge of its own device's queue.

use std::{collections::BTreeMap, error::Error, fs, io::BufRead, path::Path, process::ExitCode};

use scheduler::{
    Order,
    bands::BandPlan,
    correction::{Correction, UTILISATION},
    pace::{Finder, Pace},
    uplink::Settings,
};
use serde_json::Value;
use serpent_simulator::{
    Clients, Packets,
    packets::{BottleneckAt, ClientPath, Discipline, PacketSettings, Shaping},
    run,
};
use workload::{
    demand::Demand,
    outcome::{End, Outcome},
    rate::{Link, Rate},
    sequence::{Request, Shares},
    surge::{Site, Surge},
};

fn main() -> ExitCode {
    let (flags, folders): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    if let Some(flag) = flags.iter().find(|flag| !FLAGS.contains(&flag.as_str())) {
        eprintln!("against_lab: `{flag}` is no flag: there are {}", FLAGS.join(", "));
        return ExitCode::FAILURE;
    }
    let [users, without_bucket, without_own_device] = FLAGS.map(|flag| flags.iter().any(|given| given == flag));
    let ways = Ways { users, without_bucket, without_own_device };
    if folders.is_empty() {
        eprintln!("against_lab: name the folders of runs of the lab, such as those of `serpent-lab run --out`");
        return ExitCode::FAILURE;
    }
    for folder in &folders {
        if let Err(error) = against(Path::new(folder), ways) {
            eprintln!("against_lab: {folder}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

type Fallible<T> = Result<T, Box<dyn Error>>;

const FLAGS: [&str; 3] = ["--users", "--line", "--router"];

/// Options of the prediction.
#[derive(Clone, Copy)]
struct Ways {
    users: bool,
    without_bucket: bool,
    without_own_device: bool,
}

/// One cell: measured and predicted.
struct Compared {
    measured: Column,
    predicted: Column,
}

/// Sums of one side of the comparison.
#[derive(Default)]
struct Column {
    times_ms: Vec<f64>,
    first_ms: f64,
    by_size: [(f64, usize); SIZES.len() + 1],
    frames: f64,
    bytes: f64,
    /// Fraction of the link that was unused while requests were waiting.
    unused: Option<f64>,
}

/// A cell with more unused than this was disturbed.
const DISTURBED: f64 = 0.01;

/// Borders between the classes of sizes, in bytes.
const SIZES: [u64; 4] = [2_000, 15_000, 100_000, 1_000_000];

impl Column {
    fn add(&mut self, outcome: &Outcome) {
        let ms = outcome.response_ns() as f64 / 1e6;
        self.times_ms.push(ms);
        let first_ns = outcome.first_byte_ns.unwrap_or(outcome.end_ns);
        self.first_ms += first_ns.saturating_sub(outcome.at_ns) as f64 / 1e6;
        let (sum, count) = &mut self.by_size[SIZES.partition_point(|&size| size <= outcome.size_bytes)];
        *sum += ms;
        *count += 1;
    }

    fn mean_ms(&self) -> f64 {
        self.times_ms.iter().sum::<f64>() / self.times_ms.len().max(1) as f64
    }

    fn percentile_ms(&mut self, share: f64) -> f64 {
        self.times_ms.sort_by(f64::total_cmp);
        let at = (self.times_ms.len() as f64 * share) as usize;
        self.times_ms.get(at.min(self.times_ms.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }
}

fn against(folder: &Path, ways: Ways) -> Fallible<()> {
    let run: Value = serde_json::from_slice(&fs::read(folder.join("run.json"))?)?;
    println!("\n{} {}", folder.display(), run["experiment"]["name"]);
    println!(
        "{:>5} {:16} {:22} {:>4} | {:>8} {:>8} {:>6} | {:>15} | {:>15} | {:>6} {:>6} | by size, predicted over measured",
        "cell", "point", "subject", "seed", "measured", "predict.", "ratio", "p50", "p95", "frames", "bytes"
    );
    let mut names: Vec<_> = fs::read_dir(folder.join("cells"))?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    names.retain(|name| name.extension().is_some_and(|extension| extension == "json"));
    names.sort();
    let mut means: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for name in names {
        let cell: Value = serde_json::from_slice(&fs::read(&name)?)?;
        let (point, subject) = (cell["point"].as_u64().unwrap_or(0), cell["subject"].as_u64().unwrap_or(0));
        let label = run["points"][point as usize]["label"].as_str().unwrap_or("");
        let who = run["subjects"][subject as usize].as_str().unwrap_or("");
        let heading = format!("{:>5} {label:16} {who:22} {:>4}", cell["number"], cell["seed"]);
        if cell["facts"]["invalid"].as_array().is_none_or(|reasons| !reasons.is_empty()) {
            println!("{heading} | invalid");
            continue;
        }
        let setting = &run["points"][point as usize]["setting"];
        if setting["link"]["uploads"].as_array().is_some_and(|uploads| !uploads.is_empty()) {
            println!("{heading} | uploads beside the server are not replayed");
            continue;
        }
        let Compared { mut measured, mut predicted } = compare(&name, setting, who, &cell, ways)?;
        let (m, p) = (measured.mean_ms(), predicted.mean_ms());
        let leaves = if who.starts_with("serpent") { 1.0 - UTILISATION } else { 0.0 };
        let is_disturbed = measured.unused.is_some_and(|unused| unused > leaves + DISTURBED);
        let sizes: Vec<String> = measured
            .by_size
            .iter()
            .zip(&predicted.by_size)
            .map(|(m, p)| if m.1 == 0 { "-".to_owned() } else { format!("{:.2}", p.0 / m.0) })
            .collect();
        println!(
            "{heading} | {m:8.2} {p:8.2} {:6.3}{} | {:7.2} {:7.2} | {:7.1} {:7.1} | {:6.3} {:6.3} | {} first byte {:.2}",
            p / m,
            if is_disturbed { "!" } else { " " },
            measured.percentile_ms(0.5),
            predicted.percentile_ms(0.5),
            measured.percentile_ms(0.95),
            predicted.percentile_ms(0.95),
            predicted.frames / measured.frames,
            predicted.bytes / measured.bytes,
            sizes.join(" "),
            predicted.first_ms / measured.first_ms,
        );
        if !is_disturbed {
            means.entry((point, subject)).or_default().push((m, p));
        }
    }
    println!("mean of the seeds, without those marked ! as disturbed");
    let mut worst: f64 = 0.0;
    for ((point, subject), seeds) in means {
        let n = seeds.len() as f64;
        let (m, p) = (seeds.iter().map(|it| it.0).sum::<f64>() / n, seeds.iter().map(|it| it.1).sum::<f64>() / n);
        worst = worst.max((p / m - 1.0).abs());
        println!(
            "      {:16} {:22} {n:>4} | {m:8.2} {p:8.2} {:6.3}",
            run["points"][point as usize]["label"].as_str().unwrap_or(""),
            run["subjects"][subject as usize].as_str().unwrap_or(""),
            p / m
        );
    }
    println!("largest deviation of a mean of seeds: {:.1} %", worst * 100.0);
    Ok(())
}

fn compare(cell: &Path, setting: &Value, subject: &str, facts: &Value, ways: Ways) -> Fallible<Compared> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    let lines = zstd::stream::read::Decoder::new(fs::File::open(cell.with_extension("ndjson.zst"))?)?;
    for line in std::io::BufReader::new(lines).lines() {
        outcomes.push(serde_json::from_str(&line?)?);
    }
    outcomes.sort_by_key(|outcome| outcome.at_ns);
    let counted_from_ns = ns(&setting["time"]["warm-up-s"], 1e9);
    let until_ns = ns(&setting["time"]["seconds"], 1e9) + ns(&setting["time"]["drain-s"], 1e9);
    let mut measured = Column::default();
    outcomes.iter().filter(|outcome| outcome.at_ns >= counted_from_ns).for_each(|outcome| measured.add(outcome));
    let sent = &facts["facts"]["qdisc"];
    measured.frames = sent["packets"].as_f64().unwrap_or(f64::NAN);
    measured.bytes = sent["bytes"].as_f64().unwrap_or(f64::NAN);

    let mut settings = settings(setting, subject, facts)?;
    if setting["groups"].as_array().is_none_or(Vec::is_empty) {
        measured.unused = Some(unused(&outcomes, &settings));
    }
    if ways.without_bucket {
        settings.shaping = Shaping::Line;
    }
    if ways.without_own_device {
        settings.bottleneck = BottleneckAt::Router;
    }
    let mut model = Packets::new(settings);
    let requests = outcomes.iter().map(|it| Request {
        at_ns: it.at_ns,
        file: it.file,
        size_bytes: it.size_bytes,
        group: it.group,
    });
    let mut demand = if ways.users { users(setting, facts["seed"].as_u64().unwrap_or(1))? } else { None };
    let demand = demand.get_or_insert_with(|| Demand::sequence(requests.collect()));
    let mut predicted = Column::default();
    let clients = Clients {
        abort_after_ns: setting["clients"]["abort-after-s"].as_f64().map(|seconds| (seconds * 1e9) as u64),
        retries: setting["clients"]["retries"].as_u64().unwrap_or(0) as u32,
    };
    run(demand, &mut model, &clients, Some(until_ns), |served| {
        if served.request.at_ns >= counted_from_ns {
            predicted.add(&served.outcome());
        }
    });
    let lost = outcomes.iter().filter(|outcome| outcome.end != End::Done).count();
    if lost > 0 {
        println!(
            "      {lost} of the next cell's requests did not come whole: they count with the time they were waited for"
        );
    }
    let stats = model.stats();
    (predicted.frames, predicted.bytes) = (stats.carried_frames as f64, stats.carried_bytes as f64);
    Ok(Compared { measured, predicted })
}

/// The users of a point with a closed loop, as in the lab.
fn users(setting: &Value, seed: u64) -> Fallible<Option<Demand>> {
    let demand = &setting["demand"];
    if demand["kind"] != "users" {
        return Ok(None);
    }
    let surge: Surge = serde_json::from_value(demand["surge"].clone())?;
    let files = demand["files"].as_u64().ok_or("no number of files")? as usize;
    let count = demand["users"].as_u64().ok_or("no number of users")? as u32;
    let shares: Vec<f64> = setting["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|group| group["share"].as_f64().unwrap_or(1.0))
        .collect();
    let until_ns = ns(&setting["time"]["seconds"], 1e9);
    let site = Site::new(&surge, files, SITE_SEED)?;
    Ok(Some(Demand::users(&site, count, &Shares::new(&shares)?, until_ns, seed)))
}

/// The lab uses the same site in all of its runs.
const SITE_SEED: u64 = 1;

/// The fraction of the time with waiting requests that the received bytes do not account for.
fn unused(outcomes: &[Outcome], settings: &PacketSettings) -> f64 {
    let (mut busy_ns, mut lost_ns) = (0.0, 0.0);
    let mut at = 0;
    while at < outcomes.len() {
        let (from_ns, mut until_ns, mut bytes) = (outcomes[at].at_ns, outcomes[at].at_ns, 0);
        while let Some(outcome) = outcomes.get(at).filter(|outcome| outcome.at_ns <= until_ns) {
            until_ns = until_ns.max(outcome.end_ns);
            bytes += settings.wire.bytes_for(outcome.size_bytes);
            at += 1;
        }
        let carried = |ns: u64| settings.link.capacity_at(ns as f64);
        let could_bytes = carried(until_ns) - carried(from_ns);
        let took_ns = (until_ns - from_ns) as f64;
        busy_ns += took_ns;
        lost_ns += took_ns * (1.0 - bytes as f64 / could_bytes.max(1.0)).max(0.0);
    }
    lost_ns / f64::max(busy_ns, 1.0)
}

/// The model's settings for a point of an experiment.
fn settings(setting: &Value, subject: &str, cell: &Value) -> Fallible<PacketSettings> {
    let bits = setting["link"]["rate"].as_u64().and_then(Rate::from_bits_per_second).ok_or("no rate of the link")?;
    let mut link = Link::constant(bits);
    for change in setting["link"]["rate-changes"].as_array().into_iter().flatten() {
        let rate = change[1].as_u64().and_then(Rate::from_bits_per_second).ok_or("no rate to change to")?;
        link = link.then(ns(&change[0], 1e9), rate).ok_or("the changes of the rate are not in order")?;
    }
    let mut settings = PacketSettings::new(link, discipline(subject, bits)?);
    settings.pace = pace(subject, bits);
    settings.queue_packets = setting["link"]["queue-packets"].as_u64().unwrap_or(1000) as u32;
    settings.bottleneck =
        if setting["link"]["bottleneck"] == "router" { BottleneckAt::Router } else { BottleneckAt::Server };
    // The lab's default: more than one segment saves processor time at high rates, where there is no emulated
    // path.
    let fast = bits.bits_per_second() > 20_000_000;
    settings.gso_segments = setting["link"]["gso-segments"].as_u64().unwrap_or(if fast { 4 } else { 1 }) as u32;
    settings.requests_per_connection = match setting["clients"]["requests-per-connection"].as_u64() {
        Some(0) => u32::MAX,
        requests => requests.unwrap_or(1) as u32,
    };
    settings.seed = cell["seed"].as_u64().unwrap_or(1);
    if setting["groups"].as_array().is_none_or(Vec::is_empty) {
        nearby(&mut settings, &cell["facts"]);
    }
    for group in setting["groups"].as_array().into_iter().flatten() {
        let path = &group["path"];
        settings.paths.push(ClientPath {
            rtt_ns: ns(&path["rtt-ms"], 1e6) + ClientPath::DIRECT.rtt_ns,
            jitter_ns: ns(&path["jitter-ms"], 1e6),
            loss: path["loss"].as_f64().unwrap_or(0.0),
            // The announced segment size includes the time stamps.
            segment_bytes: path["mss-bytes"].as_u64().map_or(1448, |mss| mss.saturating_sub(12) as u32),
            line: None,
        });
    }
    Ok(settings)
}

/// Values that the lab measured on the idle link before the run, where no path hides them. They are the round
/// trip, and, from the smallest file, the time of server and client beyond the round trips of handshake and
/// request.
fn nearby(settings: &mut PacketSettings, facts: &Value) {
    let rtt_ns = ns(&facts["calibration"]["paths"][0]["rtt_mean_ms"], 1e6);
    let alone = facts["alone"].as_array().into_iter().flatten().min_by_key(|it| it["size_bytes"].as_u64());
    if rtt_ns > 0
        && let Some(alone) = alone
    {
        settings.paths.push(ClientPath { rtt_ns, ..ClientPath::DIRECT });
        settings.answer_ns = ns(&alone["least_ms"], 1e6).saturating_sub(2 * rtt_ns);
    }
}

fn discipline(subject: &str, rate: Rate) -> Fallible<Discipline> {
    let Some(rest) = subject.strip_prefix("serpent:") else { return Ok(Discipline::Fair) };
    let order: Order =
        rest.split(',').next().unwrap_or_default().parse().map_err(|error| format!("{subject}: {error}"))?;
    let paced = (rate.bits_per_second() as f64 * UTILISATION) as u64;
    let rules = Settings { order, rate: scheduler::Rate::from_bits_per_second(paced), ..Settings::default() };
    Ok(if rest.contains("enforce=kernel") {
        Discipline::Bands(rules, BandPlan::new(vec![2_000, 5_000, 20_000, 64_000, 200_000, 500_000])?)
    } else {
        Discipline::Gate(rules)
    })
}

/// The rate that the gate sends at, as in the server.
fn pace(subject: &str, rate: Rate) -> Option<Pace> {
    let is_gate = subject.starts_with("serpent:") && !subject.contains("enforce=kernel");
    let given =
        || Pace::Given(Correction::new(scheduler::Rate::clamped(rate.bits_per_second() as f64), Some(UTILISATION)));
    is_gate.then(|| if subject.contains("uplink=auto") { Pace::Found(Finder::new(None)) } else { given() })
}

fn ns(value: &Value, unit_ns: f64) -> u64 {
    (value.as_f64().unwrap_or(0.0) * unit_ns) as u64
}
