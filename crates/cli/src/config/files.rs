//! Whether what the configuration names is there: directories, certificates, keys, the folder of the access log.

use std::{ops::Range, path::Path};

use server::config::LogTarget;

use super::{problems::Problem, resolve::Resolved};

/// Adds a problem for everything that is missing or cannot be read.
pub fn check(resolved: &Resolved, problems: &mut Vec<Problem>) {
    for (site, places) in resolved.config.sites.iter().zip(&resolved.places) {
        problems.extend(directory(&site.root, places.root.clone()));
    }
    if let Some(log) = &resolved.config.access_log
        && let LogTarget::File(path) = &log.target
    {
        problems.extend(log_file(path, resolved.access_log.clone()));
    }
}

fn directory(root: &Path, span: Option<Range<usize>>) -> Option<Problem> {
    let error = match std::fs::read_dir(root) {
        Ok(_) => return None,
        Err(error) => error,
    };
    let root = root.display();
    Some(match error.kind() {
        std::io::ErrorKind::NotFound => Problem::new(format!("the directory `{root}` does not exist"), span)
            .help("make it, or name another; a relative path in the file starts at the file's folder"),
        std::io::ErrorKind::NotADirectory => {
            Problem::new(format!("`{root}` is not a directory"), span).help("name the directory that the file lies in")
        }
        std::io::ErrorKind::PermissionDenied => Problem::new(format!("the directory `{root}` may not be read"), span)
            .help("let the user that runs serpent read and enter it (chmod, chown)"),
        _ => Problem::new(format!("the directory `{root}` cannot be read: {error}"), span),
    })
}

fn log_file(path: &Path, span: Option<Range<usize>>) -> Option<Problem> {
    if path.is_dir() {
        return Some(
            Problem::new(format!("the access log `{}` is a directory", path.display()), span).help("name a file in it"),
        );
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    (!folder.is_dir()).then(|| {
        Problem::new(format!("the folder `{}` of the access log does not exist", folder.display()), span)
            .help("make it, or name another file")
    })
}
