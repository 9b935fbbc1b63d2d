//! The page of the admin address, which shows what the server does and did in the last hour, and changes classes,
//! queues and objectives. It contains only its appearance; all data and changes go through the API.

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body_util::Full;

const HTML: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");
const FORMS: &str = include_str!("forms.js");
const LIVE: &str = include_str!("live.js");
const CLUSTER: &str = include_str!("cluster.html");
const CLUSTER_SCRIPT: &str = include_str!("cluster.js");
const STYLE: &str = include_str!("page.css");

/// No external resources, no inline code, and no framing by other pages.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// Where tables for a browser without scripts go.
const PLAIN: &str = "<!--plain-->";

/// The page, with what a browser shows that runs no scripts.
pub(super) fn page(plain: &str) -> Response<Full<Bytes>> {
    part("text/html; charset=utf-8", HTML.replacen(PLAIN, plain, 1))
}

/// A part of the page.
pub(super) fn find(path: &str) -> Option<Response<Full<Bytes>>> {
    let (content_type, text) = match path {
        "/page.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "/forms.js" => ("text/javascript; charset=utf-8", FORMS),
        "/live.js" => ("text/javascript; charset=utf-8", LIVE),
        "/cluster" => ("text/html; charset=utf-8", CLUSTER),
        "/cluster.js" => ("text/javascript; charset=utf-8", CLUSTER_SCRIPT),
        "/page.css" => ("text/css; charset=utf-8", STYLE),
        _ => return None,
    };
    Some(part(content_type, text))
}

fn part(content_type: &'static str, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text.into()));
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_that_its_policy_forbids() {
        for forbidden in ["http://", "https://", "<style", "style=\"", "onclick", "javascript:"] {
            assert!(!HTML.contains(forbidden) && !CLUSTER.contains(forbidden), "{forbidden}");
        }
        assert_eq!(HTML.matches("<script").count(), HTML.matches("<script src=\"/").count());
        // Names from outside enter the page as text, never as markup.
        for forbidden in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://"]
        {
            assert!(
                [SCRIPT, FORMS, LIVE, CLUSTER_SCRIPT].iter().all(|script| !script.contains(forbidden)),
                "{forbidden}"
            );
        }
        assert_eq!(HTML.matches(PLAIN).count(), 1);
        assert!(["/page.js", "/forms.js", "/live.js", "/page.css"].iter().all(|path| find(path).is_some()));
        assert!(find("/page").is_none());
    }
}
