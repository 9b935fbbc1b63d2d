//! Values of the gateway: servers of upstreams, names, priorities, orders of queues.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use http::uri::Authority;
use scheduler::admission::QueueOrder;
use server::config::{FastCgiAddress, Hedge, Priority, ProxyVersion, UpstreamAddress, UpstreamServer};

use super::{
    addresses::{host_name, list},
    numbers::{duration, show_duration, to_ns},
};

/// Help on how a server is written.
const SERVER: &str = "write it as in `http://10.0.0.1:3000`, `https://app.example`, `h2c://10.0.0.1:3000`, \
                      `h2://app.example`, `http://_http._tcp.app.example` or `unix:/run/app.sock`";

/// Reads a server of an upstream. The scheme gives the protocol: `http` is HTTP/1.1, `https` is TLS with the
/// version that both sides know, `h2c` is HTTP/2 without TLS, and `h2` is HTTP/2 over TLS. `unix:` and
/// `unix+h2c:` are `http` and `h2c` over a Unix socket.
pub fn upstream_server(text: &str) -> Result<UpstreamServer, String> {
    for (scheme, http2) in [("unix:", None), ("unix+h2c:", Some(true))] {
        if let Some(path) = text.strip_prefix(scheme) {
            // Some people write `unix://`.
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(format!("`{text}` names no socket: {SERVER}"));
            }
            let address = UpstreamAddress::Unix(PathBuf::from(path));
            let authority = Authority::from_static("localhost");
            return Ok(UpstreamServer::new(address, http2, false, authority));
        }
    }
    if text.contains(',') {
        return Err(format!("`{text}` is not one server: write {}", list(text)));
    }
    let schemes = [
        ("http://", None, false),
        ("https://", None, true),
        ("h2c://", Some(true), false),
        ("h2://", Some(true), true),
    ];
    let found = schemes.iter().find_map(|(scheme, http2, tls)| Some((text.strip_prefix(scheme)?, *http2, *tls)));
    let Some((rest, http2, tls)) = found else {
        let meant =
            if text.parse::<u16>().is_ok() { format!("http://127.0.0.1:{text}") } else { format!("http://{text}") };
        let is_meant = !text.contains("://") && upstream_server(&meant).is_ok();
        return Err(match is_meant {
            true => format!("`{text}` has no scheme: write `{meant}`, or `https://` for TLS"),
            false => format!("`{text}` is not a server: {SERVER}"),
        });
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#']) {
        return Err(format!(
            "`{text}` has a path, and a server has none: a route's `path` and `replace-prefix` say what becomes of paths"
        ));
    }
    if let Some(service) = service(rest) {
        let Some(domain) = service? else { return Err(format!("`{text}` is not a server: {SERVER}")) };
        let address = UpstreamAddress::Service(rest.to_ascii_lowercase());
        return Ok(UpstreamServer::new(address, http2, tls, domain));
    }
    let authority = rest.parse::<Authority>().ok().filter(|authority| !authority.as_str().contains('@'));
    let Some(authority) = authority else { return Err(format!("`{text}` is not a server: {SERVER}")) };
    let port = match authority.as_str().strip_prefix(authority.host()) {
        Some("") => Some(if tls { 443 } else { 80 }),
        _ => authority.port_u16().filter(|port| *port != 0),
    };
    let Some(port) = port else { return Err(format!("`{text}` has no port from 1 to 65535: {SERVER}")) };
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let address = match bare.parse::<IpAddr>() {
        Ok(address) => UpstreamAddress::Socket(SocketAddr::new(address, port)),
        Err(_) if host.starts_with('*') => return Err(format!("`{text}` is not one server: {SERVER}")),
        Err(_) => UpstreamAddress::Name(host_name(host)?, port),
    };
    Ok(UpstreamServer::new(address, http2, tls, authority))
}

/// The domain of a service, as in `_http._tcp.shop.internal`. `None`: the text is no service.
fn service(text: &str) -> Option<Result<Option<Authority>, String>> {
    let (name, rest) = text.split_once('.')?;
    let domain = rest.strip_prefix("_tcp.").filter(|_| name.starts_with('_'))?;
    Some(match domain.contains(':') {
        true => Err(format!("`{text}` is a service, whose records have the ports: leave out the port")),
        false => host_name(text).map(|_| domain.parse().ok()),
    })
}

