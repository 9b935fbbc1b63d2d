//! MIME types by file extension.

use std::{collections::HashMap, ffi::OsStr, io, os::unix::ffi::OsStrExt, path::Path};

use http::HeaderValue;

/// The operator's types, before the built-in table.
#[derive(Clone, Debug, Default)]
pub struct ContentTypes {
    by_extension: HashMap<String, HeaderValue>,
}

impl ContentTypes {
    /// Takes (extension in lower case without dot, type). The operator's types are sent unchanged.
    ///
    /// # Errors
    /// A type cannot stand in a header.
    pub fn new(given: &[(String, String)]) -> io::Result<Self> {
        let by_extension = given
            .iter()
            .map(|(extension, kind)| match HeaderValue::from_str(kind) {
                Ok(value) => Ok((extension.to_ascii_lowercase(), value)),
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("the MIME type {kind:?} for the extension {extension:?} cannot stand in a header"),
                )),
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { by_extension })
    }

    /// The type of a file. Text is declared to be UTF-8. XML is not, because it declares its own encoding,
    /// which a charset here would override (RFC 7303). An unknown extension gives `application/octet-stream`.
    pub fn of(&self, file: &Path) -> HeaderValue {
        let extension = file.extension().map(OsStr::as_bytes).and_then(|bytes| str::from_utf8(bytes).ok());
        let Some(extension) = extension.map(str::to_ascii_lowercase) else { return unknown() };
        if let Some(given) = self.by_extension.get(&extension) {
            return given.clone();
        }
        // Types newer than the table, or commonly used instead of the table's.
        let kind = match extension.as_str() {
            "mjs" => "text/javascript",
            "ico" => "image/vnd.microsoft.icon",
            "toml" | "yaml" | "yml" => "text/plain",
            "map" => "application/json",
            other => mime_guess::from_ext(other).first_raw().unwrap_or("application/octet-stream"),
        };
        if kind.starts_with("text/") && kind != "text/xml" {
            HeaderValue::from_str(&format!("{kind}; charset=utf-8")).unwrap_or_else(|_| unknown())
        } else {
            HeaderValue::from_static(kind)
        }
    }
}

fn unknown() -> HeaderValue {
    HeaderValue::from_static("application/octet-stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_follow_the_extension() {
        let types = ContentTypes::default();
        for (name, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("INDEX.HTM", "text/html; charset=utf-8"),
            ("a/b.css", "text/css; charset=utf-8"),
            ("app.js", "text/javascript; charset=utf-8"),
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("notes.txt", "text/plain; charset=utf-8"),
            ("data.json", "application/json"),
            ("feed.xml", "text/xml"),
            ("logo.svg", "image/svg+xml"),
            ("photo.jpeg", "image/jpeg"),
            ("photo.avif", "image/avif"),
            ("font.woff2", "font/woff2"),
            ("code.wasm", "application/wasm"),
            ("clip.mp4", "video/mp4"),
            ("site.webmanifest", "application/manifest+json"),
            ("release.tar.gz", "application/gzip"),
            ("README", "application/octet-stream"),
            (".html", "application/octet-stream"),
            ("odd.zzzz", "application/octet-stream"),
        ] {
            assert_eq!(types.of(Path::new(name)), expected, "{name}");
        }
    }

    #[test]
    fn the_operator_has_the_first_word() {
        let types =
            ContentTypes::new(&[("md".into(), "text/html; charset=latin1".into()), ("zzzz".into(), "a/b".into())]);
        let types = types.unwrap();
        assert_eq!(types.of(Path::new("x.MD")), "text/html; charset=latin1");
        assert_eq!(types.of(Path::new("x.zzzz")), "a/b");
        let error = ContentTypes::new(&[("x".into(), "a\nb".into())]).unwrap_err();
        assert!(error.to_string().contains("\"x\""), "{error}");
    }
}
