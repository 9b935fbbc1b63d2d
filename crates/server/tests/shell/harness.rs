//! A real server in this process, on a port of its own, and a client that says exactly what it is told to.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    num::NonZeroUsize,
    path::Path,
    thread::JoinHandle,
    time::Duration,
};

use scheduler::Order;
use serpent_server::{
    Handle, Server, StartError,
    config::{
        Access, CacheConfig, Certificate, CertificateFiles, Classes, Config, Cutoffs, Enforce, ErrorLog, FilesConfig,
        HeaderRules, Limits, Listen, LogChoice, Site, StoreConfig, SymlinkPolicy, UplinkConfig, UplinkRate,
    },
};
use tempfile::TempDir;

/// Nothing here waits for so long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory with a few files in it.
pub fn root() -> TempDir {
    let root = TempDir::new().expect("a temporary directory");
    std::fs::write(root.path().join("a.txt"), "file a\n").expect("written");
    std::fs::write(root.path().join("big.bin"), vec![b'x'; 8 << 20]).expect("written");
    root
}

/// A site for a directory.
pub fn site(root: &Path, names: &[&str], certificate: Option<CertificateFiles>) -> Site {
    Site {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        root: Some(root.to_owned()),
        routes: Vec::new(),
        certificate: certificate.map(Certificate::Files),
        client_ca: None,
        response_headers: HeaderRules::default(),
        access: Access::default(),
        error_pages: Vec::new(),
        limit: None,
        maintenance: None,
        to_https: None,
        hsts: None,
        access_log: LogChoice::Outer,
        files: FilesConfig {
            index: vec!["index.html".to_owned()],
            listing: false,
            dot_files: false,
            symlinks: SymlinkPolicy::WithinRoot,
            precompressed: true,
            cache_control: Vec::new(),
            mime_types: Vec::new(),
            ..FilesConfig::default()
        },
        compression: None,
        expires: None,
        cors: None,
    }
}

/// A plain address of the loopback with a port that the system chooses.
pub fn plain() -> Listen {
    Listen { address: SocketAddr::from(([127, 0, 0, 1], 0)), tls: false }
}

/// A configuration for a directory, with one worker and nothing special.
pub fn config(root: &Path) -> Config {
    Config {
        listen: vec![plain()],
        sites: vec![site(root, &[], None)],
        upstreams: Vec::new(),
        upstream_workers: Vec::new(),
        classes: Classes::one(),
        uplink: UplinkConfig {
            rate: UplinkRate::Off,
            order: Order::Srpt,
            enforce: Enforce::Off,
            line: None,
            cutoffs: Cutoffs::Learned,
            guard_stretch: None,
            utilisation: Some(0.97),
            segment_overhead_bytes: 66,
            device: None,
            keep: Default::default(),
        },
        limits: Limits::default(),
        proxy_protocol: Vec::new(),
        workers: NonZeroUsize::MIN,
        access_log: None,
        error_log: ErrorLog::default(),
        tracing: None,
        admin: None,
        admin_token: None,
        acme: None,
        cluster: None,
        cache: CacheConfig::default(),
        shared_cache: StoreConfig::default(),
    }
}

/// A server that runs; it is stopped and waited for when dropped.
pub struct Running {
    pub handle: Handle,
    pub addresses: Vec<SocketAddr>,
    pub admin: Option<SocketAddr>,
    thread: Option<JoinHandle<Result<(), StartError>>>,
}

impl Running {
    pub fn start(config: Config) -> Self {
        let server = Server::bind(config).expect("a good configuration");
        let handle = server.handle();
        let addresses = server.addresses().iter().map(|listen| listen.address).collect();
        let admin = server.admin_address();
        let thread = std::thread::spawn(move || server.run());
        Self { handle, addresses, admin, thread: Some(thread) }
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.addresses[0])
    }

    /// Sends the text and closes this side; all that comes back.
    pub fn say(&self, text: impl AsRef<[u8]>) -> String {
        let mut client = self.connect();
        client.send(text);
        client.0.shutdown(Shutdown::Write).expect("shut down");
        client.rest()
    }

    /// Waits for the server to end after [`Handle::shutdown`].
    pub fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic").expect("a clean end");
        }
    }

    /// Whether the server has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.shutdown();
        if !std::thread::panicking() {
            self.wait();
        }
    }
}

/// A connection.
pub struct Client(pub TcpStream);

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.set_nodelay(true).expect("set");
        Self(stream)
    }

    pub fn send(&mut self, text: impl AsRef<[u8]>) {
        // The server may have closed already: then what it said is of interest.
        let _ = self.0.write_all(text.as_ref());
    }

    /// All until the server closes.
    pub fn rest(&mut self) -> String {
        let mut text = Vec::new();
        self.0.read_to_end(&mut text).expect("closed in order, and in time");
        String::from_utf8_lossy(&text).into_owned()
    }

    /// One response whose length is given.
    pub fn response(&mut self) -> String {
        let mut text = Vec::new();
        let end = loop {
            if let Some(at) = text.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.more(&mut text);
        };
        let head = String::from_utf8_lossy(&text[..end]).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let length: usize = length.map_or(0, |length| length.parse().expect("a number"));
        while text.len() < end + length {
            self.more(&mut text);
        }
        assert_eq!(text.len(), end + length, "no more than one response");
        String::from_utf8_lossy(&text).into_owned()
    }

    fn more(&mut self, text: &mut Vec<u8>) {
        let mut bytes = [0; 4096];
        let len = self.0.read(&mut bytes).expect("more of a response, in time");
        assert!(len > 0, "closed in the middle of a response: {:?}", String::from_utf8_lossy(text));
        text.extend_from_slice(&bytes[..len]);
    }
}

/// The status codes in a text of responses whose bodies contain none.
pub fn statuses(text: &str) -> Vec<u16> {
    text.split("HTTP/1.").skip(1).filter_map(|rest| rest.get(2..5)?.parse().ok()).collect()
}

/// A certificate for names, signed by itself, written where a server can read it; the certificate, for clients' trust.
pub fn certificate(
    directory: &Path,
    file: &str,
    names: &[&str],
) -> (CertificateFiles, rustls_pki_types::CertificateDer<'static>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let files = CertificateFiles {
        chain: directory.join(format!("{file}.crt")),
        key: directory.join(format!("{file}.key")),
        ocsp: None,
    };
    std::fs::write(&files.chain, made.cert.pem()).expect("written");
    std::fs::write(&files.key, made.signing_key.serialize_pem()).expect("written");
    (files, made.cert.der().clone())
}
