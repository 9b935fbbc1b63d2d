//! Measurements by round trips: how much queue they met at the bottleneck beyond the pacer's own, and how many bytes
//! were delivered by when.
//!
//! A round trip is compared with the shortest one of its client, or of the client's neighbours. The pacer's model knows how
//! many bytes it has at the bottleneck at any time; that part of the round trip is subtracted. Round trips that met an idle
//! uplink show what is left then: jitter, and what the shortest one had by luck. That is subtracted as well.

mod burst;
mod elsewhere;
mod fit;
mod full;
mod guess;
mod leads;
mod link_queue;
mod means;
mod noise;
mod others;
mod own;
mod paths;
mod sample;
mod silence;
mod standing;
mod strangers;
#[cfg(test)]
mod tests;
mod trend;
mod voices;

use alloc::{collections::VecDeque, vec::Vec};
use core::cell::Cell;

pub use self::means::{are_prompt, round_trip_of_means};
use self::{elsewhere::Elsewhere, noise::Noise, paths::Paths, sample::Sample, strangers::Strangers, voices::Voices};
pub(crate) use self::{
    elsewhere::Whose,
    fit::{Look, Looks},
};
use crate::{
    time::{Instant, MS},
    units::Rate,
};

/// How a round trip was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RttKind {
    /// By the handshake.
    Handshake,
    /// By acknowledgements of data, which clients may delay: less exact than a handshake.
    Data,
    /// By acknowledgements that came with the client's next request: the client's pause before it may be a part of them.
    LateData,
}

/// A round trip that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// A number of the client. Those of its neighbours differ in the lowest 16 bits.
    pub path: u64,
    /// In nanoseconds.
    pub ns: u64,
    /// How it was measured.
    pub kind: RttKind,
    /// How long ago it ended, in nanoseconds.
    pub age_ns: u64,
}

/// The state of the pacer.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Total of wire bytes sent.
    pub sent_bytes: u64,
    /// When it will have sent so many of them that more may be given to it. Bytes sent earlier wait there for at most
    /// the time that the pacer runs ahead.
    pub room_at: Instant,
    /// Whether work waits for the link.
    pub waits: bool,
    /// Payload of one grant.
    pub chunk_bytes: u64,
}

/// The history of the uplink over the last seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundTrips {
    points: VecDeque<Point>,
    /// Some of the points before them, for round trips that took long.
    early_points: VecDeque<Point>,
    samples: VecDeque<Sample>,
    /// Excess of round trips that met an idle uplink, and when they came.
    idle: VecDeque<(Instant, i64)>,
    noise: Noise,
    voices: Voices,
    /// The rate of the link is known roughly at best. So much is sent at times that queues come and go quickly.
    is_rough: bool,
    paths: Paths,
    strangers: Strangers,
    /// When the last round trip was measured whose packet was sent within the history, and how many bytes had been sent then.
    last: Option<(Instant, u64)>,
    /// When the last ones of each kind but the last were measured, the newest first.
    latest: [[Instant; ENOUGH]; 2],
    /// Payload of one grant.
    chunk_bytes: u64,
    /// The level of an idle uplink, and when it was worked out: a turn of the pacer asks several times. `None` since the last
    /// round trip.
    level: Cell<Option<(Instant, u64)>>,
    elsewhere: Option<Elsewhere>,
}

/// The pacer's state at some time.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: Instant,
    sent_bytes: u64,
    room_at: Instant,
    waits: bool,
    busy_since: Instant,
}

/// A measured rate, in bits per second, and its standard error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slope {
    pub bits: f64,
    pub error: f64,
}

