//! Which job goes first.

use core::{fmt, str::FromStr};

/// The order in which jobs are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Processor sharing: everybody in turn.
    Fair,
    /// First come, first served.
    Fifo,
    /// Shortest remaining processing time: fewest bytes left.
    Srpt,
    /// Shortest remaining response time: round-trip time and congestion window counted in.
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
    /// Two bands by size, first come, first served within each.
    QuickFix,
}

impl Order {
    /// All of them, as they are listed to people.
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

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text is not the name of an order.
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
