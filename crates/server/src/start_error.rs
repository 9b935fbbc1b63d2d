//! Why a server cannot start, or cannot take over a configuration.

use std::{fmt, io, net::SocketAddr, path::PathBuf};

use programs::PriorityError;

use crate::{
    admission::Contradiction, classify::ClassifierError, tls::TlsError, uplink::UplinkError,
    upstream::UpstreamSetupError,
};

/// Why a server cannot start, or cannot take over a configuration. All are the operator's to mend.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// `listen`: the address cannot be bound.
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        error: io::Error,
    },
    /// `admin`: the address cannot be bound.
    Admin {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        error: io::Error,
    },
    /// `admin_token`: the file cannot be used.
    AdminToken {
        /// The file.
        path: PathBuf,
        /// The reason why the file cannot be used.
        message: String,
    },
    /// `root` of a site, `cgi` of a route: it cannot be opened.
    Root {
        /// The setting that names it.
        setting: &'static str,
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// `tls_cert`, `tls_key`: a certificate cannot be used.
    Certificate(String),
    /// `client_ca`: authorities for clients' certificates cannot be used.
    ClientCa(String),
    /// `acme`: certificates cannot be obtained as configured.
    Acme(acme::AcmeError),
    /// `listen`: TLS is asked for, and no site has a certificate.
    NoCertificate {
        /// The address.
        address: SocketAddr,
    },
    /// `access_log`: the file cannot be opened, or the receiver is not known.
    AccessLog {
        /// The file or receiver.
        target: access_log::LogTarget,
        /// The error of the operating system.
        error: io::Error,
    },
    /// `tracing`: the authorities for the collector cannot be used.
    Tracing(traces::OpenError),
    /// `uplink`: it cannot be driven as configured.
    Uplink(UplinkError),
    /// Classes and shares contradict each other.
    Classes(Contradiction),
    /// A file that classes need cannot be used.
    Classifier(ClassifierError),
    /// An upstream cannot be used as configured.
    Upstream(UpstreamSetupError),
    /// The processor priority of a class cannot be given to programs.
    Priority(PriorityError),
    /// `shared-cache`: its directory cannot be used, or its thread cannot be started.
    SharedCache(io::Error),
    /// Workers of an upstream cannot be started.
    Workers(io::Error),
    /// A thread cannot be started.
    Thread(io::Error),
    /// `[cluster]`: not the address of a store, or its certificates cannot be read.
    Cluster(crate::config::StoreError),
    /// The server is stopping.
    Stopping,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, error } => write!(f, "listen: cannot listen on {address}: {error}"),
            Self::Admin { address, error } => write!(f, "admin: cannot listen on {address}: {error}"),
            Self::AdminToken { path, message } => write!(f, "admin_token: {}: {message}", path.display()),
            Self::Root { setting, path, error } => write!(f, "{setting}: cannot open {}: {error}", path.display()),
            Self::Certificate(error) => write!(f, "tls_cert, tls_key: {error}"),
            Self::ClientCa(error) => write!(f, "client_ca: {error}"),
            Self::Acme(error) => write!(f, "acme: {error}"),
            Self::NoCertificate { address } => {
                write!(f, "listen: TLS is asked for on {address}, but no site has a certificate (tls_cert, tls_key)")
            }
            Self::AccessLog { target, error } => write!(f, "access_log: cannot open {target}: {error}"),
            Self::Tracing(error) => write!(f, "tracing: {error}"),
            Self::Uplink(error) => write!(f, "uplink: {error}"),
            Self::Classes(error) => write!(f, "class, admission: {error}"),
            Self::Classifier(error) => write!(f, "{}: {}", error.path.display(), error.message),
            Self::Upstream(error) => write!(f, "{error}"),
            Self::Priority(error) => write!(f, "{error}"),
            Self::SharedCache(error) => write!(f, "shared-cache.directory: {error}"),
            Self::Workers(error) => write!(f, "upstream.workers: {error}"),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
            Self::Cluster(error) => write!(f, "cluster: {error}"),
            Self::Stopping => write!(f, "the server is stopping"),
        }
    }
}

impl From<TlsError> for StartError {
    fn from(error: TlsError) -> Self {
        match error {
            TlsError::Authorities(..) => Self::ClientCa(error.to_string()),
            _ => Self::Certificate(error.to_string()),
        }
    }
}
impl std::error::Error for StartError {}
