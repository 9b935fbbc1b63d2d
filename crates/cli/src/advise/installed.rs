//! Finds the access logs of an installed nginx, Apache or Caddy.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::failure::Failure;

/// Deepest nesting of folders of configuration files that is followed.
const DEPTH: usize = 4;

/// A server whose logs are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    Nginx,
    Apache,
    Caddy,
}

/// The logs of one site.
#[derive(Debug, PartialEq)]
pub struct Found {
    /// The log and its rotated ones, by name.
    pub logs: Vec<PathBuf>,
    /// Other logs of the server, which are of the same time.
    pub others: Vec<PathBuf>,
}

impl Installed {
    /// Its name, as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Apache => "Apache",
            Self::Caddy => "Caddy",
        }
    }

    /// Where its configuration is, below the root.
    const fn folders(self) -> &'static [&'static str] {
        match self {
            Self::Nginx => &["etc/nginx", "usr/local/etc/nginx"],
            Self::Apache => &["etc/apache2", "etc/httpd", "usr/local/etc/apache24"],
            Self::Caddy => &["etc/caddy"],
        }
    }

    /// Where its logs are if no configuration says so.
    const fn logs(self) -> &'static [&'static str] {
        match self {
            Self::Nginx => &["var/log/nginx/access.log"],
            Self::Apache => &[
                "var/log/apache2/access.log",
                "var/log/apache2/other_vhosts_access.log",
                "var/log/httpd/access_log",
                "var/log/httpd-access.log",
            ],
            Self::Caddy => &["var/log/caddy/access.log"],
        }
    }

    /// The log that a line of its configuration names.
    fn named(self, line: &str) -> Option<String> {
        let line = line.split('#').next()?.trim();
        let mut words = line.split_whitespace();
        let path = match (self, words.next()?.to_ascii_lowercase().as_str()) {
            (Self::Nginx, "access_log") | (Self::Apache, "customlog" | "transferlog") => words.next()?,
            (Self::Caddy, "output") if words.next() == Some("file") => words.next()?,
            _ => return None,
        };
        let path = path.trim_end_matches([';', '{']).trim_matches('"');
        let path = path.replace("${APACHE_LOG_DIR}", "/var/log/apache2");
        // None, a pipe, the system's log, or a name that is different for each request.
        let is_file = !path.is_empty() && path != "off" && !path.starts_with('|') && !path.starts_with("syslog:");
        (is_file && !path.contains('$')).then_some(path)
    }

    /// Finds the largest log of the server with its rotated ones, in a file system with this root.
    pub fn find(self, root: &Path) -> Result<Found, Failure> {
        let mut bases: Vec<PathBuf> = self.logs().iter().map(|log| root.join(log)).collect();
        for folder in self.folders().iter().map(|folder| root.join(folder)) {
            visit(&folder, DEPTH, &mut |text| {
                for path in text.lines().filter_map(|line| self.named(line)) {
                    // A relative one is below the folder of the configuration.
                    let base = path.strip_prefix('/').map_or_else(|| folder.join(&path), |path| root.join(path));
                    if path != "/dev/null" && !bases.contains(&base) {
                        bases.push(base);
                    }
                }
            });
        }
        let mut families = Vec::new();
        for base in &bases {
            let family = family(base).map_err(|error| {
                Failure::Usage(format!(
                    "the logs beside `{}` cannot be listed: {error}; run this as a user that may read them",
                    base.display()
                ))
            })?;
            if !family.is_empty() {
                families.push((base, family));
            }
        }
        let bytes = |family: &[(PathBuf, u64)]| family.iter().map(|(_, bytes)| bytes).sum::<u64>();
        families.sort_by_key(|(_, family)| std::cmp::Reverse(bytes(family)));
        let mut families = families.into_iter();
        let Some((_, largest)) = families.next() else {
            let looked: Vec<_> = bases.iter().map(|base| base.display().to_string()).collect();
            return Err(Failure::Usage(format!(
                "no log of {} is found: {} {}; name the log: serpent advise ACCESS_LOG --uplink RATE",
                self.name(),
                looked.join(", "),
                if looked.len() == 1 { "is not there, or empty" } else { "are not there, or empty" },
            )));
        };
        Ok(Found {
            logs: largest.into_iter().map(|(path, _)| path).collect(),
            others: families.map(|(base, _)| base.clone()).collect(),
        })
    }
}

/// Reads the files of a folder, and of folders in it.
fn visit(folder: &Path, depth: usize, read: &mut impl FnMut(&str)) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut entries: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            // Not those that are kept beside the ones in use.
            let is_used = !path.ends_with("sites-available") && !path.ends_with("mods-available");
            if depth > 0 && is_used && !path.ends_with("conf-available") {
                visit(&path, depth - 1, read);
            }
        } else if let Ok(text) = fs::read_to_string(&path) {
            read(&text);
        }
    }
}

