//! Configuration files of other servers, translated into Serpent's.
//!
//! [`nginx`], [`caddyfile`] and [`haproxy`] translate what has a counterpart, and name the rest: nothing is left out
//! without a word.

#![forbid(unsafe_code)]

mod caddy;
mod draft;
mod fields;
mod haproxy;
mod nginx;
mod notes;
mod report;
mod syntax;

pub use report::{Left, Place};
pub use syntax::{Files, SyntaxError};

/// A translated configuration.
#[derive(Clone, Debug)]
pub struct Translated {
    /// A configuration file of Serpent.
    pub text: String,
    /// The directives that have no counterpart, or another meaning, in the order of the files.
    pub left: Vec<Left>,
}

/// Translates `nginx.conf`, and the files that it includes.
///
/// # Errors
/// A file cannot be read, or is not written as nginx wants it.
pub fn nginx(file: &str, files: &dyn Files) -> Result<Translated, SyntaxError> {
    let (text, left) = nginx::all(&syntax::read(file, files)?);
    Ok(Translated { text, left })
}

/// Translates `haproxy.cfg`, and the lists and maps that it names. `frontend`: this one alone.
///
/// # Errors
/// The file cannot be read, or is not written as HAProxy wants it; or it has no such frontend.
pub fn haproxy(file: &str, files: &dyn Files, frontend: Option<&str>) -> Result<Translated, SyntaxError> {
    let (text, left) = haproxy::all(file, files, frontend)?;
    Ok(Translated { text, left })
}

/// Translates a Caddyfile, and the files that it imports.
///
/// # Errors
/// A file cannot be read, or is not written as Caddy wants it.
pub fn caddyfile(file: &str, files: &dyn Files) -> Result<Translated, SyntaxError> {
    let (text, left) = caddy::all(file, files)?;
    Ok(Translated { text, left })
}
