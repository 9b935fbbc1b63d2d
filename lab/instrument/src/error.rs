//! What can go wrong, and whose fault it is.

use std::{fmt, io};

/// Why an experiment could not be done.
#[derive(Debug)]
pub enum LabError {
    /// The operator asked for something that cannot be measured.
    Request(String),
    /// The machine does not allow, or lack, what the bed is made of: privilege, a program, a kernel feature.
    Machine(String),
    /// The bed was made but does not behave as it must; measuring on it would be worthless.
    Bed(String),
    /// The measured server did not start, or died.
    Subject(String),
    /// A file or socket of our own failed.
    Io(String, io::Error),
    /// The operator stopped the experiment.
    Interrupted,
}

impl LabError {
    /// An error of our own files or sockets, with what was being done.
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
            Self::Bed(text) => write!(f, "the test bed does not hold what it promises: {text}"),
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