/// The carried rate counts as the sent rate if it differs by at most this part.
const CARRIED_ALL: f64 = 0.07;
/// Bytes come in chunks, so it takes some of them to show a rate.
const CHUNKS_LEAST: f64 = 8.0;
/// A gap in the samples of this time is none in the traffic, or of so many chunks' time.
const HOLE_MOST_S: f64 = 0.05;
const HOLE_MOST_CHUNKS: f64 = 4.0;
/// Points closer than this are merged.
const POINT_NS: u64 = MS / 4;
/// The uplink counts as idle so long after its last byte.
const IDLE_NS: u64 = 3 * MS;
/// A queue takes a while to form: round trips of the first moments of a busy period say that there is none.
const BUSY_NS: u64 = 25 * MS;
/// Round trips are ignored while so many of a better kind came within this time, and there is less jitter than this. Late
/// ones are ignored while so many came within the time of the history, and for that time after the start. While the rate is
/// known roughly, jitter does not matter to late ones.
const ENOUGH: usize = 5;
const ENOUGH_NS: u64 = 250 * MS;
const JITTER_NS: u64 = MS;
const KEEP_NS: u64 = 2_000 * MS;
const KEEP_MOST: usize = 4096;
/// Of the time before, points so far apart are kept. Where a link becomes far slower, round trips take seconds.
const EARLY_KEEP_NS: u64 = 10_000 * MS;
const EARLY_POINT_NS: u64 = 20 * MS;
/// The level of an idle uplink is the median of so many round trips, none older than this.
const IDLE_MOST: usize = 31;
const IDLE_LEAST: usize = 3;
const IDLE_KEEP_NS: u64 = 60_000 * MS;
/// A queue is one of a full link if it is so many times as long as jitter.
const FULL_LEVELS: u64 = 2;
/// The present queue is the median of at most so many round trips, of the shorter time if there are enough in it.
const PRESENT_MOST: usize = 12;
const PRESENT_LEAST: usize = 5;
const PRESENT_NS: u64 = 20 * MS;
const PRESENT_LONGEST_NS: u64 = 400 * MS;
/// It is longer where round trips are few: so many times the time from one to the next.
const PRESENT_GAPS: u64 = 4;
/// Where clients are far, the time and the number are larger: so many round trips, and so many samples.
const FAR_ROUND_TRIPS: u64 = 6;
const PRESENT_MOST_FAR: usize = 64;
/// So short a round trip meets no queue that matters, whatever its path is.
const SHORT_NS: u64 = 150 * MS;

impl RoundTrips {
    /// Sets whether the rate of the link is known roughly at best.
    pub fn set_rough(&mut self, is_rough: bool) {
        self.is_rough = is_rough;
    }

    /// Records the pacer's state.
    pub fn handle_load(&mut self, now: Instant, load: Load) {
        self.chunk_bytes = load.chunk_bytes;
        let busy_since = match self.points.back() {
            Some(last) if last.is_busy(now, MS) => last.busy_since,
            _ => now,
        };
        let mut point =
            Point { at: now, sent_bytes: load.sent_bytes, room_at: load.room_at, waits: load.waits, busy_since };
        if let Some(last) = self.points.back_mut().filter(|last| now.ns_since(last.at) < POINT_NS) {
            point.at = last.at;
            *last = point;
            return;
        }
        self.points.push_back(point);
        while self.points.len() > 2 * KEEP_MOST
            || (self.points.len() > 2 && self.points.get(1).is_some_and(|it| now.ns_since(it.at) > KEEP_NS))
        {
            let Some(point) = self.points.pop_front() else { break };
            if self.early_points.back().is_none_or(|last| point.at.ns_since(last.at) >= EARLY_POINT_NS) {
                self.early_points.push_back(point);
            }
        }
        while self.early_points.front().is_some_and(|it| now.ns_since(it.at) > EARLY_KEEP_NS) {
            self.early_points.pop_front();
        }
    }

