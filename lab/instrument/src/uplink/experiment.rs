//! Turns the flags into an experiment.

use workload::{
    behaviour::Behaviour,
    pattern::Pattern,
    rate::{Link, Rate},
};

use super::args::UplinkArgs;
use crate::{
    LabError,
    experiment::{self, Experiment},
    plan,
    setting::{CountSetting, DemandSetting, Intensity, LinkSetting, ServerSetting, Setting, SizesSetting, TimeSetting},
    subject::Subject,
};

const DEFAULT_SECONDS: f64 = 60.0;
const NS_PER_S: f64 = 1e9;

impl UplinkArgs {
    /// The experiment: one point, and every subject for each seed.
    pub(super) fn experiment(&self) -> Result<Experiment, LabError> {
        let subjects = Subject::parse_list(&self.subjects).map_err(|error| refused(error.to_string()))?;
        if self.seeds.is_empty() {
            return Err(refused("--seeds: at least one is needed".to_owned()));
        }
        let setting = toml::Table::try_from(self.setting()?)
            .map_err(|error| refused(format!("what the flags say cannot be written as an experiment: {error}")))?;
        let subjects = subjects.iter().map(Subject::to_string).collect();
        Ok(experiment::from_flags(
            "uplink",
            "Response times behind a busy uplink",
            subjects,
            self.seeds.clone(),
            setting,
        ))
    }

    fn setting(&self) -> Result<Setting, LabError> {
        let pattern = match &self.pattern {
            Some(pattern) => pattern.clone(),
            None => Pattern::constant(self.load)
                .ok_or_else(|| refused(format!("--load {}: a load is a positive number", self.load)))?,
        };
        let link = LinkSetting {
            rate: self.rate,
            queue_packets: self.queue,
            bottleneck: self.bottleneck,
            gso_segments: self.gso_segments,
            congestion: self.congestion.clone(),
            rate_changes: self.rate_changes()?,
            uploads: Vec::new(),
        };
        let changes = plan::link(&link).map_err(|_| self.wrong_changes())?;
        let seconds = positive("--seconds", self.seconds.unwrap_or_else(|| default_seconds(&pattern, &changes)))?;
        let requests_per_connection = if self.keepalive { 0 } else { 1 };
        Ok(Setting {
            link,
            server: ServerSetting::default(),
            demand: DemandSetting::Open {
                sizes: SizesSetting::WorldCup,
                files: self.files,
                intensity: match &self.pattern {
                    Some(pattern) => Intensity::Pattern(pattern.name().to_owned()),
                    None => Intensity::Load(self.load),
                },
            },
            clients: Behaviour { requests_per_connection, ..Behaviour::default() },
            groups: Vec::new(),
            time: TimeSetting { seconds, warm_up_s: 0.0, drain_s: positive("--drain", self.drain)? },
            count: CountSetting {
                accounting: self.accounting,
                load_match: self.load_match,
                max_lateness_ms: self.max_lateness,
                system_calls: false,
            },
        })
    }

    /// `--rate-change`, as pairs of seconds and rates.
    fn rate_changes(&self) -> Result<Vec<(f64, Rate)>, LabError> {
        let change = |change: &str| {
            let (time, rate) = change.trim().split_once(':').ok_or_else(|| self.wrong_changes())?;
            let seconds = time.strip_suffix('s').unwrap_or(time).parse().map_err(|_| self.wrong_changes())?;
            let rate = rate.parse().map_err(|error| refused(format!("--rate-change: {error}")))?;
            Ok((seconds, rate))
        };
        self.rate_change.iter().flat_map(|text| text.split(',')).map(change).collect()
    }

    fn wrong_changes(&self) -> LabError {
        refused(format!(
            "--rate-change `{}`: write rising times and rates, such as 60s:5mbit,120s:20mbit",
            self.rate_change.as_deref().unwrap_or_default()
        ))
    }
}

