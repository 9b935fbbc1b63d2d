//! Fields and first lines: the parts of a head that requests and responses have in common.

use std::ops::Range;

use http::{HeaderName, HeaderValue, StatusCode, Version};

/// The options of `Connection` that concern the connection itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionOptions {
    pub(crate) close: bool,
    keep_alive: bool,
}

impl ConnectionOptions {
    /// Reads one field value. Returns whether every option in it is known here: other options name fields.
    pub(crate) fn read(&mut self, value: &[u8]) -> bool {
        // The most frequent value.
        if value == b"keep-alive" {
            self.keep_alive = true;
            return true;
        }
        let mut all = true;
        for option in value.split(|&byte| byte == b',') {
            match option.trim_ascii() {
                option if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                option if option.eq_ignore_ascii_case(b"close") => self.close = true,
                _ => all = false,
            }
        }
        all
    }

    /// Whether the connection stays after a message of this version (RFC 9112, section 9.3).
    pub(crate) fn keep(self, version: Version) -> bool {
        !self.close && (version == Version::HTTP_11 || self.keep_alive)
    }
}

/// The largest length of a body. Servers count in signed numbers, and may take a larger one for something else.
const MAX_LENGTH_BYTES: u64 = i64::MAX as u64;

/// Reads a `Content-Length`: digits only, no sign, no list, no white space within.
pub(crate) fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok().filter(|length| *length <= MAX_LENGTH_BYTES)
}

/// Whether a field value holds a control character other than the tab (RFC 9110, section 5.5).
pub fn has_control_byte(value: &[u8]) -> bool {
    // Always to the end, so that the compiler can compare many bytes at once.
    value.iter().fold(false, |found, &byte| found | (byte < 0x20 && byte != b'\t') | (byte == 0x7f))
}

/// The range of the value in a field line: after the colon, without the white space around it (RFC 9112,
/// section 5).
pub(crate) fn value_in(line: &[u8], colon: usize) -> Range<usize> {
    let blanks = |byte: &&u8| matches!(byte, b' ' | b'\t');
    let start = colon + 1 + line[colon + 1..].iter().take_while(blanks).count();
    start..line.len() - line[start..].iter().rev().take_while(blanks).count()
}

/// Whether a `TE` says that trailers are welcome (RFC 9110, section 10.1.4).
pub fn welcomes_trailers(value: &[u8]) -> bool {
    value.split(|&byte| byte == b',').any(|coding| {
        coding.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii().eq_ignore_ascii_case(b"trailers")
    })
}

/// Writes the first line of a response.
pub fn write_status_line(version: Version, status: StatusCode, out: &mut Vec<u8>) {
    out.extend_from_slice(if version == Version::HTTP_10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes `Content-Length`.
pub fn write_length(bytes: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"content-length: ");
    out.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes a field.
pub fn write_field(name: &HeaderName, value: &HeaderValue, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}
