//! `serpent import FILE`: the configuration of another server, translated.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::Args;
use globset::GlobBuilder;
use import::Files;

use crate::{
    config::{self, Overrides, Problems, Severity},
    failure::Failure,
    output::complain,
    values::{Named, named},
};

/// The largest file that is read.
const MOST_BYTES: u64 = 1024 * 1024;
/// The most files that a pattern of `include` may name.
const MOST_FILES: usize = 1000;

/// The folders of sites in nginx's folder, as distributions have them.
const SITES: [&str; 3] = ["sites-available", "sites-enabled", "conf.d"];

/// The file to translate.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example:
  serpent import /etc/nginx/nginx.conf > serpent.toml
  serpent import /etc/caddy/Caddyfile > serpent.toml
  serpent import /etc/haproxy/haproxy.cfg > serpent.toml
  serpent check serpent.toml")]
pub struct ImportArgs {
    /// nginx.conf, a file with `server` blocks alone, a Caddyfile, or haproxy.cfg
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Whose configuration it is [default: that whose name is in the file's (`Caddyfile`, `haproxy`), nginx otherwise]
    #[arg(long, value_name = "nginx|caddy|haproxy", value_parser = named::<Source>())]
    pub from: Option<Source>,

    /// Of HAProxy: only the sites of this `frontend` or `listen`
    #[arg(long, value_name = "NAME")]
    pub frontend: Option<String>,
}

/// A server whose configuration is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Nginx,
    Caddy,
    HaProxy,
}

impl Named for Source {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Nginx, "nginx", "nginx.conf"),
        (Self::Caddy, "caddy", "A Caddyfile"),
        (Self::HaProxy, "haproxy", "haproxy.cfg"),
    ];
}

impl Source {
    fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match (name.contains("caddyfile"), name.contains("haproxy")) {
            (true, _) => Self::Caddy,
            (false, true) => Self::HaProxy,
            (false, false) => Self::Nginx,
        }
    }
}

/// Translates a file and those that it includes. Directives without a counterpart go to standard error, and stand at
/// the top of the text as well.
pub fn import(args: &ImportArgs) -> Result<String, Failure> {
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    let disk = Disk { folder: args.file.parent().map(Path::to_owned).unwrap_or_default() };
    let translated = match args.from.unwrap_or_else(|| Source::of(&name)) {
        Source::Nginx => import::nginx(&name, &disk),
        Source::Caddy => import::caddyfile(&name, &disk),
        Source::HaProxy => import::haproxy(&name, &disk, args.frontend.as_deref()),
    };
    let translated = translated.map_err(|error| {
        let is_toml = args.file.extension().is_some_and(|extension| extension == "toml");
        let hint = if is_toml { "; is it a configuration of Serpent already? `serpent check` reads it" } else { "" };
        Failure::Run(format!("{error}{hint}"))
    })?;
    for left in &translated.left {
        complain(0, &format!("not translated: {left}"));
    }
    let closed = translated.left.iter().filter(|left| left.closes).count();
    if closed > 0 {
        complain(
            0,
            &format!(
                "CLOSED: {closed} guards are not translated; what they guard answers 403 or 503 until you open it"
            ),
        );
    }
    // The file will stand elsewhere, so what it names is not looked for.
    let source = (PathBuf::from("translated"), translated.text.clone());
    let flags = Overrides { config: Some(source.0.clone()), ..Overrides::default() };
    let (_, mut problems) = config::understand(Some(&source), &flags);
    problems.retain(|problem| problem.severity != Severity::Warning);
    if !problems.is_empty() {
        complain(0, &format!("to be mended by hand:\n{}", Problems::new(Some(source), problems)));
    }
    Ok(translated.text)
}

/// Files on the disk.
struct Disk {
    folder: PathBuf,
}

impl Files for Disk {
    fn read(&self, pattern: &str) -> Result<Vec<(String, String)>, String> {
        let mut path = self.folder.join(pattern);
        // nginx's folder has the file of a site in a folder of its own, and names start at nginx's.
        let is_one = !pattern.contains(['*', '?', '[']);
        let is_there = if is_one { path.exists() } else { path.parent().is_some_and(Path::is_dir) };
        let is_of_sites = SITES.iter().any(|name| self.folder.ends_with(name));
        if let (true, false, Some(above)) = (is_of_sites, is_there, self.folder.parent()) {
            path = above.join(pattern);
        }
        if is_one {
            return Ok(vec![(path.display().to_string(), text(&path)?)]);
        }
        let unreadable = |error: &dyn std::fmt::Display| format!("`{pattern}`: {error}");
        let folder = path.parent().unwrap_or(Path::new("."));
        if folder.as_os_str().as_encoded_bytes().iter().any(|byte| b"*?[".contains(byte)) {
            return Err(unreadable(&"only the name of a file may have a `*`, not that of a folder"));
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let glob = GlobBuilder::new(name).literal_separator(true).build().map_err(|error| unreadable(&error))?;
        let glob = glob.compile_matcher();
        // As with nginx, a pattern that names nothing includes nothing.
        let Ok(entries) = folder.read_dir() else { return Ok(Vec::new()) };
        let mut paths: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                path.file_name().is_some_and(|name| glob.is_match(name) && !name.as_encoded_bytes().starts_with(b"."))
            })
            .take(MOST_FILES)
            .collect();
        paths.sort();
        paths.iter().map(|path| Ok((path.display().to_string(), text(path)?))).collect()
    }
}

fn text(path: &Path) -> Result<String, String> {
    let read = || {
        let mut text = String::new();
        File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
        Ok::<_, std::io::Error>(text)
    };
    match read() {
        Ok(text) if text.len() as u64 > MOST_BYTES => Err(format!("{} is larger than 1 MiB", path.display())),
        Ok(text) => Ok(text),
        Err(error) => {
            let mend = match error.kind() {
                std::io::ErrorKind::NotFound => "; check the path",
                std::io::ErrorKind::IsADirectory => "; name the file in it, as in `nginx.conf`",
                std::io::ErrorKind::PermissionDenied => "; run this as a user that may read it",
                _ => "",
            };
            Err(format!("{} cannot be read: {error}{mend}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests;
