//! Finds the script that a path names, and the rest of the path. Blocks.
//!
//! PHP takes the rest of a path off by itself and looks for a script in what is left (`cgi.fix_pathinfo`), so that
//! `/upload/cat.jpg/x.php` runs an uploaded picture. Hence the script is found here, file by file. Only a regular file
//! with an extension of scripts is ever handed on, and no file is passed through like a directory.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use files::{Node, RequestPath, Root, SymlinkPolicy};

use crate::{config::FastCgiConfig, error::CgiError};

/// The scripts of a route.
#[derive(Debug)]
pub(super) struct Scripts {
    /// `None`: only the application's machine has them, and they are not looked for.
    root: Option<Root>,
    /// The root as the application sees it.
    pub(super) base: PathBuf,
    extensions: Vec<String>,
    index: Option<String>,
}

/// A script that was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Script {
    /// Its path, as the application sees it.
    pub(super) file: PathBuf,
    /// The part of the decoded path that names it.
    pub(super) name: Vec<u8>,
    /// The rest of the path: empty, or starting with a slash.
    pub(super) path_info: Vec<u8>,
}

impl Scripts {
    /// Opens the directory of the scripts. `of_site`: the root of the site.
    pub(super) fn open(config: &FastCgiConfig, of_site: Option<&Path>, links: SymlinkPolicy) -> io::Result<Self> {
        let FastCgiConfig { root, remote_root, extensions, index, .. } = config.clone();
        let here = root.or_else(|| of_site.map(Path::to_owned).filter(|_| remote_root.is_none()));
        let here = here.map(std::path::absolute).transpose()?;
        let none = || io::Error::new(io::ErrorKind::NotFound, "there is no directory of scripts");
        let base = remote_root.or_else(|| here.clone()).ok_or_else(none)?;
        let root = here.map(|here| Root::open(&here, links)).transpose()?;
        Ok(Self { root, base, extensions, index })
    }

    /// Whether scripts are looked for, which blocks.
    pub(super) fn is_here(&self) -> bool {
        self.root.is_some()
    }

    /// Finds the script for the path of a request.
    pub(super) fn find(&self, path: &str) -> Result<Script, CgiError> {
        let path = RequestPath::parse(path).map_err(|_| CgiError::NotFound)?;
        let relative = path.relative().as_os_str().as_bytes();
        if let Some(root) = &self.root {
            root.refresh();
        }
        let mut end = 0;
        while end < relative.len() {
            let start = end + usize::from(end > 0);
            end = start + memchr::memchr(b'/', &relative[start..]).unwrap_or(relative.len() - start);
            let name = &relative[start..end];
            // Hidden files are never found.
            if name.starts_with(b".") {
                return Err(CgiError::NotFound);
            }
            let is_script = self.is_script(name);
            let is_file = match &self.root {
                Some(root) => is_file(root, &relative[..end])?,
                None => is_script,
            };
            match (is_file, is_script) {
                (true, true) => {
                    let mut info = relative[end..].to_vec();
                    if path.directory() {
                        info.push(b'/');
                    }
                    return Ok(self.script(relative[..end].to_vec(), info));
                }
                (true, false) => return Err(CgiError::NotFound),
                (false, _) => {}
            }
        }
        let index = self.index.as_ref().filter(|_| path.directory()).ok_or(CgiError::NotFound)?;
        let script = path.join(index);
        match &self.root {
            Some(root) if !is_file(root, &script)? => Err(CgiError::NotFound),
            _ => Ok(self.script(script, Vec::new())),
        }
    }

    fn is_script(&self, name: &[u8]) -> bool {
        let extension = Path::new(OsStr::from_bytes(name)).extension();
        extension.is_some_and(|found| self.extensions.iter().any(|extension| found == extension.as_str()))
    }

    fn script(&self, relative: Vec<u8>, path_info: Vec<u8>) -> Script {
        let name = [b"/", &relative[..]].concat();
        Script { file: self.base.join(OsString::from_vec(relative)), name, path_info }
    }
}

