//! Files that a classifier reads.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Why a classifier cannot be made; the operator has to fix it.
#[derive(Debug)]
pub struct ClassifierError {
    /// The file.
    pub path: PathBuf,
    /// The problem, with its line if there is one.
    pub message: String,
}

impl fmt::Display for ClassifierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.message)
    }
}

impl std::error::Error for ClassifierError {}

/// Reads a file of the configuration. Blocks.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ClassifierError> {
    std::fs::read(path).map_err(|error: io::Error| ClassifierError {
        path: path.to_owned(),
        message: format!("it cannot be read: {error}"),
    })
}
