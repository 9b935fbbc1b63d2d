//! The rate of a link, by the queue that packets met.
//!
//! A link of a given rate makes a certain queue of what was sent: it grows while more is sent than passes, and shrinks while
//! less is sent. So of several rates, that of the link is the one whose queue rises and falls with what packets met. How long
//! the two are does not matter. Sockets hold back a part of what they are given while their windows are full, so packets meet
//! less than the whole queue. Nothing need be sent for this, and no queue has to stand: the bytes of a grant make one.

use alloc::vec::Vec;
use core::ops::Range;

use super::{RoundTrips, Slope, link_queue::Queue};
use crate::time::{Instant, MS};

/// Looks from time to time which rate fits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looks {
    last: Instant,
}

/// How well the queue of a link of this rate, in bits per second, which lets a burst pass at once, fits what packets met.
#[derive(Clone, Copy, Debug)]
struct Fit {
    bits: f64,
    burst_bytes: f64,
    /// Of that queue with what packets met.
    correlation: f64,
    /// The part of that queue that packets met.
    part: f64,
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
/// At rates that differ by this part, the correlation is lower by so much, or so many times as much is missing from 1.
const APART: f64 = 0.06;
const PEAK: f64 = 0.05;
const PEAK_LACKS: f64 = 2.0;
/// The relative error, over what is missing from a correlation of 1, and the least one. It is larger than that of one look,
/// because looks within two seconds have nearly the same packets.
const ERROR: f64 = 0.2;
const ERROR_LEAST: f64 = 0.02;
/// Packets meet a part of the queue within these bounds.
const PART: Range<f64> = 0.2..3.0;

impl Looks {
    /// The rate of the link, if it is clear, once in a while. Packets count that were sent since then. `known` is the rate as
    /// far as it is known, in bits per second. The link may let a burst pass at once.
    pub fn rate(
        &mut self,
        now: Instant,
        seen: &RoundTrips,
        since: Instant,
        known: f64,
        burst_bytes: f64,
    ) -> Option<Slope> {
        if now.ns_since(self.last) < EVERY_NS {
            return None;
        }
        self.last = now;
        seen.rate_that_fits(now, since, known * HIGHEST, burst_bytes)
    }
}

impl RoundTrips {
    /// The rate of the link, below this one in bits per second. `None` where no rate fits well, or several do.
    fn rate_that_fits(&self, now: Instant, since: Instant, highest: f64, burst_bytes: f64) -> Option<Slope> {
        let first = self.points.front()?.at;
        let since = since.max(first).max(Instant::from_ns(now.as_ns().saturating_sub(OVER_NS)));
        let recent = self.samples.iter().rev().filter(|it| it.sent_at >= since).take(PACKETS_MOST);
        let mut met: Vec<Met> = recent.filter_map(|it| Some((it.sent_at, it.above_ns? as f64))).collect();
        if met.len() < PACKETS_LEAST {
            return None;
        }
        met.sort_unstable_by_key(|it| it.0);
        let since = met.first()?.0;
        let lowest = (LOWEST * self.sent_bits(now, since)).max(LOWEST_OF_HIGHEST * highest);
        let fit = |bits, burst_bytes| self.fit(since, bits, burst_bytes, &met);
        let best_with = |burst_bytes| {
            let lower = |bits: &f64| Some(bits * (1.0 - STEP)).filter(|bits| *bits > lowest);
            let rough = best(core::iter::successors(Some(highest), lower).map(|bits| fit(bits, burst_bytes)))?.bits;
            let near = (-NEAR..=NEAR).map(|n| rough * (1.0 + f64::from(n) * STEP_NEAR));
            best(near.map(|bits| fit(bits, burst_bytes)))
        };
        let bursts = core::iter::once(0.0).chain((burst_bytes > 0.0).then_some(burst_bytes));
        let found = best(bursts.filter_map(best_with))?;
        let apart = [1.0 - APART, 1.0 + APART].map(|times| fit(found.bits * times, found.burst_bytes));
        let apart = best(apart.into_iter())?;
        let is_peak = found.correlation >= apart.correlation + PEAK || apart.lacks() >= PEAK_LACKS * found.lacks();
        let least = if self.is_elsewhere(now) { FITS_ELSEWHERE } else { FITS };
        (found.correlation >= least && is_peak && PART.contains(&found.part)).then(|| found.slope())
    }

    /// How well such a link fits these packets, which are in the order in which they were sent.
    fn fit(&self, since: Instant, bits: f64, burst_bytes: f64, met: &[Met]) -> Fit {
        let first = self.points.get(self.points.partition_point(|it| it.at < since));
        let burst_ns = 8e9 * burst_bytes / bits;
        let mut sums = Sums::default();
        if let Some(first) = first {
            let begins = Queue { at: first.at, sent_bytes: first.sent_bytes as f64, ns: 0.0 };
            let queues = self.queues_ns(bits, begins, met.iter().map(|it| it.0));
            for (queue_ns, (_, met_ns)) in queues.zip(met) {
                sums.add((queue_ns - burst_ns).max(0.0), *met_ns);
            }
        }
        sums.fit(bits, burst_bytes)
    }
}

impl Fit {
    /// What is missing from a correlation of 1.
    fn lacks(&self) -> f64 {
        1.0 - self.correlation
    }

    fn slope(&self) -> Slope {
        Slope { bits: self.bits, error: self.bits * (ERROR * self.lacks()).max(ERROR_LEAST) }
    }
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
        Fit { bits, burst_bytes, correlation, part: if xx > 0.0 { xy / xx } else { 0.0 } }
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
    }

    const LINK: Link = Link { burst_bytes: 0.0, packet_every_ms: 5, meets: 1.0, noise_ns: 0.0, others: false };

    impl Link {
        fn seen(&self) -> RoundTrips {
            let mut seen = RoundTrips::default();
            let mut state = 1_u64;
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
            let bits = self.seen().rate_that_fits(Instant::from_ns(2_000 * MS), Instant::ORIGIN, 250e6, burst_bytes);
            bits.map(|slope| slope.bits / 100e6)
        }
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
    fn it_is_looked_every_half_second() {
        let (seen, mut looks) = (LINK.seen(), Looks::default());
        let at = |ms: u64| looks.rate(Instant::from_ns(ms * MS), &seen, Instant::ORIGIN, 90e6, 0.0).is_some();
        assert_eq!([1_900, 1_950, 2_399, 2_400].map(at), [true, false, false, true]);
    }
}
