//! Parses values in the form that people write them, the same for flags and the configuration file.

mod addresses;
mod gateway;
mod named;
mod numbers;
mod requests;

pub use self::{addresses::*, gateway::*, named::*, numbers::*, requests::*};
