//! Parses values in the form that people write them, the same for flags and the configuration file.

mod addresses;
mod freshness;
mod gateway;
mod named;
mod numbers;
mod requests;

pub use self::{addresses::*, freshness::*, gateway::*, named::*, numbers::*, requests::*};
