//! Cross-origin requests (CORS, in the Fetch standard): which pages of other origins may read responses.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

/// Which origins may read the responses of a site or a route, and what their requests may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// The origins.
    pub origins: Origins,
    /// The methods, as a list with commas.
    pub methods: HeaderValue,
    /// The fields of requests, as a list with commas; `None`: those that a page asks for.
    pub headers: Option<HeaderValue>,
    /// The fields of responses that a page may see beside the usual ones, as a list with commas.
    pub expose: Option<HeaderValue>,
    /// Whether a browser may send cookies and passwords along. Not for [`Origins::Any`].
    pub credentials: bool,
    /// How long a browser may keep what it was told.
    pub max_age: Duration,
}

/// Origins of pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// All.
    Any,
    /// These.
    Of(Vec<OriginPattern>),
}

/// An origin as in `https://app.example` or, with all names below one, `https://*.app.example`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginPattern {
    /// The text before the star, or all of it.
    start: Box<str>,
    /// The text behind the star.
    end: Option<Box<str>>,
}

impl OriginPattern {
    /// Reads an origin: scheme, host, and the port unless it is the scheme's own, as browsers write it. `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let sound = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !br#"/?#@\,*""#.contains(&byte));
        let (star, host) = rest.strip_prefix("*.").map_or((false, rest), |host| (true, host));
        if scheme.is_empty() || host.is_empty() || !sound(scheme) || !sound(host) {
            return None;
        }
        let (scheme, host) = (scheme.to_ascii_lowercase(), host.to_ascii_lowercase());
        if matches!((&*scheme, host.rsplit_once(':')), ("https", Some((_, "443"))) | ("http", Some((_, "80")))) {
            return None;
        }
        Some(match star {
            true => Self { start: format!("{scheme}://").into(), end: Some(format!(".{host}").into()) },
            false => Self { start: format!("{scheme}://{host}").into(), end: None },
        })
    }

    fn matches(&self, origin: &str) -> bool {
        match &self.end {
            None => *origin == *self.start,
            Some(end) => origin
                .strip_prefix(&*self.start)
                .and_then(|rest| rest.strip_suffix(&**end))
                .is_some_and(|names| !names.is_empty() && !names.contains(['/', ':', '@'])),
        }
    }
}

impl Cors {
    /// The methods where none are given, those that APIs usually have.
    pub const METHODS: [&'static str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

    /// The fields of the answer (204) to a request by which a browser asks what a page may do; `None`: the request is another.
    pub fn preflight(&self, method: &Method, asked: &HeaderMap) -> Option<HeaderMap> {
        let is_preflight = *method == Method::OPTIONS
            && asked.contains_key(header::ORIGIN)
            && asked.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if !is_preflight {
            return None;
        }
        let mut answer = HeaderMap::new();
        if self.allow(asked, &mut answer) {
            answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, self.methods.clone());
            let headers = self.headers.as_ref().or_else(|| asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS));
            if let Some(headers) = headers {
                answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, headers.clone());
            }
            answer.insert(header::ACCESS_CONTROL_MAX_AGE, self.max_age.as_secs().into());
        }
        if self.headers.is_none() {
            append_vary(&mut answer, &header::ACCESS_CONTROL_REQUEST_HEADERS);
        }
        Some(answer)
    }

    /// Says on a response whether the page that asked may read it. Replaces what the origin server says of it.
    pub fn apply(&self, asked: &HeaderMap, response: &mut HeaderMap) {
        let own = [header::ACCESS_CONTROL_ALLOW_CREDENTIALS, header::ACCESS_CONTROL_EXPOSE_HEADERS];
        for name in own.iter().chain([&header::ACCESS_CONTROL_ALLOW_ORIGIN]) {
            response.remove(name);
        }
        if self.allow(asked, response)
            && let Some(expose) = &self.expose
        {
            response.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, expose.clone());
        }
    }

    /// Writes which origin may read a response. Returns whether the one that asks may.
    fn allow(&self, asked: &HeaderMap, response: &mut HeaderMap) -> bool {
        let origin = match &self.origins {
            Origins::Any => Some(HeaderValue::from_static("*")),
            Origins::Of(patterns) => {
                // With another origin, or none, the response is another one.
                append_vary(response, &header::ORIGIN);
                let origin = asked.get(header::ORIGIN).filter(|origin| {
                    origin.to_str().is_ok_and(|origin| patterns.iter().any(|pattern| pattern.matches(origin)))
                });
                origin.cloned()
            }
        };
        let Some(origin) = origin else { return false };
        response.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if self.credentials {
            response.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        true
    }
}

