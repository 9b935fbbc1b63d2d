//! Directives without a counterpart, and their places.

use std::fmt;

/// A place in a file of the other server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Something that has no counterpart, or another meaning here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Where it stands.
    pub place: Place,
    /// The directive with its arguments, without its block.
    pub directive: String,
    /// Why it was left out, or what is different, and what to do.
    pub reason: String,
    /// Whether a route or a site is closed, because this guards it.
    pub closes: bool,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`: {}", self.place, self.directive, self.reason)
    }
}