/// Whether a path leads to a file; otherwise it leads to a directory.
fn is_file(root: &Root, relative: &[u8]) -> Result<bool, CgiError> {
    match root.find(Path::new(OsStr::from_bytes(relative))) {
        Ok(Node::File(..)) => Ok(true),
        Ok(Node::Directory(_) | Node::ClosedDirectory) => Ok(false),
        Err(error) => Err(CgiError::of_look(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::fastcgi::tests::config;

    fn shown(found: Result<Script, CgiError>) -> String {
        match found {
            Ok(script) => {
                let text = |bytes| String::from_utf8(bytes).unwrap();
                format!("{} {} {}", script.file.display(), text(script.name), text(script.path_info))
            }
            Err(error) => error.status().as_u16().to_string(),
        }
    }

    #[test]
    fn only_scripts_that_exist_are_handed_on() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret.php"), "").unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("sub/dir.php")).unwrap();
        fs::create_dir(at("uploads")).unwrap();
        for name in
            ["index.php", "a b.php", "page.phtml", "data.txt", "uploads/cat.jpg", ".env.php", "sub/dir.php/x.php"]
        {
            fs::write(at(name), "").unwrap();
        }
        symlink("index.php", at("link.php")).unwrap();
        symlink("data.txt", at("text.php")).unwrap();
        symlink(outside.path().join("secret.php"), at("escape.php")).unwrap();
        let config = FastCgiConfig { remote_root: Some("/app".into()), root: Some(folder.path().into()), ..config() };
        let scripts = Scripts::open(&config, None, SymlinkPolicy::WithinRoot).unwrap();
        for (path, expected) in [
            ("/index.php", "/app/index.php /index.php "),
            ("/index.php/", "/app/index.php /index.php /"),
            ("/index.php/a%20b/.c", "/app/index.php /index.php /a b/.c"),
            ("/index.php/other.php", "/app/index.php /index.php /other.php"),
            ("/a%20b.php", "/app/a b.php /a b.php "),
            ("/x/../index.php", "/app/index.php /index.php "),
            ("/", "/app/index.php /index.php "),
            ("/link.php", "/app/link.php /link.php "),
            ("/sub/dir.php/x.php/i", "/app/sub/dir.php/x.php /sub/dir.php/x.php /i"),
            ("/sub/", "404"),
            ("/sub/dir.php", "404"),
            ("/sub/dir.php/", "404"),
            ("/uploads/cat.jpg/x.php", "404"),
            ("/uploads/cat.jpg", "404"),
            ("/uploads/cat.jpg%00.php", "404"),
            ("/data.txt", "404"),
            ("/page.phtml", "404"),
            ("/index.PHP", "404"),
            ("/none.php", "404"),
            ("/none/index.php", "404"),
            ("/.env.php", "404"),
            ("/escape.php", "404"),
            ("/../index.php", "404"),
            ("/%2e%2e/index.php", "404"),
            ("/index.php%2fx", "404"),
            ("/index.php%00", "404"),
            ("index.php", "404"),
        ] {
            assert_eq!(shown(scripts.find(path)), expected, "{path}");
        }
        // A link leads to a file with another name, and the name that was asked for counts.
        assert_eq!(shown(scripts.find("/text.php")), "/app/text.php /text.php ");
    }

    #[test]
    fn nothing_is_looked_for_where_only_the_application_has_the_scripts() {
        let config = FastCgiConfig { root: None, remote_root: Some("/var/www/html".into()), ..config() };
        let scripts = Scripts::open(&config, Some(Path::new("/no/such/root")), SymlinkPolicy::WithinRoot).unwrap();
        assert!(!scripts.is_here());
        for (path, expected) in [
            ("/a/b.php/c", "/var/www/html/a/b.php /a/b.php /c"),
            ("/a/", "/var/www/html/a/index.php /a/index.php "),
            ("/a", "404"),
            ("/a/b.txt", "404"),
            ("/.git/x.php", "404"),
        ] {
            assert_eq!(shown(scripts.find(path)), expected, "{path}");
        }
        let error =
            Scripts::open(&FastCgiConfig { remote_root: None, root: None, ..config }, None, SymlinkPolicy::Never);
        assert!(error.unwrap_err().to_string().contains("no directory"));
    }
}
