//! Whether what the configuration names is there: directories, certificates, keys, the folder of the access log.

use std::{ops::Range, path::Path};

use rustls::{InconsistentKeys, sign::CertifiedKey};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject as _},
};
use server::config::{CertificateFiles, LogTarget};

use super::{
    problems::Problem,
    resolve::{Resolved, SitePlaces},
};

/// Adds a problem for everything that is missing or cannot be read.
pub fn check(resolved: &Resolved, problems: &mut Vec<Problem>) {
    for (site, places) in resolved.config.sites.iter().zip(&resolved.places) {
        problems.extend(directory(&site.root, places.root.clone()));
        if let Some(files) = &site.certificate {
            problems.extend(certificate(files, places));
        }
    }
    if let Some(log) = &resolved.config.access_log
        && let LogTarget::File(path) = &log.target
    {
        problems.extend(log_file(path, resolved.access_log.clone()));
    }
}

fn directory(root: &Path, span: Option<Range<usize>>) -> Option<Problem> {
    let error = match std::fs::read_dir(root) {
        Ok(_) => return None,
        Err(error) => error,
    };
    let root = root.display();
    Some(match error.kind() {
        std::io::ErrorKind::NotFound => Problem::new(format!("the directory `{root}` does not exist"), span)
            .help("make it, or name another; a relative path in the file starts at the file's folder"),
        std::io::ErrorKind::NotADirectory => {
            Problem::new(format!("`{root}` is not a directory"), span).help("name the directory that the file lies in")
        }
        std::io::ErrorKind::PermissionDenied => Problem::new(format!("the directory `{root}` may not be read"), span)
            .help("let the user that runs serpent read and enter it (chmod, chown)"),
        _ => Problem::new(format!("the directory `{root}` cannot be read: {error}"), span),
    })
}

/// Whether chain and key can be read and belong together.
fn certificate(files: &CertificateFiles, places: &SitePlaces) -> Vec<Problem> {
    let chain = pem(&files.chain, places.chain.clone(), "certificate", |bytes| {
        CertificateDer::pem_slice_iter(bytes)
            .collect::<Result<Vec<_>, _>>()
            .map(|chain| Some(chain).filter(|c| !c.is_empty()))
    });
    let key = pem(&files.key, places.key.clone(), "private key", |bytes| match PrivateKeyDer::from_pem_slice(bytes) {
        Err(pem::Error::NoItemsFound) => Ok(None),
        key => key.map(Some),
    });
    let (chain, key) = match (chain, key) {
        (Ok(chain), Ok(key)) => (chain, key),
        (chain, key) => return chain.err().into_iter().chain(key.err()).collect(),
    };
    let (chain_file, key_file) = (files.chain.display(), files.key.display());
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let key = match provider.key_provider.load_private_key(key) {
        Ok(key) => key,
        Err(error) => {
            let message = format!("the private key in `{key_file}` cannot be used: {error}");
            return vec![Problem::new(message, places.key.clone()).help("give an RSA, ECDSA or Ed25519 key")];
        }
    };
    match CertifiedKey::new(chain, key).keys_match() {
        // Some keys do not tell their public half; the handshake will.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Vec::new(),
        Err(rustls::Error::InconsistentKeys(_)) => vec![
            Problem::new(
                format!("the certificate in `{chain_file}` and the key in `{key_file}` do not belong together"),
                places.key.clone(),
            )
            .also(places.chain.clone(), "the certificate")
            .help("give the key that the certificate was made for"),
        ],
        Err(error) => vec![Problem::new(
            format!("the certificate in `{chain_file}` cannot be used: {error}"),
            places.chain.clone(),
        )],
    }
}

/// What `read` finds in a PEM file.
fn pem<T>(
    path: &Path,
    span: Option<Range<usize>>,
    what: &str,
    read: impl Fn(&[u8]) -> Result<Option<T>, pem::Error>,
) -> Result<T, Problem> {
    let file = path.display();
    let bytes = std::fs::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Problem::new(format!("the file `{file}` does not exist"), span.clone()).help("check the path")
        }
        std::io::ErrorKind::PermissionDenied => {
            Problem::new(format!("the file `{file}` may not be read"), span.clone())
                .help("let the user that runs serpent read it, and for a key nobody else")
        }
        _ => Problem::new(format!("the file `{file}` cannot be read: {error}"), span.clone()),
    })?;
    match read(&bytes) {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(Problem::new(format!("there is no {what} in `{file}`"), span)
            .help("give a PEM file: text with lines such as `-----BEGIN CERTIFICATE-----`")),
        Err(error) => Err(Problem::new(format!("the {what} in `{file}` cannot be read: {error}"), span)),
    }
}

fn log_file(path: &Path, span: Option<Range<usize>>) -> Option<Problem> {
    if path.is_dir() {
        return Some(
            Problem::new(format!("the access log `{}` is a directory", path.display()), span).help("name a file in it"),
        );
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    (!folder.is_dir()).then(|| {
        Problem::new(format!("the folder `{}` of the access log does not exist", folder.display()), span)
            .help("make it, or name another file")
    })
}
