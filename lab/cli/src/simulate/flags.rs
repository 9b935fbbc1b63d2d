//! Makes an experiment from flags alone. Lists give the settings that vary.

use std::{collections::BTreeMap, path::PathBuf};

use bytesize::ByteSize;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use instrument::{
    LabError,
    experiment::{Experiment, Figure, FigureKind, Measure, Quick},
    setting::{
        CountSetting, DemandSetting, GroupSetting, Intensity, LinkSetting, PathSetting, Setting, SizesSetting,
        TimeSetting,
    },
};
use scheduler::Order;
use toml::Value;
use workload::{behaviour::Behaviour, pattern::Pattern, rate::Rate, surge::Surge};

/// Conditions, in place of an experiment. Every combination of repeated values is simulated.
#[derive(Args, Clone, Debug, Default)]
#[group(id = "Flags", multiple = true, conflicts_with = "experiment")]
#[command(next_help_heading = "Instead of an experiment (with one, use --set)")]
pub struct Flags {
    /// Orders to compare; the others are compared with the first [default: fair,srpt]
    #[arg(long, value_name = "ORDER,...", value_parser = order(), value_delimiter = ',', conflicts_with = "subjects", hide_possible_values = true)]
    pub orders: Vec<Order>,

    /// Rates of the uplink [default: 10mbit]
    #[arg(long, value_name = "RATE,...", value_parser = rate, value_delimiter = ',')]
    pub rate: Vec<Rate>,

    /// Loads: requested bytes over the bytes that the uplink can carry [default: 0.5,0.7,0.8,0.9]
    #[arg(long, value_name = "LOAD,...", value_delimiter = ',', conflicts_with_all = ["pattern", "users"])]
    pub load: Vec<f64>,

    /// A load that changes: w1 to w10 of the overload paper, or steps such as `25s@0.2,25s@1.2`; may be
    /// repeated
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["users", "trace"])]
    pub pattern: Vec<String>,

    /// Numbers of users who wait for their responses (SURGE), in place of a load
    #[arg(long, value_name = "N,...", value_delimiter = ',', conflicts_with_all = ["trace", "sizes"])]
    pub users: Vec<u32>,

    /// An access log to replay, at its own pace or at the given loads
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sizes", "files"])]
    pub trace: Option<PathBuf>,

    /// Sizes of the files: world-cup, nasa, surge, or one size as in 10KiB [default: world-cup]
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    pub sizes: Option<SizesSetting>,

    /// Number of files whose sizes represent the distribution [default: 2000]
    #[arg(long, value_name = "N")]
    pub files: Option<usize>,

    /// Round-trip times to the clients, in milliseconds [default: 0]
    #[arg(long, value_name = "MS,...", value_delimiter = ',')]
    pub rtt: Vec<f64>,

    /// Shares of packets lost on the way to the clients [default: 0]
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',')]
    pub loss: Vec<f64>,

    /// Number of packets that the bottleneck's queue holds [default: 1000]
    #[arg(long, value_name = "PACKETS")]
    pub queue: Option<u32>,

    /// Seconds over which requests are sent [default: 600; with patterns at least that, in whole periods of the longest one]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,

    /// Seconds to wait for requests in progress after the last request [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub drain: Option<f64>,

    /// Seconds at the start whose requests are not counted [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub warm_up: Option<f64>,

    /// Seconds after which clients give up a request [default: never]
    #[arg(long, value_name = "SECONDS")]
    pub abort_after: Option<f64>,

    /// Number of times that a client then asks again [default: 0]
    #[arg(long, value_name = "N", requires = "abort_after")]
    pub retries: Option<u16>,

    /// Keep connections for later requests, instead of a new one for each request
    #[arg(long)]
    pub keepalive: bool,
}

const DEFAULT_SECONDS: f64 = 600.0;
const DEFAULT_LOADS: [f64; 4] = [0.5, 0.7, 0.8, 0.9];
const DEFAULT_SEEDS: [u64; 3] = [1, 2, 3];

impl Flags {
    /// Makes the experiment, with a point for each combination of the given values.
    pub fn experiment(&self) -> Result<Experiment, LabError> {
        let table = toml::Table::try_from(self.setting()?)
            .map_err(|error| refused(format!("what the flags say cannot be written as an experiment: {error}")))?;
        let sweep = self.sweep();
        let orders = if self.orders.is_empty() { &[Order::Fair, Order::Srpt][..] } else { &self.orders };
        Ok(Experiment {
            name: "flags".to_owned(),
            title: "What the flags describe".to_owned(),
            source: String::new(),
            notes: String::new(),
            subjects: orders.iter().map(|&order| subject(order)).collect(),
            seeds: DEFAULT_SEEDS.to_vec(),
            figures: figures(!sweep.is_empty(), !self.pattern.is_empty()),
            setting: table,
            sweep,
            points: Vec::new(),
            quick: Quick::default(),
            published: Vec::new(),
        })
    }

