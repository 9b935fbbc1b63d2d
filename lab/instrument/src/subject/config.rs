//! The configuration files of subjects.
//!
//! FAIR is measured as commonly used. Settings that affect the order of bytes have the distribution's
//! defaults (sendfile, no `tcp_nopush`, keep-alive). There is no log, and room for an overload's connections,
//! so that the measurement shows the order and no limit. All servers have the same room and patience, so that
//! all refuse the same requests.

use std::{net::SocketAddr, path::Path};

use super::{Certificate, Protocols};

/// Values for a configuration file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filling<'a> {
    pub(super) listen: SocketAddr,
    /// Most connections waiting to be accepted.
    pub(super) accept_queue: u32,
    pub(super) root: &'a Path,
    /// The directory for the server's own files.
    pub(super) work: &'a Path,
    pub(super) protocols: Protocols,
    pub(super) certificate: &'a Certificate,
}

/// nginx, with its default of one worker or as many as given. With HTTP/2 in clear text its port speaks
/// nothing else.
pub(super) fn nginx(filling: &Filling, workers: &str) -> String {
    let Filling { listen, accept_queue, protocols, .. } = filling;
    let (root, work) = (filling.root.display(), filling.work.display());
    let ssl = if protocols.tls { " ssl" } else { "" };
    let http2 = if protocols.http2 { " http2" } else { "" };
    let tls = if protocols.tls {
        format!(
            "ssl_certificate {};\n        ssl_certificate_key {};",
            filling.certificate.certificate_file().display(),
            filling.certificate.key_file().display()
        )
    } else {
        String::new()
    };
    format!(
        "daemon off;
worker_processes {workers};
worker_rlimit_nofile 262144;
pid {work}/nginx.pid;
events {{ worker_connections 65536; }}
http {{
    access_log off;
    default_type application/octet-stream;
    sendfile on;
    keepalive_timeout 65;
    keepalive_requests 1000000;
    open_file_cache max=10000 inactive=60s;
    open_file_cache_valid 60s;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    server {{
        listen {listen} backlog={accept_queue}{ssl}{http2};
        {tls}
        root {root};
    }}
}}
"
    )
}

/// Apache httpd with the event MPM and the fewest modules that serve a file.
///
/// `AcceptFilter none`: by default Linux would keep a connection half-open until its request arrives
/// (`TCP_DEFER_ACCEPT`), so its queues could not be compared with those of other servers.
/// `AsyncRequestWorkerFactor`: connections that only wait for the network need no worker, and are limited by
/// this times the idle workers.
pub(super) fn apache(filling: &Filling, workers: u32, processes: u32) -> String {
    let Filling { listen, accept_queue, protocols, .. } = filling;
    let (root, work) = (filling.root.display(), filling.work.display());
    let ip = listen.ip();
    let module = |name: &str| format!("LoadModule {name}_module {APACHE_MODULES}/mod_{name}.so\n");
    let mut modules = module("mpm_event") + &module("authz_core");
    let mut names = Vec::new();
    let mut extra = String::new();
    if protocols.tls {
        modules += &module("socache_shmcb");
        modules += &module("ssl");
        extra += &format!(
            "SSLEngine on\nSSLCertificateFile {}\nSSLCertificateKeyFile {}\nSSLSessionCache shmcb:{work}/tls(512000)\n",
            filling.certificate.certificate_file().display(),
            filling.certificate.key_file().display()
        );
    }
    if protocols.http2 {
        modules += &module("http2");
        names.push(if protocols.tls { "h2" } else { "h2c" });
        extra += "H2Direct on\nH2MaxSessionStreams 128\n";
    }
    names.push("http/1.1");
    let protocols = names.join(" ");
    let threads = workers.div_ceil(processes);
    let workers = threads * processes;
    format!(
        "{modules}ServerRoot {work}
DefaultRuntimeDir {work}
PidFile {work}/apache.pid
ServerName {ip}
User www-data
Group www-data
ErrorLog {work}/stderr
LogLevel error
Listen {listen}
ListenBacklog {accept_queue}
AcceptFilter http none
AcceptFilter https none
Protocols {protocols}
ServerLimit {processes}
StartServers {processes}
ThreadLimit {threads}
ThreadsPerChild {threads}
MaxRequestWorkers {workers}
MinSpareThreads 1
MaxSpareThreads {workers}
MaxConnectionsPerChild 0
AsyncRequestWorkerFactor 64
Timeout 60
KeepAlive On
KeepAliveTimeout 65
MaxKeepAliveRequests 0
EnableSendfile On
{extra}DocumentRoot {root}
<Directory {root}>
    Options FollowSymLinks
    AllowOverride None
    Require all granted
</Directory>
"
    )
}

/// Caddy's file server. Its accept queue has the length that the kernel allows in the bed (`somaxconn`).
pub(super) fn caddy(filling: &Filling) -> String {
    let Filling { listen, protocols, .. } = filling;
    let (ip, port, root) = (listen.ip(), listen.port(), filling.root.display());
    let (scheme, http2, tls) = if protocols.tls {
        let (certificate, key) = (filling.certificate.certificate_file(), filling.certificate.key_file());
        ("https", "h2", format!("tls \"{}\" \"{}\"", certificate.display(), key.display()))
    } else {
        ("http", "h2c", String::new())
    };
    // Without HTTP/1.1 it knows no HTTP/2 in clear text.
    let versions = if protocols.http2 { format!("h1 {http2}") } else { "h1".to_owned() };
    format!(
        "{{
    admin off
    auto_https off
    persist_config off
    grace_period 1s
    log {{
        level ERROR
    }}
    servers {{
        protocols {versions}
        timeouts {{
            read_header 60s
            idle 65s
        }}
    }}
}}
{scheme}://:{port} {{
    bind {ip}
    {tls}
    root * \"{root}\"
    file_server
}}
"
    )
}

/// Serpent, with the same room and patience as nginx (`worker_connections`, `client_header_timeout`).
pub(super) fn serpent() -> &'static str {
    "[limits]
connections = 65536
handshake-timeout = \"60s\"
head-timeout = \"60s\"
"
}

/// Where Debian's package apache2-bin puts them.
const APACHE_MODULES: &str = "/usr/lib/apache2/modules";
