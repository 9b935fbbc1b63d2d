//! gRPC over HTTP/2: which requests are calls, how long their clients wait, and the statuses that end them.

use std::time::Duration;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version,
    header::{CONTENT_TYPE, RETRY_AFTER},
    request::Parts,
};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// When a client may try again. Clients that follow a policy for retries wait for so long.
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const APPLICATION_GRPC: &str = "application/grpc";

/// The names of the statuses, by number.
const NAMES: [&str; GrpcStatus::COUNT] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The status of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcStatus(u8);

impl GrpcStatus {
    /// How many there are.
    pub const COUNT: usize = 17;
    /// The client has left.
    pub const CANCELLED: Self = Self(1);
    /// Nothing is known.
    pub const UNKNOWN: Self = Self(2);
    /// The client's time is over.
    pub const DEADLINE_EXCEEDED: Self = Self(4);
    /// No server answers at the moment.
    pub const UNAVAILABLE: Self = Self(14);

    /// The status among the fields of a response's head or of its trailers.
    pub fn of(fields: &HeaderMap) -> Option<Self> {
        let number: Option<u8> = fields.get(GRPC_STATUS)?.to_str().ok().and_then(|text| text.parse().ok());
        Some(number.and_then(Self::numbered).unwrap_or(Self::UNKNOWN))
    }

    /// The status with this number.
    pub fn numbered(number: u8) -> Option<Self> {
        (usize::from(number) < Self::COUNT).then_some(Self(number))
    }

    /// The status that stands for an answer of HTTP, which this server gives. It is the one that clients would take it for
    /// themselves, with two exceptions: limits of this server are `RESOURCE_EXHAUSTED`, and its own faults `INTERNAL`.
    pub fn of_http(status: StatusCode) -> Self {
        Self(match status {
            StatusCode::BAD_REQUEST | StatusCode::INTERNAL_SERVER_ERROR => 13,
            StatusCode::UNAUTHORIZED => 16,
            StatusCode::FORBIDDEN => 7,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => 12,
            StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::URI_TOO_LONG
            | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            | StatusCode::TOO_MANY_REQUESTS => 8,
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => 14,
            status if status.as_u16() == 499 => 1,
            _ => 2,
        })
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Its name, in capitals.
    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.0)]
    }

    /// Whether the server is at fault rather than the client or the call, as far as the status tells.
    pub fn is_of_server(self) -> bool {
        matches!(
            self.name(),
            "UNKNOWN" | "DEADLINE_EXCEEDED" | "UNIMPLEMENTED" | "INTERNAL" | "UNAVAILABLE" | "DATA_LOSS"
        )
    }

    /// The fields that end a call with this status.
    pub fn fields(self, message: &str) -> HeaderMap {
        let mut fields = HeaderMap::with_capacity(2);
        fields.insert(GRPC_STATUS, HeaderValue::from(u16::from(self.0)));
        if let Ok(message) = HeaderValue::try_from(escaped(message)) {
            fields.insert(GRPC_MESSAGE, message);
        }
        fields
    }

    /// Makes an answer one that clients of gRPC understand: the status of HTTP is 200, and there is no body.
    pub fn write<B: Default>(self, message: &str, response: &mut Response<B>) {
        *response.status_mut() = StatusCode::OK;
        *response.body_mut() = B::default();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(APPLICATION_GRPC));
        if let Some(seconds) = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok()) {
            headers.insert(GRPC_PUSHBACK, HeaderValue::from(seconds.saturating_mul(1000)));
        }
        headers.extend(self.fields(message));
    }
}

/// Whether a request is a call of gRPC. gRPC-Web is plain HTTP.
pub fn is_grpc(parts: &Parts) -> bool {
    parts.version == Version::HTTP_2 && parts.method == Method::POST && has_grpc_type(&parts.headers)
}

/// Whether the type of a message is that of gRPC.
pub fn has_grpc_type(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let Some((kind, rest)) = kind.split_at_checked(APPLICATION_GRPC.len()) else { return false };
    kind.eq_ignore_ascii_case(APPLICATION_GRPC.as_bytes()) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
}

