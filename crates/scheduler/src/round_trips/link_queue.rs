//! The queue that a link of some rate has of what was sent here.

use super::RoundTrips;
use crate::time::Instant;

/// The queue of a link at some time, when so many bytes had been sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub at: Instant,
    pub sent_bytes: f64,
    pub ns: f64,
}

impl RoundTrips {
    /// The queue, in nanoseconds, that a link of this rate, in bits per second, has of what was sent here, at each of these times,
    /// which are in order.
    pub(super) fn queues_ns(
        &self,
        bits: f64,
        begins: Queue,
        times: impl Iterator<Item = Instant>,
    ) -> impl Iterator<Item = f64> {
        let first = self.points.partition_point(|it| it.at <= begins.at);
        let mut points = self.points.range(first..).peekable();
        let Queue { mut at, mut sent_bytes, mut ns } = begins;
        times.map(move |time| {
            while let Some(point) = points.next_if(|point| point.at <= time) {
                let came_ns = 8e9 * (point.sent_bytes as f64 - sent_bytes) / bits;
                ns = (ns - point.at.ns_since(at) as f64).max(0.0) + came_ns;
                (at, sent_bytes) = (point.at, point.sent_bytes as f64);
            }
            (ns - time.ns_since(at) as f64).max(0.0)
        })
    }
}
