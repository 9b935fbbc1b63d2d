//! `reverse_proxy`: its upstream.

use super::{route::Route, state::Translation, values};
use crate::{
    draft::{Section, Settings, from, list},
    fields::Fields,
    syntax::Directive,
};

impl Translation {
    /// Adds what `reverse_proxy` says to a route. Returns whether there is one.
    pub fn proxy(&mut self, directive: &Directive, args: &[String], route: &mut Route) -> bool {
        let mut addresses: Vec<String> = args.to_vec();
        let mut upstream = Settings::default();
        let (mut is_secure, mut is_h2c) = (false, false);
        for line in directive.inner() {
            match line.name.as_str() {
                "to" => addresses.extend(line.args.iter().cloned()),
                "lb_policy" => {
                    let balance = match (line.arg(0), line.arg(1)) {
                        ("least_conn" | "random", _) => None,
                        ("round_robin", _) => Some("round-robin".to_owned()),
                        ("random_choose", _) => Some("power-of-two".to_owned()),
                        ("ip_hash" | "client_ip_hash", _) => Some("hash client".to_owned()),
                        ("uri_hash", _) => Some("hash path".to_owned()),
                        ("header", name) if !name.is_empty() => Some(format!("hash header {name}")),
                        _ => {
                            self.leave(line, "the least busy server gets the next request, unless `balance` says else");
                            None
                        }
                    };
                    if let Some(balance) = balance {
                        upstream.set("balance", balance);
                    }
                }
                "lb_retries" => upstream.write("retries", line.arg(0).to_owned(), None),
                "lb_try_duration" | "lb_try_interval" | "lb_retry_match" => {
                    self.leave(line, "a request that no server has seen goes to another one (`retries`)");
                }
                name if name.starts_with("health_") => self.health(line, &mut upstream),
                "fail_duration" => self.time(line, "passive.pause", &mut upstream),
                "max_fails" => upstream.write("passive.failures", line.arg(0).to_owned(), None),
                "flush_interval" => {
                    if line.arg(0) == "-1" {
                        route.settings.set("buffer-response", false);
                    }
                }
                "header_up" => self.header_up(line, route),
                "header_down" => self.header(line, &line.args, &mut route.response),
                "transport" => self.transport(line, &mut upstream, &mut is_secure, &mut is_h2c),
                "trusted_proxies" => self.leave(line, "proxies are trusted for all sites (`trusted-proxies`)"),
                "stream_timeout" | "stream_close_delay" | "stream_buffer_size" => {
                    self.leave(line, "`idle-timeout` of the upstream ends what is silent; a reload ends nothing");
                }
                "request_buffers" | "response_buffers" | "buffer_requests" | "buffer_responses" => {
                    self.leave(line, "bodies are kept in memory and files anyway (`limits.body-memory`)");
                }
                _ => self.other(line),
            }
        }
        let mut servers = Vec::new();
        for address in &addresses {
            match server(address, is_secure, is_h2c) {
                Ok(server) => servers.extend(server),
                Err(reason) => self.leave(directive, reason),
            }
        }
        if servers.is_empty() {
            if addresses.is_empty() {
                self.leave(directive, "it names no server");
            }
            return false;
        }
        let name = self.upstream(directive, &servers, upstream);
        route.settings.set("upstream", name);
        true
    }

    fn time(&mut self, line: &Directive, name: &str, settings: &mut Settings) {
        match values::time(line.arg(0)) {
            Some(time) => settings.set(name, time),
            None => self.leave(line, "the time cannot be read, or is zero"),
        }
    }

    fn health(&mut self, line: &Directive, settings: &mut Settings) {
        match line.name.as_str() {
            "health_uri" | "health_path" => settings.set("active.path", line.arg(0)),
            "health_interval" => self.time(line, "active.every", settings),
            "health_timeout" => self.time(line, "active.timeout", settings),
            "health_passes" => settings.write("active.rise", line.arg(0).to_owned(), None),
            "health_fails" => settings.write("active.fall", line.arg(0).to_owned(), None),
            "health_status" => {
                let statuses = match line.arg(0).strip_suffix("xx") {
                    Some(class) => format!("{class}00-{class}99"),
                    None => line.arg(0).to_owned(),
                };
                settings.set("active.statuses", statuses);
            }
            _ => self.leave(line, "a server is asked at its own address, by GET, and its status is looked at"),
        }
    }

