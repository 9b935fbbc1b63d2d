//! Why a certificate is not obtained.

use std::{fmt, io, path::PathBuf};

const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Why a certificate is not obtained, or the authority cannot be used at all.
#[derive(Debug)]
pub enum AcmeError {
    /// A file of the configuration cannot be used; the operator has to fix it.
    File(PathBuf, String),
    /// The state cannot be read or written; the operator has to fix it.
    State(PathBuf, io::Error),
    /// The authority cannot be reached, or refuses.
    Authority(String),
    /// The authority does not know the account on disk.
    NoAccount,
    /// The authority has found that a name is not ours.
    Challenge(String),
    /// The authority's certificate cannot be used.
    Unusable(String),
}

impl fmt::Display for AcmeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, message) => write!(f, "{}: {message}", path.display()),
            Self::State(path, error) => write!(f, "{} cannot be used: {error}", path.display()),
            Self::Authority(message) => write!(f, "the authority: {message}"),
            Self::NoAccount => write!(f, "the authority does not know the account"),
            Self::Challenge(message) => write!(f, "the authority could not validate {message}"),
            Self::Unusable(message) => write!(f, "the authority's certificate cannot be used: {message}"),
        }
    }
}

impl std::error::Error for AcmeError {}

impl From<instant_acme::Error> for AcmeError {
    fn from(error: instant_acme::Error) -> Self {
        match &error {
            instant_acme::Error::Api(problem) if problem.r#type.as_deref() == Some(NO_ACCOUNT) => Self::NoAccount,
            _ => Self::Authority(error.to_string()),
        }
    }
}
