//! Small answers without a file: errors, redirects, `OPTIONS`.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use super::{
    FileBody,
    listing::{Listing, MAX_NAMES},
};

/// The methods that files support.
const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

/// Pages run no script and load nothing; they need only their own style.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");

/// A small HTML page for an error. It shows the status and nothing internal.
pub fn error_page(status: StatusCode) -> Response<FileBody> {
    let reason = status.canonical_reason().unwrap_or("Error");
    let code = status.as_u16();
    page(
        status,
        Bytes::from(format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{code} {reason}</title>\n\
             <style>html{{color-scheme:light dark}}body{{font-family:system-ui,sans-serif;margin:4rem auto;\
             max-width:40rem;padding:0 1rem}}</style>\n</head>\n<body>\n<h1>{code} {reason}</h1>\n</body>\n</html>\n"
        )),
    )
}

/// A generated HTML page, with its length.
pub(crate) fn page(status: StatusCode, html: Bytes) -> Response<FileBody> {
    let length = html.len();
    let mut response = Response::new(FileBody::from(html));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(6);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, PAGE_POLICY);
    response
}

/// The listing of a directory.
pub(crate) fn listing(listing: &Listing) -> Response<FileBody> {
    const TRUNCATED: HeaderName = HeaderName::from_static("x-listing-truncated");
    let mut response = page(StatusCode::OK, listing.text.clone());
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    if listing.json {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.remove(header::CONTENT_SECURITY_POLICY);
        if !listing.complete {
            headers.insert(TRUNCATED, HeaderValue::from(MAX_NAMES));
        }
    }
    response
}

/// An error page with one more header.
pub(crate) fn error_page_with(status: StatusCode, name: HeaderName, value: HeaderValue) -> Response<FileBody> {
    let mut response = error_page(status);
    response.headers_mut().insert(name, value);
    response
}

/// A 301 to a path on this host, with the request's query.
pub(crate) fn moved_to(path: &str, query: Option<&str>) -> Response<FileBody> {
    let target = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    match HeaderValue::from_bytes(target.as_bytes()) {
        Ok(location) => error_page_with(StatusCode::MOVED_PERMANENTLY, header::LOCATION, location),
        // The query is invalid in a header; the HTTP parser refuses such queries already.
        Err(_) => error_page(StatusCode::BAD_REQUEST),
    }
}

/// The answer to `OPTIONS`.
pub(crate) fn options() -> Response<FileBody> {
    let mut response = Response::new(FileBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(header::ALLOW, ALLOW);
    response
}

/// A 405 with the allowed methods.
pub(crate) fn method_not_allowed() -> Response<FileBody> {
    error_page_with(StatusCode::METHOD_NOT_ALLOWED, header::ALLOW, ALLOW)
}

/// The same response for `HEAD`: all headers, no body.
pub(crate) fn without_body(response: Response<FileBody>) -> Response<FileBody> {
    response.map(FileBody::emptied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_page_names_its_status_and_is_not_sniffed() {
        for code in [400, 403, 404, 405, 408, 412, 413, 414, 416, 431, 500, 501, 503, 505] {
            let response = error_page(StatusCode::from_u16(code).unwrap());
            assert_eq!(response.status(), code);
            assert_eq!(response.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
            assert_eq!(response.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
            let length = response.body().remaining_bytes();
            assert_eq!(response.headers()[header::CONTENT_LENGTH], length.to_string());
        }
        assert_eq!(error_page(StatusCode::from_u16(599).unwrap()).status(), 599);
    }
}
