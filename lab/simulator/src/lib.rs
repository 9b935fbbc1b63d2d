//! Drives the production scheduler without a network.
//!
//! Contract: no clock, no I/O, no threads, no randomness except from a seed; the same arguments give the same
//! result on every machine. Time jumps from one event to the next. Requests come from a [`Source`], and a
//! [`Model`] serves them. The caller gets each finished request as a [`Served`], in the order of the ends. No
//! state grows with the length of the run.
#![forbid(unsafe_code)]

pub mod advise;
pub mod banded;
pub mod gateways;
pub mod ordered;
pub mod paced;
pub mod packets;
pub mod processor_sharing;
pub mod site;
pub mod theory;

mod exact_link;
mod model;
mod run;
mod served;
mod source;
mod table;

pub use banded::Banded;
pub use model::{Ended, Model, Ticket};
pub use ordered::Ordered;
pub use paced::Paced;
pub use packets::Packets;
pub use processor_sharing::ProcessorSharing;
pub use run::{Clients, Totals, run, run_groups};
pub use served::Served;
pub use source::{Source, Stream};
