//! Reads the commands and configuration files of the documents. The tests of both programs share this file.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Text that is set off by four spaces or by a fence, without them.
pub struct Block {
    pub file: String,
    pub line: usize,
    pub text: String,
}

fn documents() -> Vec<PathBuf> {
    let folders = ["docs", "docs/guide", "docs/internals", "docs/reference"].map(|folder| repository().join(folder));
    let files = folders.into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
    files.extend(["README.md", "examples/two-tier/README.md"].map(|file| repository().join(file)));
    files.sort();
    files
}

pub fn blocks() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        let file = path.strip_prefix(repository()).unwrap().display().to_string();
        let mut open: Option<Block> = None;
        let mut fenced = false;
        for (number, line) in text.lines().enumerate() {
            if line.starts_with("```") {
                fenced = !fenced;
                blocks.extend(open.take());
                continue;
            }
            let inner = if fenced { Some(line) } else { line.strip_prefix("    ") };
            match (inner, &mut open) {
                (Some(inner), Some(block)) => block.text += &format!("{inner}\n"),
                (Some(inner), None) => {
                    open = Some(Block { file: file.clone(), line: number + 1, text: format!("{inner}\n") });
                }
                (None, Some(block)) if line.is_empty() => block.text += "\n",
                (None, _) => blocks.extend(open.take()),
            }
        }
        blocks.extend(open);
    }
    blocks
}

/// The words of a shell line, command by command. Pipes, `&&` and brackets divide commands. Redirections and comments
/// are no words.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands: Vec<Vec<String>> = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut redirected = false;
    let mut characters = line.chars();
    loop {
        let character = characters.next();
        match (character, quote) {
            (Some(character), Some(open)) if character == open => quote = None,
            (Some(character), Some(_)) => word.get_or_insert_default().push(character),
            (Some(open @ ('\'' | '"')), None) => {
                quote = Some(open);
                word.get_or_insert_default();
            }
            (Some('#'), None) if word.is_none() => return commands,
            (None | Some(' ' | '|' | '&' | ';' | '(' | ')' | '>'), _) => {
                if let Some(word) = word.take()
                    && !std::mem::take(&mut redirected)
                {
                    commands.last_mut().unwrap().push(word);
                }
                match character {
                    None => return commands,
                    Some('>') => redirected = true,
                    Some(' ') => {}
                    Some(_) => commands.push(Vec::new()),
                }
            }
            (Some(character), None) => word.get_or_insert_default().push(character),
        }
    }
}

/// A command of a document: where it stands, and its words, without `sudo` and variables before it.
pub struct Documented {
    pub place: String,
    pub words: Vec<String>,
}

impl Documented {
    /// The program of ours that the command runs, and its command line.
    pub fn program(&self) -> Option<(&'static str, Vec<&str>)> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["serpent", ..] => Some(("serpent", words)),
            ["serpent-lab" | "target/release/serpent-lab", arguments @ ..] => {
                Some(("serpent-lab", [&["serpent-lab"], arguments].concat()))
            }
            ["cargo", "run", options @ ..] if !options.contains(&"--example") => {
                let end = options.iter().position(|option| *option == "--")?;
                let program = if options[..end].contains(&"serpent-lab") { "serpent-lab" } else { "serpent" };
                let sound = |option: &&str| matches!(*option, "--release" | "-p" | "serpent-lab");
                assert!(options[..end].iter().all(sound), "{}", self.place);
                Some((program, [&[program], &options[end + 1..]].concat()))
            }
            _ => None,
        }
    }
}

pub fn documented() -> Vec<Documented> {
    let mut found = Vec::new();
    for block in blocks() {
        for (number, line) in block.text.replace("\\\n", "").lines().enumerate() {
            let line = line.trim_start().trim_start_matches("$ ");
            for mut words in commands(line) {
                let is_prefix = |word: &String| {
                    word == "sudo"
                        || word
                            .split_once('=')
                            .is_some_and(|(name, _)| name.chars().all(|c| c == '_' || c.is_ascii_uppercase()))
                };
                let prefixes = words.iter().take_while(|word| is_prefix(word)).count();
                words.drain(..prefixes);
                if !words.is_empty() {
                    found.push(Documented {
                        place: format!("{}, block at line {}, {}", block.file, block.line, number + 1),
                        words,
                    });
                }
            }
        }
    }
    found
}
