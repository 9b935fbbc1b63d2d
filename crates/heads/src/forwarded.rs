//! The fields that tell origins about the client: `X-Forwarded-*` and `Forwarded` (RFC 7239).

use std::{net::IpAddr, sync::Arc};

use bytes::{BufMut as _, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, header::FORWARDED};
use parking_lot::Mutex;

use crate::join::append_to_list;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The field in which proxies name their client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedField {
    /// `X-Forwarded-For`, which nearly all proxies write.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// A client's address as upstreams see it, formatted once for all requests of a connection. An IPv4 address
/// mapped into IPv6 is written as IPv4.
#[derive(Debug)]
pub struct ClientAddress {
    text: Box<str>,
    value: HeaderValue,
    /// The field values of the last request. Most connections ask for only one host.
    last: Mutex<Option<Arc<ForwardedValues>>>,
}

/// The field values about a client that asks for one host.
#[derive(Debug)]
struct ForwardedValues {
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
        Self { text: text.into(), value, last: Mutex::new(None) }
    }
}

impl ClientAddress {
    /// The fields about a client that asked for this host with this scheme (`http` or `https`).
    pub fn fields(&self, scheme: &str, host: &str) -> ClientFields {
        let values = self.values(scheme, host);
        ClientFields(values.map_or_else(|| Values::Address(self.value.clone()), Values::All))
    }

    /// The field values for this host; `None` if it is not a valid field value.
    fn values(&self, scheme: &str, host: &str) -> Option<Arc<ForwardedValues>> {
        let mut last = self.last.lock();
        if let Some(values) = &*last
            && values.host == host
            && values.scheme == scheme
        {
            return Some(values.clone());
        }
        let values = Arc::new(ForwardedValues {
            address: self.value.clone(),
            scheme: HeaderValue::from_str(scheme).ok()?,
            host: HeaderValue::from_str(host).ok()?,
            forwarded: HeaderValue::from_maybe_shared(self.forwarded(scheme, host).freeze()).ok()?,
        });
        *last = Some(values.clone());
        Some(values)
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
#[derive(Clone, Debug)]
pub struct ClientFields(Values);

#[derive(Clone, Debug)]
enum Values {
    All(Arc<ForwardedValues>),
    /// Only the address: the requested host is not a valid field value.
    Address(HeaderValue),
}

impl ClientFields {
    /// Calls `add` with each field.
    pub fn for_each(&self, mut add: impl FnMut(&HeaderName, &HeaderValue)) {
        let ForwardedValues { address, scheme, host, forwarded } = match &self.0 {
            Values::All(values) => &**values,
            Values::Address(address) => return add(&X_FORWARDED_FOR, address),
        };
        add(&X_FORWARDED_FOR, address);
        add(&FORWARDED, forwarded);
        add(&X_FORWARDED_PROTO, scheme);
        if !host.is_empty() {
            add(&X_FORWARDED_HOST, host);
        }
    }

    /// Adds the fields to those of a trusted proxy: the address is appended to its list, and its statements
    /// about scheme and host stay.
    pub fn append_to(&self, headers: &mut HeaderMap) {
        self.for_each(|name, value| {
            if *name == X_FORWARDED_FOR || *name == FORWARDED {
                append_to_list(headers, name.clone(), value);
            } else if !headers.contains_key(name) {
                headers.insert(name, value.clone());
            }
        });
    }
}

/// Removes the fields that origins read as a proxy's statement about the client, except the one that is
/// believed. `X-Forwarded-For` is believed with its whole family (`-Proto`, `-Host`, ...). A spelling with `_`,
/// which is the same to CGI and WSGI programs, is never believed.
pub fn remove_client_fields(headers: &mut HeaderMap, believed: Option<ForwardedField>) {
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

/// Whether origins read a field as a proxy's statement about the client.
pub fn tells_of_client(name: &HeaderName) -> bool {
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
