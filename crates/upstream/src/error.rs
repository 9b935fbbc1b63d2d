//! The errors of an upstream, and whose fault each is.

use std::{fmt, io, sync::Arc, time::Duration};

use http::StatusCode;
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::time::Instant;

use crate::wire::ExchangeError;

/// Time between two log lines about the same shortage or loop, which could otherwise occur for each request.
const SELDOM: Duration = Duration::from_secs(10);

/// Why an upstream cannot be used as configured; the operator has to fix it.
#[derive(Debug)]
pub struct UpstreamSetupError {
    /// The upstream's name.
    pub upstream: String,
    /// The problem.
    pub message: String,
}

impl fmt::Display for UpstreamSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "upstream `{}`: {}", self.upstream, self.message)
    }
}

impl std::error::Error for UpstreamSetupError {}

/// Why there is no response, or no rest of one. A body that breaks off ends with an [`io::Error`] that holds
/// one of these.
#[derive(Debug)]
pub enum UpstreamError {
    /// No server can be asked: 503.
    NoServer {
        /// The upstream's name.
        upstream: Arc<str>,
        /// Why no server can be asked.
        why: Unavailable,
    },
    /// The server cannot be reached, broke off, or sent an answer that is not HTTP: 502.
    Failed {
        /// The server.
        server: Arc<str>,
        /// The failure of the server.
        failure: Failure,
        /// Time since the start of the request.
        after: Duration,
    },
    /// The server took too long: 504.
    TimedOut {
        /// The server.
        server: Arc<str>,
        /// The step that took too long.
        wait: Wait,
        /// Time since the start of the request.
        after: Duration,
    },
    /// This machine lacks a resource for a connection, such as open files or ports: 503. Not the server's
    /// fault.
    Shortage {
        /// The server that the connection was for.
        server: Arc<str>,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The request has passed through this proxy too often: 508. An upstream leads back to this proxy.
    Loop {
        /// The upstream's name.
        upstream: Arc<str>,
        /// How often it passed, counted in `Via`.
        times: usize,
    },
    /// The client's body broke off (400), was too long (413) or too slow (408), or its request cannot be
    /// passed on (400).
    Request(io::Error),
}

/// Why no server can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// No server is known: names have no addresses yet, or no worker has started.
    Unknown,
    /// All servers were found down by checks, or are taken out of use.
    Down,
    /// Each server has reached its limit of connections or requests.
    Full,
}

/// The cause of an error, in the error type of a library.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The failure of a server.
#[derive(Debug)]
pub enum Failure {
    /// The server refused the connection.
    Connect(io::Error),
    /// The TLS handshake failed, or the certificate is not valid for this server.
    Tls(io::Error),
    /// The server closed or reset the connection or the HTTP/2 stream.
    Closed(Cause),
    /// The answer is not HTTP.
    Malformed(Cause),
    /// The head of the response exceeds the limit.
    HeadTooLarge,
    /// The server sent too many interim responses, or too large ones.
    TooManyInterims,
    /// The server changed protocols although the request did not ask for it.
    Switched,
    /// The server speaks HTTP/2, and takes no other protocols over it.
    NoProtocols,
}

/// The step of an exchange that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A connection, TLS included.
    Connection,
    /// The head of the response, or progress in sending the request.
    Head,
    /// More of the response's body.
    Body,
    /// The end of the whole exchange.
    End,
}