    /// Takes a round trip; [`RoundTrips::handle_load`] comes first. With a longer excess than
    /// `idle_most_ns`, and than usual, it did not meet an idle uplink, whatever the pacer's model says.
    pub fn handle_round_trip(&mut self, now: Instant, it: RoundTrip, idle_most_ns: u64) {
        let RoundTrip { path, ns: rtt_ns, kind, age_ns } = it;
        if let Some(latest) = self.latest.get_mut(kind as usize) {
            latest.rotate_right(1);
            latest[0] = now;
        }
        let sent_at = Instant::from_ns(now.as_ns().saturating_sub(age_ns + rtt_ns));
        let oldest = self.early_points.front().or(self.points.front());
        if oldest.is_some_and(|oldest| oldest.at <= sent_at) {
            self.last = self.points.back().map(|newest| (now, newest.sent_bytes));
        }
        let within_ns = if kind == RttKind::LateData { KEEP_NS } else { ENOUGH_NS };
        let are_enough = |latest: &[Instant; ENOUGH]| now.ns_since(latest[ENOUGH - 1]) < within_ns;
        let is_left_out = self.latest[..kind as usize].iter().any(are_enough);
        // While the rate is known roughly, queues look like jitter.
        let counts_with_jitter = kind == RttKind::Data || !self.is_rough;
        if is_left_out && !(counts_with_jitter && self.has_jitter(now)) {
            return;
        }
        let guess_ns = if self.paths.has_seen(path) {
            None
        } else {
            let of_strangers_ns = self.strangers.handle(now, rtt_ns);
            let recent = self.samples.iter().rev().take_while(|it| now.ns_since(it.at) <= PRESENT_LONGEST_NS);
            guess::excess_ns(recent, sent_at, rtt_ns, of_strangers_ns)
        };
        let above = self.paths.above_shortest(now, path, rtt_ns, guess_ns);
        let (above_ns, is_guessed) = (above.map(|it| it.ns), above.is_some_and(|it| it.is_guessed));
        // Most were sent a moment ago, and the points of two seconds fill a processor's cache.
        let points = self.points.iter().rev().chain(self.early_points.iter().rev());
        let Some(before) = points.copied().find(|it| it.at <= sent_at) else { return };
        let delivered_bytes = before.sent_bytes as f64;
        let is_idle = !before.is_busy(sent_at, IDLE_NS) && idle_most_ns > 0;
        let most_ns = if is_idle { idle_most_ns.max(self.level_ns(now) * 3 / 2) } else { 0 };
        if let (true, Some(above_ns)) = (is_idle, above_ns.filter(|above_ns| *above_ns <= most_ns)) {
            self.idle.push_back((now, above_ns as i64));
            if self.idle.len() > IDLE_MOST {
                self.idle.pop_front();
            }
        }
        let busy_ns = before.is_busy(sent_at, MS).then(|| sent_at.ns_since(before.busy_since));
        let own_ns = before.room_at.ns_since(sent_at);
        // A client's pause is no jitter.
        if let Some(above_ns) = above_ns.filter(|_| kind != RttKind::LateData) {
            self.noise.handle(now, above_ns as i64 - own_ns as i64);
        }
        let new = Sample { path, at: now, sent_at, rtt_ns, above_ns, is_guessed, own_ns, delivered_bytes, busy_ns };
        if self.voices.doubts(&new) {
            let level_ns = self.level_ns(now);
            self.voices.handle_doubted(new, level_ns, &mut self.samples);
        } else {
            self.samples.push_back(new);
        }
        self.level.take();
        while self.samples.len() > KEEP_MOST || self.samples.front().is_some_and(|it| now.ns_since(it.at) > KEEP_NS) {
            self.samples.pop_front();
        }
    }

    /// The queue at the bottleneck beyond the pacer's own, in nanoseconds: of recent round trips the median, or a lower
    /// part where clients are far. Only packets sent from `since` on count, and only those of busy moments unless `all`.
    pub fn queue_ns(&self, now: Instant, since: Instant, all: bool) -> Option<i64> {
        let level_ns = self.level_ns(now) as i64;
        let mut queues = Few::<PRESENT_MOST_FAR>::default();
        let far_ns = FAR_ROUND_TRIPS * self.rtt_ns();
        let is_far = far_ns > PRESENT_NS;
        let longest_ns = self.longest_ns();
        let (present_ns, most) = if is_far { (far_ns, PRESENT_MOST_FAR) } else { (PRESENT_NS, PRESENT_MOST) };
        for it in self.samples.iter().rev().take_while(|it| it.sent_at >= since || it.at >= since) {
            let age_ns = now.ns_since(it.at);
            let enough = age_ns > present_ns && queues.len >= PRESENT_LEAST;
            if enough || age_ns > longest_ns || queues.len >= most {
                break;
            }
            if it.sent_at < since || (!all && it.busy_ns.is_none_or(|busy_ns| busy_ns < BUSY_NS)) {
                continue;
            }
            if let Some(above_ns) = it.above_ns {
                queues.push(above_ns as i64 - it.own_ns as i64 - level_ns);
            }
        }
        // Windows of distant connections let bytes go in bursts. They make short queues, which do not stand.
        let at = if is_far { queues.len / 5 } else { queues.len / 2 };
        (queues.len >= 3).then(|| queues.nth(at))
    }