fn positive(flag: &str, seconds: f64) -> Result<f64, LabError> {
    // A day: longer runs would need another way of storing outcomes.
    if seconds > 0.0 && seconds <= 86_400.0 {
        return Ok(seconds);
    }
    Err(refused(format!("{flag} {seconds}: out of range")))
}

fn default_seconds(pattern: &Pattern, link: &Link) -> f64 {
    // As long after the last change as before the first.
    let changes = link.changes();
    let until = match (changes.first(), changes.last()) {
        (Some(&(first, _)), Some(&(last, _))) => (first + last) as f64 / NS_PER_S,
        _ => DEFAULT_SECONDS,
    };
    if pattern.is_constant() {
        return until;
    }
    let period = pattern.period_ns() as f64 / NS_PER_S;
    (until / period).ceil() * period
}

fn refused(text: String) -> LabError {
    LabError::Request(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::{
        plan::{Inputs, Plan},
        uplink::report::windows_s,
    };

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: UplinkArgs,
    }

    fn plan(flags: &str) -> Result<Plan, LabError> {
        let words = std::iter::once("lab").chain(flags.split_whitespace());
        let experiment = Cli::try_parse_from(words).unwrap().args.experiment()?;
        let plan = Plan::new(&experiment.points()?[0].setting, &mut Inputs::default())?;
        for subject in &experiment.subjects {
            subject.parse::<Subject>().unwrap().can(plan.setting())?;
        }
        Ok(plan)
    }

    #[test]
    fn defaults_are_the_first_experiment() {
        let plan = plan("").unwrap();
        assert_eq!(plan.duration, Duration::from_secs(60));
        assert_eq!((plan.bed.gso_segments, plan.bed.queue_packets), (1, 1000));
        assert_eq!(plan.setting().groups, []);
        let requests = plan.requests(1).unwrap().unwrap();
        let load = requests.iter().map(|r| plan.wire.bytes_for(r.size_bytes)).sum::<u64>() as f64 / 75e6;
        assert!((load - 0.8).abs() < 0.014, "{load}");
    }

    #[test]
    fn a_patterns_run_is_whole_periods() {
        assert_eq!(plan("--pattern w1").unwrap().duration, Duration::from_secs(100));
        assert_eq!(plan("--pattern w2 --rate 100mbit").unwrap().duration, Duration::from_secs(60));
        assert_eq!(plan("--pattern w1 --seconds 50").unwrap().duration, Duration::from_secs(50));
        assert_eq!(plan("--rate 100mbit").unwrap().bed.gso_segments, 4);
    }

    #[test]
    fn rate_changes_cut_the_run() {
        let plan = plan("--rate-change 60s:5mbit,120s:20mbit --subjects nginx").unwrap();
        assert_eq!(plan.duration, Duration::from_secs(180));
        assert_eq!(windows_s(&plan), [(0.0, 60.0), (60.0, 70.0), (70.0, 120.0), (120.0, 130.0), (130.0, 180.0)]);
    }

    #[test]
    fn the_body_alone_asks_for_more_requests() {
        let count = |flags| plan(flags).unwrap().requests(1).unwrap().unwrap().len();
        assert!(count("--accounting body") > count(""));
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_a_reason() {
        for (flags, reason) in [
            ("--load 0", "--load"),
            ("--seconds 0", "--seconds"),
            ("--drain inf", "--drain"),
            ("--subjects iis", "not a subject"),
            ("--rate-change 5mbit", "--rate-change"),
            ("--rate-change 60s:5mbit,60s:6mbit", "--rate-change"),
            ("--subjects serpent:srpt,enforce=kernel --rate-change 60s:5mbit", "rate-changes"),
            ("--subjects serpent:srpt,enforce=kernel --bottleneck router", "bottleneck"),
        ] {
            let error = plan(flags).unwrap_err().to_string();
            assert!(error.contains(reason), "{flags}: {error}");
        }
    }
}
