//! Global options.

use super::{
    state::{Translation, without_block},
    values,
};
use crate::{draft::list, syntax::Directive};

/// The options that sites need.
pub struct Options {
    pub http_port: u16,
    pub https_port: u16,
    /// Whether certificates are asked for.
    pub asks: bool,
    /// Whether requests without TLS are sent to TLS.
    pub redirects: bool,
    /// Whether certificates are made by Caddy itself.
    pub is_local: bool,
    /// Hosts to listen on; an empty one is all.
    pub hosts: Vec<String>,
}

impl Translation {
    pub fn options(&mut self, lines: &[Directive]) -> Options {
        let mut options = Options {
            http_port: 80,
            https_port: 443,
            asks: true,
            redirects: true,
            is_local: false,
            hosts: vec![String::new()],
        };
        for line in lines {
            match line.name.as_str() {
                "http_port" => self.port(line, &mut options.http_port),
                "https_port" => self.port(line, &mut options.https_port),
                "email" => self.acme.set("contact", line.arg(0)),
                "acme_ca" => self.acme.set("directory", line.arg(0)),
                "acme_ca_root" => self.acme.set("ca", line.arg(0)),
                "acme_eab" => {
                    let key = line.inner().iter().find(|inner| inner.name == "key_id");
                    if let Some(key) = key {
                        self.acme.set("external-account", key.arg(0));
                        self.acme.set("external-key", "external.key");
                    }
                    let reason = "the key of the account stands in a file: write `mac_key` into `external.key`, for its owner alone";
                    self.leave(&without_block(line), reason);
                }
                "acme_dns" => self.leave(line, "names are proven by port 80 or 443 (`acme.challenges`), not by DNS"),
                "auto_https" => match line.arg(0) {
                    "off" => (options.asks, options.redirects) = (false, false),
                    "disable_redirects" => options.redirects = false,
                    "disable_certs" => options.asks = false,
                    "ignore_loaded_certs" => {}
                    _ => self.other(line),
                },
                "local_certs" => options.is_local = true,
                "admin" => self.admin(line),
                "grace_period" => match values::time(line.arg(0)) {
                    Some(time) => self.limits.set("shutdown-timeout", time),
                    None => self.leave(line, "the time cannot be read, or is zero"),
                },
                "default_bind" => self.hosts(line, &mut options.hosts),
                "servers" => line.inner().iter().for_each(|inner| self.server_option(inner)),
                "log" => self.messages(line),
                _ => self.other(&without_block(line)),
            }
        }
        options
    }

    fn port(&mut self, line: &Directive, port: &mut u16) {
        match line.arg(0).parse() {
            Ok(read) => *port = read,
            Err(_) => self.leave(line, "this is no port"),
        }
    }

    fn hosts(&mut self, line: &Directive, hosts: &mut Vec<String>) {
        let read = |host: &String| match host.parse::<std::net::IpAddr>().ok()? {
            std::net::IpAddr::V6(_) => Some(format!("[{host}]")),
            std::net::IpAddr::V4(_) => Some(host.clone()),
        };
        let read: Vec<String> = line.args.iter().filter_map(read).collect();
        if read.len() < line.args.len() {
            self.leave(line, "an address is an IP address");
        }
        if !read.is_empty() {
            *hosts = read;
        }
    }

    fn admin(&mut self, line: &Directive) {
        match line.arg(0) {
            "off" | "" => {}
            address => {
                let address = address.replace("localhost", "127.0.0.1");
                match address.parse::<std::net::SocketAddr>().is_ok() || address.starts_with(':') {
                    true => {
                        self.top.set("admin", address);
                        self.leave(
                            &without_block(line),
                            "this address has metrics and classes here; Caddy's interface is not spoken",
                        );
                    }
                    false => self.leave(&without_block(line), "an address is an IP address and a port"),
                }
            }
        }
    }

    fn server_option(&mut self, line: &Directive) {
        match line.name.as_str() {
            "trusted_proxies" if line.arg(0) == "static" => {
                let each = |network: &String| match network.as_str() {
                    "private_ranges" => values::PRIVATE.map(str::to_owned).to_vec(),
                    network => vec![network.to_owned()],
                };
                self.top.set("trusted-proxies", list(line.args[1..].iter().flat_map(each)));
            }
            "timeouts" => {
                for inner in line.inner() {
                    let name = match inner.name.as_str() {
                        "read_header" => "head-timeout",
                        "idle" => "idle-timeout",
                        "write" => "write-timeout",
                        _ => {
                            self.leave(inner, "a body has a least rate (`limits.request-body-rate`), not a time");
                            continue;
                        }
                    };
                    match values::time(inner.arg(0)) {
                        Some(time) => self.limits.set(name, time),
                        None => self.leave(inner, "the time cannot be read, or is zero"),
                    }
                }
            }
            "max_header_size" => match values::size(line.arg(0)) {
                Some(size) => self.limits.set("request-head", size),
                None => self.leave(line, "the size cannot be read"),
            },
            "protocols" => {
                if line.args.iter().any(|protocol| protocol == "h3") {
                    self.leave(line, "HTTP/3 is not spoken");
                }
            }
            "client_ip_headers" | "trusted_proxies_strict" => {
                self.leave(line, "the client is named in `X-Forwarded-For` or `Forwarded` (`forwarded-by`)");
            }
            _ => self.other(&without_block(line)),
        }
    }

    /// `log` as a global option: the messages of the server.
    fn messages(&mut self, line: &Directive) {
        if !matches!(line.arg(0), "" | "default") {
            return self.leave(&without_block(line), "there is one log of messages (`error-log`)");
        }
        if let Some(target) = self.log_target(line)
            && !matches!(target.as_str(), "-" | "off")
        {
            self.error_log.set("target", target);
        }
        if line.inner().iter().any(|inner| matches!(&*inner.name, "level" | "include" | "exclude")) {
            self.leave(&without_block(line), "the flag `--log` sets how much is said");
        }
    }
}
