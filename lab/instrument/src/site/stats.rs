//! Statistics of requests: means, ratios between classes, the time until ratios settle, and how many ran at
//! once.

use super::outcome::Outcome;

/// A part of a run, in seconds from its start: from the first, before the second.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(super) struct Span {
    pub(super) from_s: f64,
    pub(super) until_s: f64,
}

impl Span {
    pub(super) fn new(from_s: u32, until_s: u32) -> Self {
        Self { from_s: f64::from(from_s), until_s: f64::from(until_s) }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.until_s - self.from_s
    }

    /// The requests that ended in it.
    pub(super) fn of(self, outcomes: &[Outcome]) -> impl Iterator<Item = &Outcome> + Clone {
        outcomes.iter().filter(move |outcome| {
            let ended_s = outcome.ended_s();
            self.from_s <= ended_s && ended_s < self.until_s
        })
    }
}

/// The mean of the values; `None` without any.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

/// The usual system time of each page. It keeps a class from looking slower only because its users request
/// slow pages.
pub(super) fn usual_s<'a>(outcomes: impl Iterator<Item = &'a Outcome> + Clone, pages: usize) -> Vec<f64> {
    let of = |page| mean(outcomes.clone().filter(|o| o.page == page).filter_map(Outcome::system_s));
    (0..pages).map(|page| of(page).filter(|&usual| usual > 0.0).unwrap_or(1.0)).collect()
}

/// The means of the classes over that of the first; each request's time is divided by the usual one of its
/// page. `None` where one of the two classes has no requests.
pub(super) fn ratios<'a>(
    outcomes: impl Iterator<Item = &'a Outcome> + Clone,
    classes: usize,
    usual_s: &[f64],
) -> Vec<Option<f64>> {
    let of = |class| {
        let mine = outcomes.clone().filter(|outcome| outcome.class == class);
        mean(mine.filter_map(|outcome| Some(outcome.system_s()? / usual_s[outcome.page])))
    };
    let first = of(0).filter(|&first| first > 0.0);
    (0..classes).map(|class| Some(of(class)? / first?)).collect()
}

/// Parameters of the settling time.
#[derive(Clone, Debug)]
pub(super) struct Settle {
    /// Start, in seconds.
    pub(super) since_s: u32,
    /// End, in seconds.
    pub(super) until_s: u32,
    pub(super) window_s: u32,
    /// Largest relative error of a ratio.
    pub(super) tolerance: f64,
}

/// Whether and when ratios have settled.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(super) struct Settled {
    /// Seconds from `since` to the start of the first window from which on all hold. `None` if the last one
    /// does not hold.
    pub(super) after_s: Option<u32>,
    /// Number of windows; one begins in each second.
    pub(super) windows: usize,
    /// Number of windows that hold.
    pub(super) hold: usize,
}

impl Settle {
    /// A window holds if requests of every class ended in it, and each class's ratio to the first is within
    /// the tolerance.
    pub(super) fn measure(&self, outcomes: &[Outcome], targets: &[f64], usual_s: &[f64]) -> Settled {
        // By second and class: number of requests, and the sum of their times.
        let seconds = self.until_s.saturating_sub(self.since_s) as usize;
        let mut sums = vec![vec![(0_u32, 0.0); targets.len()]; seconds];
        for outcome in Span::new(self.since_s, self.until_s).of(outcomes) {
            let (Some(system_s), Some(second)) =
                (outcome.system_s(), sums.get_mut((outcome.ended_s() - f64::from(self.since_s)) as usize))
            else {
                continue;
            };
            let (count, sum) = &mut second[outcome.class];
            *count += 1;
            *sum += system_s / usual_s[outcome.page];
        }
        let holds = |window: &[Vec<(u32, f64)>]| {
            let of = |class: usize| {
                let (count, sum) =
                    window.iter().map(|second| second[class]).fold((0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
                (count > 0).then(|| sum / f64::from(count))
            };
            let Some(first) = of(0).filter(|&first| first > 0.0) else { return false };
            targets.iter().enumerate().all(|(class, target)| {
                let due = target / targets[0];
                of(class).is_some_and(|mean| (mean / first / due - 1.0).abs() <= self.tolerance)
            })
        };
        let held: Vec<bool> = sums.windows(self.window_s.max(1) as usize).map(holds).collect();
        let after_s = match held.iter().rposition(|held| !held) {
            None if held.is_empty() => None,
            None => Some(0),
            Some(last) if last + 1 == held.len() => None,
            Some(last) => Some(last as u32 + 1),
        };
        Settled { after_s, windows: held.len(), hold: held.iter().filter(|held| **held).count() }
    }
}

/// The mean number of pages that ran at once, in buckets of `bucket_s` up to `until_s`. `None` if no page
/// reports its time.
pub(super) fn running<'a>(
    outcomes: impl Iterator<Item = &'a Outcome>,
    until_s: u32,
    bucket_s: u32,
) -> Option<Vec<f64>> {
    let width = f64::from(bucket_s.max(1));
    let mut busy_s = vec![0.0; until_s.div_ceil(bucket_s.max(1)) as usize];
    let mut known = false;
    for (from, until) in outcomes.filter_map(Outcome::ran_s) {
        known = true;
        let until = until.min(f64::from(until_s));
        for (bucket, busy_s) in busy_s.iter_mut().enumerate().skip((from / width) as usize) {
            let begins = bucket as f64 * width;
            if begins >= until {
                break;
            }
            *busy_s += (until.min(begins + width) - from.max(begins)).max(0.0);
        }
    }
    let lasts = |bucket: usize| (f64::from(until_s) - bucket as f64 * width).min(width);
    known.then(|| busy_s.iter().enumerate().map(|(bucket, busy_s)| busy_s / lasts(bucket)).collect())
}

/// The mean number that ran at once in a span, by its whole seconds.
pub(super) fn running_in<'a>(outcomes: impl Iterator<Item = &'a Outcome>, span: Span) -> Option<f64> {
    let each = running(outcomes, span.until_s as u32, 1)?;
    mean(each.into_iter().skip(span.from_s as usize))
}

