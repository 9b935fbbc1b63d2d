//! The rate of a link, by the queue that packets met.
//!
//! A link of a given rate makes a certain queue of what was sent: it grows while more is sent than passes, and shrinks while
//! less is sent. So of several rates, that of the link is the one whose queue rises and falls with what packets met. How long
//! the two are does not matter. Sockets hold back a part of what they are given while their windows are full, so packets meet
//! less than the whole queue. Nothing need be sent for this, and no queue has to stand: the bytes of a grant make one.
//!
//! Whether the known rate still holds is seen more often than which rate holds: a twentieth of the packets may differ.
//!
//! A far slower link may show in look after look, though none is clear, as on the server's own device. Its rate is then taken,
//! too, and the rate of before is no longer believed.
//!
//! Beside jitter no look is clear. But jitter is noise: each packet has its own. So it averages out over some hundred packets,
//! and the rates of several looks that are [faint] are alike. A queue of others or of a client's own line is no noise: it rises
//! and falls slowly. So a look counts as far as what differs is noise.

mod faint;

use alloc::vec::Vec;
use core::ops::Range;

use self::faint::Faint;
use super::{RoundTrips, Slope, link_queue::Queue};
use crate::time::{Instant, MS};

/// Looks from time to time which rate fits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looks {
    last: Instant,
    /// When the known rate last fitted, and how often it does in the mean.
    fitted: Option<Instant>,
    every_ns: f64,
    /// When a far higher rate fitted far better than the known one, last.
    higher: Option<Instant>,
    /// When a far higher rate was likelier by far beside noise, last.
    likelier: Option<Instant>,
    faint: Faint,
    /// Looks that show a far slower link again and again.
    slower: Faint,
}

/// The rate of the link, by one look or by several.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Look {
    Clear(Slope),
    /// Clear, or again and again, and of a link that is far slower than the known rate.
    Slower(Slope),
    Faint(Slope),
}

/// How well the queue of a link of this rate, in bits per second, which lets a burst pass at once, fits what packets met.
#[derive(Clone, Copy, Debug)]
struct Fit {
    bits: f64,
    burst_bytes: f64,
    /// Of that queue with what packets met.
    correlation: f64,
    /// The part of that queue that packets met, and what they met beside it.
    part: f64,
    offset_ns: f64,
}

/// Packets in the order in which they were sent.
struct Packets<'a> {
    seen: &'a RoundTrips,
    /// The link is taken as idle then.
    begins: Queue,
    met: Vec<Met>,
}

/// A packet: when it was sent, and the queue that it met, in nanoseconds.
type Met = (Instant, f64);

const EVERY_NS: u64 = 500 * MS;
/// So many packets at least, of this time at most, and no more than these.
const PACKETS_LEAST: usize = 60;
const PACKETS_MOST: usize = 600;
const OVER_NS: u64 = 2_000 * MS;
/// The highest rate, over the one that was known, and the lowest, over what was sent and over the highest.
const HIGHEST: f64 = 2.0;
const LOWEST: f64 = 0.8;
const LOWEST_OF_HIGHEST: f64 = 1.0 / 32.0;
/// From one rate to the next: between these, and then around the best of them.
const STEP: f64 = 0.03;
const STEP_NEAR: f64 = 0.006;
const NEAR: i32 = 6;
/// The least correlation, and the least beside a queue that was found to be of others.
const FITS: f64 = 0.8;
const FITS_ELSEWHERE: f64 = 0.95;
/// This part of the packets is left out: those that differ most.
const TRIMS: f64 = 0.05;
/// At rates that differ by this part, the correlation is lower by so much, or so many times as much is missing from 1.
const APART: f64 = 0.06;
const PEAK: f64 = 0.05;
const PEAK_LACKS: f64 = 2.0;
/// The relative error, over what is missing from a correlation of 1, and the least one. It is larger than that of one look,
/// because looks within two seconds have nearly the same packets.
const ERROR: f64 = 0.2;
const ERROR_LEAST: f64 = 0.02;
/// A link is far slower below this part of the known rate. Others leave a part of the link that looks like a slower one, so a
/// single look shows it with this correlation at least.
const SLOWER: f64 = 0.6;
const SLOWER_FITS: f64 = 0.95;
/// Looks with such a correlation, and so much more than that of the known rate, count together if they show the same far slower
/// link again and again. Each counts for so much, in nats.
const AGAIN_FITS: f64 = 0.6;
const AGAIN_MORE: f64 = 0.2;
const AGAIN_NATS: f64 = 0.8;
/// The known rate is late to fit again after so many times its usual interval, within these bounds. Of the usual interval, the
/// last one has this weight.
const FITS_LATE: f64 = 3.0;
const FITS_LEAST_NS: u64 = 1_500 * MS;
const FITS_MOST_NS: u64 = 20_000 * MS;
const FITS_WEIGHT: f64 = 0.2;
/// So many times the known rate is far higher. That such a rate fitted far better counts for so long, with this correlation at
/// least: where clients have slower lines of their own, none fits.
const FAR_HIGHER: f64 = 1.25;
const HIGHER_FOR_NS: u64 = 1_000 * MS;
const HIGHER_FITS: f64 = 0.5;
/// A far higher rate is suspected if it is likelier by so much, in nats, where noise leaves a lower correlation than this. A
/// sounding then shows whether it is.
const LIKELIER_NATS: f64 = 8.0;
const LIKELIER_NOISY: f64 = 0.5;
/// Looks with such a correlation count together. Above it, what differs is more than noise.
const FAINT: Range<f64> = 0.05..0.8;
/// At rates apart from it, no more than this part of what it explains may be explained.
const FAINT_PEAK: f64 = 0.95;
/// Packets meet a part of the queue within these bounds.
const PART: Range<f64> = 0.2..3.0;

