//! TLS: certificates by server name, read again when their files change.

use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    server::{ClientHello, ProducesTickets, ResolvesServerCert, ServerSessionMemoryCache},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject};
use tokio_rustls::TlsAcceptor;

use crate::{
    config::{CertificateFiles, Site},
    sites::Names,
};

/// Sessions of TLS 1.2 clients that do not take tickets.
const SESSIONS: usize = 4096;

/// TLS as configured.
pub(crate) struct Tls {
    config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
}

impl Tls {
    /// Reads the certificates of the sites; `None` where no site has one.
    pub(crate) fn new(sites: &[Site], tickets: Option<Arc<dyn ProducesTickets>>) -> Result<Option<Self>, TlsError> {
        let Some(certificates) = Certificates::read(sites)? else { return Ok(None) };
        let certificates = Arc::new(certificates);
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(TlsError::Provider)?
            .with_no_client_auth()
            .with_cert_resolver(certificates.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        if let Some(tickets) = tickets {
            config.ticketer = tickets;
        }
        Ok(Some(Self { config: Arc::new(config), certificates }))
    }

    /// Keys for session tickets, to be kept for the life of the process so that a reload does not end sessions.
    pub(crate) fn tickets() -> Option<Arc<dyn ProducesTickets>> {
        // Fails only without randomness; then sessions are resumed from memory.
        aws_lc_rs::Ticketer::new().ok()
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.config.clone().into()
    }

    /// Reads certificates whose files have changed; the old ones stay where the new ones cannot be used. How many were
    /// taken over, and what was wrong with the others.
    pub(crate) fn refresh(&self) -> (usize, Vec<TlsError>) {
        self.certificates.refresh()
    }
}

/// Why TLS cannot be served: the operator's to mend.
#[derive(Debug)]
pub(crate) enum TlsError {
    /// A file cannot be read.
    Read(PathBuf, io::Error),
    /// A file is not PEM, or has no certificate or key in it.
    Pem(PathBuf, pem::Error),
    /// The chain has no certificate.
    Empty(PathBuf),
    /// The key cannot be used with the certificate.
    Key(CertificateFiles, rustls::Error),
    /// No usable protocol version.
    Provider(rustls::Error),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "{} cannot be read: {error}", path.display()),
            Self::Pem(path, error) => write!(f, "{} is not a PEM file as expected here: {error}", path.display()),
            Self::Empty(path) => write!(f, "{} holds no certificate", path.display()),
            Self::Key(files, error) => write!(
                f,
                "the key {} cannot be used with the certificate {}: {error}",
                files.key.display(),
                files.chain.display()
            ),
            Self::Provider(error) => write!(f, "TLS cannot be set up: {error}"),
        }
    }
}

impl std::error::Error for TlsError {}

/// The certificates of all sites.
#[derive(Debug)]
struct Certificates {
    names: Names,
    /// By site: which certificate, if any.
    of_site: Vec<Option<usize>>,
    keys: Vec<ArcSwap<CertifiedKey>>,
    /// Where the keys come from, and what the files looked like when they were read.
    files: Mutex<Vec<(CertificateFiles, Stamps)>>,
}

/// What tells that a chain or key file has changed.
type Stamps = [Option<(SystemTime, u64)>; 2];

impl Certificates {
    fn read(sites: &[Site]) -> Result<Option<Self>, TlsError> {
        let mut known: HashMap<(&Path, &Path), usize> = HashMap::new();
        let mut keys = Vec::new();
        let mut files = Vec::new();
        let mut of_site = Vec::new();
        for site in sites {
            let Some(certificate) = &site.certificate else {
                of_site.push(None);
                continue;
            };
            let at = match known.get(&(&certificate.chain, &certificate.key)) {
                Some(&at) => at,
                None => {
                    // Stamps first: a change while reading is then found later.
                    files.push((certificate.clone(), stamps(certificate)));
                    keys.push(ArcSwap::from_pointee(read(certificate)?));
                    known.insert((&certificate.chain, &certificate.key), keys.len() - 1);
                    keys.len() - 1
                }
            };
            of_site.push(Some(at));
        }
        if keys.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self { names: Names::new(sites), of_site, keys, files: Mutex::new(files) }))
    }

    fn refresh(&self) -> (usize, Vec<TlsError>) {
        let mut taken = 0;
        let mut errors = Vec::new();
        for ((files, seen), key) in self.files.lock().iter_mut().zip(&self.keys) {
            let now = stamps(files);
            if now == *seen {
                continue;
            }
            // Also after an error, which is then told once and not every few seconds.
            *seen = now;
            match read(files) {
                Ok(fresh) => {
                    key.store(Arc::new(fresh));
                    taken += 1;
                }
                Err(error) => errors.push(error),
            }
        }
        (taken, errors)
    }
}

impl ResolvesServerCert for Certificates {
    /// The certificate of the site with that name. Clients without a name, or with one of no site or of a site without a
    /// certificate, get the first certificate, as they get the first site.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let site = hello.server_name().and_then(|name| self.names.find(name));
        let at = site.and_then(|site| self.of_site[site]).unwrap_or(0);
        Some(self.keys[at].load_full())
    }
}

fn stamps(files: &CertificateFiles) -> Stamps {
    [&files.chain, &files.key].map(|path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    })
}

fn read(files: &CertificateFiles) -> Result<CertifiedKey, TlsError> {
    let chain = CertificateDer::pem_slice_iter(&bytes(&files.chain)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TlsError::Pem(files.chain.clone(), error))?;
    if chain.is_empty() {
        return Err(TlsError::Empty(files.chain.clone()));
    }
    let key =
        PrivateKeyDer::from_pem_slice(&bytes(&files.key)?).map_err(|error| TlsError::Pem(files.key.clone(), error))?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
        .map_err(|error| TlsError::Key(files.clone(), error))
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| TlsError::Read(path.to_owned(), error))
}