    /// The median excess of round trips that were measured in the last moments, but not before `since`, with the pacer's
    /// own queue in it.
    pub fn excess_ns(&self, now: Instant, since: Instant) -> Option<u64> {
        let level_ns = self.level_ns(now);
        let mut queues: Vec<u64> = (self.samples.iter().rev())
            .take_while(|it| now.ns_since(it.at) <= PRESENT_NS && it.at >= since)
            .filter_map(|it| Some(it.above_ns?.saturating_sub(level_ns)))
            .collect();
        let middle = queues.len() / 2;
        (!queues.is_empty()).then(|| *queues.select_nth_unstable(middle).1)
    }

    /// The excess of the last round trip, with the pacer's own queue in it.
    pub fn last_excess_ns(&self) -> Option<u64> {
        self.samples.back()?.above_ns
    }

    /// The queue that the last packet met that was sent since then, with or without the pacer's own.
    pub fn last_queue_since(&self, now: Instant, since: Instant, without_own: bool) -> Option<u64> {
        let it = self.samples.iter().rev().take_while(|it| it.at >= since).find(|it| it.sent_at >= since)?;
        let own_ns = if without_own { it.own_ns } else { 0 };
        Some(it.above_ns?.saturating_sub(own_ns + self.level_ns(now)))
    }

    /// Whether a round trip was measured since then, on a path that is known, or a short one on any.
    pub fn has_since(&self, since: Instant) -> bool {
        let tells = |it: &Sample| it.above_ns.is_some() || it.rtt_ns < SHORT_NS;
        let counted = self.samples.iter().rev().take_while(|it| it.at >= since);
        counted.chain(self.voices.alone().filter(|it| it.at >= since)).any(tells)
    }

    /// The queue that packets sent between these times met, beyond the pacer's own: the first quartile of at least so
    /// many. Paths with much jitter have long round trips, and seldom short ones.
    pub fn queue_between(&self, now: Instant, from: Instant, until: Instant, least: usize) -> Option<i64> {
        let level_ns = self.level_ns(now) as i64;
        let mut queues: Vec<i64> = (self.samples.iter().rev())
            .take_while(|it| it.at >= from)
            .filter(|it| from <= it.sent_at && it.sent_at <= until)
            .filter_map(|it| Some(it.above_ns? as i64 - it.own_ns as i64 - level_ns))
            .collect();
        let quarter = queues.len() / 4;
        (queues.len() >= least).then(|| *queues.select_nth_unstable(quarter).1)
    }

    /// The time in which enough round trips are measured.
    pub fn samples_ns(&self, now: Instant) -> u64 {
        let oldest_ns = self.samples.iter().rev().nth(PRESENT_LEAST - 1).map_or(u64::MAX, |it| now.ns_since(it.at));
        oldest_ns.clamp(PRESENT_NS, self.longest_ns())
    }

    /// The longest time over which the present queue is taken.
    fn longest_ns(&self) -> u64 {
        let gaps = self.samples.len().saturating_sub(1) as u64;
        let (Some(first), Some(last), 2..) = (self.samples.front(), self.samples.back(), gaps) else {
            return PRESENT_LONGEST_NS;
        };
        PRESENT_LONGEST_NS.max(PRESENT_GAPS * last.at.ns_since(first.at) / gaps)
    }

    /// Time that a grant takes on a link of this rate.
    pub fn chunk_ns(&self, rate: Rate) -> u64 {
        rate.ns_for(self.chunk_bytes)
    }

    /// How long the uplink has been busy; 0 if it is idle.
    pub fn busy_ns(&self, now: Instant) -> u64 {
        self.points.back().filter(|last| last.is_busy(now, MS)).map_or(0, |last| now.ns_since(last.busy_since))
    }

    /// How far round trips that met an idle uplink are above the shortest: by jitter, and by what that one had by luck.
    pub fn level_ns(&self, now: Instant) -> u64 {
        if let Some((_, level_ns)) = self.level.get().filter(|(at, _)| *at == now) {
            return level_ns;
        }
        let level_ns = self.work_out_level(now).cast_unsigned();
        self.level.set(Some((now, level_ns)));
        level_ns
    }

    /// Whether round trips vary so much that short queues hardly show.
    pub fn has_jitter(&self, now: Instant) -> bool {
        self.level_ns(now) >= JITTER_NS
    }