    /// Makes the base setting from the first value of each flag.
    fn setting(&self) -> Result<Setting, LabError> {
        let defaults = TimeSetting::default();
        let link = LinkSetting::default();
        let path = PathSetting {
            rtt_ms: self.rtt.first().copied().unwrap_or_default(),
            loss: self.loss.first().copied().unwrap_or_default(),
            ..PathSetting::default()
        };
        Ok(Setting {
            link: LinkSetting {
                rate: self.rate.first().copied().unwrap_or(link.rate),
                queue_packets: self.queue.unwrap_or(link.queue_packets),
                ..link
            },
            demand: self.demand(),
            clients: Behaviour {
                requests_per_connection: if self.keepalive { 0 } else { 1 },
                abort_after_s: self.abort_after,
                retries: self.retries.unwrap_or_default(),
                ..Behaviour::default()
            },
            groups: if self.is_far() { vec![GroupSetting { path, ..GroupSetting::default() }] } else { Vec::new() },
            time: TimeSetting {
                seconds: self.seconds.map_or_else(|| self.default_seconds(), Ok)?,
                warm_up_s: self.warm_up.unwrap_or(defaults.warm_up_s),
                drain_s: self.drain.unwrap_or(defaults.drain_s),
            },
            count: CountSetting::default(),
            ..Setting::default()
        })
    }

    fn is_far(&self) -> bool {
        !(self.rtt.is_empty() && self.loss.is_empty())
    }

    fn demand(&self) -> DemandSetting {
        const FILES: usize = 2000;
        let files = self.files.unwrap_or(FILES);
        if let Some(file) = &self.trace {
            let load = self.load.first().copied();
            return DemandSetting::Trace { file: file.clone(), format: None, load, window_s: None, strict: false };
        }
        if let Some(&users) = self.users.first() {
            return DemandSetting::Users { users, files, surge: Box::new(Surge::default()) };
        }
        let intensity = match self.pattern.first() {
            Some(pattern) => Intensity::Pattern(pattern.clone()),
            None => Intensity::Load(self.load.first().copied().unwrap_or(DEFAULT_LOADS[0])),
        };
        DemandSetting::Open { sizes: self.sizes.clone().unwrap_or_default(), files, intensity }
    }

    fn default_seconds(&self) -> Result<f64, LabError> {
        let mut longest: f64 = DEFAULT_SECONDS;
        for text in &self.pattern {
            // A pattern from a file is read with the experiment.
            if text.starts_with('@') {
                continue;
            }
            let pattern: Pattern = text.parse().map_err(|wrong| refused(format!("--pattern {text}: {wrong}")))?;
            let period = pattern.period_ns() as f64 / 1e9;
            longest = longest.max((DEFAULT_SECONDS / period).ceil() * period);
        }
        Ok(longest)
    }

    fn sweep(&self) -> BTreeMap<String, Vec<Value>> {
        let nothing_moves = self.pattern.is_empty() && self.users.is_empty() && self.trace.is_none();
        let loads = if self.load.is_empty() && nothing_moves { &DEFAULT_LOADS[..] } else { &self.load };
        let numbers = |numbers: &[f64]| numbers.iter().map(|&number| Value::Float(number)).collect::<Vec<_>>();
        let texts = |texts: Vec<String>| texts.into_iter().map(Value::String).collect::<Vec<_>>();
        let varied = [
            ("demand.load", numbers(loads)),
            ("demand.pattern", texts(self.pattern.clone())),
            ("demand.users", self.users.iter().map(|&users| Value::Integer(users.into())).collect()),
            ("link.rate", texts(self.rate.iter().map(Rate::to_string).collect())),
            ("groups.0.path.rtt-ms", numbers(&self.rtt)),
            ("groups.0.path.loss", numbers(&self.loss)),
        ];
        varied.into_iter().filter(|(_, values)| values.len() > 1).map(|(key, v)| (key.to_owned(), v)).collect()
    }
}

fn figures(varied: bool, moves: bool) -> Vec<Figure> {
    let figure = |title: &str, kind, measure, log| Figure {
        title: title.to_owned(),
        kind,
        measure,
        over: None,
        points: Vec::new(),
        log,
    };
    let mut figures = Vec::new();
    if varied {
        figures.push(figure("Mean response time", FigureKind::OverSweep, Measure::MeanMs, true));
        figures.push(figure("Mean slowdown", FigureKind::OverSweep, Measure::Slowdown, true));
        figures.push(figure("Gain", FigureKind::OverSweep, Measure::Gain, false));
    }
    if moves {
        figures.push(figure("Over time", FigureKind::OverTime, Measure::MeanMs, true));
    }
    figures.push(figure("By size", FigureKind::BySize, Measure::MeanMs, true));
    figures
}

/// Parses an order. Completions list all orders.
fn order() -> impl TypedValueParser<Value = Order> {
    PossibleValuesParser::new(Order::ALL.map(Order::name)).try_map(|name| name.parse())
}

