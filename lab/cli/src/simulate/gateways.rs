//! `serpent-lab simulate gateways`: several gateways that divide the slots of a site, beside one that has them all.

use std::{fmt, num::NonZeroUsize, process::ExitCode, sync::Mutex, thread};

use chart::{Table, aligned};
use clap::{Args, ValueEnum};
use instrument::{LabError, progress::Progress, run};
use scheduler::share::Policy;
use simulator::gateways::{Demand, Fault, Measures, Placement, Setup, class};

use super::pool::{self, Task};

const SECOND: u64 = 1_000_000_000;
const WARM_UP_S: u64 = 5;

/// Gateways of production, simulated: how much slower several are than one, and what they ask of their store
///
/// Each combination of a load and a number of gateways is simulated with each seed, and the same requests with one
/// gateway that has all slots. At load `full` every gateway always has waiting requests. Times are in milliseconds.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  serpent-lab simulate gateways
  serpent-lab simulate gateways --gateways 1000 --slots 4000 --load 0.8,full --seconds 20 --seeds 1
  serpent-lab simulate gateways --gateways 2,8 --loss 0.01 --faults --seconds 300")]
pub struct GatewaysArgs {
    /// Numbers of gateways
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 64], value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub gateways: Vec<u32>,

    /// Slots of the site
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub slots: u32,

    /// Loads: requested work over what the site can do; or `full`
    #[arg(long, value_name = "LOAD,...", value_delimiter = ',', default_value = "0.5,0.8,0.95,full", value_parser = load)]
    pub load: Vec<Load>,

    /// How classes share the slots
    #[arg(long, value_name = "SHARE", default_value = "weighted", value_parser = policy)]
    pub share: Policy,

    /// Weights of the classes, the most important first; each has as many requests. Ratios of delays are their inverse
    #[arg(long, value_name = "WEIGHT,...", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub weights: Vec<u32>,

    /// To which gateways requests come
    #[arg(long, value_enum, default_value_t = Place::Even)]
    pub placement: Place,

    /// Mean time that the site works on a request, exponentially distributed
    #[arg(long, value_name = "MS", default_value_t = 20.0)]
    pub service_ms: f64,

    /// Mean time of a message to the store or from it
    #[arg(long, value_name = "MS", default_value_t = 0.25)]
    pub message_ms: f64,

    /// Part of the messages that is lost
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    pub loss: f64,

    /// Random faults: gateways that are cut off, stand still or are killed, and a store that is gone for a while
    #[arg(long)]
    pub faults: bool,

    /// Measured seconds, after 5 that are not
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,

    /// Seeds
    #[arg(long, value_name = "SEED,...", value_delimiter = ',', default_value = "1,2,3")]
    pub seeds: Vec<u64>,

    /// Number of simulations at a time [default: the number of processors]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Requested work over what the site can do.
    Part(f64),
    /// Every gateway has waiting requests.
    Full,
}

/// To which gateways requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// To each alike
    Even,
    /// To the first most, to the second half of that, to the third a third
    Skewed,
    /// Those of a class to gateways of its own
    ByClass,
    /// To every other gateway, and to the others after a second, and so on
    Moving,
}

/// A simulation, and what it showed.
struct Point {
    load: Load,
    gateways: u32,
    seed: u64,
}

struct Shown {
    several: Measures,
    /// `None` at full load, where one gateway has nothing to show.
    one: Option<Measures>,
}

/// Simulates, and prints a table for each load.
pub fn simulate(args: &GatewaysArgs) -> Result<ExitCode, LabError> {
    let refused = |what: &str| Err(LabError::Request(what.to_owned()));
    if !(args.service_ms > 0.0 && args.service_ms <= 60_000.0) {
        return refused("--service-ms: give more than 0, and at most 60000");
    }
    if !(0.0..=1000.0).contains(&args.message_ms) || !(0.0..1.0).contains(&args.loss) {
        return refused("--message-ms is from 0 to 1000, and --loss from 0 to less than 1");
    }
    if args.weights.len() > args.slots as usize {
        return refused("--weights: each class needs a slot");
    }
    let mut tasks = Vec::new();
    for &load in &args.load {
        for &gateways in &args.gateways {
            for &seed in &args.seeds {
                let s = if gateways == 1 { "" } else { "s" };
                let name = format!("load {load}, {gateways} gateway{s}, seed {seed}");
                let expected = f64::from(args.slots) + f64::from(gateways);
                tasks.push(Task { what: Point { load, gateways, seed }, expected, name });
            }
        }
    }
    let stop = run::stop_on_signals()?;
    let mut progress = Progress::new(tasks.iter().map(|task| task.expected), tasks.len());
    let jobs = args.jobs.unwrap_or_else(|| thread::available_parallelism().unwrap_or(NonZeroUsize::MIN));
    let shown = Mutex::new(Vec::new());
    pool::all(&tasks, jobs, &mut progress, &stop, |point| {
        let setup = setup(args, point);
        let one = (point.load != Load::Full).then(|| setup.run_alone());
        let several = setup.run();
        shown
            .lock()
            .unwrap_or_else(|dead| dead.into_inner())
            .push(((point.load, point.gateways), Shown { several, one }));
        Ok(())
    })?;
    let shown = shown.into_inner().unwrap_or_else(|dead| dead.into_inner());
    let mut out = String::new();
    for &load in &args.load {
        let of = |gateways: u32| {
            let of_point = shown.iter().filter(move |(of, _)| *of == (load, gateways));
            of_point.map(|(_, shown)| shown).collect::<Vec<_>>()
        };
        let rows = args.gateways.iter().map(|&gateways| row(args, load, gateways, &of(gateways))).collect();
        let table = Table { caption: String::new(), head: head(args, load), rows, words: &[] };
        out += &format!("load {load}\n{}\n", Text(&table));
    }
    print!("{}", out.trim_end_matches('\n'));
    println!();
    Ok(ExitCode::SUCCESS)
}

