//! The reasons why a command fails.

use std::fmt;

use crate::{
    config::Problems,
    output::{FAILURE, USAGE},
};

/// The reason why a command failed. Its text is the message for standard error.
#[derive(Debug)]
pub enum Failure {
    /// The command line makes no sense, or the operator did not agree to it.
    Usage(String),
    /// The configuration cannot be used.
    Configuration(Problems),
    /// The machine, or another one, failed.
    Run(String),
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Configuration(_) => USAGE,
            Self::Run(_) => FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Run(message) => write!(f, "error: {message}"),
            Self::Configuration(problems) => problems.fmt(f),
        }
    }
}
