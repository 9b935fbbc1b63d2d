//! The page of the admin address, which shows what the server does and did in the last hour, and changes classes, queues and
//! objectives. It contains only its appearance; all data and changes go through the API.

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body_util::Full;

const HTML: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");
const LIVE: &str = include_str!("live.js");
const STYLE: &str = include_str!("page.css");

/// No external resources, no inline code, and no framing by other pages.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// The page or one of its parts.
pub(super) fn find(path: &str) -> Option<Response<Full<Bytes>>> {
    let (content_type, text) = match path {
        "/" => ("text/html; charset=utf-8", HTML),
        "/page.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "/live.js" => ("text/javascript; charset=utf-8", LIVE),
        "/page.css" => ("text/css; charset=utf-8", STYLE),
        _ => return None,
    };
    let mut response = Response::new(Full::from(text));
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
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_that_its_policy_forbids() {
        for forbidden in ["http://", "https://", "<style", "style=\"", "onclick", "javascript:"] {
            assert!(!HTML.contains(forbidden), "{forbidden}");
        }
        assert_eq!(HTML.matches("<script").count(), HTML.matches("<script src=\"/").count());
        // Names from outside enter the page as text, never as markup.
        for forbidden in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://"]
        {
            assert!(!SCRIPT.contains(forbidden) && !LIVE.contains(forbidden), "{forbidden}");
        }
        assert!(find("/").is_some() && find("/page.js").is_some() && find("/page.css").is_some());
        assert!(find("/page").is_none());
    }
}
