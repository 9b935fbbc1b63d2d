//! Real servers and clients in the namespaces of a bed.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use kernel::netns::NetNs;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Bed;

/// Ends a test that would otherwise wait for ever.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with the test.
pub struct Process(Child);

impl Process {
    /// Starts a program in a namespace.
    pub fn start(namespace: &str, command: &mut Command) -> Self {
        let namespace = NetNs::open(namespace).unwrap();
        let _inside = namespace.enter().unwrap();
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// Whether it ended well.
    pub fn wait(mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Skips a test where a program is missing, which must not be in CI.
pub fn has(test: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
    if folders.any(|folder| folder.join(program).is_file()) {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "in CI {test} must run: {program} is missing");
    eprintln!("SKIPPED: {test}: {program} is missing");
    false
}

/// nginx with files of these sizes at `/SIZE`, on port 80 of all addresses of a namespace.
pub struct Nginx {
    _process: Process,
    _folder: tempfile::TempDir,
}

impl Nginx {
    pub fn start(namespace: &str, sizes: &[usize]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for &size in sizes {
            fs::write(at(&size.to_string()), vec![b'x'; size]).unwrap();
        }
        let here = folder.path().display();
        let text = format!(
            "daemon off; master_process off; pid {here}/pid; error_log stderr crit;\n\
             events {{ worker_connections 1024; }}\n\
             http {{\n  access_log off; sendfile on; keepalive_requests 100000;\n  client_body_temp_path {here}; \
             proxy_temp_path {here}; fastcgi_temp_path {here}; uwsgi_temp_path {here}; scgi_temp_path {here};\n  \
             server {{ listen 80; listen [::]:80; root {here}; }}\n}}\n"
        );
        fs::write(at("nginx.conf"), text).unwrap();
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("sh");
        command
            .env("PATH", path)
            .args(["-c", "exec nginx -e stderr -p \"$0\" -c \"$0/nginx.conf\""])
            .arg(folder.path());
        let process = Process::start(namespace, &mut command);
        Self { _process: process, _folder: folder }
    }
}

/// Connects from a namespace, as soon as a server listens.
pub fn connect(namespace: &str, address: &str) -> TcpStream {
    let address: SocketAddr = address.parse().unwrap();
    let namespace = NetNs::open(namespace).unwrap();
    let _inside = namespace.enter().unwrap();
    let start = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) if start.elapsed() > PATIENCE => panic!("{address}: {error}"),
            // The server is about to listen, and nothing tells when it does.
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Sends requests in one go, and returns the bodies of the responses, which have lengths.
pub fn get(stream: &mut TcpStream, paths: &[&str]) -> Vec<Vec<u8>> {
    let requests: String = paths.iter().map(|path| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).collect();
    stream.write_all(requests.as_bytes()).unwrap();
    let mut bodies = Vec::new();
    for path in paths {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        assert!(head.starts_with("http/1.1 200 "), "{path}: {head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect(path);
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        bodies.push(body);
    }
    bodies
}

/// Has this thread, and what it starts from now on, run on one processor. A pair of devices in memory has a queue of
/// arrived packets for each processor, so packets that two processors send may overtake each other there, whatever
/// their order.
pub fn stay_on_one_processor() {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).unwrap();
}

/// The counters of TCP of a namespace, by name.
pub fn tcp_counters(namespace: &str) -> BTreeMap<String, u64> {
    let namespace = NetNs::open(namespace).unwrap();
    let _inside = namespace.enter().unwrap();
    let mut counters = BTreeMap::new();
    for file in ["snmp", "netstat"] {
        let text = fs::read_to_string(Path::new("/proc/thread-self/net").join(file)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.chunks_exact(2).filter(|pair| pair[0].starts_with("Tcp")) {
            for (name, value) in pair[0].split(' ').zip(pair[1].split(' ')).skip(1) {
                counters.insert(name.to_owned(), value.parse::<i64>().unwrap_or(0).unsigned_abs());
            }
        }
    }
    counters
}

impl Bed {
    /// Shows until the verdict is this one, and returns the last that was shown.
    pub fn shows_verdict(&self, verdict: &str) -> serde_json::Value {
        self.shows_verdict_and(verdict, |_| true)
    }

    /// The same until what was observed is as expected, too.
    pub fn shows_verdict_and(&self, verdict: &str, expected: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let start = Instant::now();
        loop {
            let shown = self.shown();
            if shown["verdict"] == verdict && expected(&shown["observed"]) {
                return shown;
            }
            assert!(start.elapsed() < PATIENCE, "not {verdict}, or not as expected: {:#}", shown["observed"]);
        }
    }

    /// Moves the server's address into another namespace, which is behind a bridge that the device is a port of.
    pub fn put_container_behind_bridge(&self) -> Container<'_> {
        let name = format!("{}-k", self.server);
        let ip = |arguments: &[&str]| crate::ok("ip", &[&["-n", &self.server][..], arguments].concat());
        crate::ok("ip", &["netns", "add", &name]);
        let container = Container { name, _bed: self };
        ip(&["link", "add", "br0", "type", "bridge"]);
        ip(&["link", "set", "br0", "up"]);
        ip(&["link", "add", "kb", "type", "veth", "peer", "name", "ka", "netns", &container.name]);
        for device in ["kb", crate::DEVICE] {
            ip(&["link", "set", device, "master", "br0"]);
            ip(&["link", "set", device, "up"]);
        }
        crate::ok("ip", &["-n", &container.name, "addr", "add", "10.9.0.3/24", "dev", "ka"]);
        crate::ok("ip", &["-n", &container.name, "addr", "add", "fd09::3/64", "dev", "ka", "nodad"]);
        for device in ["lo", "ka"] {
            crate::ok("ip", &["-n", &container.name, "link", "set", device, "up"]);
        }
        container
    }

    /// The address of the device's hardware.
    pub fn hardware_address(&self, namespace: &str, device: &str) -> String {
        let text = crate::ok("ip", &["-n", namespace, "-j", "link", "show", "dev", device]);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json[0]["address"].as_str().unwrap().to_owned()
    }
}

/// A network namespace behind a bridge of the server's, as those of containers are.
pub struct Container<'a> {
    pub name: String,
    _bed: &'a Bed,
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// The bytes of an IPv4 packet with a TCP segment from a server's port 80.
pub fn packet(from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let total = (40 + payload.len()) as u16;
    let mut bytes = vec![0x45, 0];
    bytes.extend(total.to_be_bytes());
    bytes.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
    bytes.extend(from);
    bytes.extend(to);
    bytes.extend([0, 80, 0x30, 0x39, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    bytes.extend(payload);
    bytes
}
