//! The PROXY protocol, both ways: connections of proxies that name their client, and upstreams that are told of it.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Instant,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{
    gateway::{start, wait_for_metric},
    origin::Origin,
    support::{PATIENCE, Serpent, certificate, curl, tool},
};

/// Another program; ended when dropped.
struct Running(Child);

impl Running {
    /// Waits until it listens.
    fn start(mut command: Command, address: SocketAddr) -> Self {
        let running = Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begin.elapsed() < PATIENCE, "{command:?} does not listen");
            std::thread::yield_now();
        }
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// An address that was free a moment ago, for a program that cannot be asked which one it took.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

/// A gateway that trusts the headers of proxies at 127.0.0.1.
fn behind_a_proxy(folder: &TempDir, origin: &Origin, more: &str) -> (Serpent, SocketAddr) {
    let file = folder.path().join("serpent.toml");
    let text = format!(
        "listen = [\"http://127.0.0.1:0\", \"https://127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nworkers = 1\n\
         proxy-protocol = [\"127.0.0.1\"]\n{more}\n[uplink]\nrate = \"off\"\n[access-log]\ntarget = \"access.log\"\n\
         [[upstream]]\nname = \"app\"\nservers = [\"http://{}\"]\n\
         [[site]]\ntls-cert = \"site.crt\"\ntls-key = \"site.key\"\n\
         [[site.route]]\npath = \"/closed\"\nupstream = \"app\"\ndeny = [\"192.0.2.66\"]\n\
         [[site.route]]\npath = \"/\"\nupstream = \"app\"\n",
        origin.address
    );
    certificate(folder.path(), "site", &["site.example"]);
    fs::write(&file, text).unwrap();
    start(&file)
}

/// Sends bytes from an address of this machine, and returns all of the answer.
fn exchange(from: [u8; 4], to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(from, to);
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn connect(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

const PROXY: [u8; 4] = [127, 0, 0, 1];
const STRANGER: [u8; 4] = [127, 0, 0, 2];
const GET: &str = "GET / HTTP/1.1\r\nhost: site.example\r\nconnection: close\r\n\r\n";

/// A binary header for 192.0.2.9:4660, with an extension.
const BINARY: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13\xc0\0\x02\x09\xc6\x33\x64\x01\x12\x34\x01\xbb\x02\0\x04shop";

#[test]
fn the_client_of_a_header_is_the_client_of_its_requests() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), Origin::start());
    let (serpent, _) = behind_a_proxy(&folder, &origin, "");
    let text = format!("PROXY TCP4 192.0.2.7 198.51.100.1 4660 443\r\n{GET}");
    let local = format!("PROXY UNKNOWN\r\n{GET}");
    for (bytes, client) in [
        (text.as_bytes(), "192.0.2.7"),
        (&[BINARY, GET.as_bytes()].concat(), "192.0.2.9"),
        (local.as_bytes(), "127.0.0.1"),
    ] {
        let asking = std::thread::spawn({
            let (bytes, address) = (bytes.to_vec(), serpent.address());
            move || exchange(PROXY, address, &bytes)
        });
        let asked = origin.next();
        assert_eq!(asked.field("x-forwarded-for").as_deref(), Some(client), "{}", asked.head);
        asked.answer(b"well");
        assert!(asking.join().unwrap().ends_with("well"));
    }
    let closed =
        "PROXY TCP4 192.0.2.66 198.51.100.1 1 443\r\nGET /closed HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    assert!(exchange(PROXY, serpent.address(), closed.as_bytes()).starts_with("HTTP/1.1 403 "));
    serpent.signal(Signal::TERM);
    serpent.wait();
    let log = fs::read_to_string(folder.path().join("access.log")).unwrap();
    let clients: Vec<_> = log.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(clients, ["192.0.2.7", "192.0.2.9", "127.0.0.1", "192.0.2.66"], "{log}");
}