    fn transport(&mut self, line: &Directive, settings: &mut Settings, is_secure: &mut bool, is_h2c: &mut bool) {
        if line.arg(0) != "http" {
            return self.leave(line, "upstreams are reached by HTTP");
        }
        for line in line.inner() {
            match line.name.as_str() {
                "tls" => *is_secure = true,
                "tls_insecure_skip_verify" => {
                    *is_secure = true;
                    settings.set("tls-verify", false);
                }
                "tls_server_name" => {
                    *is_secure = true;
                    settings.set("tls-name", line.arg(0));
                }
                "tls_trusted_ca_certs" => {
                    *is_secure = true;
                    settings.set("tls-ca", line.arg(0));
                }
                "tls_trust_pool" if line.arg(0) == "file" => {
                    *is_secure = true;
                    settings.set("tls-ca", line.args.last().map_or("", String::as_str));
                }
                "tls_client_auth" if line.args.len() == 2 => {
                    *is_secure = true;
                    settings.set("tls-cert", line.arg(0));
                    settings.set("tls-key", line.arg(1));
                }
                "versions" => *is_h2c = line.args.iter().any(|version| version == "h2c"),
                "dial_timeout" => self.time(line, "connect-timeout", settings),
                "response_header_timeout" | "read_timeout" => self.time(line, "idle-timeout", settings),
                "write_timeout" => self.leave(line, "`idle-timeout` of the upstream holds for both directions"),
                "keepalive" if line.arg(0) == "off" => settings.write("keep-connections", "0".to_owned(), None),
                "keepalive" => self.time(line, "keep-for", settings),
                "keepalive_idle_conns" | "keepalive_idle_conns_per_host" => {
                    settings.write("keep-connections", line.arg(0).to_owned(), None);
                }
                "max_conns_per_host" => settings.write("max-connections", line.arg(0).to_owned(), None),
                "compression" | "expect_continue_timeout" | "read_buffer" | "write_buffer" => {
                    self.notes.skip(line);
                }
                _ => self.other(line),
            }
        }
    }

    fn header_up(&mut self, line: &Directive, route: &mut Route) {
        let name = line.arg(0).to_ascii_lowercase();
        match name.as_str() {
            "host" if line.arg(1).contains("upstream_hostport") => route.settings.set("keep-host", false),
            "host" if matches!(line.arg(1), "{host}" | "{http.request.host}" | "{hostport}") => {}
            "host" => self.leave(line, "an upstream sees the client's Host (`keep-host`) or its own"),
            // Serpent writes these, and passes an upgrade on, by itself.
            "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host" | "x-forwarded-port" | "upgrade"
            | "connection" => {}
            _ if CLIENT.contains(&line.arg(1)) => route.request.client.push(line.arg(0).to_owned()),
            _ => self.header(line, &line.args, &mut route.request),
        }
    }

    /// A field that is set, added (`+`) or removed (`-`).
    pub fn header(&mut self, line: &Directive, args: &[String], headers: &mut Fields) {
        let (name, value) = (args.first().map_or("", String::as_str), args.get(1).map(String::as_str));
        if args.len() > 2 {
            return self.leave(line, "a part of a field is not replaced");
        }
        if let Some(name) = name.strip_prefix('-') {
            match name.contains('*') {
                true => self.leave(line, "fields are removed by their whole names"),
                false => headers.remove.push(name.to_owned()),
            }
            return;
        }
        let Some(value) = value else { return self.leave(line, "the field has no value") };
        if values::has_placeholder(value) {
            return self.leave(line, "the value of a field has no placeholders");
        }
        match name.chars().next() {
            Some('+') => headers.add.push((name[1..].to_owned(), value.to_owned())),
            Some('?') => {
                self.leave(line, "the field is set also where the origin has it");
                headers.set(&name[1..], value);
            }
            _ => headers.set(name.trim_start_matches('>'), value),
        }
    }

