//! A group of clients, prepared: the data common to all of its requests.

use std::{
    collections::{BTreeMap, HashMap},
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use http::{
    HeaderMap, HeaderName, HeaderValue, Uri, Version,
    header::{ACCEPT, USER_AGENT},
    uri::Authority,
};
use workload::{behaviour::Behaviour, sequence::Request};

use super::{
    load::{ClientGroup, Load},
    tls,
    transport::Endpoint,
};
use crate::{LabError, docroot::name};

/// A group, and its free connections.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) endpoint: Endpoint,
    /// Its prefix, by index in [`Sources`].
    pub(super) sources: usize,
    /// Most requests on a connection.
    pub(super) requests_per_connection: u32,
    pub(super) abort_after_ns: Option<u64>,
    pub(super) retries: u16,
    /// Keys of connections that can take a request; the one that became free last is at the end.
    pub(super) free: BTreeMap<u64, usize>,
    /// The fields of every request.
    headers: HeaderMap,
    /// The same fields as HTTP/1.1 text, without `Connection`.
    fields: String,
    authority: Authority,
}

impl Group {
    /// Prepares the group with this number.
    pub(super) fn new(
        number: usize,
        group: &ClientGroup,
        load: &Load<'_>,
        sources: &mut Sources,
    ) -> Result<Self, LabError> {
        let refuse = |why: String| LabError::Request(format!("client group {number}: {why}"));
        let Behaviour { protocol, tls, requests_per_connection, abort_after_s, retries, headers } = &group.behaviour;
        let (server, tls) = match (tls, &load.tls) {
            (false, _) => (load.server, None),
            (true, None) => return Err(refuse("it asks for TLS, and no server with TLS is named".to_owned())),
            (true, Some(server)) => {
                let config = tls::config(server.certificate_der, *protocol)
                    .map_err(|error| refuse(format!("TLS cannot be set up: {error}")))?;
                (server.address, Some(config))
            }
        };
        let abort_after_ns = match *abort_after_s {
            None => None,
            Some(seconds) => match Duration::try_from_secs_f64(seconds) {
                Ok(after) if !after.is_zero() => Some(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)),
                _ => return Err(refuse(format!("abort-after-s must be positive, and is {seconds}"))),
            },
        };
        let headers = parse_headers(headers).map_err(refuse)?;
        let authority =
            Authority::try_from(server.to_string()).map_err(|error| refuse(format!("{server}: {error}")))?;
        Ok(Self {
            endpoint: Endpoint { server, protocol: *protocol, mss_bytes: group.mss_bytes, tls },
            sources: sources.number_of(group.sources),
            requests_per_connection: if *requests_per_connection == 0 { u32::MAX } else { *requests_per_connection },
            abort_after_ns,
            retries: *retries,
            free: BTreeMap::new(),
            fields: fields_of(server, &headers),
            headers,
            authority,
        })
    }

    /// The bytes of an HTTP/1.1 request; `last` closes the connection after it.
    pub(super) fn http1(&self, request: &Request, last: bool) -> Vec<u8> {
        let close = if last { "Connection: close\r\n" } else { "" };
        format!("GET /{} HTTP/1.1\r\n{}{close}\r\n", name(request.file), self.fields).into_bytes()
    }

    /// An HTTP/2 request.
    pub(super) fn http2(&self, request: &Request) -> http::Request<()> {
        let scheme = if self.endpoint.tls.is_some() { "https" } else { "http" };
        let path = format!("/{}", name(request.file));
        let mut head = http::Request::new(());
        *head.version_mut() = Version::HTTP_2;
        *head.headers_mut() = self.headers.clone();
        *head.uri_mut() = Uri::builder()
            .scheme(scheme)
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
            .expect("a scheme, an address and the name of a file make a URI");
        head
    }
}

fn fields_of(server: SocketAddrV4, headers: &HeaderMap) -> String {
    let mut fields = format!("Host: {server}\r\n");
    for (name, value) in headers {
        // The values were checked before.
        fields += &format!("{name}: {}\r\n", value.to_str().unwrap_or_default());
    }
    fields
}