#[test]
fn a_proxy_without_a_sound_header_is_refused_and_others_need_none() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), Origin::start());
    let (serpent, admin) = behind_a_proxy(&folder, &origin, "[limits]\nhandshake-timeout = \"300ms\"");
    let address = serpent.address();
    for bytes in
        [GET, "PROXY TCP4 192.0.2.7\r\n", "PROXY TCP4 192.0.2.7 192.0.2.8 1 2\nGET / HTTP/1.1\r\n\r\n", "PROXY TC"]
    {
        assert_eq!(exchange(PROXY, address, bytes.as_bytes()), "", "{bytes}");
    }
    wait_for_metric(admin, "serpent_proxy_headers_refused_total 4");
    wait_for_metric(admin, "serpent_connections_open 0");
    let said = serpent.wait_for_stderr("from a network of `proxy-protocol` is refused");
    assert!(said.contains("it begins without a header") && said.contains("let the proxy send the header"), "{said}");

    // Another address does not speak for clients.
    let asking = std::thread::spawn(move || exchange(STRANGER, address, GET.as_bytes()));
    let asked = origin.next();
    assert_eq!(asked.field("x-forwarded-for").as_deref(), Some("127.0.0.2"), "{}", asked.head);
    asked.answer(b"well");
    assert!(asking.join().unwrap().ends_with("well"));
    let text = format!("PROXY TCP4 192.0.2.7 198.51.100.1 4660 443\r\n{GET}");
    for bytes in [text.as_bytes(), &[BINARY, GET.as_bytes()].concat()] {
        assert!(exchange(STRANGER, address, bytes).starts_with("HTTP/1.1 400 "));
    }
    assert!(origin.is_idle());
    serpent.signal(Signal::TERM);
    let (_, said) = serpent.wait();
    assert!(!said.contains("is refused"), "one message for all of them: {said}");
}

#[test]
fn connections_per_client_are_those_of_the_client_behind_the_proxy() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), Origin::start());
    let (serpent, _) = behind_a_proxy(&folder, &origin, "[limits]\nconnections-per-client = 1");
    let open = |client: &str| {
        let mut stream = connect(PROXY, serpent.address());
        stream
            .write_all(format!("PROXY TCP4 {client} 198.51.100.1 1 443\r\nGET /none HTTP/0.9\r\n\r\n").as_bytes())
            .unwrap();
        stream
    };
    // A connection that is open for sure: its request is at the origin.
    let mut first = connect(PROXY, serpent.address());
    first.write_all(format!("PROXY TCP4 192.0.2.1 198.51.100.1 1 443\r\n{GET}").as_bytes()).unwrap();
    let asked = origin.next();
    let answered = |mut stream: TcpStream| {
        let mut start = [0; 8];
        stream.read_exact(&mut start).is_ok()
    };
    assert!(!answered(open("192.0.2.1")), "the second one of this client");
    assert!(answered(open("192.0.2.2")));
    asked.answer(b"well");
}

#[test]
fn haproxy_in_front_names_clients_before_tls_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let (Some(_), Some(_)) = (tool("haproxy"), tool("curl")) else { return };
    let origin = Origin::start();
    let (serpent, _) = behind_a_proxy(&folder, &origin, "");
    let to = |url: &str| url.split_once("://").unwrap().1.to_owned();
    for (number, (send, url)) in
        [("send-proxy", 0), ("send-proxy-v2", 0), ("send-proxy", 1), ("send-proxy-v2-ssl-cn", 1)]
            .into_iter()
            .enumerate()
    {
        let front = free();
        let file = path(&folder, &format!("haproxy{number}.cfg"));
        let text = format!(
            "global\n  maxconn 100\ndefaults\n  mode tcp\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n\
             listen front\n  bind {front}\n  server serpent {} {send}\n",
            to(&serpent.urls[url])
        );
        fs::write(&file, text).unwrap();
        let mut haproxy = tool("haproxy").unwrap();
        haproxy.args(["-f", &file]);
        let _haproxy = Running::start(haproxy, front);
        let scheme = ["http", "https"][url];
        let asking = std::thread::spawn(move || {
            let to = format!("site.example:{}:{front}", front.port());
            let args = ["-k", "--interface", "127.0.0.5", "--connect-to", &to];
            let url = format!("{scheme}://site.example:{}/", front.port());
            curl(&[&args[..], &[&url]].concat())
        });
        let asked = origin.next();
        assert_eq!(asked.field("x-forwarded-for").as_deref(), Some("127.0.0.5"), "{send}: {}", asked.head);
        assert_eq!(asked.field("x-forwarded-proto").as_deref(), Some(scheme), "{send}");
        asked.answer(b"well");
        assert_eq!(asking.join().unwrap().as_deref(), Some("well"), "{send}");
    }
}

