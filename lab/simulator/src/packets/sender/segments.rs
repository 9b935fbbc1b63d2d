//! The state of a sender: its segments under way, its timer, and the transmission of one segment.

use std::collections::VecDeque;

use super::{
    super::cubic::{Cubic, INITIAL_WINDOW},
    rate::{Delivery, Snapshot},
};

/// The server's side of a connection's stream. Call [`Sender::poll_segment`] after every event.
#[derive(Debug)]
pub(in super::super) struct Sender {
    pub(super) segment_bytes: u32,
    /// `None` where frames leave the sender's own device at once.
    pub(super) small_queue: Option<SmallQueue>,
    pub(super) cubic: Cubic,
    /// In place of the window of that, if it is set.
    pub(super) fixed_window: Option<u32>,
    pub(super) state: CongestionState,
    pub(super) flight: VecDeque<Segment>,
    pub(super) una: u64,
    pub(super) next: u64,
    pub(super) unsent_bytes: u64,
    pub(super) sacked: u32,
    pub(super) lost: u32,
    /// Lost segments that were not sent again yet.
    pub(super) to_resend: u32,
    pub(super) retransmitted: u32,
    /// Memory of this connection's frames in the device's queue.
    pub(super) queued_bytes: u64,
    pub(super) recovery: Recovery,
    pub(super) rack: Rack,
    pub(super) reordered: bool,
    pub(super) highest_sacked: u64,
    /// The last tail loss probe.
    pub(super) probed: Option<Probe>,
    pub(super) times: Times,
    pub(super) timer: Option<(u64, Timer)>,
    pub(super) delivery: Delivery,
    pub(super) last_sent_ns: u64,
    pub(super) use_of_window: Use,
}

/// Linux limits a connection's part of its own device's queue, by the memory that it takes there.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct SmallQueue {
    /// Segments in a packet of the stack.
    pub gso_segments: u32,
}

/// Memory of a packet beside its bytes: an sk_buff and its shared info.
pub(in super::super) const SKB_BYTES: u64 = 1280;

/// The queue may hold a millisecond's worth at the pacing rate (2^-10 s).
pub(in super::super) const SMALL_QUEUE_S: f64 = 1.0 / 1024.0;

/// `tcp_limit_output_bytes`.
pub(in super::super) const SMALL_QUEUE_MOST_BYTES: u64 = 4 << 20;

/// A segment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Outgoing {
    pub seq: u64,
    pub payload_bytes: u32,
    /// No segment follows it.
    pub pushed: bool,
    /// It is a retransmission.
    pub again: bool,
}

/// TCP's mean of the round trips: how many it was made of, and when the last one was measured.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct MeanRtt {
    pub ns: u64,
    pub measured: u32,
    pub measured_ns: u64,
    /// Segments that were acknowledged.
    pub segments: u64,
}

/// Measured round trips.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Times {
    /// How many round trips were measured, and when the last one was.
    pub(super) measured: u32,
    pub(super) measured_ns: u64,
    pub(super) smoothed_ns: Option<u64>,
    pub(super) deviation_ns: u64,
    pub(super) least_ns: Option<u64>,
    pub(super) backoff: u32,
    /// Bytes per second: the window over the round trip, and a margin to grow.
    pub(super) pacing: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum CongestionState {
    Open,
    /// The device's queue was full: the window is reduced, nothing was lost.
    Reduced,
    Recovery,
    Loss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Timer {
    Retransmit,
    Probe,
    Reordering,
    /// Nothing is under way, because the device refused it.
    Refused,
}

#[derive(Debug)]
pub(in super::super) struct Segment {
    pub(super) seq: u64,
    pub(super) payload_bytes: u32,
    pub(super) pushed: bool,
    pub(super) sent_ns: u64,
    pub(super) sacked: bool,
    pub(super) lost: bool,
    pub(super) retransmitted: bool,
    /// It was sent more than once.
    pub(super) ambiguous: bool,
    pub(super) snapshot: Snapshot,
}

#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Recovery {
    pub(super) until: u64,
    pub(super) prior_window: u32,
    pub(super) delivered: u32,
    pub(super) sent: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Rack {
    pub(super) sent_ns: u64,
    pub(super) end: u64,
    pub(super) rtt_ns: u64,
    pub(super) advanced: bool,
}

#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Probe {
    pub(super) end: u64,
    pub(super) retransmission: bool,
}

/// Whether the window limits the connection.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Use {
    pub(super) limited: bool,
    pub(super) most_out: u32,
    pub(super) round_end: u64,
    pub(super) used: u32,
    pub(super) stamped_ns: u64,
}

pub(in super::super) const LEAST_TIMEOUT_NS: u64 = 200_000_000;

pub(in super::super) const INITIAL_TIMEOUT_NS: u64 = 1_000_000_000;

pub(in super::super) const MOST_TIMEOUT_NS: u64 = 120_000_000_000;

