//! Data rates, and a link whose rate may change during a run.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

const NS_PER_S: f64 = 1e9;

/// A data rate in bits per second, between 8 kbit/s and 1 Tbit/s. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "u64")]
pub struct Rate(u64);

impl Rate {
    /// The rate, or `None` outside 8 kbit/s to 1 Tbit/s.
    pub const fn from_bits_per_second(bits: u64) -> Option<Self> {
        if bits < 8_000 || bits > 1_000_000_000_000 { None } else { Some(Self(bits)) }
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Bytes per second.
    pub fn bytes_per_second(self) -> f64 {
        self.0 as f64 / 8.0
    }

    /// Time that `bytes` take at this rate, in nanoseconds.
    pub fn ns_for(self, bytes: f64) -> f64 {
        bytes / self.bytes_per_second() * NS_PER_S
    }
}

impl From<Rate> for u64 {
    fn from(rate: Rate) -> Self {
        rate.0
    }
}

/// A rate in a file: bits per second, or a text such as `10mbit`.
#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl TryFrom<NumberOrText> for Rate {
    type Error = ParseError;

    fn try_from(value: NumberOrText) -> Result<Self, ParseError> {
        match value {
            NumberOrText::Number(bits) => bits.try_into(),
            NumberOrText::Text(text) => text.parse(),
        }
    }
}

impl TryFrom<u64> for Rate {
    type Error = ParseError;

    fn try_from(bits: u64) -> Result<Self, ParseError> {
        Self::from_bits_per_second(bits).ok_or_else(|| ParseError(format!("{bits} bit/s")))
    }
}

impl fmt::Display for Rate {
    /// As `tc` writes it: `10mbit`, `12500kbit`, `1gbit`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits % 1_000_000_000 == 0 => write!(f, "{}gbit", bits / 1_000_000_000),
            bits if bits % 1_000_000 == 0 => write!(f, "{}mbit", bits / 1_000_000),
            bits if bits % 1_000 == 0 => write!(f, "{}kbit", bits / 1_000),
            bits => write!(f, "{bits}bit"),
        }
    }
}

impl FromStr for Rate {
    type Err = ParseError;

    /// Parses `10mbit`, `12.5 Mbit/s`, `1gbps`, `800kbit`. The unit is required and means bits.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        let split = lower.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
        let (number, unit) = lower.split_at(split);
        let number: f64 = number.parse().map_err(|_| error())?;
        let unit = unit.trim();
        let unit = unit.strip_suffix("/s").or_else(|| unit.strip_suffix("ps")).unwrap_or(unit);
        let scale = match unit {
            "bit" | "b" => 1.0,
            "kbit" | "kb" | "k" => 1e3,
            "mbit" | "mb" | "m" => 1e6,
            "gbit" | "gb" | "g" => 1e9,
            _ => return Err(error()),
        };
        Self::from_bits_per_second((number * scale).round() as u64).ok_or_else(error)
    }
}

/// A text or number that is not a valid rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(String);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a rate: write a number and a unit of bits, such as `10mbit`, 8kbit to 1000gbit", self.0)
    }
}

impl std::error::Error for ParseError {}

/// A link: its rate from the start of the run, and its later changes.
///
/// Its *capacity* at time t is the number of bytes that it could have carried since the start. Capacity
/// always grows, so times and capacities map onto each other; work on a changing link is constant work in
/// capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// `(from, rate)` in rising order, the first from 0.
    steps: Vec<(u64, Rate)>,
}

impl Link {
    /// A link with a constant rate.
    pub fn constant(rate: Rate) -> Self {
        Self { steps: vec![(0, rate)] }
    }

    /// This link with another rate from `at_ns` on. `None` unless `at_ns` is later than all earlier changes.
    pub fn then(mut self, at_ns: u64, rate: Rate) -> Option<Self> {
        if self.steps.last().is_some_and(|&(last, _)| at_ns <= last) {
            return None;
        }
        self.steps.push((at_ns, rate));
        Some(self)
    }

    /// The rate at `at_ns`.
    pub fn rate_at(&self, at_ns: u64) -> Rate {
        let after = self.steps.partition_point(|&(from, _)| from <= at_ns);
        self.steps[after - 1].1
    }

    /// The rate at the start.
    pub fn first_rate(&self) -> Rate {
        self.steps[0].1
    }

    /// The changes after the start: `(at_ns, rate)`.
    pub fn changes(&self) -> &[(u64, Rate)] {
        &self.steps[1..]
    }

    /// Bytes that the link could have carried from the start until `at_ns`.
    pub fn capacity_at(&self, at_ns: f64) -> f64 {
        let mut bytes = 0.0;
        for (i, &(from, rate)) in self.steps.iter().enumerate() {
            let until = self.steps.get(i + 1).map_or(at_ns, |&(next, _)| at_ns.min(next as f64));
            if until <= from as f64 {
                break;
            }
            bytes += (until - from as f64) * rate.bytes_per_second() / NS_PER_S;
        }
        bytes
    }

    /// When the link could have carried `bytes` since the start, in nanoseconds: the inverse of
    /// [`Link::capacity_at`].
    pub fn when_capacity_is(&self, mut bytes: f64) -> f64 {
        for pair in self.steps.windows(2) {
            let ((from, rate), (next, _)) = (pair[0], pair[1]);
            let carried = (next - from) as f64 * rate.bytes_per_second() / NS_PER_S;
            if bytes < carried {
                return from as f64 + rate.ns_for(bytes);
            }
            bytes -= carried;
        }
        let (from, rate) = self.steps[self.steps.len() - 1];
        from as f64 + rate.ns_for(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, bits) in
            [("10mbit", 10_000_000), ("12.5 Mbit/s", 12_500_000), ("1gbps", 1_000_000_000), ("800 kbit", 800_000)]
        {
            assert_eq!(rate(text).bits_per_second(), bits, "{text}");
        }
        for text in ["", "10", "mbit", "10 potatoes", "0mbit", "1.2.3mbit", "9999gbit"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        assert_eq!(rate("12.5mbit").to_string(), "12500kbit");
    }

    #[test]
    fn capacity_follows_the_changes_and_maps_back() {
        // 8 kbit/s is 1000 bytes a second; from second 1 on it is twice that.
        let link = Link::constant(rate("8kbit")).then(1_000_000_000, rate("16kbit")).unwrap();
        assert_eq!(link.capacity_at(0.5e9), 500.0);
        assert_eq!(link.capacity_at(2e9), 3000.0);
        assert_eq!(link.when_capacity_is(500.0), 0.5e9);
        assert_eq!(link.when_capacity_is(3000.0), 2e9);
        assert_eq!(link.rate_at(999_999_999), rate("8kbit"));
        assert_eq!(link.rate_at(1_000_000_000), rate("16kbit"));
        assert!(link.then(1_000_000_000, rate("8kbit")).is_none(), "changes come one after the other");
    }
}