/// Reads the address of a name server, with or without a port.
pub fn name_server(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, 53));
    }
    text.parse().ok().filter(|address: &SocketAddr| address.port() != 0).ok_or_else(|| {
        format!("`{text}` is not the address of a name server: write it as in `10.0.0.53` or `[2001:db8::53]:5353`")
    })
}

/// Reads when a slow request is sent to a second server.
pub fn hedge(text: &str) -> Result<Hedge, String> {
    match text {
        "p95" => Ok(Hedge::Slowest),
        _ => duration(text).map(Hedge::After).map_err(|_| {
            format!("`{text}` is no time after which a request is slow: write `p95`, a time as in `200ms`, or `off`")
        }),
    }
}

/// Reads a version of the PROXY protocol.
pub fn proxy_version(text: &str) -> Result<ProxyVersion, String> {
    match text {
        "v1" => Ok(ProxyVersion::V1),
        "v2" => Ok(ProxyVersion::V2),
        _ => Err(format!("`{text}` is not a version of the PROXY protocol: write `v1`, `v2` or `off`")),
    }
}

/// The written form of a server.
pub fn show_server(server: &UpstreamServer) -> String {
    match (&server.address, server.http2 == Some(true)) {
        (UpstreamAddress::Unix(path), false) => format!("unix:{}", path.display()),
        (UpstreamAddress::Unix(path), true) => format!("unix+h2c:{}", path.display()),
        (address, http2) => {
            let scheme = match (server.tls, http2) {
                (false, false) => "http",
                (true, false) => "https",
                (false, true) => "h2c",
                (true, true) => "h2",
            };
            match address {
                UpstreamAddress::Service(name) => format!("{scheme}://{name}"),
                _ => format!("{scheme}://{}", server.authority),
            }
        }
    }
}

/// Reads the address of an application that speaks FastCGI: `unix:/run/php/php-fpm.sock`, `127.0.0.1:9000` or
/// `php.internal:9000`.
pub fn fastcgi_address(text: &str) -> Result<FastCgiAddress, String> {
    application(text, "FastCGI", "write it as in `unix:/run/php/php-fpm.sock` or `127.0.0.1:9000`")
}

/// Reads the address of an application that speaks uwsgi: `unix:/run/uwsgi/app.sock`, `127.0.0.1:3031`.
pub fn uwsgi_address(text: &str) -> Result<FastCgiAddress, String> {
    application(text, "uwsgi", "write it as in `unix:/run/uwsgi/app.sock` or `127.0.0.1:3031`")
}

fn application(text: &str, protocol: &str, help: &str) -> Result<FastCgiAddress, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        // Some people write `unix://`.
        let path = path.strip_prefix("//").unwrap_or(path);
        return match path.starts_with('/') {
            true => Ok(FastCgiAddress::Unix(PathBuf::from(path))),
            false => Err(format!("`{text}` names no socket by its whole path: {help}")),
        };
    }
    if text.contains('/') {
        return Err(format!("`{text}` is no address of {protocol}, which has neither scheme nor path: {help}"));
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(|| format!("`{text}` has no port: {help}"))?;
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(|| format!("`{text}` has no port: {help}"))?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match (bare.unwrap_or(host).parse::<IpAddr>(), bare) {
        (Ok(IpAddr::V6(_)), None) => Err(format!("`{text}`: an IPv6 address stands in brackets, as in `[::1]:9000`")),
        (Ok(address), _) => Ok(FastCgiAddress::Tcp(address.to_string(), port)),
        (Err(_), _) if host.starts_with('*') => Err(format!("`{text}` is not one application: {help}")),
        (Err(_), _) => Ok(FastCgiAddress::Tcp(host_name(host)?, port)),
    }
}

/// Reads the extension of scripts, with or without its dot.
pub fn script_extension(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix('.').unwrap_or(text);
    match !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        true => Ok(bare.to_owned()),
        false => Err(format!("`{text}` is not the extension of a script: write it as in `php`")),
    }
}