fn parse_headers(headers: &[(String, String)]) -> Result<HeaderMap, String> {
    /// Fields that the client itself must set.
    const OURS: [&str; 8] =
        ["host", "connection", "content-length", "transfer-encoding", "te", "upgrade", "keep-alive", "accept-encoding"];
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let key =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("`{name}` is no name of a header field"))?;
        if OURS.contains(&key.as_str()) {
            return Err(format!(
                "the header field `{name}` is set by the client itself, or would change what is measured"
            ));
        }
        let value = HeaderValue::from_str(value)
            .ok()
            .filter(|value| value.to_str().is_ok())
            .ok_or_else(|| format!("the value of the header field `{name}` is not printable ASCII"))?;
        map.append(key, value);
    }
    for (key, value) in [(USER_AGENT, "serpent-lab"), (ACCEPT, "*/*")] {
        map.entry(key).or_insert(HeaderValue::from_static(value));
    }
    Ok(map)
}

/// The source prefixes of connections, each with the number of sources used so far. Groups may share one.
#[derive(Debug, Default)]
pub(super) struct Sources {
    numbers: HashMap<[u8; 3], usize>,
    used: Vec<([u8; 3], u64)>,
}

impl Sources {
    fn number_of(&mut self, prefix: Ipv4Addr) -> usize {
        let [a, b, c, _] = prefix.octets();
        *self.numbers.entry([a, b, c]).or_insert_with(|| {
            self.used.push(([a, b, c], 0));
            self.used.len() - 1
        })
    }

    /// The source of the next connection from this prefix.
    pub(super) fn next(&mut self, number: usize) -> SocketAddrV4 {
        let (prefix, used) = &mut self.used[number];
        *used += 1;
        source_of(*prefix, *used - 1)
    }
}

/// Address and port of the n-th connection. 250 addresses of the prefix and the ports of each take turns, so
/// that none repeats within 15 million connections.
fn source_of([a, b, c]: [u8; 3], n: u64) -> SocketAddrV4 {
    const ADDRESSES: u64 = 250;
    const FIRST_PORT: u64 = 2_000;
    const PORTS: u64 = 63_000;
    let host = (n % ADDRESSES) as u8 + 1;
    SocketAddrV4::new(Ipv4Addr::new(a, b, c, host), (FIRST_PORT + n / ADDRESSES % PORTS) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_do_not_repeat_soon() {
        let prefix = [10, 10, 0];
        assert_eq!(source_of(prefix, 0), "10.10.0.1:2000".parse().unwrap());
        assert_eq!(source_of(prefix, 249), "10.10.0.250:2000".parse().unwrap());
        assert_eq!(source_of(prefix, 250), "10.10.0.1:2001".parse().unwrap());
        assert_eq!(source_of(prefix, 250 * 63_000 - 1), "10.10.0.250:64999".parse().unwrap());
        assert_eq!(source_of(prefix, 250 * 63_000), source_of(prefix, 0));
    }

    #[test]
    fn groups_that_share_a_prefix_do_not_share_a_port() {
        let mut sources = Sources::default();
        let [a, b, other] = ["10.10.1.0", "10.10.1.7", "10.10.2.0"].map(|ip| sources.number_of(ip.parse().unwrap()));
        let ends = [a, b, other, a].map(|number| sources.next(number).to_string());
        assert_eq!(ends, ["10.10.1.1:2000", "10.10.1.2:2000", "10.10.2.1:2000", "10.10.1.3:2000"]);
    }

    #[test]
    fn headers_are_sent_as_given_and_only_the_clients_own_are_refused() {
        let map = |pairs: &[(&str, &str)]| {
            parse_headers(&pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>())
        };
        let own = map(&[("X-Class", "gold"), ("User-Agent", "me")]).unwrap();
        assert_eq!(
            fields_of("10.0.0.1:80".parse().unwrap(), &own),
            "Host: 10.0.0.1:80\r\nx-class: gold\r\nuser-agent: me\r\naccept: */*\r\n"
        );
        for (name, value) in [("Connection", "close"), ("two words", "x"), ("a", "line\r\nbreak"), ("a", "\u{e9}")] {
            let refusal = map(&[(name, value)]).unwrap_err();
            assert!(refusal.contains(name), "{refusal}");
        }
    }
}
