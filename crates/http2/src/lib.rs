#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod connection;
mod interims;
mod keep_alive;
mod request_body;
mod settings;
mod stream;
#[cfg(test)]
mod tests;

pub use self::{
    connection::Connection, interims::Interims, request_body::RequestBody, settings::Settings, stream::StreamTask,
};