/// Reads the name of a class, an upstream or a resource. It appears in logs, metrics, variables of programs
/// and names of sockets.
pub fn name(text: &str) -> Result<String, String> {
    let sound = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if (1..=64).contains(&text.len()) && text.bytes().all(sound) && !text.starts_with('.') {
        return Ok(text.to_owned());
    }
    Err(format!("`{text}` cannot be a name here: use up to 64 letters, digits, `-`, `_` and `.`"))
}

/// Reads the priority of processes.
pub fn priority(text: &str) -> Result<Priority, String> {
    let help = "write `inherited`, `nice -5` (-20 to 19), `rr 10` or `fifo 10` (1 to 99), or `weight 200` (1 to 10000)";
    let mut words = text.split_whitespace();
    let (kind, number, rest) = (words.next(), words.next(), words.next());
    let number = number.map(str::parse::<i32>).transpose().ok().flatten();
    let within = |number: i32, from: i32, to: i32| (from..=to).contains(&number);
    match (kind, number, rest) {
        (Some("inherited"), None, None) if text.trim() == "inherited" => Ok(Priority::Inherited),
        (Some("nice"), Some(n), None) if within(n, -20, 19) => Ok(Priority::Nice(n as i8)),
        (Some("rr"), Some(n), None) if within(n, 1, 99) => Ok(Priority::RoundRobin(n as u8)),
        (Some("fifo"), Some(n), None) if within(n, 1, 99) => Ok(Priority::Fifo(n as u8)),
        (Some("weight"), Some(n), None) if within(n, 1, 10_000) => Ok(Priority::CgroupWeight(n as u16)),
        _ => Err(format!("`{text}` is not a priority of the processor: {help}")),
    }
}

/// The written form of a priority.
pub fn show_priority(priority: Priority) -> String {
    match priority {
        Priority::Inherited => "inherited".to_owned(),
        Priority::Nice(n) => format!("nice {n}"),
        Priority::RoundRobin(n) => format!("rr {n}"),
        Priority::Fifo(n) => format!("fifo {n}"),
        Priority::CgroupWeight(n) => format!("weight {n}"),
    }
}

/// The default wait from which on a queue counts as overloaded.
const OVERLOAD: Duration = Duration::from_secs(1);

/// Reads the order of a class's queue.
pub fn queue_order(text: &str) -> Result<QueueOrder, String> {
    let lifo = |after: Duration| QueueOrder::LifoUnderOverload { after_ns: to_ns(after) };
    match text.split_once(':') {
        None if text == "adaptive" => Ok(QueueOrder::Adaptive),
        None if text == "fifo" => Ok(QueueOrder::Fifo),
        None if text == "shortest" => Ok(QueueOrder::Shortest),
        None if text == "fair" => Ok(QueueOrder::FairAmongClients),
        None if text == "lifo-under-overload" => Ok(lifo(OVERLOAD)),
        Some(("lifo-under-overload", after)) => duration(after).map(lifo),
        _ => Err(format!(
            "`{text}` is not an order: write `adaptive`, `fifo`, `shortest`, `fair`, or `lifo-under-overload`, which may \
             say from which wait on, as in `lifo-under-overload:500ms`"
        )),
    }
}

