#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cgi;
mod config;
mod lines;
#[cfg(test)]
mod may;
mod priority;
mod program;
mod spawner;
mod workers;

#[cfg(fuzzing)]
pub use self::cgi::fuzz;
pub use self::{
    cgi::{Cgi, CgiAnswer, CgiError, Context},
    config::{CgiConfig, Priority, ProgramClass, WorkersConfig},
    priority::{PriorityError, finish, prepare, settle},
    workers::{WorkerAddress, WorkerState, WorkerStats, Workers},
};
