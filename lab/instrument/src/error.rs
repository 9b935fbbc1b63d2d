//! Errors of the lab, by the party at fault.

use std::{fmt, io};

/// Why an experiment failed.
#[derive(Debug)]
pub enum LabError {
    /// The operator asked for a measurement that is impossible.
    Request(String),
    /// The machine lacks or forbids a part of the bed: privilege, a program, a kernel feature.
    Machine(String),
    /// The bed does not behave as configured, so measurements on it would be worthless.
    TestBed(String),
    /// The measured server did not start, or died.
    Subject(String),
    /// A file or socket of our own failed.
    Io(String, io::Error),
    /// The operator stopped the experiment.
    Interrupted,
}

impl LabError {
    /// Wraps an error of the lab's own files or sockets with the attempted action.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |error| Self::Io(doing, error)
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(text) => f.write_str(text),
            Self::Machine(text) => write!(f, "this machine cannot hold the test bed: {text}"),
            Self::TestBed(text) => write!(f, "the test bed does not hold what it promises: {text}"),
            Self::Subject(text) => write!(f, "the measured server failed: {text}"),
            Self::Io(doing, error) => write!(f, "{doing}: {error}"),
            Self::Interrupted => f.write_str("stopped; namespaces and servers are cleaned up"),
        }
    }
}

impl std::error::Error for LabError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            _ => None,
        }
    }
}
