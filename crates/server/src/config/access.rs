//! Access to a site or a route.

use std::{net::IpAddr, sync::Arc};

use classify::Requirement;
use http::{HeaderName, HeaderValue, uri::PathAndQuery};
use ipnet::IpNet;

/// Access to a site or a route. By default no request is refused.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// By the client's address.
    pub addresses: AddressRules,
    /// By what the request shows.
    pub require: Option<Require>,
    /// By what another server says; asked last.
    pub forward_auth: Option<Arc<ForwardAuth>>,
}

/// A server that is asked about each request: an answer of 2xx lets the request go on, any other answer is the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardAuth {
    /// The index in [`super::Config::upstreams`].
    pub upstream: usize,
    /// The path of the question, sent by GET.
    pub path: PathAndQuery,
    /// The fields of its answer that take the place of the client's in the request.
    pub copy: Vec<HeaderName>,
    /// The fields of an answer of 2xx that the client gets.
    pub to_client: Vec<HeaderName>,
}

/// The networks of clients that are let in, and of those that are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// These are let in. If there is one, clients in no network of either list are not.
    pub allow: Vec<IpNet>,
    /// These are not. No network is in both lists.
    pub deny: Vec<IpNet>,
}

/// A requirement, with the challenges for requests that do not meet it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Require {
    /// The requirement.
    pub requirement: Requirement,
    /// Asks the client for a password (RFC 7617).
    pub basic_challenge: HeaderValue,
    /// Asks the client for a key in `Authorization` (RFC 6750).
    pub bearer_challenge: HeaderValue,
}

impl AddressRules {
    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// Whether a client is let in. Of the networks that have its address, the smallest decides.
    pub fn admit(&self, client: IpAddr) -> bool {
        let smallest =
            |nets: &[IpNet]| nets.iter().filter(|net| net.contains(&client)).map(|net| net.prefix_len()).max();
        match (smallest(&self.allow), smallest(&self.deny)) {
            (None, None) => self.allow.is_empty(),
            (allowed, denied) => allowed > denied,
        }
    }
}

impl Require {
    /// The realm where none is given.
    pub const DEFAULT_REALM: &'static str = "restricted";

    /// # Errors
    /// The realm has a character that cannot stand in a challenge.
    pub fn new(requirement: Requirement, realm: &str) -> Result<Self, String> {
        if realm.is_empty() || realm.chars().any(|it| !matches!(it, ' '..='~') || matches!(it, '"' | '\\')) {
            return Err(format!("`{realm}` is no realm: write printable ASCII without `\"` and `\\`"));
        }
        let challenge = |text: String| HeaderValue::try_from(text).map_err(|error| error.to_string());
        Ok(Self {
            requirement,
            basic_challenge: challenge(format!("Basic realm=\"{realm}\", charset=\"UTF-8\""))?,
            bearer_challenge: challenge(format!("Bearer realm=\"{realm}\""))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> AddressRules {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        AddressRules { allow: nets(allow), deny: nets(deny) }
    }

    #[test]
    fn the_smallest_network_with_an_address_decides() {
        let nested = rules(&["10.0.0.0/8", "10.1.2.3/32"], &["10.1.0.0/16", "2001:db8::/32"]);
        for (client, admitted) in [
            ("10.0.0.1", true),
            ("10.1.0.1", false),
            ("10.1.2.3", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
            ("2001:db9::1", false),
        ] {
            assert_eq!(nested.admit(client.parse().unwrap()), admitted, "{client}");
        }
    }

    #[test]
    fn clients_in_no_network_are_let_in_unless_some_are_allowed() {
        let client = "192.0.2.1".parse().unwrap();
        assert!(rules(&[], &["10.0.0.0/8"]).admit(client));
        assert!(!rules(&["10.0.0.0/8"], &[]).admit(client));
        assert!(rules(&[], &[]).admit(client));
    }

    #[test]
    fn no_realm_ends_its_quotes() {
        for realm in ["", "a\"b", "a\\b", "a\r\nb", "\u{e9}"] {
            assert!(Require::new(Requirement::default(), realm).is_err(), "{realm:?}");
        }
        let require = Require::new(Requirement::default(), "the shop").unwrap();
        assert_eq!(require.basic_challenge, "Basic realm=\"the shop\", charset=\"UTF-8\"");
    }
}
