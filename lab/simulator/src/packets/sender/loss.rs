//! Loss: its detection, and the amount sent during recovery.

use super::{
    super::receiver::Ack,
    rate::Snapshot,
    segments::{CongestionState, Outgoing, Probe, Rack, Recovery, Sender, Timer},
};

/// The effect of an acknowledgement.
#[derive(Default)]
pub(super) struct Arrived {
    /// Round trip of the earliest-sent acknowledged segment that was sent once.
    pub first_rtt_ns: Option<u64>,
    /// The same of the latest-sent one.
    pub last_rtt_ns: Option<u64>,
    /// Delivery state of the segment sent last.
    pub snapshot: Option<Snapshot>,
    snapshot_sent_ns: u64,
}

impl Sender {
    /// Removes acknowledged segments and marks out-of-order ones.
    pub(super) fn take_acked(&mut self, now_ns: u64, ack: Ack) -> Arrived {
        let mut arrived = Arrived::default();
        while let Some(segment) = self.flight.front() {
            let end = segment.seq + u64::from(segment.payload_bytes);
            if end > ack.next {
                break;
            }
            self.una = end;
            self.arrive(now_ns, 0, &mut arrived);
            let Some(segment) = self.flight.pop_front() else { break };
            if segment.sacked {
                self.sacked -= 1;
            }
        }
        if let Some((from, to)) = ack.sack {
            let first = self.flight.partition_point(|segment| segment.seq < from);
            for at in first..self.flight.len() {
                if self.flight[at].seq >= to {
                    break;
                }
                self.arrive(now_ns, at, &mut arrived);
                if !self.flight[at].sacked {
                    self.flight[at].sacked = true;
                    self.sacked += 1;
                    self.highest_sacked = self.highest_sacked.max(self.flight[at].seq);
                }
            }
        }
        arrived
    }

    /// Marks the segment at this index as arrived.
    fn arrive(&mut self, now_ns: u64, at: usize, arrived: &mut Arrived) {
        let segment = &mut self.flight[at];
        if segment.sacked {
            return;
        }
        self.to_resend -= u32::from(segment.lost && !segment.retransmitted);
        self.lost -= u32::from(std::mem::take(&mut segment.lost));
        self.retransmitted -= u32::from(std::mem::take(&mut segment.retransmitted));
        let rtt_ns = now_ns.saturating_sub(segment.sent_ns);
        if !segment.ambiguous {
            arrived.first_rtt_ns.get_or_insert(rtt_ns);
            arrived.last_rtt_ns = Some(rtt_ns);
            self.reordered |= segment.seq < self.highest_sacked;
        }
        if arrived.snapshot.is_none() || segment.sent_ns >= arrived.snapshot_sent_ns {
            (arrived.snapshot, arrived.snapshot_sent_ns) = (Some(segment.snapshot), segment.sent_ns);
        }
        let (sent_ns, end) = (segment.sent_ns, segment.seq + u64::from(segment.payload_bytes));
        // A round trip below the minimum answers an earlier copy.
        let is_older_copy = segment.ambiguous && self.times.least_ns.is_some_and(|least_ns| rtt_ns < least_ns);
        if !is_older_copy {
            self.rack.advanced = true;
            self.rack.rtt_ns = rtt_ns;
            if (sent_ns, end) > (self.rack.sent_ns, self.rack.end) {
                (self.rack.sent_ns, self.rack.end) = (sent_ns, end);
            }
        }
        self.delivery.deliver(now_ns);
    }

    /// RACK: a segment sent before an arrived one is lost when it is overdue.
    pub(super) fn find_losses(&mut self, now_ns: u64) {
        let doubtful = self.sacked > 0 || self.retransmitted > 0 || self.state == CongestionState::Loss;
        let Rack { sent_ns: newest_ns, end: newest_end, rtt_ns, .. } = self.rack;
        if !std::mem::take(&mut self.rack.advanced) || !doubtful {
            return;
        }
        let patience_ns = self.reordering_window_ns();
        let mut wait_ns = 0;
        for segment in &mut self.flight {
            let end = segment.seq + u64::from(segment.payload_bytes);
            if segment.sacked
                || (segment.lost && !segment.retransmitted)
                || (segment.sent_ns, end) >= (newest_ns, newest_end)
            {
                continue;
            }
            let due_ns = segment.sent_ns + rtt_ns + patience_ns;
            if due_ns > now_ns {
                wait_ns = wait_ns.max(due_ns - now_ns);
                continue;
            }
            if !segment.lost {
                segment.lost = true;
                self.lost += 1;
            }
            self.retransmitted -= u32::from(std::mem::take(&mut segment.retransmitted));
            self.to_resend += 1;
        }
        if wait_ns > 0 {
            self.timer = Some((now_ns + wait_ns, Timer::Reordering));
        }
        if self.lost > 0 && matches!(self.state, CongestionState::Open | CongestionState::Reduced) {
            self.begin_reduction(CongestionState::Recovery);
        }
    }

