//! What was asked for, made sure that it can be done.

use std::{path::PathBuf, time::Duration};

use workload::{
    pattern::Pattern,
    rate::Link,
    sequence::{Recipe, Request},
    sizes::{FileSet, HeavyTail},
    wire::WireModel,
};

use super::{Accounting, UplinkArgs};
use crate::{
    LabError,
    bed::{BedConfig, Bottleneck},
    subject::{Subject, serpent_binary},
};

/// The experiment, resolved.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) args: UplinkArgs,
    pub(super) subjects: Vec<Subject>,
    pub(super) serpent: PathBuf,
    pub(super) bed: BedConfig,
    pub(super) link: Link,
    pub(super) pattern: Pattern,
    pub(super) duration: Duration,
    pub(super) drain: Duration,
    pub(super) files: FileSet,
    /// What a response costs the link.
    pub(super) wire: WireModel,
}

/// From here on several segments share a packet of the stack, as the CPU would otherwise be the bottleneck.
const GSO_FROM_BITS_PER_SECOND: u64 = 50_000_000;
const DEFAULT_SECONDS: f64 = 60.0;
const NS_PER_S: f64 = 1e9;

impl Plan {
    pub(super) fn new(args: UplinkArgs) -> Result<Self, LabError> {
        let request = |text: String| LabError::Request(text);
        let pattern = match &args.pattern {
            Some(pattern) => pattern.clone(),
            None => Pattern::constant(args.load)
                .ok_or_else(|| request(format!("--load {}: a load is a positive number", args.load)))?,
        };
        let link = link(&args)?;
        let seconds = args.seconds.unwrap_or_else(|| default_seconds(&pattern, &link));
        let subjects = Subject::parse_list(&args.subjects).map_err(|error| request(error.to_string()))?;
        for subject in subjects.iter().filter(|subject| subject.shapes_the_uplink()) {
            if !link.changes().is_empty() {
                return Err(request(format!("{subject} sets up the uplink itself: --rate-change cannot reach it")));
            }
            if args.bottleneck == Bottleneck::Router {
                return Err(request(format!("{subject} works on the server's device: use --bottleneck server")));
            }
        }
        if args.seeds.is_empty() {
            return Err(request("--seeds: at least one is needed".to_owned()));
        }
        let gso_segments =
            args.gso_segments.unwrap_or(if args.rate.bits_per_second() < GSO_FROM_BITS_PER_SECOND { 1 } else { 4 });
        Ok(Self {
            serpent: serpent_binary(args.serpent.as_deref())?,
            bed: BedConfig {
                rate: args.rate,
                queue_packets: args.queue,
                bottleneck: args.bottleneck,
                gso_segments,
                congestion: args.congestion.clone(),
                ..BedConfig::default()
            },
            duration: duration(seconds).ok_or_else(|| request(format!("--seconds {seconds}: out of range")))?,
            drain: duration(args.drain).ok_or_else(|| request(format!("--drain {}: out of range", args.drain)))?,
            files: FileSet::new(&HeavyTail::WORLD_CUP, args.files),
            wire: if args.keepalive { WireModel::KEPT_ALIVE } else { WireModel::PER_CONNECTION },
            subjects,
            link,
            pattern,
            args,
        })
    }

    /// The requests of a seed.
    pub(super) fn requests(&self, seed: u64) -> Vec<Request> {
        let recipe = Recipe {
            files: &self.files,
            link: &self.link,
            pattern: &self.pattern,
            duration_ns: self.duration.as_nanos() as u64,
            wire: match self.args.accounting {
                Accounting::Wire => self.wire,
                Accounting::Body => WireModel::BODY_ONLY,
            },
            load_match: self.args.load_match,
        };
        recipe.draw(seed)
    }

    /// Moments between which response times are shown apart: before, just after and well after each change of the rate. Pairs
    /// of seconds; none if the rate does not change.
    pub(super) fn windows_s(&self) -> Vec<(f64, f64)> {
        const SETTLING_S: f64 = 10.0;
        if self.link.changes().is_empty() {
            return Vec::new();
        }
        let mut cuts = vec![0.0];
        for &(at, _) in self.link.changes() {
            let at = at as f64 / NS_PER_S;
            cuts.extend([at, at + SETTLING_S]);
        }
        cuts.push(self.duration.as_secs_f64());
        cuts.windows(2).map(|pair| (pair[0], pair[1])).filter(|(from, until)| from < until).collect()
    }
}

fn duration(seconds: f64) -> Option<Duration> {
    // A day: longer runs would need another way of keeping outcomes.
    (seconds > 0.0 && seconds <= 86_400.0).then(|| Duration::from_secs_f64(seconds))
}

fn default_seconds(pattern: &Pattern, link: &Link) -> f64 {
    // After the last change, as long as before the first.
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

/// The link, with the changes of `--rate-change`.
fn link(args: &UplinkArgs) -> Result<Link, LabError> {
    let mut link = Link::constant(args.rate);
    for change in args.rate_change.iter().flat_map(|text| text.split(',')) {
        let wrong = || {
            LabError::Request(format!(
                "--rate-change `{change}`: write rising times and rates, such as 60s:5mbit,120s:20mbit"
            ))
        };
        let (time, rate) = change.trim().split_once(':').ok_or_else(wrong)?;
        let seconds: f64 = time.strip_suffix('s').unwrap_or(time).parse().map_err(|_| wrong())?;
        let rate = rate.parse().map_err(|error| LabError::Request(format!("--rate-change: {error}")))?;
        let at_ns = duration(seconds).ok_or_else(wrong)?.as_nanos() as u64;
        link = link.then(at_ns, rate).ok_or_else(wrong)?;
    }
    Ok(link)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: UplinkArgs,
    }

    fn plan(flags: &str) -> Result<Plan, LabError> {
        let words = std::iter::once("lab").chain(flags.split_whitespace());
        Plan::new(Cli::try_parse_from(words).unwrap().args)
    }

    #[test]
    fn defaults_are_the_first_experiment() {
        let plan = plan("").unwrap();
        assert_eq!(plan.duration, Duration::from_secs(60));
        assert_eq!((plan.bed.gso_segments, plan.bed.queue_packets), (1, 1000));
        assert_eq!(plan.args.seeds, [1, 2, 3]);
        let load = plan.requests(1).iter().map(|r| plan.wire.bytes_for(r.size_bytes)).sum::<u64>() as f64 / 75e6;
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
        assert_eq!(plan.windows_s(), [(0.0, 60.0), (60.0, 70.0), (70.0, 120.0), (120.0, 130.0), (130.0, 180.0)]);
    }

    #[test]
    fn the_body_alone_asks_for_more_requests() {
        let (wire, body) = (plan("").unwrap().requests(1).len(), plan("--accounting body").unwrap().requests(1).len());
        assert!(body > wire);
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_a_reason() {
        for (flags, reason) in [
            ("--load 0", "--load"),
            ("--seconds 0", "--seconds"),
            ("--drain inf", "--drain"),
            ("--subjects apache", "not a subject"),
            ("--rate-change 5mbit", "--rate-change"),
            ("--rate-change 60s:5mbit,60s:6mbit", "--rate-change"),
            ("--subjects serpent:srpt,enforce=kernel --rate-change 60s:5mbit", "--rate-change"),
            ("--subjects serpent:srpt,enforce=kernel --bottleneck router", "--bottleneck"),
            ("--serpent /nowhere/serpent", "/nowhere/serpent"),
        ] {
            let error = plan(flags).unwrap_err().to_string();
            assert!(error.contains(reason), "{flags}: {error}");
        }
    }
}
