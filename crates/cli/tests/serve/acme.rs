//! Certificates from an authority, which is Pebble: obtained by HTTP-01 and TLS-ALPN-01, renewed, kept through failures and
//! restarts.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Serpent, certificate, curl, free_port, site, tool};

/// Nothing here takes so long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(60);
/// The key of the account elsewhere, in base64 for URLs.
const EXTERNAL_KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

/// Pebble, which ends with this.
struct Pebble {
    child: Child,
    directory: String,
    roots: String,
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Pebble {
    /// Starts it, to look for names of challenges on these ports; `None`: it is not installed.
    fn start(folder: &Path, http: u16, tls: u16) -> Option<Self> {
        let mut command = tool("pebble")?;
        let (chain, key) = certificate(folder, "pebble", &["localhost"]);
        let (port, management) = (free_port(), free_port());
        let profile = |seconds: u64| json!({ "description": "for tests", "validityPeriod": seconds });
        let config = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": chain,
            "privateKey": key,
            "httpPort": http,
            "tlsPort": tls,
            "externalAccountBindingRequired": true,
            "externalAccountMACKeys": { "kid-1": EXTERNAL_KEY },
            "domainBlocklist": [],
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": { "default": profile(90 * 24 * 60 * 60), "brief": profile(10) },
        }});
        let path = folder.join("pebble.json");
        fs::write(&path, config.to_string()).unwrap();
        let child = command
            .args(["-strict", "-config", path.to_str().unwrap(), "-dnsserver", &name_server()])
            .envs([("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_AUTHZREUSE", "0"), ("PEBBLE_WFE_NONCEREJECT", "5")])
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let directory = format!("https://localhost:{port}/dir");
        let pebble = Self { child, directory, roots: format!("https://localhost:{management}/roots/0") };
        wait_for("Pebble", || {
            Command::new("curl").args(["-ksf", &pebble.roots]).output().ok()?.status.success().then_some(())
        });
        Some(pebble)
    }
}

/// A name server by which every name is that of this machine. Its thread ends with the process.
fn name_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut length = [0; 2];
            while stream.read_exact(&mut length).is_ok() {
                let mut bytes = vec![0; u16::from_be_bytes(length).into()];
                stream.read_exact(&mut bytes).unwrap();
                // Behind the header stands the question: a name that ends with an empty label, its type and class.
                let name = bytes[12..].iter().position(|byte| *byte == 0).unwrap();
                let end = 12 + name + 5;
                let is_ipv4 = bytes[12 + name + 1..12 + name + 3] == [0, 1];
                let head = [0x81, 0x80, 0, 1, 0, is_ipv4.into(), 0, 0, 0, 0];
                let mut answer = [&bytes[..2], &head, &bytes[12..end]].concat();
                if is_ipv4 {
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1]);
                }
                let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                let _ = stream.write_all(&[&length[..], &answer].concat());
            }
        }
    });
    address
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what} does not come");
        thread::sleep(Duration::from_millis(100));
    }
}

/// A server with two sites, and what a test asks it.
struct Sites {
    folder: PathBuf,
    http: u16,
    tls: u16,
    admin: u16,
}

impl Sites {
    fn start(&self, name: &str, directory: &str, of_acme: &str) -> Serpent {
        let Self { folder, http, tls, admin } = self;
        let path = folder.join(format!("{name}.toml"));
        let text = format!(
            r#"
listen = ["http://127.0.0.1:{http}", "https://127.0.0.1:{tls}"]
admin = "127.0.0.1:{admin}"
uplink = {{ rate = "off" }}
[acme]
directory = "{directory}"
ca = "pebble.crt"
contact = "admin@example.org"
external-account = "kid-1"
external-key = "external.key"
state = "state-{name}"
{of_acme}
[[site]]
root = "www"
names = ["one.example.org", "www.one.example.org"]
acme = true
hsts = "on"
[[site]]
root = "www"
names = ["two.example.org"]
acme = true
"#
        );
        fs::write(&path, text).unwrap();
        Serpent::start(&["serve", "--config", path.to_str().unwrap(), "--log", "info"])
    }

    /// The status of the site's certificate at the admin address.
    fn status(&self, site: usize) -> Value {
        let text = curl(&[&format!("http://127.0.0.1:{}/api/certificates", self.admin)]).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["certificates"][site].clone()
    }

    fn end(&self, site: usize) -> Option<u64> {
        self.status(site)["valid_until_s"].as_u64()
    }

    fn get(&self, name: &str, more: &[&str]) -> String {
        let (tls, url) = (self.tls, format!("https://{name}:{}/hello.txt", self.tls));
        curl(&[&["--resolve", &format!("{name}:{tls}:127.0.0.1"), &url], more].concat()).unwrap()
    }

