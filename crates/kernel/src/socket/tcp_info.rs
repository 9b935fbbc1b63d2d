//! The kernel's record of a TCP connection, `struct tcp_info` of linux/tcp.h.
//!
//! The struct only ever grows at its end, and the kernel returns how many bytes it wrote. So it is read by
//! offset, and a field that an older kernel lacks reads as zero.

/// The kernel's state of a TCP connection. Times are in microseconds.
///
/// A counter that the running kernel lacks reads 0; Linux 4.19 has them all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// The state of the connection.
    pub state: TcpState,
    /// Time after which unacknowledged data is sent again.
    pub rto_us: u32,
    /// Smoothed round trip time; 0 before the first sample.
    pub rtt_us: u32,
    /// Time since payload was last sent, in milliseconds.
    pub last_data_sent_ms: u32,
    /// Time since the last acknowledgement: the least age of `rtt_us`, in milliseconds.
    pub last_ack_received_ms: u32,
    /// Mean deviation of the round trip time.
    pub rtt_var_us: u32,
    /// Smallest round trip time seen within the kernel's window (`net.ipv4.tcp_min_rtt_wlen`, 300 s); `None`
    /// before the first sample, and before Linux 4.6.
    pub min_rtt_us: Option<u32>,
    /// Congestion window in segments of `snd_mss_bytes`.
    pub snd_cwnd_segments: u32,
    /// Payload of a full segment sent.
    pub snd_mss_bytes: u32,
    /// Payload delivered per second in the latest sample; 0 before the first one.
    pub delivery_rate_bytes_per_second: u64,
    /// Whether that sample was limited by the application, so that the path may be faster.
    pub delivery_rate_app_limited: bool,
    /// The rate at which the kernel paces the connection; `u64::MAX` when it does not.
    pub pacing_rate_bytes_per_second: u64,
    /// Payload that was acknowledged.
    pub bytes_acked: u64,
    /// Payload sent, retransmissions included.
    pub bytes_sent: u64,
    /// Payload sent again.
    pub bytes_retrans: u64,
    /// Segments sent, with and without payload.
    pub segs_out: u32,
    /// Segments received, with and without payload.
    pub segs_in: u32,
    /// Segments received with payload.
    pub data_segs_in: u32,
    /// Segments that the peer's machine has acknowledged; one that was sent again may count twice.
    pub delivered_segments: u32,
    /// Bytes in the send buffer that were not sent yet.
    pub notsent_bytes: u32,
    /// Segments sent and not acknowledged.
    pub unacked_segments: u32,
    /// Segments thought lost and not recovered yet.
    pub lost_segments: u32,
    /// Retransmitted segments so far.
    pub total_retrans_segments: u32,
    /// Reorderings seen so far.
    pub reorderings: u32,
    /// Time with data to send or to be acknowledged.
    pub busy_time_us: u64,
    /// Part of the busy time that the peer's window limited.
    pub rwnd_limited_us: u64,
    /// Part of the busy time that our send buffer limited.
    pub sndbuf_limited_us: u64,
}

/// The state of a TCP connection (RFC 9293, section 3.3.2; numbers of linux/tcp_states.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub enum TcpState {
    Established,
    SynSent,
    SynReceived,
    FinWait1,
    FinWait2,
    TimeWait,
    #[default]
    Closed,
    CloseWait,
    LastAck,
    Listen,
    Closing,
    /// A state that this program does not know.
    Other(u8),
}

impl TcpState {
    fn from_kernel(number: u8) -> Self {
        match number {
            1 => Self::Established,
            2 => Self::SynSent,
            // 12 is TCP_NEW_SYN_RECV, a connection that exists as a request only.
            3 | 12 => Self::SynReceived,
            4 => Self::FinWait1,
            5 => Self::FinWait2,
            6 => Self::TimeWait,
            7 => Self::Closed,
            8 => Self::CloseWait,
            9 => Self::LastAck,
            10 => Self::Listen,
            11 => Self::Closing,
            other => Self::Other(other),
        }
    }
}

