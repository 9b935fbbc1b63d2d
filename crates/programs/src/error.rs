//! Why a program gave no answer.

use std::{fmt, io};

use http::StatusCode;
use rustix::io::Errno;

/// Why a program gave no answer.
#[derive(Debug)]
pub enum CgiError {
    /// There is no such program: 404.
    NotFound,
    /// The program may not be run: 403.
    Forbidden,
    /// Too many programs are running: 503.
    Busy,
    /// The head of the request is larger than the application's protocol allows: 431.
    TooLarge,
    /// The program cannot be started: 500.
    Start(io::Error),
    /// The application cannot be reached: 502.
    Connect(io::Error),
    /// The program ended without an answer, or with an invalid one: 502.
    Answer(String),
    /// The program took too long, and its work was ended: 504.
    TimedOut,
    /// The client's body broke off.
    Request(io::Error),
}

impl CgiError {
    /// Why there is no program or script at a path.
    pub(crate) fn of_look(error: Errno) -> Self {
        match error {
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
                Self::Start(io::Error::other("no descriptor or memory is left"))
            }
            _ => Self::NotFound,
        }
    }

    /// The status for the client.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Start(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Answer(_) | Self::Connect(_) => StatusCode::BAD_GATEWAY,
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Self::Request(_) => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for CgiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => write!(f, "there is no such program"),
            Self::Forbidden => write!(f, "the program may not be run"),
            Self::Busy => write!(f, "too many programs run"),
            Self::TooLarge => write!(f, "the head of the request is too large for uwsgi"),
            Self::Start(error) => write!(f, "the program cannot be started: {error}"),
            Self::Connect(error) => write!(f, "the application cannot be reached: {error}"),
            Self::Answer(what) => write!(f, "the program's answer makes no sense: {what}"),
            Self::TimedOut => write!(f, "the program took too long, and its work was ended"),
            Self::Request(error) => write!(f, "the client's body broke off: {error}"),
        }
    }
}

impl std::error::Error for CgiError {}
