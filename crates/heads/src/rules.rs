//! Changes to a header that an operator configures.

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
}

impl HeaderRules {
    /// Whether the rules change nothing.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// Applies the changes to a header.
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
        let (a, b) = (HeaderName::from_static("a"), HeaderName::from_static("b"));
        let value = HeaderValue::from_static;
        let rules = HeaderRules {
            remove: vec![a.clone(), b.clone()],
            set: vec![(a.clone(), value("set"))],
            add: vec![(a.clone(), value("added"))],
        };
        let mut headers = HeaderMap::from_iter([(a.clone(), value("old")), (b.clone(), value("old"))]);
        rules.apply(&mut headers);
        assert_eq!(headers.get_all(&a).iter().collect::<Vec<_>>(), ["set", "added"]);
        assert!(!headers.contains_key(&b) && !rules.is_empty() && HeaderRules::default().is_empty());
    }
}
