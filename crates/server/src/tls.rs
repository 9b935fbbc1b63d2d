//! TLS: certificates by server name, read again when their files change, and client certificates for sites
//! that ask for them.
//!
//! Each site may name its own authorities for client certificates. The client's server name, which comes
//! first in the handshake, decides which authorities are asked for. A certificate counts only at sites with
//! the same file of authorities, so [`ClientCertificate`] names that file. Resumed sessions do not verify the
//! certificate again. Their tickets are therefore valid only while these authorities are in force: a changed
//! file or a reload ends them.

use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use acme::{Acme, Challenges, ManagedCertificate};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    server::{
        Acceptor, ClientHello, ProducesTickets, ResolvesServerCert, ServerSessionMemoryCache, WebPkiClientVerifier,
        danger::ClientCertVerifier,
    },
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor, server::TlsStream};
use x509_parser::{
    certificate::X509Certificate,
    extensions::GeneralName,
    prelude::{FromDer, ParsedExtension},
};

use crate::{
    config::{Certificate, CertificateFiles, Site},
    sites::Names,
};

/// Most sessions kept for TLS 1.2 clients that do not support tickets.
const SESSIONS: usize = 4096;

/// The configured TLS. Clones share all state.
#[derive(Clone)]
pub(crate) struct Tls(Arc<Settings>);

struct Settings {
    /// The configuration for clients that are not asked for a certificate.
    config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    authorities: Vec<Authorities>,
    /// For each site, the index of the authorities for its clients, if it asks for certificates.
    asked_by: Vec<Option<usize>>,
}

/// The authorities that a site trusts for client certificates.
struct Authorities {
    file: Arc<Path>,
    /// The configuration for clients that are asked for a certificate of these authorities.
    config: ArcSwap<ServerConfig>,
    /// The file's stamp when it was read.
    seen: Mutex<Stamp>,
}

/// A verified client certificate.
#[derive(Debug)]
pub(crate) struct ClientCertificate {
    /// The file of the authorities that signed it. Other sites may trust others.
    pub(crate) authorities: Arc<Path>,
    /// Common names, and DNS names.
    pub(crate) names: Box<[Box<str>]>,
}

impl Tls {
    /// Reads the certificates of the sites; `None` if no site has one.
    pub(crate) fn new(
        sites: &[Site],
        acme: Option<&Acme>,
        tickets: Option<Arc<dyn ProducesTickets>>,
    ) -> Result<Option<Self>, TlsError> {
        let Some(certificates) = Certificates::read(sites, acme)? else { return Ok(None) };
        let certificates = Arc::new(certificates);
        let config = Arc::new(server_config(&certificates, None, tickets)?);
        let mut authorities: Vec<Authorities> = Vec::new();
        let mut asked_by = Vec::new();
        for site in sites {
            let Some(file) = &site.client_ca else {
                asked_by.push(None);
                continue;
            };
            let known = authorities.iter().position(|known| *known.file == **file);
            if known.is_none() {
                authorities.push(Authorities::read(file, &certificates)?);
            }
            asked_by.push(known.or(Some(authorities.len() - 1)));
        }
        Ok(Some(Self(Arc::new(Settings { config, certificates, authorities, asked_by }))))
    }

    /// Makes the keys for session tickets. They are kept for the life of the process, so that a reload does
    /// not end sessions.
    pub(crate) fn tickets() -> Option<Arc<dyn ProducesTickets>> {
        // Fails only without randomness; then sessions are resumed from memory.
        aws_lc_rs::Ticketer::new().ok()
    }

