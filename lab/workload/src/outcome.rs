//! The outcome of a request, as its client measured it.

use serde::{Deserialize, Serialize};

/// One request and its end. Times are in nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// When the request was planned.
    pub at_ns: u64,
    /// Number of the file.
    pub file: u32,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Number of the client group.
    #[serde(default)]
    pub group: u16,
    /// Number of attempts: 1, and one more for each retry after an abort.
    #[serde(default)]
    pub attempts: u16,
    /// When the client began to send (to connect, for a new connection). Only the client's own lateness
    /// delays it.
    pub sent_ns: u64,
    /// When the first byte of the response was read.
    pub first_byte_ns: Option<u64>,
    /// When the last byte was read, the request failed, or the run ended.
    pub end_ns: u64,
    /// Bytes of the body that were read.
    pub body_bytes: u64,
    /// Bytes of the response head.
    pub head_bytes: u32,
    /// How it ended.
    pub end: End,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Status 200, and a body with the right length and bytes.
    Done,
    /// Still unfinished or unanswered when the run ended.
    Unfinished,
    /// The client gave up: its patience and its retries were used up.
    Aborted,
    /// The connection was refused.
    Refused,
    /// The connection was reset, or failed otherwise.
    Broken,
    /// TCP gave the connection up.
    TimedOut,
    /// The body ended before its announced length.
    Truncated,
    /// The response had a status other than 200.
    WrongStatus,
    /// No HTTP/1.1 head, no Content-Length, or one that differs from the file's size.
    WrongHead,
    /// The body's bytes differ from the file's.
    WrongBody,
    /// The client itself could not send the request (no port, no descriptor): the run is worthless.
    ClientFault,
}

impl End {
    /// Whether the request failed. Requests that the client or the run gave up do not count as failed.
    pub fn is_error(self) -> bool {
        !matches!(self, Self::Done | Self::Unfinished | Self::Aborted)
    }
}

impl Outcome {
    /// Time from the planned time to the end, in nanoseconds. Unless the end is [`End::Done`], it is a lower
    /// bound of the true response time.
    pub fn response_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.at_ns)
    }

    /// Lateness of the client, in nanoseconds.
    pub fn lateness_ns(&self) -> u64 {
        self.sent_ns.saturating_sub(self.at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_of_json_and_comes_back() {
        let outcome = Outcome {
            at_ns: 10,
            file: 3,
            size_bytes: 500,
            group: 0,
            attempts: 1,
            sent_ns: 12,
            first_byte_ns: None,
            end_ns: 90,
            body_bytes: 0,
            head_bytes: 0,
            end: End::TimedOut,
        };
        let line = serde_json::to_string(&outcome).unwrap();
        assert!(!line.contains('\n') && line.contains("\"timed_out\""), "{line}");
        assert_eq!(serde_json::from_str::<Outcome>(&line).unwrap(), outcome);
        assert_eq!((outcome.response_ns(), outcome.lateness_ns()), (80, 2));
    }
}
