//! Several gateways of one site.

use std::{
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
};

use cluster::{AddressError, Store, Trust};

use super::CertificateFiles;

/// The store that the gateways of a site share.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Its address, which may contain a password.
    store: String,
    /// The name of the site.
    site: String,
    files: StoreFiles,
}

/// Files for a store that is reached over TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreFiles {
    /// The authorities whose certificates are accepted; `None`: those of the system.
    pub authorities: Option<PathBuf>,
    /// The certificate that the store gets to see.
    pub own: Option<CertificateFiles>,
}

/// Why there is no way to a store.
#[derive(Debug)]
pub enum StoreError {
    /// The address, or a certificate.
    Address(AddressError),
    /// A file with a certificate or a key.
    File(PathBuf, io::Error),
}

impl ClusterConfig {
    /// The store at `store`, such as `rediss://user:password@host:6379`, for the gateways of a site with this name.
    ///
    /// # Errors
    /// It is not the address of a store, or there are certificates and no TLS. The files are read at the start.
    pub fn new(store: String, site: String, files: StoreFiles) -> Result<Self, AddressError> {
        Store::new(&store, &Trust::default(), &site, "")?;
        if files != StoreFiles::default() && !["rediss", "valkeys"].iter().any(|scheme| store.starts_with(scheme)) {
            return Err(AddressError::NotTls);
        }
        Ok(Self { store, site, files })
    }

    /// The name of the site.
    pub fn site(&self) -> &str {
        &self.site
    }

    /// The address of the store without the account.
    pub fn public_store(&self) -> String {
        // An address may have an account in its query, too.
        let address = self.store.split_once('?').map_or(&*self.store, |(address, _)| address);
        match (address.split_once("://"), address.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
            _ => address.to_owned(),
        }
    }

    /// A number that only the gateways of this site know, if the address has a password.
    pub(crate) fn secret(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.store, &self.site).hash(&mut hasher);
        hasher.finish()
    }

    /// For a gateway with a name of its own, which it has until it ends.
    pub(crate) fn open(&self, gateway: u64) -> Result<Store, StoreError> {
        let read = |path: &Path| std::fs::read(path).map_err(|error| StoreError::File(path.to_owned(), error));
        let StoreFiles { authorities, own } = &self.files;
        let identity = |own: &CertificateFiles| Ok((read(&own.chain)?, read(&own.key)?));
        let trust = Trust {
            authorities: authorities.as_deref().map(read).transpose()?,
            identity: own.as_ref().map(identity).transpose()?,
        };
        Store::new(&self.store, &trust, &self.site, &format!("{gateway:016x}")).map_err(StoreError::Address)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => error.fmt(f),
            Self::File(path, error) => write!(f, "{} cannot be read: {error}", path.display()),
        }
    }
}

impl fmt::Debug for ClusterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterConfig")
            .field("store", &self.public_store())
            .field("site", &self.site)
            .field("files", &self.files)
            .finish()
    }
}
