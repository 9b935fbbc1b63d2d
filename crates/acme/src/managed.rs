//! A certificate that is kept valid, and what is known of it.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustls::{crypto::aws_lc_rs, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use crate::{
    error::AcmeError,
    renewal::{Renewal, Span},
};

/// The certificate of a set of names. It has a key once the authority has issued one.
pub struct ManagedCertificate {
    names: Arc<[String]>,
    key: ArcSwapOption<CertifiedKey>,
    pub(crate) progress: Mutex<Progress>,
}

/// When the authority is asked, and how that went.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) renewal: Renewal,
    pub(crate) last_error: Option<String>,
}

/// A certificate and its key, as they are on disk.
pub(crate) struct Issued {
    pub(crate) key: CertifiedKey,
    pub(crate) validity: Span,
}

/// The state of a certificate. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its names.
    pub names: Arc<[String]>,
    /// The end of its validity; `None`: there is none yet.
    pub valid_until_s: Option<u64>,
    /// When the authority is asked next.
    pub next_order_s: u64,
    /// Failures in a row.
    pub failures: u32,
    /// The last error; `None` after a success.
    pub last_error: Option<String>,
}

impl ManagedCertificate {
    pub(crate) fn new(names: Arc<[String]>) -> Self {
        Self { names, key: ArcSwapOption::empty(), progress: Mutex::default() }
    }

    /// The names, of which the first is in the file's name.
    pub fn names(&self) -> &Arc<[String]> {
        &self.names
    }

    /// Chain and key; `None`: there are none yet.
    pub fn key(&self) -> Option<Arc<CertifiedKey>> {
        self.key.load_full()
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        let progress = self.progress.lock();
        Status {
            names: self.names.clone(),
            valid_until_s: progress.renewal.validity().map(|validity| validity.end_s),
            next_order_s: progress.renewal.next_order_s(),
            failures: progress.renewal.failures().0,
            last_error: progress.last_error.clone(),
        }
    }

    /// Uses a certificate from now on. `issued_s`: it was issued now.
    pub(crate) fn take(&self, issued: Issued, issued_s: Option<u64>, chance: f64) {
        let mut progress = self.progress.lock();
        progress.renewal.handle_certificate(issued.validity, issued_s, chance);
        progress.last_error = None;
        self.key.store(Some(Arc::new(issued.key)));
    }
}

/// Names only: a key is in no message.
impl fmt::Debug for ManagedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManagedCertificate").field(&self.names).finish()
    }
}

impl Issued {
    /// Reads a chain and its key, which are in one PEM text.
    pub(crate) fn read(pem: &[u8]) -> Result<Self, AcmeError> {
        let wrong = |error: &dyn fmt::Display| AcmeError::Unusable(error.to_string());
        let chain =
            CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(|error| wrong(&error))?;
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| wrong(&error))?;
        let leaf = chain.first().ok_or_else(|| wrong(&"it is empty"))?;
        let (_, leaf) = X509Certificate::from_der(leaf).map_err(|error| wrong(&error))?;
        let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
        let (begin, end) = (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
        let validity = Span { begin_s: seconds(begin), end_s: seconds(end) };
        // Checks that both belong together.
        let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(|error| wrong(&error))?;
        Ok(Self { key, validity })
    }
}
