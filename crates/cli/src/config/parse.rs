//! From the text of the file to its sections: syntax, the shape of every table, unknown settings.

use std::{borrow::Cow, ops::Range};

use serde::Deserialize as _;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    problems::{Problem, like},
    raw::{self, Raw},
};
use crate::other_servers::{self, Instead};

/// Syntax errors that are shown: a file of another kind has one in each line.
const MOST_SYNTAX_ERRORS: usize = 5;

/// Reads the file's text. Entries that cannot be read are reported and left out, so that one run finds every mistake.
pub fn parse(text: &str) -> (Raw, Vec<Problem>) {
    if text.trim_start().starts_with("-----BEGIN ") {
        let message = "this is not a configuration: it looks like a PEM file, as of a certificate or a key";
        let help = "give the configuration; `tls-cert` and `tls-key` of a `[[site]]` name such files in it";
        return (Raw::default(), vec![Problem::new(message, None).help(help)]);
    }
    let (mut table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // Text behind a syntax error may be misread: only the first error of a line is shown, and parsing ends here.
        let mut problems: Vec<_> = errors.iter().map(|error| problem_of(error, text)).collect();
        let line = |problem: &Problem| {
            problem.span.as_ref().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count())
        };
        problems.sort_by_key(|problem| line(problem));
        problems.dedup_by_key(|problem| line(problem));
        if problems.len() > MOST_SYNTAX_ERRORS {
            let more = problems.len() - MOST_SYNTAX_ERRORS;
            problems.truncate(MOST_SYNTAX_ERRORS);
            let message = format!("{more} more lines cannot be read");
            problems
                .push(Problem::new(message, None).help("is this a configuration of Serpent? It is written in TOML"));
        }
        return (Raw::default(), problems);
    }
    let mut problems = Vec::new();
    let sound = table.get_ref().iter().filter(|(key, value)| {
        let problem = list_of_a_single_table(key, value);
        let is_sound = problem.is_none();
        problems.extend(problem);
        is_sound
    });
    *table.get_mut() = sound.map(|(key, value)| (key.clone(), value.clone())).collect();
    loop {
        match Raw::deserialize(toml::de::Deserializer::from(table.clone())) {
            Ok(raw) => return (raw, problems),
            Err(error) => {
                problems.push(problem_of(&error, text));
                let Some(at) = error.span() else { return (Raw::default(), problems) };
                let mut removed = false;
                *table.get_mut() = table_without(table.get_ref(), &at, &mut removed);
                if !removed {
                    return (Raw::default(), problems);
                }
            }
        }
    }
}

/// Tables that occur once, such as `[uplink]`. Serde would take a list for their settings in order.
const SINGLE_TABLES: &[&str] = &[
    "uplink",
    "limits",
    "cache",
    "access-log",
    "error-log",
    "acme",
    "files",
    "compression",
    "admission",
    "users",
    "keys",
    "session",
    "attach",
];

fn list_of_a_single_table(key: &Spanned<Cow<'_, str>>, value: &Spanned<DeValue<'_>>) -> Option<Problem> {
    let name = key.get_ref();
    let is_list = SINGLE_TABLES.contains(&&**name) && matches!(value.get_ref(), DeValue::Array(_));
    is_list.then(|| {
        Problem::new(format!("there is one `{name}` only"), Some(key.span())).help(format!("write `[{name}]`"))
    })
}

/// The table without the innermost entry that contains the span `at` of an error.
fn table_without<'i>(table: &DeTable<'i>, at: &Range<usize>, removed: &mut bool) -> DeTable<'i> {
    let entries = table.iter().filter_map(|(key, value)| {
        if !*removed && key.span() == *at {
            *removed = true;
            return None;
        }
        Some((key.clone(), value_without(value, at, removed)?))
    });
    entries.collect()
}

/// The value without the part at the span of an error; `None` if that is the whole value.
fn value_without<'i>(
    value: &Spanned<DeValue<'i>>,
    at: &Range<usize>,
    removed: &mut bool,
) -> Option<Spanned<DeValue<'i>>> {
    let own = value.span();
    if *removed {
        return Some(value.clone());
    }
    let rest = match value.get_ref() {
        // The span of a `[table]` is its header only, so the entries are searched in any case.
        DeValue::Table(table) if own != *at => DeValue::Table(table_without(table, at, removed)),
        DeValue::Array(array) if own != *at => {
            DeValue::Array(array.iter().filter_map(|value| value_without(value, at, removed)).collect())
        }
        _ if own.start <= at.start && at.end <= own.end => {
            *removed = true;
            return None;
        }
        other => other.clone(),
    };
    Some(Spanned::new(own, rest))
}