impl Looks {
    /// The rate of the link, if it shows, once in a while. Packets count that were sent since then. `known` is the rate as
    /// far as it is known, in bits per second. The link may let a burst pass at once.
    pub fn rate(
        &mut self,
        now: Instant,
        seen: &RoundTrips,
        since: Instant,
        known: f64,
        burst_bytes: f64,
    ) -> Option<Look> {
        let elapsed_ns = now.ns_since(self.last);
        if elapsed_ns < EVERY_NS {
            return None;
        }
        self.last = now;
        self.faint.fade(elapsed_ns);
        self.slower.fade(elapsed_ns);
        let packets = seen.recent(now, since)?;
        let of_known = packets.fit_with(known, burst_bytes)?;
        if packets.fits_most(&of_known) {
            let after_ns = self.fitted.map_or(0, |fitted| now.ns_since(fitted).min(FITS_MOST_NS)) as f64;
            self.every_ns += FITS_WEIGHT * (after_ns - self.every_ns);
            self.fitted = Some(now);
        }
        let found = packets.best(now, known * HIGHEST, burst_bytes)?;
        if found.bits > known * (1.0 + APART) && found.is_better_than(&of_known) {
            self.fitted = None;
            if found.bits > known * FAR_HIGHER && found.correlation >= HIGHER_FITS {
                self.higher = Some(now);
            }
        }
        let is_noisy = found.correlation < LIKELIER_NOISY;
        if is_noisy && found.bits > known * FAR_HIGHER && packets.evidence_over(&found, &of_known) >= LIKELIER_NATS {
            self.likelier = Some(now);
        }
        if let Some(clear) = packets.rate_that_fits(now, found) {
            self.faint = Faint::default();
            let is_slower = found.correlation >= SLOWER_FITS && found.bits < known * SLOWER;
            return Some(if is_slower { Look::Slower(clear) } else { Look::Clear(clear) });
        }
        if found.is_far_slower(&of_known) {
            self.slower.add(found.bits, AGAIN_NATS);
            if let Some(slower) = self.slower.rate() {
                self.slower = Faint::default();
                return Some(Look::Slower(slower));
            }
        }
        if !seen.is_elsewhere(now) {
            self.faint.add(found.bits, packets.evidence(now, elapsed_ns, &found));
        }
        let faint = self.faint.rate()?;
        self.faint = Faint::default();
        Some(Look::Faint(faint))
    }

    /// Whether a far higher rate than the known one fitted far better lately.
    pub fn sees_more(&self, now: Instant) -> bool {
        self.higher.is_some_and(|at| now.ns_since(at) <= HIGHER_FOR_NS)
    }

    /// Whether a far higher rate than the known one was likelier by far lately. That may be chance.
    pub fn suspects_more(&self, now: Instant) -> bool {
        self.likelier.is_some_and(|at| now.ns_since(at) <= HIGHER_FOR_NS)
    }

