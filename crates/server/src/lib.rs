//! The data path: listener, TLS, HTTP, files, the uplink and its gate, admin.
//!
//! This crate moves bytes and timers; the `scheduler` crate decides which request or response goes next. No
//! configuration file is read here: the crate takes a resolved [`config::Config`].
//!
//! [`Server::bind`] opens everything a configuration names, [`Server::run`] serves, and a [`Handle`] reloads
//! and stops.

#![forbid(unsafe_code)]

mod admin;
mod check;
pub mod class_metrics;
mod cluster;
mod common;
pub mod config;
mod connection;
mod connection_limit;
mod connection_state;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod gate;
mod host;
mod http;
mod listener;
mod metrics;
mod pipeline;
mod probing;
mod program_priorities;
mod proxied;
mod refusals;
mod serve;
mod shared_cache;
mod sites;
mod start_error;
mod started_servers;
mod state;
mod tls;
mod worker;

pub use access_log as logs;
pub use bodies as body;
pub use check::unusable_files;
pub use classify;
pub use drivers::{admission, uplink};
pub use serve::{Handle, Server};
pub use sites::{host_of, site_of};
pub use start_error::StartError;
pub use upstream;
