//! The fields that tell upstreams about the client: `X-Forwarded-*` and `Forwarded` (RFC 7239).

use std::{borrow::Cow, net::IpAddr, sync::Arc};

use bytes::{BufMut as _, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, header::FORWARDED};
use parking_lot::Mutex;

use super::{Ask, head::set};
use crate::config::ForwardedField;

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// A client's address as upstreams see it, formatted once for all requests of a connection. An IPv4 address
/// mapped into IPv6 is written as IPv4.
#[derive(Debug)]
pub struct ClientAddress {
    text: Cow<'static, str>,
    value: HeaderValue,
    /// The field values of the last request. Most connections ask for only one host.
    told: Mutex<Option<Arc<Told>>>,
}

/// The field values about a client that asks for one host.
#[derive(Debug)]
pub(super) struct Told {
    address: HeaderValue,
    scheme: HeaderValue,
    /// Empty: the host is not known.
    host: HeaderValue,
    forwarded: HeaderValue,
}

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> Self {
        let text = address.to_canonical().to_string();
        // The text consists of digits, dots and colons, so it is a valid field value.
        let value = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("unknown"));
        Self { text: text.into(), value, told: Mutex::new(None) }
    }
}

impl ClientAddress {
    #[cfg(test)]
    pub(super) const fn from_static(text: &'static str) -> Self {
        Self { text: Cow::Borrowed(text), value: HeaderValue::from_static(text), told: Mutex::new(None) }
    }

    /// The field values for this host; `None` if it is not a valid field value.
    fn told(&self, scheme: &str, host: &str) -> Option<Arc<Told>> {
        let mut last = self.told.lock();
        if let Some(told) = &*last
            && told.host == host
            && told.scheme == scheme
        {
            return Some(told.clone());
        }
        let told = Arc::new(Told {
            address: self.value.clone(),
            scheme: HeaderValue::from_str(scheme).ok()?,
            host: HeaderValue::from_str(host).ok()?,
            forwarded: HeaderValue::from_maybe_shared(self.forwarded(scheme, host).freeze()).ok()?,
        });
        *last = Some(told.clone());
        Some(told)
    }

    fn forwarded(&self, scheme: &str, host: &str) -> BytesMut {
        let mut text = BytesMut::with_capacity(64 + host.len());
        let (open, close): (&[u8], &[u8]) = if self.text.contains(':') { (b"for=\"[", b"]\"") } else { (b"for=", b"") };
        text.put_slice(open);
        text.put_slice(self.text.as_bytes());
        text.put_slice(close);
        if !host.is_empty() {
            text.put_slice(b";host=");
            put_token_or_string(&mut text, host);
        }
        text.put_slice(b";proto=");
        text.put_slice(scheme.as_bytes());
        text
    }
}

/// The fields to add about a client.
#[derive(Debug)]
pub(super) enum Fields {
    All(Arc<Told>),
    /// Only the address: the requested host is not a valid field value.
    Address(HeaderValue),
}

impl Fields {
    pub(super) fn of(ask: &Ask<'_>) -> Self {
        let told = ask.client.told(ask.scheme, ask.host);
        told.map_or_else(|| Self::Address(ask.client.value.clone()), Self::All)
    }

    pub(super) fn each(&self, mut tell: impl FnMut(&HeaderName, &HeaderValue)) {
        let Told { address, scheme, host, forwarded } = match self {
            Self::All(told) => &**told,
            Self::Address(address) => return tell(&X_FORWARDED_FOR, address),
        };
        tell(&X_FORWARDED_FOR, address);
        tell(&FORWARDED, forwarded);
        tell(&X_FORWARDED_PROTO, scheme);
        if !host.is_empty() {
            tell(&X_FORWARDED_HOST, host);
        }
    }
}

/// Adds the fields behind those of a trusted proxy.
pub(super) fn tell_behind(headers: &mut HeaderMap, fields: &Fields) {
    fields.each(|name, value| {
        if *name == X_FORWARDED_FOR || *name == FORWARDED {
            append(headers, name.clone(), value);
        } else if !headers.contains_key(name) {
            headers.insert(name, value.clone());
        }
    });
}

/// Takes out all that upstreams and programs take for a proxy's word, but for the field that is believed.
/// `X-Forwarded-For` is believed with its whole family (`-Proto`, `-Host`, ...). A spelling with `_`, which is the
/// same to CGI and WSGI programs, is never believed.
pub(crate) fn forget_client(headers: &mut HeaderMap, believed: Option<ForwardedField>) {
    let stays = |name: &HeaderName| match believed {
        Some(ForwardedField::XForwardedFor) => {
            name.as_str().starts_with("x-forwarded-") && !name.as_str().contains('_')
        }
        Some(ForwardedField::Forwarded) => *name == FORWARDED,
        None => false,
    };
    let found: Vec<HeaderName> = headers.keys().filter(|name| tells_of_client(name) && !stays(name)).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

/// Whether upstreams read a field as a proxy's statement about the client.
pub(super) fn tells_of_client(name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    let is = |expected: &str, name: &[u8]| {
        name.len() == expected.len()
            && name
                .iter()
                .zip(expected.bytes())
                .all(|(&byte, expected)| byte == expected || byte == b'_' && expected == b'-')
    };
    match name.first() {
        Some(b'f') => is("forwarded", name),
        Some(b'x') => is("x-forwarded", &name[..name.len().min(11)]) || is("x-real-ip", name),
        _ => false,
    }
}

/// Joins the values of a field into one and appends another value.
fn append(headers: &mut HeaderMap, name: HeaderName, last: &HeaderValue) {
    let mut text = BytesMut::new();
    for value in headers.get_all(&name) {
        if !value.is_empty() {
            text.put_slice(value.as_bytes());
            text.put_slice(b", ");
        }
    }
    text.put_slice(last.as_bytes());
    set(headers, name, &mut text);
}

fn put_token_or_string(text: &mut BytesMut, value: &str) {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if value.bytes().all(is_token) {
        text.put_slice(value.as_bytes());
        return;
    }
    text.put_u8(b'"');
    for byte in value.bytes() {
        if matches!(byte, b'"' | b'\\') {
            text.put_u8(b'\\');
        }
        text.put_u8(byte);
    }
    text.put_u8(b'"');
}
