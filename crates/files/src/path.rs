//! Converts the path of a request to a path below the root: decoded, normalised, and unable to leave the
//! root.
//!
//! - Percent-escapes are decoded once. A broken escape or a NUL answers 400.
//! - `.` and empty segments are removed (so `//a///b` is `/a/b`). `..` removes its parent, also if it came as
//!   `%2e%2e`. One `..` too many answers 400, as with nginx.
//! - An escaped slash (`%2F`) is data, not a delimiter (RFC 3986, section 2.2). No file name can contain one,
//!   so it answers 404.
//! - A backslash is an ordinary character of a file name, and is escaped in all output.
//! - Names are bytes: they need not be UTF-8.

use std::{borrow::Cow, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// A decoded and normalised request path. Its segments are never empty, `.` or `..`, and contain neither a
/// slash nor a NUL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestPath {
    /// Segments joined by `/`, without a leading or trailing slash. Empty for the root.
    relative: Vec<u8>,
    /// Whether a directory was requested: the path ended in a slash or a dot segment, or is the root.
    directory: bool,
}

/// Why a request path names no file. The client is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// It is no path, or has broken escapes, a NUL, or more `..` than parents: 400.
    Invalid,
    /// It has a name that no file can have: 404.
    NoSuchName,
}

/// The characters to escape in a path: all except RFC 3986's `pchar` and the slash.
const PATH: &AsciiSet = &SEGMENT
    .remove(b'/')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// The characters to escape in a name: all except unreserved ones. The result is safe as a relative reference
/// (it cannot look like a scheme) and in HTML.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl RequestPath {
    /// Parses the path component of a request target.
    pub fn parse(raw: &str) -> Result<Self, PathError> {
        Self::read(raw, |name| if name.contains(&b'/') { Err(PathError::NoSuchName) } else { Ok(None) })
    }

    /// Parses a path. `rewrite` gets every decoded name, and may return a replacement for it.
    fn read(
        raw: &str,
        mut rewrite: impl FnMut(&[u8]) -> Result<Option<Vec<u8>>, PathError>,
    ) -> Result<Self, PathError> {
        let raw = raw.as_bytes().strip_prefix(b"/").ok_or(PathError::Invalid)?;
        let mut relative = Vec::with_capacity(raw.len());
        let mut directory = true;
        for segment in raw.split(|byte| *byte == b'/') {
            let start = relative.len();
            if start > 0 {
                relative.push(b'/');
            }
            let name_start = relative.len();
            decode_into(segment, &mut relative)?;
            directory = true;
            match &relative[name_start..] {
                b"" | b"." => relative.truncate(start),
                b".." if start == 0 => return Err(PathError::Invalid),
                b".." => {
                    let parent = relative[..start].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                    relative.truncate(parent);
                }
                name => {
                    directory = false;
                    if let Some(written) = rewrite(name)? {
                        relative.truncate(name_start);
                        relative.extend_from_slice(&written);
                    }
                }
            }
        }
        Ok(Self { relative, directory })
    }

    /// The path below the root; empty for the root itself.
    pub fn relative(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.relative))
    }

    /// Whether a directory was requested.
    pub fn directory(&self) -> bool {
        self.directory
    }

    /// Whether a segment starts with a dot. `/.well-known` at the top does not count (RFC 8615).
    pub fn hidden(&self) -> bool {
        let rest = match self.relative.strip_prefix(b".well-known") {
            Some([]) => return false,
            Some([b'/', rest @ ..]) => rest,
            _ => &self.relative,
        };
        rest.split(|byte| *byte == b'/').any(|name| name.starts_with(b"."))
    }

    /// The canonical spelling of this path. It starts with exactly one slash.
    pub fn canonical(&self) -> String {
        let slash = if self.directory && !self.relative.is_empty() { "/" } else { "" };
        format!("/{}{slash}", percent_encode(&self.relative, PATH))
    }

    /// The path of a name within this directory.
    pub fn join(&self, name: &str) -> Vec<u8> {
        let mut joined = self.relative.clone();
        if !joined.is_empty() {
            joined.push(b'/');
        }
        joined.extend_from_slice(name.as_bytes());
        joined
    }
}

