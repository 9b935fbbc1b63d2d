//! Starvation stretch: the response time of a request over that of the same request in another run. The
//! definition is from "Implementation of a New Scheduling Policy in Web Servers", section on starvation;
//! there the other run is under processor sharing. A request with a stretch above 1 has starved.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::median;
use crate::outcome::{End, Outcome};

/// How the requests of two runs were matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Matching {
    /// Request by request: both runs sent the same requests at the same planned times (open loop).
    ByRequest,
    /// By quantile: users waited for responses, so the runs have different requests (closed loop). The
    /// requests for a file by a group are compared with the same quantile of those in the other run.
    ByQuantile,
}

/// The stretch of a run's requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// How requests were matched.
    pub matching: Matching,
    /// Requests for which it is known at least whether the stretch is above 1.
    pub pairs: usize,
    /// Requests for which it is unknown: both are incomplete, or only the slower one is.
    pub unknown: usize,
    /// Requests without a counterpart in the other run.
    pub unmatched: usize,
    /// Fraction of the pairs that took longer.
    pub starved: f64,
    /// Fraction of the pairs that took more than a tenth longer, which measurement noise rarely causes.
    pub starved_by_a_tenth: f64,
    /// The largest stretch; 0 without pairs. A lower bound if the request is incomplete.
    pub worst: f64,
    /// The median over all pairs; 0 without pairs.
    pub median: f64,
    /// The mean over starved requests; 0 if there are none.
    pub mean_of_starved: f64,
}

/// Why two runs cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmatched {
    /// The runs should have the same requests and do not.
    OtherRequests {
        /// Number of requests of the run, and of the other run.
        counts: (usize, usize),
        /// The first request in time order that differs; `None` if one run only has more.
        first: Option<usize>,
    },
    /// Fewer than half of the requests have a counterpart of the same file and group.
    TooFew {
        /// Requests with a counterpart.
        matched: usize,
        /// All requests.
        of: usize,
    },
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherRequests { counts: (ours, theirs), first: Some(first) } => {
                write!(
                    f,
                    "the runs have different requests ({ours} and {theirs}; the first that differs is number {first})"
                )
            }
            Self::OtherRequests { counts: (ours, theirs), first: None } => {
                write!(f, "one run has {ours} requests, the other {theirs}: one was interrupted")
            }
            Self::TooFew { matched, of } => {
                write!(f, "only {matched} of {of} requests have one of the same file and group in the other run")
            }
        }
    }
}

impl std::error::Error for Unmatched {}

/// The stretch of `outcomes` over `baseline`, for the requests planned at or after `from_ns`. In open loop
/// both must have the same requests; otherwise they are matched by file, group and quantile.
pub fn stretch(
    outcomes: &[Outcome],
    baseline: &[Outcome],
    from_ns: u64,
    open_loop: bool,
) -> Result<Stretch, Unmatched> {
    let [ours, theirs] = [outcomes, baseline].map(|all| all.iter().filter(|o| o.at_ns >= from_ns).collect::<Vec<_>>());
    if open_loop { by_request(ours, theirs) } else { by_quantile(&ours, &theirs) }
}

/// A response time, and whether the response is complete.
type Time = (f64, bool);

fn time(outcome: &Outcome) -> Time {
    (outcome.response_ns() as f64, outcome.end == End::Done)
}

fn by_request(mut ours: Vec<&Outcome>, mut theirs: Vec<&Outcome>) -> Result<Stretch, Unmatched> {
    // Records are in the order of sending or ending; planned times restore the plan's order.
    let planned = |outcome: &&Outcome| (outcome.at_ns, outcome.group, outcome.file, outcome.size_bytes);
    ours.sort_by_key(planned);
    theirs.sort_by_key(planned);
    let counts = (ours.len(), theirs.len());
    let first = ours.iter().zip(&theirs).position(|(our, their)| planned(our) != planned(their));
    if first.is_some() || counts.0 != counts.1 {
        return Err(Unmatched::OtherRequests { counts, first });
    }
    let pairs = ours.iter().zip(&theirs).map(|(our, their)| (time(our), time(their)));
    Ok(Stretch::of(Matching::ByRequest, pairs, 0))
}

fn by_quantile(ours: &[&Outcome], theirs: &[&Outcome]) -> Result<Stretch, Unmatched> {
    let sorted = |outcomes: &[&Outcome]| {
        let mut classes: BTreeMap<(u16, u32), Vec<Time>> = BTreeMap::new();
        for outcome in outcomes {
            classes.entry((outcome.group, outcome.file)).or_default().push(time(outcome));
        }
        classes.values_mut().for_each(|times| times.sort_unstable_by(|a, b| a.0.total_cmp(&b.0)));
        classes
    };
    let (classes, others) = (sorted(ours), sorted(theirs));
    let mut pairs = Vec::with_capacity(ours.len());
    for (class, times) in &classes {
        let Some(other) = others.get(class) else { continue };
        // Rank i of n stands for the quantile (i + 1/2) / n, and is matched with the rank at that quantile in
        // the other run.
        let counterpart = |i: usize| other[(2 * i + 1) * other.len() / (2 * times.len())];
        pairs.extend(times.iter().enumerate().map(|(i, &time)| (time, counterpart(i))));
    }
    if 2 * pairs.len() < ours.len() {
        return Err(Unmatched::TooFew { matched: pairs.len(), of: ours.len() });
    }
    let unmatched = ours.len() - pairs.len();
    Ok(Stretch::of(Matching::ByQuantile, pairs.into_iter(), unmatched))
}

