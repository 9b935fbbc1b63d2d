//! The heap that an idle connection holds after one request: of a real server, in this process.

#[allow(dead_code)]
#[path = "shell/harness.rs"]
mod harness;

use std::{
    alloc::System,
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};

use cap::Cap;
use rustls::{ClientConfig, ClientConnection, RootCertStore, client::Resumption};
use rustls_pki_types::ServerName;
use serpent_server::config::Listen;

use self::harness::{Running, certificate, config, plain, root, site};

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

const NAME: &str = "one.example";
const CONNECTIONS: usize = 200;
/// Nothing here takes so long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Tls,
    Http2,
}

/// A request for `/a.txt`, as this kind of connection has it.
fn request(kind: Kind) -> Vec<u8> {
    if kind != Kind::Http2 {
        return format!("GET /a.txt HTTP/1.1\r\nHost: {NAME}\r\n\r\n").into_bytes();
    }
    let fields = [b"\x82\x87\x04\x06/a.txt\x01\x0b", NAME.as_bytes()].concat();
    let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let acknowledged = b"\0\0\0\x04\x01\0\0\0\0";
    [&settings[..], &[0, 0, fields.len() as u8, 1, 5, 0, 0, 0, 1], &fields, acknowledged].concat()
}

fn reads_answer(mut stream: impl Read) {
    let mut answer = Vec::new();
    while !answer.windows(7).any(|part| part == b"file a\n") {
        let mut bytes = [0; 1024];
        let len = stream.read(&mut bytes).expect("an answer in time");
        assert!(len > 0, "closed: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&bytes[..len]);
    }
}

/// A connection that has had an answer. The client's own memory for it is given back.
fn connect(server: &Running, kind: Kind, client: &Arc<ClientConfig>) -> TcpStream {
    let mut stream = TcpStream::connect(server.addresses[0]).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    if kind == Kind::Plain {
        stream.write_all(&request(kind)).expect("sent");
        reads_answer(&stream);
        return stream;
    }
    let mut session = ClientConnection::new(client.clone(), ServerName::try_from(NAME).unwrap()).expect("a client");
    let mut tls = rustls::Stream::new(&mut session, &mut stream);
    tls.write_all(&request(kind)).expect("sent");
    reads_answer(tls);
    stream
}

/// One test, because others would use the same heap.
#[test]
fn an_idle_connection_holds_little_of_the_heap() {
    let root = root();
    let (files, trust) = certificate(root.path(), "one", &[NAME]);
    let mut roots = RootCertStore::empty();
    roots.add(trust).expect("a certificate");
    for (kind, most_bytes) in [(Kind::Plain, 2_300), (Kind::Tls, 9_200), (Kind::Http2, 45_000)] {
        let mut config = config(root.path());
        config.listen = vec![Listen { tls: kind != Kind::Plain, ..plain() }];
        config.sites = vec![site(root.path(), &[NAME], Some(files.clone()))];
        let server = Running::start(config);
        let mut client = ClientConfig::builder().with_root_certificates(roots.clone()).with_no_client_auth();
        let protocol = if kind == Kind::Http2 { "h2" } else { "http/1.1" };
        client.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        client.resumption = Resumption::disabled();
        let client = Arc::new(client);
        // The memory that the first connections make the server allocate for all is not counted.
        let first: Vec<_> = (0..50).map(|_| connect(&server, kind, &client)).collect();
        std::thread::sleep(Duration::from_millis(100));
        let before = HEAP.allocated();
        let held: Vec<_> = (0..CONNECTIONS).map(|_| connect(&server, kind, &client)).collect();
        let each = || HEAP.allocated().saturating_sub(before) / CONNECTIONS;
        // The server comes to rest soon after the client has its answer.
        let start = Instant::now();
        while each() > most_bytes && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        println!("{kind:?}: {} bytes for each idle connection", each());
        assert!(each() <= most_bytes, "{kind:?}: {} bytes for each idle connection", each());
        drop((first, held));
    }
}
