//! The head of a request as it is passed on. Hop-by-hop fields are removed, fields about the client added
//! (both by [`heads`]), and the framing is made new.
//!
//! The framing of a request follows from its body; the client's `Content-Length` and `Transfer-Encoding` are
//! never passed on. `Expect` is passed on only where the body is not here yet. Otherwise this server answers it.

use std::io;

use bodies::RequestBody;
use heads::{
    ClientFields, Kept, has_grpc_type, is_hop_by_hop, join_cookies, passes, prepare_request, remove_client_fields,
    tells_of_client, via,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version,
    header::{CONTENT_LENGTH, COOKIE, EXPECT, HOST, TE, TRAILER, UPGRADE, VIA},
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body::Body as _;
use http1::{Coding, write_field, write_length};

use crate::{
    request::{Ask, Outbound},
    websocket::Handshake,
};

/// A request that passed through this proxy more often than this is in a loop.
const MOST_PASSES: usize = 8;

/// The parts of a request's head, except its fields, that are the same for every attempt.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) method: Method,
    path: PathAndQuery,
    /// The host that the upstream sees; `None`: the server's own.
    host: Option<HeaderValue>,
    /// The protocols that the client asks to upgrade to.
    pub(crate) upgrade: Option<HeaderValue>,
    /// The handshake, if that is a WebSocket.
    pub(crate) websocket: Option<Handshake>,
    /// Whether the client waits until the server wants the body.
    pub(crate) expects: bool,
    /// Whether it is a call of gRPC, which needs HTTP/2 and trailers.
    pub(crate) is_grpc: bool,
    /// Whether the client accepts trailers.
    trailers: bool,
    framing: Framing,
    /// Fields that are not yet in the header map. HTTP/1.1 writes them directly, which saves inserting them.
    proxy_fields: Option<ProxyFields>,
}

/// The fields about the client and about this proxy.
#[derive(Clone, Debug)]
struct ProxyFields {
    via: HeaderValue,
    client: ClientFields,
}

impl ProxyFields {
    fn for_each(&self, mut add: impl FnMut(&HeaderName, &HeaderValue)) {
        add(&VIA, &self.via);
        self.client.for_each(add);
    }
}

/// How the body is framed over HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// No body, and no field about one.
    None,
    /// A body of known length, which may be 0.
    Length(u64),
    Chunked,
}

/// Which special fields a request has. One pass over all names is cheaper than a look-up for each special
/// field.
#[derive(Clone, Copy, Debug, Default)]
struct SpecialFields {
    via: bool,
    length: bool,
    cookies: bool,
    hop_by_hop: bool,
    tells_of_client: bool,
}

impl SpecialFields {
    fn of(headers: &HeaderMap) -> Self {
        let mut special = Self::default();
        for name in headers.keys() {
            special.via |= *name == VIA;
            special.length |= *name == CONTENT_LENGTH;
            special.cookies |= *name == COOKIE;
            special.hop_by_hop |= is_hop_by_hop(name);
            special.tells_of_client |= tells_of_client(name);
        }
        special
    }
}

/// Why a request is not passed on.
#[derive(Debug)]
pub(crate) enum NotForwardable {
    /// It has passed through this server too often; how often.
    Loops(usize),
    /// It cannot be expressed in a message to the upstream.
    Inexpressible(io::Error),
}

