//! FastCGI: an application that runs already, such as PHP-FPM, answers requests over a socket.
//!
//! - The path names a script below a root (`scripts`); the rest is `PATH_INFO`. Only files that exist and have an
//!   extension of scripts are handed on.
//! - The parameters are the variables that a CGI program gets (`crate::variables`), and the answer is read as that of a
//!   program (`crate::answer`, `crate::output`).
//! - The request is written and the answer is read at the same time (`exchange`), by the task that reads the answer. If
//!   the reader stops because the client is gone, the connection is closed, which ends the application's work.
//! - A few connections may be kept (`pool`). A request on one that turns out to be closed is repeated on a new one, unless
//!   the application may have acted on it or its body is gone.
//! - Standard error goes to the log. All requests of a route share the number of lines.

pub(crate) mod exchange;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub(crate) mod pool;
mod records;
mod run;
mod scripts;
#[cfg(test)]
mod tests;

pub use self::run::FastCgi;