/// The path component of a request target in the form that patterns of routes and rules match. It is decoded,
/// and dot and empty segments are resolved, as for a file. It starts with one slash, and ends in one if it
/// means a directory. `None`: it is no path or not UTF-8, so no pattern matches it.
///
/// Origins other than directories may have names with a slash in them. So `%2F` stays encoded, and so does
/// `%25`, to distinguish the two. A path with dot segments behind an escaped slash is refused: an origin that
/// decodes them would find a different path.
pub fn pattern_path(raw: &str) -> Option<Cow<'_, str>> {
    if is_plain(raw) {
        return Some(Cow::Borrowed(raw));
    }
    let path = RequestPath::read(raw, |name| {
        if !name.iter().any(|byte| matches!(byte, b'/' | b'%')) {
            return Ok(None);
        }
        if name.contains(&b'/') && name.split(|byte| *byte == b'/').any(|part| part == b"." || part == b"..") {
            return Err(PathError::NoSuchName);
        }
        let mut written = Vec::with_capacity(name.len() + 8);
        for byte in name {
            match byte {
                b'/' => written.extend_from_slice(b"%2F"),
                b'%' => written.extend_from_slice(b"%25"),
                other => written.push(*other),
            }
        }
        Ok(Some(written))
    });
    let path = path.ok()?;
    let relative = std::str::from_utf8(&path.relative).ok()?;
    let slash = if path.directory && !relative.is_empty() { "/" } else { "" };
    Some(Cow::Owned(format!("/{relative}{slash}")))
}

/// Whether [`pattern_path`] would leave a path unchanged. It may return false for such a path.
fn is_plain(raw: &str) -> bool {
    let bytes = raw.as_bytes();
    let mut after_slash = false;
    for &byte in bytes {
        match byte {
            b'%' | 0 => return false,
            b'/' | b'.' if after_slash => return false,
            _ => {}
        }
        after_slash = byte == b'/';
    }
    bytes.first() == Some(&b'/')
}

/// Encodes a path from [`pattern_path`], or a part of one, for a request target.
pub fn encode_pattern_path(path: &str) -> Cow<'_, str> {
    const DECODED: &AsciiSet = &PATH.remove(b'%');
    percent_encoding::utf8_percent_encode(path, DECODED).into()
}

/// A file name as a relative reference.
pub(crate) fn encode_segment(name: &[u8]) -> percent_encoding::PercentEncode<'_> {
    percent_encode(name, SEGMENT)
}

fn decode_into(segment: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    let mut bytes = segment.iter();
    while let Some(&byte) = bytes.next() {
        let byte = if byte == b'%' {
            let high = bytes.next().and_then(hex_digit).ok_or(PathError::Invalid)?;
            let low = bytes.next().and_then(hex_digit).ok_or(PathError::Invalid)?;
            high << 4 | low
        } else {
            byte
        };
        if byte == 0 {
            return Err(PathError::Invalid);
        }
        out.push(byte);
    }
    Ok(())
}

