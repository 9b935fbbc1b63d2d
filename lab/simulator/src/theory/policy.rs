//! The policies with closed forms, and their names.

use std::fmt;

use scheduler::bands::{BandPlan, SRPT_CUTOFFS_BYTES};

/// A scheduling policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Processor sharing: all requests at once, equally. FAIR in "Web Servers Under Overload: How Scheduling
    /// Can Help".
    Ps,
    /// First come, first served.
    Fcfs,
    /// Shortest remaining processing time first.
    Srpt,
    /// Foreground-background, or least attained service: requests with the least service so far share
    /// equally.
    Fb,
    /// Preemptive shortest job first: by the size at arrival, not by the remaining size.
    Psjf,
    /// Shortest job first without preemption.
    Sjf,
    /// Bands by *remaining* size, as in "Implementation of SRPT Scheduling in Web Servers". A lower band goes
    /// first and preempts; a request moves to it when little enough is left. First come, first served within
    /// a band.
    Bands(BandPlan),
    /// Bands by size at arrival, preemptive: the classes of a preemptive priority queue. First come, first
    /// served within a band.
    PreemptivePriority(BandPlan),
    /// Bands by size at arrival, without preemption.
    Priority(BandPlan),
}

/// The text is not the name of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// The name is unknown.
    Unknown(String),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Unknown(name) = self;
        write!(f, "`{name}` is not a policy; the policies are {}", Policy::NAMES.join(", "))
    }
}

impl std::error::Error for PolicyError {}

impl Policy {
    /// All names, as shown to users.
    pub const NAMES: [&'static str; 9] =
        ["ps", "srpt", "fb", "psjf", "sjf", "fcfs", "bands", "preemptive-priority", "priority"];

    /// Returns the policy with a name. Those with bands use `plan`, or the cutoffs of "Implementation of SRPT
    /// Scheduling in Web Servers".
    ///
    /// # Errors
    ///
    /// If no policy has the name. The scheduler's names `las`, `fair` and `fifo` also work for `fb`, `ps` and
    /// `fcfs`.
    pub fn named(name: &str, plan: Option<&BandPlan>) -> Result<Self, PolicyError> {
        let unknown = || PolicyError::Unknown(name.to_owned());
        // The cutoffs of the paper rise, so they are a valid plan.
        let plan = || plan.cloned().or_else(|| BandPlan::new(SRPT_CUTOFFS_BYTES.into()).ok()).ok_or_else(unknown);
        match name {
            "ps" | "fair" => Ok(Self::Ps),
            "fcfs" | "fifo" => Ok(Self::Fcfs),
            "srpt" => Ok(Self::Srpt),
            "fb" | "las" => Ok(Self::Fb),
            "psjf" => Ok(Self::Psjf),
            "sjf" => Ok(Self::Sjf),
            "bands" => plan().map(Self::Bands),
            "preemptive-priority" => plan().map(Self::PreemptivePriority),
            "priority" => plan().map(Self::Priority),
            _ => Err(unknown()),
        }
    }

    /// The name in flags, tables and plots.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ps => "ps",
            Self::Fcfs => "fcfs",
            Self::Srpt => "srpt",
            Self::Fb => "fb",
            Self::Psjf => "psjf",
            Self::Sjf => "sjf",
            Self::Bands(_) => "bands",
            Self::PreemptivePriority(_) => "preemptive-priority",
            Self::Priority(_) => "priority",
        }
    }

    /// Whether even the smallest request waits for present ones: then its slowdown is unbounded.
    pub(super) fn delays_the_smallest(&self) -> bool {
        !matches!(self, Self::Ps | Self::Srpt | Self::Fb | Self::Psjf)
    }

    /// The cutoffs of its bands.
    pub(super) fn cutoffs(&self) -> &[u64] {
        match self {
            Self::Bands(plan) | Self::PreemptivePriority(plan) | Self::Priority(plan) => plan.cutoffs(),
            Self::Ps | Self::Fcfs | Self::Srpt | Self::Fb | Self::Psjf | Self::Sjf => &[],
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_as_written_and_the_schedulers_names_are_known() {
        for name in Policy::NAMES {
            assert_eq!(Policy::named(name, None).unwrap().name(), name);
        }
        for (other, name) in [("las", "fb"), ("fair", "ps"), ("fifo", "fcfs")] {
            assert_eq!(Policy::named(other, None).unwrap().name(), name);
        }
        let error = Policy::named("lifo", None).unwrap_err().to_string();
        assert!(error.contains("lifo") && error.contains("srpt, fb"), "{error}");
    }

    #[test]
    fn bands_are_the_papers_unless_others_are_given() {
        let own = BandPlan::new(vec![7]).unwrap();
        assert_eq!(Policy::named("bands", None).unwrap().cutoffs(), SRPT_CUTOFFS_BYTES);
        assert_eq!(Policy::named("bands", Some(&own)).unwrap().cutoffs(), [7]);
        assert!(Policy::named("srpt", Some(&own)).unwrap().cutoffs().is_empty());
    }
}
