//! Checks that a server answers in the protocols of its clients.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, pki_types::CertificateDer};

use super::{Certificate, Protocols};

/// Sends one request in each required protocol. An error names the protocol and the problem.
pub(super) fn answers(address: SocketAddr, protocols: Protocols, certificate: &Certificate) -> io::Result<()> {
    for http2 in [false, true] {
        if !(if http2 { protocols.http2 } else { protocols.http1 }) {
            continue;
        }
        let (name, alpn) = if http2 { ("HTTP/2", "h2") } else { ("HTTP/1.1", "http/1.1") };
        let ask = || -> io::Result<()> {
            let mut tcp = TcpStream::connect_timeout(&address, PATIENCE)?;
            tcp.set_read_timeout(Some(PATIENCE))?;
            if !protocols.tls {
                return speak(&mut tcp, address, http2);
            }
            let mut tls = handshake(tcp, address, alpn, certificate)?;
            speak(&mut tls, address, http2)
        };
        let tls = if protocols.tls { " over TLS" } else { "" };
        ask().map_err(|error| io::Error::new(error.kind(), format!("{name}{tls}: {error}")))?;
    }
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(1);

fn speak(stream: &mut (impl Read + Write), address: SocketAddr, http2: bool) -> io::Result<()> {
    if http2 { speak_http2(stream) } else { speak_http1(stream, address) }
}

fn speak_http1(stream: &mut (impl Read + Write), address: SocketAddr) -> io::Result<()> {
    let file = crate::docroot::name(0);
    // One write: over TLS each write is a record.
    stream.write_all(format!("GET /{file} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut start = [0; 7];
    stream.read_exact(&mut start)?;
    expect(&start == b"HTTP/1.", "another protocol answered")
}

/// Exchanges the connection prefaces: RFC 9113, section 3.4.
fn speak_http2(stream: &mut (impl Read + Write)) -> io::Result<()> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const SETTINGS: u8 = 4;
    const EMPTY_SETTINGS: [u8; 9] = [0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];
    stream.write_all(&[PREFACE, &EMPTY_SETTINGS].concat())?;
    let mut frame = [0; 9];
    stream.read_exact(&mut frame)?;
    expect(frame[3] == SETTINGS && frame[5..] == [0; 4], "the first frame is not SETTINGS")
}

fn handshake(
    tcp: TcpStream,
    address: SocketAddr,
    alpn: &str,
    certificate: &Certificate,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate.der())).map_err(io::Error::other)?;
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let connection = ClientConnection::new(Arc::new(config), address.ip().into()).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, tcp);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    // Servers with only one version may choose none: that means HTTP/1.1.
    let chosen = stream.conn.alpn_protocol().unwrap_or(b"http/1.1");
    expect(chosen == alpn.as_bytes(), "not chosen by ALPN")?;
    Ok(stream)
}

fn expect(holds: bool, or_else: &str) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::Error::new(ErrorKind::InvalidData, or_else)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer's bytes, and the bytes sent to it.
    struct Peer(io::Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Peer {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Peer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn told(says: &[u8], http2: bool) -> (Result<(), String>, Vec<u8>) {
        let mut peer = Peer(io::Cursor::new(says.to_vec()), Vec::new());
        let answer = speak(&mut peer, "10.77.0.1:80".parse().unwrap(), http2).map_err(|error| error.to_string());
        (answer, peer.1)
    }

    #[test]
    fn an_answer_is_one_in_the_protocol_that_was_spoken() {
        let (answer, request) = told(b"HTTP/1.1 200 OK\r\n", false);
        assert_eq!(answer, Ok(()));
        assert!(
            request.starts_with(b"GET /000000.bin HTTP/1.1\r\nHost: 10.77.0.1:80\r\n")
                && request.ends_with(b"\r\n\r\n")
        );
        assert_eq!(told(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3], true).0, Ok(()));
        assert_eq!(told(b"HTTP/1.1 400 Bad Request", true).0, Err("the first frame is not SETTINGS".to_owned()));
        assert_eq!(told(&[0, 0, 6, 4, 0, 0, 0, 0, 0], false).0, Err("another protocol answered".to_owned()));
        assert!(told(b"", false).0.is_err() && told(b"", true).0.is_err());
    }
}
