//! `[cluster]`: several gateways of one site.

use server::config::{CertificateFiles, Classes, ClusterConfig, StoreFiles};

use super::{named_files::FileKind, resolver::Resolver};
use crate::config::{
    problems::Problem,
    raw::{Raw, RawCluster},
};

impl Resolver<'_> {
    /// The store that the gateways share, if there is one.
    pub(super) fn cluster(&mut self, raw: &Raw, classes: &Classes) -> Option<ClusterConfig> {
        let written = raw.cluster.as_ref()?;
        let cluster = written.get_ref();
        let (Some(store), Some(site)) = (&cluster.store, &cluster.site) else {
            let missing = if cluster.store.is_none() { "store" } else { "site" };
            if self.shape_is_sound {
                self.problems.push(Problem::new(format!("`[cluster]` has no `{missing}`"), Some(written.span())).help(
                    "give both, as in `store = \"rediss://user:password@host:6379\"` and `site = \"shop\"`: gateways \
                     with the same two are those of one site",
                ));
            }
            return None;
        };
        let name = site.get_ref().0.as_str();
        if !is_name(name) {
            self.problems.push(
                Problem::new("the name of a site has 1 to 64 letters, digits, `-`, `_` and `.`", Some(site.span()))
                    .help("as in `site = \"shop\"`"),
            );
            return None;
        }
        let files =
            StoreFiles { authorities: self.file(&cluster.tls_ca, FileKind::Authorities), own: self.own(cluster) };
        let config = match ClusterConfig::new(store.get_ref().0.clone(), name.to_owned(), files) {
            Ok(config) => config,
            Err(error) => {
                self.problems.push(
                    Problem::new(error.to_string(), Some(store.span()))
                        .help("write `store = \"redis://HOST:6379\"`, or `rediss://` for TLS, or `unix:///PATH`; several hosts of a \
                               cluster as `redis+cluster://A,B`, of sentinels as `redis+sentinel://A,B/MASTER`"),
                );
                return None;
            }
        };
        let admission = &classes.admission;
        let has_window = admission.total.is_some() || admission.resources.iter().any(|it| it.window.is_some());
        if self.shape_is_sound && !(admission.enabled && has_window) && raw.uplink.line.is_none() {
            self.problems.push(
                Problem::warning("`[cluster]` has nothing to divide: no window is set", Some(written.span()))
                    .help("set `admission.slots`, or those of each resource, or `uplink.line`"),
            );
        }
        Some(config)
    }

    /// The certificate that the store gets to see.
    fn own(&mut self, raw: &RawCluster) -> Option<CertificateFiles> {
        self.pair(&raw.tls_cert, &raw.tls_key)?;
        let chain = self.file(&raw.tls_cert, FileKind::Chain)?;
        let key = self.file(&raw.tls_key, FileKind::Key)?;
        Some(CertificateFiles { chain, key, ocsp: None })
    }
}

/// Whether a text can be the name of a site or a line at the store.
pub(super) fn is_name(text: &str) -> bool {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(may_be)
}