/// How long the client of a call waits; `None`: it does not say.
pub fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&number.len()) || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Writes how long the client of a call still waits, rounded down to what eight digits can say.
pub fn set_grpc_timeout(headers: &mut HeaderMap, left: Duration) {
    const MOST: u128 = 99_999_999;
    let units = [("n", left.as_nanos()), ("u", left.as_micros()), ("m", left.as_millis())];
    let (unit, number) = units.into_iter().find(|(_, number)| *number <= MOST).unwrap_or(("S", left.as_secs().into()));
    if let Ok(value) = HeaderValue::try_from(format!("{}{unit}", number.min(MOST))) {
        headers.insert(GRPC_TIMEOUT, value);
    }
}

/// A message as a field may have it.
fn escaped(message: &str) -> String {
    message.bytes().fold(String::with_capacity(message.len()), |mut text, byte| {
        match byte {
            b'%' | ..0x20 | 0x7f.. => text.push_str(&format!("%{byte:02X}")),
            byte => text.push(char::from(byte)),
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_call_is_known_by_its_method_its_version_and_its_type() {
        let is = |method: Method, version, kind: &str| {
            let request = Request::builder().method(method).version(version).header(CONTENT_TYPE, kind);
            is_grpc(&request.body(()).unwrap().into_parts().0)
        };
        for (kind, expected) in [
            ("application/grpc", true),
            ("Application/gRPC+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/grp", false),
            ("", false),
        ] {
            assert_eq!(is(Method::POST, Version::HTTP_2, kind), expected, "{kind}");
            assert!(!is(Method::POST, Version::HTTP_11, kind) && !is(Method::GET, Version::HTTP_2, kind), "{kind}");
        }
    }

    #[test]
    fn timeouts_are_read_and_written() {
        let fields = |text: &str| HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_str(text).unwrap())]);
        for (text, expected) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("99999999S", Some(Duration::from_secs(99_999_999))),
            ("10m", Some(Duration::from_millis(10))),
            ("0u", Some(Duration::ZERO)),
            ("7n", Some(Duration::from_nanos(7))),
            ("123456789m", None),
            ("S", None),
            ("", None),
            ("+1S", None),
            ("1s", None),
            ("1\u{e4}", None),
        ] {
            let Ok(value) = HeaderValue::from_str(text) else { continue };
            let headers = HeaderMap::from_iter([(GRPC_TIMEOUT, value)]);
            assert_eq!(grpc_timeout(&headers), expected, "{text}");
        }
        for (left, text) in [
            (Duration::ZERO, "0n"),
            (Duration::from_nanos(99_999_999), "99999999n"),
            (Duration::from_millis(100), "100000u"),
            (Duration::from_secs(3600), "3600000m"),
            (Duration::from_secs(100_000), "100000S"),
            (Duration::MAX, "99999999S"),
        ] {
            let mut headers = fields("5S");
            set_grpc_timeout(&mut headers, left);
            assert_eq!(headers, fields(text), "{left:?}");
        }
    }

    #[test]
    fn a_refusal_has_its_status_where_clients_look_for_it() {
        let mut response = Response::new("page");
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(5));
        GrpcStatus::of_http(response.status()).write("100 % of it", &mut response);
        let field = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        assert_eq!((response.status(), *response.body()), (StatusCode::OK, ""));
        assert_eq!(field("grpc-message"), Some("100 %25 of it"));
        assert_eq!((field("grpc-retry-pushback-ms"), field("content-type")), (Some("5000"), Some(APPLICATION_GRPC)));
        let status = GrpcStatus::of(response.headers()).unwrap();
        assert_eq!((status.number(), status.name(), status.is_of_server()), (14, "UNAVAILABLE", true));
        assert_eq!(GrpcStatus::of(&HeaderMap::new()), None);
        for (text, number) in [("0", 0), ("16", 16), ("17", 2), ("x", 2)] {
            let fields = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static(text))]);
            assert_eq!(GrpcStatus::of(&fields).map(GrpcStatus::number), Some(number), "{text}");
        }
    }
}
