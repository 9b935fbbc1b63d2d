//! Compression of responses while they are sent.

use compression::{Coding, Levels};
use heads::TypePattern;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_the_default_is_one() {
        for kind in CompressionConfig::TYPES {
            assert!(TypePattern::parse(kind).is_some(), "{kind}");
        }
    }
}