impl Stretch {
    fn of(matching: Matching, pairs: impl Iterator<Item = (Time, Time)>, unmatched: usize) -> Self {
        let (mut stretches, mut unknown) = (Vec::new(), 0);
        for ((ours_ns, ours_whole), (theirs_ns, theirs_whole)) in pairs {
            // The time of an incomplete request is a lower bound. Longer is certain if only ours is
            // incomplete, shorter if only theirs is.
            let known = match (ours_whole, theirs_whole) {
                (true, true) => true,
                (false, true) => ours_ns > theirs_ns,
                (true, false) => ours_ns <= theirs_ns,
                (false, false) => false,
            };
            if known && theirs_ns > 0.0 {
                stretches.push(ours_ns / theirs_ns);
            } else {
                unknown += 1;
            }
        }
        let share_above = |limit: f64| {
            stretches.iter().filter(|&&stretch| stretch > limit).count() as f64 / stretches.len().max(1) as f64
        };
        let starved: Vec<f64> = stretches.iter().copied().filter(|&stretch| stretch > 1.0).collect();
        Self {
            matching,
            pairs: stretches.len(),
            unknown,
            unmatched,
            starved: share_above(1.0),
            starved_by_a_tenth: share_above(1.1),
            worst: stretches.iter().copied().fold(0.0, f64::max),
            mean_of_starved: starved.iter().sum::<f64>() / starved.len().max(1) as f64,
            median: median(stretches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(at_ns: u64, file: u32, response_ns: u64, end: End) -> Outcome {
        Outcome {
            at_ns,
            file,
            size_bytes: u64::from(file),
            group: 0,
            attempts: 1,
            sent_ns: at_ns,
            first_byte_ns: None,
            end_ns: at_ns + response_ns,
            body_bytes: 0,
            head_bytes: 0,
            end,
        }
    }

    fn done(at_ns: u64, file: u32, response_ns: u64) -> Outcome {
        outcome(at_ns, file, response_ns, End::Done)
    }

    #[test]
    fn requests_are_matched_by_their_place_in_the_sequence_and_not_by_their_end() {
        let baseline = [done(1, 1, 100), done(2, 2, 100), done(3, 3, 100), done(4, 4, 100)];
        let ours = [done(4, 4, 210), done(1, 1, 50), done(2, 2, 100), done(3, 3, 105)];
        let stretch = stretch(&ours, &baseline, 0, true).unwrap();
        assert_eq!((stretch.matching, stretch.pairs, stretch.unknown), (Matching::ByRequest, 4, 0));
        assert_eq!((stretch.starved, stretch.starved_by_a_tenth, stretch.worst), (0.5, 0.25, 2.1));
        assert!((stretch.median - 1.025).abs() < 1e-12 && (stretch.mean_of_starved - 1.575).abs() < 1e-12);
    }

    #[test]
    fn a_run_against_itself_starves_nobody() {
        let run = [done(1, 1, 7), done(2, 1, 9), done(3, 2, 8)];
        for open_loop in [true, false] {
            let stretch = stretch(&run, &run, 0, open_loop).unwrap();
            assert_eq!((stretch.starved, stretch.worst, stretch.median, stretch.pairs), (0.0, 1.0, 1.0, 3));
        }
    }

    #[test]
    fn what_never_ended_is_known_only_as_far_as_it_was_waited_for() {
        let ended = |ns| done(1, 1, ns);
        let open = |ns| outcome(1, 1, ns, End::Unfinished);
        let of = |ours: Outcome, theirs: Outcome| {
            let stretch = stretch(&[ours], &[theirs], 0, true).unwrap();
            (stretch.pairs, stretch.unknown, stretch.worst)
        };
        assert_eq!(of(open(300), ended(100)), (1, 0, 3.0), "longer already, a lower bound");
        assert_eq!(of(open(50), ended(100)), (0, 1, 0.0), "may yet become longer");
        assert_eq!(of(ended(50), open(100)), (1, 0, 0.5), "shorter in any case, an upper bound");
        assert_eq!(of(ended(300), open(100)), (0, 1, 0.0));
        assert_eq!(of(open(300), open(100)), (0, 1, 0.0));
    }

    #[test]
    fn other_requests_are_refused_with_the_reason() {
        let baseline = [done(1, 1, 1), done(2, 2, 1)];
        let error = stretch(&[done(1, 1, 1), done(2, 3, 1)], &baseline, 0, true).unwrap_err();
        assert_eq!(error, Unmatched::OtherRequests { counts: (2, 2), first: Some(1) });
        let error = stretch(&[done(1, 1, 1)], &baseline, 0, true).unwrap_err();
        assert!(error.to_string().contains("one run has 1 requests, the other 2"), "{error}");
        assert!(stretch(&[done(9, 2, 1)], &[done(0, 1, 1), done(9, 2, 1)], 5, true).is_ok(), "warm-up is not compared");
    }

    #[test]
    fn in_closed_loop_quantiles_of_a_file_are_compared() {
        // File 1 has two requests against four; the quantiles 1/4 and 3/4 of the four are the second and the
        // fourth.
        let baseline = [done(1, 1, 10), done(2, 1, 20), done(3, 1, 30), done(4, 1, 40)];
        let ours = [done(7, 1, 10), done(5, 1, 80), done(6, 9, 5)];
        let stretch = stretch(&ours, &baseline, 0, false).unwrap();
        assert_eq!((stretch.matching, stretch.pairs, stretch.unmatched), (Matching::ByQuantile, 2, 1));
        assert_eq!((stretch.starved, stretch.worst, stretch.median), (0.5, 2.0, 1.25));
        let strangers = [done(7, 1, 10), done(5, 8, 80), done(6, 9, 5)];
        let error = super::stretch(&strangers, &baseline, 0, false).unwrap_err();
        assert_eq!(error, Unmatched::TooFew { matched: 1, of: 3 });
    }
}
