//! Several gateways of one site.

use std::{
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use cluster::{Store, StoreError};

/// The store that the gateways of a site share.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Its address, which may contain a password.
    store: String,
    /// The name of the site.
    site: String,
}

impl ClusterConfig {
    /// The store at `store`, such as `rediss://user:password@host:6379`, for the gateways of a site with this name.
    ///
    /// # Errors
    /// It is not the address of a store.
    pub fn new(store: String, site: String) -> Result<Self, StoreError> {
        Store::new(&store, &site, "").map(|_| Self { store, site })
    }

    /// The name of the site.
    pub fn site(&self) -> &str {
        &self.site
    }

    /// The address of the store without the account.
    pub fn public_store(&self) -> String {
        match (self.store.split_once("://"), self.store.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
            _ => self.store.clone(),
        }
    }

    /// What only the gateways of this site know, if the address has a password.
    pub(crate) fn secret(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.store, &self.site).hash(&mut hasher);
        hasher.finish()
    }

    /// For a gateway with a name of its own, which it has until it ends.
    pub(crate) fn open(&self, gateway: u64) -> Result<Store, StoreError> {
        Store::new(&self.store, &self.site, &format!("{gateway:016x}"))
    }
}

impl fmt::Debug for ClusterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterConfig").field("store", &self.public_store()).field("site", &self.site).finish()
    }
}
