//! The data path: listener, TLS, HTTP, files, the uplink and its gate, admin.
//!
//! A driver moves bytes and timers, and decides nothing: who goes next is asked of the `scheduler` crate. This crate reads
//! no configuration file; it takes a resolved [`config::Config`].
//!
//! [`Server::bind`] opens everything a configuration names, [`Server::run`] serves, and a [`Handle`] reloads and stops.

#![forbid(unsafe_code)]

mod access_log;
mod admin;
pub mod config;
pub mod files;
pub mod gate;
mod http;
mod listener;
mod metrics;
mod places;
mod serve;
mod sites;
mod tls;
pub mod uplink;
mod worker;

pub use serve::{Handle, Server, StartError};
