//! The syntax of a Caddyfile: lines of words, blocks, quotes, comments.

use crate::{
    report::Place,
    syntax::{Directive, SyntaxError},
};

/// How deep blocks may be nested.
pub const MOST_LEVELS: usize = 32;

/// Reads the lines of a file. Global options have no name; a site is named by its first address.
pub fn read(file: &str, text: &str) -> Result<Vec<Directive>, SyntaxError> {
    let tokens = Lexer { file, line: 1, rest: text.chars().collect(), at: 0 }.tokens()?;
    Parser { file, tokens, at: 0 }.block(MOST_LEVELS, false)
}

#[derive(Debug)]
struct Token {
    text: String,
    line: usize,
    /// It is the first of its line.
    begins: bool,
    is_quoted: bool,
}

impl Token {
    fn is(&self, text: &str) -> bool {
        !self.is_quoted && self.text == text
    }
}

struct Lexer<'a> {
    file: &'a str,
    line: usize,
    rest: Vec<char>,
    at: usize,
}

impl Lexer<'_> {
    fn tokens(mut self) -> Result<Vec<Token>, SyntaxError> {
        let (mut tokens, mut begins) = (Vec::new(), true);
        while let Some(c) = self.peek(0) {
            match c {
                '\n' => {
                    begins = true;
                    self.next();
                }
                '\\' if self.peek(1) == Some('\n') => {
                    self.next();
                    self.next();
                }
                c if c.is_whitespace() => _ = self.next(),
                '#' => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.next();
                    }
                }
                _ => {
                    let line = self.line;
                    let (text, is_quoted) = match c {
                        '"' | '`' => (self.quoted(c)?, true),
                        '<' if self.peek(1) == Some('<') && self.peek(2).is_some_and(char::is_alphanumeric) => {
                            (self.heredoc()?, true)
                        }
                        _ => (self.word(), false),
                    };
                    tokens.push(Token { text, line, begins: std::mem::take(&mut begins), is_quoted });
                }
            }
        }
        Ok(tokens)
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.peek(0).filter(|c| !c.is_whitespace()) {
            word.push(c);
            self.next();
        }
        word
    }

    fn quoted(&mut self, quote: char) -> Result<String, SyntaxError> {
        let begin = self.error("this quote has no end");
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None => return Err(begin),
                Some(c) if c == quote => return Ok(text),
                Some('\\') if quote == '"' && self.peek(0) == Some('"') => text.extend(self.next()),
                Some(c) => text.push(c),
            }
        }
    }

    /// `<<END`, lines, and `END` on a line of its own, whose indentation is taken off.
    fn heredoc(&mut self) -> Result<String, SyntaxError> {
        let begin = self.error("this text has no end");
        let marker = self.word().trim_start_matches('<').to_owned();
        let mut lines: Vec<String> = vec![String::new()];
        loop {
            match self.next() {
                None => return Err(begin),
                Some('\n') => {
                    let mut ahead = self.rest[self.at..].iter().copied();
                    let line: String = ahead.by_ref().take_while(|c| *c != '\n').collect();
                    let behind = line.trim_start().strip_prefix(&*marker);
                    if behind.is_some_and(|behind| behind.is_empty() || behind.starts_with(char::is_whitespace)) {
                        let indent = line.len() - line.trim_start().len();
                        self.at += line.chars().take_while(|c| c.is_whitespace()).count() + marker.chars().count();
                        lines.remove(0);
                        let cut = |line: &String| line.get(indent..).unwrap_or(line.trim_start()).to_owned();
                        return Ok(lines.iter().map(cut).collect::<Vec<_>>().join("\n"));
                    }
                    lines.push(String::new());
                }
                Some(c) => {
                    if let Some(line) = lines.last_mut() {
                        line.push(c);
                    }
                }
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.rest.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn error(&self, message: &str) -> SyntaxError {
        error(self.file, self.line, message)
    }
}

struct Parser<'a> {
    file: &'a str,
    tokens: Vec<Token>,
    at: usize,
}

impl Parser<'_> {
    /// The lines up to the end of the block, or of the file.
    fn block(&mut self, levels: usize, is_nested: bool) -> Result<Vec<Directive>, SyntaxError> {
        let mut lines = Vec::new();
        let last = self.tokens.last().map_or(1, |token| token.line);
        loop {
            let Some(token) = self.tokens.get(self.at) else {
                return match is_nested {
                    true => Err(error(self.file, last, "the file ends inside a block: a `}` is missing")),
                    false => Ok(lines),
                };
            };
            let line = token.line;
            let Some(levels) = levels.checked_sub(1) else {
                return Err(error(self.file, line, "blocks are nested too deep"));
            };
            if token.is("}") {
                self.at += 1;
                return match is_nested {
                    true => Ok(lines),
                    false => Err(error(self.file, line, "this `}` closes no block")),
                };
            }
            let place = Place { file: self.file.to_owned(), line };
            if token.is("{") {
                if is_nested || !lines.is_empty() {
                    return Err(error(self.file, line, "a `{` stands at the end of a line, behind a directive"));
                }
                self.at += 1;
                let block = Some(self.block(levels, true)?);
                lines.push(Directive { place, name: String::new(), args: Vec::new(), block });
                continue;
            }
            let name = token.text.clone();
            self.at += 1;
            let (mut args, mut block) = (Vec::<String>::new(), None);
            while let Some(token) = self.tokens.get(self.at) {
                let goes_on = !is_nested && args.last().unwrap_or(&name).ends_with(',');
                if token.begins && !goes_on || is_nested && token.is("}") {
                    break;
                }
                self.at += 1;
                if token.is("{") {
                    block = Some(self.block(levels, true)?);
                    break;
                }
                args.push(token.text.clone());
            }
            lines.push(Directive { place, name, args, block });
        }
    }
}

pub fn error(file: &str, line: usize, message: &str) -> SyntaxError {
    SyntaxError { place: Some(Place { file: file.to_owned(), line }), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_blocks_quotes_and_texts_are_read() {
        let text = "{\n  email a@b\n}\na.example,\nb.example {\n  respond \"a \\\"b\\\" {c}\" 200 # no\n  header \\\n    X y\n  \
                    respond <<END\n    one\n      two\n    END 404\n  log { output stdout }\n}\n";
        let lines = read("f", text).unwrap();
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert_eq!(lines[0].inner()[0].to_string(), "email a@b");
        assert_eq!((&*lines[1].name, &*lines[1].args), ("a.example,", &["b.example".to_owned()][..]));
        let site = lines[1].inner();
        assert_eq!(site[0].args, ["a \"b\" {c}", "200"]);
        assert_eq!(site[1].args, ["X", "y"]);
        assert_eq!(site[2].args, ["one\n  two", "404"]);
        assert_eq!(site[3].inner()[0].args, ["stdout"]);
        assert_eq!(site[3].place.line, 13);
    }

    #[test]
    fn what_is_no_caddyfile_is_told_with_its_place() {
        let deep = format!("a {{\n{}", "b {\n".repeat(100));
        for (text, line, part) in [
            ("a {\n  b\n", 2, "a `}` is missing"),
            ("a {\n}\n}\n", 3, "closes no block"),
            ("a {\n  {\n", 2, "at the end of a line"),
            ("a {\n  b \"c\n}\n", 2, "this quote has no end"),
            ("a {\n  b <<END\nc\n}\n", 2, "this text has no end"),
            (&deep, 33, "nested too deep"),
        ] {
            let error = read("f", text).unwrap_err();
            assert_eq!(error.place.as_ref().unwrap().line, line, "{error}");
            assert!(error.message.contains(part), "{error}");
        }
    }
}
