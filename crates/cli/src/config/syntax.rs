//! Problems of the syntax of the file: what the parser of TOML says, and what to write instead.

use toml::de::{DeTable, DeValue, Error};

use super::problems::Problem;

/// Syntax errors that are shown: a file of another kind has one in each line.
const MOST_SHOWN: usize = 5;

/// The problems for the errors. The text behind an error may be misread: only the first of a line is shown.
pub fn problems(errors: &[Error], table: &DeTable<'_>, text: &str) -> Vec<Problem> {
    let mut problems: Vec<_> = errors.iter().map(|error| problem(error, table, text)).collect();
    let line = |problem: &Problem| {
        problem.span.as_ref().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count())
    };
    problems.sort_by_key(|problem| line(problem));
    problems.dedup_by_key(|problem| line(problem));
    if problems.len() > MOST_SHOWN {
        let message = format!("{} more lines cannot be read", problems.len() - MOST_SHOWN);
        problems.truncate(MOST_SHOWN + 1);
        if let Some(last) = problems.last_mut() {
            let help = "is this a configuration of Serpent? It is written in TOML";
            *last = Problem::new(message, last.span.take()).help(help);
        }
    }
    problems
}

fn problem(error: &Error, table: &DeTable<'_>, text: &str) -> Problem {
    let (message, span) = (error.message(), error.span());
    let written = span.clone().and_then(|span| text.get(span)).unwrap_or_default();
    let line = span.as_ref().and_then(|span| {
        let start = text.get(..span.start)?.rfind('\n').map_or(0, |end| end + 1);
        text.get(start..)?.lines().next()
    });
    let line = line.unwrap_or_default().trim();
    let said = |message: &str, help: String| Problem::new(message, span.clone()).help(help);
    match message.split(',').next().unwrap_or_default() {
        "string values must be quoted" => said(message, quoted(written)),
        "duplicate key" => {
            let before = span.as_ref().map_or(0, |span| span.start);
            let mut first = None;
            last_before(table, written, before, &mut first);
            let message = format!("`{written}` is given twice");
            let help = if line.starts_with('[') {
                "write the settings of both below one header"
            } else {
                "leave one of them out"
            };
            said(&message, help.to_owned()).also(first, "first given here")
        }
        "key with no value" if line.starts_with("//") || line.starts_with("/*") || line.starts_with("--") => {
            said(message, "a comment begins with `#`".to_owned())
        }
        "unquoted keys cannot be empty" => said(message, "write the name of the setting before `=`".to_owned()),
        "key with no value" => {
            said(message, "write a setting as in `name = \"value\"`, and a table as in `[name]`".to_owned())
        }
        "unexpected key or value" => {
            said(message, "leave out what stands behind the value: a line has one setting".to_owned())
        }
        "unclosed array table" => said(message, format!("write `[[{}]]`", line.trim_matches(['[', ']', ' ']))),
        "unclosed table" => said(message, format!("write `[{}]`", line.trim_matches(['[', ']', ' ']))),
        "missing escaped value" => {
            said(message, "write a backslash as `\\\\`, or the text in single quotes, as in `'a\\b'`".to_owned())
        }
        found if found.starts_with("invalid basic string") => {
            said(message, "end the text with a quotation mark".to_owned())
        }
        found if found.starts_with("invalid literal string") => {
            said(message, "end the text with the mark that it begins with: `'`".to_owned())
        }
        found if found.starts_with("missing comma between") => {
            said(message, "divide the values by commas, as in `[\"a\", \"b\"]`".to_owned())
        }
        found if found.starts_with("unexpected `=` in array") => {
            said(message, "end the list before this line with `]`".to_owned())
        }
        found if found.starts_with("invalid boolean") => {
            said(message, "write `true` or `false`, in small letters".to_owned())
        }
        _ if ["null", "nil", "none"].contains(&&*written.to_ascii_lowercase()) => said(
            &format!("`{written}` is no value"),
            "leave the line out: a setting that is not there has its default".to_owned(),
        ),
        found if found.starts_with("cannot extend value") => {
            let name = written.split('.').next().unwrap_or_default().trim();
            said(&format!("`{name}` has a value already"), format!("leave out that value, or `{line}`"))
        }
        found if found.starts_with("carriage return must") => {
            said(message, "save the file with the line ends of Unix (LF)".to_owned())
        }
        _ => Problem::new(message, span),
    }
}

/// The help for a value without quotes.
fn quoted(written: &str) -> String {
    match &*written.to_ascii_lowercase() {
        "" => "write a value, as in `name = \"value\"`".to_owned(),
        "yes" | "true" | "on" => "write `true`, without quotes".to_owned(),
        "no" | "false" => "write `false`, without quotes".to_owned(),
        "off" => "write `\"off\"` with quotes, or `false` where `true` or `false` is expected".to_owned(),
        "null" | "nil" | "none" => "leave the line out: a setting that is not there has its default".to_owned(),
        _ => {
            let quotes = [';', ',', '“', '”', '„', '‘', '’', '«', '»', '`'];
            format!("write `\"{}\"`", written.trim_start_matches(&quotes[2..]).trim_end_matches(quotes))
        }
    }
}

/// The place of the last key of this name before a place in the text.
fn last_before(table: &DeTable<'_>, name: &str, before: usize, found: &mut Option<std::ops::Range<usize>>) {
    for (key, value) in table.iter() {
        let place = key.span();
        if key.get_ref() == name && place.end <= before && found.as_ref().is_none_or(|it| it.start < place.start) {
            *found = Some(place);
        }
        match value.get_ref() {
            DeValue::Table(inner) => last_before(inner, name, before, found),
            DeValue::Array(list) => {
                for value in list.iter() {
                    if let DeValue::Table(inner) = value.get_ref() {
                        last_before(inner, name, before, found);
                    }
                }
            }
            _ => {}
        }
    }
}