    /// The length at which a queue shows beside jitter. Where paths differ, the median of round trips is far from the quiet
    /// ones.
    pub fn shows_ns(&self, now: Instant) -> u64 {
        let level_ns = self.level_ns(now);
        let recent = self.samples.iter().rev().filter_map(|it| Some(it.above_ns? as i64 - it.own_ns as i64));
        let mut waited = Few::<PRESENT_MOST_FAR>::from_iter(recent);
        if level_ns < JITTER_NS || waited.len < PRESENT_MOST {
            return level_ns / 2;
        }
        let apart_ns = waited.nth(waited.len / 2) - waited.nth(waited.len / 4);
        (level_ns / 2).max(apart_ns.cast_unsigned())
    }

    /// The time over which the present queue is taken.
    pub fn window_ns(&self, now: Instant) -> u64 {
        let oldest_ns = self.samples.iter().rev().nth(PRESENT_LEAST - 1).map_or(u64::MAX, |it| now.ns_since(it.at));
        let least_ns = PRESENT_NS.max(FAR_ROUND_TRIPS * self.rtt_ns()).min(self.longest_ns());
        oldest_ns.clamp(least_ns, self.longest_ns())
    }

    /// A typical round trip without a queue.
    pub fn rtt_ns(&self) -> u64 {
        self.samples.iter().rev().take(8).map(|it| it.rtt_ns - it.above_ns.unwrap_or(0)).max().unwrap_or(0)
    }

    /// The slope of the curve of delivered bytes since then, in bits per second. Least squares over the samples with
    /// at least this queue.
    pub fn slope(&self, since: Instant, queue_least_ns: u64) -> Option<Slope> {
        let counts = |it: &&Sample| it.at >= since && it.above_ns.is_none_or(|queue_ns| queue_ns >= queue_least_ns);
        self.measured(since, self.samples.iter().filter(counts), false)
    }

    /// The same over packets sent between these times, and how sure it is.
    pub fn slope_between(&self, from: Instant, until: Instant) -> Option<Slope> {
        self.measured(from, self.samples.iter().filter(|it| from <= it.sent_at && it.sent_at <= until), false)
    }