/// Bytes of the struct up to the last field that is read.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(super) const KERNEL_STRUCT_BYTES: usize = 224;

impl TcpInfo {
    /// Parses the kernel's struct, or as much of it as the kernel wrote.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(super) fn parse(record: &[u8]) -> Self {
        let u8_at = |offset: usize| record.get(offset).copied().unwrap_or(0);
        let u32_at = |offset: usize| {
            record.get(offset..offset + 4).map_or(0, |bytes| u32::from_ne_bytes(bytes.try_into().unwrap_or_default()))
        };
        let u64_at = |offset: usize| {
            record.get(offset..offset + 8).map_or(0, |bytes| u64::from_ne_bytes(bytes.try_into().unwrap_or_default()))
        };
        // All ones mean that there is no sample yet.
        let min_rtt_us = Some(u32_at(148)).filter(|&us| us != u32::MAX && us != 0);
        // A bit-field is laid out from the low bit on little-endian machines and from the high bit on
        // big-endian ones.
        let app_limited_bit = if cfg!(target_endian = "little") { 0x01 } else { 0x80 };
        Self {
            state: TcpState::from_kernel(u8_at(0)),
            rto_us: u32_at(8),
            rtt_us: u32_at(68),
            last_data_sent_ms: u32_at(44),
            last_ack_received_ms: u32_at(56),
            rtt_var_us: u32_at(72),
            min_rtt_us,
            snd_cwnd_segments: u32_at(80),
            snd_mss_bytes: u32_at(16),
            delivery_rate_bytes_per_second: u64_at(160),
            delivery_rate_app_limited: u8_at(7) & app_limited_bit != 0,
            pacing_rate_bytes_per_second: u64_at(104),
            bytes_acked: u64_at(120),
            bytes_sent: u64_at(200),
            bytes_retrans: u64_at(208),
            segs_out: u32_at(136),
            segs_in: u32_at(140),
            data_segs_in: u32_at(152),
            delivered_segments: u32_at(192),
            notsent_bytes: u32_at(144),
            unacked_segments: u32_at(24),
            lost_segments: u32_at(32),
            total_retrans_segments: u32_at(100),
            reorderings: u32_at(220),
            busy_time_us: u64_at(168),
            rwnd_limited_us: u64_at(176),
            sndbuf_limited_us: u64_at(184),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_at_their_offsets() {
        let mut record = [0; KERNEL_STRUCT_BYTES];
        record[0] = 8;
        record[7] = if cfg!(target_endian = "little") { 1 } else { 0x80 };
        record[68..72].copy_from_slice(&90_000u32.to_ne_bytes());
        record[148..152].copy_from_slice(&80_000u32.to_ne_bytes());
        record[200..208].copy_from_slice(&(5u64 << 32).to_ne_bytes());
        let info = TcpInfo::parse(&record);
        assert_eq!(info.state, TcpState::CloseWait);
        assert!(info.delivery_rate_app_limited);
        assert_eq!((info.rtt_us, info.min_rtt_us, info.bytes_sent), (90_000, Some(80_000), 5 << 32));
    }

    #[test]
    fn a_shorter_struct_of_an_older_kernel_reads_zero_beyond_its_end() {
        let record = [0xff; 104];
        let info = TcpInfo::parse(&record);
        assert_eq!(info.rtt_us, u32::MAX);
        assert_eq!((info.min_rtt_us, info.bytes_sent, info.delivery_rate_bytes_per_second), (None, 0, 0));
        assert_eq!(TcpInfo::parse(&[]), TcpInfo { state: TcpState::Other(0), ..TcpInfo::default() });
    }

    #[test]
    fn no_round_trip_yet_is_not_a_round_trip_of_an_hour() {
        let mut record = [0; KERNEL_STRUCT_BYTES];
        record[148..152].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(TcpInfo::parse(&record).min_rtt_us, None);
    }
}
