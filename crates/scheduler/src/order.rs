//! The order of service: which job of a class goes first.
//!
//! An order computes a number from the state of a job; the job with the smallest number goes first. The
//! number changes only through events of the job (bytes sent, path measured) and never with time alone, so
//! waiting jobs stay sorted.

use core::{fmt, str::FromStr};

use crate::{
    job::{Job, Size},
    processor_sharing::FRACTION_BITS as SHARING_FRACTION_BITS,
    time::Instant,
    units::Rate,
};

/// The order in which jobs are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Processor sharing: all jobs in turn.
    Fair,
    /// First come, first served.
    Fifo,
    /// Shortest remaining processing time: fewest bytes left.
    Srpt,
    /// Shortest remaining response time: includes round-trip time and congestion window.
    Srrt,
    /// Shortest total estimated response time.
    Stert,
    /// Size, and distance of the client in round trips.
    Swift,
    /// Fastest connection first: size over throughput.
    Fcf,
    /// Least attained service.
    Las,
    /// Fair sojourn protocol: the job that fair sharing would finish first.
    Fsp,
    /// Two bands by size; the jobs within each take turns.
    QuickFix,
}

impl Order {
    /// All orders, as shown to users.
    pub const ALL: [Self; 10] = [
        Self::Fair,
        Self::Fifo,
        Self::Srpt,
        Self::Srrt,
        Self::Stert,
        Self::Swift,
        Self::Fcf,
        Self::Las,
        Self::Fsp,
        Self::QuickFix,
    ];

    /// Whether the order needs round-trip times and congestion windows, so that they must be measured.
    pub const fn needs_path(self) -> bool {
        matches!(self, Self::Srrt | Self::Stert | Self::Swift | Self::Fcf)
    }

    /// Whether places depend on the uplink's rate, so that a new rate reorders the waiting jobs.
    pub(crate) const fn needs_rate(self) -> bool {
        matches!(self, Self::Swift)
    }

    /// The job's key after `served_bytes`: the smallest goes first. `rate` is the uplink's, `small_bytes` the
    /// cutoff of [`Order::QuickFix`].
    ///
    /// Where an order needs an unknown size, attained service replaces the remaining work. A response of
    /// unknown length is treated as if it had as much left as it has had. For heavy tails this is a fair
    /// guess.
    pub(crate) fn key(self, job: &Job, served_bytes: u64, rate: Option<Rate>, small_bytes: u64) -> u64 {
        let ahead_bytes = job.ahead_after(served_bytes);
        match self {
            Self::Fair => job.share_tag_bytes,
            Self::Fifo => job.sequence,
            Self::Srpt => ahead_bytes,
            Self::Srrt => job.remaining_response_ns(ahead_bytes),
            Self::Stert => {
                let elapsed_ns = job.waited_until.ns_since(job.arrived);
                let past = if elapsed_ns == 0 { 0.0 } else { served_bytes as f64 / elapsed_ns as f64 };
                let current = job.path.bytes_per_round() / job.path.rtt_ns.max(1) as f64;
                // Before the first byte is sent, the past rate says nothing.
                let bytes_per_ns =
                    if past > 0.0 { STERT_ALPHA * past + (1.0 - STERT_ALPHA) * current } else { current };
                let remaining_ns = job.path.rtt_ns as f64 + ahead_bytes as f64 / bytes_per_ns;
                // TERT = RRT + (now - arrived). `now` is the same for all jobs, so it is left out; a constant
                // keeps the number positive.
                (remaining_ns as u64).saturating_add(NEVER_NS.saturating_sub(job.arrived.as_ns()))
            }
            Self::Swift => {
                let rounds = slow_start_rounds(ahead_bytes, job.path.mss_bytes);
                let transmission_ns = rate.map_or(ahead_bytes, |rate| rate.ns_for(ahead_bytes));
                job.path.rtt_ns.saturating_mul(rounds).saturating_add(transmission_ns)
            }
            Self::Fcf => {
                let bytes_per_second = match job.path.delivery_bytes_per_second {
                    0 => job.path.bytes_per_round() * 1e9 / job.path.rtt_ns.max(1) as f64,
                    measured => measured as f64,
                };
                (ahead_bytes as f64 * 1e9 / bytes_per_second) as u64
            }
            Self::Las => served_bytes,
            Self::Fsp => match job.size {
                Size::Known(_) => job.sharing_tag,
                // Fair sharing cannot tell when this job would end, so it goes behind the jobs that are due
                // by now.
                Size::Unknown => job.sharing_tag.saturating_add(served_bytes << SHARING_FRACTION_BITS),
            },
            Self::QuickFix => {
                let large = match job.size {
                    Size::Known(size) => size >= small_bytes,
                    Size::Unknown => true,
                };
                // Both bands share one counter of turns. That is exact as long as small means less than a
                // chunk.
                (u64::from(large) << 63) | (job.share_tag_bytes & (u64::MAX >> 1))
            }
        }
    }