/// The problem for an error of the TOML parser.
fn problem_of(error: &toml::de::Error, text: &str) -> Problem {
    let (message, span) = (error.message(), error.span());
    let written = span.clone().and_then(|span| text.get(span)).unwrap_or_default();
    if let Some((name, known)) = unknown_field(message) {
        return unknown(message, span, name, known);
    }
    let (found, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    let table = written.trim_matches(['[', ']']);
    match (found, expected) {
        ("invalid type: map", "a sequence") if written.starts_with('[') => {
            Problem::new(format!("there can be several `{table}`, so each is one of a list"), span)
                .help(format!("write `[[{table}]]`"))
        }
        (found, expected) if expected.starts_with("struct ") => {
            Problem::new(format!("{found}, expected a table, as in `{{ name = value }}`"), span)
        }
        (found, "a sequence") => Problem::new(format!("{found}, expected a list, as in `[value]`"), span),
        _ => Problem::new(message, span),
    }
}

/// The problem for an unknown setting. It says in which section the setting belongs, or how Serpent calls it.
fn unknown(message: &str, span: Option<Range<usize>>, name: &str, known: Vec<&str>) -> Problem {
    if let Some(known) = like(name, known) {
        return Problem::new(message, span).help(format!("did you mean `{known}`?"));
    }
    match other_servers::setting(name) {
        Some(Instead::Setting(instead)) => {
            return Problem::new(format!("unknown field `{name}`"), span).help(format!("here that is {instead}"));
        }
        Some(Instead::NotSupported(instead)) => {
            return Problem::new(format!("`{name}` is not supported"), span).help(instead);
        }
        None => {}
    }
    let sections: Vec<_> = raw::sections_with(name).collect();
    match &sections[..] {
        [] => Problem::new(message, span),
        [raw::TOP, ..] => Problem::new(format!("unknown field `{name}` in this table"), span).help(format!(
            "`{name}` belongs at the top of the file, before the first table: what follows a `[table]` is part of it"
        )),
        sections => Problem::new(format!("unknown field `{name}` here"), span)
            .help(format!("`{name}` belongs in {}", sections.join(" or "))),
    }
}

/// The name, and those that are known, from "unknown field `x`, expected one of `a`, `b`".
fn unknown_field(message: &str) -> Option<(&str, Vec<&str>)> {
    let mut quoted = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_of_shape_is_found_in_one_run_and_the_rest_is_kept() {
        let text = "workers = 2\nlissten = [\":80\"]\n[limits]\nconnections = []\nidle = 3\nhead-timeout = \"5s\"\n\
                    [[site]]\nroot = \"/a\"\nfiles = { listing = \"yes\" }\n[[site]]\nroot = \"/b\"\n\
                    [[site.files.cache-control]]\npattern = \"*\"\n";
        let (raw, problems) = parse(text);
        let messages: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(problems.len(), 5, "{messages:#?}");
        assert!(messages.iter().any(|m| m.contains("unknown field `lissten`")));
        assert!(messages.iter().any(|m| m.contains("unknown field `idle`")));
        assert!(messages.iter().any(|m| m.contains("expected a text in quotes or a number")));
        assert!(messages.iter().any(|m| m.contains("expected a boolean")));
        assert!(messages.iter().any(|m| m.contains("missing field `value`")));
        assert!(problems.iter().all(|problem| problem.span.is_some()));
        assert_eq!(raw.workers.unwrap().get_ref().0, "2");
        assert_eq!(raw.limits.head_timeout.unwrap().get_ref().0, "5s");
        assert_eq!(raw.site.len(), 2);
    }

    #[test]
    fn every_syntax_error_is_found() {
        let (_, problems) = parse("a = \nb = 1\nc = [1,,,2]\n");
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert_eq!(problems.iter().map(|problem| problem.span.clone().unwrap().start).collect::<Vec<_>>(), [4, 18]);
    }
}
