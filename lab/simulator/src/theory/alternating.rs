//! Response time by size under PS and SRPT, for a load that changes over time and may exceed 1 for a while.
//!
//! "Web Servers Under Overload: How Scheduling Can Help", section 6.3, evaluates such a queue with an
//! approximation (M/GI/1, alternating overload and low load, Bounded Pareto sizes with alpha 1.1). It refers
//! for it to Bansal, Harchol-Balter, "Scheduling Solutions for Coping with Transient Overload",
//! CMU-CS-01-134, 2001, without giving it. **The formulas here are a new derivation** from section 6.2. Under
//! SRPT, requests below the size at which the load of the smaller ones reaches 1 are unaffected. Larger ones
//! wait until the overload is over and the backlog of smaller requests is gone. Under sharing, the rate of
//! each request falls as the number present grows.
//!
//! The random queue is replaced by its mean, which follows a differential equation with two properties. Under
//! a constant load below 1 it rests exactly at the steady-state mean, so the closed forms of [`super::Queue`]
//! result. Far above 1 it grows like the fluid limit. This is the pointwise stationary fluid flow
//! approximation (Wang, Tipper, Banerjee, "A Simple Approximation for Modeling Nonstationary Queues", INFOCOM
//! 1996).
//!
//! - [`Sharing`]: each of n present requests, and one more, has 1 / (1 + n) of the link. Steady state: n =
//!   rho / (1 - rho). The fluid limit is that of Jean-Marie, Robert, "On the Transient Behavior of the
//!   Processor Sharing Queue", Queueing Systems 17, 1994.
//! - [`Shortest`]: for each size x, the work V of requests up to x grows with their load and falls with V /
//!   (V + a), where a = E\[X^2; X <= x\] / (2 E\[X; X <= x\]). A request waits until that work and later
//!   arrivals are done. Then only requests smaller than its remainder interrupt it. Steady state: Schrage and
//!   Miller's formula.
//!
//! The approximation ignores randomness in the load itself: a phase of 25 s with a few of the largest
//! requests differs from one without. `serpent-lab theory --overload w1 --check` prints a table of the error.

mod load;
mod sharing;
mod shortest;

pub use self::{load::Alternating, sharing::Sharing, shortest::Shortest};

impl Alternating {
    /// Under processor sharing.
    pub fn sharing(&self) -> Sharing<'_> {
        Sharing::new(self)
    }

    /// Under shortest remaining processing time.
    pub fn shortest(&self) -> Shortest<'_> {
        Shortest::new(self)
    }
}

#[cfg(test)]
mod tests;
