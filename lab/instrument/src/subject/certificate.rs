//! A certificate for the servers of one run: made for it, trusted only by its clients, and removed after it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;

use crate::{LabError, bed::SERVER, temporary};

/// A self-signed certificate of the server's address, and its key.
#[derive(Debug)]
pub struct Certificate {
    /// Readable only by this user: the servers read the key before they drop root's rights.
    dir: TempDir,
    der: Vec<u8>,
}

impl Certificate {
    /// Makes a certificate with an elliptic key (P-256), as is common today.
    pub fn make() -> Result<Self, LabError> {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed([SERVER.to_string()])
            .map_err(|error| LabError::Machine(format!("cannot make a certificate: {error}")))?;
        let write = || -> io::Result<TempDir> {
            let dir = temporary::directory(0o700)?;
            fs::write(dir.path().join(CERTIFICATE), cert.pem())?;
            fs::write(dir.path().join(KEY), signing_key.serialize_pem())?;
            Ok(dir)
        };
        let dir = write().map_err(LabError::io("cannot write the certificate of the run"))?;
        Ok(Self { dir, der: cert.der().to_vec() })
    }

    /// The certificate in DER, for clients to trust.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The certificate in PEM.
    pub fn certificate_file(&self) -> PathBuf {
        self.path(CERTIFICATE)
    }

    /// Its private key in PEM.
    pub fn key_file(&self) -> PathBuf {
        self.path(KEY)
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::join(self.dir.path(), name)
    }
}

const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

    use super::*;

    #[test]
    fn files_and_der_are_one_certificate_and_only_we_may_read_the_key() {
        let made = Certificate::make().unwrap();
        let chain = CertificateDer::pem_file_iter(made.certificate_file()).unwrap();
        let chain: Vec<_> = chain.collect::<Result<_, _>>().unwrap();
        assert_eq!(chain.iter().map(|der| der.as_ref()).collect::<Vec<_>>(), [made.der()]);
        let key = PrivateKeyDer::from_pem_file(made.key_file()).unwrap();
        let server = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
        assert!(server.is_ok(), "the key belongs to the certificate: {server:?}");
        let dir = made.key_file().parent().unwrap().to_owned();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        drop(made);
        assert!(!dir.exists());
    }
}
