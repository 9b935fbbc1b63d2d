//! `respond`: all requests get the same answer.

use http::{HeaderValue, Response, header};

use super::ruling::Ruling;
use crate::config::Respond;
use files::{FileBody, error_page};

/// Answers.
pub(super) fn answer(respond: &Respond) -> Ruling {
    let status = respond.status;
    let response = match &respond.body {
        Some((body, content_type)) => {
            let mut response = Response::new(FileBody::from(body.clone()));
            response.headers_mut().insert(header::CONTENT_TYPE, content_type.clone());
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
            response
        }
        None if status.is_client_error() || status.is_server_error() => error_page(status),
        None => {
            let mut response = Response::new(FileBody::empty());
            if Respond::may_have_body(status) {
                response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(0));
            }
            response
        }
    };
    let (mut head, body) = response.into_parts();
    head.status = status;
    Ruling::Answer(Response::from_parts(head, body))
}
