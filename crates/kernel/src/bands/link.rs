//! Bursts, frames and packets that fit a link of a given rate.

/// Most segments in one packet: one up to 50 Mbit/s, and above as many as take a quarter of a millisecond, at least two.
/// Never more than the device had before. A packet that was begun holds up all others.
pub fn gso_max_segs(rate_bits_per_second: u64, before: u32) -> u32 {
    const WORTH_MERGING_BITS_PER_SECOND: u64 = 50_000_000;
    const FRAME_BITS: u64 = 1514 * 8;
    let segments = if rate_bits_per_second <= WORTH_MERGING_BITS_PER_SECOND {
        1
    } else {
        (rate_bits_per_second / 4_000 / FRAME_BITS).max(2)
    };
    u32::try_from(segments).unwrap_or(u32::MAX).min(before.max(1))
}

/// The largest frame, with room for a VLAN tag and the like.
pub fn frame_bytes(mtu_bytes: u32) -> u32 {
    mtu_bytes.saturating_add(100)
}

/// Bytes that may leave at once: a quarter of a millisecond, which timers can follow, and at least one frame.
pub fn burst_bytes(rate_bits_per_second: u64, mtu_bytes: u32) -> u64 {
    (rate_bits_per_second / 8 / 4_000).max(frame_bytes(mtu_bytes).into())
}

/// The smallest rate that the kernel can express. It counts the time for a burst in 32 bits as ticks of 64
/// ns, which is at most 274 s; here it is 100 s.
pub fn own_rate_bits_per_second(burst_bytes: u32) -> u64 {
    u64::from(burst_bytes).div_ceil(100).max(16) * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates that a device can be given.
    const RATE_MIN_BITS_PER_SECOND: u64 = 16_000;
    const RATE_MAX_BITS_PER_SECOND: u64 = 400_000_000_000;

    #[test]
    fn a_packet_takes_at_most_a_quarter_of_a_millisecond_from_100_mbit_on() {
        assert_eq!(gso_max_segs(1_000_000, 65_535), 1);
        assert_eq!(gso_max_segs(50_000_000, 65_535), 1);
        assert_eq!(gso_max_segs(100_000_000, 65_535), 2);
        assert_eq!(gso_max_segs(1_000_000_000, 65_535), 20);
        assert_eq!(gso_max_segs(100_000_000_000, 65_535), 2064);
    }

    #[test]
    fn a_device_is_never_given_more_segments_than_it_had() {
        assert_eq!(gso_max_segs(1_000_000_000, 16), 16);
        assert_eq!(gso_max_segs(1_000_000_000, 0), 1);
    }

    #[test]
    fn a_burst_time_fits_the_kernels_ticks_at_every_mtu_and_rate() {
        for mtu_bytes in [68, 1500, 9000, 65_536] {
            let frame = frame_bytes(mtu_bytes);
            let own_bytes_per_second = own_rate_bits_per_second(frame) / 8;
            assert!(u64::from(frame) * 15_625_000 / own_bytes_per_second < u64::from(u32::MAX), "mtu {mtu_bytes}");
            assert!(burst_bytes(RATE_MIN_BITS_PER_SECOND, mtu_bytes) * 8 / RATE_MIN_BITS_PER_SECOND < 274);
        }
        assert!(burst_bytes(RATE_MAX_BITS_PER_SECOND, 1500) < u64::from(u32::MAX));
    }
}
