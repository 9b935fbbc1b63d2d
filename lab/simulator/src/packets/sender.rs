//! A server's TCP: which segment is sent when, as in Linux.
//!
//! It has SACK, RACK-TLP (RFC 8985) with PRR (RFC 6937), retransmission time-outs (RFC 6298 with Linux's
//! minimum of 200 ms), and windows that do not grow while unused. TCP small queues limit a connection's part
//! of its own device's queue.

mod loss;
mod rate;

use std::collections::VecDeque;

use self::rate::{Delivery, Snapshot};
use super::{cubic::Cubic, receiver::Ack};

/// The server's side of a connection's stream. Call [`Sender::poll_segment`] after every event.
#[derive(Debug)]
pub(super) struct Sender {
    segment_bytes: u32,
    /// `None` where frames leave the sender's own device at once.
    small_queue: Option<SmallQueue>,
    cubic: Cubic,
    state: State,
    flight: VecDeque<Segment>,
    una: u64,
    next: u64,
    unsent_bytes: u64,
    sacked: u32,
    lost: u32,
    /// Lost segments that were not sent again yet.
    to_resend: u32,
    retransmitted: u32,
    /// Memory of this connection's frames in the device's queue.
    queued_bytes: u64,
    recovery: Recovery,
    rack: Rack,
    reordered: bool,
    highest_sacked: u64,
    /// The last tail loss probe.
    probed: Option<Probe>,
    times: Times,
    timer: Option<(u64, Timer)>,
    delivery: Delivery,
    last_sent_ns: u64,
    use_of_window: Use,
}

/// Linux limits a connection's part of its own device's queue, by the memory that it takes there.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmallQueue {
    /// Segments in a packet of the stack.
    pub gso_segments: u32,
}

/// Memory of a packet beside its bytes: an sk_buff and its shared info.
const SKB_BYTES: u64 = 1280;
/// The queue may hold a millisecond's worth at the pacing rate (2^-10 s).
const SMALL_QUEUE_S: f64 = 1.0 / 1024.0;
/// `tcp_limit_output_bytes`.
const SMALL_QUEUE_MOST_BYTES: u64 = 4 << 20;

/// A segment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outgoing {
    pub seq: u64,
    pub payload_bytes: u32,
    /// No segment follows it.
    pub pushed: bool,
    /// It is a retransmission.
    pub again: bool,
}

/// Measured round trips.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    smoothed_ns: Option<u64>,
    deviation_ns: u64,
    least_ns: Option<u64>,
    backoff: u32,
    /// Bytes per second: the window over the round trip, and a margin to grow.
    pacing: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The device's queue was full: the window is reduced, nothing was lost.
    Reduced,
    Recovery,
    Loss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Retransmit,
    Probe,
    Reordering,
    /// Nothing is under way, because the device refused it.
    Refused,
}

#[derive(Debug)]
struct Segment {
    seq: u64,
    payload_bytes: u32,
    pushed: bool,
    sent_ns: u64,
    sacked: bool,
    lost: bool,
    retransmitted: bool,
    /// It was sent more than once.
    ambiguous: bool,
    snapshot: Snapshot,
}

#[derive(Clone, Copy, Debug, Default)]
struct Recovery {
    until: u64,
    prior_window: u32,
    delivered: u32,
    sent: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rack {
    sent_ns: u64,
    end: u64,
    rtt_ns: u64,
    advanced: bool,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    end: u64,
    retransmission: bool,
}

/// Whether the window limits the connection.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    limited: bool,
    most_out: u32,
    round_end: u64,
    used: u32,
    stamped_ns: u64,
}

const LEAST_TIMEOUT_NS: u64 = 200_000_000;
const INITIAL_TIMEOUT_NS: u64 = 1_000_000_000;
const MOST_TIMEOUT_NS: u64 = 120_000_000_000;
/// Delay of a probe beyond two round trips: 2 ms, rounded up to a tick of 250 Hz.
const PROBE_SLACK_NS: u64 = 4_000_000;

