//! Parses values in the form that people write them, the same for flags and the configuration file.

mod addresses;
mod balance;
mod freshness;
mod gateway;
mod logs;
mod named;
mod numbers;
mod requests;

pub use self::{addresses::*, balance::*, freshness::*, gateway::*, logs::*, named::*, numbers::*, requests::*};
