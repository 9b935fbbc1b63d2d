//! The command of worker processes.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::{config::WorkersConfig, program::path_variable};

/// The part of a command that may be shown; arguments may be secrets.
pub(super) fn shown(config: &WorkersConfig) -> &str {
    config.command.first().map_or("", String::as_str)
}

/// An error in the configuration of workers.
pub(super) fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, what.into())
}

/// Checks a command before it is run.
pub(super) fn check(config: &WorkersConfig) -> io::Result<()> {
    let uses = |what: &str| config.command.iter().any(|word| word.contains(what));
    match (uses("{socket}"), uses("{port}")) {
        (false, false) => return Err(wrong("the command does not say where to listen: it needs {socket} or {port}")),
        (true, true) => return Err(wrong("the command has both {socket} and {port}: a worker listens in one place")),
        _ => {}
    }
    if let Some(directory) = &config.directory
        && !fs::metadata(directory)
            .map_err(|error| io::Error::new(error.kind(), format!("directory {}: {error}", directory.display())))?
            .is_dir()
    {
        return Err(wrong(format!("{} is not a directory", directory.display())));
    }
    executable(config).map(|_| ())
}

/// The path of a command's program, searched for as a shell does.
pub(super) fn executable(config: &WorkersConfig) -> io::Result<PathBuf> {
    let name = config.command.first().ok_or_else(|| wrong("the command is empty"))?;
    let may = |path: &Path| {
        fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        let path = match &config.directory {
            Some(directory) => directory.join(name),
            None => PathBuf::from(name),
        };
        let path = std::path::absolute(path)?;
        fs::metadata(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        return if may(&path) {
            Ok(path)
        } else {
            Err(io::Error::new(ErrorKind::PermissionDenied, format!("{} is not executable", path.display())))
        };
    }
    let found = std::env::split_paths(&path_variable()).map(|folder| folder.join(name)).find(|path| may(path));
    found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("there is no program {name} in PATH")))
}
