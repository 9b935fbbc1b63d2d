//! Round trips of data on a connection that is in use.
//!
//! TCP tells a running mean of them. Each acknowledgement of data moves the mean by an eighth of the way to the round trip
//! of that data (RFC 6298, section 2.3). So the mean lags behind a queue, but two of its values, and the number of
//! acknowledgements between them, show what was measured in between.

/// The part of the mean that stays, with each acknowledgement.
const STAYS: f64 = 0.875;

/// The round trip, in nanoseconds, that so many acknowledgements have measured. They changed TCP's mean from `before_ns`
/// to `mean_ns`. If their round trips differ, it is a mean in which the last one counts most. `None` without an
/// acknowledgement, and if it is not above zero: then the acknowledgements were not those between the two values.
pub fn round_trip_of_means(before_ns: u64, mean_ns: u64, acks: u32) -> Option<u64> {
    let stays = libm::pow(STAYS, f64::from(acks));
    let rtt_ns = (mean_ns as f64 - stays * before_ns as f64) / (1.0 - stays);
    (acks > 0 && rtt_ns >= 1.0).then_some(rtt_ns as u64)
}

/// Whether a client has acknowledged so many segments without a delay. TCP acknowledges every second segment at once, or at
/// times each. The acknowledgement of a last one may be delayed (RFC 9293, section 3.8.6.3).
pub fn are_prompt(segments: u64, acks: u64) -> bool {
    2 * acks == segments || segments > 1 && acks == segments
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    /// A handshake of 10 ms, and then these acknowledgements. TCP tells whole microseconds.
    fn measured_ms(rtts_ms: &[f64]) -> Option<f64> {
        let mean_ms = rtts_ms.iter().fold(10.0, |mean_ms, rtt_ms| mean_ms + (rtt_ms - mean_ms) / 8.0);
        let mean_ns = (mean_ms * 1e3) as u64 * 1_000;
        Some(round_trip_of_means(10_000_000, mean_ns, rtts_ms.len() as u32)? as f64 / MS)
    }

    #[test]
    fn a_round_trip_is_known_at_once_while_the_mean_lags_behind() {
        for acks in 1..100 {
            let rtt_ms = measured_ms(&[30.0; 100][..acks]).expect("acknowledged");
            assert!((rtt_ms - 30.0).abs() < 0.02, "{acks}: {rtt_ms}");
        }
    }

    #[test]
    fn of_several_round_trips_the_last_one_counts_most() {
        let later = measured_ms(&[20.0, 20.0, 30.0]).expect("acknowledged");
        let earlier = measured_ms(&[30.0, 20.0, 20.0]).expect("acknowledged");
        assert!((23.4..24.0).contains(&later) && (22.5..23.4).contains(&earlier), "{later} {earlier}");
    }

    #[test]
    fn without_an_acknowledgement_there_is_none() {
        assert_eq!(round_trip_of_means(10_000_000, 10_000_000, 0), None);
        assert_eq!(round_trip_of_means(100_000_000, 1_000_000, 1), None, "more than one has been counted");
    }
}
