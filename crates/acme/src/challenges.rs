//! Answers to the challenges of an authority: the door between this crate and a server.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::RwLock;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::{crypto::aws_lc_rs, sign::CertifiedKey};
use rustls_pki_types::PrivateKeyDer;

use crate::error::AcmeError;

/// The challenges that are open. Empty most of the time.
#[derive(Debug, Default)]
pub struct Challenges {
    /// By token: the content of the file that the authority looks for.
    http: RwLock<HashMap<String, String>>,
    /// By name, in lower case: the certificate that the authority wants to see.
    tls: RwLock<HashMap<String, Arc<CertifiedKey>>>,
}

/// A challenge that is answered until this is dropped.
#[derive(Debug)]
pub(crate) struct Presented {
    challenges: Weak<Challenges>,
    key: String,
    is_http: bool,
}

impl Challenges {
    /// The paths of answers to HTTP-01 begin with this; the token follows.
    pub const PATH: &str = "/.well-known/acme-challenge/";

    /// The answer to a token (RFC 8555, section 8.3).
    pub fn http_answer(&self, token: &str) -> Option<String> {
        self.http.read().get(token).cloned()
    }

    /// The certificate that proves a name (RFC 8737).
    pub fn tls_answer(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.tls.read().get(&*name.to_ascii_lowercase()).cloned()
    }

    pub(crate) fn present_http(self: &Arc<Self>, token: &str, answer: &str) -> Presented {
        self.http.write().insert(token.to_owned(), answer.to_owned());
        Presented { challenges: Arc::downgrade(self), key: token.to_owned(), is_http: true }
    }

    pub(crate) fn present_tls(self: &Arc<Self>, name: &str, digest: &[u8]) -> Result<Presented, AcmeError> {
        let wrong = |error: &dyn std::fmt::Display| AcmeError::Challenge(format!("{name}: {error}"));
        let key = KeyPair::generate().map_err(|error| wrong(&error))?;
        let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(|error| wrong(&error))?;
        if digest.len() != 32 {
            return Err(wrong(&"a digest of the wrong length"));
        }
        params.custom_extensions.push(CustomExtension::new_acme_identifier(digest));
        let certificate = params.self_signed(&key).map_err(|error| wrong(&error))?;
        let chain = vec![certificate.der().clone()];
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        // Not checked against the key: the extension is critical, and known to authorities alone.
        let key = aws_lc_rs::default_provider().key_provider.load_private_key(key).map_err(|error| wrong(&error))?;
        let name = name.to_ascii_lowercase();
        self.tls.write().insert(name.clone(), Arc::new(CertifiedKey::new(chain, key)));
        Ok(Presented { challenges: Arc::downgrade(self), key: name, is_http: false })
    }
}

impl Drop for Presented {
    fn drop(&mut self) {
        let Some(challenges) = self.challenges.upgrade() else { return };
        if self.is_http {
            challenges.http.write().remove(&self.key);
        } else {
            challenges.tls.write().remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_answered_as_long_as_it_is_open() {
        let challenges = Arc::new(Challenges::default());
        let presented = challenges.present_http("token", "token.thumb");
        assert_eq!(challenges.http_answer("token").as_deref(), Some("token.thumb"));
        assert_eq!(challenges.http_answer("other"), None);
        drop(presented);
        assert_eq!(challenges.http_answer("token"), None);

        let presented = challenges.present_tls("One.example", &[7; 32]).expect("a certificate");
        assert!(challenges.tls_answer("one.EXAMPLE").is_some());
        assert!(challenges.tls_answer("two.example").is_none());
        drop(presented);
        assert!(challenges.tls_answer("one.example").is_none());
        assert!(challenges.present_tls("one.example", &[7; 31]).is_err());
    }
}
