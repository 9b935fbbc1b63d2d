//! Makes the response from a representation and a request's headers: 200, 206, 304, 412 or 416.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::{
    FileBody,
    body::Source,
    conditional::{Verdict, evaluate, range_holds},
    pages::error_page_with,
    range::{Multipart, Ranges, content_range, resolve},
    representation::Representation,
};
use crate::config::TypeOfNotModified;

/// The headers that a response depends on.
pub(crate) const RELEVANT: [header::HeaderName; 6] = [
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
    header::RANGE,
];

/// Whether a request has no condition and asks for the whole, as most do. This finds that out sooner than a look-up of
/// each name.
pub(crate) fn is_plain(request: &HeaderMap) -> bool {
    !request.keys().any(|name| RELEVANT.contains(name))
}

/// The response to a GET, with its body. `ranges` is false for HEAD, because ranges are defined only for GET
/// (RFC 9110, section 14.2).
pub(crate) fn respond(representation: &Representation, request: &HeaderMap, ranges: bool) -> Response<FileBody> {
    if is_plain(request) {
        return whole(representation);
    }
    let validators = representation.validators();
    match evaluate(request, validators) {
        Verdict::Proceed => {}
        Verdict::NotModified => {
            let mut response = Response::new(FileBody::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.headers_mut() = representation.not_modified_headers();
            if representation.tells_type {
                response.extensions_mut().insert(TypeOfNotModified(representation.content_type.clone()));
            }
            return response;
        }
        Verdict::Failed => return super::pages::error_page(StatusCode::PRECONDITION_FAILED),
    }
    if ranges && request.contains_key(header::RANGE) && range_holds(request, validators) {
        match resolve(request, representation.stamp.size) {
            Ranges::Whole => {}
            Ranges::Parts(parts) => return partial(representation, parts),
            Ranges::Unsatisfiable => {
                let size = header_value(format!("bytes */{}", representation.stamp.size));
                return error_page_with(StatusCode::RANGE_NOT_SATISFIABLE, header::CONTENT_RANGE, size);
            }
        }
    }
    whole(representation)
}

fn whole(representation: &Representation) -> Response<FileBody> {
    let body = match &representation.source {
        Source::Memory(bytes) => FileBody::from(bytes.clone()),
        file @ (Source::File(_) | Source::Both(_)) => FileBody::range(file, 0..representation.stamp.size),
    };
    let mut response = Response::new(body.of(representation.original.clone()));
    *response.headers_mut() = representation.headers.clone();
    response
}

fn partial(representation: &Representation, mut parts: Vec<std::ops::Range<u64>>) -> Response<FileBody> {
    let size = representation.stamp.size;
    let mut headers = representation.headers.clone();
    let body = if parts.len() == 1 {
        let range = parts.remove(0);
        headers.insert(header::CONTENT_RANGE, header_value(content_range(&range, size)));
        FileBody::range(&representation.source, range)
    } else {
        let Multipart { content_type, parts, tail } =
            Multipart::new(parts, size, representation.content_type.as_bytes());
        headers.insert(header::CONTENT_TYPE, header_value(content_type));
        FileBody::parts(&representation.source, parts, tail)
    };
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.remaining_bytes()));
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    *response.headers_mut() = headers;
    response
}

fn header_value(text: String) -> HeaderValue {
    // The text consists of generated numbers and words.
    HeaderValue::from_maybe_shared(bytes::Bytes::from(text)).unwrap_or(HeaderValue::from_static(""))
}