impl UpstreamError {
    /// The status for the client, if no response has begun yet.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoServer { .. } | Self::Shortage { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed { .. } => StatusCode::BAD_GATEWAY,
            Self::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Loop { .. } => StatusCode::LOOP_DETECTED,
            Self::Request(error) => match kind_within(error) {
                io::ErrorKind::FileTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                io::ErrorKind::TimedOut => StatusCode::REQUEST_TIMEOUT,
                _ => StatusCode::BAD_REQUEST,
            },
        }
    }

    /// Whether the upstream is at fault, rather than the client or this server.
    pub fn is_of_upstream(&self) -> bool {
        match self {
            Self::NoServer { why, .. } => *why == Unavailable::Down,
            Self::Failed { .. } | Self::TimedOut { .. } => true,
            Self::Shortage { .. } | Self::Loop { .. } | Self::Request(_) => false,
        }
    }

    /// The label value for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoServer { why: Unavailable::Unknown, .. } => "unknown",
            Self::NoServer { why: Unavailable::Down, .. } => "down",
            Self::NoServer { why: Unavailable::Full, .. } => "full",
            Self::Failed { failure, .. } => match failure {
                Failure::Connect(_) => "connect",
                Failure::Tls(_) => "tls",
                Failure::Closed(_) => "closed",
                Failure::Malformed(_) => "malformed",
                Failure::HeadTooLarge => "head_too_large",
                Failure::TooManyInterims => "too_many_interims",
                Failure::Switched => "switched",
                Failure::NoProtocols => "no_protocols",
            },
            Self::TimedOut { wait: Wait::Connection, .. } => "connect_timeout",
            Self::TimedOut { wait: Wait::Head, .. } => "head_timeout",
            Self::TimedOut { wait: Wait::Body, .. } => "body_timeout",
            Self::TimedOut { wait: Wait::End, .. } => "total_timeout",
            Self::Shortage { .. } => "shortage",
            Self::Loop { .. } => "loop",
            Self::Request(_) => "request",
        }
    }

    /// Logs the error if it concerns the operator.
    pub fn log(&self) {
        static SHORTAGE: Mutex<Option<Instant>> = Mutex::new(None);
        static LOOP: Mutex<Option<Instant>> = Mutex::new(None);
        match self {
            // Any client can cause this error as often as it likes. The access log has its status.
            Self::Request(_) => tracing::debug!(error = %self, "a request broke off on its way to an upstream"),
            Self::Shortage { .. } if seldom(&SHORTAGE) => {
                tracing::error!(error = %self, "no connection to an upstream")
            }
            Self::Loop { .. } if seldom(&LOOP) => tracing::error!(error = %self, "a request goes round in a circle"),
            Self::Shortage { .. } | Self::Loop { .. } => {}
            Self::NoServer { .. } | Self::Failed { .. } | Self::TimedOut { .. } => {
                tracing::warn!(error = %self, "no answer from an upstream");
            }
        }
    }

    /// The time that the client gives is over.
    pub(crate) fn client_gave_up() -> Self {
        Self::Request(io::Error::new(io::ErrorKind::TimedOut, "the time that its client gives is over"))
    }

    /// The upstream error inside an error of [`UpstreamBody`](crate::UpstreamBody).
    pub fn of_body(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(Self::Request)
    }

    /// The same, without taking the error.
    pub fn in_body(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// The server at fault, if there is one.
    pub fn server(&self) -> Option<&Arc<str>> {
        match self {
            Self::Failed { server, .. } | Self::TimedOut { server, .. } => Some(server),
            Self::NoServer { .. } | Self::Shortage { .. } | Self::Loop { .. } | Self::Request(_) => None,
        }
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServer { upstream, why } => match why {
                Unavailable::Unknown => write!(f, "upstream `{upstream}` has no server: no address is known so far"),
                Unavailable::Down => {
                    write!(f, "upstream `{upstream}` has no server: all of them are down or out of use")
                }
                Unavailable::Full => {
                    write!(
                        f,
                        "upstream `{upstream}` has no server: each has as many connections or requests as it may have"
                    )
                }
            },
            Self::Failed { server, failure, after } => {
                write!(f, "upstream server {server} {failure}, after {:.3} s", after.as_secs_f64())
            }
            Self::TimedOut { server, wait, after } => {
                let what = match wait {
                    Wait::Connection => "took no connection in time",
                    Wait::Head => "was silent for too long before its response",
                    Wait::Body => "was silent for too long within its response",
                    Wait::End => "did not end its response in time",
                };
                write!(f, "upstream server {server} {what}, after {:.3} s", after.as_secs_f64())
            }
            Self::Shortage { server, error } => {
                let advice = match Errno::from_io_error(error) {
                    Some(Errno::MFILE) => "raise its limit on open files (ulimit -n, LimitNOFILE=)",
                    Some(Errno::NFILE) => "raise the system's limit on open files (sysctl fs.file-max)",
                    Some(Errno::ADDRNOTAVAIL) => {
                        "widen the range of local ports (sysctl net.ipv4.ip_local_port_range), or keep more connections"
                    }
                    _ => "the system has no memory for another socket",
                };
                write!(
                    f,
                    "for upstream server {server} there is no socket: {error}; the lack is this server's: {advice}"
                )
            }
            Self::Loop { upstream, times } => {
                write!(
                    f,
                    "upstream `{upstream}` leads back here: by its Via, the request has come through here {times} times"
                )
            }
            Self::Request(error) => write!(f, "the request cannot be passed on: {error}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "took no connection: {error}"),
            Self::Tls(error) => write!(f, "could not agree on TLS: {error}{}", tls_mend(error)),
            Self::Closed(error) => write!(f, "broke off: {}", Chain(&**error)),
            Self::Malformed(error) => write!(f, "did not speak HTTP: {}", Chain(&**error)),
            Self::HeadTooLarge => f.write_str("sent a head larger than is allowed"),
            Self::TooManyInterims => f.write_str("sent more interim responses (1xx) than are allowed, or larger ones"),
            Self::Switched => f.write_str("changed protocols without being asked to"),
            Self::NoProtocols => f.write_str(
                "takes no WebSocket over HTTP/2 (RFC 8441); with `http://` or `https://` in `servers`, HTTP/1.1 is used for it",
            ),
        }
    }
}

