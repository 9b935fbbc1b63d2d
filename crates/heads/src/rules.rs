//! Changes to a header that an operator configures.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};

/// Changes to a header, made in this order: remove, set, add.
#[derive(Clone, Debug, Default)]
pub struct HeaderRules {
    /// Fields to remove.
    pub remove: Vec<HeaderName>,
    /// Fields to set, replacing existing ones.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Fields to add to existing ones.
    pub add: Vec<(HeaderName, HeaderValue)>,
    /// Fields of a request to set to the address of its client.
    pub client: Vec<HeaderName>,
}

impl HeaderRules {
    /// Whether the rules change nothing.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty() && self.client.is_empty()
    }

    /// Applies the changes to the header of a request of this client. An IPv4 address mapped into IPv6 is written as IPv4.
    pub fn apply_to_request(&self, headers: &mut HeaderMap, client: IpAddr) {
        self.apply(headers);
        if self.client.is_empty() {
            return;
        }
        // Digits, letters, dots and colons are a valid field value.
        let Ok(address) = HeaderValue::try_from(client.to_canonical().to_string()) else { return };
        for name in &self.client {
            headers.insert(name, address.clone());
        }
    }

    /// Applies the changes to a header, but for those that depend on the client.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_remove_first_and_add_last() {
        let [a, b, c] = ["a", "b", "c"].map(HeaderName::from_static);
        let value = HeaderValue::from_static;
        let rules = HeaderRules {
            remove: vec![a.clone(), b.clone()],
            set: vec![(a.clone(), value("set"))],
            add: vec![(a.clone(), value("added"))],
            client: vec![c.clone()],
        };
        let mut headers = HeaderMap::from_iter([&a, &b, &c].map(|name| (name.clone(), value("old"))));
        rules.apply(&mut headers);
        assert_eq!(headers.get_all(&a).iter().collect::<Vec<_>>(), ["set", "added"]);
        assert_eq!(headers[&c], "old");
        rules.apply_to_request(&mut headers, "::ffff:192.0.2.7".parse().unwrap());
        assert_eq!(headers[&c], "192.0.2.7");
        assert!(!headers.contains_key(&b) && !rules.is_empty() && HeaderRules::default().is_empty());
    }
}