    /// The measure by which bands divide jobs; `None` for an order that cannot be banded.
    ///
    /// It is in bytes for `srpt` and `las`, in nanoseconds for the orders that estimate times, 0 or 1 for
    /// `quick-fix`. `fair` and `fifo` have one band. `fsp` cannot be banded, since its tags grow without end.
    pub(crate) fn measure(self, job: &Job, now: Instant, rate: Option<Rate>, small_bytes: u64) -> Option<u64> {
        let key = self.key(job, job.attained_bytes, rate, small_bytes);
        match self {
            Self::Srpt | Self::Srrt | Self::Swift | Self::Fcf | Self::Las => Some(key),
            Self::Stert => Some(key.saturating_sub(NEVER_NS.saturating_sub(now.as_ns()))),
            Self::QuickFix => Some(key >> 63),
            Self::Fair | Self::Fifo => Some(0),
            Self::Fsp => None,
        }
    }

    /// The name in configuration, flags and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::Fifo => "fifo",
            Self::Srpt => "srpt",
            Self::Srrt => "srrt",
            Self::Stert => "stert",
            Self::Swift => "swift",
            Self::Fcf => "fcf",
            Self::Las => "las",
            Self::Fsp => "fsp",
            Self::QuickFix => "quick-fix",
        }
    }
}

/// Weight of the past transfer rate in [`Order::Stert`] ("Implementation of a New Scheduling Policy in Web
/// Servers", appendix A).
const STERT_ALPHA: f64 = 0.9;

/// Far beyond any arrival: 146 years.
const NEVER_NS: u64 = 1 << 62;

/// The initial congestion window of today's TCP, in segments (RFC 6928).
const INITIAL_WINDOW_SEGMENTS: u64 = 10;

/// Round trips of slow start for `bytes`, with the request's own: windows of 10, 20, 40 ... segments, so that
/// `n` rounds carry `10 * (2^n - 1)`.
fn slow_start_rounds(bytes: u64, mss_bytes: u32) -> u64 {
    let segments = bytes.div_ceil(u64::from(mss_bytes.max(1)));
    let windows = segments.saturating_sub(1) / INITIAL_WINDOW_SEGMENTS + 1;
    1 + u64::from(windows.ilog2())
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not the name of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOrder;

impl fmt::Display for UnknownOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown order; the orders are")?;
        for (i, order) in Order::ALL.iter().enumerate() {
            write!(f, "{} {order}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownOrder {}

impl FromStr for Order {
    type Err = UnknownOrder;

    fn from_str(text: &str) -> Result<Self, UnknownOrder> {
        Self::ALL.into_iter().find(|order| order.name() == text).ok_or(UnknownOrder)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn names_are_read_back_as_written() {
        for order in Order::ALL {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        assert_eq!("SRPT".parse::<Order>(), Err(UnknownOrder), "names are lower case");
        assert_eq!(
            UnknownOrder.to_string(),
            "unknown order; the orders are fair, fifo, srpt, srrt, stert, swift, fcf, las, fsp, quick-fix"
        );
    }

    #[test]
    fn a_full_window_of_slow_start_takes_no_further_round() {
        for (segments, rounds) in [(0, 1), (1, 1), (10, 1), (11, 2), (30, 2), (31, 3), (70, 3), (71, 4), (150, 4)] {
            assert_eq!(slow_start_rounds(segments * 1448, 1448), rounds, "{segments} segments");
        }
        assert_eq!(slow_start_rounds(1448 * 10 + 1, 1448), 2, "a byte more is a segment more");
        assert_eq!(slow_start_rounds(u64::MAX, 0), 61);
    }
}