    /// `is_busy`: whether it is known that the link was busy all the time.
    fn measured<'a>(&self, since: Instant, samples: impl Iterator<Item = &'a Sample>, is_busy: bool) -> Option<Slope> {
        // A packet passed the bottleneck when its queue was over, however far its client is.
        let mut points: Vec<(f64, f64)> = samples
            .map(|it| {
                let passed_ns = it.sent_at.as_ns() + it.above_ns.unwrap_or(0);
                ((passed_ns as f64 - since.as_ns() as f64) / 1e9, it.delivered_bytes * 8.0)
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (first, last) = (*points.first()?, *points.last()?);
        // A gap in the samples may have been a gap in the traffic, and then it was another queue.
        let hole = points.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(0.0, f64::max);
        let chunk_s = 8.0 * self.chunk_bytes as f64 * (last.0 - first.0) / (last.1 - first.1);
        let hole_most = f64::max(HOLE_MOST_S, HOLE_MOST_CHUNKS * chunk_s).max((last.0 - first.0) / 3.0);
        let is_short = last.0 - first.0 < 0.02 || last.1 - first.1 < CHUNKS_LEAST * 8.0 * self.chunk_bytes as f64;
        if points.len() < 5 || is_short || !is_busy && hole > hole_most {
            return None;
        }
        let Moments { of_x: of_time, of_both, of_y: of_bytes, .. } = Moments::new(&points);
        // Travel times vary, and bytes come in chunks: so neither of the two is exact, and the slope is the mean of both ways.
        let bits = libm::sqrt(of_bytes / of_time);
        let left = (of_time * of_bytes / (of_both * of_both) - 1.0).max(0.0);
        let error = bits * libm::sqrt(left / (points.len() as f64 - 2.0));
        (bits.is_finite() && error.is_finite() && of_both > 0.0).then_some(Slope { bits, error })
    }

    /// The rate that the link has carried over the time of the history, in bits per second. It is at least as fast, but for a
    /// burst that it let pass. `None` with a short history.
    pub fn carried_bits(&self, now: Instant) -> Option<f64> {
        let first = self.points.front()?;
        let last = self.samples.back()?;
        let passed_at = last.sent_at.add_ns(last.above_ns?);
        let bits = 8e9 * (last.delivered_bytes - first.sent_bytes as f64) / passed_at.ns_since(first.at) as f64;
        (bits.is_finite() && bits > 0.0 && now.ns_since(first.at) > KEEP_NS / 4).then_some(bits)
    }

    /// Whether the link has carried all that was sent since then, and no more: so what shows is no queue of it.
    pub fn carried_all(&self, now: Instant, since: Instant, sent_bytes: u64) -> bool {
        let sent_bits = sent_bytes as f64 * 8.0 / (now.ns_since(since) as f64 / 1e9);
        let slope = self.slope_between(since, now);
        slope.is_some_and(|slope| (slope.bits / sent_bits - 1.0).abs() < CARRIED_ALL)
    }

    /// See [`RoundTrips::level_ns`].
    fn work_out_level(&self, now: Instant) -> i64 {
        let recent = self.idle.iter().filter(|(at, _)| now.ns_since(*at) <= IDLE_KEEP_NS);
        let mut excess = Few::<IDLE_MOST>::from_iter(recent.map(|&(_, excess_ns)| excess_ns));
        let level_ns = if excess.len < IDLE_LEAST { 0 } else { excess.nth(excess.len / 2) };
        let noise_ns = self.noise.level_ns();
        if level_ns.max(noise_ns) < MS as i64 {
            return level_ns;
        }
        let lately = || self.samples.iter().rev().take(IDLE_MOST);
        let mut excess = Few::<IDLE_MOST>::from_iter(lately().filter_map(|it| it.above_ns).map(|ns| ns as i64));
        if excess.len < IDLE_LEAST {
            return level_ns;
        }
        let own_ns = lately().map(|it| it.own_ns).max().unwrap_or(0) as i64;
        // The pacer's own queue comes and goes, which looks like jitter shorter than it.
        if noise_ns > level_ns * 5 / 4 && noise_ns > own_ns {
            // The uplink was never idle, or long round trips were not believed to have met an idle one. With jitter alone few
            // are much shorter than the level. Bursts of the server make queues that come and go.
            return level_ns.max(noise_ns.min(excess.nth(excess.len / 4) * 3 / 2));
        }
        // Those that met a busy uplink are longer; if they are not, the level is out of date.
        level_ns.min(excess.nth(excess.len / 2))
    }
}

/// The means of points, and the sums of the squares and products of the distances from them.
struct Moments {
    mean_x: f64,
    mean_y: f64,
    of_x: f64,
    of_both: f64,
    of_y: f64,
}

impl Moments {
    fn new(points: &[(f64, f64)]) -> Self {
        let n = points.len() as f64;
        let (mean_x, mean_y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / n, y + point.1 / n));
        let (mut of_x, mut of_both, mut of_y) = (0.0, 0.0, 0.0);
        for (x, y) in points {
            of_x += (x - mean_x) * (x - mean_x);
            of_both += (x - mean_x) * (y - mean_y);
            of_y += (y - mean_y) * (y - mean_y);
        }
        Self { mean_x, mean_y, of_x, of_both, of_y }
    }
}

/// At most `N` numbers, without memory from the heap.
struct Few<const N: usize> {
    numbers: [i64; N],
    len: usize,
}

impl<const N: usize> Default for Few<N> {
    fn default() -> Self {
        Self { numbers: [0; N], len: 0 }
    }
}

impl<const N: usize> FromIterator<i64> for Few<N> {
    /// Takes the first `N`.
    fn from_iter<I: IntoIterator<Item = i64>>(numbers: I) -> Self {
        let mut few = Self::default();
        numbers.into_iter().take(N).for_each(|number| few.push(number));
        few
    }
}

impl<const N: usize> Few<N> {
    fn push(&mut self, number: i64) {
        self.numbers[self.len] = number;
        self.len += 1;
    }

    /// The number at this place from the smallest on.
    fn nth(&mut self, at: usize) -> i64 {
        *self.numbers[..self.len].select_nth_unstable(at).1
    }
}

impl Point {
    /// Whether the uplink had bytes to send at that later time, or until shortly before.
    fn is_busy(&self, at: Instant, pause_ns: u64) -> bool {
        self.waits || at.ns_since(self.room_at) <= pause_ns
    }
}