fn setup(args: &GatewaysArgs, point: &Point) -> Setup {
    let mut setup = Setup::new(point.gateways, args.slots, 0.0);
    let ms = |ms: f64| (ms * 1e6) as u64;
    setup.policy = args.share;
    setup.classes = (args.weights.iter())
        .map(|&weight| {
            let delay_ratio = (args.weights[0] / weight).max(1);
            let deadline_ns = Some(ms(5.0 * args.service_ms) * u64::from(delay_ratio));
            scheduler::class::Class { weight, delay_ratio, deadline_ns, ..class() }
        })
        .collect();
    setup.mix = vec![1.0; args.weights.len()];
    setup.service.mean_ns = ms(args.service_ms).max(1);
    setup.network.delay_ns = ms(args.message_ms * 0.8);
    setup.network.jitter_ns = ms(args.message_ms * 0.2);
    setup.network.loss = args.loss;
    setup.placement = match args.placement {
        Place::Even => Placement::Even,
        Place::Skewed => Placement::Skewed,
        Place::ByClass => Placement::ByClass,
        Place::Moving => Placement::Moving(SECOND),
    };
    setup.seed = point.seed;
    setup.until_ns = (WARM_UP_S + args.seconds) * SECOND;
    // At full load the first gateway comes late, and has to get its part.
    let first_from_ns = WARM_UP_S * SECOND;
    setup.warm_up_ns = WARM_UP_S * SECOND;
    setup.demand = match point.load {
        Load::Part(load) => Demand::Open { load },
        Load::Full => Demand::Users { each: (4 * args.slots / point.gateways).max(3), first_from_ns },
    };
    if args.faults {
        setup.faults = Fault::random(point.seed, point.gateways, setup.warm_up_ns, setup.until_ns);
    }
    setup
}

fn head(args: &GatewaysArgs, load: Load) -> Vec<String> {
    let mut head = match load {
        Load::Part(_) => vec!["gateways", "mean", "of one", "times", "p99", "of one"],
        Load::Full => vec!["gateways", "followed", "starved"],
    };
    head.extend(["unused", "most", "above"]);
    if args.faults {
        head.extend(["most in faults", "above in faults"]);
    }
    head.extend(["asks of each/s", "messages/s"]);
    head.into_iter().map(str::to_owned).collect()
}

fn row(args: &GatewaysArgs, load: Load, gateways: u32, shown: &[&Shown]) -> Vec<String> {
    let mean = |of: &dyn Fn(&Shown) -> f64| shown.iter().map(|it| of(it)).sum::<f64>() / shown.len().max(1) as f64;
    let per_cent = |part: f64| format!("{:.2} %", 100.0 * part);
    let one = |of: &dyn Fn(&Measures) -> f64| mean(&|it| it.one.as_ref().map_or(0.0, of));
    let mut row = vec![gateways.to_string()];
    match load {
        Load::Part(_) => {
            let (ours, alone) = (mean(&|it| it.several.all().mean_ms()), one(&|it| it.all().mean_ms()));
            row.extend([format!("{ours:.2}"), format!("{alone:.2}"), format!("{:.3}", ours / alone)]);
            row.push(format!("{:.1}", mean(&|it| it.several.all().p99_ms())));
            row.push(format!("{:.1}", one(&|it| it.all().p99_ms())));
        }
        Load::Full => {
            let followed = shown.iter().map(|it| it.several.followed_ns).collect::<Option<Vec<_>>>();
            let most_ns = followed.and_then(|all| all.into_iter().max());
            row.push(most_ns.map_or_else(|| "never".to_owned(), |ns| format!("{:.0}", ns as f64 / 1e6)));
            row.push(per_cent(shown.iter().map(|it| it.several.starved_worst).fold(0.0, f64::max)));
        }
    }
    let above = |of: &simulator::gateways::InUse| of.over_ns as f64 / of.seen_ns.max(1) as f64;
    row.push(per_cent(mean(&|it| it.several.unused)));
    row.push(shown.iter().map(|it| it.several.sound.most).max().unwrap_or(0).to_string());
    row.push(per_cent(mean(&|it| above(&it.several.sound))));
    if args.faults {
        row.push(shown.iter().map(|it| it.several.faulty.most).max().unwrap_or(0).to_string());
        row.push(per_cent(mean(&|it| above(&it.several.faulty))));
    }
    row.push(format!("{:.1}", mean(&|it| it.several.asks)));
    row.push(format!("{:.0}", mean(&|it| it.several.messages)));
    row
}

struct Text<'a>(&'a Table);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        aligned(f, self.0)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(load) => write!(f, "{load}"),
            Self::Full => f.write_str("full"),
        }
    }
}

fn load(text: &str) -> Result<Load, String> {
    match text.parse::<f64>() {
        _ if text == "full" => Ok(Load::Full),
        Ok(load) if load > 0.0 && load <= 10.0 => Ok(Load::Part(load)),
        _ => Err("give a number above 0 and up to 10, or `full`".to_owned()),
    }
}

fn policy(text: &str) -> Result<Policy, String> {
    let names = || Policy::ALL.map(Policy::name).join(", ");
    Policy::ALL.into_iter().find(|it| it.name() == text).ok_or_else(|| format!("it is one of {}", names()))
}
