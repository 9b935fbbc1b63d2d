use alloc::{collections::VecDeque, vec::Vec};

use super::*;
use crate::round_trips::RttKind;
use crate::time::Instant;

/// A link with a queue, more work than it can carry, and a client some way off that opens connections at random.
struct World {
    now: Instant,
    correction: Correction,
    link_bits: f64,
    offered_bits: f64,
    queue_bits: f64,
    sent_bits: f64,
    /// When the pacer's model has sent everything.
    free_at: Instant,
    carried_bits: f64,
    base_ns: u64,
    /// Round trips under way, with the time at which they will be measured.
    under_way: VecDeque<(Instant, u64)>,
    seed: u64,
}

impl World {
    fn new(correction: Correction, link_bits: f64, base_ns: u64) -> Self {
        Self {
            now: Instant::from_ns(MS),
            correction,
            link_bits,
            offered_bits: f64::MAX,
            queue_bits: 0.0,
            sent_bits: 0.0,
            free_at: Instant::ORIGIN,
            carried_bits: 0.0,
            base_ns,
            under_way: VecDeque::new(),
            seed: 1,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        // SplitMix64
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn run(&mut self, ms: u64) {
        const STEP_NS: u64 = 200_000;
        let step = STEP_NS as f64 / 1e9;
        for _ in 0..ms * MS / STEP_NS {
            self.now = self.now.add_ns(STEP_NS);
            let pace = self.correction.rate().bits_per_second() as f64;
            let waits = self.offered_bits > pace;
            let sent_bits = pace.min(self.offered_bits) * step;
            self.sent_bits += sent_bits;
            self.free_at = self.free_at.max(self.now).add_ns((sent_bits / pace * 1e9) as u64);
            let there = self.queue_bits + sent_bits;
            self.queue_bits = (there - self.link_bits * step).max(0.0);
            self.carried_bits += there - self.queue_bits;
            let queue_ns = (self.queue_bits / self.link_bits * 1e9) as u64;
            // About one connection every 4 ms, with up to 1.5 ms of noise: a packet of other traffic in front.
            let noise_ns = ((15e15 / self.link_bits) as u64).min(1_500_000);
            if self.random(20) == 0 {
                let rtt_ns = self.base_ns + queue_ns + self.random(noise_ns);
                self.under_way.push_back((self.now.add_ns(rtt_ns), rtt_ns));
            }
            let load =
                Load { sent_bytes: (self.sent_bits / 8.0) as u64, room_at: self.free_at, waits, chunk_bytes: 2 * 1448 };
            while self.under_way.front().is_some_and(|(at, _)| *at <= self.now) {
                let (_, rtt_ns) = self.under_way.pop_front().unwrap();
                self.correction.handle_round_trip(
                    self.now,
                    RoundTrip { path: 7, ns: rtt_ns, kind: RttKind::Handshake, age_ns: 0 },
                    load,
                );
            }
            self.correction.handle_turn(self.now, load);
        }
    }

    /// Mean queue over `ms` milliseconds.
    fn mean_queue_ms(&mut self, ms: u64) -> f64 {
        let mut sum = 0.0;
        for _ in 0..ms {
            self.run(1);
            sum += self.queue_bits / self.link_bits * 1e3;
        }
        sum / ms as f64
    }

    /// The part of the link that is used over `ms` milliseconds.
    fn use_over(&mut self, ms: u64) -> f64 {
        let before = self.carried_bits;
        self.run(ms);
        (self.carried_bits - before) / (self.link_bits * ms as f64 / 1e3)
    }
}

fn rate(bits: f64) -> Rate {
    Rate::clamped(bits)
}

#[test]
fn a_given_rate_that_is_wrong_by_five_percent_does_no_harm() {
    let mut harmed = Vec::new();
    for factor in [0.95, 0.98, 1.0, 1.02, 1.05] {
        for mbit in [2.0, 10.0] {
            let mut world = World::new(Correction::new(rate(mbit * 1e6 * factor), None), mbit * 1e6, 200_000);
            world.run(8_000);
            let (used, mean_ms) = (world.use_over(20_000), world.mean_queue_ms(10_000));
            if used < 0.97 || mean_ms > 2.5 || world.correction.doubt().is_some() {
                harmed.push((factor, mbit, used, mean_ms, world.correction.doubt()));
            }
        }
    }
    assert!(harmed.is_empty(), "factor, Mbit/s, use of the link, mean queue in ms, doubt: {harmed:.3?}");
}

#[test]
fn a_given_rate_is_left_within_a_narrow_range_only_and_doubted_at_its_ends() {
    for (factor, doubt) in [(1.3, Doubt::TooHigh), (0.7, Doubt::TooLow)] {
        let given = 10e6 * factor;
        let mut world = World::new(Correction::new(rate(given), None), 10e6, 200_000);
        for _ in 0..200 {
            world.run(100);
            assert!((0.89..1.07).contains(&(world.correction.estimate / given)), "{factor}");
        }
        assert_eq!(world.correction.doubt(), Some(doubt), "{factor}");
    }
}

#[test]
fn the_largest_part_of_a_given_rate_is_not_exceeded() {
    let mut world = World::new(Correction::new(rate(10e6), Some(0.97)), 20e6, 200_000);
    for _ in 0..100 {
        world.run(100);
        assert!(world.correction.rate().bits_per_second() <= 9_700_000);
    }
}

#[test]
fn an_idle_site_learns_nothing_and_forgets_nothing() {
    let mut world = World::new(Correction::new(rate(10.4e6), None), 10e6, 200_000);
    world.run(10_000);
    let before = world.correction.estimate;
    world.offered_bits = 1e6;
    world.run(30_000);
    assert_eq!(world.correction.estimate, before);
}

#[test]
fn a_longer_path_is_no_queue_for_long() {
    let mut world = World::new(Correction::new(rate(10e6), None), 10e6, 20 * MS);
    world.run(4_000);
    world.base_ns = 60 * MS;
    world.run(10_000);
    assert!(world.use_over(5_000) > 0.96);
    assert!(world.mean_queue_ms(2_000) < 4.0);
}