    /// Performs the handshake. Also returns the client's certificate, if it was asked for one and has sent
    /// one.
    pub(crate) async fn accept<S>(self, stream: S) -> io::Result<(TlsStream<S>, Option<ClientCertificate>)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Settings { config, authorities, .. } = &*self.0;
        if authorities.is_empty() {
            return Ok((TlsAcceptor::from(config.clone()).accept(stream).await?, None));
        }
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let Some(authorities) = self.0.authorities_for(start.client_hello().server_name()) else {
            return Ok((start.into_stream(config.clone()).await?, None));
        };
        let stream = start.into_stream(authorities.config.load_full()).await?;
        let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let certificate =
            leaf.map(|leaf| ClientCertificate { authorities: authorities.file.clone(), names: names(leaf) });
        Ok((stream, certificate))
    }

    /// The end of each site's certificate, in seconds since 1970; sites without one are left out.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (usize, u64)> {
        let Certificates { of_site, keys, .. } = &*self.0.certificates;
        let end = |key: &Key| {
            let key = key.current()?;
            let (_, leaf) = X509Certificate::from_der(key.cert.first()?).ok()?;
            u64::try_from(leaf.validity().not_after.timestamp()).ok()
        };
        of_site.iter().enumerate().filter_map(move |(site, key)| Some((site, end(&keys[(*key)?])?)))
    }

    /// Reads certificates whose files have changed, and keeps the old ones if the new ones are unusable.
    /// Returns how many were replaced, and the errors of the others.
    pub(crate) fn refresh(&self) -> (usize, Vec<TlsError>) {
        let (mut taken, mut errors) = self.0.certificates.refresh();
        for authorities in &self.0.authorities {
            match authorities.refresh(&self.0.certificates) {
                Ok(fresh) => taken += usize::from(fresh),
                Err(error) => errors.push(error),
            }
        }
        (taken, errors)
    }
}

impl Settings {
    /// The authorities for a client. As with certificates, a name of no site gets those of the first site.
    fn authorities_for(&self, server_name: Option<&str>) -> Option<&Authorities> {
        let site = server_name.and_then(|name| self.certificates.names.find(name)).unwrap_or(0);
        self.asked_by[site].map(|at| &self.authorities[at])
    }
}

impl Authorities {
    fn read(file: &Path, certificates: &Arc<Certificates>) -> Result<Self, TlsError> {
        // The stamp is taken before reading, so that a change meanwhile is found later.
        let seen = Mutex::new(stamp(file));
        Ok(Self { file: file.into(), config: ArcSwap::from_pointee(asking(file, certificates)?), seen })
    }

    /// Reads the file if it has changed, and returns whether it has.
    fn refresh(&self, certificates: &Arc<Certificates>) -> Result<bool, TlsError> {
        let now = stamp(&self.file);
        // Stored also after an error, which is then logged once rather than every few seconds.
        if std::mem::replace(&mut *self.seen.lock(), now) == now {
            return Ok(false);
        }
        self.config.store(Arc::new(asking(&self.file, certificates)?));
        Ok(true)
    }
}

/// The authorities of a file, or the problem with it.
pub(crate) fn authorities(file: &Path) -> Result<rustls::RootCertStore, String> {
    let mut roots = rustls::RootCertStore::empty();
    let text = std::fs::read(file).map_err(|error| format!("it cannot be read: {error}"))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        roots.add(certificate.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("it holds no certificate".to_owned()) } else { Ok(roots) }
}

/// A configuration that asks clients for an optional certificate. Its tickets are its own.
fn asking(file: &Path, certificates: &Arc<Certificates>) -> Result<ServerConfig, TlsError> {
    let wrong = |error: &dyn fmt::Display| TlsError::Authorities(file.to_owned(), error.to_string());
    let roots = authorities(file).map_err(|message| wrong(&message))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| wrong(&error))?;
    server_config(certificates, Some(verifier), Tls::tickets())
}

fn server_config(
    certificates: &Arc<Certificates>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    tickets: Option<Arc<dyn ProducesTickets>>,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(TlsError::Provider)?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(certificates.clone());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if certificates.challenges.is_some() {
        config.alpn_protocols.push(acme::TLS_ALPN.to_vec());
    }
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    if let Some(tickets) = tickets {
        config.ticketer = tickets;
    }
    Ok(config)
}