/// A gateway whose upstream is told of clients.
fn telling(folder: &TempDir, server: &str, version: &str) -> Serpent {
    let file = folder.path().join(format!("{version}.toml"));
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nworkers = 1\nproxy-protocol = [\"127.0.0.1\"]\n\
         [uplink]\nrate = \"off\"\n[[upstream]]\nname = \"app\"\nservers = [\"{server}\"]\nproxy-protocol = \"{version}\"\n\
         tls-verify = false\n[[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n"
    );
    let text = if server.starts_with("https") { text } else { text.replace("tls-verify = false\n", "") };
    fs::write(&file, text).unwrap();
    start(&file).0
}

/// Asks the gateway for two clients, one of them twice on a connection.
fn are_told_apart(serpent: &Serpent, what: &str) {
    let again = "GET / HTTP/1.1\r\nhost: site.example\r\n\r\n";
    let two = format!("PROXY TCP4 192.0.2.7 198.51.100.1 4660 443\r\n{again}{GET}");
    let answer = exchange(PROXY, serpent.address(), two.as_bytes());
    assert_eq!(answer.matches("client 192.0.2.7 4660;").count(), 2, "{what}: {answer}");
    let one = [b"PROXY TCP6 2001:db8::9 2001:db8::1 4661 443\r\n", GET.as_bytes()].concat();
    let answer = exchange(PROXY, serpent.address(), &one);
    assert!(answer.contains("client 2001:db8::9 4661;"), "{what}: {answer}");
    let answer = exchange(STRANGER, serpent.address(), GET.as_bytes());
    assert!(answer.contains("client 127.0.0.2 "), "{what}: {answer}");
}

#[test]
fn nginx_behind_is_told_of_clients() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut nginx) = tool("nginx") else { return };
    let (clear, tls) = (free(), free());
    let (chain, key) = certificate(folder.path(), "app", &["app.example"]);
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {};\n", path(&folder, kind)))
        .collect();
    let text = format!(
        "daemon off;\nworker_processes 1;\nerror_log {log} warn;\npid {pid};\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}\
         server {{\nlisten {clear} proxy_protocol;\nlisten {tls} ssl proxy_protocol;\nssl_certificate {chain};\n\
         ssl_certificate_key {key};\nreturn 200 \"client $proxy_protocol_addr $proxy_protocol_port;\";\n}}\n}}\n",
        log = path(&folder, "error.log"),
        pid = path(&folder, "nginx.pid"),
        chain = chain.display(),
        key = key.display(),
    );
    fs::write(path(&folder, "nginx.conf"), text).unwrap();
    nginx.args(["-e", &path(&folder, "error.log"), "-c", &path(&folder, "nginx.conf")]);
    let _nginx = Running::start(nginx, clear);
    for version in ["v1", "v2"] {
        for server in [format!("http://{clear}"), format!("https://{tls}")] {
            are_told_apart(&telling(&folder, &server, version), &format!("{version} to {server}"));
        }
    }
}

#[test]
fn haproxy_behind_is_told_of_clients() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut haproxy) = tool("haproxy") else { return };
    let address = free();
    let text = format!(
        "global\n  maxconn 100\ndefaults\n  mode http\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n\
         frontend app\n  bind {address} accept-proxy\n\
         \u{20} http-request return status 200 content-type text/plain lf-string \"client %[src] %[src_port];\"\n"
    );
    fs::write(path(&folder, "haproxy.cfg"), text).unwrap();
    haproxy.args(["-f", &path(&folder, "haproxy.cfg")]);
    let _haproxy = Running::start(haproxy, address);
    for version in ["v1", "v2"] {
        are_told_apart(&telling(&folder, &format!("http://{address}"), version), version);
    }
}
