//! `respond` of a route: the same answer to all its requests.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

/// An answer that is the same for all requests.
#[derive(Clone, Debug)]
pub struct Respond {
    /// Its status: 200 to 299, or 400 to 599.
    pub status: StatusCode,
    /// Its body and the type of that. `None`: an error page for an error, and nothing otherwise.
    pub body: Option<(Bytes, HeaderValue)>,
}

impl Respond {
    /// The type of a body where none is given.
    pub const DEFAULT_TYPE: &'static str = "text/plain; charset=utf-8";

    /// Reads a status.
    ///
    /// # Errors
    /// It is no status, or one that needs more than a body.
    pub fn status(text: &str) -> Result<StatusCode, String> {
        match text.parse::<u16>().ok().and_then(|code| StatusCode::from_u16(code).ok()) {
            Some(status) if matches!(status.as_u16(), 200..=299 | 400..=599) => Ok(status),
            Some(status) if status.is_redirection() => {
                Err(format!("`{text}` sends a client elsewhere: use `redirect`"))
            }
            _ => Err(format!(
                "`{text}` is no status of an answer: 200 to 299, or 400 to 599; its text stands in `respond-body`"
            )),
        }
    }

    /// Whether an answer of a status may have a body (RFC 9110, sections 15.3.5 and 15.3.6).
    pub fn may_have_body(status: StatusCode) -> bool {
        !matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT)
    }
}
