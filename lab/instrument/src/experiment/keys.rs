//! Applies dotted keys to a table, as if they were written into the file.

use toml::{Table, Value};

/// Keys of which a table may hold only one: setting one removes the others. An empty list means all keys of
/// the table.
const ALTERNATIVES: [(&str, &[&str]); 2] =
    [("demand", &["load", "pattern", "requests-per-second"]), ("demand.sizes", &[])];

/// Sets `key` to `value`, and creates missing tables. In a list, a part of the key is an index, the `name` of
/// an entry, or `*` for all entries; the index after the last adds an entry. Errors name the invalid part of
/// the key.
pub(super) fn put(table: &mut Table, key: &str, value: &Value) -> Result<(), String> {
    let parts: Vec<&str> = key.split('.').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err(format!("`{key}` is no key: write names with dots between them, as in `link.rate`"));
    }
    put_into(table, key, &parts, 0, value)
}

fn put_into(table: &mut Table, key: &str, parts: &[&str], at: usize, value: &Value) -> Result<(), String> {
    let here = parts[..at].join(".");
    if let Some((_, others)) = ALTERNATIVES.iter().find(|(parent, _)| *parent == here)
        && (others.is_empty() || others.contains(&parts[at]))
    {
        let gives_way = |other: &str| other != parts[at] && (others.is_empty() || others.contains(&other));
        table.retain(|other, _| !gives_way(other));
    }
    if at + 1 == parts.len() {
        table.insert(parts[at].to_owned(), value.clone());
        return Ok(());
    }
    match table.entry(parts[at]).or_insert_with(|| empty(parts, at)) {
        Value::Table(inner) => put_into(inner, key, parts, at + 1, value),
        Value::Array(list) => put_into_list(list, key, parts, at + 1, value),
        // `sizes = "nasa"` is replaced by `sizes.fixed = 1000`.
        plain => {
            let mut inner = Table::new();
            put_into(&mut inner, key, parts, at + 1, value)?;
            *plain = Value::Table(inner);
            Ok(())
        }
    }
}

fn put_into_list(list: &mut Vec<Value>, key: &str, parts: &[&str], at: usize, value: &Value) -> Result<(), String> {
    let named = |entry: &Value| entry.get("name").and_then(Value::as_str).is_some_and(|name| name == parts[at]);
    let chosen: Vec<usize> = match parts[at].parse::<usize>() {
        _ if parts[at] == "*" => (0..list.len()).collect(),
        Ok(index) if index < list.len() => vec![index],
        Ok(index) if index == list.len() => {
            list.push(Value::Table(Table::new()));
            vec![index]
        }
        _ => (0..list.len()).filter(|&index| named(&list[index])).collect(),
    };
    if chosen.is_empty() {
        let list_key = parts[..at].join(".");
        return Err(format!(
            "`{key}`: `{list_key}` has {} entries, and none is `{}`: give an index from 0, the name of an entry, or `*`",
            list.len(),
            parts[at]
        ));
    }
    for index in chosen {
        match &mut list[index] {
            plain if at + 1 == parts.len() => *plain = value.clone(),
            Value::Table(inner) => put_into(inner, key, parts, at + 1, value)?,
            Value::Array(inner) => put_into_list(inner, key, parts, at + 1, value)?,
            _ => return Err(format!("`{key}`: there is nothing below `{}`", parts[..=at].join("."))),
        }
    }
    Ok(())
}

/// The value of a missing part of the path: a list if the next part is an index or `*`, else a table.
fn empty(parts: &[&str], at: usize) -> Value {
    let list = parts.get(at + 1).is_some_and(|next| *next == "*" || next.bytes().all(|byte| byte.is_ascii_digit()));
    if list { Value::Array(Vec::new()) } else { Value::Table(Table::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(text: &str, key: &str, value: impl Into<Value>) -> Result<Table, String> {
        let mut table: Table = toml::from_str(text).unwrap();
        put(&mut table, key, &value.into()).map(|()| table)
    }

    fn read(text: &str) -> Table {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_key_is_put_where_a_hand_would_write_it() {
        assert_eq!(after("", "link.rate", "10mbit").unwrap(), read("link.rate = '10mbit'"));
        assert_eq!(
            after("link = { rate = 1, queue = 2 }", "link.rate", 5).unwrap(),
            read("link = { rate = 5, queue = 2 }")
        );
    }

    #[test]
    fn groups_are_reached_by_number_by_name_and_all_at_once() {
        let two = "[[groups]]\nname = 'a'\n[[groups]]\nname = 'b'\n";
        assert_eq!(after(two, "groups.b.share", 2).unwrap(), read(&format!("{two}share = 2")));
        assert_eq!(after(two, "groups.1.path.loss", 0.1).unwrap(), read(&format!("{two}path.loss = 0.1")));
        assert_eq!(
            after(two, "groups.*.share", 3).unwrap(),
            read("[[groups]]\nname = 'a'\nshare = 3\n[[groups]]\nname = 'b'\nshare = 3")
        );
        assert_eq!(after("", "groups.0.path.rtt-ms", 50).unwrap(), read("[[groups]]\npath.rtt-ms = 50"));
        for key in ["groups.c.share", "groups.7.share"] {
            assert!(after(two, key, 1).unwrap_err().contains("2 entries"), "{key}");
        }
        assert!(after("", "groups.*.share", 1).unwrap_err().contains("0 entries"));
    }

    #[test]
    fn of_alternatives_the_last_one_stands() {
        assert_eq!(
            after("demand = { load = 0.8, files = 5 }", "demand.pattern", "w1").unwrap(),
            read("demand = { files = 5, pattern = 'w1' }")
        );
        assert_eq!(after("demand.load = 0.8", "demand.files", 5).unwrap(), read("demand = { load = 0.8, files = 5 }"));
        assert_eq!(after("demand.sizes = 'nasa'", "demand.sizes.fixed", 5).unwrap(), read("demand.sizes.fixed = 5"));
        assert_eq!(
            after("demand.sizes.heavy-tail.alpha = 1", "demand.sizes.fixed", 5).unwrap(),
            read("demand.sizes.fixed = 5")
        );
        assert_eq!(
            after("demand.sizes.heavy-tail.alpha = 1", "demand.sizes.heavy-tail.min-bytes", 5).unwrap(),
            read("demand.sizes.heavy-tail = { alpha = 1, min-bytes = 5 }")
        );
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for key in ["", ".", "link.", "a..b"] {
            assert!(after("", key, 1).unwrap_err().contains("is no key"), "{key}");
        }
    }
}
