//! How far the link is ahead of the pacer's model.
//!
//! The model works off what was sent, at the pacer's rate, so it says how long a packet has to wait. One that waits for a
//! shorter time shows the lead of the link. While the link is busy, the lead becomes longer if the link is faster than the
//! pacer, and shorter if it is slower. It stops where the link has saved up its burst, or has nothing to send.

use alloc::vec::Vec;

use super::{KEEP_NS, Moments, RoundTrips, Sample, Slope};
use crate::time::{Instant, MS};

/// The lead of the link over the pacer's model, when a packet was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lead {
    pub sent_at: Instant,
    /// The lead; or the least that it can be, if the packet did not wait at all.
    pub ns: i64,
    pub is_bound: bool,
    /// The queue in the model. A longer lead cannot be seen.
    pub model_ns: i64,
}

/// A packet that waits for less is taken not to have waited.
const WAITED_NS: i64 = MS as i64 / 10;
/// So many round trips in the time that is kept are enough to see leads.
const SHOWS_LEAST: usize = 12;
/// A fall shows in so many leads. Steady is one that leaves this part of their variance unexplained at most.
const FALLS_LEAST: usize = 5;
const FALLS_MOST: usize = 32;
const FALLS_NOISE: f64 = 0.3;

impl RoundTrips {
    /// The leads that round trips of packets show that were sent since then, the last ones first.
    pub fn leads(&self, now: Instant, since: Instant) -> impl Iterator<Item = Lead> {
        self.waits(now, since).map(|(it, waited_ns)| {
            let (is_bound, model_ns) = (waited_ns < WAITED_NS, it.own_ns as i64);
            Lead { sent_at: it.sent_at, ns: if is_bound { model_ns } else { model_ns - waited_ns }, is_bound, model_ns }
        })
    }

    /// The median of the last leads that are more than bounds: of at least and of at most so many.
    pub fn lead_ns(&self, now: Instant, since: Instant, least: usize, most: usize) -> Option<i64> {
        let known = self.leads(now, since).filter(|it| !it.is_bound).map(|it| it.ns);
        let mut leads: Vec<i64> = known.take(most).collect();
        let middle = leads.len() / 2;
        (leads.len() >= least).then(|| *leads.select_nth_unstable(middle).1)
    }

    /// If leads since then fall steadily, and by at least this much: the first of them, on the line through all.
    pub fn lead_falls(&self, now: Instant, since: Instant, least_ns: i64) -> Option<i64> {
        let known = self.leads(now, since).filter(|it| !it.is_bound).take(FALLS_MOST);
        let points: Vec<(f64, f64)> = known.map(|it| (it.sent_at.ns_since(since) as f64, it.ns as f64)).collect();
        let (last, first) = (points.first()?.0, points.last()?.0);
        let Moments { mean_x: mean_t, mean_y: mean_ns, of_x: of_t, of_both, of_y: of_ns } = Moments::new(&points);
        let falls = -of_both / of_t;
        let is_steady = of_ns - falls * falls * of_t <= FALLS_NOISE * of_ns;
        let is_fall = points.len() >= FALLS_LEAST && is_steady && falls * (last - first) >= least_ns as f64;
        is_fall.then_some((mean_ns + falls * (mean_t - first)) as i64)
    }

    /// Whether enough round trips come to see leads.
    pub fn shows_leads(&self, now: Instant) -> bool {
        self.samples.iter().rev().nth(SHOWS_LEAST - 1).is_some_and(|it| now.ns_since(it.at) <= KEEP_NS)
    }

    /// The rate of the link by packets that were sent between these times and had to wait. It was busy all the time.
    pub fn slope_of_waiting(&self, now: Instant, from: Instant, until: Instant) -> Option<Slope> {
        let counts = |(it, waited_ns): &(&Sample, i64)| it.sent_at <= until && *waited_ns >= WAITED_NS;
        self.measured(from, self.waits(now, from).filter(counts).map(|(it, _)| it), true)
    }

    /// Round trips of packets that were sent since then, the last ones first, and how long the packets waited.
    fn waits(&self, now: Instant, since: Instant) -> impl Iterator<Item = (&Sample, i64)> {
        let level_ns = self.level_ns(now) as i64;
        let recent =
            self.samples.iter().rev().take_while(move |it| it.at >= since).filter(move |it| it.sent_at >= since);
        recent.filter_map(move |it| Some((it, it.above_ns? as i64 - level_ns)))
    }
}
