//! Why the store gave no answer.

use std::fmt;

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why the store gave no answer.
#[derive(Debug)]
pub enum Error {
    /// It cannot be reached, or the connection has ended.
    Connection(RedisError),
    /// It has answered that it will not: the fault of its operator, or of the account given to us.
    Refused(RedisError),
    /// Its answer has another form. Perhaps another version of the function is there.
    Answer,
    /// No node or sentinel knows which server has the data now.
    Unknown(&'static str),
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        let refused = matches!(
            error.kind(),
            ErrorKind::AuthenticationFailed
                | ErrorKind::Server(
                    ServerErrorKind::NoPerm | ServerErrorKind::ReadOnly | ServerErrorKind::ResponseError
                )
        ) || matches!(error.code(), Some("WRONGPASS" | "NOAUTH"));
        if refused { Self::Refused(error) } else { Self::Connection(error) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => write!(f, "the store cannot be reached: {error}"),
            Self::Refused(error) => write!(
                f,
                "the store refuses: {error} (it has to be Redis 7 or Valkey, writable, and its account may call FCALL, \
                 FUNCTION LOAD and SUBSCRIBE)"
            ),
            Self::Unknown(why) => write!(f, "no server has the data of the site now: {why}"),
            Self::Answer => f.write_str("the store's answer has another form: does another version of Serpent use it?"),
        }
    }
}

impl std::error::Error for Error {}