/// Delay of a probe beyond two round trips: 2 ms, rounded up to a tick of 250 Hz.
pub(in super::super) const PROBE_SLACK_NS: u64 = 4_000_000;

impl Sender {
    pub fn new(segment_bytes: u32, small_queue: Option<SmallQueue>) -> Self {
        Self {
            segment_bytes,
            small_queue,
            cubic: Cubic::default(),
            fixed_window: None,
            state: CongestionState::Open,
            flight: VecDeque::new(),
            una: 0,
            next: 0,
            unsent_bytes: 0,
            sacked: 0,
            lost: 0,
            to_resend: 0,
            retransmitted: 0,
            queued_bytes: 0,
            recovery: Recovery::default(),
            rack: Rack::default(),
            reordered: false,
            highest_sacked: 0,
            probed: None,
            times: Times::default(),
            timer: None,
            delivery: Delivery::default(),
            last_sent_ns: 0,
            use_of_window: Use::default(),
        }
    }

    pub(in super::super) fn in_flight(&self) -> u32 {
        self.flight.len() as u32 - self.sacked - self.lost + self.retransmitted
    }

    pub(super) fn memory_of(&self, payload_bytes: u32) -> u64 {
        let gso_segments = self.small_queue.map_or(1, |small_queue| small_queue.gso_segments.max(1));
        u64::from(payload_bytes) + SKB_BYTES / u64::from(gso_segments)
    }

    /// TCP small queues: whether the device holds enough of this connection. `factor` is 2 for
    /// retransmissions.
    pub(super) fn is_throttled(&self, factor: u64) -> bool {
        let Some(SmallQueue { gso_segments }) = self.small_queue else { return false };
        let skb = u64::from(gso_segments.max(1)) * u64::from(self.segment_bytes) + SKB_BYTES;
        let paced = self.times.pacing.map_or(u64::MAX, |pacing| (pacing * SMALL_QUEUE_S) as u64);
        let limit = (2 * skb).max(paced).min(SMALL_QUEUE_MOST_BYTES) * factor;
        // One byte is always charged.
        self.queued_bytes + 1 > limit && self.flight.len() > 1
    }

    /// How many segments may be under way.
    pub(super) fn window(&self) -> u32 {
        self.fixed_window.unwrap_or(self.cubic.window)
    }

    pub(super) fn send(&mut self, now_ns: u64) -> Outgoing {
        let payload_bytes = self.unsent_bytes.min(u64::from(self.segment_bytes)) as u32;
        if self.in_flight() == 0 {
            self.cubic.handle_idle(now_ns, now_ns.saturating_sub(self.last_sent_ns));
        }
        if self.flight.is_empty() {
            self.delivery.restart(now_ns);
        }
        self.unsent_bytes -= u64::from(payload_bytes);
        let pushed = self.unsent_bytes == 0;
        let seq = self.next;
        self.next += u64::from(payload_bytes);
        self.flight.push_back(Segment {
            seq,
            payload_bytes,
            pushed,
            sent_ns: now_ns,
            sacked: false,
            lost: false,
            retransmitted: false,
            ambiguous: false,
            snapshot: self.delivery.snapshot(now_ns),
        });
        self.sent(now_ns, payload_bytes);
        self.note_limits(self.in_flight() >= self.window());
        self.validate(now_ns, self.in_flight() >= self.window());
        self.arm(now_ns, false);
        Outgoing { seq, payload_bytes, pushed, again: false }
    }

    pub(super) fn resend(&mut self, now_ns: u64, at: usize) -> Outgoing {
        let snapshot = self.delivery.snapshot(now_ns);
        let segment = &mut self.flight[at];
        segment.sent_ns = now_ns;
        segment.ambiguous = true;
        segment.snapshot = snapshot;
        self.to_resend -= u32::from(segment.lost && !segment.retransmitted);
        if !segment.retransmitted {
            segment.retransmitted = true;
            self.retransmitted += 1;
        }
        let Segment { seq, payload_bytes, pushed, .. } = *segment;
        let outgoing = Outgoing { seq, payload_bytes, pushed, again: true };
        self.sent(now_ns, outgoing.payload_bytes);
        if self.timer.is_none() {
            self.arm_retransmission(now_ns);
        }
        outgoing
    }

    pub(super) fn sent(&mut self, now_ns: u64, payload_bytes: u32) {
        self.last_sent_ns = now_ns;
        if self.small_queue.is_some() {
            self.queued_bytes += self.memory_of(payload_bytes);
        }
        if matches!(self.state, CongestionState::Recovery | CongestionState::Reduced) {
            self.recovery.sent += 1;
        }
    }

    pub(super) fn note_limits(&mut self, window_limited: bool) {
        if self.unsent_bytes == 0 && !window_limited {
            let in_flight = self.in_flight();
            self.delivery.limit_by_application(in_flight);
        }
    }