/// Answers per second in a span.
pub(super) fn throughput<'a>(outcomes: impl Iterator<Item = &'a Outcome>, span: Span) -> f64 {
    outcomes.filter(|outcome| outcome.is_answered()).count() as f64 / span.seconds()
}

/// Seconds from `since_s` to the start of the first window of `window_s` seconds with at least `least`
/// answers per second.
pub(super) fn back_after_s(
    outcomes: &[Outcome],
    page: usize,
    least: f64,
    since_s: u32,
    until_s: u32,
    window_s: u32,
) -> Option<u32> {
    let last = until_s.checked_sub(window_s)?;
    (since_s..=last)
        .find(|&from_s| {
            let span = Span::new(from_s, from_s + window_s);
            throughput(span.of(outcomes).filter(|outcome| outcome.page == page), span) >= least
        })
        .map(|from_s| from_s - since_s)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::site::outcome::End;

    /// An answered request of a class for the first page, by its end.
    pub(in super::super) fn answered(class: usize, ended_s: f64, took_s: f64) -> Outcome {
        Outcome {
            user: class,
            class,
            page: 0,
            at_s: ended_s - took_s,
            took_s,
            end: End::Answered(200),
            page_s: None,
            late_s: None,
        }
    }

    const USUAL: [f64; 1] = [1.0];

    #[test]
    fn a_ratio_is_of_means_and_what_is_usual_for_a_page_slows_down_nobody() {
        let mut outcomes = vec![answered(0, 5.0, 1.0), answered(0, 6.0, 3.0), answered(1, 7.0, 4.0)];
        assert_eq!(ratios(outcomes.iter(), 3, &USUAL), [Some(1.0), Some(2.0), None]);
        // The second class requests another page, which takes ten times as long for every class.
        outcomes
            .extend([Outcome { page: 1, ..answered(1, 50.0, 40.0) }, Outcome { page: 1, ..answered(0, 30.0, 20.0) }]);
        assert_eq!(ratios(outcomes.iter(), 2, &[1.0, 10.0]), [Some(1.0), Some(2.0)]);
        assert_eq!(usual_s(outcomes.iter(), 3), [8.0 / 3.0, 30.0, 1.0]);
    }

    #[test]
    fn who_lost_patience_counts_with_the_wait_and_who_was_refused_or_cut_off_does_not() {
        let of = |end| Outcome { end, ..answered(0, 5.0, 3.0) };
        let all = [of(End::TimedOut), of(End::Refused(503)), of(End::Unfinished), of(End::Failed("reset".to_owned()))];
        assert_eq!(all.iter().filter_map(Outcome::system_s).collect::<Vec<_>>(), [3.0]);
        let counted = crate::site::outcome::counted(all.iter());
        assert_eq!(counted.keys().collect::<Vec<_>>(), ["503", "failed", "timed out", "unfinished"]);
    }

    #[test]
    fn a_span_has_what_ends_in_it() {
        let outcomes = [answered(0, 9.9, 5.0), answered(0, 10.0, 1.0), answered(0, 19.9, 15.0), answered(0, 20.0, 1.0)];
        assert_eq!(throughput(Span::new(10, 20).of(&outcomes), Span::new(10, 20)), 0.2);
    }

    /// In each second one request of each of two classes; the second class takes longer by the given factors.
    fn over(factors: &[f64]) -> Vec<Outcome> {
        let of = |(second, &factor): (usize, &f64)| {
            let ended_s = 100.5 + second as f64;
            [answered(0, ended_s, 1.0), answered(1, ended_s, factor)]
        };
        factors.iter().enumerate().flat_map(of).collect()
    }

    fn settled(factors: &[f64]) -> Settled {
        let until_s = 100 + factors.len() as u32;
        let settle = Settle { since_s: 100, until_s, window_s: 2, tolerance: 0.25 };
        settle.measure(&over(factors), &[1.0, 2.0], &USUAL)
    }

    #[test]
    fn ratios_have_settled_when_all_windows_from_then_on_hold() {
        // Means of two: 3.5, 2.5, 2, 2.
        assert_eq!(settled(&[5.0, 2.0, 3.0, 1.0, 3.0]), Settled { after_s: Some(1), windows: 4, hold: 3 });
        assert_eq!(settled(&[2.0, 2.0, 2.5]).after_s, Some(0));
        // A window in between that does not hold delays settling; one at the end prevents it.
        assert_eq!(settled(&[2.0, 2.0, 9.0, 2.0, 2.0]), Settled { after_s: Some(3), windows: 4, hold: 2 });
        assert_eq!(settled(&[2.0, 2.0, 9.0]).after_s, None);
        // Too low is an error as well as too high; a run shorter than a window has no result.
        assert_eq!(settled(&[1.0, 1.0, 1.0, 2.0, 2.0]).after_s, Some(2));
        assert_eq!(settled(&[2.0]), Settled { after_s: None, windows: 0, hold: 0 });
    }

    #[test]
    fn a_window_without_a_class_does_not_hold() {
        let mut outcomes = over(&[2.0; 6]);
        outcomes.retain(|outcome| outcome.class == 1 || !(101.0..103.0).contains(&outcome.ended_s()));
        let settle = Settle { since_s: 100, until_s: 106, window_s: 2, tolerance: 0.25 };
        assert_eq!(settle.measure(&outcomes, &[1.0, 2.0], &USUAL), Settled { after_s: Some(2), windows: 5, hold: 4 });
    }

    #[test]
    fn the_number_running_is_the_time_that_pages_took_within_each_bucket() {
        let page = |ended_s, took_s, page_s| Outcome { page_s: Some(page_s), ..answered(0, ended_s, took_s) };
        // From 1 to 3, from 2 to 2.5, and one without a reported time.
        let mut outcomes = vec![page(3.0, 3.0, 2.0), page(2.5, 1.0, 0.5), answered(0, 4.0, 4.0)];
        assert_eq!(running(outcomes.iter(), 5, 1), Some(vec![0.0, 1.0, 1.5, 0.0, 0.0]));
        assert_eq!(running(outcomes.iter(), 5, 2), Some(vec![0.5, 0.75, 0.0]));
        assert_eq!(running_in(outcomes.iter(), Span::new(1, 3)), Some(1.25));
        assert_eq!(running(outcomes[2..].iter(), 5, 1), None);
        // Cut off at 4, answered at 6: it ran from 3 on.
        let late = Outcome { end: End::Unfinished, late_s: Some(6.0), ..page(4.0, 4.0, 3.0) };
        outcomes.push(late);
        assert_eq!(running(outcomes.iter(), 4, 1), Some(vec![0.0, 1.0, 1.5, 1.0]));
    }

    #[test]
    fn throughput_is_back_at_the_first_window_that_has_enough() {
        let outcomes: Vec<Outcome> = [0, 1, 3, 5, 5]
            .iter()
            .enumerate()
            .flat_map(|(second, &count)| (0..count).map(move |_| answered(0, 10.5 + second as f64, 0.1)))
            .collect();
        assert_eq!(back_after_s(&outcomes, 0, 4.0, 10, 15, 2), Some(2));
        assert_eq!(back_after_s(&outcomes, 0, 5.5, 10, 15, 2), None);
        assert_eq!(back_after_s(&outcomes, 1, 1.0, 10, 15, 2), None);
    }
}