fn hex_digit(byte: &u8) -> Option<u8> {
    char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(raw: &str) -> Result<(String, bool), PathError> {
        RequestPath::parse(raw).map(|path| (String::from_utf8_lossy(&path.relative).into_owned(), path.directory))
    }

    #[test]
    fn paths_are_decoded_and_normalised() {
        for (raw, relative, directory) in [
            ("/", "", true),
            ("//", "", true),
            ("/a", "a", false),
            ("/a/", "a", true),
            ("//a///b", "a/b", false),
            ("/a/./b/.", "a/b", true),
            ("/a/../b", "b", false),
            ("/a/b/..", "a", true),
            ("/a/%2E%2e/b", "b", false),
            ("/a/..", "", true),
            ("/a%20b%C3%A9", "a bé", false),
            ("/...", "...", false),
            ("/a\\..\\b", "a\\..\\b", false),
            ("/%25%32%65", "%2e", false),
        ] {
            assert_eq!(seen(raw), Ok((relative.into(), directory)), "{raw}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for raw in ["", "*", "a/b", "/..", "/../etc/passwd", "/a/../../b", "/%2e%2e/x", "/%", "/%4", "/%zz", "/a%00b"] {
            assert_eq!(seen(raw), Err(PathError::Invalid), "{raw}");
        }
    }

    #[test]
    fn an_escaped_slash_is_part_of_a_name_that_cannot_exist() {
        assert_eq!(seen("/a%2fb"), Err(PathError::NoSuchName));
        assert_eq!(seen("/..%2f..%2fetc%2fpasswd"), Err(PathError::NoSuchName));
    }

    #[test]
    fn dot_names_are_hidden_except_well_known_at_the_top() {
        let hidden = |raw| RequestPath::parse(raw).unwrap().hidden();
        assert!(hidden("/.git/config"));
        assert!(hidden("/a/.htaccess"));
        assert!(hidden("/%2egit"));
        assert!(hidden("/a/.well-known"));
        assert!(hidden("/.well-known-not"));
        assert!(hidden("/.well-known/.secret"));
        assert!(!hidden("/.well-known/acme-challenge/x"));
        assert!(!hidden("/.well-known"));
        assert!(!hidden("/a.b/c"));
    }

    #[test]
    fn the_canonical_path_cannot_leave_the_host() {
        let canonical = |raw| RequestPath::parse(raw).unwrap().canonical();
        assert_eq!(canonical("//evil.example/"), "/evil.example/");
        assert_eq!(canonical("/\\evil.example"), "/%5Cevil.example");
        assert_eq!(canonical("/a%0d%0ab"), "/a%0D%0Ab");
        assert_eq!(canonical("/a%3Fb"), "/a%3Fb");
        assert_eq!(canonical("/(x)%7e"), "/(x)~");
        assert_eq!(canonical("/"), "/");
    }

    #[test]
    fn patterns_see_one_spelling_of_a_path() {
        for (raw, seen) in [
            ("/", Some("/")),
            ("/a/b.html", Some("/a/b.html")),
            ("/a/", Some("/a/")),
            ("//a///b", Some("/a/b")),
            ("/a/./b/..", Some("/a/")),
            ("/x/%2e%2E/a%62", Some("/ab")),
            ("/.well-known/x", Some("/.well-known/x")),
            ("/b\u{e9}", Some("/b\u{e9}")),
            ("/b%C3%A9", Some("/b\u{e9}")),
            ("/a%2fb/c", Some("/a%2Fb/c")),
            ("/a%252Fb", Some("/a%252Fb")),
            ("/a%25", Some("/a%25")),
            ("/a%2F..%2Fb", None),
            ("/a%2F.", None),
            ("/..%2fb", None),
            ("/%ff", None),
            ("/%0", None),
            ("/a%00", None),
            ("/..", None),
            ("*", None),
            ("", None),
        ] {
            assert_eq!(pattern_path(raw).as_deref(), seen, "{raw}");
        }
        assert!(matches!(pattern_path("/plain/path.html"), Some(Cow::Borrowed(_))), "nothing to decode: no copy");
        assert_eq!(encode_pattern_path("/a b/c%2Fd%25?\u{e9}"), "/a%20b/c%2Fd%25%3F%C3%A9");
    }

    proptest! {
        #[test]
        fn what_patterns_see_is_stable(
            raw in prop::collection::vec(prop_oneof![
                Just("/".to_owned()), Just(".".to_owned()), Just("..".to_owned()), Just("%2e".to_owned()),
                Just("%2F".to_owned()), Just("%25".to_owned()), Just("%".to_owned()), "[a-z]{1,3}", "%[0-9a-f]{2}", "\\PC",
            ], 0..12).prop_map(|parts| format!("/{}", parts.concat()))
        ) {
            if let Some(path) = pattern_path(&raw) {
                prop_assert!(path.starts_with('/') && !path.contains("//"));
                prop_assert!(!path.split('/').any(|name| name == "." || name == ".."));
                let written = encode_pattern_path(&path);
                let again = pattern_path(&written);
                prop_assert_eq!(again.as_deref(), Some(&*path));
            }
        }

        #[test]
        fn no_path_climbs_and_the_canonical_form_is_stable(
            raw in prop::collection::vec(prop_oneof![
                Just("/".to_owned()), Just(".".to_owned()), Just("..".to_owned()), Just("%2e".to_owned()),
                Just("%2F".to_owned()), Just("\\".to_owned()), Just("%5c".to_owned()), Just("%".to_owned()),
                Just("%00".to_owned()), "[a-z]{1,3}", "%[0-9a-f]{2}", "\\PC",
            ], 0..12).prop_map(|parts| format!("/{}", parts.concat()))
        ) {
            if let Ok(path) = RequestPath::parse(&raw) {
                if !path.relative.is_empty() {
                    for segment in path.relative.split(|byte| *byte == b'/') {
                        prop_assert!(!matches!(segment, b"" | b"." | b".."));
                        prop_assert!(!segment.contains(&0));
                    }
                }
                let canonical = path.canonical();
                prop_assert!(canonical.starts_with('/') && !canonical.starts_with("//"));
                prop_assert!(canonical.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\'));
                prop_assert_eq!(RequestPath::parse(&canonical), Ok(path));
            }
        }
    }
}
