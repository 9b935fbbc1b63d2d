//! How a setting is read: flag, file or default, with a problem where the value cannot be used.

use std::{
    net::SocketAddr,
    ops::Range,
    path::{Path, PathBuf},
};

use toml::Spanned;

use super::named_files::{FileKind, NamedFile, WrittenLogs, path_in};
use crate::{
    config::{
        problems::Problem,
        written::{OrOff, Setting, Written},
    },
    spelling,
};

/// The state of stage two. Each section of the file is read by methods in its own file.
pub(super) struct Resolver<'a> {
    pub problems: &'a mut Vec<Problem>,
    pub folder: Option<&'a Path>,
    /// Nothing of the file was left out, so a missing setting is the operator's omission.
    pub shape_is_sound: bool,
    /// Every value so far could be read, so none was replaced by its default.
    pub all_read: bool,
    pub named_files: Vec<NamedFile>,
    pub logs: WrittenLogs,
    /// The name servers of the configuration.
    pub resolvers: Vec<SocketAddr>,
}

impl Resolver<'_> {
    /// Whether all settings so far are as the operator wrote them. Otherwise a contradiction may be that of a default.
    pub fn is_as_written(&self) -> bool {
        self.shape_is_sound && self.all_read
    }

    /// Adds the problem for a value that cannot be read.
    pub fn unread(&mut self, message: String, written: &Spanned<Written>) {
        self.all_read = false;
        self.problems.push(Problem::new(message, Some(written.span())));
    }

    /// The flag if given, else what the file says, else the default.
    pub fn setting<T>(
        &mut self,
        flag: Option<T>,
        written: &Setting,
        read: impl Fn(&str) -> Result<T, String>,
        default: T,
    ) -> T {
        if let Some(value) = flag {
            return value;
        }
        let Some(written) = written else { return default };
        read(&written.get_ref().0).unwrap_or_else(|message| {
            self.unread(message, written);
            default
        })
    }

    /// The value in the file, if there is one.
    pub fn optional<T>(&mut self, written: &Setting, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        self.setting(None, written, |text| read(text).map(Some), None)
    }

    /// A value that must be in the file, with a problem if it is missing.
    pub fn required<T>(
        &mut self,
        written: &Setting,
        owner: Range<usize>,
        (missing, help): (&str, &str),
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        if written.is_none() && self.shape_is_sound {
            self.problems.push(Problem::new(missing, Some(owner)).help(help));
        }
        self.optional(written, read)
    }

    /// The path of a file or directory, which is checked later.
    pub fn file(&mut self, written: &Setting, kind: FileKind) -> Option<PathBuf> {
        let written = written.as_ref()?;
        let path = path_in(self.folder, &written.get_ref().0);
        self.named_files.push(NamedFile { path: path.clone(), span: Some(written.span()), kind });
        Some(path)
    }

    /// The table of a setting that may be `off`, with a problem for another word.
    pub fn table_or_off<'w, T>(&mut self, written: &'w Spanned<OrOff<T>>, setting: &str, help: &str) -> Option<&'w T> {
        match written.get_ref() {
            OrOff::Table(table) => Some(table),
            OrOff::Word(word) => {
                if word.0 != "off" {
                    let message = format!("`{}` is no value of `{setting}`", word.0);
                    self.problems.push(Problem::new(message, Some(written.span())).help(help));
                }
                None
            }
        }
    }

    /// The index of a name among the known ones, with a problem if it is unknown.
    pub fn index_of(&mut self, what: &str, written: &Spanned<Written>, known: &[String], help: &str) -> Option<usize> {
        let name = &written.get_ref().0;
        let found = known.iter().position(|known| known == name);
        // An entry without a name, which was reported already, may be the intended one.
        if found.is_none() && self.shape_is_sound && !known.iter().any(String::is_empty) {
            let help = match spelling::like(name, known.iter().map(String::as_str)) {
                Some(known) => format!("did you mean `{known}`?"),
                None if what == "upstream" && name.contains("://") => format!(
                    "an address has a name here: add `[[upstream]]` with `name = \"app\"` and `servers = [\"{name}\"]`, and write `app`"
                ),
                None => help.to_owned(),
            };
            self.problems.push(Problem::new(format!("there is no {what} `{name}`"), Some(written.span())).help(help));
        }
        found
    }

    /// The values of a list that can be read, with a problem for each other.
    pub fn read_each<T>(&mut self, list: &[Spanned<Written>], read: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let mut values = Vec::new();
        for written in list {
            match read(&written.get_ref().0) {
                Ok(value) => values.push(value),
                Err(message) => self.unread(message, written),
            }
        }
        values
    }

    /// A certificate and its key, where both are given; one alone is a problem.
    pub fn pair<'w>(
        &mut self,
        cert: &'w Setting,
        key: &'w Setting,
    ) -> Option<(&'w Spanned<Written>, &'w Spanned<Written>)> {
        match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (Some(cert), None) => {
                self.half_a_pair(cert, "this certificate has no key", "tls-key", "the key that it was made for");
                None
            }
            (None, Some(key)) => {
                self.half_a_pair(key, "this key has no certificate", "tls-cert", "the certificate made for it");
                None
            }
            (None, None) => None,
        }
    }

    fn half_a_pair(&mut self, half: &Spanned<Written>, message: &str, other: &str, what: &str) {
        self.all_read = false;
        let help = format!("add `{other} = \"FILE\"` with {what}");
        self.problems.push(Problem::new(message, Some(half.span())).help(help));
    }
}