/// The written form of an order.
pub fn show_queue_order(order: QueueOrder) -> String {
    match order {
        QueueOrder::Adaptive => "adaptive".to_owned(),
        QueueOrder::Fifo => "fifo".to_owned(),
        QueueOrder::Shortest => "shortest".to_owned(),
        QueueOrder::FairAmongClients => "fair".to_owned(),
        QueueOrder::LifoUnderOverload { after_ns } => {
            format!("lifo-under-overload:{}", show_duration(Duration::from_nanos(after_ns)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_as_operators_write_them() {
        for (text, tls, http2, address, authority) in [
            ("http://127.0.0.1:3000", false, None, "Socket(127.0.0.1:3000)", "127.0.0.1:3000"),
            ("http://10.0.0.1/", false, None, "Socket(10.0.0.1:80)", "10.0.0.1"),
            ("https://[::1]", true, None, "Socket([::1]:443)", "[::1]"),
            ("https://[::1]:8443", true, None, "Socket([::1]:8443)", "[::1]:8443"),
            ("https://App.Example", true, None, "Name(\"app.example\", 443)", "App.Example"),
            ("h2c://localhost:50051", false, Some(true), "Name(\"localhost\", 50051)", "localhost:50051"),
            ("h2://app.example", true, Some(true), "Name(\"app.example\", 443)", "app.example"),
            ("http://_http._tcp.App.example", false, None, "Service(\"_http._tcp.app.example\")", "App.example"),
            ("unix:/run/app.sock", false, None, "Unix(\"/run/app.sock\")", "localhost"),
            ("unix:///run/app.sock", false, None, "Unix(\"/run/app.sock\")", "localhost"),
            ("unix+h2c:app.sock", false, Some(true), "Unix(\"app.sock\")", "localhost"),
        ] {
            let server = upstream_server(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let read =
                (server.tls, server.http2, format!("{:?}", server.address), server.authority.as_str().to_owned());
            assert_eq!(read, (tls, http2, address.to_owned(), authority.to_owned()), "{text}");
        }
        for text in [
            "http://127.0.0.1:3000",
            "https://app.example",
            "h2c://[::1]:1",
            "h2://a",
            "unix:/a",
            "unix+h2c:/a",
            "h2://_a._tcp.b",
        ] {
            assert_eq!(show_server(&upstream_server(text).unwrap()), text);
        }
    }

    #[test]
    fn what_is_not_a_server_says_what_to_write() {
        for (text, part) in [
            ("127.0.0.1:3000", "write `http://127.0.0.1:3000`"),
            ("3000", "write `http://127.0.0.1:3000`"),
            ("ftp://a", "is not a server"),
            ("http://", "is not a server"),
            ("http://a:0", "no port"),
            ("http://a:", "no port"),
            ("http://a:99999", "no"),
            ("http://user@a", "is not a server"),
            ("http://a/b", "has a path"),
            ("http://a?b", "has a path"),
            ("http://a b", "is not a server"),
            ("http://-a", "is not a host name"),
            ("http://_http._tcp.a:80", "leave out the port"),
            ("http://_http._tcp.-a", "is not a host name"),
            ("unix:", "names no socket"),
        ] {
            let error = upstream_server(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn addresses_of_applications_are_shown_as_they_are_written() {
        for text in ["unix:/run/php/php-fpm.sock", "127.0.0.1:9000", "[::1]:9000", "php.internal:9000"] {
            assert_eq!(fastcgi_address(text).unwrap().to_string(), text);
        }
        assert_eq!(fastcgi_address("unix:///run/php.sock").unwrap().to_string(), "unix:/run/php.sock");
        for (text, part) in [
            ("", "has no port"),
            ("php", "has no port"),
            ("php:0", "has no port"),
            ("php:http", "has no port"),
            ("::1:9000", "in brackets"),
            ("*:9000", "not one application"),
            (":9000", "is not a host name"),
            ("unix:run/php.sock", "by its whole path"),
            ("unix:", "by its whole path"),
            ("http://127.0.0.1:9000", "neither scheme nor path"),
            ("/run/php.sock", "neither scheme nor path"),
        ] {
            let error = fastcgi_address(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn priorities_and_orders_are_shown_as_they_are_written() {
        for text in ["inherited", "nice -5", "nice 19", "rr 10", "fifo 99", "weight 10000"] {
            assert_eq!(show_priority(priority(text).unwrap()), text);
        }
        for text in [
            "",
            "nice",
            "nice 20",
            "nice -21",
            "rr 0",
            "rr 100",
            "fifo x",
            "weight 0",
            "high",
            "nice 1 2",
            "inherited 1",
            "inherited x",
        ] {
            assert!(priority(text).unwrap_err().contains("write `inherited`"), "{text}");
        }
        for text in ["adaptive", "fifo", "shortest", "fair", "lifo-under-overload:500ms"] {
            assert_eq!(show_queue_order(queue_order(text).unwrap()), text);
        }
        assert_eq!(show_queue_order(queue_order("lifo-under-overload").unwrap()), "lifo-under-overload:1s");
        for text in ["lifo", "adaptive:1s", "fifo:1s", "lifo-under-overload:", "lifo-under-overload:0s", "sjf"] {
            assert!(queue_order(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_fit_into_file_names_and_variables() {
        assert!(name("gold.1-a_B").is_ok());
        for text in ["", "a b", ".x", "a/b"] {
            assert!(name(text).is_err(), "{text}");
        }
    }
}
