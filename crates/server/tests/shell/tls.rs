//! TLS: which certificate, which protocol, and what happens when files change.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use http::HeaderValue;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, NamedGroup, RootCertStore, SignatureScheme,
    StreamOwned,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serpent_server::config::{Certificate, CertificateFiles, Config, Listen, Redirect, Site};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::harness::{Client, Running, certificate, config, plain, root, site, statuses};

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Two sites with a certificate each, and one wildcard.
fn two_sites() -> (Config, TempDir, Vec<CertificateDer<'static>>) {
    let root = root();
    let (one, trust_one) = certificate(root.path(), "one", &["one.example"]);
    let (two, trust_two) = certificate(root.path(), "two", &["*.two.example"]);
    let mut config = config(root.path());
    config.listen = vec![Listen { tls: true, ..plain() }];
    config.sites =
        vec![site(root.path(), &["one.example"], Some(one)), site(root.path(), &["*.two.example"], Some(two))];
    (config, root, vec![trust_one, trust_two])
}

fn client(trust: &[CertificateDer<'static>], protocols: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    trust.iter().for_each(|trust| roots.add(trust.clone()).expect("a certificate"));
    let mut client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(client)
}

fn connect(server: &Running, client: &Arc<ClientConfig>, name: &str) -> std::io::Result<Stream> {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut connection = ClientConnection::new(client.clone(), name).expect("a client");
    let mut stream = TcpStream::connect(server.addresses[0])?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    connection.complete_io(&mut stream)?;
    Ok(StreamOwned::new(connection, stream))
}

fn ask(stream: &mut Stream, host: &str) -> String {
    let head = format!("GET /a.txt HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("closed in order: with a TLS alert");
    text
}

#[test]
fn certificates_are_chosen_by_name() {
    let (config, _root, trust) = two_sites();
    let server = Running::start(config);
    let client = client(&trust, &["http/1.1"]);
    for name in ["one.example", "a.two.example"] {
        let mut stream = connect(&server, &client, name).expect("a certificate for the name");
        assert_eq!(stream.conn.alpn_protocol(), Some(b"http/1.1".as_slice()));
        assert_eq!(statuses(&ask(&mut stream, name)), [200]);
    }
    assert!(connect(&server, &client, "unknown.example").is_err(), "the first site's certificate is of another name");
}

#[test]
fn a_request_for_a_site_with_another_certificate_is_misdirected() {
    let (config, _root, trust) = two_sites();
    let server = Running::start(config);
    let client = client(&trust, &[]);
    let mut stream = connect(&server, &client, "one.example").expect("connected");
    assert_eq!(statuses(&ask(&mut stream, "a.two.example")), [421]);
    let mut stream = connect(&server, &client, "a.two.example").expect("connected");
    assert_eq!(statuses(&ask(&mut stream, "b.two.example")), [200]);
}

#[test]
fn sessions_are_resumed_also_after_a_reload() {
    let (config, _root, trust) = two_sites();
    let server = Running::start(config.clone());
    let client = client(&trust, &["http/1.1"]);
    let mut first = connect(&server, &client, "one.example").expect("connected");
    assert_eq!(first.conn.handshake_kind(), Some(HandshakeKind::Full));
    ask(&mut first, "one.example");
    server.handle.reload(config).expect("a good configuration");
    let second = connect(&server, &client, "one.example").expect("connected");
    assert_eq!(second.conn.handshake_kind(), Some(HandshakeKind::Resumed));
}

#[test]
fn a_changed_certificate_is_taken_over_and_a_broken_one_is_not() {
    let (config, root, trust) = two_sites();
    let server = Running::start(config);
    let (files, renewed) = certificate(root.path(), "one", &["one.example"]);
    let until = Instant::now() + Duration::from_secs(20);
    while connect(&server, &client(std::slice::from_ref(&renewed), &[]), "one.example").is_err() {
        assert!(Instant::now() < until, "files are looked at every few seconds");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(connect(&server, &client(&trust[..1], &[]), "one.example").is_err(), "the old one is gone");

    std::fs::write(&files.chain, "broken").expect("written");
    let changed = {
        let (mut config, other, _) = two_sites();
        config.sites[0].certificate = Some(Certificate::Files(files));
        (config, other)
    };
    let error = server.handle.reload(changed.0).expect_err("a broken certificate").to_string();
    assert!(error.starts_with("tls_cert, tls_key: ") && error.contains("one.crt"), "{error}");
    connect(&server, &client(&[renewed], &[]), "one.example").expect("the one before is still shown");
}

/// Keeps what the server says of its certificate.
#[derive(Debug)]
struct SeesStaple(Arc<WebPkiServerVerifier>, Mutex<Vec<u8>>);

impl ServerCertVerifier for SeesStaple {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.1.lock().unwrap() = ocsp.to_vec();
        self.0.verify_server_cert(leaf, chain, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[test]
fn what_the_authority_says_of_a_certificate_is_sent_along_and_read_again() {
    let (mut config, root, trust) = two_sites();
    let path = root.path().join("one.ocsp");
    std::fs::write(&path, b"\x30\x03\x0a\x01\x00").expect("written");
    let files = config.sites[0].certificate.as_ref().and_then(Certificate::files).expect("files").clone();
    let with = CertificateFiles { ocsp: Some(path.clone()), ..files };
    config.sites[0].certificate = Some(Certificate::Files(with));
    let server = Running::start(config);
    let mut roots = RootCertStore::empty();
    trust.iter().for_each(|trust| roots.add(trust.clone()).expect("a certificate"));
    let verifier = WebPkiServerVerifier::builder(Arc::new(roots)).build().expect("a verifier");
    let sees = Arc::new(SeesStaple(verifier, Mutex::default()));
    let mut client =
        ClientConfig::builder().dangerous().with_custom_certificate_verifier(sees.clone()).with_no_client_auth();
    // Each connection sees the certificate.
    client.resumption = rustls::client::Resumption::disabled();
    let client = Arc::new(client);
    let stapled = |name: &str| {
        connect(&server, &client, name).expect("a handshake");
        sees.1.lock().unwrap().clone()
    };
    assert_eq!(stapled("one.example"), b"\x30\x03\x0a\x01\x00");
    assert_eq!(stapled("a.two.example"), b"", "the other site has none");
    std::fs::write(&path, b"\x30\x04\x0a\x02\x00\x00").expect("written");
    let until = Instant::now() + Duration::from_secs(20);
    while stapled("one.example") != b"\x30\x04\x0a\x02\x00\x00" {
        assert!(Instant::now() < until, "files are looked at every few seconds");
        std::thread::sleep(Duration::from_millis(100));
    }
    std::fs::write(&path, "-----BEGIN").expect("written");
    let (mut config, other, _) = two_sites();
    let files = config.sites[0].certificate.as_ref().and_then(Certificate::files).expect("files").clone();
    config.sites[0].certificate = Some(Certificate::Files(CertificateFiles { ocsp: Some(path), ..files }));
    let error = serpent_server::Server::bind(config).err().expect("PEM is no DER").to_string();
    assert!(error.contains("one.ocsp is no OCSP response in DER"), "{error}");
    drop(other);
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let (mut config, _root, _) = two_sites();
    let files = |at: usize| config.sites[at].certificate.as_ref().and_then(Certificate::files).expect("files").clone();
    config.sites[0].certificate = Some(Certificate::Files(CertificateFiles { key: files(1).key, ..files(0) }));
    let error = serpent_server::Server::bind(config).err().expect("they do not belong together").to_string();
    assert!(error.contains("two.key cannot be used with the certificate"), "{error}");
}

#[test]
fn plain_http_on_a_tls_address_and_a_silent_client_do_no_harm() {
    let (mut config, _root, trust) = two_sites();
    config.limits.handshake_timeout = Duration::from_millis(100);
    let server = Running::start(config);
    let answer = server.say("GET / HTTP/1.1\r\nHost: one.example\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(
        answer.ends_with(
            "This address speaks HTTPS, and the request came without TLS. Begin the address with https://\n"
        ),
        "{answer}"
    );
    assert_eq!(statuses(&server.say("nonsense\r\n\r\n")), [0; 0], "neither TLS nor HTTP");
    assert_eq!(server.connect().rest(), "", "a handshake that does not come is given up");
    connect(&server, &client(&trust, &[]), "one.example").expect("others are served");
}

#[test]
fn requests_without_tls_are_sent_to_it_and_those_with_tls_are_told_to_stay() {
    let (mut config, _root, trust) = two_sites();
    config.listen.push(plain());
    config.sites[0].to_https = Some(Redirect::to_https(443));
    config.sites[1].to_https = Some(Redirect::to_https(8443));
    config.sites[0].hsts = Some(HeaderValue::from_static("max-age=5"));
    config.classes.trusted_proxies = vec!["127.0.0.2/32".parse().expect("a network")];
    let server = Running::start(config);
    let say = |from: &str, host: &str, path: &str, more: &str| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let from: SocketAddr = format!("{from}:0").parse().expect("an address");
        socket.bind(&from.into()).expect("all of 127/8 is ours");
        socket.connect(&server.addresses[1].into()).expect("connected");
        let mut client = Client(socket.into());
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n"));
        client.rest()
    };
    let answer = say("127.0.0.1", "one.example:80", "/a.txt?b=c", "");
    assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");
    assert!(answer.contains("\r\nlocation: https://one.example/a.txt?b=c\r\n"), "{answer}");
    assert!(!answer.contains("strict-transport-security"), "an attacker could write it: {answer}");
    let answer = say("127.0.0.1", "a.two.example", "/", "");
    assert!(answer.contains("\r\nlocation: https://a.two.example:8443/\r\n"), "{answer}");
    let answer = say("127.0.0.1", "one.example", "/.well-known/acme-challenge/token", "");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    // A client cannot say that it has spoken TLS; a proxy can.
    let answer = say("127.0.0.1", "one.example", "/a.txt", "X-Forwarded-Proto: https\r\n");
    assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");
    let answer = say("127.0.0.2", "one.example", "/a.txt", "X-Forwarded-Proto: https\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("strict-transport-security: max-age=5"), "{answer}");
    let answer = say("127.0.0.2", "one.example", "/a.txt", "");
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("strict-transport"), "{answer}");
    let answer = say("127.0.0.2", "one.example", "/a.txt", "X-Forwarded-Proto: http\r\n");
    assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");

    for (name, said) in [("one.example", true), ("a.two.example", false)] {
        let mut stream = connect(&server, &client(&trust, &[]), name).expect("connected");
        write!(stream, "GET /a.txt HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("a response");
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        assert_eq!(text.contains("\r\nstrict-transport-security: max-age=5\r\n"), said, "{text}");
    }
}

#[test]
fn keys_are_agreed_on_so_that_no_later_quantum_computer_reads_them() {
    let (config, _root, trust) = two_sites();
    let server = Running::start(config);
    let stream = connect(&server, &client(&trust, &[]), "one.example").expect("connected");
    let group = stream.conn.negotiated_key_exchange_group().expect("TLS 1.3").name();
    assert_eq!(group, NamedGroup::X25519MLKEM768);
}

#[test]
fn a_stop_ends_idle_tls_connections_in_order() {
    let (config, _root, trust) = two_sites();
    let mut server = Running::start(config);
    let mut stream = connect(&server, &client(&trust, &[]), "one.example").expect("connected");
    stream.write_all(b"GET /a.txt HTTP/1.1\r\nHost: one.example\r\n\r\n").expect("sent");
    let mut text = [0; 12];
    stream.read_exact(&mut text).expect("a response");
    assert_eq!(&text, b"HTTP/1.1 200");
    server.handle.shutdown();
    stream.read_to_end(&mut Vec::new()).expect("a TLS alert, then the end");
    server.wait();
}

#[test]
fn a_request_for_a_site_that_trusts_other_clients_is_misdirected() {
    let root = root();
    let (files, trust) = certificate(root.path(), "all", &["one.example", "two.example", "free.example"]);
    let authority = |name: &str| Some(certificate(root.path(), name, &[name]).0.chain);
    let mut config = config(root.path());
    config.listen = vec![Listen { tls: true, ..plain() }];
    config.sites = [("one.example", authority("one")), ("two.example", authority("two")), ("free.example", None)]
        .into_iter()
        .map(|(name, client_ca)| Site { client_ca, ..site(root.path(), &[name], Some(files.clone())) })
        .collect();
    let server = Running::start(config.clone());
    let client = client(&[trust], &[]);
    for (asked, host, status) in [
        ("one.example", "one.example", 200),
        ("one.example", "two.example", 421),
        ("free.example", "one.example", 421),
        ("one.example", "free.example", 200),
    ] {
        let mut stream = connect(&server, &client, asked).expect("connected");
        assert_eq!(statuses(&ask(&mut stream, host)), [status], "{asked} {host}");
    }

    config.sites[1].client_ca = Some(root.path().join("a.txt"));
    let error = server.handle.reload(config).expect_err("no certificate").to_string();
    assert!(
        error.starts_with("client_ca: ") && error.contains("a.txt cannot be used: it holds no certificate"),
        "{error}"
    );
}