impl std::error::Error for UpstreamError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed { failure: Failure::Connect(error) | Failure::Tls(error), .. }
            | Self::Shortage { error, .. }
            | Self::Request(error) => Some(error),
            Self::Failed { failure: Failure::Closed(error) | Failure::Malformed(error), .. } => Some(&**error),
            _ => None,
        }
    }
}

impl From<UpstreamError> for io::Error {
    fn from(error: UpstreamError) -> Self {
        let kind = match &error {
            UpstreamError::TimedOut { .. } => io::ErrorKind::TimedOut,
            UpstreamError::Request(error) => error.kind(),
            UpstreamError::NoServer { .. }
            | UpstreamError::Failed { .. }
            | UpstreamError::Shortage { .. }
            | UpstreamError::Loop { .. } => io::ErrorKind::ConnectionAborted,
        };
        Self::new(kind, error)
    }
}

impl Failure {
    /// The failure that an error of HTTP/2 stands for.
    pub(crate) fn of(error: h2::Error) -> Self {
        // Found here, and not told by the server.
        if error.is_library() && error.is_go_away() {
            Self::Malformed(error.into())
        } else {
            Self::Closed(error.into())
        }
    }

    /// The failure that ended an exchange over HTTP/1.1, or the error of the request itself.
    pub(crate) fn of_http1(error: ExchangeError) -> Result<Self, io::Error> {
        Ok(match error {
            ExchangeError::Closed(error) => Self::Closed(error.into()),
            ExchangeError::Malformed(error) => Self::Malformed(error),
            ExchangeError::HeadTooLarge => Self::HeadTooLarge,
            ExchangeError::TooManyInterims => Self::TooManyInterims,
            ExchangeError::Request(error) => return Err(error),
        })
    }
}

/// Whether a failed connect was caused by a shortage on this machine. `reached`: the server was connected to
/// before.
pub(crate) fn is_shortage(error: &io::Error, reached: bool) -> bool {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => true,
        // The system also returns this error if no local address can reach the server.
        Some(Errno::ADDRNOTAVAIL) => reached,
        _ => false,
    }
}

/// The kind of an error or, if it is `Other`, of the first cause with a kind.
fn kind_within(error: &io::Error) -> io::ErrorKind {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        match error.downcast_ref::<io::Error>() {
            Some(error) if error.kind() != io::ErrorKind::Other => return error.kind(),
            _ => next = error.source(),
        }
    }
    io::ErrorKind::Other
}

