//! A server's TCP: which segment is sent when, as in Linux.
//!
//! It has SACK, RACK-TLP (RFC 8985) with PRR (RFC 6937), retransmission time-outs (RFC 6298 with Linux's
//! minimum of 200 ms), and windows that do not grow while unused. TCP small queues limit a connection's part
//! of its own device's queue.

mod loss;
mod rate;
mod segments;

use self::segments::{CongestionState, Timer, Times};
pub(super) use self::segments::{MeanRtt, Outgoing, Sender, SmallQueue};
use super::receiver::Ack;

impl Sender {
    /// The handshake ended. `rtt_ns` is its round trip, if the SYN-ACK was sent once.
    pub fn handle_established(&mut self, now_ns: u64, rtt_ns: Option<u64>) {
        if let Some(rtt_ns) = rtt_ns {
            self.measure(now_ns, rtt_ns);
        }
        self.last_sent_ns = now_ns;
        self.use_of_window.stamped_ns = now_ns;
        self.pace();
    }

    /// So many segments are under way while there is more to send, whatever is lost.
    pub fn fix_window(&mut self, segments: u32) {
        self.fixed_window = Some(segments);
    }

    /// The server writes.
    pub fn handle_write(&mut self, now_ns: u64, bytes: u64) {
        if self.flight.is_empty() && self.unsent_bytes == 0 && bytes > 0 {
            self.restart_after_idle(now_ns);
        }
        self.unsent_bytes += bytes;
    }

    /// The server writes no more, and drops the unsent bytes.
    pub fn handle_no_more(&mut self) {
        self.unsent_bytes = 0;
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
        let now = if self.is_throttled(1) { 0 } else { u64::from(self.window().saturating_sub(self.in_flight())) };
        let waiting = limit_bytes.saturating_sub(self.unsent_bytes).div_ceil(segment_bytes);
        (now + waiting).saturating_mul(segment_bytes)
    }

    /// The mean of the round trips, as the system would report it.
    pub fn mean_rtt(&self) -> Option<MeanRtt> {
        let Times { measured, measured_ns, smoothed_ns, .. } = self.times;
        Some(MeanRtt { ns: smoothed_ns?, measured, measured_ns, segments: self.delivery.delivered })
    }

    /// The path as the system would report it.
    pub fn path(&self) -> Option<scheduler::Path> {
        let rtt_ns = self.times.smoothed_ns?;
        Some(scheduler::Path {
            rtt_ns,
            window_segments: self.window(),
            mss_bytes: self.segment_bytes,
            delivery_bytes_per_second: self.delivery.bytes_per_second(self.segment_bytes),
        })
    }

    /// The next segment to send, if any is allowed. `has_place`: whether the device's queue accepts it.
    pub fn poll_segment(&mut self, now_ns: u64, has_place: bool) -> Option<Outgoing> {
        let outgoing = match self.next_lost() {
            Some(at) => {
                if self.in_flight() >= self.window() || self.is_throttled(2) {
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
                if self.in_flight() >= self.window() {
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
                let was_open = self.state == CongestionState::Open;
                self.find_losses(now_ns);
                if was_open && self.state == CongestionState::Recovery {
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
            self.measure(now_ns, rtt_ns);
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
            CongestionState::Recovery | CongestionState::Reduced => {
                self.reduce(delivered, advanced && self.lost <= lost_before)
            }
            CongestionState::Open | CongestionState::Loss if delivered > 0 && advanced && self.is_limited() => {
                self.cubic.handle_acked(now_ns, delivered);
            }
            CongestionState::Open | CongestionState::Loss => {}
        }
        self.delivery.sample(now_ns, arrived.snapshot, self.times.least_ns);
        self.pace();
        if self.flight.is_empty() {
            self.timer = None;
        } else if delivered > 0 && !matches!(self.timer, Some((_, Timer::Reordering))) {
            self.arm(now_ns, true);
        }
    }

    /// The device's queue is full and refused the segment.
    fn handle_refused(&mut self, now_ns: u64) {
        if self.state == CongestionState::Open {
            self.begin_reduction(CongestionState::Reduced);
        }
        if self.flight.is_empty() && self.timer.is_none() {
            self.timer = Some((now_ns + self.timeout_ns(), Timer::Refused));
        }
    }

    /// After a pause the old window may be too large: it halves with each time-out that passed.
    fn restart_after_idle(&mut self, now_ns: u64) {
        let timeout_ns = self.timeout_ns();
        let mut idle_ns = now_ns.saturating_sub(self.last_sent_ns);
        if idle_ns <= timeout_ns {
            return;
        }
        if self.state == CongestionState::Open {
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
}

#[cfg(test)]
mod tests;
