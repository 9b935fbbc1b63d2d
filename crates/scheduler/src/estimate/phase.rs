//! What the estimator does at present.

use crate::{drain::Drain, time::Instant};

/// See the head of the module above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    Search,
    Cruise,
    Probe {
        gain: f64,
    },
    /// Works off what a probe beside another queue has sent in vain.
    Repays {
        until: Instant,
    },
    Drain(Drain),
}

/// Start of the period since the last change of the rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub began: Instant,
    pub sent_bytes: u64,
}

impl Phase {
    /// One word, for logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Cruise => "cruise",
            Self::Probe { .. } => "probe",
            Self::Repays { .. } | Self::Drain(_) => "drain",
        }
    }
}
