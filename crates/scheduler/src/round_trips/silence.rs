//! A link that has become far slower: its queue grows to seconds, and nothing that is sent into it comes back in time.
//!
//! Clients send their data and handshakes again then, and such packets are not measured. So there are no round trips that
//! would show the rate, and the queue only passes if far less is sent.

use super::{RoundTrips, Sample};
use crate::time::{Instant, MS};

/// Silence is so long without a round trip, beyond the usual ones, though so many grants were sent as long ago.
const SILENT_NS: u64 = 400 * MS;
const SILENT_CHUNKS: u64 = 8;
/// And so many times the bytes from one round trip to the next, as a mean over so many or more. Where clients keep their
/// connections, few are measured.
const SILENT_GAPS: u64 = 12;
const GAPS_LEAST: u64 = 4;
/// The last round trip met at least this queue beyond the pacer's own. Where clients have gone away, none has.
const SILENT_QUEUE_NS: u64 = 50 * MS;
/// In a silence the rate of a drain becomes this part of itself, down to this part of the known rate.
const DEEPER: f64 = 0.25;
const DEEPEST: f64 = 1.0 / 16.0;
impl RoundTrips {
    /// The part of the known rate that is sent after this one in a silence.
    pub fn deeper(gain: f64) -> f64 {
        (gain * DEEPER).max(DEEPEST)
    }

    /// Whether packets are sent into a queue that none comes back from.
    pub fn is_silent(&self, now: Instant) -> bool {
        let silent_ns = SILENT_NS + 2 * self.rtt_ns();
        let Some((_, sent_bytes)) = self.last.filter(|(at, _)| now.ns_since(*at) >= silent_ns) else { return false };
        let met_queue = |it: &Sample| it.above_ns.is_none_or(|above_ns| above_ns > it.own_ns + SILENT_QUEUE_NS);
        let due = self.points.iter().rev().find(|it| now.ns_since(it.at) >= silent_ns);
        let due_bytes = due.map_or(0, |it| it.sent_bytes.saturating_sub(sent_bytes));
        due_bytes >= SILENT_CHUNKS * self.chunk_bytes
            && self.samples.back().is_some_and(met_queue)
            && self.usual_gap_bytes().is_some_and(|gap_bytes| due_bytes >= SILENT_GAPS * gap_bytes)
    }

    /// Bytes that pass from one round trip to the next, as a mean. `None` where few were measured.
    fn usual_gap_bytes(&self) -> Option<u64> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let gaps = self.samples.len() as u64 - 1;
        let bytes = (last.delivered_bytes - first.delivered_bytes).max(0.0) as u64;
        (gaps >= GAPS_LEAST).then(|| bytes / gaps)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Load, RoundTrip, RttKind},
        *,
    };

    const CHUNK_BYTES: u64 = 4_344;
    const CHUNK_MS: u64 = 4;

    /// Round trips of a second, one in so many milliseconds: of 1 ms, and from 800 ms on of so much more. A grant is sent
    /// every 4 ms, for so long after the last round trip. Also returns the time.
    fn second(every_ms: u64, more_ms: impl Fn(u64) -> u64, after_ms: u64) -> (RoundTrips, Instant) {
        let (mut seen, mut now) = (RoundTrips::default(), Instant::ORIGIN);
        for at_ms in 0..=1_000 + after_ms {
            now = Instant::from_ns(at_ms * MS);
            let sent_bytes = at_ms / CHUNK_MS * CHUNK_BYTES;
            seen.handle_load(now, Load { sent_bytes, room_at: now, waits: true, chunk_bytes: CHUNK_BYTES });
            if at_ms <= 1_000 && at_ms % every_ms == 0 {
                let rtt_ms = 1 + if at_ms < 800 { 0 } else { more_ms(at_ms - 800) };
                seen.handle_round_trip(
                    now,
                    RoundTrip { path: 7, ns: rtt_ms * MS, kind: RttKind::Handshake, age_ns: 0 },
                    0,
                );
            }
        }
        (seen, now)
    }

    fn is_silent(every_ms: u64, more_ms: u64, after_ms: u64) -> bool {
        let (seen, now) = second(every_ms, |_| more_ms, after_ms);
        seen.is_silent(now)
    }

    #[test]
    fn nothing_comes_back_from_a_long_queue() {
        assert!(is_silent(1, 150, 440));
        assert!(!is_silent(1, 150, 350), "not for long yet");
        assert!(!is_silent(1, 20, 440), "the clients have gone");
        assert!(!is_silent(1, 150, 420), "only five grants are due");
    }

    #[test]
    fn where_round_trips_are_few_a_silence_is_longer() {
        assert!(!is_silent(40, 150, 760), "nine should have come");
        assert!(is_silent(40, 150, 840));
        assert!(!is_silent(300, 150, 6_000), "too few to know what is usual");
    }

    #[test]
    fn a_round_trip_that_is_told_ends_a_silence() {
        let (mut seen, now) = second(1, |_| 150, 440);
        seen.handle_round_trip(now, RoundTrip { path: 7, ns: 500 * MS, kind: RttKind::Data, age_ns: 0 }, 0);
        assert!(!seen.is_silent(now));
    }

    #[test]
    fn a_round_trip_of_seconds_counts() {
        let (mut seen, now) = second(10, |_| 0, 6_000);
        seen.handle_round_trip(now, RoundTrip { path: 7, ns: 5_500 * MS, kind: RttKind::Handshake, age_ns: 0 }, 0);
        let last = seen.samples.back().expect("it is kept");
        assert_eq!(last.rtt_ns, 5_500 * MS);
        let delivered_bytes = 1_500.0 / CHUNK_MS as f64 * CHUNK_BYTES as f64;
        assert!((last.delivered_bytes / delivered_bytes - 1.0).abs() < 0.03, "{last:?}, {delivered_bytes} bytes");
    }
}
