//! Finds the program that a path names, and the rest of the path. Blocks.

use std::{
    ffi::OsString,
    io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::PermissionsExt as _,
    },
    path::{Path, PathBuf},
};

use crate::error::CgiError;
use files::{Node, RequestPath, Root, SymlinkPolicy};

/// The programs of a route.
#[derive(Debug)]
pub(super) enum Programs {
    /// A directory of programs. Links in it may lead only to files within it.
    Directory { root: Root, path: PathBuf },
    /// One program for all paths.
    Single(PathBuf),
}

/// A program that was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// The part of the decoded path that names the program.
    pub(super) script_name: Vec<u8>,
    /// The rest of the path: empty, or starting with a slash.
    pub(super) path_info: Vec<u8>,
}

impl Programs {
    pub(super) fn open(program: &Path, interpreted: bool) -> io::Result<Self> {
        let wrong =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot run {}: {error}", program.display()));
        // Made absolute, so that a change of the working directory has no effect. Links are kept, because
        // they may be switched.
        let path = std::path::absolute(program).map_err(wrong)?;
        let metadata = std::fs::metadata(&path).map_err(wrong)?;
        if metadata.is_dir() {
            return Ok(Self::Directory { root: Root::open(&path, SymlinkPolicy::WithinRoot)?, path });
        }
        if !metadata.is_file() {
            return Err(wrong(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a directory")));
        }
        if !interpreted && metadata.permissions().mode() & 0o111 == 0 {
            return Err(wrong(io::Error::new(io::ErrorKind::PermissionDenied, "it is not executable (chmod +x)")));
        }
        Ok(Self::Single(path))
    }

    /// Finds the program that a path names behind the prefix of its route.
    pub(super) fn find(&self, path: &str, prefix: &[u8], interpreted: bool) -> Result<Found, CgiError> {
        let path = RequestPath::parse(path).map_err(|_| CgiError::NotFound)?;
        let mut decoded = Vec::with_capacity(path.relative().as_os_str().len() + 2);
        decoded.push(b'/');
        decoded.extend_from_slice(path.relative().as_os_str().as_bytes());
        if path.directory() && decoded.len() > 1 {
            decoded.push(b'/');
        }
        // The slash after the prefix belongs to the rest.
        let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
        let rest =
            decoded.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest[0] == b'/').ok_or(CgiError::NotFound)?;
        match self {
            Self::Single(program) => {
                Ok(Found { path: program.clone(), script_name: prefix.to_vec(), path_info: rest.to_vec() })
            }
            Self::Directory { root, path } => {
                root.refresh();
                let (program, info) = rest.split_at(within(root, rest, interpreted)?);
                Ok(Found {
                    path: path.join(OsString::from_vec(program[1..].to_vec())),
                    script_name: [prefix, program].concat(),
                    path_info: info.to_vec(),
                })
            }
        }
    }
}

/// The length of the part of `/a/b/c` that names a program.
fn within(root: &Root, rest: &[u8], interpreted: bool) -> Result<usize, CgiError> {
    let mut end = 0;
    while let Some(b'/') = rest.get(end) {
        let start = end + 1;
        end = start + memchr::memchr(b'/', &rest[start..]).unwrap_or(rest.len() - start);
        // A directory is no program, and hidden files are never found.
        if start == end || rest[start] == b'.' {
            return Err(CgiError::NotFound);
        }
        match root.find(Path::new(std::ffi::OsStr::from_bytes(&rest[1..end]))) {
            Ok(Node::File(_, metadata)) if interpreted || metadata.permissions().mode() & 0o111 != 0 => return Ok(end),
            Ok(Node::File(..)) => return Err(CgiError::Forbidden),
            Ok(Node::Directory(_) | Node::ClosedDirectory) => {}
            Err(error) => return Err(CgiError::of_look(error)),
        }
    }
    Err(CgiError::NotFound)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn make(path: &Path, mode: u32) {
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn shown(found: Result<Found, CgiError>) -> String {
        match found {
            Ok(found) => {
                let text = |bytes| String::from_utf8(bytes).unwrap();
                format!("{} {}", text(found.script_name), text(found.path_info))
            }
            Err(error) => error.status().as_u16().to_string(),
        }
    }

    #[test]
    fn a_program_is_found_in_its_directory_and_nowhere_else() {
        let outside = tempfile::tempdir().unwrap();
        make(&outside.path().join("secret"), 0o755);
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        make(&at("one"), 0o755);
        make(&at("sub/two words"), 0o700);
        make(&at("data"), 0o644);
        make(&at(".hidden"), 0o755);
        symlink("one", at("link")).unwrap();
        symlink(outside.path().join("secret"), at("escape")).unwrap();
        symlink(outside.path(), at("way")).unwrap();
        let programs = Programs::open(folder.path(), false).unwrap();
        for (path, expected) in [
            ("/cgi-bin/one", "/cgi-bin/one "),
            ("/cgi-bin/one/", "/cgi-bin/one /"),
            ("/cgi-bin/one/a%20b/.c", "/cgi-bin/one /a b/.c"),
            ("/cgi-bin/%6fne/x", "/cgi-bin/one /x"),
            ("/cgi-bin//one", "/cgi-bin/one "),
            ("/cgi-bin/x/../one", "/cgi-bin/one "),
            ("/cgi-bin/sub/two%20words/i", "/cgi-bin/sub/two words /i"),
            ("/cgi-bin/link", "/cgi-bin/link "),
            ("/cgi-bin/data", "403"),
            ("/cgi-bin/.hidden", "404"),
            ("/cgi-bin/escape", "404"),
            ("/cgi-bin/way/secret", "404"),
            ("/cgi-bin/sub", "404"),
            ("/cgi-bin/sub/", "404"),
            ("/cgi-bin/", "404"),
            ("/cgi-bin", "404"),
            ("/cgi-bin/none", "404"),
            ("/cgi-bin/one%2fx", "404"),
            ("/cgi-bin/one%00", "404"),
            ("/cgi-bin/../one", "404"),
            ("/cgi-bin/%2e%2e/%2e%2e/%2e%2e/bin/sh", "404"),
            ("/cgi-binone", "404"),
            ("/other/one", "404"),
        ] {
            assert_eq!(shown(programs.find(path, b"/cgi-bin", false)), expected, "{path}");
            assert_eq!(shown(programs.find(path, b"/cgi-bin/", false)), expected, "{path}");
        }
        assert_eq!(shown(programs.find("/one/x", b"", false)), "/one /x");
        assert_eq!(shown(programs.find("/one/x", b"/", false)), "/one /x");
        assert_eq!(shown(programs.find("/data", b"", true)), "/data ", "an interpreter needs no executable");
        assert_eq!(programs.find("/one", b"", false).unwrap().path, at("one"));
    }

    #[test]
    fn a_single_program_has_all_paths() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app");
        make(&path, 0o755);
        let programs = Programs::open(&path, false).unwrap();
        assert_eq!(shown(programs.find("/app/x/y", b"/app", false)), "/app /x/y");
        assert_eq!(shown(programs.find("/app", b"/app", false)), "/app ");
        assert_eq!(shown(programs.find("/x/", b"", false)), " /x/");
    }

    #[test]
    fn what_cannot_be_run_is_refused_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        make(&path, 0o644);
        assert!(Programs::open(&path, false).unwrap_err().to_string().contains("chmod +x"));
        Programs::open(&path, true).expect("an interpreter needs no executable");
        let missing = Programs::open(&folder.path().join("none"), false).unwrap_err();
        assert!(missing.kind() == io::ErrorKind::NotFound && missing.to_string().contains("none"));
        assert!(Programs::open(Path::new("/dev/null"), false).unwrap_err().to_string().contains("neither"));
    }
}
