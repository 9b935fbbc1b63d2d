//! Gateways that divide the windows of one site ([`scheduler::lease`]), and the store between them.
//!
//! Each gateway is the one of production: [`Admission`](scheduler::admission::Admission) and a
//! [`Member`](scheduler::lease::Member). The store is a [`Ledger`](scheduler::lease::Ledger). Around them are a site
//! whose requests take a random time each, messages that take time and get lost, and faults. The requests of a seed are
//! the same for any number of gateways. [`Setup::run_alone`] gives them to one gateway with the whole window: the best
//! that several can reach.

mod agenda;
mod arrivals;
mod fault;
mod gateway;
mod measures;
mod setup;
mod world;

pub use self::{
    fault::{Fault, FaultKind},
    measures::{ClassMeasures, InUse, Measures},
    setup::{Demand, Law, Network, Placement, Setup, Shape, class},
};

#[cfg(test)]
mod tests;
