//! Congestion window of a connection: slow start with HyStart, then CUBIC, as in Linux.
//!
//! Sources: Ha, Rhee, Xu, "CUBIC: a new TCP-friendly high-speed TCP variant" (2008), with the constants of
//! RFC 9438; Ha, Rhee, "Taming the elephants: new TCP slow start" (2011), with Linux's thresholds.

/// The window and the state of its growth. Times are in nanoseconds, windows in segments.
#[derive(Debug)]
pub(super) struct Cubic {
    pub window: u32,
    pub threshold: u32,
    /// Acknowledged segments since the last increase.
    counted: u32,
    last_max: f64,
    epoch: Option<Epoch>,
    delay_min_ns: u64,
    hystart: HyStart,
}

/// Growth since the last reduction.
#[derive(Debug)]
struct Epoch {
    began_ns: u64,
    /// Seconds until the cubic function returns to `origin`.
    k_s: f64,
    origin: f64,
    acked: f64,
    /// The window that Reno would have now.
    reno: f64,
}

#[derive(Debug, Default)]
struct HyStart {
    found: bool,
    round_began_ns: u64,
    last_ack_ns: u64,
    round_end: u64,
    round_rtt_ns: Option<u64>,
    samples: u32,
}

/// RFC 6928.
pub(super) const INITIAL_WINDOW: u32 = 10;
const C: f64 = 0.4;
const BETA: f64 = 717.0 / 1024.0;
/// Acknowledged segments per segment that Reno would add, divided by the window: 3 (1 - beta) / (1 + beta),
/// inverted.
const RENO_ACKS: f64 = (1.0 + BETA) / (3.0 * (1.0 - BETA));
const HYSTART_LOW_WINDOW: u32 = 16;
const HYSTART_SAMPLES: u32 = 8;
const HYSTART_DELAY_NS: (u64, u64) = (4_000_000, 16_000_000);
/// Acknowledgements closer than this form a train.
const HYSTART_TRAIN_NS: u64 = 2_000_000;

impl Default for Cubic {
    fn default() -> Self {
        Self {
            window: INITIAL_WINDOW,
            threshold: u32::MAX,
            counted: 0,
            last_max: 0.0,
            epoch: None,
            delay_min_ns: 0,
            hystart: HyStart::default(),
        }
    }
}

impl Cubic {
    pub fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Takes a round trip measured by an acknowledgement of all bytes before `una`; `next` is the end of the
    /// sent bytes. `slack_ns` is the time that offloads may add to a train of acknowledgements.
    pub fn handle_rtt(&mut self, now_ns: u64, rtt_ns: u64, una: u64, next: u64, slack_ns: u64) {
        // Right after a recovery, delays say little.
        if self.epoch.as_ref().is_some_and(|epoch| now_ns.saturating_sub(epoch.began_ns) < 1_000_000_000) {
            return;
        }
        if self.delay_min_ns == 0 || rtt_ns < self.delay_min_ns {
            self.delay_min_ns = rtt_ns.max(1);
        }
        if self.hystart.found || !self.in_slow_start() {
            return;
        }
        let hystart = &mut self.hystart;
        if una > hystart.round_end {
            *hystart = HyStart {
                found: false,
                round_began_ns: now_ns,
                last_ack_ns: now_ns,
                round_end: next,
                round_rtt_ns: None,
                samples: 0,
            };
        }
        if self.window < HYSTART_LOW_WINDOW {
            return;
        }
        if now_ns.saturating_sub(hystart.last_ack_ns) <= HYSTART_TRAIN_NS {
            hystart.last_ack_ns = now_ns;
            hystart.found = now_ns - hystart.round_began_ns > (self.delay_min_ns + slack_ns) / 2;
        }
        let least_ns = hystart.round_rtt_ns.map_or(rtt_ns, |least_ns| least_ns.min(rtt_ns));
        hystart.round_rtt_ns = Some(least_ns);
        if hystart.samples < HYSTART_SAMPLES {
            hystart.samples += 1;
        } else {
            let (least, most) = HYSTART_DELAY_NS;
            hystart.found |= least_ns > self.delay_min_ns + (self.delay_min_ns / 8).clamp(least, most);
        }
        if hystart.found {
            self.threshold = self.window;
        }
    }

    /// Segments were acknowledged while the window limited the connection.
    pub fn handle_acked(&mut self, now_ns: u64, mut segments: u32) {
        if self.in_slow_start() {
            let grown = self.window.saturating_add(segments).min(self.threshold);
            segments -= grown - self.window;
            self.window = grown;
            if segments == 0 {
                return;
            }
        }
        let acks_for_one = self.acks_for_one(now_ns, segments);
        // A count from a larger window is worth at least one segment.
        if self.counted >= acks_for_one {
            self.counted = 0;
            self.window += 1;
        }
        self.counted += segments;
        if self.counted >= acks_for_one {
            self.window += self.counted / acks_for_one;
            self.counted %= acks_for_one;
        }
    }