/// Parses sizes given by a single word.
fn sizes(text: &str) -> Result<SizesSetting, String> {
    match text {
        "world-cup" => Ok(SizesSetting::WorldCup),
        "nasa" => Ok(SizesSetting::Nasa),
        "surge" => Ok(SizesSetting::Surge),
        _ => text.parse::<ByteSize>().map(|size| SizesSetting::Fixed(size.as_u64())).map_err(|_| {
            format!(
                "`{text}` is none of world-cup, nasa and surge, nor one size as in 10KiB; others by --set demand.sizes"
            )
        }),
    }
}

fn refused(text: String) -> LabError {
    LabError::Request(text)
}

/// The subject for an order, as experiments name it.
fn subject(order: Order) -> String {
    format!("serpent:{}", order.name())
}

/// Parses the rate of a flag.
fn rate(text: &str) -> Result<Rate, String> {
    text.parse().map_err(|error: workload::rate::ParseError| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use instrument::{
        experiment::Changes,
        plan::{Inputs, Plan},
        record::Point,
    };

    use super::*;
    use crate::simulate::SimulateArgs;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: SimulateArgs,
    }

    fn read(flags: &str) -> Result<SimulateArgs, String> {
        let words = std::iter::once("simulate").chain(flags.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.args).map_err(|error| error.to_string())
    }

    fn points(flags: &str) -> Vec<Point> {
        let experiment = read(flags).unwrap().flags.experiment().unwrap().changed(&Changes::default()).unwrap();
        experiment.points().unwrap()
    }

    #[test]
    fn without_flags_four_loads_are_compared_under_two_orders() {
        let points = points("");
        assert_eq!(
            points.iter().map(|point| &point.label[..]).collect::<Vec<_>>(),
            ["load 0.5", "load 0.7", "load 0.8", "load 0.9"]
        );
        let setting = &points[0].setting;
        assert_eq!(
            (setting.link.rate.to_string(), setting.time.seconds, setting.groups.len()),
            ("10mbit".to_owned(), 600.0, 0)
        );
        let experiment = read("").unwrap().flags.experiment().unwrap();
        assert_eq!(experiment.subjects, ["serpent:fair", "serpent:srpt"]);
        let experiment = read("--orders las,fsp").unwrap().flags.experiment().unwrap();
        assert_eq!(experiment.subjects, ["serpent:las", "serpent:fsp"]);
    }

    #[test]
    fn lists_make_every_combination_and_single_values_none() {
        let swept = points("--load 0.5,0.9 --rate 5mbit,10mbit,20mbit --rtt 50 --sizes 10KiB");
        assert_eq!(swept.len(), 6);
        assert!(swept.iter().all(|point| point.setting.groups[0].path.rtt_ms == 50.0));
        let sizes = SizesSetting::Fixed(10_240);
        let intensity = Intensity::Load(0.9);
        assert_eq!(swept[5].setting.demand, DemandSetting::Open { sizes, files: 2000, intensity });
        let users = points("--users 100,200 --abort-after 5 --retries 2 --keepalive");
        assert_eq!(users.len(), 2);
        let clients = &users[0].setting.clients;
        assert_eq!((clients.abort_after_s, clients.retries, clients.requests_per_connection), (Some(5.0), 2, 0));
        let lossy = points("--loss 0,0.05 --load 0.7");
        assert_eq!((lossy.len(), lossy[1].setting.groups[0].path.loss), (2, 0.05));
        assert_eq!(points("--load 0.7")[0].label, "all");
    }

    #[test]
    fn a_moving_load_is_simulated_over_whole_periods() {
        let point = &points("--pattern w3")[0];
        assert_eq!(point.setting.time.seconds, 600.0);
        assert_eq!(points("--pattern w7")[0].setting.time.seconds, 621.0);
        let plan = Plan::new(&point.setting, &mut Inputs::default()).unwrap();
        assert!(!plan.pattern().unwrap().is_constant());
        assert_eq!(points("--pattern w1 --pattern w2").len(), 2);
        let wrong = read("--pattern soon").unwrap().flags.experiment().unwrap_err().to_string();
        assert!(wrong.contains("--pattern soon"), "{wrong}");
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for flags in [
            "smoke --load 0.5",
            "smoke --orders fair",
            "--load 0.5 --pattern w1",
            "--users 5 --load 0.5",
            "--trace a.log --sizes nasa",
            "--orders fair --subjects nginx",
            "--retries 2",
            "--sizes big",
            "--orders best",
            "--resume x --load 0.5",
            "--resume x --model bare",
            "--jobs 0",
        ] {
            assert!(read(flags).is_err(), "{flags}");
        }
        for flags in ["smoke --quick --model paced=1.1 --jobs 2", "--trace a.log --load 0.8,0.9", "--resume x --jobs 1"]
        {
            read(flags).unwrap();
        }
    }
}
