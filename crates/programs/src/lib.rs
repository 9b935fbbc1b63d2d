#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod answer;
mod application;
mod cgi;
mod config;
mod context;
mod endpoint;
mod error;
mod fastcgi;
mod lines;
#[cfg(test)]
mod may;
mod output;
mod priority;
mod program;
mod slot;
mod socket;
mod spawner;
mod uwsgi;
mod variables;
mod workers;

/// Fuzz targets.
#[cfg(fuzzing)]
pub mod fuzz {
    pub use crate::{cgi::fuzz::cgi_answers, fastcgi::fuzz::fastcgi_answers};
}
pub use self::{
    application::Application,
    cgi::{Cgi, CgiAnswer},
    config::{CgiConfig, FastCgiAddress, FastCgiConfig, Priority, ProgramClass, UwsgiConfig, WorkersConfig},
    context::Context,
    error::CgiError,
    fastcgi::FastCgi,
    priority::{PriorityError, finish, prepare, settle},
    uwsgi::Uwsgi,
    workers::{WorkerAddress, WorkerState, WorkerStats, Workers},
};