    fn metrics(&self) -> String {
        curl(&[&format!("http://127.0.0.1:{}/metrics", self.admin)]).unwrap()
    }
}

fn stop(serpent: Serpent) -> String {
    serpent.signal(Signal::TERM);
    let (status, said) = serpent.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    said
}

#[test]
fn certificates_are_obtained_renewed_and_kept() {
    let site = site();
    let folder = site.path().to_owned();
    let sites = Sites { folder: folder.clone(), http: free_port(), tls: free_port(), admin: free_port() };
    let Some(mut pebble) = Pebble::start(&folder, sites.http, sites.tls) else { return };
    let Some(root) = curl(&["-k", &pebble.roots]) else { return };
    let root_file = folder.join("root.pem");
    fs::write(&root_file, root).unwrap();
    let trust = ["--cacert", root_file.to_str().unwrap()];
    let external = folder.join("external.key");
    fs::write(&external, format!("{EXTERNAL_KEY}\n")).unwrap();
    fs::set_permissions(&external, fs::Permissions::from_mode(0o600)).unwrap();

    // By HTTP-01, though all else without TLS is sent to TLS.
    // Pebble takes any of its profiles where none is named.
    let by_http = "challenges = \"http-01\"\nprofile = \"default\"";
    let serpent = sites.start("lasting", &pebble.directory, by_http);
    let ends = [0, 1].map(|at| wait_for("a certificate", || sites.end(at)));
    for name in ["one.example.org", "www.one.example.org", "two.example.org"] {
        assert_eq!(sites.get(name, &trust), "hello, world\n");
        let host = format!("host: {name}");
        let head = curl(&["-I", "-H", &host, &format!("http://127.0.0.1:{}/hello.txt", sites.http)]).unwrap();
        assert!(
            head.starts_with("HTTP/1.1 308") && head.contains(&format!("location: https://{name}:{}/", sites.tls)),
            "{head}"
        );
    }
    let status = sites.status(0);
    assert!(status["last_error"].is_null() && status["from"] == "acme" && status["failures"] == 0, "{status}");
    assert!(status["next_order_s"].as_u64() < status["valid_until_s"].as_u64(), "{status}");
    let metrics = sites.metrics();
    assert!(metrics.contains("serpent_certificates_obtained_total 2\n"), "{metrics}");
    assert!(
        metrics.contains(&format!("serpent_certificate_end_seconds{{site=\"two.example.org\"}} {}\n", ends[1])),
        "{metrics}"
    );
    let said = stop(serpent);
    assert!(!said.contains("PRIVATE") && !said.contains(EXTERNAL_KEY), "{said}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let state = folder.join("state-lasting");
    let authority = fs::read_dir(&state).unwrap().next().unwrap().unwrap().path();
    assert_eq!((mode(&state), mode(&authority)), (0o700, 0o700));
    let files: Vec<_> = fs::read_dir(&authority).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() == 3 && files.iter().all(|file| mode(file) == 0o600), "{files:?}");

    // By TLS-ALPN-01, with lives of ten seconds.
    let by_tls = "challenges = \"tls-alpn-01\"\nprofile = \"brief\"";
    let serpent = sites.start("brief", &pebble.directory, by_tls);
    let first = wait_for("a certificate", || sites.end(1));
    let renewed = wait_for("a renewal", || sites.end(1).filter(|end| *end > first));

    // An authority that fails changes nothing, and the operator is told.
    pebble.child.kill().unwrap();
    pebble.child.wait().unwrap();
    let failed = wait_for("a failure", || Some(sites.status(1)).filter(|status| !status["last_error"].is_null()));
    assert!(failed["last_error"].as_str().unwrap().contains("localhost"), "{failed}");
    assert!(failed["valid_until_s"].as_u64() >= Some(renewed) && failed["failures"] == 1, "{failed}");
    assert_eq!(sites.get("two.example.org", &["-k"]), "hello, world\n");
    assert!(!sites.metrics().contains("serpent_certificates_failed_total 0\n"));
    serpent.wait_for_stderr("a certificate could not be renewed; the old one stays");
    stop(serpent);

    // A start takes what is on disk, also while the authority is away.
    let serpent = sites.start("lasting", &pebble.directory, by_http);
    assert_eq!(sites.get("one.example.org", &trust), "hello, world\n");
    assert_eq!([0, 1].map(|at| sites.end(at)), ends.map(Some));
    assert!(sites.metrics().contains("serpent_certificates_obtained_total 0\n"));
    stop(serpent);
}