    /// Whether the known rate has fitted lately, and no higher rate fits far better.
    pub fn suffice(&self, now: Instant) -> bool {
        let for_ns = ((FITS_LATE * self.every_ns) as u64).clamp(FITS_LEAST_NS, FITS_MOST_NS);
        self.fitted.is_some_and(|fitted| now.ns_since(fitted) < for_ns)
    }
}

impl RoundTrips {
    /// Packets that came back lately and were sent since then; `None` if they are too few.
    fn recent(&self, now: Instant, since: Instant) -> Option<Packets<'_>> {
        let first = self.points.front()?.at;
        let since = since.max(first).max(Instant::from_ns(now.as_ns().saturating_sub(OVER_NS)));
        let recent = self.samples.iter().rev().filter(|it| it.sent_at >= since).take(PACKETS_MOST);
        let mut met: Vec<Met> = recent.filter_map(|it| Some((it.sent_at, it.above_ns? as f64))).collect();
        if met.len() < PACKETS_LEAST {
            return None;
        }
        met.sort_unstable_by_key(|it| it.0);
        let since = met.first()?.0;
        let first = self.points.get(self.points.partition_point(|it| it.at < since))?;
        let begins = Queue { at: first.at, sent_bytes: first.sent_bytes as f64, ns: 0.0 };
        Some(Packets { seen: self, begins, met })
    }
}

impl Packets<'_> {
    /// The best fit of all rates up to this one, in bits per second.
    fn best(&self, now: Instant, highest: f64, burst_bytes: f64) -> Option<Fit> {
        let lowest = (LOWEST * self.seen.sent_bits(now, self.met.first()?.0)).max(LOWEST_OF_HIGHEST * highest);
        let best_with = |burst_bytes| {
            let lower = |bits: &f64| Some(bits * (1.0 - STEP)).filter(|bits| *bits > lowest);
            let rough = core::iter::successors(Some(highest), lower).map(|bits| self.fit(bits, burst_bytes));
            let rough = best(rough)?.bits;
            let near = (-NEAR..=NEAR).map(|n| rough * (1.0 + f64::from(n) * STEP_NEAR));
            best(near.map(|bits| self.fit(bits, burst_bytes)))
        };
        best(bursts(burst_bytes).filter_map(best_with))
    }

    /// The rate of the link, by the best fit. `None` where that does not fit well, or others do, too.
    fn rate_that_fits(&self, now: Instant, found: Fit) -> Option<Slope> {
        let least = if self.seen.is_elsewhere(now) { FITS_ELSEWHERE } else { FITS };
        self.is_clear(&found, least).then(|| found.slope())
    }

    /// The fit of a link that may let this burst pass.
    fn fit_with(&self, bits: f64, burst_bytes: f64) -> Option<Fit> {
        best(bursts(burst_bytes).map(|burst_bytes| self.fit(bits, burst_bytes)))
    }

    /// Whether such a link fits most of these packets, and links of other rates do not.
    fn fits_most(&self, of_all: &Fit) -> bool {
        let most = self.most_alike(of_all);
        most.is_clear(&most.fit(of_all.bits, of_all.burst_bytes), FITS)
    }

    /// Whether such a link fits, and links of other rates do not.
    fn is_clear(&self, found: &Fit, least: f64) -> bool {
        let is_best = self.apart(found).iter().all(|other| found.is_better_than(other));
        found.correlation >= least && PART.contains(&found.part) && is_best
    }

    /// The fits of links whose rates are a little lower and higher.
    fn apart(&self, found: &Fit) -> [Fit; 2] {
        [1.0 - APART, 1.0 + APART].map(|times| self.fit(found.bits * times, found.burst_bytes))
    }

    /// By how much such a link is likelier than those of other rates, in nats. Packets of this time were not looked at before.
    fn evidence(&self, now: Instant, new_ns: u64, found: &Fit) -> f64 {
        let Some(other) = best(self.apart(found).into_iter()) else { return 0.0 };
        if other.explains() > FAINT_PEAK * found.explains() {
            return 0.0;
        }
        let all_ns = self.met.first().map_or(0, |(first, _)| now.ns_since(*first)).max(1);
        let new = (new_ns as f64 / all_ns as f64).min(1.0);
        new * self.evidence_over(found, &other)
    }

    /// By how much such a link is likelier than this other one, in nats, as far as what differs from it is noise.
    fn evidence_over(&self, found: &Fit, other: &Fit) -> f64 {
        if !FAINT.contains(&found.correlation) || !PART.contains(&found.part) {
            return 0.0;
        }
        let whiteness = self.whiteness(found);
        let half = whiteness * whiteness * self.met.len() as f64 / 2.0;
        half * libm::log((1.0 - other.explains()) / (1.0 - found.explains()))
    }

    /// How much of what differs from such a link is noise. If each packet has its own, the second differences of it have six
    /// times its variance. The queue of another link, or of others, rises and falls slowly.
    fn whiteness(&self, fit: &Fit) -> f64 {
        let pairs = self.queues_and_met_ns(fit.bits, fit.burst_bytes);
        let differ_ns: Vec<f64> = pairs.map(|pair| fit.differs_ns(pair)).collect();
        let steps = differ_ns.windows(3).map(|it| it[0] - 2.0 * it[1] + it[2]);
        let of_steps: f64 = steps.map(|it| it * it).sum();
        let of_all: f64 = differ_ns.iter().map(|it| it * it).sum();
        if of_all > 0.0 { (of_steps / 6.0 / of_all).min(1.0) } else { 0.0 }
    }

    fn fit(&self, bits: f64, burst_bytes: f64) -> Fit {
        let mut sums = Sums::default();
        self.queues_and_met_ns(bits, burst_bytes).for_each(|(queue_ns, met_ns)| sums.add(queue_ns, met_ns));
        sums.fit(bits, burst_bytes)
    }

    /// The queue of such a link at each packet, and what that met.
    fn queues_and_met_ns(&self, bits: f64, burst_bytes: f64) -> impl Iterator<Item = (f64, f64)> {
        let burst_ns = 8e9 * burst_bytes / bits;
        let queues = self.seen.queues_ns(bits, self.begins, self.met.iter().map(|it| it.0));
        queues.zip(&self.met).map(move |(queue_ns, (_, met_ns))| ((queue_ns - burst_ns).max(0.0), *met_ns))
    }

    /// Without the part that differs most from such a link. Clients acknowledge some packets late, and of others it is not known
    /// exactly when they were sent.
    fn most_alike(&self, like: &Fit) -> Self {
        let differ_ns = self.queues_and_met_ns(like.bits, like.burst_bytes).map(|pair| like.differs_ns(pair).abs());
        let differ_ns: Vec<_> = differ_ns.collect();
        let most = differ_ns.len() - (TRIMS * differ_ns.len() as f64) as usize - 1;
        let most_ns = *differ_ns.clone().select_nth_unstable_by(most, f64::total_cmp).1;
        let kept = self.met.iter().zip(differ_ns).filter(|(_, ns)| *ns <= most_ns);
        Self { met: kept.map(|(met, _)| *met).collect(), ..*self }
    }
}

