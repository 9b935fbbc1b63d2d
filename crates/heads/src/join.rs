//! Several values of a field joined into one.

use bytes::{BufMut as _, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, header::COOKIE};

/// Joins the values of a field and a last one into a single value, separated by commas.
pub(crate) fn append_to_list(headers: &mut HeaderMap, name: HeaderName, last: &HeaderValue) {
    let mut text = BytesMut::new();
    for value in headers.get_all(&name) {
        if !value.is_empty() {
            text.put_slice(value.as_bytes());
            text.put_slice(b", ");
        }
    }
    text.put_slice(last.as_bytes());
    set(headers, name, text);
}

/// Joins several `Cookie` fields, which only HTTP/2 allows (RFC 9113, section 8.2.3), into one.
pub fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).iter();
    if crumbs.next().is_none() || crumbs.next().is_none() {
        return;
    }
    let mut whole = BytesMut::new();
    for crumb in headers.get_all(COOKIE) {
        if !whole.is_empty() {
            whole.put_slice(b"; ");
        }
        whole.put_slice(crumb.as_bytes());
    }
    set(headers, COOKIE, whole);
}

/// Sets a field to a text composed of field values.
fn set(headers: &mut HeaderMap, name: HeaderName, text: BytesMut) {
    match HeaderValue::from_maybe_shared(text.freeze()) {
        Ok(value) => {
            headers.insert(name, value);
        }
        Err(_) => {
            headers.remove(name);
        }
    }
}
