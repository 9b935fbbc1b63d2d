//! Problems of a configuration, shown at their lines in the file.

use std::{fmt, ops::Range, path::PathBuf};

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The configuration cannot be used.
    Mistake,
    /// The configuration can be used, but is probably not as intended.
    Warning,
}

/// One problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The severity.
    pub severity: Severity,
    /// The message.
    pub message: String,
    /// The part of the file that is at fault, in bytes; `None` for a flag or the file as a whole.
    pub span: Option<Range<usize>>,
    /// Another part of the file that takes part in the problem, with a label.
    pub also: Option<(Range<usize>, &'static str)>,
    /// Advice to the operator.
    pub help: Option<String>,
}

impl Problem {
    /// A mistake in the file, or in a flag if there is no span.
    pub fn new(message: impl Into<String>, span: Option<Range<usize>>) -> Self {
        Self { severity: Severity::Mistake, message: message.into(), span, also: None, help: None }
    }

    /// A setting that is valid and probably not intended.
    pub fn warning(message: impl Into<String>, span: Option<Range<usize>>) -> Self {
        Self { severity: Severity::Warning, ..Self::new(message, span) }
    }

    /// Adds advice to the operator.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds a second part of the file, with a label.
    pub fn also(mut self, span: Option<Range<usize>>, what: &'static str) -> Self {
        self.also = span.map(|span| (span, what));
        self
    }
}

/// All problems of one configuration; displays as text for a terminal.
#[derive(Debug)]
pub struct Problems {
    /// The file and its text, if a file was read.
    pub source: Option<(PathBuf, String)>,
    /// The problems, in the order of the file.
    pub list: Vec<Problem>,
}

impl Problems {
    /// Sorts the problems by their spans. Beside a mistake no warning stays, because it may be a consequence: no route
    /// leads to an upstream whose name is misspelt in the route.
    pub fn new(source: Option<(PathBuf, String)>, mut list: Vec<Problem>) -> Self {
        if list.iter().any(|problem| problem.severity == Severity::Mistake) {
            list.retain(|problem| problem.severity == Severity::Mistake);
        }
        list.sort_by_key(|problem| problem.span.as_ref().map_or(0, |span| span.start));
        Self { source, list }
    }

    /// The file, line and column of a problem that has a place.
    pub fn place(&self, problem: &Problem) -> Option<String> {
        let (path, text) = self.source.as_ref()?;
        let before = text.get(..problem.span.as_ref()?.start)?;
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Some(format!("{}:{line}:{column}", path.display()))
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