impl Fit {
    /// How far a packet that met this is from the line through all of them.
    fn differs_ns(&self, (queue_ns, met_ns): (f64, f64)) -> f64 {
        met_ns - self.offset_ns - self.part * queue_ns
    }

    /// Whether this one fits clearly better.
    fn is_better_than(&self, other: &Self) -> bool {
        self.correlation >= other.correlation + PEAK || other.lacks() >= PEAK_LACKS * self.lacks()
    }

    /// Whether such a link is far slower than the known one, and fits far better.
    fn is_far_slower(&self, of_known: &Self) -> bool {
        let fits = self.correlation >= AGAIN_FITS.max(of_known.correlation + AGAIN_MORE) && PART.contains(&self.part);
        fits && self.bits < SLOWER * of_known.bits
    }

    /// The part of what packets met that is explained.
    fn explains(&self) -> f64 {
        self.correlation.max(0.0) * self.correlation
    }

    /// What is missing from a correlation of 1.
    fn lacks(&self) -> f64 {
        1.0 - self.correlation
    }

    fn slope(&self) -> Slope {
        Slope { bits: self.bits, error: self.bits * (ERROR * self.lacks()).max(ERROR_LEAST) }
    }
}

/// A link may let this burst pass, or none.
fn bursts(burst_bytes: f64) -> impl Iterator<Item = f64> {
    core::iter::once(0.0).chain((burst_bytes > 0.0).then_some(burst_bytes))
}

fn best(fits: impl Iterator<Item = Fit>) -> Option<Fit> {
    fits.reduce(|a, b| if b.correlation > a.correlation { b } else { a })
}

