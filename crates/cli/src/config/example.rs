//! Settings as the example files write them, for messages.

use std::sync::LazyLock;

use toml::de::{DeTable, DeValue};

/// The example files. The first that has a setting is taken, and `serpent.toml` has mostly defaults.
const FILES: &[&str] = &[
    include_str!("../../../../examples/gateway.toml"),
    include_str!("../../../../examples/attach.toml"),
    include_str!("../../../../examples/serpent.toml"),
];

/// All settings with their paths and values.
static SETTINGS: LazyLock<Vec<(Vec<String>, String)>> = LazyLock::new(|| {
    let mut settings = Vec::new();
    for file in FILES {
        let text = uncommented(file);
        let (table, _) = DeTable::parse_recoverable(&text);
        collect(table.get_ref(), &text, &mut Vec::new(), &mut settings);
    }
    settings
});

/// The value of a setting in an example: of the path that has the longest end in common with this one.
pub fn value(path: &[&str]) -> Option<&'static str> {
    let in_common = |known: &[String]| known.iter().rev().zip(path.iter().rev()).take_while(|(a, b)| a == b).count();
    let alike = SETTINGS.iter().rev().filter(|(known, _)| in_common(known) > 0);
    // The last of several is taken, so the order is reversed.
    alike.max_by_key(|(known, _)| in_common(known)).map(|(_, value)| value.as_str())
}

/// A line of a table whose names are free, such as `error-pages`.
pub fn entry(table: &str) -> Option<(&'static str, &'static str)> {
    SETTINGS.iter().find_map(|(path, value)| match &path[..] {
        [.., of, name] if of == table => Some((name.as_str(), value.as_str())),
        _ => None,
    })
}

/// The text with the settings that stand in comments.
fn uncommented(text: &str) -> String {
    let is_setting = |line: &str| {
        let name = line.split_once(" = ").map_or("", |(name, _)| name);
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
    };
    let line = |line: &'_ str| match line.strip_prefix("# ").filter(|rest| is_setting(rest)) {
        Some(setting) => format!("{setting}\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn collect(table: &DeTable<'_>, text: &str, path: &mut Vec<String>, settings: &mut Vec<(Vec<String>, String)>) {
    for (key, value) in table.iter() {
        path.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(table) if !table.is_empty() => collect(table, text, path, settings),
            DeValue::Array(array) if array.iter().any(|value| matches!(value.get_ref(), DeValue::Table(_))) => {
                for value in array.iter() {
                    if let DeValue::Table(table) = value.get_ref() {
                        collect(table, text, path, settings);
                    }
                }
            }
            _ => {
                let value = text.get(value.span()).unwrap_or_default();
                if !value.contains('\n') && !matches!(value, "[]" | "{}" | "") {
                    settings.push((path.clone(), value.to_owned()));
                }
            }
        }
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::schema::every;

    #[test]
    fn every_scalar_setting_has_an_example() {
        assert_eq!(value(&["uplink", "order"]), Some("\"srpt\""));
        assert_eq!(value(&["class", "order"]), Some("\"adaptive\""));
        assert_eq!(value(&["site", "files", "listing"]), Some("false"));
        assert_eq!(value(&["site", "tls-key"]), Some("\"shop.key\""));
        let settings = every().flat_map(|section| section.settings);
        let scalars = settings.filter(|(_, kind)| kind.contains("Setting") || kind.contains("bool"));
        let missing = scalars.map(|(name, _)| name.replace('_', "-")).filter(|name| value(&[name]).is_none());
        assert_eq!(missing.collect::<Vec<_>>(), ["p50", "p90", "p95", "p999"], "`p99` is the example of all");
    }
}
