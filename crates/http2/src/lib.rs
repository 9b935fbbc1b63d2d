#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod client;
mod connection;
mod incoming;
mod interims;
mod keep_alive;
mod sending;
mod settings;
mod stream;
#[cfg(test)]
mod tests;

pub use self::{
    client::{Answering, FIRST_WINDOW_BYTES, Sender, Unsent, connect},
    connection::Connection,
    incoming::Incoming,
    interims::Interims,
    sending::{EndedEarly, Sending},
    settings::Settings,
    stream::StreamTask,
};