/// The names in a verified certificate: common names and DNS names.
fn names(certificate: &CertificateDer<'_>) -> Box<[Box<str>]> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Box::default() };
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let alternative = certificate.extensions().iter().filter_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
        _ => None,
    });
    let dns = alternative.flatten().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    });
    let mut names: Vec<Box<str>> = Vec::new();
    for name in common.chain(dns) {
        if !names.iter().any(|known| **known == *name) {
            names.push(name.into());
        }
    }
    names.into()
}

/// Why TLS cannot be served; the operator has to fix it.
#[derive(Debug)]
pub(crate) enum TlsError {
    /// A file cannot be read.
    Read(PathBuf, io::Error),
    /// A file is not PEM, or has no certificate or key in it.
    Pem(PathBuf, pem::Error),
    /// The chain has no certificate.
    Empty(PathBuf),
    /// The key cannot be used with the certificate.
    Key(Box<CertificateFiles>, rustls::Error),
    /// Authorities for clients' certificates cannot be used.
    Authorities(PathBuf, String),
    /// It is no response of OCSP.
    Ocsp(PathBuf),
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
            Self::Authorities(path, error) => {
                write!(f, "the authorities in {} cannot be used: {error}", path.display())
            }
            Self::Ocsp(path) => {
                write!(f, "{} is no OCSP response in DER, as `openssl ocsp -respout` writes it", path.display())
            }
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
    keys: Vec<Key>,
    /// The files of the keys in files, and their stamps when they were read.
    files: Mutex<Vec<(CertificateFiles, Stamps)>>,
    /// The certificates for an authority that validates a name by TLS.
    challenges: Option<Arc<Challenges>>,
}

/// A certificate and its key.
#[derive(Debug)]
enum Key {
    /// From the files with this number.
    Files(usize, ArcSwap<CertifiedKey>),
    /// From an authority, once it has issued one.
    Managed(Arc<ManagedCertificate>),
}

impl Key {
    fn current(&self) -> Option<Arc<CertifiedKey>> {
        match self {
            Self::Files(_, key) => Some(key.load_full()),
            Self::Managed(certificate) => certificate.key(),
        }
    }
}

/// A file's modification time and size, by which a change is detected.
type Stamp = Option<(SystemTime, u64)>;
/// The stamps of a chain, of its key, and of what its authority says of it.
type Stamps = [Stamp; 3];

impl Certificates {
    fn read(sites: &[Site], acme: Option<&Acme>) -> Result<Option<Self>, TlsError> {
        let mut known: HashMap<&CertificateFiles, usize> = HashMap::new();
        let mut keys = Vec::new();
        let mut files = Vec::new();
        let mut of_site = Vec::new();
        for site in sites {
            let certificate = match &site.certificate {
                Some(Certificate::Files(files)) => files,
                Some(Certificate::Acme(names)) => {
                    let managed = acme.and_then(|acme| acme.certificate(names));
                    of_site.push(managed.map(|managed| {
                        keys.push(Key::Managed(managed.clone()));
                        keys.len() - 1
                    }));
                    continue;
                }
                None => {
                    of_site.push(None);
                    continue;
                }
            };
            let at = match known.get(certificate) {
                Some(&at) => at,
                None => {
                    // Stamps are taken before reading, so that a change meanwhile is found later.
                    files.push((certificate.clone(), stamps(certificate)));
                    keys.push(Key::Files(files.len() - 1, ArcSwap::from_pointee(read(certificate)?)));
                    known.insert(certificate, keys.len() - 1);
                    keys.len() - 1
                }
            };
            of_site.push(Some(at));
        }
        if keys.is_empty() {
            return Ok(None);
        }
        let challenges = acme.map(|acme| acme.challenges().clone());
        Ok(Some(Self { names: Names::new(sites), of_site, keys, files: Mutex::new(files), challenges }))
    }

