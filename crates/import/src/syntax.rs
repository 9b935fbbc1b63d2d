//! The syntax of nginx's files: directives, blocks, quotes, comments, `include`.

use std::{fmt, iter::Peekable, str::Chars};

use crate::report::Place;

/// Reads the files of a configuration.
pub trait Files {
    /// The files that a pattern of `include` or `import` names, with their texts, sorted by name. `*` stands for a part
    /// of a name. A relative pattern starts at the folder of the first file.
    ///
    /// # Errors
    /// A file cannot be read, or a name without `*` does not exist. The text says which, and why.
    fn read(&self, pattern: &str) -> Result<Vec<(String, String)>, String>;
}

/// Why files are not a configuration of nginx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where; `None`: the first file cannot be read.
    pub place: Option<Place>,
    /// The description of the error.
    pub message: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => self.message.fmt(f),
        }
    }
}

/// A directive with its arguments, and the directives of its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    pub place: Place,
    pub name: String,
    pub args: Vec<String>,
    pub block: Option<Vec<Directive>>,
}

impl Directive {
    /// The argument of this number, or an empty one.
    pub fn arg(&self, number: usize) -> &str {
        self.args.get(number).map_or("", String::as_str)
    }

    /// The directives of the block.
    pub fn inner(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// Without the block, on one line.
impl fmt::Display for Directive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.escape_debug().fmt(f)?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", arg.escape_debug()))
    }
}

/// Files that come with nginx, of which nothing is translated. They may be missing where nginx is not installed.
const OWN_FILES: [&str; 5] = ["mime.types", "fastcgi_params", "fastcgi.conf", "uwsgi_params", "scgi_params"];

/// How deep files may include each other, and blocks may be nested.
const MOST_LEVELS: usize = 32;

/// Reads a file and those that it includes.
pub fn read(file: &str, files: &dyn Files) -> Result<Vec<Directive>, SyntaxError> {
    let texts = files.read(file).map_err(|message| SyntaxError { place: None, message })?;
    let mut all = Vec::new();
    for (name, text) in texts {
        all.extend(Reader { file: &name, files, line: 1, rest: text.chars().peekable() }.block(false, MOST_LEVELS)?);
    }
    Ok(all)
}

struct Reader<'a> {
    file: &'a str,
    files: &'a dyn Files,
    line: usize,
    rest: Peekable<Chars<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Semicolon,
    Open,
    Close,
    End,
}

impl Reader<'_> {
    /// The directives up to the end of the block, or of the file.
    fn block(&mut self, nested: bool, levels: usize) -> Result<Vec<Directive>, SyntaxError> {
        let mut directives = Vec::new();
        loop {
            let token = self.token()?;
            let place = self.place();
            let name = match token {
                Token::Word(name) => name,
                Token::Close if nested => return Ok(directives),
                Token::End if !nested => return Ok(directives),
                Token::End => return Err(self.error("the file ends inside a block: a `}` is missing")),
                Token::Close => return Err(self.error("this `}` closes no block")),
                Token::Semicolon | Token::Open => return Err(self.error("a directive must begin with its name")),
            };
            let Some(levels) = levels.checked_sub(1) else {
                return Err(self.error("files or blocks are nested too deep; does a file include itself?"));
            };
            let mut args = Vec::new();
            let block = loop {
                match self.token()? {
                    Token::Word(word) => args.push(word),
                    Token::Semicolon => break None,
                    // The content of such a block is a program.
                    Token::Open if name.ends_with("_by_lua_block") => {
                        self.skip_block()?;
                        break Some(Vec::new());
                    }
                    Token::Open => break Some(self.block(true, levels)?),
                    Token::Close | Token::End => {
                        let message = format!("`{name}` has no end: a `;` or `{{` is missing");
                        return Err(SyntaxError { place: Some(place), message });
                    }
                }
            };
            if name == "include" && block.is_none() {
                let pattern = args.first().map_or("", String::as_str);
                let included = match self.files.read(pattern) {
                    Err(_) if OWN_FILES.iter().any(|own| pattern.rsplit('/').next() == Some(own)) => continue,
                    included => included.map_err(|message| self.error(&message))?,
                };
                for (file, text) in included {
                    let mut reader = Reader { file: &file, files: self.files, line: 1, rest: text.chars().peekable() };
                    directives.extend(reader.block(false, levels)?);
                }
            } else {
                directives.push(Directive { place, name, args, block });
            }
        }
    }

    fn token(&mut self) -> Result<Token, SyntaxError> {
        loop {
            match self.rest.peek() {
                None => return Ok(Token::End),
                Some('#') => while self.rest.next_if(|c| *c != '\n').is_some() {},
                Some(c) if c.is_whitespace() => _ = self.next(),
                Some(_) => break,
            }
        }
        let token = match self.rest.peek() {
            Some(';') => Token::Semicolon,
            Some('{') => Token::Open,
            Some('}') => Token::Close,
            Some(&quote @ ('"' | '\'')) => return self.quoted(quote).map(Token::Word),
            _ => return Ok(Token::Word(self.word())),
        };
        self.next();
        Ok(token)
    }

    /// A word in quotes. A backslash is kept, except in front of the quote and of another backslash.
    fn quoted(&mut self, quote: char) -> Result<String, SyntaxError> {
        let begin = self.error("this quote has no end");
        self.next();
        let mut word = String::new();
        loop {
            match self.next() {
                None => return Err(begin),
                Some(c) if c == quote => return Ok(word),
                Some('\\') => match self.next() {
                    Some(c) if c == quote || c == '\\' => word.push(c),
                    Some(c) => word.extend(['\\', c]),
                    None => return Err(begin),
                },
                Some(c) => word.push(c),
            }
        }
    }

    /// A word without quotes. The braces of `${name}` and of a regular expression such as `[0-9]{4}` belong to it.
    fn word(&mut self) -> String {
        let mut word = String::new();
        let mut braces = 0;
        while let Some(&c) = self.rest.peek() {
            match c {
                '{' if word.ends_with('$') || self.is_repetition() => braces += 1,
                '}' if braces > 0 => braces -= 1,
                ';' | '{' | '}' => break,
                c if c.is_whitespace() => break,
                '\\' => word.extend(self.next()),
                _ => {}
            }
            word.extend(self.next());
        }
        word
    }

    /// Whether what follows is `{2}` or `{2,3}`. nginx itself wants quotes there; many files do without.
    fn is_repetition(&self) -> bool {
        let inner: String = self.rest.clone().skip(1).take_while(|c| c.is_ascii_digit() || *c == ',').collect();
        !inner.is_empty() && self.rest.clone().nth(1 + inner.len()) == Some('}')
    }

    fn skip_block(&mut self) -> Result<(), SyntaxError> {
        let begin = self.error("this block has no end");
        let mut open = 1;
        while open > 0 {
            match self.next() {
                Some('{') => open += 1,
                Some('}') => open -= 1,
                Some(_) => {}
                None => return Err(begin),
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Option<char> {
        self.rest.next().inspect(|c| self.line += usize::from(*c == '\n'))
    }

    fn place(&self) -> Place {
        Place { file: self.file.to_owned(), line: self.line }
    }

    fn error(&self, message: &str) -> SyntaxError {
        SyntaxError { place: Some(self.place()), message: message.to_owned() }
    }
}
