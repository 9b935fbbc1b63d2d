//! `serpent-lab simulate gateways`: several gateways that divide the slots of a site, beside one that has them all.

mod conditions;
mod parts;

use std::{collections::BTreeMap, fmt, num::NonZeroUsize, path::PathBuf, process::ExitCode, sync::Mutex, thread};

use chart::{Table, aligned};
use clap::Args;
use instrument::{LabError, progress::Progress, run, shard::Shard};
use simulator::gateways::{Demand, Fault, Placement, Setup, class};

use self::{
    conditions::{Conditions, Load, Place},
    parts::{Part, Shown},
};
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
  serpent-lab simulate gateways --gateways 2,8 --loss 0.01 --faults --seconds 300
  serpent-lab simulate gateways --seeds 1,2,3,4 --shard 0/4 --out part-0.json
  serpent-lab simulate gateways --join part-0.json part-1.json part-2.json part-3.json")]
pub struct GatewaysArgs {
    #[command(flatten)]
    pub conditions: Conditions,

    /// Simulate one of N parts only, I from 0 to N - 1
    #[arg(long, value_name = "I/N", requires = "out")]
    pub shard: Option<Shard>,

    /// Write the results to a file, too, for `--join`
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Simulate nothing: show the results of these files together, which are parts of one simulation
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["Conditions", "shard", "out", "jobs"])]
    pub join: Vec<PathBuf>,

    /// Number of simulations at a time [default: the number of processors]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

/// A simulation, by its number from 0.
struct Point {
    number: usize,
    load: Load,
    gateways: u32,
    seed: u64,
}

/// Simulates, or joins what was simulated, and prints a table for each load.
pub fn simulate(args: &GatewaysArgs) -> Result<ExitCode, LabError> {
    if !args.join.is_empty() {
        let (whole, missing) = parts::join(&args.join)?;
        print(&whole);
        missing.iter().for_each(|part| eprintln!("note: part {part} is missing"));
        return Ok(ExitCode::SUCCESS);
    }
    let part = Part {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        conditions: args.conditions.clone(),
        shard: args.shard,
        shown: shown(args)?,
    };
    if let Some(path) = &args.out {
        part.write(path)?;
    }
    print(&part);
    Ok(ExitCode::SUCCESS)
}

/// The combinations, in the order of their numbers.
fn points(conditions: &Conditions) -> Vec<Point> {
    let mut points = Vec::new();
    for &load in &conditions.load {
        for &gateways in &conditions.gateways {
            for &seed in &conditions.seeds {
                points.push(Point { number: points.len(), load, gateways, seed });
            }
        }
    }
    points
}

/// Does the simulations of the part.
fn shown(
    GatewaysArgs { conditions: args, shard, jobs, .. }: &GatewaysArgs,
) -> Result<BTreeMap<usize, Shown>, LabError> {
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
    let mut points = points(args);
    points.retain(|point| shard.is_none_or(|shard| shard.has(point.number)));
    let task = |point: Point| {
        let Point { load, gateways, seed, .. } = point;
        let s = if gateways == 1 { "" } else { "s" };
        let name = format!("load {load}, {gateways} gateway{s}, seed {seed}");
        Task { expected: f64::from(args.slots) + f64::from(gateways), what: point, name }
    };
    let tasks: Vec<_> = points.into_iter().map(task).collect();
    let stop = run::stop_on_signals()?;
    let mut progress = Progress::new(tasks.iter().map(|task| task.expected), tasks.len());
    let jobs = jobs.unwrap_or_else(|| thread::available_parallelism().unwrap_or(NonZeroUsize::MIN));
    let shown = Mutex::new(BTreeMap::new());
    pool::all(&tasks, jobs, &mut progress, &stop, |point| {
        let setup = setup(args, point);
        let one = (point.load != Load::Full).then(|| setup.run_alone());
        let result = Shown::new(&setup.run(), one.as_ref());
        shown.lock().unwrap_or_else(|dead| dead.into_inner()).insert(point.number, result);
        Ok(())
    })?;
    Ok(shown.into_inner().unwrap_or_else(|dead| dead.into_inner()))
}

/// Prints a table for each load. Combinations without results are left out.
fn print(part: &Part) {
    let (args, points) = (&part.conditions, points(&part.conditions));
    let mut out = String::new();
    for &load in &args.load {
        let of = |gateways: u32| {
            let of_row = points.iter().filter(|point| point.load == load && point.gateways == gateways);
            of_row.filter_map(|point| part.shown.get(&point.number)).collect::<Vec<_>>()
        };
        let rows =
            args.gateways.iter().map(|&gateways| (gateways, of(gateways))).filter(|(_, shown)| !shown.is_empty());
        let rows: Vec<_> = rows.map(|(gateways, shown)| row(args, load, gateways, &shown)).collect();
        let table = Table { caption: String::new(), head: head(args, load), rows, words: &[] };
        out += &format!("load {load}\n{}\n", Text(&table));
    }
    println!("{}", out.trim_end_matches('\n'));
}

fn setup(args: &Conditions, point: &Point) -> Setup {
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

fn head(args: &Conditions, load: Load) -> Vec<String> {
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

fn row(args: &Conditions, load: Load, gateways: u32, shown: &[&Shown]) -> Vec<String> {
    let mean = |of: &dyn Fn(&Shown) -> f64| shown.iter().map(|it| of(it)).sum::<f64>() / shown.len().max(1) as f64;
    let most = |of: &dyn Fn(&Shown) -> u32| shown.iter().map(|it| of(it)).max().unwrap_or(0).to_string();
    let per_cent = |part: f64| format!("{:.2} %", 100.0 * part);
    let one = |it: &Shown| it.one_ms.unwrap_or_default();
    let mut row = vec![gateways.to_string()];
    match load {
        Load::Part(_) => {
            let (ours, alone) = (mean(&|it| it.mean_ms), mean(&|it| one(it).0));
            row.extend([format!("{ours:.2}"), format!("{alone:.2}"), format!("{:.3}", ours / alone)]);
            row.push(format!("{:.1}", mean(&|it| it.p99_ms)));
            row.push(format!("{:.1}", mean(&|it| one(it).1)));
        }
        Load::Full => {
            let followed = shown.iter().map(|it| it.followed_ns).collect::<Option<Vec<_>>>();
            let most_ns = followed.and_then(|all| all.into_iter().max());
            row.push(most_ns.map_or_else(|| "never".to_owned(), |ns| format!("{:.0}", ns as f64 / 1e6)));
            row.push(per_cent(shown.iter().map(|it| it.starved).fold(0.0, f64::max)));
        }
    }
    row.push(per_cent(mean(&|it| it.unused)));
    row.push(most(&|it| it.sound.most));
    row.push(per_cent(mean(&|it| it.sound.part)));
    if args.faults {
        row.push(most(&|it| it.faulty.most));
        row.push(per_cent(mean(&|it| it.faulty.part)));
    }
    row.push(format!("{:.1}", mean(&|it| it.asks)));
    row.push(format!("{:.0}", mean(&|it| it.messages)));
    row
}

struct Text<'a>(&'a Table);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        aligned(f, self.0)
    }
}
