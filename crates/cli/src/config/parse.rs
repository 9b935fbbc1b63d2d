//! From the text of the file to its sections: syntax, the shape of every table, unknown settings.

use std::ops::Range;

use serde::Deserialize as _;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    foreign::foreign,
    problems::Problem,
    raw::Raw,
    schema::{self, Form},
    section::Section,
    shape, syntax,
};

/// Reads the file's text. Entries that cannot be read are reported and left out, so that one run finds every mistake.
pub fn parse(text: &str) -> (Raw, Vec<Problem>) {
    let (mut table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let problems = foreign(text).map_or_else(|| syntax::problems(&errors, table.get_ref(), text), |it| vec![it]);
        return (Raw::default(), problems);
    }
    let mut problems = Vec::new();
    *table.get_mut() = without_lists_of_single_tables(table.get_ref(), schema::top(), &mut Vec::new(), &mut problems);
    loop {
        match Raw::deserialize(toml::de::Deserializer::from(table.clone())) {
            Ok(raw) => return (raw, problems),
            Err(error) => {
                problems.push(shape::problem(&error, table.get_ref(), text));
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

/// The table without lists in place of tables that occur once, such as `[uplink]`, with a problem for each. Serde would
/// take a list for their settings in order.
fn without_lists_of_single_tables<'i>(
    table: &DeTable<'i>,
    section: &'static Section,
    path: &mut Vec<String>,
    problems: &mut Vec<Problem>,
) -> DeTable<'i> {
    let entries = table.iter().filter_map(|(key, value)| {
        let form = section.form(key.get_ref());
        path.push(key.get_ref().to_string());
        let kept = match (value.get_ref(), form) {
            (DeValue::Array(_), Some(form @ Form::Table(_))) => {
                let header = form.header(&path.iter().map(String::as_str).collect::<Vec<_>>());
                let message = format!("there is one `{}` only", key.get_ref());
                problems.push(Problem::new(message, Some(key.span())).help(format!("write {header}")));
                None
            }
            (DeValue::Table(inner), Some(Form::Table(section) | Form::ValueOrTable(section))) => {
                Some(DeValue::Table(without_lists_of_single_tables(inner, section, path, problems)))
            }
            (DeValue::Array(list), Some(Form::Tables(section))) => {
                let each = list.iter().map(|value| match value.get_ref() {
                    DeValue::Table(inner) => {
                        let inner = without_lists_of_single_tables(inner, section, path, problems);
                        Spanned::new(value.span(), DeValue::Table(inner))
                    }
                    _ => value.clone(),
                });
                Some(DeValue::Array(each.collect()))
            }
            _ => Some(value.get_ref().clone()),
        };
        path.pop();
        Some((key.clone(), Spanned::new(value.span(), kept?)))
    });
    entries.collect()
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
        assert!(messages.iter().any(|m| m.contains("there is no setting `lissten` at the top of the file")));
        assert!(messages.iter().any(|m| m.contains("there is no setting `idle` in `[limits]`")));
        assert!(
            messages.iter().any(|m| m.contains("`connections` is a list here, expected a text in quotes or a number"))
        );
        assert!(messages.iter().any(|m| m.contains("`listing` is a text here, expected `true` or `false`")));
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
