//! The instrument: it measures a server as a separate process, trusts nothing of it, and prints what it did so that anyone
//! can do it again.
//!
//! - [`bed`]: a server, a bottleneck and clients in network namespaces of their own;
//! - [`subject`]: what is measured, and how it is started and stopped;
//! - [`docroot`]: the files it serves, whose every byte the client knows;
//! - [`client`]: the open-loop load generator;
//! - [`uplink`]: the experiment `serpent lab uplink`, from flags to the table.
//!
//! This crate imports neither the scheduler nor the server: what predicts, and what is predicted, stay apart.
#![forbid(unsafe_code)]

pub mod bed;
pub mod client;
pub mod docroot;
mod error;
pub mod experiment;
pub mod plan;
mod progress;
pub mod record;
pub mod run;
pub mod setting;
pub mod store;
pub mod subject;
pub mod uplink;

pub use error::LabError;
