//! Why a request at the admin address is not carried out, and answers in JSON.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};

use super::settings::Wrong;
use crate::start_error::StartError;

/// Why a request is not carried out.
pub(super) struct Problem {
    pub status: StatusCode,
    pub wrong: Wrong,
    /// The version in force, if the request named another.
    pub version: Option<HeaderValue>,
}

pub(super) type Done<T> = Result<T, Problem>;

impl Problem {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, wrong: Wrong::new("", message), version: None }
    }

    pub fn response(self) -> Response<Full<Bytes>> {
        let Wrong { field, message } = self.wrong;
        let field = if field.is_empty() { Value::Null } else { field.into() };
        let mut response = json_response(self.status, &json!({ "error": { "message": message, "field": field } }));
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"serpent\""));
        }
        if let Some(version) = self.version {
            headers.insert(header::ETAG, version);
        }
        response
    }
}

impl From<Wrong> for Problem {
    fn from(wrong: Wrong) -> Self {
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, wrong, version: None }
    }
}

impl From<StartError> for Problem {
    /// The request looks valid but cannot be carried out: files that classes name have changed, or the uplink
    /// cannot be shared as asked.
    fn from(error: StartError) -> Self {
        Self::new(StatusCode::CONFLICT, format!("cannot be taken over: {error}"))
    }
}

/// An answer in JSON, laid out for people.
pub(super) fn json_response(status: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    let mut text = format!("{value:#}");
    text.push('\n');
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
