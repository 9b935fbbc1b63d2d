//! The data path: listener, TLS, HTTP, files, the uplink and its gate, admin.
//!
//! A driver moves bytes and timers, and decides nothing: who goes next is asked of the `scheduler` crate. This crate reads
//! no configuration file; it takes a resolved [`config::Config`].

#![forbid(unsafe_code)]

pub mod config;
pub mod files;
pub mod gate;
pub mod uplink;
