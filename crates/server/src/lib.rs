//! The data path: listener, TLS, HTTP, files, the uplink and its gate, admin.
//!
//! This crate moves bytes and timers; the `scheduler` crate decides which request or response goes next. No
//! configuration file is read here: the crate takes a resolved [`config::Config`].
//!
//! [`Server::bind`] opens everything a configuration names, [`Server::run`] serves, and a [`Handle`] reloads
//! and stops.

#![forbid(unsafe_code)]

mod access_log;
mod admin;
pub mod admission;
pub mod body;
pub mod cgi;
mod check;
pub mod class_metrics;
pub mod classify;
pub mod config;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod gate;
mod http;
mod listener;
mod message;
mod metrics;
mod places;
mod probing;
pub mod programs;
mod refusals;
mod serve;
mod sites;
mod timer;
mod tls;
pub mod uplink;
pub mod upstream;
mod worker;
pub mod workers;

pub use check::unusable_files;
pub use serve::{Handle, Server, StartError};
pub use sites::{host_of, site_of};
