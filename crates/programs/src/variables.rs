//! The variables of a program (RFC 3875, section 4), in its environment or as parameters. No I/O.

use std::{
    ffi::{CString, OsStr},
    io,
    os::unix::ffi::OsStrExt as _,
};

use bodies::RequestBody;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Version, header};

use crate::context::Context;

/// Variables, with each name once: setting a name again replaces its value.
#[derive(Debug, Default)]
pub(crate) struct Variables(Vec<(Vec<u8>, Vec<u8>)>);

impl Variables {
    pub(crate) fn set(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (name, value) = (name.as_ref(), value.as_ref().to_vec());
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name.to_vec(), value)),
        }
    }

    /// Names and values.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value)| (&name[..], &value[..]))
    }

    /// The variables in the system's form.
    ///
    /// # Errors
    /// A value contains a NUL. No client can send one in a field or an address, and decoded paths are checked
    /// for it.
    pub(crate) fn into_environment(self) -> io::Result<Vec<CString>> {
        let entry = |(name, value): (Vec<u8>, Vec<u8>)| kernel::process::c_string([name, value].join(&b'='));
        self.0.into_iter().map(entry).collect()
    }
}

/// The variables that are known before the program is looked up.
pub(crate) fn of_request(request: &Request<RequestBody>, context: &Context<'_>) -> Variables {
    let mut variables = Variables::default();
    let mut set = |name: &str, value: &[u8]| variables.set(name, value);
    set("GATEWAY_INTERFACE", b"CGI/1.1");
    set("SERVER_SOFTWARE", concat!("serpent/", env!("CARGO_PKG_VERSION")).as_bytes());
    let local = context.local.ip().to_canonical().to_string();
    set("SERVER_NAME", if context.host.is_empty() { local.as_bytes() } else { context.host.as_bytes() });
    set("SERVER_ADDR", local.as_bytes());
    set("SERVER_PORT", context.local.port().to_string().as_bytes());
    set("SERVER_PROTOCOL", protocol(request.version()).as_bytes());
    set("REQUEST_METHOD", request.method().as_str().as_bytes());
    set("REQUEST_SCHEME", if context.tls { b"https" } else { b"http" });
    if context.tls {
        set("HTTPS", b"on");
    }
    let uri = request.uri();
    let asked = context.asked.or(uri.path_and_query());
    set("REQUEST_URI", asked.map_or("/", |target| target.as_str()).as_bytes());
    set("QUERY_STRING", uri.query().unwrap_or_default().as_bytes());
    let client = context.client.ip().to_canonical().to_string();
    set("REMOTE_ADDR", client.as_bytes());
    // No names are looked up; the standard allows the address instead.
    set("REMOTE_HOST", client.as_bytes());
    set("REMOTE_PORT", context.client.port().to_string().as_bytes());
    if let Some(user) = context.user {
        set("AUTH_TYPE", b"Basic");
        set("REMOTE_USER", user.as_bytes());
    }
    let headers = request.headers();
    if let Some(kind) = headers.get(header::CONTENT_TYPE) {
        set("CONTENT_TYPE", kind.as_bytes());
    }
    match request.body().len_bytes() {
        Some(0) if !headers.contains_key(header::CONTENT_LENGTH) => {}
        Some(length) => set("CONTENT_LENGTH", length.to_string().as_bytes()),
        // Of unknown length: the program reads to the end.
        None => {}
    }
    for_fields(headers, |name, value| set(name, value));
    // In a target it counts, and `Host` may say otherwise (RFC 9112, section 3.2.2).
    if let Some(authority) = uri.authority() {
        set("HTTP_HOST", authority.as_str().as_bytes());
    }
    set("SERPENT_CLASS", context.class.as_bytes());
    variables
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// Header fields as `HTTP_*`; fields of one name are joined.
fn for_fields(headers: &HeaderMap, mut set: impl FnMut(&str, &[u8])) {
    for name in headers.keys().filter(|name| tells(name)) {
        let mut variable = String::with_capacity("HTTP_".len() + name.as_str().len());
        variable.push_str("HTTP_");
        variable
            .extend(name.as_str().chars().map(|letter| if letter == '-' { '_' } else { letter.to_ascii_uppercase() }));
        let between: &[u8] = if name == header::COOKIE { b"; " } else { b", " };
        let values: Vec<_> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        set(&variable, &values.join(between));
    }
}

/// Whether a field is passed to programs.
fn tells(name: &HeaderName) -> bool {
    // `X_A` and `X-A` would be one variable, which would let a client forge a proxy's field.
    let unmistakable = name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    unmistakable
        && !matches!(
            name.as_str(),
            // These have variables of their own.
            "content-type" | "content-length"
            // Credentials, which this server checks itself (as Apache does).
            | "authorization" | "proxy-authorization"
            // Libraries read HTTP_PROXY as a setting ("httpoxy").
            | "proxy"
            // Hop-by-hop.
            | "connection" | "keep-alive" | "proxy-connection" | "te" | "trailer" | "transfer-encoding" | "upgrade" | "expect"
            | "http2-settings"
        )
}

/// A variable of the server's own environment.
pub(crate) fn own(name: &str) -> Option<(String, Vec<u8>)> {
    std::env::var_os(name).map(|value| (name.to_owned(), OsStr::as_bytes(&value).to_vec()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Priority;

    fn context() -> Context<'static> {
        Context {
            prefix: "/cgi-bin",
            root: None,
            client: "[::ffff:192.0.2.7]:4711".parse().unwrap(),
            local: "198.51.100.1:8443".parse().unwrap(),
            host: "www.example.org",
            tls: false,
            user: None,
            believed: None,
            rules: None,
            class: "gold",
            priority: Priority::Inherited,
            asked: None,
        }
    }

    fn told(request: http::request::Builder, context: &Context<'_>) -> BTreeMap<String, String> {
        let request = request.body(RequestBody::Empty).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        of_request(&request, context).0.into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn a_program_is_told_of_request_client_and_server() {
        let request =
            Request::get("/cgi-bin/a%20b/c?d=e&f").header("host", "www.example.org:8443").header("x-a-b", "1");
        let told = told(request, &context());
        for (name, value) in [
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_NAME", "www.example.org"),
            ("SERVER_ADDR", "198.51.100.1"),
            ("SERVER_PORT", "8443"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("REQUEST_METHOD", "GET"),
            ("REQUEST_SCHEME", "http"),
            ("REQUEST_URI", "/cgi-bin/a%20b/c?d=e&f"),
            ("QUERY_STRING", "d=e&f"),
            ("REMOTE_ADDR", "192.0.2.7"),
            ("REMOTE_HOST", "192.0.2.7"),
            ("REMOTE_PORT", "4711"),
            ("HTTP_HOST", "www.example.org:8443"),
            ("HTTP_X_A_B", "1"),
            ("SERPENT_CLASS", "gold"),
        ] {
            assert_eq!(told.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(told["SERVER_SOFTWARE"].starts_with("serpent/"));
        assert!(!told.contains_key("PATH"), "of the server's own environment nothing is told");
        for name in ["HTTPS", "AUTH_TYPE", "REMOTE_USER", "CONTENT_TYPE", "CONTENT_LENGTH"] {
            assert!(!told.contains_key(name), "{name}");
        }
    }

    #[test]
    fn tls_users_and_other_versions_are_seen() {
        let request = Request::post("https://h2.example/x").version(Version::HTTP_2).header("content-length", "0");
        let told = told(
            request.header("content-type", "a/b"),
            &Context { tls: true, user: Some("ann"), host: "", ..context() },
        );
        for (name, value) in [
            ("HTTPS", "on"),
            ("REQUEST_SCHEME", "https"),
            ("AUTH_TYPE", "Basic"),
            ("REMOTE_USER", "ann"),
            ("SERVER_PROTOCOL", "HTTP/2.0"),
            ("SERVER_NAME", "198.51.100.1"),
            ("HTTP_HOST", "h2.example"),
            ("CONTENT_LENGTH", "0"),
            ("CONTENT_TYPE", "a/b"),
            ("QUERY_STRING", ""),
        ] {
            assert_eq!(told.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn fields_that_would_deceive_or_betray_are_not_passed_on() {
        let mut request = Request::get("/");
        for name in [
            "proxy",
            "authorization",
            "proxy-authorization",
            "connection",
            "x_under",
            "x.dot",
            "content-type",
            "te",
            "transfer-encoding",
            "keep-alive",
            "upgrade",
            "content-length",
        ] {
            request = request.header(name, "1");
        }
        let told = told(
            request.header("cookie", "a=1").header("cookie", "b=2").header("accept", "x").header("accept", "y"),
            &context(),
        );
        let fields: Vec<_> = told.iter().filter(|(name, _)| name.starts_with("HTTP_")).collect();
        assert_eq!(
            fields,
            [(&"HTTP_ACCEPT".to_owned(), &"x, y".to_owned()), (&"HTTP_COOKIE".to_owned(), &"a=1; b=2".to_owned())]
        );
    }

    #[test]
    fn who_sets_a_variable_again_has_the_last_word() {
        let mut variables = Variables::default();
        variables.set("A", "1");
        variables.set("B", "2");
        variables.set("A", "3");
        assert_eq!(variables.into_environment().unwrap(), [c"A=3".to_owned(), c"B=2".to_owned()]);
        let mut variables = Variables::default();
        variables.set("A", "1\0B=2");
        variables.into_environment().expect_err("a NUL would cut it off");
    }
}
