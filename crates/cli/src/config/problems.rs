//! What is wrong with a configuration, shown at its place in the file.

use std::{fmt, ops::Range, path::PathBuf};

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::raw;
use crate::elsewhere::{self, Instead};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The configuration cannot be used.
    Mistake,
    /// It can, but hardly is what was meant.
    Warning,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// Where in the file, in bytes; `None` when a flag, or the file as a whole, is at fault.
    pub span: Option<Range<usize>>,
    /// Another place that has to do with it, and what it is.
    pub also: Option<(Range<usize>, &'static str)>,
    /// What to do.
    pub help: Option<String>,
}

impl Problem {
    /// A mistake at a place in the file, or in a flag if there is none.
    pub fn new(message: impl Into<String>, span: Option<Range<usize>>) -> Self {
        Self { severity: Severity::Mistake, message: message.into(), span, also: None, help: None }
    }

    /// Something that can be served, but hardly is what was meant.
    pub fn warning(message: impl Into<String>, span: Option<Range<usize>>) -> Self {
        Self { severity: Severity::Warning, ..Self::new(message, span) }
    }

    /// Says what to do.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Points at a second place.
    pub fn also(mut self, span: Option<Range<usize>>, what: &'static str) -> Self {
        self.also = span.map(|span| (span, what));
        self
    }

    /// What the TOML parser found in the text.
    pub fn from_toml(error: &toml::de::Error, text: &str) -> Self {
        let (message, span) = (error.message(), error.span());
        let written = span.clone().and_then(|span| text.get(span)).unwrap_or_default();
        if let Some((name, known)) = unknown_field(message) {
            return unknown(message, span, name, known);
        }
        let (found, expected) = message.split_once(", expected ").unwrap_or((message, ""));
        let table = written.trim_matches(['[', ']']);
        match (found, expected) {
            ("invalid type: map", "a sequence") if written.starts_with('[') => {
                Self::new(format!("there can be several `{table}`, so each is one of a list"), span)
                    .help(format!("write `[[{table}]]`"))
            }
            (found, expected) if expected.starts_with("struct ") => {
                Self::new(format!("{found}, expected a table, as in `{{ name = value }}`"), span)
            }
            (found, "a sequence") => Self::new(format!("{found}, expected a list, as in `[value]`"), span),
            _ => Self::new(message, span),
        }
    }
}

/// Says of a setting that is not known where it belongs, or what it is called here.
fn unknown(message: &str, span: Option<Range<usize>>, name: &str, known: Vec<&str>) -> Problem {
    if let Some(known) = like(name, known) {
        return Problem::new(message, span).help(format!("did you mean `{known}`?"));
    }
    match elsewhere::setting(name) {
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

/// The known name that is like `name`, if one is. Up to a third of the letters differ, or it is the only name that
/// begins or ends with this one.
pub fn like<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let known: Vec<_> = known.into_iter().collect();
    let distance = |known: &str| strsim::osa_distance(&name, &known.to_lowercase());
    let near = |known: &&&str| 3 * distance(known) <= known.chars().count().max(name.chars().count());
    if let Some(nearest) = known.iter().filter(near).min_by_key(|known| distance(known)) {
        return Some(nearest);
    }
    let longer = |known: &&&str| {
        let rest = known.strip_prefix(&*name).filter(|rest| rest.starts_with('-'));
        rest.or_else(|| known.strip_suffix(&*name).filter(|rest| rest.ends_with('-'))).is_some()
    };
    let mut longer = known.iter().filter(longer);
    longer.next().copied().filter(|_| longer.next().is_none())
}

/// The name, and those that are known, from "unknown field `x`, expected one of `a`, `b`".
fn unknown_field(message: &str) -> Option<(&str, Vec<&str>)> {
    let mut quoted = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

/// All mistakes of one configuration; displays as text for a terminal.
#[derive(Debug)]
pub struct Problems {
    /// The file and its text, if a file was read.
    pub source: Option<(PathBuf, String)>,
    /// The mistakes, in the order of the file. Not empty.
    pub list: Vec<Problem>,
}

impl Problems {
    /// Sorts the mistakes by their place in the file.
    pub fn new(source: Option<(PathBuf, String)>, mut list: Vec<Problem>) -> Self {
        list.sort_by_key(|problem| problem.span.as_ref().map_or(0, |span| span.start));
        Self { source, list }
    }

    fn report<'a>(&'a self, problem: &'a Problem) -> Vec<Group<'a>> {
        let level = match problem.severity {
            Severity::Mistake => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = level.primary_title(&problem.message).elements(None::<Origin<'_>>);
        if let Some((path, text)) = &self.source {
            let path = path.display().to_string();
            if let Some(span) = &problem.span {
                let mut snippet = Snippet::source(text.as_str())
                    .path(path)
                    .annotation(AnnotationKind::Primary.span(visible(text, span)));
                if let Some((also, what)) = &problem.also {
                    snippet = snippet.annotation(AnnotationKind::Context.span(visible(text, also)).label(*what));
                }
                group = group.element(snippet);
            } else {
                group = group.element(Origin::path(path));
            }
        }
        match &problem.help {
            Some(help) => vec![group.element(Level::HELP.message(help))],
            None => vec![group],
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let renderer = Renderer::plain();
        for (i, problem) in self.list.iter().enumerate() {
            if i > 0 {
                f.write_str("\n\n")?;
            }
            f.write_str(&renderer.render(&self.report(problem)))?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The span, cut to its first line and at least one character long where there is one.
fn visible(text: &str, span: &Range<usize>) -> Range<usize> {
    let Some(marked) = text.get(span.clone()) else { return text.len()..text.len() };
    let first_line = marked.lines().next().unwrap_or_default().len();
    let one_character = text[span.start..].chars().next().filter(|c| !c.is_control()).map_or(0, char::len_utf8);
    span.start..span.start + first_line.max(one_character)
}
