//! The only configuration file format: one TOML file, read in two stages, raw and resolved. Flags go before the file, the
//! file before the defaults.

mod files;
mod overrides;
mod problems;
mod raw;
mod resolve;

use std::path::{Path, PathBuf};

use server::config::Config;

pub use overrides::Overrides;
pub use problems::{Problem, Problems, Severity, like};
use resolve::Resolved;

use crate::values::ListenAt;

/// Reads the configuration that `serve` was asked for and checks it as far as it can be checked without binding an
/// address: the file, the flags, that directories can be read, and that certificates and keys belong together.
pub fn load(flags: &Overrides) -> Result<Config, Problems> {
    load_and_warn(flags).map(|(config, _)| config)
}

/// The same, with what can be served but hardly is what was meant.
pub fn load_and_warn(flags: &Overrides) -> Result<(Config, Option<Problems>), Problems> {
    let source = match &flags.config {
        Some(path) => Some((path.clone(), read(path)?)),
        None => None,
    };
    check(source, flags)
}

/// The same of a text that stands, or is to stand, in a file.
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

/// What the file says, before anything that it names is looked at.
pub fn understand(source: Option<&(PathBuf, String)>, flags: &Overrides) -> (Resolved, Vec<Problem>) {
    let (raw, mut problems) = source.map_or_else(Default::default, |(_, text)| raw::read(text));
    let folder = source.and_then(|(path, _)| path.parent());
    // Sections that could not be read are missing now; what they would have settled is not to be complained about.
    let shape_is_sound = problems.is_empty();
    let resolved = resolve::resolve(&raw, flags, folder, shape_is_sound, &mut problems);
    (resolved, problems)
}

/// A path as written in the file at `folder`, or as given in a flag.
fn path_in(folder: Option<&Path>, path: &str) -> PathBuf {
    folder.map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
}

/// The text of a file.
pub fn read(path: &Path) -> Result<String, Problems> {
    let said = |message: String, help: &str| {
        Problems::new(Some((path.to_owned(), String::new())), vec![Problem::new(message, None).help(help)])
    };
    let bytes = std::fs::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => said("there is no such configuration file".into(), "check the path"),
        std::io::ErrorKind::PermissionDenied => said(
            "the configuration file may not be read".into(),
            "let the user that runs serpent read it (chmod, chown)",
        ),
        _ => said(format!("the configuration file cannot be read: {error}"), "give a regular file"),
    })?;
    String::from_utf8(bytes)
        .map_err(|error| said(format!("the configuration file is not a text: {error}"), "save it as UTF-8"))
}

/// The address that is listened on when none is given.
pub const DEFAULT_LISTEN: ListenAt = ListenAt {
    address: std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080),
    tls: None,
};

#[cfg(test)]
mod tests;
