//! The access logs: one of the server, and those of sites and routes. Entries go through a bounded channel to one
//! thread that formats and writes the lines of all logs, so that a slow disk never delays a response. Entries that find
//! the channel full are counted and reported, in their log and in the metrics.

#![forbid(unsafe_code)]

use std::{
    net::SocketAddr,
    sync::{Arc, LazyLock, atomic::AtomicU64},
    time::{Duration, SystemTime},
};

use http::{StatusCode, header, request::Parts};

mod config;
mod line;
mod receiver;
mod record;
mod sink;
mod writer;

use self::record::Record;
pub use self::{
    config::{
        AccessLog, Facility, LogChoice, LogChoices, LogFormat, LogTarget, Severity, Syslog, SyslogFormat, SyslogServer,
    },
    record::{Processed, Sent},
    writer::{Log, Logs, OpenError, Opened, Writer},
};

/// Longest target or header field; longer ones are cut, as they are for people to read.
const MAX_FIELD_BYTES: usize = 2048;

/// Messages of this process that its error log did not take. There is one such log in a process.
pub fn messages_dropped() -> Arc<AtomicU64> {
    static DROPPED: LazyLock<Arc<AtomicU64>> = LazyLock::new(Arc::default);
    DROPPED.clone()
}

/// An entry that waits for its response's outcome.
#[derive(Debug)]
pub struct Entry {
    record: Box<Record>,
}

impl Entry {
    /// Copies the needed parts of the head. A reference would keep the connection's buffer alive. `refused`
    /// is the line of a request that could not be parsed.
    pub fn new(peer: SocketAddr, parts: &Parts, refused: Option<Box<[u8]>>) -> Self {
        let field = |name| parts.headers.get(name).map_or(b"".as_slice(), http::HeaderValue::as_bytes);
        let host = parts.uri.authority().map_or_else(|| field(header::HOST), |authority| authority.as_str().as_bytes());
        let target = parts.uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str).as_bytes();
        let mut text = Vec::with_capacity(256);
        let ends = [host, target, field(header::REFERER), field(header::USER_AGENT)].map(|part| {
            text.extend_from_slice(&part[..part.len().min(MAX_FIELD_BYTES)]);
            u32::try_from(text.len()).unwrap_or(u32::MAX)
        });
        let record = Record {
            peer: peer.ip().to_canonical(),
            time: SystemTime::now(),
            method: parts.method.clone(),
            version: parts.version,
            status: StatusCode::OK,
            body_bytes: 0,
            complete: false,
            response_time: Duration::ZERO,
            slowdown: None,
            processed: Processed {
                class: "-".into(),
                user: None,
                waited: Duration::ZERO,
                upstream: None,
                attempts: None,
                cache: None,
                trace: None,
                grpc_status: None,
            },
            text: text.into_boxed_slice(),
            ends,
            refused,
        };
        Self { record: Box::new(record) }
    }

    /// Sends the entry to the writer; never blocks.
    pub fn write(self, log: &Log, status: StatusCode, sent: Sent, response_time: Duration, processed: Processed) {
        let Self { mut record } = self;
        record.processed = processed;
        record.status = status;
        record.body_bytes = sent.body_bytes;
        record.complete = sent.complete;
        record.slowdown = sent.slowdown;
        record.response_time = response_time;
        log.send(record);
    }
}