    /// Congestion window validation: whether the window is used, and the reduction of an unused one.
    pub(super) fn validate(&mut self, now_ns: u64, limited: bool) {
        let out = self.flight.len() as u32;
        let it = &mut self.use_of_window;
        if self.una >= it.round_end || limited || (!it.limited && out > it.most_out) {
            (it.limited, it.most_out, it.round_end) = (limited, out, self.next);
        }
        if self.is_limited() {
            (self.use_of_window.used, self.use_of_window.stamped_ns) = (0, now_ns);
            return;
        }
        let timeout_ns = self.timeout_ns();
        let it = &mut self.use_of_window;
        it.used = it.used.max(out);
        if now_ns.saturating_sub(it.stamped_ns) >= timeout_ns {
            let used = it.used.max(INITIAL_WINDOW);
            (it.used, it.stamped_ns) = (0, now_ns);
            if self.state == CongestionState::Open && used < self.cubic.window {
                self.cubic.threshold = self.cubic.threshold.max(self.cubic.window / 4 * 3);
                self.cubic.window = (self.cubic.window + used) / 2;
            }
        }
    }

    pub(super) fn is_limited(&self) -> bool {
        let Use { limited, most_out, .. } = self.use_of_window;
        limited || (self.cubic.in_slow_start() && self.cubic.window < 2 * most_out)
    }

    pub(super) fn measure(&mut self, now_ns: u64, rtt_ns: u64) {
        let times = &mut self.times;
        (times.measured, times.measured_ns) = (times.measured + 1, now_ns);
        times.least_ns = Some(times.least_ns.map_or(rtt_ns, |least_ns| least_ns.min(rtt_ns)));
        match times.smoothed_ns {
            None => {
                times.smoothed_ns = Some(rtt_ns);
                times.deviation_ns = rtt_ns / 2;
            }
            Some(smoothed_ns) => {
                let apart_ns = smoothed_ns.abs_diff(rtt_ns);
                times.deviation_ns = (3 * times.deviation_ns + apart_ns) / 4;
                times.smoothed_ns = Some((7 * smoothed_ns + rtt_ns) / 8);
            }
        }
    }

    pub(super) fn pace(&mut self) {
        let Some(smoothed_ns) = self.times.smoothed_ns else { return };
        let Cubic { window, threshold, .. } = self.cubic;
        let margin = if window < threshold / 2 { 2.0 } else { 1.2 };
        let segments = window.max(self.flight.len() as u32);
        let bytes = f64::from(segments) * f64::from(self.segment_bytes);
        self.times.pacing = Some(margin * bytes * 1e9 / smoothed_ns.max(1) as f64);
    }

    pub(super) fn timeout_ns(&self) -> u64 {
        let Times { smoothed_ns, deviation_ns, backoff, .. } = self.times;
        let plain_ns = smoothed_ns
            .map_or(INITIAL_TIMEOUT_NS, |smoothed_ns| smoothed_ns + (4 * deviation_ns).max(LEAST_TIMEOUT_NS));
        plain_ns.saturating_mul(1 << backoff.min(20)).min(MOST_TIMEOUT_NS)
    }

    /// Sets the timer: for a probe where that is allowed, else for a retransmission. `acked`: an
    /// acknowledgement arrived.
    pub(super) fn arm(&mut self, now_ns: u64, acked: bool) {
        if !matches!(self.state, CongestionState::Open | CongestionState::Reduced) || self.sacked > 0 {
            if acked || self.timer.is_none() {
                self.arm_retransmission(now_ns);
            }
            return;
        }
        let retransmit_ns = self.overdue_ns(now_ns);
        let alone_ns = if self.flight.len() == 1 { LEAST_TIMEOUT_NS } else { PROBE_SLACK_NS };
        let probe_ns = self.times.smoothed_ns.map_or(retransmit_ns, |smoothed_ns| now_ns + 2 * smoothed_ns + alone_ns);
        self.timer = Some(match probe_ns < retransmit_ns {
            true => (probe_ns, Timer::Probe),
            false => (retransmit_ns, Timer::Retransmit),
        });
    }

    pub(super) fn arm_retransmission(&mut self, now_ns: u64) {
        self.timer = Some((now_ns + self.timeout_ns(), Timer::Retransmit));
    }

    /// When the segment that was sent first is overdue.
    pub(super) fn overdue_ns(&self, now_ns: u64) -> u64 {
        let sent_ns = self.flight.front().map_or(now_ns, |segment| segment.sent_ns);
        (sent_ns + self.timeout_ns()).max(now_ns + 1)
    }

    /// Index of the next segment to retransmit.
    pub(super) fn next_lost(&self) -> Option<usize> {
        if self.to_resend == 0 {
            return None;
        }
        self.flight.iter().position(|segment| segment.lost && !segment.retransmitted)
    }
}