/// Prepares the head of a request for any server of its upstream.
pub(crate) fn request(request: Outbound, ask: &Ask<'_>) -> Result<(Head, HeaderMap, RequestBody), NotForwardable> {
    let Outbound { method, path, version, mut headers, body } = request;
    let special = SpecialFields::of(&headers);
    if special.via {
        let times = passes(&headers);
        if times > MOST_PASSES {
            return Err(NotForwardable::Loops(times));
        }
    }
    let refused =
        |what: &str| Err(NotForwardable::Inexpressible(io::Error::new(io::ErrorKind::InvalidInput, what.to_owned())));
    if method == Method::CONNECT {
        return refused("CONNECT is for proxies of another kind");
    }
    // A client that waits is asked for a body that is kept here as soon as it is read. Of any other, the server decides.
    let expects = matches!(body, RequestBody::Streamed(_))
        && headers.get(EXPECT).is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let Kept { upgrade, trailers } = if special.hop_by_hop { prepare_request(&mut headers) } else { Kept::default() };
    // HTTP/2 has these fields only where this server has put them in (RFC 8441).
    let upgrade = upgrade.filter(|_| version != Version::HTTP_10 && matches!(body, RequestBody::Empty));
    if special.tells_of_client {
        remove_client_fields(&mut headers, ask.believed);
    }
    let client = ask.client.fields(ask.scheme, ask.host);
    let mut proxy_fields = Some(ProxyFields { via: via(version), client });
    if let Some(ProxyFields { via, client }) = proxy_fields.take_if(|_| ask.believed.is_some() || ask.rules.is_some()) {
        // A trusted proxy sent fields about the client too, and header rules may name any field, so the map
        // gets them now.
        headers.append(VIA, via);
        client.append_to(&mut headers);
    }
    let mut host = None;
    if ask.keep_host && !ask.host.is_empty() {
        let Ok(value) = HeaderValue::from_str(ask.host) else { return refused("the host is no field value") };
        host = Some(value);
    }
    if let Some(rules) = ask.rules {
        // A `Host` field present after the rules was set by them, not by the client.
        headers.remove(HOST);
        rules.apply_to_request(&mut headers, ask.client_ip);
        // Header rules cannot set the framing or hop-by-hop fields.
        prepare_request(&mut headers);
        if let Some(value) = headers.remove(HOST) {
            host = Some(value);
        }
    }
    if special.cookies || ask.rules.is_some() {
        join_cookies(&mut headers);
    }
    let is_grpc = version == Version::HTTP_2 && method == Method::POST && has_grpc_type(&headers);
    let framing = match body.len_bytes() {
        None if body.is_end_stream() => Framing::Length(0),
        None => Framing::Chunked,
        Some(0) if special.length || matches!(method, Method::POST | Method::PUT | Method::PATCH) => Framing::Length(0),
        Some(0) => Framing::None,
        // Only a chunked body can have trailers.
        Some(_) if headers.contains_key(TRAILER) => Framing::Chunked,
        Some(length) => Framing::Length(length),
    };
    let trailers = trailers || is_grpc;
    let is_websocket = upgrade.as_ref().is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let websocket = if is_websocket { Handshake::of(&mut headers, version) } else { None };
    Ok((
        Head { method, path, host, upgrade, websocket, expects, is_grpc, trailers, framing, proxy_fields },
        headers,
        body,
    ))
}

impl Head {
    /// Writes the head for an HTTP/1.1 server, with these fields.
    pub(crate) fn write(&self, headers: &HeaderMap, own_host: &HeaderValue, out: &mut Vec<u8>) {
        out.extend_from_slice(self.method.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.path.as_str().as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        write_field(&HOST, self.host.as_ref().unwrap_or(own_host), out);
        for (name, value) in headers.iter().filter(|(name, _)| **name != HOST) {
            write_field(name, value, out);
        }
        if let Some(fields) = &self.proxy_fields {
            fields.for_each(|name, value| write_field(name, value, out));
        }
        out.extend_from_slice(match (&self.upgrade, self.trailers) {
            (Some(_), true) => b"connection: upgrade, te\r\n",
            (Some(_), false) => b"connection: upgrade\r\n",
            (None, true) => b"connection: te\r\n",
            (None, false) => b"",
        });
        if let Some(protocols) = &self.upgrade {
            write_field(&UPGRADE, protocols, out);
        }
        if self.trailers {
            out.extend_from_slice(b"te: trailers\r\n");
        }
        if self.expects {
            out.extend_from_slice(b"expect: 100-continue\r\n");
        }
        match self.framing {
            Framing::None => {}
            Framing::Length(length) => write_length(length, out),
            Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The framing of the body over HTTP/1.1.
    pub(crate) fn coding(&self) -> Coding {
        match self.framing {
            Framing::None | Framing::Length(0) => Coding::None,
            Framing::Length(length) => Coding::Length(length),
            Framing::Chunked => Coding::Chunked { trailers: true },
        }
    }

    /// The request for an HTTP/2 server.
    pub(crate) fn request<B>(
        &self,
        mut headers: HeaderMap,
        body: B,
        tls: bool,
        authority: &Authority,
    ) -> io::Result<Request<B>> {
        headers.remove(HOST);
        if let Some(fields) = &self.proxy_fields {
            fields.for_each(|name, value| {
                headers.append(name, value.clone());
            });
        }
        if self.trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        if self.expects {
            headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        let authority = match &self.host {
            Some(host) => Authority::try_from(host.as_bytes())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("host: {error}")))?,
            None => authority.clone(),
        };
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
        uri.authority = Some(authority);
        uri.path_and_query = Some(self.path.clone());
        let uri = Uri::from_parts(uri).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

#[cfg(test)]
mod tests;