    /// A segment was lost; returns the window to reduce to.
    pub fn handle_loss(&mut self) -> u32 {
        self.epoch = None;
        let window = f64::from(self.window);
        // Fast convergence: a connection with a smaller window than last time leaves some capacity to others.
        self.last_max = if window < self.last_max { window * (1.0 + BETA) / 2.0 } else { window };
        self.threshold = ((window * BETA) as u32).max(2);
        self.threshold
    }

    /// A retransmission timed out: knowledge of the path is void.
    pub fn handle_timeout(&mut self) {
        let (window, threshold) = (self.window, self.threshold);
        *self = Self { window, threshold, ..Self::default() };
    }

    /// The connection was idle: growth ignores that time.
    pub fn handle_idle(&mut self, now_ns: u64, idle_ns: u64) {
        if let Some(epoch) = &mut self.epoch {
            epoch.began_ns = (epoch.began_ns + idle_ns).min(now_ns);
        }
    }

    /// Number of acknowledged segments for which the window grows by one.
    fn acks_for_one(&mut self, now_ns: u64, segments: u32) -> u32 {
        let window = f64::from(self.window);
        let last_max = self.last_max;
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            began_ns: now_ns,
            k_s: if last_max <= window { 0.0 } else { libm::cbrt((last_max - window) / C) },
            origin: last_max.max(window),
            acked: 0.0,
            reno: window,
        });
        epoch.acked += f64::from(segments);
        let t_s = (now_ns.saturating_sub(epoch.began_ns) + self.delay_min_ns) as f64 / 1e9;
        let target = epoch.origin + C * (t_s - epoch.k_s).powi(3);
        let mut acks = if target > window { window / (target - window) } else { 100.0 * window };
        if last_max == 0.0 {
            // The capacity is unknown: grow by at least 5 % a round trip.
            acks = acks.min(20.0);
        }
        let for_reno = (window * RENO_ACKS).max(1.0);
        while epoch.acked > for_reno {
            epoch.acked -= for_reno;
            epoch.reno += 1.0;
        }
        if epoch.reno > window {
            acks = acks.min(window / (epoch.reno - window));
        }
        (acks as u32).max(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn slow_start_doubles_each_round_and_ends_where_delay_grows() {
        let mut cubic = Cubic::default();
        let (mut una, mut now_ns) = (0, 0);
        for (rtt_ms, window) in [(100, 20), (105, 40), (110, 80)] {
            now_ns += 100 * MS;
            let next = una + u64::from(cubic.window);
            // Acknowledgements 3 ms apart are no train.
            for _ in 0..cubic.window {
                una += 1;
                now_ns += 3 * MS;
                cubic.handle_rtt(now_ns, rtt_ms * MS, una, next, 0);
                cubic.handle_acked(now_ns, 1);
            }
            assert_eq!(cubic.window, window, "at {rtt_ms} ms");
        }
        // The threshold is 100 ms / 8 = 12.5 ms above the shortest; the ninth sample shows it.
        for _ in 0..9 {
            una += 1;
            now_ns += 3 * MS;
            cubic.handle_rtt(now_ns, 113 * MS, una, u64::MAX, 0);
        }
        assert_eq!((cubic.threshold, cubic.in_slow_start()), (80, false));
    }

    #[test]
    fn a_train_of_acknowledgements_longer_than_half_a_round_trip_ends_slow_start() {
        let mut cubic = Cubic { window: 30, ..Cubic::default() };
        for i in 0..=10 {
            assert!(cubic.in_slow_start(), "after {i} ms");
            cubic.handle_rtt(1_000 * MS + i * MS, 18 * MS, i + 1, 100, 0);
        }
        assert_eq!(cubic.threshold, 30);
    }

    #[test]
    fn cubic_is_back_at_the_old_window_after_k_seconds() {
        let mut cubic = Cubic { window: 1000, threshold: 1000, ..Cubic::default() };
        assert_eq!(cubic.handle_loss(), 700);
        cubic.window = 700;
        // K = cbrt(300 / 0.4) = 9.09 s. Reno gains 0.53 segments per round trip of 100 ms, 48 by then.
        let (mut now_ns, mut halfway) = (0, 0);
        while now_ns < 9_090 * MS {
            let each_ns = 100 * MS / u64::from(cubic.window);
            now_ns += each_ns;
            cubic.handle_acked(now_ns, 1);
            if now_ns <= 4_545 * MS {
                halfway = cubic.window;
            }
        }
        // Halfway it is 1000 - 0.4 * 4.545^3 = 962.
        assert!((955..=968).contains(&halfway) && (990..=1003).contains(&cubic.window), "{halfway} {}", cubic.window);
    }
}
