//! The field `Connection` (RFC 9110, section 7.6.1).

use http::{HeaderMap, HeaderName, header::CONNECTION};

/// The options of `Connection`.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) upgrade: bool,
    /// Other fields that are hop-by-hop.
    pub(crate) named: Vec<HeaderName>,
}

/// Removes `Connection` and the fields that it names.
pub fn remove_connection_fields(headers: &mut HeaderMap) {
    for name in take_connection(headers).named {
        headers.remove(name);
    }
}

/// Removes `Connection` and returns its options.
pub(crate) fn take_connection(headers: &mut HeaderMap) -> Options {
    let mut options = Options::default();
    for value in headers.get_all(CONNECTION) {
        for option in value.as_bytes().split(|&byte| byte == b',') {
            let option = option.trim_ascii();
            if option.eq_ignore_ascii_case(b"keep-alive") || option.eq_ignore_ascii_case(b"close") {
                continue;
            }
            if option.eq_ignore_ascii_case(b"upgrade") {
                options.upgrade = true;
            } else if let Ok(name) = HeaderName::from_bytes(option) {
                options.named.push(name);
            }
        }
    }
    headers.remove(CONNECTION);
    options
}
