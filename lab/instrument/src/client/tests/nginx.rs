//! Tests against nginx, which shares no code with this client: HTTP/1.1 and HTTP/2, in clear text and over
//! TLS.

use std::{
    fs,
    net::TcpStream,
    path::Path,
    process::{Child, Command},
    thread,
};

use tempfile::TempDir;
use workload::behaviour::Protocol;

use super::*;
use crate::docroot::DocRoot;

/// nginx with a port for each kind; dropping it ends the process.
struct Nginx {
    process: Child,
    addresses: [SocketAddrV4; 4],
    certificate_der: Vec<u8>,
    _dir: TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Nginx {
    /// Starts nginx. Returns `None` with a message where it is not installed.
    fn start(root: &Path) -> Option<Self> {
        let installed = Command::new("nginx")
            .arg("-V")
            .output()
            .is_ok_and(|output| String::from_utf8_lossy(&output.stderr).contains("--with-http_v2_module"));
        if !installed {
            assert!(std::env::var_os("CI").is_none(), "in CI this must run: nginx with HTTP/2 is missing");
            eprintln!("not tested: nginx with HTTP/2 is not installed");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = servers::certificate();
        let pem = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        pem("key.pem", &key.serialize_pem());
        pem("cert.pem", &certificate.pem());
        // Bound at the same time, so that they differ.
        let ports = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = ports.map(|port| port.local_addr().unwrap().to_string().parse::<SocketAddrV4>().unwrap());
        let [clear, clear2, tls, tls2] = addresses;
        let (path, root) = (dir.path().display(), root.display());
        let server = |listen: String| format!("server {{ listen {listen}; root {root}; }}\n");
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; keepalive_requests 20; client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;\n\
             fastcgi_temp_path {path}/fastcgi; uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;\n\
             ssl_certificate {path}/cert.pem; ssl_certificate_key {path}/key.pem;\n{}{}{}{} }}\n",
            server(format!("{clear}")),
            server(format!("{clear2} http2")),
            server(format!("{tls} ssl")),
            server(format!("{tls2} ssl http2")),
        );
        let config_path = dir.path().join("nginx.conf");
        fs::write(&config_path, config).unwrap();
        let process = Command::new("nginx").arg("-c").arg(&config_path).arg("-p").arg(dir.path()).spawn().unwrap();
        let mut nginx = Self { process, addresses, certificate_der: certificate.der().to_vec(), _dir: dir };
        while TcpStream::connect(tls2).is_err() {
            assert!(nginx.process.try_wait().unwrap().is_none(), "nginx ended");
            thread::yield_now();
        }
        Some(nginx)
    }
}

#[test]
fn every_protocol_with_and_without_tls_brings_whole_files_on_few_and_many_connections() {
    let root = DocRoot::write(&[SIZE; 60]).unwrap();
    let Some(nginx) = Nginx::start(root.path()) else { return };
    let content = Content::new();
    for (number, server) in nginx.addresses.into_iter().enumerate() {
        for requests_per_connection in [1, 7, 0] {
            let behaviour = Behaviour {
                protocol: if number % 2 == 0 { Protocol::Http1 } else { Protocol::Http2 },
                tls: number >= 2,
                requests_per_connection,
                ..Behaviour::default()
            };
            let groups = group(behaviour.clone());
            let tls = Some(TlsServer { address: server, certificate_der: &nginx.certificate_der });
            let drive = Load { tls, ..load(server, 60, &groups, &content) }.drive().unwrap();
            assert_eq!(ends(&drive), [End::Done; 60], "{behaviour:?} {:?}", drive.notes);
            // nginx closes each connection after 20 requests, before or after it has read the next.
            let least = if requests_per_connection == 0 { 3 } else { 60 / u64::from(requests_per_connection) };
            assert!(drive.connections >= least && drive.connections <= 60, "{behaviour:?}: {}", drive.connections);
        }
    }
}