/// A log and its rotated ones (`access.log.1`, `access.log.2.gz`, `access-2026-01-01.log.gz`) with their bytes, without
/// empty ones.
fn family(base: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let (Some(folder), Some(name)) = (base.parent(), base.file_name().and_then(|name| name.to_str())) else {
        return Ok(Vec::new());
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
    let is_rotated = |of: &str| {
        let behind = of.strip_prefix(name).filter(|rest| rest.starts_with(['.', '-']));
        let dated = of.strip_prefix(stem).filter(|rest| rest.starts_with('-') && rest.contains(ending));
        [behind, dated].into_iter().flatten().any(|rest| rest.contains(|char: char| char.is_ascii_digit()))
    };
    let mut family = Vec::new();
    for entry in entries {
        let entry = entry?;
        let of = entry.file_name();
        let Some(of) = of.to_str().filter(|of| *of == name || is_rotated(of)) else { continue };
        let facts = fs::metadata(entry.path())?;
        if facts.is_file() && facts.len() > 0 {
            family.push((folder.join(of), facts.len()));
        }
    }
    family.sort();
    Ok(family)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn system(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn found(server: Installed, root: &TempDir) -> (Vec<String>, Vec<String>) {
        let Found { logs, others } = server.find(root.path()).unwrap();
        let named = |paths: Vec<PathBuf>| {
            paths.iter().map(|path| path.strip_prefix(root.path()).unwrap().display().to_string()).collect()
        };
        (named(logs), named(others))
    }

    #[test]
    fn the_default_log_is_found_with_its_rotated_ones() {
        let root = system(&[
            ("var/log/nginx/access.log", "now"),
            ("var/log/nginx/access.log.1", "yesterday"),
            ("var/log/nginx/access.log.2.gz", "before"),
            ("var/log/nginx/access.log.3.gz", ""),
            ("var/log/nginx/error.log", "no"),
            ("var/log/nginx/access.log.orig", "no"),
        ]);
        let logs = ["access.log", "access.log.1", "access.log.2.gz"].map(|name| format!("var/log/nginx/{name}"));
        assert_eq!(found(Installed::Nginx, &root), (logs.to_vec(), Vec::new()));
    }

    #[test]
    fn the_largest_log_that_the_configuration_names_is_taken() {
        let root = system(&[
            ("etc/nginx/nginx.conf", "http {\n  access_log /var/log/nginx/access.log;\n  access_log off;\n}\n"),
            ("etc/nginx/sites-enabled/shop", "# access_log /no;\naccess_log \"/srv/shop.log\" combined buffer=32k;\n"),
            ("etc/nginx/sites-available/old", "access_log /srv/old.log;"),
            ("var/log/nginx/access.log", "small"),
            ("srv/shop.log", "much larger than that"),
            ("srv/old.log", "the largest of them, but not in use any more"),
        ]);
        assert_eq!(
            found(Installed::Nginx, &root),
            (vec!["srv/shop.log".to_owned()], vec!["var/log/nginx/access.log".to_owned()])
        );
        let root = system(&[
            ("etc/apache2/sites-enabled/000.conf", "  CustomLog ${APACHE_LOG_DIR}/site.log combined\n"),
            ("etc/apache2/conf-enabled/other.conf", "CustomLog \"|/usr/bin/rotatelogs x\" combined\n"),
            ("var/log/apache2/site.log-20260101", "old"),
        ]);
        assert_eq!(found(Installed::Apache, &root).0, ["var/log/apache2/site.log-20260101"]);
        let root = system(&[
            (
                "etc/caddy/Caddyfile",
                "example.com {\n log {\n  output file /var/log/caddy/site.log {\n   roll_keep 5\n }\n }\n}\n",
            ),
            ("var/log/caddy/site.log", "now"),
            ("var/log/caddy/site-2026-01-01T00-00-00.000.log.gz", "then"),
            ("var/log/caddy/site-map.log", "no"),
        ]);
        let logs = ["site-2026-01-01T00-00-00.000.log.gz", "site.log"].map(|name| format!("var/log/caddy/{name}"));
        assert_eq!(found(Installed::Caddy, &root).0, logs);
    }

    #[test]
    fn without_a_log_it_is_said_where_it_was_looked_for() {
        let root = system(&[("etc/nginx/nginx.conf", "access_log /srv/a.log;")]);
        let error = Installed::Nginx.find(root.path()).unwrap_err().to_string();
        assert!(error.contains("no log of nginx is found") && error.contains("srv/a.log"), "{error}");
        assert!(error.contains("serpent advise ACCESS_LOG"), "{error}");
    }
}
