//! Finds the access log of a web server of this machine.

use std::path::{Path, PathBuf};

use crate::{failure::Failure, import::Disk};

/// A web server whose log is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    Nginx,
    Apache,
    Caddy,
}

impl Installed {
    fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Apache => "Apache httpd",
            Self::Caddy => "Caddy",
        }
    }

    /// Where its log is, unless its configuration says otherwise.
    fn usual(self) -> &'static [&'static str] {
        match self {
            Self::Nginx => &["/var/log/nginx/access.log"],
            Self::Apache => &["/var/log/apache2/access.log", "/var/log/httpd/access_log"],
            Self::Caddy => &["/var/log/caddy/access.log"],
        }
    }
}

/// The access log of a server with its rotated files. `root` is that of the file system.
///
/// # Errors
/// There is none, or there are several.
pub fn logs(server: Installed, root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let name = server.name();
    let under = |path: &str| root.join(path.trim_start_matches('/'));
    let mut looked_at: Vec<PathBuf> = server.usual().iter().map(|path| under(path)).collect();
    let configuration = under("/etc/nginx/nginx.conf");
    if server == Installed::Nginx && configuration.exists() {
        let named = import::nginx_logs("nginx.conf", &Disk::beside(&configuration)).map_err(|error| {
            Failure::Usage(format!("the configuration of nginx cannot be read, so name its log: {error}"))
        })?;
        if !named.is_empty() {
            looked_at = named.iter().map(|path| under(path)).collect();
        }
    }
    let shown = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let found: Vec<Vec<PathBuf>> =
        looked_at.iter().map(|log| with_rotated(log)).filter(|log| !log.is_empty()).collect();
    match &found[..] {
        [] => Err(Failure::Usage(format!(
            "no access log of {name} is found (looked for {}): name it, as in `serpent advise FILE --uplink 100mbit`",
            shown(&looked_at)
        ))),
        [log] => Ok(log.clone()),
        several => {
            let firsts: Vec<PathBuf> = several.iter().filter_map(|log| log.first().cloned()).collect();
            Err(Failure::Usage(format!(
                "{name} has several access logs, and advice is for one: name {}",
                shown(&firsts)
            )))
        }
    }
}

/// A log and its rotated files, as far as they have anything in them: `access.log.1`, `access.log.2.gz`, `access_log-20260101`.
fn with_rotated(log: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let is_of_log = |path: &PathBuf| {
        let rest = path.file_name().and_then(|other| other.to_str()).and_then(|other| other.strip_prefix(name));
        let is_rotated = |rest: &str| {
            rest.is_empty() || rest.starts_with(['.', '-']) && rest[1..].starts_with(|c: char| c.is_ascii_digit())
        };
        rest.is_some_and(is_rotated) && path.metadata().is_ok_and(|it| it.is_file() && it.len() > 0)
    };
    let entries = folder.read_dir().into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<PathBuf> = entries.filter(is_of_log).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn found(server: Installed, files: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let root = machine(files);
        let plain = |path: &PathBuf| path.strip_prefix(root.path()).unwrap().display().to_string();
        match logs(server, root.path()) {
            Ok(logs) => Ok(logs.iter().map(plain).collect()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    #[test]
    fn the_log_comes_with_its_rotated_files_and_without_others() {
        let files = [
            ("var/log/nginx/access.log", "a"),
            ("var/log/nginx/access.log.1", "b"),
            ("var/log/nginx/access.log.2.gz", "c"),
            ("var/log/nginx/access.log.3.gz", ""),
            ("var/log/nginx/access.log.orig", "d"),
            ("var/log/nginx/error.log", "e"),
        ];
        let expected = ["access.log", "access.log.1", "access.log.2.gz"].map(|name| format!("var/log/nginx/{name}"));
        assert_eq!(found(Installed::Nginx, &files).unwrap(), expected);
        let httpd = [("var/log/httpd/access_log", "a"), ("var/log/httpd/access_log-20260101", "b")];
        assert_eq!(found(Installed::Apache, &httpd).unwrap().len(), 2);
        assert_eq!(found(Installed::Caddy, &[("var/log/caddy/access.log", "{}")]).unwrap().len(), 1);
    }

    #[test]
    fn the_configuration_of_nginx_says_where_its_log_is() {
        let conf = "http { include sites/*; }";
        let site = ("etc/nginx/sites/a", "server { access_log /srv/a.log; }");
        let files = [("etc/nginx/nginx.conf", conf), site, ("srv/a.log", "a"), ("var/log/nginx/access.log", "old")];
        assert_eq!(found(Installed::Nginx, &files).unwrap(), ["srv/a.log"]);
        let two = [("etc/nginx/sites/b", "server { access_log /srv/b.log; }"), ("srv/b.log", "b")];
        let several = found(Installed::Nginx, &[&files[..], &two].concat()).unwrap_err();
        assert!(several.contains("several access logs") && several.contains("srv/b.log"), "{several}");
        let none = found(Installed::Nginx, &[("etc/nginx/nginx.conf", conf), site]).unwrap_err();
        assert!(none.contains("no access log of nginx") && none.contains("srv/a.log"), "{none}");
        let broken = found(Installed::Nginx, &[("etc/nginx/nginx.conf", "http {")]).unwrap_err();
        assert!(broken.contains("cannot be read") && broken.contains("nginx.conf"), "{broken}");
    }
}