impl Sender {
    pub fn new(segment_bytes: u32, small_queue: Option<SmallQueue>) -> Self {
        Self {
            segment_bytes,
            small_queue,
            cubic: Cubic::default(),
            state: State::Open,
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

    /// The handshake ended. `rtt_ns` is its round trip, if the SYN-ACK was sent once.
    pub fn handle_established(&mut self, now_ns: u64, rtt_ns: Option<u64>) {
        if let Some(rtt_ns) = rtt_ns {
            self.measure(rtt_ns);
        }
        self.last_sent_ns = now_ns;
        self.use_of_window.stamped_ns = now_ns;
        self.pace();
    }

    /// The server writes.
    pub fn handle_write(&mut self, now_ns: u64, bytes: u64) {
        if self.flight.is_empty() && self.unsent_bytes == 0 && bytes > 0 {
            self.restart_after_idle(now_ns);
        }
        self.unsent_bytes += bytes;
    }

    /// A frame of this connection left the device.
    pub fn handle_left(&mut self, payload_bytes: u32) {
        self.queued_bytes = self.queued_bytes.saturating_sub(self.memory_of(payload_bytes));
    }

    /// Bytes written and not sent.
    pub fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }

    /// Whether a FIN that follows at once can be sent with data. The data may be unsent, or a short last
    /// segment that is held back while the device has others of this connection (`tcp_autocorking`).
    pub fn keeps_tail(&self) -> bool {
        let is_corked = self.flight.back().is_some_and(|last| {
            last.payload_bytes < self.segment_bytes && self.queued_bytes > self.memory_of(last.payload_bytes)
        });
        self.unsent_bytes > 0 || is_corked
    }

    /// Bytes that the socket accepts now if `limit_bytes` may be unsent: those sent at once, and those that
    /// may wait, in whole segments.
    pub fn room_bytes(&self, limit_bytes: u64) -> u64 {
        let segment_bytes = u64::from(self.segment_bytes);
        let now = if self.is_throttled(1) { 0 } else { u64::from(self.cubic.window.saturating_sub(self.in_flight())) };
        let waiting = limit_bytes.saturating_sub(self.unsent_bytes).div_ceil(segment_bytes);
        (now + waiting).saturating_mul(segment_bytes)
    }

    /// The path as the system would report it.
    pub fn path(&self) -> Option<scheduler::Path> {
        let rtt_ns = self.times.smoothed_ns?;
        Some(scheduler::Path {
            rtt_ns,
            window_segments: self.cubic.window,
            mss_bytes: self.segment_bytes,
            delivery_bytes_per_second: self.delivery.bytes_per_second(self.segment_bytes),
        })
    }

    /// The next segment to send, if any is allowed. `has_place`: whether the device's queue accepts it.
    pub fn poll_segment(&mut self, now_ns: u64, has_place: bool) -> Option<Outgoing> {
        let outgoing = match self.next_lost() {
            Some(at) => {
                if self.in_flight() >= self.cubic.window || self.is_throttled(2) {
                    return None;
                }
                if !has_place {
                    self.handle_refused(now_ns);
                    return None;
                }
                self.resend(now_ns, at)
            }
            None => {
                if self.unsent_bytes == 0 {
                    self.note_limits(false);
                    return None;
                }
                if self.in_flight() >= self.cubic.window {
                    self.validate(now_ns, true);
                    return None;
                }
                if self.is_throttled(1) {
                    return None;
                }
                if !has_place {
                    self.handle_refused(now_ns);
                    return None;
                }
                self.send(now_ns)
            }
        };
        Some(outgoing)
    }

    /// When to call [`Sender::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<u64> {
        self.timer.map(|(at_ns, _)| at_ns)
    }

    /// The timer expired. Returns the segment to send at once, regardless of the window.
    pub fn handle_timeout(&mut self, now_ns: u64) -> Option<Outgoing> {
        let (_, timer) = self.timer.filter(|&(at_ns, _)| at_ns <= now_ns)?;
        self.timer = None;
        match timer {
            Timer::Retransmit => {
                self.time_out(now_ns);
                None
            }
            Timer::Probe => self.probe(now_ns),
            Timer::Reordering => {
                self.rack.advanced = true;
                let was_open = self.state == State::Open;
                self.find_losses(now_ns);
                if was_open && self.state == State::Recovery {
                    self.reduce(1, false);
                }
                if self.timer.is_none() {
                    self.timer = Some((self.overdue_ns(now_ns), Timer::Retransmit));
                }
                None
            }
            Timer::Refused => None,
        }
    }

    /// A client's acknowledgement.
    pub fn handle_ack(&mut self, now_ns: u64, ack: Ack) {
        let (una_before, delivered_before) = (self.una, self.delivery.delivered);
        let arrived = self.take_acked(now_ns, ack);
        let delivered = (self.delivery.delivered - delivered_before) as u32;
        let advanced = self.una > una_before;
        if let Some(rtt_ns) = arrived.first_rtt_ns {
            self.measure(rtt_ns);
        }
        if advanced {
            self.times.backoff = 0;
        }
        if let Some(rtt_ns) = arrived.last_rtt_ns {
            let slack_ns = self.times.pacing.map_or(0, |pacing| ((262_144.0 / pacing * 1e9) as u64).min(1_000_000));
            self.cubic.handle_rtt(now_ns, rtt_ns, self.una, self.next, slack_ns);
        }
        self.end_probe(ack, advanced, delivered > 0);
        self.end_state();
        let lost_before = self.lost;
        self.find_losses(now_ns);
        match self.state {
            State::Recovery | State::Reduced => self.reduce(delivered, advanced && self.lost <= lost_before),
            State::Open | State::Loss if delivered > 0 && advanced && self.is_limited() => {
                self.cubic.handle_acked(now_ns, delivered);
            }
            State::Open | State::Loss => {}
        }
        self.delivery.sample(now_ns, arrived.snapshot, self.times.least_ns);
        self.pace();
        if self.flight.is_empty() {
            self.timer = None;
        } else if delivered > 0 && !matches!(self.timer, Some((_, Timer::Reordering))) {
            self.arm(now_ns, true);
        }
    }