    fn refresh(&self) -> (usize, Vec<TlsError>) {
        let mut taken = 0;
        let mut errors = Vec::new();
        let mut all = self.files.lock();
        for key in &self.keys {
            let Key::Files(number, key) = key else { continue };
            let (files, seen) = &mut all[*number];
            let now = stamps(files);
            if now == *seen {
                continue;
            }
            // Stored also after an error, which is then logged once rather than every few seconds.
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
    /// The certificate of the named site. A client without a name, or with the name of no site or of a site
    /// without a certificate, gets the first one.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // An authority that validates a name offers nothing else (RFC 8737, section 3).
        if let Some(challenges) = &self.challenges
            && hello
                .alpn()
                .is_some_and(|mut offered| offered.next() == Some(acme::TLS_ALPN) && offered.next().is_none())
        {
            return challenges.tls_answer(hello.server_name()?);
        }
        let site = hello.server_name().and_then(|name| self.names.find(name));
        let at = site.and_then(|site| self.of_site[site]).unwrap_or(0);
        self.keys[at].current()
    }
}

fn stamps(files: &CertificateFiles) -> Stamps {
    [Some(&files.chain), Some(&files.key), files.ocsp.as_ref()].map(|path| stamp(path?))
}

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
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
    let mut certified = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
        .map_err(|error| TlsError::Key(Box::new(files.clone()), error))?;
    if let Some(path) = &files.ocsp {
        let response = bytes(path)?;
        // A sequence of DER; in PEM it would begin with a dash.
        if response.first() != Some(&0x30) {
            return Err(TlsError::Ocsp(path.clone()));
        }
        certified.ocsp = Some(response);
    }
    Ok(certified)
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| TlsError::Read(path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use rustls::{ClientConfig, HandshakeKind, RootCertStore};
    use rustls_pki_types::ServerName;
    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::config::{FilesConfig, SymlinkPolicy};

    type Authority = CertifiedIssuer<'static, KeyPair>;

    fn authority(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
    }

    /// Sites `one` and `same` ask for certificates of `one.ca`, `two` of `two.ca`, `free` for none. All share
    /// one certificate.
    fn sites(directory: &TempDir, one: &Authority, two: &Authority) -> (Vec<Site>, RootCertStore) {
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("one.ca"), one.pem()).expect("written");
        std::fs::write(path("two.ca"), two.pem()).expect("written");
        let names = ["one", "same", "two", "free"].map(|name| format!("{name}.example"));
        let made = rcgen::generate_simple_self_signed(names.to_vec()).expect("a certificate");
        let certificate = CertificateFiles { chain: path("crt"), key: path("key"), ocsp: None };
        std::fs::write(&certificate.chain, made.cert.pem()).expect("written");
        std::fs::write(&certificate.key, made.signing_key.serialize_pem()).expect("written");
        let authorities = [Some("one.ca"), Some("one.ca"), Some("two.ca"), None];
        let sites = names.iter().zip(authorities).map(|(name, authorities)| Site {
            names: vec![name.clone()],
            root: None,
            routes: Vec::new(),
            certificate: Some(Certificate::Files(certificate.clone())),
            client_ca: authorities.map(path),
            compression: None,
            expires: None,
            cors: None,
            response_headers: crate::config::HeaderRules::default(),
            access: crate::config::Access::default(),
            error_pages: Vec::new(),
            limit: None,
            maintenance: None,
            to_https: None,
            hsts: None,
            access_log: crate::config::LogChoice::Outer,
            files: FilesConfig {
                index: Vec::new(),
                listing: false,
                dot_files: false,
                symlinks: SymlinkPolicy::Never,
                precompressed: false,
                cache_control: Vec::new(),
                mime_types: Vec::new(),
                ..FilesConfig::default()
            },
        });
        let mut trust = RootCertStore::empty();
        trust.add(made.cert.der().clone()).expect("a certificate");
        (sites.collect(), trust)
    }

