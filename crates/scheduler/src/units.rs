//! Data rates: parsing, printing, and conversion between bytes and time.

use core::{fmt, str::FromStr};

/// A data rate in bits per second. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// The smallest rate that makes sense for an uplink.
    pub const MIN: Self = Self(8_000);
    /// The largest rate: one terabit per second.
    pub const MAX: Self = Self(1_000_000_000_000);

    /// The rate, or `None` outside [`Rate::MIN`] and [`Rate::MAX`].
    pub const fn from_bits_per_second(bits: u64) -> Option<Self> {
        if bits < Self::MIN.0 || bits > Self::MAX.0 { None } else { Some(Self(bits)) }
    }

    /// The rate nearest to `bits` within [`Rate::MIN`] and [`Rate::MAX`].
    pub fn clamped(bits: f64) -> Self {
        // The cast turns a NaN into 0, which becomes the minimum.
        Self((bits as u64).clamp(Self::MIN.0, Self::MAX.0))
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Bytes per second.
    pub fn bytes_per_second(self) -> f64 {
        self.0 as f64 / 8.0
    }

    /// This rate times `factor`, kept within [`Rate::MIN`] and [`Rate::MAX`].
    pub fn scaled(self, factor: f64) -> Self {
        Self::clamped(self.0 as f64 * factor)
    }

    /// Time in which `bytes` leave at this rate, in nanoseconds, rounded up.
    pub const fn ns_for(self, bytes: u64) -> u64 {
        let ns = (bytes as u128 * 8_000_000_000).div_ceil(self.0 as u128);
        if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 }
    }

    /// Bytes that leave at this rate in `ns` nanoseconds, rounded down.
    pub const fn bytes_in(self, ns: u64) -> u64 {
        let bytes = ns as u128 * self.0 as u128 / 8_000_000_000;
        if bytes > u64::MAX as u128 { u64::MAX } else { bytes as u64 }
    }
}

/// Why a text is not a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateError {
    /// The text does not begin with a number.
    Number,
    /// The unit is unknown.
    Unit,
    /// The rate is below 8 kbit/s or above 1 Tbit/s.
    Range,
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number => "a rate starts with a number, as in `10mbit` or `12.5 Mbit/s`",
            Self::Unit => {
                "unknown unit of rate: use bit, kbit, mbit or gbit (optionally `/s` or `ps`), or MB/s and the like for bytes"
            }
            Self::Range => "a rate lies between 8kbit and 1000gbit",
        })
    }
}

impl core::error::Error for RateError {}

impl FromStr for Rate {
    type Err = RateError;

    /// Parses `10mbit`, `12.5 Mbit/s`, `1gbit`, `100Mbps`, `1.25MB/s`, `800 kbit`, `5000000bit`. Prefixes are
    /// decimal in either case, as `tc` has it for bits; a capital `B` at the end means bytes. The unit is
    /// required.
    fn from_str(text: &str) -> Result<Self, RateError> {
        let text = text.trim();
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
        let number: alloc::string::String = text[..end].chars().filter(|&c| c != '_').collect();
        let number: f64 = number.parse().map_err(|_| RateError::Number)?;
        let unit = text[end..].trim();
        let unit = unit.strip_suffix("/s").or_else(|| unit.strip_suffix("ps")).unwrap_or(unit);
        let (factor, rest) = match unit.chars().next().ok_or(RateError::Unit)? {
            'k' | 'K' => (1e3, &unit[1..]),
            'm' | 'M' => (1e6, &unit[1..]),
            'g' | 'G' => (1e9, &unit[1..]),
            't' | 'T' => (1e12, &unit[1..]),
            _ => (1.0, unit),
        };
        let bits = match rest {
            "b" | "bit" | "bits" | "Bit" | "Bits" | "BIT" => 1.0,
            "B" | "byte" | "bytes" | "Byte" | "Bytes" => 8.0,
            _ => return Err(RateError::Unit),
        };
        let value = number * factor * bits;
        if !(Self::MIN.0 as f64..=Self::MAX.0 as f64).contains(&value) {
            return Err(RateError::Range);
        }
        Ok(Self::clamped(value))
    }
}

impl fmt::Display for Rate {
    /// Writes a text that [`Rate::from_str`] accepts, in the largest unit that leaves a number above one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (divisor, unit) = match self.0 {
            1_000_000_000.. => (1_000_000_000, "gbit"),
            1_000_000.. => (1_000_000, "mbit"),
            1_000.. => (1_000, "kbit"),
            _ => (1, "bit"),
        };
        if self.0.is_multiple_of(divisor) {
            write!(f, "{}{unit}", self.0 / divisor)
        } else {
            write!(f, "{:.3}{unit}", self.0 as f64 / divisor as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn bits(text: &str) -> Result<u64, RateError> {
        text.parse::<Rate>().map(Rate::bits_per_second)
    }

    #[test]
    fn rates_as_people_write_them() {
        assert_eq!(bits("10mbit"), Ok(10_000_000));
        assert_eq!(bits("12.5 Mbit/s"), Ok(12_500_000));
        assert_eq!(bits("1gbit"), Ok(1_000_000_000));
        assert_eq!(bits("100Mbps"), Ok(100_000_000));
        assert_eq!(bits("1.25MB/s"), Ok(10_000_000));
        assert_eq!(bits(" 800 kbit "), Ok(800_000));
        assert_eq!(bits("5_000_000bit"), Ok(5_000_000));
    }

    #[test]
    fn what_is_not_a_rate_says_why() {
        assert_eq!(bits("fast"), Err(RateError::Number));
        assert_eq!(bits(""), Err(RateError::Number));
        assert_eq!(bits("-1mbit"), Err(RateError::Number));
        assert_eq!(bits("1.2.3mbit"), Err(RateError::Number));
        assert_eq!(bits("10"), Err(RateError::Unit));
        assert_eq!(bits("10parsec"), Err(RateError::Unit));
        assert_eq!(bits("10mé"), Err(RateError::Unit));
        assert_eq!(bits("0mbit"), Err(RateError::Range));
        assert_eq!(bits("9000gbit"), Err(RateError::Range));
    }

    #[test]
    fn a_rate_is_read_back_as_written() {
        for text in ["10mbit", "1gbit", "64kbit", "9.700mbit"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn time_and_bytes_are_inverse_up_to_rounding() {
        let rate: Rate = "10mbit".parse().unwrap();
        assert_eq!(rate.ns_for(1250), 1_000_000);
        assert_eq!(rate.bytes_in(1_000_000), 1250);
        assert_eq!(Rate::MIN.ns_for(u64::MAX), u64::MAX);
        assert_eq!(Rate::MAX.bytes_in(u64::MAX), u64::MAX);
    }
}