    fn in_flight(&self) -> u32 {
        self.flight.len() as u32 - self.sacked - self.lost + self.retransmitted
    }

    fn memory_of(&self, payload_bytes: u32) -> u64 {
        let gso_segments = self.small_queue.map_or(1, |small_queue| small_queue.gso_segments.max(1));
        u64::from(payload_bytes) + SKB_BYTES / u64::from(gso_segments)
    }

    /// TCP small queues: whether the device holds enough of this connection. `factor` is 2 for
    /// retransmissions.
    fn is_throttled(&self, factor: u64) -> bool {
        let Some(SmallQueue { gso_segments }) = self.small_queue else { return false };
        let skb = u64::from(gso_segments.max(1)) * u64::from(self.segment_bytes) + SKB_BYTES;
        let paced = self.times.pacing.map_or(u64::MAX, |pacing| (pacing * SMALL_QUEUE_S) as u64);
        let limit = (2 * skb).max(paced).min(SMALL_QUEUE_MOST_BYTES) * factor;
        // One byte is always charged.
        self.queued_bytes + 1 > limit && self.flight.len() > 1
    }

    fn send(&mut self, now_ns: u64) -> Outgoing {
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
        self.note_limits(self.in_flight() >= self.cubic.window);
        self.validate(now_ns, self.in_flight() >= self.cubic.window);
        self.arm(now_ns, false);
        Outgoing { seq, payload_bytes, pushed, again: false }
    }

    fn resend(&mut self, now_ns: u64, at: usize) -> Outgoing {
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

    fn sent(&mut self, now_ns: u64, payload_bytes: u32) {
        self.last_sent_ns = now_ns;
        if self.small_queue.is_some() {
            self.queued_bytes += self.memory_of(payload_bytes);
        }
        if matches!(self.state, State::Recovery | State::Reduced) {
            self.recovery.sent += 1;
        }
    }

    /// The device's queue is full and refused the segment.
    fn handle_refused(&mut self, now_ns: u64) {
        if self.state == State::Open {
            self.begin_reduction(State::Reduced);
        }
        if self.flight.is_empty() && self.timer.is_none() {
            self.timer = Some((now_ns + self.timeout_ns(), Timer::Refused));
        }
    }

    fn note_limits(&mut self, window_limited: bool) {
        if self.unsent_bytes == 0 && !window_limited {
            let in_flight = self.in_flight();
            self.delivery.limit_by_application(in_flight);
        }
    }

    /// Congestion window validation: whether the window is used, and the reduction of an unused one.
    fn validate(&mut self, now_ns: u64, limited: bool) {
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
            let used = it.used.max(super::cubic::INITIAL_WINDOW);
            (it.used, it.stamped_ns) = (0, now_ns);
            if self.state == State::Open && used < self.cubic.window {
                self.cubic.threshold = self.cubic.threshold.max(self.cubic.window / 4 * 3);
                self.cubic.window = (self.cubic.window + used) / 2;
            }
        }
    }

    fn is_limited(&self) -> bool {
        let Use { limited, most_out, .. } = self.use_of_window;
        limited || (self.cubic.in_slow_start() && self.cubic.window < 2 * most_out)
    }

    /// After a pause the old window may be too large: it halves with each time-out that passed.
    fn restart_after_idle(&mut self, now_ns: u64) {
        let timeout_ns = self.timeout_ns();
        let mut idle_ns = now_ns.saturating_sub(self.last_sent_ns);
        if idle_ns <= timeout_ns {
            return;
        }
        if self.state == State::Open {
            self.cubic.threshold = self.cubic.threshold.max(self.cubic.window / 4 * 3);
        }
        let least = self.cubic.window.min(super::cubic::INITIAL_WINDOW);
        while idle_ns > timeout_ns && self.cubic.window > least {
            self.cubic.window /= 2;
            idle_ns -= timeout_ns;
        }
        self.cubic.window = self.cubic.window.max(least);
        (self.use_of_window.used, self.use_of_window.stamped_ns) = (0, now_ns);
    }

    fn measure(&mut self, rtt_ns: u64) {
        let times = &mut self.times;
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

    fn pace(&mut self) {
        let Some(smoothed_ns) = self.times.smoothed_ns else { return };
        let Cubic { window, threshold, .. } = self.cubic;
        let margin = if window < threshold / 2 { 2.0 } else { 1.2 };
        let segments = window.max(self.flight.len() as u32);
        let bytes = f64::from(segments) * f64::from(self.segment_bytes);
        self.times.pacing = Some(margin * bytes * 1e9 / smoothed_ns.max(1) as f64);
    }

    fn timeout_ns(&self) -> u64 {
        let Times { smoothed_ns, deviation_ns, backoff, .. } = self.times;
        let plain_ns = smoothed_ns
            .map_or(INITIAL_TIMEOUT_NS, |smoothed_ns| smoothed_ns + (4 * deviation_ns).max(LEAST_TIMEOUT_NS));
        plain_ns.saturating_mul(1 << backoff.min(20)).min(MOST_TIMEOUT_NS)
    }
}

#[cfg(test)]
mod tests;
