//! Values of the gateway: servers, networks, priorities, orders of queues.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use http::{
    HeaderName, HeaderValue, Method, StatusCode,
    uri::{Authority, PathAndQuery},
};
use ipnet::IpNet;
use scheduler::{
    admission::{Late, QueueOrder},
    control,
    share::Policy,
};
use server::config::{ForwardedField, PathPattern, Priority, UpstreamAddress, UpstreamServer};

use super::{Named, duration};

/// Help on how a server is written.
const SERVER: &str = "write it as in `http://10.0.0.1:3000`, `https://app.example`, `h2c://10.0.0.1:3000`, \
                      `h2://app.example` or `unix:/run/app.sock`";

/// Reads the path and query of an upstream's page.
pub fn page(text: &str) -> Result<PathAndQuery, String> {
    let page = text.parse().ok().filter(|_| text.starts_with('/') && !text.contains('#'));
    page.ok_or_else(|| format!("`{text}` is not a path: write it as in `/health` or `/health?deep=1`"))
}

/// Reads the host, with or without a port, for requests of a page.
pub fn probed_host(text: &str) -> Result<Authority, String> {
    let host = text.parse::<Authority>().ok().filter(|host| !host.as_str().contains('@') && !host.host().is_empty());
    host.ok_or_else(|| format!("`{text}` is not a host: write it as in `www.example.org` or `app.example:8080`"))
}

/// Reads a threshold of the counter of probing requests that shrinks a window: 0 or more.
pub fn shrink_above(text: &str) -> Result<i32, String> {
    let read = text.parse().ok().filter(|counter| (0..=1000).contains(counter));
    read.ok_or_else(|| format!("`{text}` is not a whole number from 0 to 1000"))
}

/// Reads a threshold of the counter of probing requests that widens a window: 0 or less.
pub fn grow_below(text: &str) -> Result<i32, String> {
    let read = text.parse().ok().filter(|counter| (-1000..=0).contains(counter));
    read.ok_or_else(|| format!("`{text}` is not a whole number from -1000 to 0"))
}

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
            return Ok(UpstreamServer { address, http2, tls: false, authority });
        }
    }
    let schemes = [
        ("http://", None, false),
        ("https://", None, true),
        ("h2c://", Some(true), false),
        ("h2://", Some(true), true),
    ];
    let found = schemes.iter().find_map(|(scheme, http2, tls)| Some((text.strip_prefix(scheme)?, *http2, *tls)));
    let Some((rest, http2, tls)) = found else { return Err(format!("`{text}` is not a server: {SERVER}")) };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#']) {
        return Err(format!(
            "`{text}` has a path, and a server has none: a route's `path` and `replace-prefix` say what becomes of paths"
        ));
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
    Ok(UpstreamServer { address, http2, tls, authority })
}

/// The written form of a server.
pub fn show_server(server: &UpstreamServer) -> String {
    match (&server.address, server.http2 == Some(true)) {
        (UpstreamAddress::Unix(path), false) => format!("unix:{}", path.display()),
        (UpstreamAddress::Unix(path), true) => format!("unix+h2c:{}", path.display()),
        (_, http2) => {
            let scheme = match (server.tls, http2) {
                (false, false) => "http",
                (true, false) => "https",
                (false, true) => "h2c",
                (true, true) => "h2",
            };
            format!("{scheme}://{}", server.authority)
        }
    }
}

/// Reads a host name, in lower case and without a final dot. `*.` at its beginning stands for any labels.
pub fn host_name(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let labels = name.strip_prefix("*.").unwrap_or(&name);
    let is_address = text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let sound = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if is_address || (name.len() <= 253 && labels.split('.').all(sound)) {
        return Ok(name);
    }
    Err(match text {
        _ if !text.is_ascii() => format!("`{text}` must be written in ASCII: international names as `xn--...`"),
        _ if text.contains(':') => format!("`{text}` is not a host name: leave out the scheme and the port"),
        _ => format!("`{text}` is not a host name: write it as in `www.example.org` or `*.example.org`"),
    })
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

/// Reads a network, as in `10.0.0.0/8` or `2001:db8::/32`, or a single address.
pub fn network(text: &str) -> Result<IpNet, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.into());
    }
    let Ok(network) = text.parse::<IpNet>() else {
        return Err(format!("`{text}` is not a network: write it as in `10.0.0.0/8`, `2001:db8::/32` or `192.0.2.7`"));
    };
    if network != network.trunc() {
        return Err(format!(
            "`{text}` is an address within a network: write `{}`, or the address alone",
            network.trunc()
        ));
    }
    Ok(network)
}

