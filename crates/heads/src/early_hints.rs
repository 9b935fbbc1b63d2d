//! Early hints (RFC 8297): a client is told what a page will need before the page is there.
//!
//! The fields `Link` of a page that name something to load early hardly ever change. So those of the last response for
//! a path are remembered. The next request for the path gets them at once, while it waits for a slot and for its
//! origin.

use std::{fmt, sync::Arc};

use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode, Version,
    header::{CACHE_CONTROL, HOST, LINK},
    request::Parts,
    uri::Authority,
};
use quick_cache::sync::Cache;

/// Paths that are remembered, those asked for lately or often.
const PATHS: usize = 1_000;
/// Bytes of the fields of a path, and of the path. More is not remembered.
const MOST_BYTES: usize = 2_048;

/// The `Link` fields by which clients load early what the pages of a route need. Usable from many threads.
pub struct EarlyHints(Cache<Box<str>, Arc<[HeaderValue]>>);

impl Default for EarlyHints {
    fn default() -> Self {
        Self(Cache::new(PATHS))
    }
}

/// The host and the path of a page. Those that differ in their query only need the same, as a rule.
#[derive(Debug)]
pub struct Page(Box<str>);

impl Page {
    /// The page that a request asks for; `None`: it asks for something else to be done.
    pub fn of(request: &Parts) -> Option<Self> {
        let host = request.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = request.uri.authority().map(Authority::as_str).or(host).unwrap_or_default();
        (request.method == Method::GET).then(|| Self(format!("{host}{}", request.uri.path()).into()))
    }
}

impl EarlyHints {
    /// The interim response to a request for a page, if one is known and its client wants it. Only browsers load
    /// anything early. Of the clients of HTTP/1.1, only browsers can be trusted to know interim responses. Browsers say
    /// that they open a page.
    pub fn of(&self, page: &Page, request: &Parts) -> Option<Response<()>> {
        let opens_page = || request.headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
        if request.version != Version::HTTP_2 && !opens_page() {
            return None;
        }
        let links = self.0.get(&*page.0)?;
        let mut hints = Response::new(());
        *hints.status_mut() = StatusCode::EARLY_HINTS;
        for link in &*links {
            hints.headers_mut().append(LINK, link.clone());
        }
        Some(hints)
    }

    /// Takes note of the response to a request for a page. A page that is for one client only is forgotten.
    pub fn learn(&self, Page(page): Page, status: StatusCode, response: &HeaderMap) {
        if status != StatusCode::OK {
            return;
        }
        let may_be_told = may_be_told(response);
        let links = || response.get_all(LINK).iter().filter(|link| may_be_told && loads_early(link));
        let known = self.0.peek(&*page);
        if known.iter().flat_map(|known| known.iter()).eq(links()) {
            return;
        }
        let bytes = page.len() + links().map(HeaderValue::len).sum::<usize>();
        if links().next().is_some() && bytes <= MOST_BYTES {
            self.0.insert(page, links().cloned().collect());
        } else {
            self.0.remove(&*page);
        }
    }
}

impl fmt::Debug for EarlyHints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EarlyHints").field("paths", &self.0.len()).finish()
    }
}

/// Whether a field names something to load, or to connect to, before the page is there.
fn loads_early(link: &HeaderValue) -> bool {
    let text = link.to_str().unwrap_or_default().to_ascii_lowercase();
    ["preload", "preconnect"].iter().any(|relation| text.contains(relation))
}

