//! CGI: programs run for each request (RFC 3875), each with the processor priority of its request's class.
//!
//! - The path behind the route's prefix names the program; the rest is `PATH_INFO` (`lookup`). Programs are
//!   executable regular files below their directory. Links lead nowhere else, and names that start with a dot
//!   are not found.
//! - The environment starts empty. It gets `PATH`, the standard's variables and the configured ones
//!   (`crate::variables`). The query never becomes an argument, because interpreters have taken such arguments for
//!   options.
//! - The head of the answer is parsed (`crate::answer`); the body is passed on as it comes. Programs that write
//!   whole HTTP responses ("non-parsed header") are not supported; the log says so.
//! - A program is started on a thread for its priority (`crate::spawner`). From then on it has a *keeper*:
//!   a task that writes the request's body to it, logs its standard error, enforces its time-out and waits
//!   for its end. The reader of the answer only reads. If the reader stops because the client is gone, the
//!   keeper kills the program's process group.
//! - Processes left in the program's process group are killed when it ends. A process that is to stay must
//!   start a session of its own.

#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keeper;
mod lookup;
mod output;
mod run;
#[cfg(test)]
mod tests;

pub use self::run::{Cgi, CgiAnswer};
