//! The operator's settings for the certificate authority.

use std::{path::PathBuf, sync::Arc};

use instant_acme::{ChallengeType, LetsEncrypt};

/// An authority, and the certificates that it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeConfig {
    /// The address of the authority's directory, with `https://`.
    pub directory: String,
    /// An address of electronic mail for the authority.
    pub contact: Option<String>,
    /// Authorities that the directory's own certificate may be from, PEM; `None`: those of the system.
    pub roots: Option<PathBuf>,
    /// An account elsewhere, to which the authority binds the new one.
    pub external_account: Option<ExternalAccount>,
    /// One of the kinds of certificates that the authority offers.
    pub profile: Option<String>,
    /// How names are proven to be ours. The first is tried first, and after each failure the next. Never empty.
    pub challenges: Vec<ChallengeKind>,
    /// The directory of account, certificates and keys.
    pub state: PathBuf,
    /// The names of each certificate. None is empty.
    pub certificates: Vec<Arc<[String]>>,
}

impl AcmeConfig {
    /// The directory of Let's Encrypt.
    pub const LETS_ENCRYPT: &str = LetsEncrypt::Production.url();
    /// Its directory for tests, whose certificates no client trusts.
    pub const LETS_ENCRYPT_STAGING: &str = LetsEncrypt::Staging.url();
}

/// An account elsewhere (RFC 8555, section 7.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The key's identifier.
    pub id: String,
    /// The file that has the key, in base64 for URLs.
    pub key: PathBuf,
}

/// How a name is proven to be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeKind {
    /// By a path, without TLS on port 80.
    Http01,
    /// By a certificate of its own, on port 443.
    TlsAlpn01,
}

impl ChallengeKind {
    pub(crate) fn of_protocol(self) -> ChallengeType {
        match self {
            Self::Http01 => ChallengeType::Http01,
            Self::TlsAlpn01 => ChallengeType::TlsAlpn01,
        }
    }
}
