//! How requests are shared out between the servers of an upstream.

use http::StatusCode;
use server::config::{Balance, HashKey};

use super::requests::{cookie_name, header_name};

/// Reads the rule by which a request gets its server. A rule with keys has no bound yet.
pub fn balance(text: &str) -> Result<Balance, String> {
    let hash = |key| Ok(Balance::Hash { key, bound: None });
    let words: Vec<&str> = text.split_whitespace().collect();
    match *words {
        ["least-loaded"] => Ok(Balance::LeastLoaded),
        ["round-robin"] => Ok(Balance::RoundRobin),
        ["power-of-two"] => Ok(Balance::PowerOfTwo),
        ["hash", "client"] => hash(HashKey::Client),
        ["hash", "path"] => hash(HashKey::Path),
        ["hash", "header", name] => hash(HashKey::Header(header_name(name)?)),
        ["hash", "cookie", name] => hash(HashKey::Cookie(cookie_name(name)?)),
        _ => Err(match meant(text) {
            Some(meant) => format!("`{text}` is called `{meant}` here"),
            None => format!(
                "`{text}` is no rule: write `least-loaded`, `round-robin`, `power-of-two`, `hash client`, `hash path`, \
                 `hash header NAME` or `hash cookie NAME`"
            ),
        }),
    }
}

/// The rule that nginx, HAProxy or Caddy have under another name.
fn meant(text: &str) -> Option<&'static str> {
    Some(match text {
        "least_conn" | "leastconn" | "least_connections" | "least-connections" => "least-loaded",
        "roundrobin" | "round_robin" | "static-rr" => "round-robin",
        "random" | "random two" | "random(2)" | "random two least_conn" | "random_choose" | "p2c" => "power-of-two",
        "ip_hash" | "source" | "client_ip_hash" | "hash" => "hash client",
        "uri" | "uri_hash" => "hash path",
        _ => return None,
    })
}

/// Reads the bound on a server's requests under way, as in `125%` of its fair part.
pub fn hash_bound(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<u32>().ok());
    let within = number.filter(|percent| (100..=1_000).contains(percent));
    within.ok_or_else(|| format!("`{text}` is no bound: give percent of the fair part from 100 to 1000, as in `125%`"))
}

/// Reads a status after which a request is sent again.
pub fn retried_status(text: &str) -> Result<StatusCode, String> {
    let status = text.parse::<StatusCode>().ok().filter(|status| status.is_client_error() || status.is_server_error());
    status.ok_or_else(|| format!("`{text}` is no error status: give one from 400 to 599, as in `503`"))
}

/// Reads a part in whole percent, as in `20%`.
pub fn whole_percent(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<u32>().ok());
    let within = number.filter(|percent| (1..=100).contains(percent));
    within.ok_or_else(|| format!("`{text}` is not a part: give percent from 1 to 100, as in `20%`"))
}

/// Reads how many times as much, as in `3`.
pub fn times(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|times| (1.1..=100.0).contains(times));
    number.ok_or_else(|| format!("`{text}` says not how many times: give a number from 1.1 to 100, as in `3`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        let hash = |key| Balance::Hash { key, bound: None };
        for (text, read) in [
            ("least-loaded", Balance::LeastLoaded),
            ("round-robin", Balance::RoundRobin),
            ("power-of-two", Balance::PowerOfTwo),
            ("hash client", hash(HashKey::Client)),
            ("hash path", hash(HashKey::Path)),
            ("hash header X-User", hash(HashKey::Header("x-user".parse().unwrap()))),
            ("hash cookie JSESSIONID", hash(HashKey::Cookie("JSESSIONID".to_owned()))),
        ] {
            assert_eq!(balance(text), Ok(read), "{text}");
        }
        for (text, part) in [
            ("leastconn", "is called `least-loaded` here"),
            ("ip_hash", "is called `hash client` here"),
            ("fastest", "write `least-loaded`"),
            ("hash header", "`hash header NAME`"),
            ("hash header a:b", "is not the name of a header field"),
            ("hash cookie a;b", "is not the name of a cookie"),
            ("hash client now", "write `least-loaded`"),
        ] {
            let error = balance(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(hash_bound("125%"), Ok(125));
        for text in ["99%", "1001%", "125", "1.25", "%"] {
            assert!(hash_bound(text).is_err(), "{text}");
        }
    }
}