    fn reordering_window_ns(&self) -> u64 {
        const SACKED_ENOUGH: u32 = 3;
        let sure =
            matches!(self.state, CongestionState::Recovery | CongestionState::Loss) || self.sacked >= SACKED_ENOUGH;
        if !self.reordered && sure {
            return 0;
        }
        let quarter_ns = self.times.least_ns.unwrap_or(0) / 4;
        quarter_ns.min(self.times.smoothed_ns.unwrap_or(0))
    }

    /// Reduces the window; as it shrinks, arriving segments allow about as many departures (PRR).
    pub(super) fn begin_reduction(&mut self, state: CongestionState) {
        if self.state == CongestionState::Open {
            let prior_window = self.cubic.window;
            self.cubic.handle_loss();
            self.recovery = Recovery { until: self.next, prior_window, delivered: 0, sent: 0 };
        }
        self.recovery.until = self.next;
        self.state = state;
    }

    /// Ends a state once its segments are acknowledged.
    pub(super) fn end_state(&mut self) {
        if self.state == CongestionState::Open || self.una < self.recovery.until {
            return;
        }
        if matches!(self.state, CongestionState::Recovery | CongestionState::Reduced) {
            self.cubic.window = self.cubic.threshold;
        }
        self.state = CongestionState::Open;
    }

    /// Proportional rate reduction.
    pub(super) fn reduce(&mut self, delivered: u32, clean: bool) {
        if delivered == 0 {
            return;
        }
        let (in_flight, target) = (self.in_flight(), self.cubic.threshold);
        let Recovery { prior_window, sent, .. } = self.recovery;
        self.recovery.delivered += delivered;
        let may = if in_flight > target {
            let due = (u64::from(target) * u64::from(self.recovery.delivered)).div_ceil(u64::from(prior_window.max(1)));
            (due as u32).saturating_sub(sent)
        } else {
            let conserved = self.recovery.delivered.saturating_sub(sent).max(delivered);
            (conserved + u32::from(clean)).min(target - in_flight)
        };
        // The first retransmission does not wait.
        let may = may.max(u32::from(sent == 0));
        self.cubic.window = in_flight + may;
    }

    /// The retransmission timer expired: all segments count as lost.
    pub(super) fn time_out(&mut self, now_ns: u64) {
        if self.flight.is_empty() {
            return;
        }
        if self.state != CongestionState::Loss {
            self.cubic.handle_loss();
        }
        self.cubic.handle_timeout();
        for segment in &mut self.flight {
            segment.retransmitted = false;
            segment.lost = !segment.sacked;
        }
        self.retransmitted = 0;
        self.lost = self.flight.len() as u32 - self.sacked;
        self.to_resend = self.lost;
        self.cubic.window = 1;
        self.state = CongestionState::Loss;
        self.recovery.until = self.next;
        self.probed = None;
        self.times.backoff += 1;
        self.timer = Some((now_ns + self.timeout_ns(), Timer::Retransmit));
    }

    /// Tail loss probe: sends new data or the last segment again, so that the client reports its state.
    pub(super) fn probe(&mut self, now_ns: u64) -> Option<Outgoing> {
        if self.flight.is_empty() {
            return None;
        }
        let mut outgoing = None;
        if self.probed.is_none() {
            let retransmission = self.unsent_bytes == 0;
            outgoing = Some(if retransmission { self.resend_last(now_ns) } else { self.send(now_ns) });
            self.probed = Some(Probe { end: self.next, retransmission });
        }
        self.timer = Some((self.overdue_ns(now_ns), Timer::Retransmit));
        outgoing
    }

    fn resend_last(&mut self, now_ns: u64) -> Outgoing {
        self.resend(now_ns, self.flight.len() - 1)
    }

    pub(super) fn end_probe(&mut self, ack: Ack, advanced: bool, delivered: bool) {
        let Some(Probe { end, retransmission }) = self.probed.filter(|probe| ack.next >= probe.end) else { return };
        if !retransmission || ack.duplicate {
            self.probed = None;
        } else if ack.next > end {
            // Later data was acknowledged but not the probe's copy: the probe repaired a loss.
            self.probed = None;
            if self.state == CongestionState::Open {
                self.cubic.window = self.cubic.handle_loss();
            }
        } else if !advanced && !delivered {
            self.probed = None;
        }
    }
}
