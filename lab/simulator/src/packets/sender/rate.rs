//! Delivery rate, as Linux estimates it (Cheng, Cardwell, "Delivery Rate Estimation", Internet draft).

/// The delivery state when a segment was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Snapshot {
    delivered: u64,
    delivered_ns: u64,
    first_sent_ns: u64,
    sent_ns: u64,
    limited: bool,
}

/// Segments delivered so far, and the rate of the last sample.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    pub delivered: u64,
    delivered_ns: u64,
    first_sent_ns: u64,
    /// Until this count, the server had too little data for the path's rate to show.
    limited_until: u64,
    segments_per_second: Option<f64>,
}

impl Delivery {
    /// A segment is sent after an idle period.
    pub fn restart(&mut self, now_ns: u64) {
        (self.first_sent_ns, self.delivered_ns) = (now_ns, now_ns);
    }

    pub fn snapshot(&self, now_ns: u64) -> Snapshot {
        Snapshot {
            delivered: self.delivered,
            delivered_ns: self.delivered_ns,
            first_sent_ns: self.first_sent_ns,
            sent_ns: now_ns,
            limited: self.limited_until > 0,
        }
    }

    pub fn limit_by_application(&mut self, in_flight: u32) {
        self.limited_until = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// A segment was delivered now.
    pub fn deliver(&mut self, now_ns: u64) {
        self.delivered += 1;
        self.delivered_ns = now_ns;
        if self.limited_until > 0 && self.delivered > self.limited_until {
            self.limited_until = 0;
        }
    }

    /// Takes a rate sample. `last` is the latest-sent segment of an acknowledgement.
    pub fn sample(&mut self, now_ns: u64, last: Option<Snapshot>, least_rtt_ns: Option<u64>) {
        let Some(last) = last else { return };
        self.first_sent_ns = last.sent_ns;
        let sending_ns = last.sent_ns.saturating_sub(last.first_sent_ns);
        let coming_ns = now_ns.saturating_sub(last.delivered_ns);
        let interval_ns = sending_ns.max(coming_ns);
        if interval_ns == 0 || interval_ns < least_rtt_ns.unwrap_or(0) {
            return;
        }
        let rate = (self.delivered - last.delivered) as f64 * 1e9 / interval_ns as f64;
        if !last.limited || self.segments_per_second.is_none_or(|before| rate >= before) {
            self.segments_per_second = Some(rate);
        }
    }

    /// Zero before the first sample.
    pub fn bytes_per_second(&self, segment_bytes: u32) -> u64 {
        self.segments_per_second.map_or(0, |segments| (segments * f64::from(segment_bytes)) as u64)
    }
}