/// Whether enough time has passed for another log line.
fn seldom(last: &Mutex<Option<Instant>>) -> bool {
    let (mut last, now) = (last.lock(), Instant::now());
    let due = last.is_none_or(|last| now.saturating_duration_since(last) >= SELDOM);
    if due {
        *last = Some(now);
    }
    due
}

/// Whether the request was certainly not processed (RFC 9113, section 8.7): its HTTP/2 stream was refused, or
/// its number is above the last one named by a GOAWAY. For streams up to that number, h2 reports an I/O error
/// when the connection ends.
pub(crate) fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Displays an error with its causes.
struct Chain<'a>(&'a dyn std::error::Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(error) = next {
            write!(f, ": {error}")?;
            next = error.source();
        }
        Ok(())
    }
}

/// The advice to the operator about a certificate that is not accepted.
fn tls_mend(error: &io::Error) -> &'static str {
    use rustls::CertificateError as Wrong;
    match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(wrong)) => match wrong {
            Wrong::Expired | Wrong::ExpiredContext { .. } => " (renew the certificate of that server)",
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                " (`tls-name` of the `[[upstream]]` gives the name in the certificate)"
            }
            _ => {
                " (`tls-ca` of the `[[upstream]]` names the file of its authority; `tls-verify = false` takes any \
                 certificate)"
            }
        },
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_who_and_what_and_when() {
        let server: Arc<str> = "192.0.2.1:80".into();
        let refused = UpstreamError::Failed {
            server: server.clone(),
            failure: Failure::Connect(io::ErrorKind::ConnectionRefused.into()),
            after: Duration::from_millis(1500),
        };
        assert_eq!(
            refused.to_string(),
            "upstream server 192.0.2.1:80 took no connection: connection refused, after 1.500 s"
        );
        assert_eq!((refused.reason(), refused.status().as_u16()), ("connect", 502));
        let late = UpstreamError::TimedOut { server, wait: Wait::Head, after: Duration::from_secs(60) };
        assert_eq!((late.reason(), late.status().as_u16()), ("head_timeout", 504));
        assert_eq!(io::Error::from(late).kind(), io::ErrorKind::TimedOut);
        let none = UpstreamError::NoServer { upstream: "app".into(), why: Unavailable::Full };
        assert_eq!((none.reason(), none.status().as_u16()), ("full", 503));
        let error = Errno::MFILE.into();
        let shortage = UpstreamError::Shortage { server: "192.0.2.1:80".into(), error };
        assert_eq!((shortage.reason(), shortage.status().as_u16(), shortage.server()), ("shortage", 503, None));
        assert!(shortage.to_string().contains("LimitNOFILE="), "{shortage}");
    }

    #[test]
    fn a_request_that_broke_off_says_how() {
        let of_body = |kind: io::ErrorKind| io::Error::other(io::Error::other(Caused(kind.into())));
        let table = [
            (io::ErrorKind::FileTooLarge.into(), 413),
            (io::ErrorKind::TimedOut.into(), 408),
            (of_body(io::ErrorKind::TimedOut), 408),
            (of_body(io::ErrorKind::InvalidData), 400),
            (io::Error::other("whatever"), 400),
        ];
        for (error, status) in table {
            let told = format!("{error:?}");
            assert_eq!(UpstreamError::Request(error).status().as_u16(), status, "{told}");
        }
    }

    /// An error that wraps its cause in the way hyper does.
    #[derive(Debug)]
    struct Caused(io::Error);

    impl fmt::Display for Caused {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("caused")
        }
    }

    impl std::error::Error for Caused {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn what_we_lack_is_no_servers_fault() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            assert!(is_shortage(&errno.into(), false) && is_shortage(&errno.into(), true), "{errno}");
        }
        assert!(is_shortage(&Errno::ADDRNOTAVAIL.into(), true));
        assert!(!is_shortage(&Errno::ADDRNOTAVAIL.into(), false), "there may be no way to it at all");
        assert!(!is_shortage(&Errno::CONNREFUSED.into(), true));
        assert!(!is_shortage(&io::Error::other("closed"), true));
    }
}
