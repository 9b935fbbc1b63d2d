//! Certificates from an authority by ACME (RFC 8555): obtained, kept on disk, renewed in time.
//!
//! [`Acme::open`] reads what is on disk. [`Acme::drive`] obtains and renews; it never ends and can be dropped at any time.
//! The server takes the key of a site from its [`ManagedCertificate`], and answers to challenges from [`Challenges`].

#![forbid(unsafe_code)]

mod account;
mod challenges;
mod client;
mod config;
mod driver;
mod error;
mod managed;
mod order;
mod renewal;
mod store;

pub use self::{
    challenges::Challenges,
    config::{AcmeConfig, ChallengeKind, ExternalAccount},
    driver::{Acme, Counters},
    error::AcmeError,
    managed::{ManagedCertificate, Status},
};

/// The protocol by which an authority that validates a name by TLS makes itself known (RFC 8737).
pub const TLS_ALPN: &[u8] = b"acme-tls/1";
