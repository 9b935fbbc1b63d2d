//! Configuration files of other servers, translated into Serpent's.
//!
//! [`nginx`] translates what has a counterpart, and names the rest: nothing is left out without a word.

#![forbid(unsafe_code)]

mod draft;
mod report;
mod syntax;
mod translate;

pub use report::{Left, Place};
pub use syntax::{Files, SyntaxError};

/// A translated configuration.
#[derive(Clone, Debug)]
pub struct Translated {
    /// A configuration file of Serpent.
    pub text: String,
    /// What it does not have, in the order of the files.
    pub left: Vec<Left>,
}

/// Translates `nginx.conf`, and the files that it includes.
///
/// # Errors
/// A file cannot be read, or is not written as nginx wants it.
pub fn nginx(file: &str, files: &dyn Files) -> Result<Translated, SyntaxError> {
    let (text, left) = translate::all(&syntax::read(file, files)?);
    Ok(Translated { text, left })
}
