//! Which requests a route takes, beside those of its path.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::UNIX_EPOCH,
};

use http::request::Parts;

use crate::{
    conditions::RequestView,
    config::{Condition, ValueMatch},
    facts::Facts,
};

/// The requests that a route takes: all that meet its conditions. Conditions here are about the request and its
/// client's address; those about users, keys, certificates and the connection never hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// All of these hold.
    pub all: Vec<Condition>,
    /// None of these holds.
    pub unless: Vec<Condition>,
}

impl Filter {
    /// Whether it takes every request.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.unless.is_empty()
    }

    /// Whether it takes a request of this client.
    pub fn takes(&self, parts: &Parts, client: IpAddr) -> bool {
        if self.is_empty() {
            return true;
        }
        let facts = Facts {
            parts,
            host: "",
            peer: SocketAddr::new(client, 0),
            local: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            certificate_names: &[],
            has_certificate: false,
            tls: false,
            now: UNIX_EPOCH,
        };
        let view = RequestView::new(facts, client, None, None);
        self.all.iter().all(|it| view.holds(it)) && !self.unless.iter().any(|it| view.holds(it))
    }
}

/// `method GET, header x-plan, unless client 10.0.0.0/8`
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |conditions: &[Condition]| conditions.iter().map(text).collect::<Vec<_>>();
        f.write_str(&said(&self.all).join(", "))?;
        if !self.unless.is_empty() {
            let comma = if self.all.is_empty() { "" } else { ", " };
            write!(f, "{comma}unless {}", said(&self.unless).join(" or "))?;
        }
        Ok(())
    }
}

fn text(condition: &Condition) -> String {
    let values = |what: &str, name: &str, values: &ValueMatch| match values {
        ValueMatch::Present => format!("{what} {name}"),
        ValueMatch::OneOf(values) => format!("{what} {name} {}", values.join("|")),
        ValueMatch::Regex(regex) => format!("{what} {name} /{regex}/"),
    };
    let joined = |what: &str, all: Vec<String>| format!("{what} {}", all.join("|"));
    match condition {
        Condition::Method(methods) => joined("method", methods.iter().map(ToString::to_string).collect()),
        Condition::Client(nets) => joined("client", nets.iter().map(ToString::to_string).collect()),
        Condition::Path(patterns) => joined("path", patterns.iter().map(|it| it.as_str().to_owned()).collect()),
        Condition::Query(name, wanted) => values("query", name, wanted),
        Condition::Header(name, wanted) => values("header", name.as_str(), wanted),
        Condition::Cookie(name, wanted) => values("cookie", name, wanted),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Request, header::USER_AGENT};

    use super::*;
    use crate::config::PathPattern;

    fn parts(method: Method, uri: &str, agent: &str) -> Parts {
        let request = Request::builder().method(method).uri(uri).header(USER_AGENT, agent).header("cookie", "a=1; b=2");
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn all_conditions_hold_and_none_of_the_exceptions() {
        let filter = Filter {
            all: vec![
                Condition::Method(vec![Method::GET, Method::HEAD]),
                Condition::Header(USER_AGENT, ValueMatch::Regex(regex::Regex::new("(?i)bot").unwrap())),
            ],
            unless: vec![
                Condition::Client(vec!["10.0.0.0/8".parse().unwrap()]),
                Condition::Query("debug".to_owned(), ValueMatch::Present),
                Condition::Path(vec![PathPattern::Prefix("/public".to_owned())]),
            ],
        };
        let takes = |method: Method, uri: &str, agent: &str, client: &str| {
            filter.takes(&parts(method, uri, agent), client.parse().unwrap())
        };
        assert!(takes(Method::GET, "/", "ABot/1", "192.0.2.1"));
        assert!(takes(Method::HEAD, "/?x=debug", "robot", "192.0.2.1"));
        assert!(!takes(Method::POST, "/", "ABot/1", "192.0.2.1"));
        assert!(!takes(Method::GET, "/", "curl", "192.0.2.1"));
        assert!(!takes(Method::GET, "/", "ABot/1", "10.1.2.3"));
        assert!(!takes(Method::GET, "/?debug=1", "ABot/1", "192.0.2.1"));
        assert!(!takes(Method::GET, "/public/%61", "ABot/1", "192.0.2.1"));
        let said =
            "method GET|HEAD, header user-agent /(?i)bot/, unless client 10.0.0.0/8 or query debug or path /public";
        assert_eq!(filter.to_string(), said);
    }

    #[test]
    fn a_filter_without_conditions_takes_everything() {
        let client = "192.0.2.1".parse().unwrap();
        assert!(Filter::default().takes(&parts(Method::POST, "/", ""), client));
        let only_unless =
            Filter { unless: vec![Condition::Cookie("a".to_owned(), ValueMatch::Present)], ..Filter::default() };
        assert!(!only_unless.is_empty() && !only_unless.takes(&parts(Method::GET, "/", ""), client));
        assert_eq!(only_unless.to_string(), "unless cookie a");
    }
}
