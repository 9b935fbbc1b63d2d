//! Snippets and files of `import`, their arguments, and variables of the environment.

use std::collections::HashMap;

use super::syntax::{self, MOST_LEVELS};
use crate::{
    report::Left,
    syntax::{Directive, Files, SyntaxError},
};

/// The most lines, with those of snippets each time that they are imported.
const MOST_LINES: usize = 100_000;

/// A Caddyfile without `import`.
#[derive(Debug, Default)]
pub struct Expanded {
    /// The global options.
    pub global: Vec<Directive>,
    /// Sites: the addresses in name and arguments, and the block.
    pub sites: Vec<Directive>,
    /// Variables whose value is not known.
    pub left: Vec<Left>,
}

/// Reads a file and those that it imports.
pub fn read(file: &str, files: &dyn Files) -> Result<Expanded, SyntaxError> {
    let texts = files.read(file).map_err(|message| SyntaxError { place: None, message })?;
    let mut expander = Expander { files, snippets: HashMap::new(), lines: 0 };
    let mut top = Vec::new();
    for (name, text) in texts {
        top.extend(expander.top(syntax::read(&name, &text)?, MOST_LEVELS)?);
    }
    let mut expanded = Expanded::default();
    for mut directive in top {
        let block = directive.block.take().unwrap_or_default();
        let mut lines = expander.lines(block, MOST_LEVELS)?;
        lines.iter_mut().for_each(|line| environment(line, &mut expanded.left));
        if directive.name.is_empty() {
            expanded.global.extend(lines);
        } else {
            environment(&mut directive, &mut expanded.left);
            directive.block = Some(lines);
            expanded.sites.push(directive);
        }
    }
    Ok(expanded)
}

struct Expander<'a> {
    files: &'a dyn Files,
    snippets: HashMap<String, Vec<Directive>>,
    lines: usize,
}

impl Expander<'_> {
    /// Takes the snippets out, and reads files that are imported beside sites.
    fn top(&mut self, directives: Vec<Directive>, levels: usize) -> Result<Vec<Directive>, SyntaxError> {
        let mut top = Vec::new();
        let mut rest = directives.into_iter();
        while let Some(mut directive) = rest.next() {
            let snippet = directive.name.strip_prefix('(').and_then(|name| name.strip_suffix(')'));
            if let Some(name) = snippet {
                self.snippets.insert(name.to_owned(), directive.block.unwrap_or_default());
            } else if directive.block.is_some() {
                top.push(directive);
            } else if directive.name == "import" {
                if let Some(snippet) = self.snippets.get(directive.arg(0)).cloned() {
                    top.extend(self.top(snippet, less(levels, &directive)?)?);
                    continue;
                }
                for (file, text) in self.imported(&directive)? {
                    let levels = less(levels, &directive)?;
                    top.extend(self.top(syntax::read(&file, &text)?, levels)?);
                }
            } else {
                // A file with one site may leave its braces out.
                directive.block = Some(rest.by_ref().collect());
                top.push(directive);
            }
        }
        Ok(top)
    }

    fn imported(&self, import: &Directive) -> Result<Vec<(String, String)>, SyntaxError> {
        let failed = |message: String| syntax::error(&import.place.file, import.place.line, &message);
        self.files.read(import.arg(0)).map_err(failed)
    }

    fn lines(&mut self, directives: Vec<Directive>, levels: usize) -> Result<Vec<Directive>, SyntaxError> {
        let mut lines = Vec::new();
        for mut directive in directives {
            self.lines += 1;
            if self.lines > MOST_LINES {
                let message = "there are too many lines: do snippets import each other again and again?";
                return Err(syntax::error(&directive.place.file, directive.place.line, message));
            }
            let levels = less(levels, &directive)?;
            if directive.name != "import" {
                let block = directive.block.take();
                directive.block = block.map(|block| self.lines(block, levels)).transpose()?;
                lines.push(directive);
                continue;
            }
            let snippet = match self.snippets.get(directive.arg(0)) {
                Some(snippet) => snippet.clone(),
                None => {
                    let read = |(file, text): (String, String)| syntax::read(&file, &text);
                    let texts = self.imported(&directive)?.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
                    texts.into_iter().flatten().collect()
                }
            };
            let args = directive.args.get(1..).unwrap_or_default();
            let given = filled(snippet, args, directive.inner());
            lines.extend(self.lines(given, levels)?);
        }
        Ok(lines)
    }
}

fn less(levels: usize, directive: &Directive) -> Result<usize, SyntaxError> {
    let message = "files, snippets or blocks are nested too deep; does one import itself?";
    let place = &directive.place;
    levels.checked_sub(1).ok_or_else(|| syntax::error(&place.file, place.line, message))
}

/// The lines of a snippet with their arguments, and with the block of the import in place of `{block}`.
fn filled(lines: Vec<Directive>, args: &[String], block: &[Directive]) -> Vec<Directive> {
    let mut all = Vec::new();
    for mut line in lines {
        if line.name == "{block}" {
            all.extend_from_slice(block);
            continue;
        }
        let one = |text: &str| {
            args.iter().enumerate().fold(text.to_owned(), |text, (number, arg)| {
                text.replace(&format!("{{args[{number}]}}"), arg).replace(&format!("{{args.{number}}}"), arg)
            })
        };
        line.name = one(&line.name);
        line.args =
            line.args.iter().flat_map(|arg| if arg == "{args[:]}" { args.to_vec() } else { vec![one(arg)] }).collect();
        line.block = line.block.map(|lines| filled(lines, args, block));
        all.push(line);
    }
    all
}

/// Puts the defaults of variables in, as in `{$PORT:8080}`, and names those without one.
fn environment(directive: &mut Directive, left: &mut Vec<Left>) {
    let (place, written) = (directive.place.clone(), directive.to_string());
    for text in std::iter::once(&mut directive.name).chain(&mut directive.args) {
        let mut from = 0;
        while let Some(start) = text[from..].find("{$").map(|start| start + from) {
            let Some(end) = text[start..].find('}').map(|end| end + start) else { break };
            let (name, default) = text[start + 2..end].split_once(':').unwrap_or((&text[start + 2..end], ""));
            let reason = match default {
                "" => format!("the environment is not read: put the value of `{name}` in"),
                default => format!("the environment is not read: `{default}` is taken for `{name}`"),
            };
            left.push(Left { place: place.clone(), directive: written.clone(), reason, closes: false });
            match default.to_owned() {
                default if default.is_empty() => from = end,
                default => {
                    text.replace_range(start..=end, &default);
                    from = start + default.len();
                }
            }
        }
    }
    for line in directive.block.iter_mut().flatten() {
        environment(line, left);
    }
}
