//! Problems of the shape of the file: unknown settings, settings in the wrong table, values of the wrong type. The reader
//! of `raw` says what it expects; the sections of the file and the examples say what to write.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue, Error},
};

use super::{
    example,
    problems::Problem,
    schema::{self, Form},
    section::Section,
};
use crate::{
    other_servers::{self, Instead},
    spelling::like,
};

/// The problem for an error of the reader.
pub fn problem(error: &Error, table: &DeTable<'_>, text: &str) -> Problem {
    let (message, span) = (error.message(), error.span());
    let mut place = Place { keys: Vec::new(), is_element: false };
    if let Some(at) = &span {
        place.find(table, at);
    }
    if let Some((name, known)) = unknown_field(message) {
        return unknown(span, name, &known, &place);
    }
    match message.strip_prefix("invalid type: ").and_then(|message| message.split_once(", expected ")) {
        Some((found, expected)) => mismatch(found, expected, span, &place, text),
        None => Problem::new(message, span),
    }
}

/// The keys that lead to a place in the text.
struct Place {
    keys: Vec<String>,
    /// Whether the place is an element of a list.
    is_element: bool,
}

impl Place {
    fn find(&mut self, table: &DeTable<'_>, at: &Range<usize>) -> bool {
        table.iter().any(|(key, value)| {
            self.keys.push(key.get_ref().to_string());
            let found = key.span() == *at || self.find_in(value, at);
            if !found {
                self.keys.pop();
            }
            found
        })
    }

    fn find_in(&mut self, value: &Spanned<DeValue<'_>>, at: &Range<usize>) -> bool {
        let own = value.span();
        match value.get_ref() {
            // The span of a `[table]` is its header only.
            DeValue::Table(table) if own != *at => self.find(table, at),
            DeValue::Array(list) if own != *at => list.iter().any(|value| {
                let keys = self.keys.len();
                let found = self.find_in(value, at);
                self.is_element |= found && keys == self.keys.len();
                found
            }),
            _ => own.start <= at.start && at.end <= own.end,
        }
    }
}

/// The problem for an unknown setting. It says which table the setting belongs to, or how Serpent calls it.
fn unknown(span: Option<Range<usize>>, name: &str, known: &[&str], place: &Place) -> Problem {
    let keys: Vec<_> = place.keys.iter().map(String::as_str).collect();
    let outer = &keys[..keys.len().saturating_sub(1)];
    let section = schema::section_at(outer);
    let table = schema::place_in(section);
    let problem = Problem::new(format!("there is no setting `{name}` {table}"), span.clone());
    if let Some(instead) = other_servers::setting_in(&table, name) {
        return problem.help(format!("here that is `{instead}`"));
    }
    if table == "in `[[class]]`" && matches!(name, "priority" | "rank" | "level") {
        return problem.help("classes go by their order in the file, the most important first: leave it out");
    }
    if known == ["remove", "set", "add"] {
        return problem.help(format!("write `set = {{ \"{name}\" = \"VALUE\" }}`; there are `remove`, `set`, `add`"));
    }
    if let Some(known) = like(name, known.iter().copied()) {
        let written = match section.and_then(|section| section.form(known)) {
            Some(form @ (Form::Table(_) | Form::Tables(_))) => form.header(&[outer, &[known]].concat()),
            _ => format!("`{known}`"),
        };
        return problem.help(format!("did you mean {written}?"));
    }
    if let ["users" | "keys"] = outer {
        let what = if outer == ["users"] { "users and passwords" } else { "keys" };
        return problem.help(format!("{what} stand in a file of their own, which `file = \"PATH\"` names"));
    }
    match other_servers::setting(name) {
        Some(Instead::Setting(instead)) => problem.help(format!("here that is {instead}")),
        Some(Instead::NotSupported(instead)) => Problem::new(format!("`{name}` is not supported"), span).help(instead),
        None => {
            let settings = || known.iter().map(|known| format!("`{known}`")).collect::<Vec<_>>().join(", ");
            problem.help(schema::belongs(name).unwrap_or_else(|| format!("there are {}", settings())))
        }
    }
}

/// The name, and those that are known, from "unknown field `x`, expected one of `a`, `b`".
fn unknown_field(message: &str) -> Option<(&str, Vec<&str>)> {
    let mut quoted = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

/// The problem for a value of the wrong type.
fn mismatch(found: &str, expected: &str, span: Option<Range<usize>>, place: &Place, text: &str) -> Problem {
    let found = match found.split(' ').next().unwrap_or_default() {
        "string" => "a text",
        "map" => "a table",
        "sequence" => "a list",
        "boolean" => found.trim_start_matches("boolean "),
        "integer" | "floating" => "a number",
        _ => found,
    };
    let keys: Vec<_> = place.keys.iter().map(String::as_str).collect();
    let Some((name, outer)) = keys.split_last() else {
        return Problem::new(format!("{found}, expected {expected}"), span);
    };
    let form = schema::section_at(outer).and_then(|section| section.form(name));
    let first = |inner: &Section| inner.names().find_map(|name| setting(&[&keys[..], &[&name]].concat()));
    let (expected, help) = match form {
        Some(form @ Form::Tables(_)) if found == "a table" => {
            let header = form.header(&keys);
            let message = format!("there can be several `{}`, so each is one of a list", keys.join("."));
            return Problem::new(message, span).help(format!("write {header}"));
        }
        Some(form @ (Form::Table(inner) | Form::Tables(inner))) => {
            let expected = if matches!(form, Form::Table(_)) { "a table" } else { "a list of tables" };
            let example = first(inner).map(|setting| format!(", as in `{setting}`")).unwrap_or_default();
            (expected, Some(format!("write {}, and its settings below it{example}", form.header(&keys))))
        }
        Some(Form::ValueOrTable(inner)) => {
            (expected, first(inner).map(|setting| format!("write it as in `{name} = {{ {setting} }}`")))
        }
        Some(Form::Value) | None if expected == "a map" => {
            let header = keys.join(".");
            let line = match example::entry(name) {
                Some((key, value)) => format!("as in `{key} = {value}`"),
                None => "`NAME = { ... }`".to_owned(),
            };
            ("a table", Some(format!("write `[{header}]`, and below it a line for each, {line}")))
        }
        Some(Form::Value) | None => {
            let is_header = span.clone().and_then(|span| text.get(span)).is_some_and(|text| text.starts_with('['));
            let place = match outer {
                [] if is_header && found == "a table" => " at the top of the file, before the first table",
                _ => "",
            };
            let example = match *name {
                // The example of what is off as a rule would be the opposite of what is meant.
                "hsts" if found == "`true`" => Some("hsts = \"on\"".to_owned()),
                "proxy-protocol" if found == "`true`" && !outer.is_empty() => {
                    Some("proxy-protocol = \"v2\"".to_owned())
                }
                _ => form.and_then(|_| setting(&keys)),
            };
            let example = example.map(|setting| format!("write it as in `{setting}`{place}"));
            (if expected == "a boolean" { "`true` or `false`" } else { expected }, example)
        }
    };
    let is = if place.is_element { "has" } else { "is" };
    let within = if place.is_element { " in it" } else { " here" };
    let problem = Problem::new(format!("`{name}` {is} {found}{within}, expected {expected}"), span);
    match help {
        Some(help) => problem.help(help),
        None => problem,
    }
}

/// A setting as an example has it.
fn setting(path: &[&str]) -> Option<String> {
    Some(format!("{} = {}", path.last()?, example::value(path)?))
}