    /// The name of the upstream with these servers and settings, which is added if it is new.
    pub fn upstream(&mut self, directive: &Directive, servers: &[String], settings: Settings) -> String {
        let mut section = Section { settings, ..Section::new("[[upstream]]") };
        section.settings.set("servers", list(servers));
        let same = |other: &&Section| other.settings.same_but(&section.settings, "name");
        if let Some(name) = self.upstreams.iter().find(same).and_then(|other| other.settings.text_of("name")) {
            return name.trim_matches('"').to_owned();
        }
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let base = servers[0].split_once("://").map_or(&*servers[0], |(_, authority)| authority);
        let base = base.chars().map(plain).collect::<String>().trim_matches('-').to_owned();
        let is_taken = |name: &str| {
            let quoted = format!("\"{name}\"");
            self.upstreams.iter().any(|other| other.settings.text_of("name") == Some(&quoted))
        };
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let name = std::iter::once(base.clone()).chain(numbered).find(|name| !is_taken(name)).unwrap_or(base);
        section.settings.set("name", name.as_str());
        section.comment.push(from(&directive.place));
        self.upstreams.push(section);
        name
    }
}

/// Placeholders that stand for the address of the client.
const CLIENT: &[&str] = &["{remote_host}", "{client_ip}", "{http.request.remote.host}", "{http.vars.client_ip}"];

/// The servers of an address, which may have a range of ports. An error is the reason why there is none.
pub fn server(address: &str, is_secure: bool, is_h2c: bool) -> Result<Vec<String>, String> {
    if values::has_placeholder(address) {
        return Err(format!("`{address}`: the servers of an upstream are named in the file"));
    }
    if let Some(path) = address.strip_prefix("unix/").or(address.strip_prefix("unix+h2c/")) {
        let path = format!("/{}", path.trim_start_matches('/'));
        return Ok(vec![if is_h2c || address.starts_with("unix+") {
            format!("unix+h2c:{path}")
        } else {
            format!("unix:{path}")
        }]);
    }
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme @ ("http" | "https" | "h2c"), rest)) => (Some(scheme), rest),
        Some(_) => return Err(format!("`{address}`: servers are reached by `http`, `https` and `h2c`")),
        None => (None, address),
    };
    let rest = rest.trim_end_matches('/');
    if rest.contains('/') {
        return Err(format!("`{address}`: an upstream has no path; `replace-prefix` of a route has one"));
    }
    let scheme = match scheme {
        Some("https") => "https",
        Some("h2c") => "h2c",
        _ if is_h2c => "h2c",
        _ if is_secure => "https",
        _ => "http",
    };
    let rest = if rest.starts_with(':') { format!("127.0.0.1{rest}") } else { rest.to_owned() };
    let (host, ports) = match rest.rsplit_once(':') {
        Some((host, ports)) if !ports.contains(']') => (host, ports),
        _ => return Ok(vec![format!("{scheme}://{rest}")]),
    };
    match ports.split_once('-') {
        None => Ok(vec![format!("{scheme}://{host}:{ports}")]),
        Some((first, last)) => match (first.parse::<u16>(), last.parse::<u16>()) {
            (Ok(first), Ok(last)) if first <= last && last - first < 100 => {
                Ok((first..=last).map(|port| format!("{scheme}://{host}:{port}")).collect())
            }
            _ => Err(format!("`{address}`: these are no ports")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_servers() {
        for (address, is_secure, servers) in [
            ("localhost:3000", false, &["http://localhost:3000"][..]),
            (":3000", false, &["http://127.0.0.1:3000"]),
            ("app", true, &["https://app"]),
            ("https://a.example/", false, &["https://a.example"]),
            ("h2c://a:50051", false, &["h2c://a:50051"]),
            ("unix//run/app.sock", false, &["unix:/run/app.sock"]),
            ("10.0.0.1:81-83", false, &["http://10.0.0.1:81", "http://10.0.0.1:82", "http://10.0.0.1:83"]),
            ("[::1]:80", false, &["http://[::1]:80"]),
        ] {
            assert_eq!(server(address, is_secure, false).unwrap(), servers, "{address}");
        }
        for address in ["{upstream}", "ftp://a", "http://a/b", "a:5-1", "a:1-9999"] {
            assert!(server(address, false, false).is_err(), "{address}");
        }
    }
}
