//! Round trips of data on a connection that is in use: from two looks at what TCP tells of it.

use scheduler::estimate::{RttKind, round_trip_of_means};

use super::transport::Measurements;

/// What TCP told of a connection at the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    mean_ns: u64,
    acked_bytes: u64,
    acked_segments: u32,
    bare_acks: u32,
}

/// A round trip says nothing of the queue now, if it ended longer ago than this.
const FRESH_MS: u32 = 10;
const NS_PER_MS: u64 = 1_000_000;

impl Look {
    /// `None` before the first round trip was measured.
    pub fn new(measured: &Measurements) -> Option<Self> {
        let mean_ns = measured.path.filter(|path| path.rtt_ns > 0)?.rtt_ns;
        let &Measurements { acked_bytes, acked_segments, bare_acks, .. } = measured;
        Some(Self { mean_ns, acked_bytes, acked_segments, bare_acks })
    }

    /// The round trip that was measured between the look `before` and this one, in nanoseconds. `None` if none was
    /// measured just now. `has_read`: the client has just sent something.
    pub fn round_trip(&self, before: &Self, measured: &Measurements, has_read: bool) -> Option<(u64, RttKind)> {
        let mean_ms = u32::try_from(self.mean_ns / NS_PER_MS).unwrap_or(u32::MAX);
        let is_fresh = measured.last_ack_ms <= FRESH_MS && measured.last_sent_ms <= mean_ms.saturating_add(FRESH_MS);
        let is_acked = self.acked_bytes > before.acked_bytes;
        let segments = self.acked_segments.wrapping_sub(before.acked_segments);
        let bare_acks = self.bare_acks.wrapping_sub(before.bare_acks);
        // TCP acknowledges every second segment at least. The last ones are acknowledged by the next request, if that comes
        // before the delay of an acknowledgement is over.
        let is_late = has_read && bare_acks < segments.div_ceil(2);
        let acks = bare_acks.saturating_add(u32::from(is_late)).max(1).min(segments);
        let rtt_ns = round_trip_of_means(before.mean_ns, self.mean_ns, acks).filter(|_| is_fresh && is_acked)?;
        Some((rtt_ns, if is_late { RttKind::LateData } else { RttKind::Data }))
    }
}

#[cfg(test)]
mod tests {
    use scheduler::Path;

    use super::*;

    const MS: u64 = NS_PER_MS;

    /// A connection as TCP tells of it.
    struct Connection {
        mean_us: f64,
        measured: Measurements,
    }

    impl Connection {
        /// After a handshake of 10 ms.
        fn new() -> Self {
            let measured = Measurements {
                path: Some(Path { rtt_ns: 10 * MS, ..Path::UNKNOWN }),
                acked_bytes: 1,
                acked_segments: 0,
                bare_acks: u32::MAX,
                last_ack_ms: 0,
                last_sent_ms: 0,
            };
            Self { mean_us: 10_000.0, measured }
        }

        /// Two segments were acknowledged after this time.
        fn handle_ack(&mut self, rtt_us: f64) {
            self.mean_us += (rtt_us - self.mean_us) / 8.0;
            self.measured.path = Some(Path { rtt_ns: self.mean_us as u64 * 1_000, ..Path::UNKNOWN });
            self.measured.acked_bytes += 2_896;
            self.measured.acked_segments += 2;
            self.measured.bare_acks = self.measured.bare_acks.wrapping_add(1);
        }

        fn look(&self) -> Look {
            Look::new(&self.measured).expect("the handshake was measured")
        }

        /// The round trip since then, in milliseconds.
        fn since(&self, before: &Look) -> Option<f64> {
            let (rtt_ns, _) = self.look().round_trip(before, &self.measured, false)?;
            Some(rtt_ns as f64 / MS as f64)
        }
    }

    #[test]
    fn all_acknowledgements_since_the_last_look_count() {
        for acks in 1..30 {
            let mut connection = Connection::new();
            let before = connection.look();
            for _ in 0..acks {
                connection.handle_ack(30_000.0);
            }
            assert!((connection.since(&before).expect("acknowledged") - 30.0).abs() < 0.02, "{acks}");
        }
    }

    #[test]
    fn an_acknowledgement_that_came_with_the_next_request_counts_as_one_and_is_late() {
        let round_trip = |connection: &Connection, before: &Look, has_read: bool| {
            let (rtt_ns, kind) =
                connection.look().round_trip(before, &connection.measured, has_read).expect("acknowledged");
            ((rtt_ns as f64 / MS as f64).round(), kind)
        };
        for bare_acks in 0..5 {
            let mut connection = Connection::new();
            let before = connection.look();
            (0..bare_acks).for_each(|_| connection.handle_ack(30_000.0));
            if bare_acks > 0 {
                assert_eq!(round_trip(&connection, &before, true), (30.0, RttKind::Data), "{bare_acks}");
            }
            connection.handle_ack(30_000.0);
            connection.measured.bare_acks = connection.measured.bare_acks.wrapping_sub(1);
            assert_eq!(round_trip(&connection, &before, true), (30.0, RttKind::LateData), "{bare_acks}");
        }
    }

    #[test]
    fn old_ones_and_repeated_looks_tell_nothing() {
        let mut connection = Connection::new();
        let before = connection.look();
        assert_eq!(connection.since(&before), None, "nothing was acknowledged");
        connection.handle_ack(30_000.0);
        connection.measured.last_ack_ms = 11;
        assert_eq!(connection.since(&before), None, "the acknowledgement is old");
        (connection.measured.last_ack_ms, connection.measured.last_sent_ms) = (0, 23);
        assert_eq!(connection.since(&before), None, "the client thought for a while, and its next request is new");
        connection.measured.last_sent_ms = 22;
        assert!(connection.since(&before).is_some());
        // A kernel that does not count segments.
        connection.measured.acked_segments = 0;
        assert_eq!(connection.since(&before), None);
    }
}
