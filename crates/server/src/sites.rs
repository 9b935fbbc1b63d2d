//! The sites, and which of them a host name means.

use std::{borrow::Cow, collections::HashMap, io};

use crate::{
    config::{CertificateFiles, Site},
    files::{Cache, Files},
};

/// Sites by host name. Names of no site mean the first one.
pub(crate) struct Sites {
    names: Names,
    sites: Vec<Entry>,
    /// Whether requests for one name can arrive on a connection that was opened for a name with another certificate.
    several_certificates: bool,
}

struct Entry {
    files: Files,
    certificate: Option<CertificateFiles>,
}

/// Why a site cannot be opened: the operator's to mend.
#[derive(Debug)]
pub(crate) struct SiteError {
    pub(crate) root: std::path::PathBuf,
    pub(crate) error: io::Error,
}

impl Sites {
    pub(crate) fn open(sites: &[Site], cache: &Cache) -> Result<Self, SiteError> {
        let opened = sites.iter().map(|site| match Files::open(site, cache.clone()) {
            Ok(files) => Ok(Entry { files, certificate: site.certificate.clone() }),
            Err(error) => Err(SiteError { root: site.root.clone(), error }),
        });
        let opened = opened.collect::<Result<Vec<_>, _>>()?;
        let several_certificates = opened.iter().any(|site| site.certificate != opened[0].certificate);
        Ok(Self { names: Names::new(sites), sites: opened, several_certificates })
    }

    /// The site for a host, which may have a port.
    pub(crate) fn find(&self, host: &str) -> usize {
        if self.sites.len() == 1 { 0 } else { self.names.find(host).unwrap_or(0) }
    }

    /// The files of a site that [`Sites::find`] named.
    pub(crate) fn files(&self, site: usize) -> &Files {
        &self.sites[site].files
    }

    /// Whether a connection whose client asked for `server_name` has shown the certificate of the site.
    pub(crate) fn same_certificate(&self, server_name: &str, site: usize) -> bool {
        !self.several_certificates || self.sites[self.find(server_name)].certificate == self.sites[site].certificate
    }
}

/// Host names, plain and with a wildcard, of a list of sites.
#[derive(Debug, Default)]
pub(crate) struct Names {
    plain: HashMap<Box<str>, usize>,
    /// What stands behind `*.`.
    wildcard: HashMap<Box<str>, usize>,
}

impl Names {
    pub(crate) fn new(sites: &[Site]) -> Self {
        let mut names = Self::default();
        for (at, site) in sites.iter().enumerate() {
            for name in &site.names {
                match name.strip_prefix("*.") {
                    Some(suffix) => names.wildcard.entry(suffix.into()).or_insert(at),
                    None => names.plain.entry(name.as_str().into()).or_insert(at),
                };
            }
        }
        names
    }

    /// The site that has the name: a plain name goes before wildcards, and the longest wildcard before others.
    pub(crate) fn find(&self, host: &str) -> Option<usize> {
        let name = normal(host);
        if let Some(&site) = self.plain.get(&*name) {
            return Some(site);
        }
        if self.wildcard.is_empty() {
            return None;
        }
        let mut suffixes = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        suffixes.find_map(|suffix| self.wildcard.get(suffix).copied())
    }
}

/// A host without port and trailing dot, in lower case.
fn normal(host: &str) -> Cow<'_, str> {
    let name = match host.rsplit_once(':') {
        // The colons of an IPv6 address stand within brackets.
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(sites: &[&[&str]]) -> Names {
        let sites: Vec<Site> = sites
            .iter()
            .map(|names| Site {
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                root: "/".into(),
                certificate: None,
                files: crate::config::FilesConfig {
                    index: Vec::new(),
                    listing: false,
                    dot_files: false,
                    symlinks: crate::config::SymlinkPolicy::Never,
                    precompressed: false,
                    cache_control: Vec::new(),
                    mime_types: Vec::new(),
                },
            })
            .collect();
        Names::new(&sites)
    }

    #[test]
    fn a_host_is_found_in_any_writing() {
        let names =
            names(&[&["a.example", "[::1]"], &["*.b.example", "b.example"], &["deep.b.example", "*.x.b.example"]]);
        for (host, site) in [
            ("a.example", Some(0)),
            ("A.Example:8080", Some(0)),
            ("a.example.", Some(0)),
            ("a.example.:80", Some(0)),
            ("[::1]", Some(0)),
            ("[::1]:80", Some(0)),
            ("b.example", Some(1)),
            ("www.b.example", Some(1)),
            ("one.two.b.example", Some(1)),
            ("deep.b.example", Some(2)),
            ("one.x.b.example", Some(2)),
            ("x.b.example", Some(1)),
            ("cb.example", None),
            (".a.example", None),
            ("", None),
            (":80", None),
        ] {
            assert_eq!(names.find(host), site, "{host:?}");
        }
    }

    #[test]
    fn the_first_site_with_a_name_has_it() {
        assert_eq!(names(&[&["a"], &["a"]]).find("a"), Some(0));
    }
}