/// Sums over pairs of values, for their correlation.
#[derive(Default)]
struct Sums {
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Sums {
    fn add(&mut self, x: f64, y: f64) {
        self.count += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
        self.yy += y * y;
    }

    fn fit(&self, bits: f64, burst_bytes: f64) -> Fit {
        let of = |ab: f64, a: f64, b: f64| self.count * ab - a * b;
        let (xx, xy, yy) = (of(self.xx, self.x, self.x), of(self.xy, self.x, self.y), of(self.yy, self.y, self.y));
        let correlation = if xx * yy > 0.0 { xy / libm::sqrt(xx * yy) } else { 0.0 };
        let part = if xx > 0.0 { xy / xx } else { 0.0 };
        Fit { bits, burst_bytes, correlation, part, offset_ns: (self.y - part * self.x) / self.count.max(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round_trips::{Load, Sample};

    /// A link of 100 Mbit/s, which lets a burst pass at once. For two seconds some 90 % of that is sent, in runs at 160 Mbit/s
    /// and pauses of random lengths. A packet comes every so many milliseconds. It meets this part of the queue, or one of
    /// others instead, and up to so much noise.
    struct Link {
        burst_bytes: f64,
        packet_every_ms: u64,
        meets: f64,
        noise_ns: f64,
        others: bool,
        seed: u64,
    }

    const END: Instant = Instant::from_ns(2_000 * MS);
    const LINK: Link = Link { burst_bytes: 0.0, packet_every_ms: 5, meets: 1.0, noise_ns: 0.0, others: false, seed: 1 };

    impl Link {
        fn seen(&self) -> RoundTrips {
            let mut seen = RoundTrips::default();
            let mut state = self.seed;
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as f64 / (1_u64 << 31) as f64
            };
            let (mut sent, mut queue, mut runs_until, mut rests_until) = (0.0, 0.0_f64, 0, 0);
            for step in 0..8_000_u64 {
                let now = Instant::from_ns(step * MS / 4);
                if step >= rests_until {
                    runs_until = step + 1 + (random() * 80.0) as u64;
                    rests_until = runs_until + 1 + (random() * 60.0) as u64;
                }
                queue = (queue - 3_125.0).max(0.0);
                if step < runs_until {
                    (sent, queue) = (sent + 5_000.0, queue + 5_000.0);
                }
                let load = Load { sent_bytes: sent as u64, room_at: now, waits: false, chunk_bytes: 4_344 };
                seen.handle_load(now, load);
                if step.is_multiple_of(4 * self.packet_every_ms) {
                    let waits_ns = (queue - self.burst_bytes).max(0.0) * 80.0;
                    let waits_ns = if self.others { 20e6 * random() } else { waits_ns };
                    let met_ns = self.meets * waits_ns + self.noise_ns * random();
                    seen.samples.push_back(Sample::met(7, now, met_ns as u64));
                }
            }
            seen
        }

        /// Over 100 Mbit/s.
        fn rate(&self, burst_bytes: f64) -> Option<f64> {
            let seen = self.seen();
            let packets = seen.recent(END, Instant::ORIGIN)?;
            let found = packets.best(END, 250e6, burst_bytes)?;
            packets.rate_that_fits(END, found).map(|slope| slope.bits / 100e6)
        }
    }

    /// What looks at such links say together, over 100 Mbit/s.
    fn faint(of: &Link) -> Option<f64> {
        let mut faint = Faint::default();
        for seed in 1..=6 {
            let seen = Link { seed, ..*of }.seen();
            let packets = seen.recent(END, Instant::ORIGIN)?;
            let found = packets.best(END, 250e6, 0.0)?;
            faint.add(found.bits, packets.evidence(END, EVERY_NS, &found));
        }
        faint.rate().map(|slope| slope.bits / 100e6)
    }

    fn is_right(rate: Option<f64>) -> bool {
        rate.is_some_and(|rate| (rate - 1.0).abs() < 0.015)
    }

    #[test]
    fn the_rate_of_a_link_fits_also_where_packets_meet_a_third_of_its_queue() {
        let third = Link { meets: 0.3, noise_ns: 500e3, ..LINK };
        assert!(is_right(LINK.rate(0.0)), "{:?}", LINK.rate(0.0));
        assert!(is_right(third.rate(0.0)), "{:?}", third.rate(0.0));
    }

    #[test]
    fn it_fits_with_a_burst_and_beside_one_that_is_none() {
        let burst = Link { burst_bytes: 32_000.0, ..LINK };
        assert!(is_right(burst.rate(32_000.0)), "{:?}", burst.rate(32_000.0));
        assert!(is_right(LINK.rate(32_000.0)), "{:?}", LINK.rate(32_000.0));
    }

    #[test]
    fn none_fits_the_queue_of_others_nor_a_few_packets() {
        assert_eq!(Link { others: true, ..LINK }.rate(0.0), None);
        assert_eq!(Link { packet_every_ms: 80, ..LINK }.rate(0.0), None);
    }

    #[test]
    fn a_rate_fits_where_a_few_packets_are_acknowledged_late_and_other_rates_do_not() {
        let mut seen = Link { meets: 0.7, noise_ns: 500e3, ..LINK }.seen();
        for late in seen.samples.iter_mut().step_by(25) {
            *late = Sample::met(7, late.sent_at, 30_000_000);
        }
        let fits = |seen: &RoundTrips, bits| {
            let packets = seen.recent(END, Instant::ORIGIN).unwrap();
            packets.fits_most(&packets.fit(bits, 0.0))
        };
        let look = Looks::default().rate(END, &seen, Instant::ORIGIN, 125e6, 0.0);
        let Some(Look::Faint(Slope { bits, .. })) = look else { panic!("{look:?}") };
        assert!(is_right(Some(bits / 100e6)), "{bits}");
        assert_eq!([50e6, 90e6, 100e6, 110e6, 200e6].map(|bits| fits(&seen, bits)), [false, false, true, false, false]);
        assert!(!fits(&Link { others: true, ..LINK }.seen(), 100e6));
    }

    #[test]
    fn several_looks_show_a_rate_beside_jitter_and_none_beside_what_is_no_noise() {
        let jitter = Link { noise_ns: 40e6, ..LINK };
        assert_eq!(jitter.rate(0.0), None);
        assert!(is_right(faint(&jitter)), "{:?}", faint(&jitter));
        assert_eq!(faint(&Link { others: true, ..LINK }), None);
        assert_eq!(faint(&LINK), None, "each look is clear");
    }

    #[test]
    fn the_known_rate_suffices_until_it_is_late_to_be_seen_to_fit() {
        let (seen, mut looks) = (LINK.seen(), Looks::default());
        assert!(looks.rate(END, &seen, Instant::ORIGIN, 100e6, 0.0).is_some());
        assert_eq!([0, 1_400, 1_600].map(|ms| looks.suffice(END.add_ns(ms * MS))), [true, true, false]);
        let mut other = Looks::default();
        assert!(other.rate(END, &seen, Instant::ORIGIN, 80e6, 0.0).is_some() && !other.suffice(END));
    }

    #[test]
    fn a_far_higher_rate_that_fits_far_better_counts_for_a_second() {
        let seen = LINK.seen();
        let sees_more = |known, ms: u64| {
            let mut looks = Looks::default();
            looks.rate(END, &seen, Instant::ORIGIN, known, 0.0);
            looks.sees_more(END.add_ns(ms * MS))
        };
        assert_eq!([60e6, 90e6, 120e6].map(|known| sees_more(known, 0)), [true, false, false]);
        assert_eq!([1_000, 1_001].map(|ms| sees_more(60e6, ms)), [true, false]);
    }

    #[test]
    fn a_far_higher_rate_is_suspected_where_it_is_likelier_by_far_beside_noise() {
        let seen = Link { noise_ns: 60e6, ..LINK }.seen();
        let suspects = |seen: &RoundTrips, known, ms: u64| {
            let mut looks = Looks::default();
            looks.rate(END, seen, Instant::ORIGIN, known, 0.0);
            looks.suspects_more(END.add_ns(ms * MS))
        };
        assert_eq!([60e6, 90e6, 120e6].map(|known| suspects(&seen, known, 0)), [true, false, false]);
        assert_eq!([1_000, 1_001].map(|ms| suspects(&seen, 60e6, ms)), [true, false]);
        assert!(!suspects(&LINK.seen(), 60e6, 0), "a look that is clear shows it at once");
    }

    #[test]
    fn it_is_looked_every_half_second() {
        let (seen, mut looks) = (LINK.seen(), Looks::default());
        let at = |ms: u64| looks.rate(Instant::from_ns(ms * MS), &seen, Instant::ORIGIN, 90e6, 0.0).is_some();
        assert_eq!([1_900, 1_950, 2_399, 2_400].map(at), [true, false, false, true]);
    }
}