/// Reads an address of this server: `10.0.0.1:443`, `10.0.0.1` for all its ports, `:443` for that port of all
/// addresses.
pub fn destination(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, 0));
    }
    let port = text.strip_prefix(':').map(|port| port.parse::<u16>().ok().filter(|port| *port != 0));
    match (port, text.parse::<SocketAddr>()) {
        (Some(Some(port)), _) => Ok(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)),
        (None, Ok(address)) => Ok(address),
        _ => Err(format!(
            "`{text}` is not an address of this server: write it as in `10.0.0.1:443`, `10.0.0.1` for any port, or \
             `:443` for any address"
        )),
    }
}

/// Reads a prefix of paths.
pub fn path_prefix(text: &str) -> Result<PathPattern, String> {
    path(text).map(PathPattern::Prefix)
}

/// Reads a path: the part of a URL after the host, without the query.
pub fn path(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err(format!("`{text}` is not a path: a path starts with `/`"));
    }
    if text.contains(['?', '#']) {
        return Err(format!("`{text}` has a query, and only paths are looked at: use a rule with `query` for that"));
    }
    if text.contains("//") || text.split('/').any(|part| matches!(part, "." | "..")) {
        return Err(format!("`{text}` matches nothing: `.`, `..` and `//` are resolved before paths are looked at"));
    }
    let decoded = server::classify::decoded_path(text)
        .ok_or_else(|| format!("`{text}` is not a path: a `%` stands before two hexadecimal digits"))?;
    if decoded != text {
        return Err(format!(
            "`{text}` has escapes, and paths are decoded before they are looked at: write `{decoded}`"
        ));
    }
    Ok(text.to_owned())
}

/// Reads a glob over whole paths.
pub fn path_glob(text: &str) -> Result<PathPattern, String> {
    if !text.starts_with('/') && !text.starts_with("**") {
        return Err(format!(
            "`{text}` matches no path, because paths start with `/`: write `/{text}`, or `**/{text}` for any folder"
        ));
    }
    let glob = globset::GlobBuilder::new(text).literal_separator(true).build().map_err(|error| {
        format!(
            "the pattern cannot be read: {}; `*` stands for any part of a name, `**` for any folders, `{{js,css}}` for a \
             choice",
            error.kind()
        )
    })?;
    Ok(PathPattern::Glob(glob.compile_matcher()))
}

/// Reads a regular expression over paths.
pub fn path_regex(text: &str) -> Result<PathPattern, String> {
    regex(text).map(PathPattern::Regex)
}

/// Reads a regular expression.
pub fn regex(text: &str) -> Result<regex::Regex, String> {
    regex::Regex::new(text).map_err(|error| {
        let message = error.to_string();
        // The last line names the error; the lines before it draw its place.
        let last = message.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("the regular expression cannot be read: {last}")
    })
}

/// Reads a file extension.
pub fn extension(text: &str) -> Result<String, String> {
    let name = text.strip_prefix('.').unwrap_or(text).to_ascii_lowercase();
    if name.is_empty() || name.contains(['.', '/', '*']) {
        return Err(format!("`{text}` is not a file extension: write it as in `php`"));
    }
    Ok(name)
}

/// Reads a method.
pub fn method(text: &str) -> Result<Method, String> {
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"];
    let upper = text.to_ascii_uppercase();
    if upper != text && known.contains(&&*upper) {
        return Err(format!("`{text}` is not a method: methods are told apart by case, write `{upper}`"));
    }
    Method::from_bytes(text.as_bytes()).map_err(|_| format!("`{text}` is not a method: write it as in `GET`"))
}

/// Reads the name of a header field.
pub fn header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| format!("`{text}` is not the name of a header field: write it as in `X-Api-Key`"))
}

