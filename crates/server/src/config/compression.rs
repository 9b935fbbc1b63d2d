//! Compression of responses while they are sent.

use compression::{Coding, Levels};

/// How the responses of a route are compressed.
#[derive(Clone, Debug)]
pub struct CompressionConfig {
    /// The codings, the first one first among those that the client likes equally. Never empty.
    pub codings: Vec<Coding>,
    /// The types that are compressed.
    pub types: Vec<TypePattern>,
    /// Bodies of a known length below this are left as they are.
    pub min_bytes: u64,
    /// The level of each coding.
    pub levels: Levels,
}

impl CompressionConfig {
    /// docs/DEFAULTS.md has the reasons.
    pub const MIN_BYTES: u64 = 1024;

    /// Types that are text by another name. Pictures, films, fonts and archives are compressed already.
    pub const TYPES: &'static [&'static str] = &[
        "text/*",
        "application/javascript",
        "application/json",
        "application/*+json",
        "application/manifest+json",
        "application/xml",
        "application/*+xml",
        "application/wasm",
        "application/vnd.ms-fontobject",
        "font/otf",
        "font/ttf",
        "image/svg+xml",
        "image/x-icon",
        "image/bmp",
    ];
}

/// A media type, as in `text/html`, `text/*` or `application/*+json`, in lower case. One `*` stands for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypePattern {
    before: String,
    /// What follows the `*`; `None`: there is none.
    after: Option<String>,
}

impl TypePattern {
    /// Reads a pattern; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (major, minor) = text.split_once('/')?;
        let is_name = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+*".contains(&byte))
        };
        if !is_name(major) || !is_name(minor) || major.contains('*') || text.matches('*').count() > 1 {
            return None;
        }
        Some(match text.split_once('*') {
            Some((before, after)) => Self { before: before.to_owned(), after: Some(after.to_owned()) },
            None => Self { before: text, after: None },
        })
    }

    /// Whether a value of `Content-Type`, with or without parameters, is of this type.
    pub fn matches(&self, content_type: &str) -> bool {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        let Some(after) = &self.after else { return kind.eq_ignore_ascii_case(&self.before) };
        let (before, after) = (self.before.as_bytes(), after.as_bytes());
        let kind = kind.as_bytes();
        kind.len() >= before.len() + after.len()
            && kind[..before.len()].eq_ignore_ascii_case(before)
            && kind[kind.len() - after.len()..].eq_ignore_ascii_case(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_matched_without_its_parameters_and_in_any_case() {
        let matches = |pattern, kind| TypePattern::parse(pattern).unwrap().matches(kind);
        assert!(matches("text/*", "Text/HTML; charset=utf-8"));
        assert!(matches("application/*+json", "application/problem+json"));
        assert!(matches("application/JSON", "application/json"));
        assert!(!matches("application/json", "application/json5"));
        assert!(!matches("application/*+json", "application/json"));
        assert!(!matches("text/*", "application/text/x"));
        assert!(!matches("text/*", ""));
    }

    #[test]
    fn what_is_no_type_is_refused() {
        for wrong in ["text", "*/*", "text/", "/html", "text/*a*", "text/html; charset=utf-8", "text/h tml"] {
            assert_eq!(TypePattern::parse(wrong), None, "{wrong}");
        }
        for kind in CompressionConfig::TYPES {
            assert!(TypePattern::parse(kind).is_some(), "{kind}");
        }
    }
}