    /// A client with a certificate of an authority, or without one.
    fn client(trust: &RootCertStore, authority: Option<&Authority>) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder().with_root_certificates(trust.clone());
        let Some(authority) = authority else { return Arc::new(builder.with_no_client_auth()) };
        let mut params = CertificateParams::new(vec!["anna.example".to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, "Anna \u{c4}.");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, authority).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        Arc::new(builder.with_client_auth_cert(vec![certificate.der().clone()], key).expect("they belong together"))
    }

    /// The certificate that the server sees, and the kind of handshake; `None` if it failed.
    async fn meet(
        tls: &Tls,
        client: &Arc<ClientConfig>,
        name: &str,
    ) -> Option<(Option<ClientCertificate>, HandshakeKind)> {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let ask = async {
            let mut stream = TlsConnector::from(client.clone()).connect(name, near).await.ok()?;
            // The tickets arrive together with this data.
            stream.read_exact(&mut [0; 5]).await.ok()?;
            stream.get_ref().1.handshake_kind()
        };
        let answer = async {
            let (mut stream, certificate) = tls.clone().accept(far).await.ok()?;
            stream.write_all(b"hello").await.ok()?;
            stream.flush().await.ok()?;
            Some(certificate)
        };
        let (kind, certificate) = tokio::join!(ask, answer);
        Some((certificate?, kind?))
    }

    #[tokio::test]
    async fn a_certificate_is_worth_something_where_its_authorities_are_trusted() {
        let directory = TempDir::new().expect("a directory");
        let (one, two) = (authority("one"), authority("two"));
        let (sites, trust) = sites(&directory, &one, &two);
        let tls = Tls::new(&sites, None, Tls::tickets()).expect("good files").expect("there are certificates");
        let of_one = client(&trust, Some(&one));

        let (certificate, _) = meet(&tls, &of_one, "one.example").await.expect("trusted");
        let certificate = certificate.expect("one was shown");
        let names: [Box<str>; 2] = ["Anna \u{c4}.".into(), "anna.example".into()];
        assert_eq!(*certificate.names, names);
        assert_eq!(Some(&*certificate.authorities), sites[0].client_ca.as_deref());
        let (certificate, _) = meet(&tls, &of_one, "SAME.example").await.expect("trusted");
        assert_eq!(certificate.map(|certificate| certificate.authorities).as_deref(), sites[1].client_ca.as_deref());

        assert!(meet(&tls, &of_one, "two.example").await.is_none(), "its authority is not trusted there");
        let (certificate, _) = meet(&tls, &of_one, "free.example").await.expect("nobody is asked");
        assert!(certificate.is_none());
        let (certificate, _) = meet(&tls, &client(&trust, None), "one.example").await.expect("one need not have one");
        assert!(certificate.is_none());
    }

    #[tokio::test]
    async fn a_session_brings_its_certificate_along_only_to_the_authorities_that_checked_it() {
        let directory = TempDir::new().expect("a directory");
        let (one, two) = (authority("one"), authority("two"));
        let (sites, trust) = sites(&directory, &one, &two);
        let tickets = Tls::tickets();
        let tls = Tls::new(&sites, None, tickets.clone()).expect("good files").expect("there are certificates");
        let client = client(&trust, Some(&one));
        assert_eq!(meet(&tls, &client, "one.example").await.expect("trusted").1, HandshakeKind::Full);
        let (certificate, kind) = meet(&tls, &client, "one.example").await.expect("trusted");
        assert_eq!((certificate.is_some(), kind), (true, HandshakeKind::Resumed));

        // The file now has another authority, so certificates of the old one are no longer accepted.
        std::fs::write(sites[0].client_ca.as_ref().expect("a file"), two.pem() + "\n").expect("written");
        let reloaded = Tls::new(&sites, None, tickets).expect("good files").expect("there are certificates");
        assert!(meet(&reloaded, &client, "one.example").await.is_none(), "after a reload");
        assert!(meet(&tls, &client, "one.example").await.is_some(), "the file was not looked at yet");
        let (taken, errors) = tls.refresh();
        assert_eq!((taken, errors.len()), (1, 0));
        assert!(meet(&tls, &client, "one.example").await.is_none(), "when the file has changed");
        assert_eq!(tls.refresh().0, 0);

        std::fs::write(sites[0].client_ca.as_ref().expect("a file"), "broken").expect("written");
        let error = tls.refresh().1.pop().expect("it is told").to_string();
        assert!(error.contains("one.ca cannot be used: it holds no certificate"), "{error}");
        assert!(tls.refresh().1.is_empty(), "once");
    }
}
