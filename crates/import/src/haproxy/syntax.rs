//! The syntax of HAProxy's files: sections, and lines of words.

use crate::{
    report::Place,
    syntax::{Directive, Files, SyntaxError},
};

/// The words that begin a section.
const SECTIONS: &[&str] = &[
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "userlist",
    "peers",
    "resolvers",
    "cache",
    "program",
    "http-errors",
    "mailers",
    "ring",
    "log-forward",
    "fcgi-app",
    "crt-store",
    "traces",
    "acme",
];

/// Reads a file: its sections, each with its lines as directives.
pub(super) fn read(file: &str, files: &dyn Files) -> Result<Vec<Directive>, SyntaxError> {
    let texts = files.read(file).map_err(|message| SyntaxError { place: None, message })?;
    let mut sections: Vec<Directive> = Vec::new();
    for (name, text) in texts {
        for (at, line) in text.lines().enumerate() {
            let place = Place { file: name.clone(), line: at + 1 };
            let error = |message: &str| SyntaxError { place: Some(place.clone()), message: message.to_owned() };
            let mut words = words(line).map_err(error)?.into_iter();
            let Some(first) = words.next() else { continue };
            let is_section = SECTIONS.contains(&first.as_str());
            let mut args: Vec<String> = words.collect();
            // Older names of times.
            let old = [("contimeout", "connect"), ("clitimeout", "client"), ("srvtimeout", "server")];
            let name = match old.into_iter().find(|(old, _)| *old == first) {
                Some((_, new)) => {
                    args.insert(0, new.to_owned());
                    "timeout".to_owned()
                }
                None => first,
            };
            let directive = Directive { place, name, args, block: is_section.then(Vec::new) };
            match sections.last_mut() {
                _ if is_section => sections.push(directive),
                Some(section) => section.block.get_or_insert_default().push(directive),
                None => {
                    let message = "a file of HAProxy begins with a section: `global`, `defaults`, `frontend` ...";
                    return Err(SyntaxError { place: Some(directive.place), message: message.to_owned() });
                }
            }
        }
    }
    Ok(sections)
}

/// The words of a line.
fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            '#' => break,
            c if c.is_whitespace() => words.extend(word.take()),
            '\\' => word.get_or_insert_default().push(rest.next().ok_or("this backslash has nothing behind it")?),
            quote @ ('"' | '\'') => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next().ok_or("this quote has no end")? {
                        c if c == quote => break,
                        '\\' if quote == '"' => word.push(rest.next().ok_or("this quote has no end")?),
                        c => word.push(c),
                    }
                }
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_quotes_and_comments_are_read() {
        for (line, expected) in [
            ("  bind :80  # all", vec!["bind", ":80"]),
            (r#"return string "a \"b\" c" '#'"#, vec!["return", "string", "a \"b\" c", "#"]),
            (r"path /a\ b", vec!["path", "/a b"]),
            ("# nothing", vec![]),
        ] {
            assert_eq!(words(line).unwrap(), expected, "{line}");
        }
        assert!(words("\"a").is_err() && words("a\\").is_err());
    }
}
