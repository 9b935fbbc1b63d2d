//! TLS settings of the lab's clients.

use std::{net::Ipv4Addr, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use workload::behaviour::Protocol;

/// A client that accepts only one certificate, resumes no session, and offers one protocol.
pub(super) fn config(certificate_der: &[u8], protocol: Protocol) -> Result<Arc<ClientConfig>, Error> {
    let provider = CryptoProvider {
        // Before a post-quantum exchange, which is rustls's default and costs the generator and the server
        // three times as much. The module's documentation gives the settings.
        kx_groups: vec![aws_lc_rs::kx_group::X25519, aws_lc_rs::kx_group::SECP256R1, aws_lc_rs::kx_group::SECP384R1],
        ..aws_lc_rs::default_provider()
    };
    let verifier = OneCertificate {
        certificate: CertificateDer::from(certificate_der.to_vec()),
        algorithms: provider.signature_verification_algorithms,
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![match protocol {
        Protocol::Http1 => b"http/1.1".to_vec(),
        Protocol::Http2 => b"h2".to_vec(),
    }];
    let config = Arc::new(config);
    // The first key of a process takes some 30 ms for randomness; that must not delay a request.
    ClientConnection::new(Arc::clone(&config), ServerName::IpAddress(Ipv4Addr::LOCALHOST.into()))?;
    Ok(config)
}

/// The lab makes the certificate itself, so no issuer vouches for it: it is compared byte by byte. The server
/// must still prove that it has the key.
#[derive(Debug)]
struct OneCertificate {
    certificate: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for OneCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *end_entity == self.certificate {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
