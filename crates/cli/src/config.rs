//! The only configuration file format: one TOML file, read in two stages, raw and resolved. Flags go before the file, the
//! file before the defaults.

mod example;
mod files;
mod foreign;
mod overrides;
mod parse;
mod problems;
mod raw;
mod resolve;
mod schema;
mod sections;
mod shape;
mod syntax;
mod validity;
mod written;

use std::path::{Path, PathBuf};

use server::config::Config;

pub use overrides::Overrides;
pub use problems::{Problem, Problems, Severity};
pub use resolve::DEFAULT_LISTEN;
use resolve::Resolved;

/// Reads the configuration of `serve` from its flags and file. Directories must be readable, and certificates must match
/// their keys. No address is bound.
pub fn load(flags: &Overrides) -> Result<Config, Problems> {
    load_and_warn(flags).map(|(config, _)| config)
}

/// The same, with warnings: settings that are valid and probably not intended.
pub fn load_and_warn(flags: &Overrides) -> Result<(Config, Option<Problems>), Problems> {
    let source = match &flags.config {
        Some(path) => Some((path.clone(), read(path)?)),
        None => None,
    };
    check(source, flags)
}

/// The same for a text that is, or will be, in the file at `path`.
pub fn load_text(path: &Path, text: String) -> Result<(Config, Option<Problems>), Problems> {
    check(Some((path.to_owned(), text)), &Overrides { config: Some(path.to_owned()), ..Overrides::default() })
}

fn check(source: Option<(PathBuf, String)>, flags: &Overrides) -> Result<(Config, Option<Problems>), Problems> {
    let (resolved, mut problems) = understand(source.as_ref(), flags);
    files::check(&resolved, &mut problems);
    let usable = problems.iter().all(|problem| problem.severity == Severity::Warning);
    let problems = Problems::new(source, problems);
    match (usable, problems.list.is_empty()) {
        (true, true) => Ok((resolved.config, None)),
        (true, false) => Ok((resolved.config, Some(problems))),
        (false, _) => Err(problems),
    }
}

/// The settings of `serpent attach` in a file, which may have no site; `None` if it has none of them. Mistakes elsewhere in
/// the file count, too. The files that it names are not opened.
#[cfg(target_os = "linux")]
pub fn load_attach(path: &Path) -> Result<Option<attach::AttachOptions>, Problems> {
    let source = Some((path.to_owned(), read(path)?));
    let flags = Overrides { dir: is_for_attach_alone(path)?.then(|| ".".into()), ..Overrides::default() };
    let (resolved, problems) = understand(source.as_ref(), &flags);
    let usable = problems.iter().all(|problem| problem.severity == Severity::Warning);
    if usable { Ok(resolved.attach) } else { Err(Problems::new(source, problems)) }
}

/// Whether the file is for `serpent attach`, and has nothing to serve.
pub fn is_for_attach_alone(path: &Path) -> Result<bool, Problems> {
    let (raw, _) = parse::parse(&read(path)?);
    Ok(raw.attach.is_some() && raw.site.is_empty() && raw.upstream.is_empty())
}

/// Reads and resolves the configuration. The files that it names are not opened.
pub fn understand(source: Option<&(PathBuf, String)>, flags: &Overrides) -> (Resolved, Vec<Problem>) {
    let (raw, mut problems) = source.map_or_else(Default::default, |(_, text)| parse::parse(text));
    let folder = source.and_then(|(path, _)| path.parent());
    // Sections that could not be read are missing now, so missing settings are no problems of their own.
    let shape_is_sound = problems.is_empty();
    let resolved = resolve::resolve(&raw, flags, folder, shape_is_sound, &mut problems);
    (resolved, problems)
}

/// The text of a file.
pub fn read(path: &Path) -> Result<String, Problems> {
    let told = |text: String, problem: Problem| Problems::new(Some((path.to_owned(), text)), vec![problem]);
    let said = |message: String, help: &str| told(String::new(), Problem::new(message, None).help(help));
    let bytes = std::fs::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => said("there is no such configuration file".into(), "check the path"),
        std::io::ErrorKind::PermissionDenied => said(
            "the configuration file may not be read".into(),
            "let the user that runs serpent read it (chmod, chown)",
        ),
        std::io::ErrorKind::IsADirectory => said(
            "this is a directory, and a configuration is a file".into(),
            "name the file in it, as in `serpent.toml`",
        ),
        _ => said(format!("the configuration file cannot be read: {error}"), "give a regular file"),
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        // The text before that place is the same in both, so the line is.
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        let file = path.display();
        let help = if error.as_bytes().starts_with(&[0xff, 0xfe]) || error.as_bytes().starts_with(&[0xfe, 0xff]) {
            format!("save it as UTF-8: `iconv -f UTF-16 -t UTF-8 {file} > NEW`")
        } else {
            format!("save it as UTF-8; if it is Latin-1, by `iconv -f LATIN1 -t UTF-8 {file} > NEW`")
        };
        // Without lines there is nothing to show.
        if error.as_bytes().contains(&0) {
            return said("this is not a text in UTF-8".into(), &help);
        }
        told(
            text,
            Problem::new("this is not a text in UTF-8", Some(at..at + char::REPLACEMENT_CHARACTER.len_utf8()))
                .help(help),
        )
    })
}

#[cfg(test)]
mod tests;
