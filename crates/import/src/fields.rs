//! Fields of requests or responses that a route changes.

use toml_edit::Value;

use crate::draft::{Settings, list, table};

/// Changes to fields, as `request-headers` and `response-headers` of a route have them.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    pub remove: Vec<String>,
    pub set: Vec<(String, String)>,
    pub add: Vec<(String, String)>,
    /// Fields of requests that get the address of the client.
    pub client: Vec<String>,
}

impl Fields {
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty() && self.client.is_empty()
    }

    /// Whether a field gets a value.
    pub fn sets(&self, name: &str) -> bool {
        self.set.iter().any(|(other, _)| other.eq_ignore_ascii_case(name))
    }

    /// Sets a field, in place of an earlier value.
    pub fn set(&mut self, name: &str, value: &str) {
        self.set.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.set.push((name.to_owned(), value.to_owned()));
    }

    /// `name`: `request-headers` or `response-headers`. Of two values for a field to be added, the first is written.
    pub fn write(&self, name: &str, settings: &mut Settings) {
        if !self.remove.is_empty() {
            settings.set(&format!("{name}.remove"), list(&self.remove));
        }
        for (what, fields) in [("set", &self.set), ("add", &self.add)] {
            let mut alone: Vec<(&str, Value)> = Vec::new();
            for (field, value) in fields {
                if !alone.iter().any(|(other, _)| other.eq_ignore_ascii_case(field)) {
                    alone.push((field, value.as_str().into()));
                }
            }
            if !alone.is_empty() {
                settings.set(&format!("{name}.{what}"), table(alone));
            }
        }
        if !self.client.is_empty() {
            settings.set(&format!("{name}.client"), list(&self.client));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_written_once_and_set_to_its_last_value() {
        let mut fields = Fields { client: vec!["X-Real-IP".to_owned()], ..Fields::default() };
        fields.set("X-A", "1");
        fields.set("x-a", "2");
        fields.add = ["1", "2"].map(|value| ("X-B".to_owned(), value.to_owned())).to_vec();
        assert!(fields.sets("X-A") && !fields.sets("X-B") && !fields.is_empty() && Fields::default().is_empty());
        let mut settings = Settings::default();
        fields.write("request-headers", &mut settings);
        let text = |name: &str| settings.text_of(&format!("request-headers.{name}")).unwrap_or_default().to_owned();
        assert_eq!([text("set"), text("add")], ["{ x-a = \"2\" }", "{ X-B = \"1\" }"]);
        assert_eq!([text("client"), text("remove")], ["[\"X-Real-IP\"]", ""]);
    }
}
