//! The configuration that comes out, and its text.

use std::fmt::Write as _;

use toml_edit::Value;

use crate::report::Place;

/// Settings of a table, as written: names, values, and comments above them.
#[derive(Clone, Debug, Default)]
pub struct Settings(Vec<(String, String, Option<String>)>);

impl Settings {
    /// Adds a setting, unless it is there.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.write(name, value.into().to_string().trim().to_owned(), None);
    }

    /// Adds a setting whose value is written in TOML already, unless it is there.
    pub fn write(&mut self, name: &str, value: String, comment: Option<String>) {
        if !self.has(name) {
            self.0.push((name.to_owned(), value, comment));
        }
    }

    /// Gives a setting another value.
    pub fn replace(&mut self, name: &str, value: impl Into<Value>) {
        self.0.retain(|(other, ..)| other != name);
        self.set(name, value);
    }

    /// Gives a setting another name and value, in its place.
    pub fn rename(&mut self, name: &str, new: &str, value: impl Into<Value>) {
        if let Some(setting) = self.0.iter_mut().find(|(other, ..)| other == name) {
            (setting.0, setting.1) = (new.to_owned(), value.into().to_string().trim().to_owned());
        }
    }

    /// Whether there is a setting of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(other, ..)| other == name)
    }

    /// Whether there is a setting of this name, or of its table.
    pub fn has_any(&self, name: &str) -> bool {
        self.0.iter().any(|(other, ..)| other.split('.').next() == Some(name))
    }

    /// The value of a setting, in TOML.
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, ..)| other == name).map(|(_, value, _)| value.as_str())
    }

    /// Whether there are no settings but these.
    pub fn is_only(&self, names: &[&str]) -> bool {
        self.0.iter().all(|(name, ..)| names.contains(&name.as_str()))
    }

    /// The names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, ..)| name.as_str())
    }

    /// Adds all that are not there.
    pub fn extend(&mut self, other: &Self) {
        other.0.iter().for_each(|(name, value, comment)| self.write(name, value.clone(), comment.clone()));
    }

    /// Whether both have the same settings, apart from this one.
    pub fn same_but(&self, other: &Self, left_out: &str) -> bool {
        let all = |one: &Self| {
            let mut all: Vec<_> = one.0.iter().filter(|(name, ..)| name != left_out).cloned().collect();
            all.sort();
            all
        };
        all(self) == all(other)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn text(&self, out: &mut String) {
        for (name, value, comment) in &self.0 {
            if let Some(comment) = comment {
                put_comment(out, comment);
            }
            let _ = writeln!(out, "{name} = {value}");
        }
    }
}

/// A list of texts.
pub fn list<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> Value {
    Value::Array(items.into_iter().map(|item| item.as_ref().to_owned()).collect())
}

/// `from FILE:LINE`
pub fn from(place: &Place) -> String {
    format!("from {place}")
}

/// A table on one line.
pub fn table<K: AsRef<str>>(pairs: impl IntoIterator<Item = (K, Value)>) -> Value {
    let mut table = toml_edit::InlineTable::new();
    for (name, value) in pairs {
        table.insert(name.as_ref(), value);
    }
    table.into()
}

/// A table with its name and what stands above it.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// `[name]` or `[[name]]`.
    pub header: &'static str,
    /// Lines of comment above it.
    pub comment: Vec<String>,
    pub settings: Settings,
    /// Its own tables.
    pub inner: Vec<Section>,
}

impl Section {
    pub fn new(header: &'static str) -> Self {
        Self { header, ..Self::default() }
    }

    /// Whether both have the same settings and tables, whatever is said above them and about TLS.
    pub fn serves_same(&self, other: &Self) -> bool {
        const OF_TLS: [&str; 5] = ["tls-cert", "tls-key", "client-ca", "https-redirect", "names"];
        let settings = |section: &Self| {
            let all = section.settings.0.iter().filter(|(name, ..)| !OF_TLS.contains(&name.as_str()));
            let mut all: Vec<_> = all.map(|(name, value, _)| (name.clone(), value.clone())).collect();
            all.sort();
            all
        };
        self.header == other.header
            && settings(self) == settings(other)
            && self.inner.len() == other.inner.len()
            && self.inner.iter().zip(&other.inner).all(|(one, other)| one.serves_same(other))
    }

    fn text(&self, out: &mut String) {
        out.push('\n');
        for line in &self.comment {
            put_comment(out, line);
        }
        let _ = writeln!(out, "{}", self.header);
        self.settings.text(out);
        self.inner.iter().for_each(|section| section.text(out));
    }
}

/// Writes a line of comment. It may quote the other server's file. So a control character in it, such as a line break,
/// is written as its escape: it would end the comment, or is not allowed in one.
fn put_comment(out: &mut String, text: &str) {
    out.push('#');
    if !text.is_empty() {
        out.push(' ');
    }
    for c in text.chars() {
        match c.is_control() {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out.push('\n');
}

/// The whole file.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Lines of comment at the top.
    pub comment: Vec<String>,
    /// Settings of the whole server.
    pub top: Settings,
    /// Its tables, in their order.
    pub sections: Vec<Section>,
}

impl Draft {
    /// The text of the file.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for line in &self.comment {
            put_comment(&mut out, line);
        }
        out.push('\n');
        self.top.text(&mut out);
        self.sections.iter().for_each(|section| section.text(&mut out));
        out
    }
}
