//! Round trips of data on a connection that is in use: from two looks at what TCP tells of it.

use std::time::Duration;

use scheduler::estimate::{RoundTrip, RttKind, are_prompt, round_trip_of_means};

use super::transport::Measurements;

/// What TCP told of a connection at the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    mean_ns: u64,
    acked_bytes: u64,
    acked_segments: u32,
    bare_acks: u32,
}

/// When TCP is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// Before bytes are sent, or at the start of the connection.
    Write,
    /// The client has just sent something.
    Read,
    /// Neither.
    Rest,
}

/// Linux counts times in ticks, of 4 ms as a rule. A round trip is taken to have ended a tick later than told. So the bytes
/// that were sent with it count as sent.
const TICK_MS: u32 = 4;
const NS_PER_MS: u64 = 1_000_000;

impl Look {
    /// `None` before the first round trip was measured.
    pub fn new(measured: &Measurements) -> Option<Self> {
        let mean_ns = measured.path.filter(|path| path.rtt_ns > 0)?.rtt_ns;
        let &Measurements { acked_bytes, acked_segments, bare_acks, .. } = measured;
        Some(Self { mean_ns, acked_bytes, acked_segments, bare_acks })
    }

    /// TCP's mean of the round trips.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.mean_ns)
    }

    /// How long nothing was sent, beyond the time in which the last bytes were acknowledged. If that is long, the last
    /// acknowledgement may be that of the client's next request.
    pub fn idle_ns(&self, measured: &Measurements) -> u64 {
        (u64::from(measured.last_sent_ms) * NS_PER_MS).saturating_sub(self.mean_ns)
    }

    /// The round trip that was measured between the look `before` and this one; `None` if none was.
    pub fn round_trip(
        &self,
        path: u64,
        before: &Self,
        measured: &Measurements,
        occasion: Occasion,
    ) -> Option<RoundTrip> {
        let age_ns = u64::from(measured.last_ack_ms.saturating_sub(TICK_MS)) * NS_PER_MS;
        let is_acked = self.acked_bytes > before.acked_bytes;
        let segments = self.acked_segments.wrapping_sub(before.acked_segments);
        let bare_acks = self.bare_acks.wrapping_sub(before.bare_acks);
        // TCP acknowledges every second segment at least. The last ones are acknowledged by the next request, if that comes
        // before the delay of an acknowledgement is over.
        let is_with_request = occasion == Occasion::Read && bare_acks < segments.div_ceil(2);
        let acks = bare_acks.saturating_add(u32::from(is_with_request)).max(1).min(segments);
        let ns = round_trip_of_means(before.mean_ns, self.mean_ns, acks).filter(|_| is_acked)?;
        let is_late = match occasion {
            Occasion::Write => false,
            Occasion::Read => is_with_request,
            Occasion::Rest => !are_prompt(segments.into(), bare_acks.into()),
        };
        Some(RoundTrip { path, ns, kind: if is_late { RttKind::LateData } else { RttKind::Data }, age_ns })
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
                unacked_segments: 0,
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
            let RoundTrip { ns, .. } = self.look().round_trip(7, before, &self.measured, Occasion::Write)?;
            Some(ns as f64 / MS as f64)
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
        let round_trip = |connection: &Connection, before: &Look, occasion| {
            let RoundTrip { ns, kind, .. } =
                connection.look().round_trip(7, before, &connection.measured, occasion).expect("acknowledged");
            ((ns as f64 / MS as f64).round(), kind)
        };
        for bare_acks in 0..5 {
            let mut connection = Connection::new();
            let before = connection.look();
            (0..bare_acks).for_each(|_| connection.handle_ack(30_000.0));
            if bare_acks > 0 {
                assert_eq!(round_trip(&connection, &before, Occasion::Read), (30.0, RttKind::Data), "{bare_acks}");
            }
            connection.handle_ack(30_000.0);
            connection.measured.bare_acks = connection.measured.bare_acks.wrapping_sub(1);
            assert_eq!(round_trip(&connection, &before, Occasion::Read), (30.0, RttKind::LateData), "{bare_acks}");
        }
    }

    #[test]
    fn an_acknowledgement_that_may_have_been_delayed_is_late() {
        let kind = |segments: u32, acks: u32| {
            let mut connection = Connection::new();
            let before = connection.look();
            connection.handle_ack(30_000.0);
            connection.measured.acked_segments = segments;
            connection.measured.bare_acks = before.bare_acks.wrapping_add(acks);
            connection.look().round_trip(7, &before, &connection.measured, Occasion::Rest).expect("acknowledged").kind
        };
        for (segments, acks) in [(2, 1), (8, 4), (2, 2), (5, 5)] {
            assert_eq!(kind(segments, acks), RttKind::Data, "{segments} by {acks}");
        }
        for (segments, acks) in [(1, 1), (3, 2), (5, 3), (4, 3)] {
            assert_eq!(kind(segments, acks), RttKind::LateData, "{segments} by {acks}");
        }
    }

    #[test]
    fn a_round_trip_has_an_age() {
        let mut connection = Connection::new();
        let before = connection.look();
        connection.handle_ack(30_000.0);
        let mut age_ms = |last_ack_ms| {
            connection.measured.last_ack_ms = last_ack_ms;
            let round_trip = connection.look().round_trip(7, &before, &connection.measured, Occasion::Write);
            round_trip.expect("acknowledged").age_ns / MS
        };
        assert_eq!([0, 4, 5, 20].map(&mut age_ms), [0, 0, 1, 16]);
    }

    #[test]
    fn a_connection_is_idle_after_its_last_acknowledgement() {
        let mut connection = Connection::new();
        // The mean is 12.5 ms then.
        connection.handle_ack(30_000.0);
        let mut idle_ms = |last_sent_ms| {
            connection.measured.last_sent_ms = last_sent_ms;
            connection.look().idle_ns(&connection.measured) as f64 / MS as f64
        };
        assert_eq!([5, 22].map(&mut idle_ms), [0.0, 9.5]);
    }

    #[test]
    fn repeated_looks_tell_nothing_nor_does_a_kernel_that_counts_no_segments() {
        let mut connection = Connection::new();
        let before = connection.look();
        assert_eq!(connection.since(&before), None, "nothing was acknowledged");
        connection.handle_ack(30_000.0);
        assert!(connection.since(&before).is_some());
        connection.measured.acked_segments = 0;
        assert_eq!(connection.since(&before), None);
    }
}
