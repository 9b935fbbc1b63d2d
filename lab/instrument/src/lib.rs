//! The instrument. It measures a server as a separate process, checks all of its output, and prints the
//! commands that repeat the measurement.
//!
//! - [`experiment`] and [`setting`]: experiments as files describe them;
//! - [`plan`]: the resolved conditions, or why they are impossible;
//! - [`run`], [`store`] and [`progress`]: one measurement after the other, each stored when it is complete;
//! - [`bed`]: a server, a bottleneck and clients in their own network namespaces;
//! - [`subject`]: the measured servers, and how they are started and stopped;
//! - [`docroot`]: the files to serve; the client knows every byte of them;
//! - [`replay`]: a web server's log as files and requests;
//! - [`client`]: the open-loop load generator;
//! - [`record`] and [`report`]: the stored results of a run, and reports of them;
//! - [`sample`]: samples of the server's side during a measurement;
//! - [`check`]: `serpent-lab check`, which measures the instrument itself;
//! - [`uplink`]: the experiment `serpent-lab uplink`, from flags to the table;
//! - [`site`]: the experiment `serpent-lab site`, gateways before a real site, from flags to the table.
//!
//! A simulation of an experiment (`serpent-lab simulate`) uses [`plan`], [`store`] and [`report`] from here; the
//! simulator is in another crate.
//!
//! This crate imports neither the scheduler nor the server: predictions and measurements stay independent.
#![forbid(unsafe_code)]

pub mod bed;
pub mod check;
pub mod client;
pub mod docroot;
mod error;
pub mod experiment;
pub mod join;
pub mod plan;
pub mod progress;
mod realtime;
pub mod record;
pub mod replay;
pub mod report;
pub mod run;
pub mod sample;
pub mod setting;
pub mod shard;
pub mod site;
pub mod store;
pub mod subject;
mod temporary;
pub mod uplink;

pub use error::LabError;
