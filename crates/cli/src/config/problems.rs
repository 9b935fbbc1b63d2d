//! What is wrong with a configuration, shown at its place in the file.

use std::{fmt, ops::Range, path::PathBuf};

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

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

    /// What the TOML parser found.
    pub fn from_toml(error: &toml::de::Error) -> Self {
        let problem = Self::new(error.message(), error.span());
        match misspelt(error.message()) {
            Some(known) => problem.help(format!("did you mean `{known}`?")),
            None => problem,
        }
    }
}

/// The known name that is like `name`, if one is.
pub fn like<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |known: &str| strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase());
    let rated = known.into_iter().map(|known| (likeness(known), known)).filter(|(likeness, _)| *likeness > 0.8);
    rated.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

/// What an unknown setting was meant to be, from "unknown field `x`, expected one of `a`, `b`".
fn misspelt(message: &str) -> Option<&str> {
    let mut quoted = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let name = quoted.next()?;
    like(name, quoted)
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
