//! A site, its gateways, their store and their load.

use scheduler::{class::Class, lease::Times, share::Policy};

use super::fault::Fault;

/// A site, its gateways, their store and their load.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Number of gateways, at least 1.
    pub gateways: u32,
    /// Slots of the site.
    pub window: u32,
    /// How classes share them.
    pub policy: Policy,
    /// The classes.
    pub classes: Vec<Class>,
    /// The part of each class in the requests, in any unit.
    pub mix: Vec<f64>,
    /// When requests come.
    pub demand: Demand,
    /// To which gateway they come.
    pub placement: Placement,
    /// How long the site works on each.
    pub service: Law,
    /// The way between gateways and store.
    pub network: Network,
    /// Times of a lease.
    pub times: Times,
    /// The faults, with their times.
    pub faults: Vec<Fault>,
    /// Before this time nothing is measured, in nanoseconds. The store has no memory at the start.
    pub warm_up_ns: u64,
    /// The end, in nanoseconds.
    pub until_ns: u64,
    /// Seed of all randomness.
    pub seed: u64,
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// At random times (Poisson): this part of what the site can do.
    Open {
        /// 1 is all that the site can do.
        load: f64,
    },
    /// From this many users at each gateway and of each class. A user sends the next request when the last one is done.
    Users {
        /// Their number.
        each: u32,
        /// Users of the first gateway come only at this time, in nanoseconds.
        first_from_ns: u64,
    },
}

/// The way between gateways and store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Least time that a message takes in one direction, in nanoseconds.
    pub delay_ns: u64,
    /// Mean of what is added to it (exponentially distributed), in nanoseconds.
    pub jitter_ns: u64,
    /// The part of all messages that is lost.
    pub loss: f64,
}

impl Network {
    /// A quarter of a millisecond each way: two hosts in one building.
    pub const NEAR: Self = Self { delay_ns: 200_000, jitter_ns: 50_000, loss: 0.0 };
}

impl Setup {
    /// A site of `window` slots and a class, under load, with service times of 20 ms in the mean.
    pub fn new(gateways: u32, window: u32, load: f64) -> Self {
        Self {
            gateways,
            window,
            policy: Policy::Weighted,
            classes: vec![class()],
            mix: vec![1.0],
            demand: Demand::Open { load },
            placement: Placement::Even,
            service: Law { mean_ns: 20_000_000, shape: Shape::Exponential },
            network: Network::NEAR,
            times: Times::default(),
            faults: Vec::new(),
            warm_up_ns: 5_000_000_000,
            until_ns: 65_000_000_000,
            seed: 1,
        }
    }
}

/// A class whose queue has no limit, so that nothing is refused.
pub fn class() -> Class {
    Class { most_waiting: u32::MAX - 1, ..Class::default() }
}

/// The law of the time that the site works on a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// The mean, in nanoseconds.
    pub mean_ns: u64,
    /// Its shape.
    pub shape: Shape,
}

/// The shape of a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Always the mean.
    Fixed,
    /// Exponential.
    Exponential,
    /// Evenly between half of the mean and one and a half.
    Even,
}

/// To which gateway requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// To each alike.
    Even,
    /// To the first most, to the second half of that, to the third a third.
    Skewed,
    /// Those of a class to every so-manyth gateway, as many as there are classes.
    ByClass,
    /// To every other gateway, and after this time to the others, in nanoseconds.
    Moving(u64),
}
