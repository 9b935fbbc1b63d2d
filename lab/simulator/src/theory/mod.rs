//! Closed forms of queueing theory: the expected performance of a scheduler.
//!
//! - [`Sizes`]: laws of request sizes, with exact moments up to a size;
//! - [`Queue`] and [`Policy`]: the M/GI/1 queue (Poisson arrivals, independent sizes, one link): mean
//!   response time, response time by size, mean slowdown;
//! - [`Alternating`]: the same for a load that changes over time and may exceed 1 for a while, an
//!   approximation;
//! - [`check`]: simulations compared with closed forms.
//!
//! Pure functions in `f64`. Sizes are work: a request of size x takes x units of time alone, so times have
//! the unit of the sizes. To get seconds from bytes, divide by the link's rate.

mod alternating;
pub mod check;
mod part;
mod policy;
mod quadrature;
mod queue;
mod sizes;

use std::fmt;

pub use self::{
    alternating::{Alternating, Sharing as AlternatingSharing, Shortest as AlternatingShortest},
    policy::{Policy, PolicyError},
    queue::{Queue, Solved},
    sizes::Sizes,
};

/// The question has no answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TheoryError {
    /// A parameter of a law of sizes is out of range.
    Parameter {
        /// The name of the parameter.
        what: &'static str,
        /// The given value.
        given: f64,
        /// The allowed values.
        allowed: &'static str,
    },
    /// There is no size with a weight above 0.
    NoSizes,
    /// The queue has no steady state at this load.
    Load(f64),
}

impl fmt::Display for TheoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter { what, given, allowed } => write!(f, "{what} is {given}: give a number {allowed}"),
            Self::NoSizes => f.write_str("there are no sizes: give at least one with a count above 0"),
            Self::Load(load) if *load >= 1.0 => write!(
                f,
                "a load of {load}: from 1 on the queue grows without end and no mean exists; give a load below 1, or a load \
                 that changes over time and is below 1 on average"
            ),
            Self::Load(load) => write!(f, "a load of {load}: give a number above 0 and below 1"),
        }
    }
}

impl std::error::Error for TheoryError {}