/// Whether what one client got may be told to the next.
fn may_be_told(response: &HeaderMap) -> bool {
    let mut said = response.get_all(CACHE_CONTROL).iter().map(|value| value.to_str().unwrap_or("private"));
    said.all(|text| {
        let text = text.to_ascii_lowercase();
        !text.contains("private") && !text.contains("no-store")
    })
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn request(method: Method, version: Version, path: &str, fields: &[(&'static str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).version(version).uri(path);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn get(path: &str) -> Parts {
        request(Method::GET, Version::HTTP_2, path, &[])
    }

    fn learn(hints: &EarlyHints, request: &Parts, status: StatusCode, response: &HeaderMap) {
        if let Some(page) = Page::of(request) {
            hints.learn(page, status, response);
        }
    }

    fn page(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut page = Response::builder();
        for (name, value) in fields {
            page = page.header(*name, *value);
        }
        page.body(()).unwrap().headers().clone()
    }

    fn told(hints: &EarlyHints, request: &Parts) -> Option<Vec<String>> {
        let hints = hints.of(&Page::of(request)?, request)?;
        assert_eq!(hints.status(), StatusCode::EARLY_HINTS);
        Some(hints.headers().get_all(LINK).iter().map(|link| link.to_str().unwrap().to_owned()).collect())
    }

    const STYLE: &str = "</a.css>; rel=preload; as=style";
    const FONTS: &str = "<https://fonts.example>; rel=Preconnect";
    const MODULE: &str = "</m.js>; rel=\"modulepreload\"";
    const NEXT: &str = "</2>; rel=next";

    #[test]
    fn the_next_request_for_a_path_is_told_what_the_last_page_there_said() {
        let hints = EarlyHints::default();
        assert_eq!(told(&hints, &get("/")), None);
        learn(&hints, &get("/?q=1"), StatusCode::OK, &page(&[("link", STYLE), ("link", NEXT), ("link", FONTS)]));
        assert_eq!(told(&hints, &get("/?q=2")).unwrap(), [STYLE, FONTS]);
        for other in ["/other", "http://b.example/"] {
            assert_eq!(told(&hints, &get(other)), None);
        }
        for links in [&[FONTS][..], &[MODULE], &[STYLE, MODULE], &[MODULE]] {
            let said: Vec<_> = links.iter().map(|link| ("link", *link)).collect();
            learn(&hints, &get("/"), StatusCode::OK, &page(&said));
            assert_eq!(told(&hints, &get("/")).unwrap(), links);
        }
        for status in [StatusCode::NOT_MODIFIED, StatusCode::NOT_FOUND, StatusCode::SERVICE_UNAVAILABLE] {
            learn(&hints, &get("/"), status, &page(&[]));
        }
        assert_eq!(told(&hints, &get("/")).unwrap(), [MODULE], "these say nothing of the page");
        learn(&hints, &get("/"), StatusCode::OK, &page(&[("link", NEXT)]));
        assert_eq!(told(&hints, &get("/")), None);
    }

    #[test]
    fn only_requests_that_open_a_page_are_told() {
        let hints = EarlyHints::default();
        learn(&hints, &get("/"), StatusCode::OK, &page(&[("link", STYLE)]));
        let of = |method, version, fields: &[_]| told(&hints, &request(method, version, "/", fields)).is_some();
        assert!(of(Method::GET, Version::HTTP_2, &[]));
        assert!(!of(Method::POST, Version::HTTP_2, &[]));
        assert!(!of(Method::GET, Version::HTTP_11, &[]));
        assert!(!of(Method::GET, Version::HTTP_11, &[("sec-fetch-mode", "cors")]));
        assert!(of(Method::GET, Version::HTTP_11, &[("sec-fetch-mode", "navigate")]));
        assert!(!of(Method::GET, Version::HTTP_10, &[]));
    }

    #[test]
    fn a_page_for_one_client_is_not_told_to_another() {
        let hints = EarlyHints::default();
        for said in ["private", "no-store", "max-age=5, Private=\"x\""] {
            learn(&hints, &get("/"), StatusCode::OK, &page(&[("link", STYLE)]));
            assert!(told(&hints, &get("/")).is_some());
            learn(&hints, &get("/"), StatusCode::OK, &page(&[("link", STYLE), ("cache-control", said)]));
            assert_eq!(told(&hints, &get("/")), None, "{said}");
        }
        learn(&hints, &request(Method::POST, Version::HTTP_2, "/", &[]), StatusCode::OK, &page(&[("link", STYLE)]));
        assert_eq!(told(&hints, &get("/")), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let hints = EarlyHints::default();
        let long = format!("<{}>; rel=preload", "x".repeat(MOST_BYTES));
        learn(&hints, &get("/long"), StatusCode::OK, &page(&[("link", &long)]));
        learn(&hints, &get(&format!("/{}", "x".repeat(MOST_BYTES))), StatusCode::OK, &page(&[("link", STYLE)]));
        assert_eq!(hints.0.len(), 0);
        for number in 0..3 * PATHS {
            learn(&hints, &get(&format!("/{number}")), StatusCode::OK, &page(&[("link", STYLE)]));
        }
        assert!(hints.0.len() <= PATHS, "{}", hints.0.len());
    }
}
