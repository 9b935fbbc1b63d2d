//! One direction of one group's path: decides the fate of each packet, and when it arrives.
//!
//! First the packet may be lost, then it waits for the line, then it travels. Travel takes the lane's delay
//! and a normal jitter drawn for each packet. A packet never overtakes the one before it in its own flow, but
//! arrives at the same time. So a burst on one connection takes as long as its slowest packet. Flows do not
//! wait for each other. So the mean delay of packets that are far apart on their connections is the
//! configured one, for any number of connections on the path.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use workload::rate::Rate;

use super::flow::{Flow, FlowOrder};

/// Settings of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LaneSetting {
    pub(super) delay_ns: f64,
    /// Standard deviation of the jitter.
    pub(super) jitter_ns: f64,
    /// Fraction of the packets lost.
    pub(super) loss: f64,
    /// The line at its end, and the most packets that wait for it.
    pub(super) line: Option<(Rate, u32)>,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It arrives at this time.
    Due(u64),
    /// It is lost on the way.
    Lost,
    /// It is dropped at the full queue of the line.
    Dropped,
}

/// One direction of one group's path.
#[derive(Debug)]
pub(super) struct Lane {
    setting: LaneSetting,
    dice: ChaCha8Rng,
    order: FlowOrder,
    line: Option<Line>,
}

impl Lane {
    /// All randomness comes from `seed` and `stream`; each lane has its own stream.
    pub(super) fn new(setting: LaneSetting, seed: u64, stream: u64) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        dice.set_stream(stream);
        let line = setting.line.map(|(rate, queue_packets)| Line::new(rate, queue_packets));
        Self { setting, dice, order: FlowOrder::new(), line }
    }

    /// Decides the fate of a packet that enters now; `frame_bytes` includes the link header. Times never go
    /// back.
    pub(super) fn handle_packet(&mut self, now_ns: u64, flow: Flow, frame_bytes: usize) -> Fate {
        if self.setting.loss > 0.0 && self.dice.random::<f64>() < self.setting.loss {
            return Fate::Lost;
        }
        let left_ns = match &mut self.line {
            None => now_ns,
            Some(line) => match line.handle_packet(now_ns, frame_bytes) {
                Some(left_ns) => left_ns,
                None => return Fate::Dropped,
            },
        };
        let due_ns = left_ns + self.travel_ns();
        // Without jitter the order is kept anyway.
        let is_jittery = self.setting.jitter_ns > 0.0;
        Fate::Due(if is_jittery { self.order.handle_packet(now_ns, flow, due_ns) } else { due_ns })
    }

    fn travel_ns(&mut self) -> u64 {
        let LaneSetting { delay_ns, jitter_ns, .. } = self.setting;
        let jitter: f64 = if jitter_ns > 0.0 { StandardNormal.sample(&mut self.dice) } else { 0.0 };
        // A negative time becomes 0 in the conversion.
        (delay_ns + jitter * jitter_ns).round() as u64
    }
}

/// A line of a given rate with a queue before it.
#[derive(Debug)]
struct Line {
    rate: Rate,
    queue_packets: usize,
    /// When each waiting packet will have left.
    leaving_ns: VecDeque<f64>,
}

impl Line {
    fn new(rate: Rate, queue_packets: u32) -> Self {
        Self { rate, queue_packets: queue_packets as usize, leaving_ns: VecDeque::new() }
    }