/// Reads the value of a header field.
pub fn header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| format!("a header cannot hold `{text}`: write printable ASCII"))
}

/// Reads a header field, as in `X-Tier: gold`.
pub fn header_field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let Some((name, value)) = text.split_once(':') else {
        return Err(format!("`{text}` is not a header field: write it as in `X-Tier: gold`"));
    };
    Ok((header_name(name.trim())?, header_value(value.trim())?))
}

/// Reads the name of a cookie. It is a token, as a method is.
pub fn cookie_name(text: &str) -> Result<String, String> {
    match Method::from_bytes(text.as_bytes()) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(format!("`{text}` is not the name of a cookie: use letters, digits, `-` and `_`")),
    }
}

/// Reads a share in percent, as in `1%`, and returns a number from 0 to 1.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    match number {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err(format!("`{text}` is not a share: give percent from 0 to 100, as in `1%` or `0.1%`")),
    }
}

/// Reads a range of statuses, as in `200-399`, or a single status.
pub fn statuses(text: &str) -> Result<(u16, u16), String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.trim().parse::<u16>(), to.trim().parse::<u16>()) {
        (Ok(from), Ok(to)) if (100..=599).contains(&from) && (from..=599).contains(&to) => Ok((from, to)),
        _ => Err(format!("`{text}` is not a range of statuses: write it as in `200-399` or `204`")),
    }
}

/// Reads the status of a refusal.
pub fn error_status(text: &str) -> Result<StatusCode, String> {
    match text.parse::<StatusCode>() {
        Ok(status) if status.is_client_error() || status.is_server_error() => Ok(status),
        _ => Err(format!("`{text}` is not a status for a refusal: give one from 400 to 599, as in `503` or `429`")),
    }
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
    let lifo = |after: Duration| QueueOrder::LifoUnderOverload {
        after_ns: u64::try_from(after.as_nanos()).unwrap_or(u64::MAX),
    };
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

/// The written form of a duration.
pub fn show_duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string().replace(' ', "")
}

impl Named for Policy {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Strict, Self::Strict.name(), "The first class that has somebody waiting"),
        (Self::Weighted, Self::Weighted.name(), "In proportion to the weights, evenly spread"),
        (Self::Shared, Self::Shared.name(), "A share of the slots each; what is not used is lent, but for a reserve"),
        (Self::Fixed, Self::Fixed.name(), "A share of the slots each, never lent"),
        (Self::Edf, Self::Edf.name(), "The earliest deadline first"),
        (Self::Wtp, Self::Wtp.name(), "Delays in ratios, by how long the next request of each class has waited"),
        (Self::Pwad, Self::Pwad.name(), "Delays in ratios, by the mean of those that left"),
        (Self::Mdp, Self::Mdp.name(), "Delays in ratios, by the mean of those that left and those that wait"),
        (Self::Ratio, Self::Ratio.name(), "Delays in ratios, kept both now and in the mean"),
    ];
}

impl Named for control::Method {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Fixed, Self::Fixed.name(), "They stay as they are"),
        (Self::Probe, Self::Probe.name(), "By how long probing requests take"),
        (Self::Knee, Self::Knee.name(), "By trying the windows beside, and keeping what serves more"),
        (Self::Gradient, Self::Gradient.name(), "By the least service time over that of late"),
    ];
}

impl Named for ForwardedField {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::XForwardedFor, "x-forwarded-for", "`X-Forwarded-For`, which nearly all proxies write"),
        (Self::Forwarded, "forwarded", "`Forwarded` (RFC 7239)"),
    ];
}

