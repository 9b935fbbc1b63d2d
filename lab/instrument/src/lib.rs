//! The instrument: it measures a server as a separate process, trusts nothing of it, and prints what it did so that anyone
//! can do it again.
//!
//! - [`experiment`] and [`setting`]: what is asked for, as files say it;
//! - [`plan`]: what that means, or why it cannot be done;
//! - [`run`], [`store`] and [`progress`]: one measurement after the other, each kept when it is whole;
//! - [`bed`]: a server, a bottleneck and clients in network namespaces of their own;
//! - [`subject`]: what is measured, and how it is started and stopped;
//! - [`docroot`]: the files it serves, whose every byte the client knows;
//! - [`replay`]: a log of a web server as files and requests;
//! - [`client`]: the open-loop load generator;
//! - [`record`] and [`report`]: what a run leaves behind, and what is made of it;
//! - [`sample`]: the server's side while it is measured;
//! - [`check`]: `serpent-lab check`, which measures the instrument itself;
//! - [`uplink`]: the experiment `serpent-lab uplink`, from flags to the table;
//! - [`site`]: the experiment `serpent-lab site`, gateways in front of a real site, from flags to the table.
//!
//! A simulation of an experiment (`serpent-lab simulate`) takes [`plan`] and [`store`] from here, and its report is [`report`]; what
//! simulates is elsewhere.
//!
//! This crate imports neither the scheduler nor the server: what predicts, and what is predicted, stay apart.
#![forbid(unsafe_code)]

pub mod bed;
pub mod check;
pub mod client;
pub mod docroot;
mod error;
pub mod experiment;
pub mod plan;
pub mod progress;
mod realtime;
pub mod record;
pub mod replay;
pub mod report;
pub mod run;
pub mod sample;
pub mod setting;
pub mod site;
pub mod store;
pub mod subject;
mod temporary;
pub mod uplink;

pub use error::LabError;