    /// When the packet will have left the line; `None` if the queue is full.
    fn handle_packet(&mut self, now_ns: u64, frame_bytes: usize) -> Option<u64> {
        let now_ns = now_ns as f64;
        while self.leaving_ns.front().is_some_and(|&left| left <= now_ns) {
            self.leaving_ns.pop_front();
        }
        // One packet is on the line, the others wait.
        if self.leaving_ns.len() > self.queue_packets {
            return None;
        }
        let begins_ns = self.leaving_ns.back().map_or(now_ns, |&last| last.max(now_ns));
        let left_ns = begins_ns + self.rate.ns_for(frame_bytes as f64);
        self.leaving_ns.push_back(left_ns);
        Some(left_ns.round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const FLOW: Flow = Flow::from_number(0);

    fn lane(setting: LaneSetting) -> Lane {
        Lane::new(setting, 1, 0)
    }

    fn due(fate: Fate) -> u64 {
        match fate {
            Fate::Due(due_ns) => due_ns,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_jitter_every_packet_takes_the_delay() {
        let mut lane = lane(LaneSetting { delay_ns: 45e6, ..LaneSetting::default() });
        for now_ns in [0, 1, 7 * MS] {
            assert_eq!(lane.handle_packet(now_ns, FLOW, 1514), Fate::Due(now_ns + 45 * MS));
        }
    }

    #[test]
    fn jitter_is_normal_when_packets_are_far_apart() {
        let mut lane = lane(LaneSetting { delay_ns: 100e6, jitter_ns: 10e6, ..LaneSetting::default() });
        let n = 20_000;
        let mut times: Vec<f64> =
            (0..n).map(|i| (due(lane.handle_packet(i * 1000 * MS, FLOW, 100)) - i * 1000 * MS) as f64 / 1e6).collect();
        let mean = times.iter().sum::<f64>() / n as f64;
        let deviation = (times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
        assert!((mean - 100.0).abs() < 0.4 && (deviation - 10.0).abs() < 0.3, "{mean} {deviation}");
        times.sort_by(f64::total_cmp);
        // 2.5 % of a normal distribution is below the mean by 1.96 standard deviations.
        assert!((times[n as usize / 40] - (100.0 - 19.6)).abs() < 1.0);
    }

    #[test]
    fn jitter_keeps_the_order_of_each_flow_and_never_goes_back_in_time() {
        let mut lane = lane(LaneSetting { delay_ns: 5e6, jitter_ns: 20e6, ..LaneSetting::default() });
        let mut last_ns = [0; 3];
        let mut overtaken = 0;
        for i in 0..10_000 {
            let (now_ns, number) = (i * MS / 10, i % 3);
            let due_ns = due(lane.handle_packet(now_ns, Flow::from_number(number as u32), 1514));
            assert!(due_ns >= last_ns[number as usize] && due_ns >= now_ns);
            last_ns[number as usize] = due_ns;
            overtaken += usize::from(last_ns.iter().any(|&other_ns| other_ns > due_ns));
        }
        assert!(overtaken > 1_000, "flows do not wait for each other: {overtaken}");
    }

    #[test]
    fn many_flows_take_the_delay_that_was_set() {
        const FLOWS: u32 = 700;
        const APART_NS: u64 = 1_000 * MS / 1_400;
        let mut lane = lane(LaneSetting { delay_ns: 175e6, jitter_ns: 50e6, ..LaneSetting::default() });
        let n = 140_000;
        let travel_ms = |i: u64| {
            let flow = Flow::from_number(i as u32 % FLOWS);
            (due(lane.handle_packet(i * APART_NS, flow, 1514)) - i * APART_NS) as f64 / 1e6
        };
        let times: Vec<f64> = (0..n).map(travel_ms).collect();
        let mean = times.iter().sum::<f64>() / n as f64;
        let deviation = (times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
        // Seven and a half standard errors of the mean.
        assert!((mean - 175.0).abs() < 1.0 && (deviation - 50.0).abs() < 1.0, "{mean} {deviation}");
    }

    #[test]
    fn loss_is_what_it_is_set_to_and_the_seed_decides_which() {
        let setting = LaneSetting { loss: 0.05, ..LaneSetting::default() };
        let fates = |seed, stream| -> Vec<bool> {
            let mut lane = Lane::new(setting, seed, stream);
            (0..100_000).map(|now_ns| lane.handle_packet(now_ns, FLOW, 1514) == Fate::Lost).collect()
        };
        let first = fates(1, 0);
        let lost = first.iter().filter(|&&lost| lost).count() as f64;
        // Five standard deviations of the binomial distribution.
        assert!((lost - 5_000.0).abs() < 5.0 * (100_000.0f64 * 0.05 * 0.95).sqrt(), "{lost}");
        assert_eq!(first, fates(1, 0));
        assert!(first != fates(2, 0) && first != fates(1, 1));
    }

    #[test]
    fn a_line_sends_one_after_the_other_and_drops_what_finds_no_place() {
        let rate = Rate::from_bits_per_second(8_000_000).unwrap();
        let mut lane = lane(LaneSetting { delay_ns: 10e6, line: Some((rate, 2)), ..LaneSetting::default() });
        // 1000 bytes take a millisecond.
        assert_eq!(lane.handle_packet(0, FLOW, 1000), Fate::Due(11 * MS));
        assert_eq!(lane.handle_packet(0, FLOW, 1000), Fate::Due(12 * MS));
        assert_eq!(lane.handle_packet(0, FLOW, 1000), Fate::Due(13 * MS));
        assert_eq!(lane.handle_packet(0, FLOW, 1000), Fate::Dropped, "one on the line and two that wait");
        assert_eq!(lane.handle_packet(MS, FLOW, 1000), Fate::Due(14 * MS), "the first has left");
        assert_eq!(
            lane.handle_packet(100 * MS, FLOW, 500),
            Fate::Due(100 * MS + MS / 2 + 10 * MS),
            "an idle line saves nothing up"
        );
    }

    #[test]
    fn a_lost_packet_takes_no_time_on_the_line() {
        let rate = Rate::from_bits_per_second(8_000_000).unwrap();
        let mut lane = lane(LaneSetting { loss: 0.5, line: Some((rate, 1000)), ..LaneSetting::default() });
        let fates: Vec<Fate> = (0..100).map(|_| lane.handle_packet(0, FLOW, 1000)).collect();
        let arrived = fates.iter().filter(|fate| matches!(fate, Fate::Due(_))).count() as u64;
        assert!(arrived < 100);
        assert!(fates.contains(&Fate::Due(arrived * MS)) && !fates.contains(&Fate::Due((arrived + 1) * MS)));
    }
}