impl Named for Late {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Serve, "serve", "It goes behind all that can still make theirs"),
        (Self::Refuse, "refuse", "It is refused as soon as that is certain"),
    ];
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
            ("unix:/run/app.sock", false, None, "Unix(\"/run/app.sock\")", "localhost"),
            ("unix:///run/app.sock", false, None, "Unix(\"/run/app.sock\")", "localhost"),
            ("unix+h2c:app.sock", false, Some(true), "Unix(\"app.sock\")", "localhost"),
        ] {
            let server = upstream_server(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let read =
                (server.tls, server.http2, format!("{:?}", server.address), server.authority.as_str().to_owned());
            assert_eq!(read, (tls, http2, address.to_owned(), authority.to_owned()), "{text}");
        }
        for text in
            ["http://127.0.0.1:3000", "https://app.example", "h2c://[::1]:1", "h2://a", "unix:/a", "unix+h2c:/a"]
        {
            assert_eq!(show_server(&upstream_server(text).unwrap()), text);
        }
    }

    #[test]
    fn what_is_not_a_server_says_what_to_write() {
        for (text, part) in [
            ("127.0.0.1:3000", "write it as in `http://"),
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
            ("unix:", "names no socket"),
        ] {
            let error = upstream_server(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn networks_and_our_own_addresses() {
        assert_eq!(network("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(network("192.0.2.7").unwrap().to_string(), "192.0.2.7/32");
        assert_eq!(network("::1").unwrap().to_string(), "::1/128");
        assert!(network("10.1.2.3/8").unwrap_err().contains("write `10.0.0.0/8`"));
        assert!(network("10.0.0.0/33").unwrap_err().contains("is not a network"));
        assert!(network("example.org").is_err());
        assert_eq!(destination(":443").unwrap().to_string(), "[::]:443");
        assert_eq!(destination("10.0.0.1").unwrap().to_string(), "10.0.0.1:0");
        assert_eq!(destination("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert!(destination(":0").is_err() && destination("https").is_err() && destination(":x").is_err());
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
    fn patterns_match_whole_paths() {
        let matches = |pattern: Result<PathPattern, String>, path: &str| match pattern.unwrap() {
            PathPattern::Glob(glob) => glob.is_match(path),
            PathPattern::Regex(regex) => regex.is_match(path),
            PathPattern::Prefix(_) => unreachable!(),
        };
        assert!(matches(path_glob("/*.php"), "/a.php") && !matches(path_glob("/*.php"), "/b/a.php"));
        assert!(matches(path_glob("**/*.php"), "/a.php") && matches(path_glob("**/*.php"), "/b/a.php"));
        assert!(matches(path_glob("/shop/**"), "/shop/a/b") && !matches(path_glob("/shop/**"), "/shops"));
        assert!(matches(path_regex("^/x[0-9]+"), "/x12/y"));
        assert!(path_glob("*.php").unwrap_err().contains("`**/*.php`"));
        assert!(path_glob("/a{b").unwrap_err().contains("cannot be read"));
        assert!(path_regex("(").unwrap_err().contains("unclosed group"));
        assert!(path("api").is_err() && path("/a?b=c").is_err() && path("/a/../b").is_err() && path("/a//b").is_err());
    }

    #[test]
    fn small_values() {
        assert_eq!((percent("1%"), percent("0.5 %"), percent("100%")), (Ok(0.01), Ok(0.005), Ok(1.0)));
        assert!(
            percent("1").is_err() && percent("101%").is_err() && percent("-1%").is_err() && percent("NaN%").is_err()
        );
        assert_eq!((statuses("200-399"), statuses("204")), (Ok((200, 399)), Ok((204, 204))));
        assert!(statuses("399-200").is_err() && statuses("2xx").is_err() && statuses("200-600").is_err());
        assert!(error_status("200").is_err() && error_status("abc").is_err());
        assert_eq!(error_status("429").unwrap(), StatusCode::TOO_MANY_REQUESTS);
        assert!(method("get").unwrap_err().contains("write `GET`"));
        assert!(method("PURGE").is_ok() && method("a b").is_err());
        assert_eq!(extension(".PHP"), Ok("php".to_owned()));
        assert!(extension("tar.gz").is_err() && extension("").is_err());
        assert!(
            name("gold.1-a_B").is_ok()
                && name("").is_err()
                && name("a b").is_err()
                && name(".x").is_err()
                && name("a/b").is_err()
        );
        assert!(cookie_name("a b").is_err() && cookie_name("id").is_ok());
        assert_eq!(header_field("X-Tier: gold ").unwrap().1, "gold");
        assert!(header_field("X-Tier").is_err() && header_field("X Y: z").is_err());
        assert!(header_name("X Y").is_err() && header_value("a\n").is_err());
    }
}
