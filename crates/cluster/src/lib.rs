//! The store that the gateways of a site share: Redis or Valkey, version 7 or later.
//!
//! A function inside the store divides the windows of the site ([`scheduler::lease`] explains how). This crate puts
//! the function there, calls it, and listens to the store's notices. It decides nothing, and does not try again:
//! that is the caller's part.

#![forbid(unsafe_code)]

mod address;
mod discovery;
mod error;
mod message;
mod shared;
mod store;
#[cfg(test)]
mod tests;

pub use self::{
    address::{AddressError, Trust},
    error::Error,
    message::CellName,
    shared::{Shared, SharedAsk, SharedReply},
    store::{Connection, Notices, Spent, Store},
};
