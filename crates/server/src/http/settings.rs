//! The limits of a configuration as HTTP needs them.

use std::time::Duration;

use ::http1::HeadLimits;
use hyper::server::conn::http2;
use hyper_util::rt::TokioTimer;

use super::http1::Patience;
use crate::{config::Limits, gate::StreamExecutor};

/// Bytes that hyper may hold of an HTTP/2 stream's response beyond what the gate has let through. Its default of 400 KB
/// would take a large response out of the scheduler's hands.
const HTTP2_SEND_BUFFER_BYTES: usize = 16 * 1024;
/// Streams that a client may reset before they are looked at (CVE-2023-44487), and resets that it may provoke
/// (CVE-2025-8671), before its connection is closed. The defaults of h2 are 20 and 1024.
const HTTP2_PENDING_RESETS: usize = 20;
const HTTP2_PROVOKED_RESETS: usize = 256;
/// Windows for what clients send: small request bodies.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;

/// The settings of HTTP, made once for all connections of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct HttpSettings {
    pub(super) http2: http2::Builder<StreamExecutor>,
    pub(super) head: HeadLimits,
    pub(super) patience: Patience,
}

impl HttpSettings {
    pub(crate) fn new(limits: &Limits) -> Self {
        let mut http2 = http2::Builder::new(StreamExecutor);
        http2
            .timer(TokioTimer::new())
            .max_send_buf_size(HTTP2_SEND_BUFFER_BYTES)
            .max_concurrent_streams(limits.http2_streams)
            .max_header_list_size(u32::try_from(limits.request_head_bytes).unwrap_or(u32::MAX))
            .max_pending_accept_reset_streams(HTTP2_PENDING_RESETS)
            .max_local_error_reset_streams(HTTP2_PROVOKED_RESETS)
            .initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
            // Finds clients that vanished; an idle one that answers is closed by `idle_timeout`.
            .keep_alive_interval(limits.idle_timeout.max(Duration::from_secs(1)))
            .keep_alive_timeout(limits.head_timeout.max(Duration::from_secs(1)));
        Self {
            http2,
            head: HeadLimits { head_bytes: limits.request_head_bytes, fields: limits.request_headers },
            patience: Patience { head: limits.head_timeout, idle: limits.idle_timeout },
        }
    }
}