/// Tells caches that the response depends on a field of the request, unless they are told already.
pub fn append_vary(headers: &mut HeaderMap, field: &HeaderName) {
    let values = headers.get_all(header::VARY).iter();
    let mut names = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    let is_said = |name: &[u8]| name.eq_ignore_ascii_case(field.as_str().as_bytes()) || name == b"*";
    if !names.any(|name| is_said(name.trim_ascii())) {
        headers.append(header::VARY, field.clone().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(origins: &[&str]) -> Cors {
        let patterns = || origins.iter().map(|text| OriginPattern::parse(text).unwrap()).collect();
        Cors {
            origins: if origins == ["*"] { Origins::Any } else { Origins::Of(patterns()) },
            methods: HeaderValue::from_static("GET, PUT"),
            headers: None,
            expose: Some(HeaderValue::from_static("x-total")),
            credentials: false,
            max_age: Duration::from_secs(600),
        }
    }

    fn map(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_pattern_matches_whole_names_of_its_scheme_and_port() {
        for (pattern, origin, matches) in [
            ("https://app.example", "https://app.example", true),
            ("https://APP.example", "https://app.example", true),
            ("https://app.example", "http://app.example", false),
            ("https://app.example", "https://app.example:8443", false),
            ("https://app.example", "https://app.example.evil", false),
            ("https://app.example", "https://evilapp.example", false),
            ("http://localhost:3000", "http://localhost:3000", true),
            ("https://*.app.example", "https://a.b.app.example", true),
            ("https://*.app.example", "https://app.example", false),
            ("https://*.app.example", "https://.app.example", false),
            ("https://*.app.example", "https://evil:x.app.example", false),
            ("https://*.app.example", "https://evil/.app.example", false),
            ("https://*.app.example", "https://xapp.example", false),
        ] {
            let pattern = OriginPattern::parse(pattern).unwrap();
            assert_eq!(pattern.matches(origin), matches, "{pattern:?} {origin}");
        }
        for wrong in
            ["*", "app.example", "https://", "https://a/", "https://a.*", "https://a:443", "http://a:80", "null"]
        {
            assert_eq!(OriginPattern::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_page_is_told_what_it_may_do() {
        let cors = cors(&["https://app.example"]);
        let ask = |origin| {
            map(&[
                ("origin", origin),
                ("access-control-request-method", "PUT"),
                ("access-control-request-headers", "x-a"),
            ])
        };
        let answer = cors.preflight(&Method::OPTIONS, &ask("https://app.example")).unwrap();
        assert_eq!(answer["access-control-allow-origin"], "https://app.example");
        assert_eq!(answer["access-control-allow-methods"], "GET, PUT");
        assert_eq!(answer["access-control-allow-headers"], "x-a");
        assert_eq!(answer["access-control-max-age"], "600");
        assert!(!answer.contains_key("access-control-allow-credentials"));
        let answer = cors.preflight(&Method::OPTIONS, &ask("https://evil.example")).unwrap();
        assert_eq!(answer.keys().collect::<Vec<_>>(), ["vary"], "another origin is told nothing");
        assert!(cors.preflight(&Method::GET, &ask("https://app.example")).is_none());
        assert!(cors.preflight(&Method::OPTIONS, &map(&[("origin", "https://app.example")])).is_none());
    }

    #[test]
    fn what_the_origin_server_says_is_replaced_and_caches_keep_responses_apart() {
        let upstreams =
            [("access-control-allow-origin", "*"), ("access-control-allow-credentials", "true"), ("vary", "Accept")];
        let mut response = map(&upstreams);
        cors(&["https://app.example"]).apply(&map(&[("origin", "https://evil.example")]), &mut response);
        assert!(!response.contains_key("access-control-allow-origin"));
        assert!(!response.contains_key("access-control-allow-credentials"));
        assert_eq!(response.get_all("vary").iter().collect::<Vec<_>>(), ["Accept", "origin"]);
        let mut response = map(&upstreams);
        Cors { credentials: true, ..cors(&["https://app.example"]) }
            .apply(&map(&[("origin", "https://app.example")]), &mut response);
        assert_eq!(response["access-control-allow-origin"], "https://app.example");
        assert_eq!(response["access-control-allow-credentials"], "true");
        assert_eq!(response["access-control-expose-headers"], "x-total");
        let mut response = HeaderMap::new();
        cors(&["*"]).apply(&HeaderMap::new(), &mut response);
        assert_eq!(response["access-control-allow-origin"], "*");
        assert!(!response.contains_key("vary"), "the same for all");
    }
}
