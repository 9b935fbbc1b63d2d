//! The settings of a connection.

use std::time::Duration;

use h2::server::Builder;

/// Bytes that the framing may hold of a stream's response while its client opens no window. More would leave the order.
const SEND_BUFFER_BYTES: usize = 16 * 1024;
/// Streams that a client may reset before they are looked at (CVE-2023-44487), and resets that it may provoke
/// (CVE-2025-8671), before its connection is closed. The defaults of h2 are 20 and 1024.
const PENDING_RESETS: usize = 20;
const PROVOKED_RESETS: usize = 256;
/// Windows for what clients send: small request bodies.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;

/// Memory that small DATA frames may take beyond what windows allow, as h2 counts it: a quarter of a kilobyte for each
/// frame that waits. The default of h2, half a window, is used up by 500 short messages of gRPC that an upstream does
/// not take at once.
const SMALL_FRAMES_BYTES: usize = 4 * 1024 * 1024;

/// The settings of connections, made once for many of them.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) builder: Builder,
    pub(crate) quiet: Duration,
    pub(crate) patience: Duration,
}

impl Settings {
    /// Up to `streams` requests at once, with heads of up to `head_bytes`. A client of which nothing came for a time of
    /// `quiet` is asked whether it is there; if nothing comes for a time of `patience`, its connection ends.
    pub fn new(streams: u32, head_bytes: u32, quiet: Duration, patience: Duration) -> Self {
        let mut builder = Builder::new();
        builder
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            .max_concurrent_streams(streams)
            .max_header_list_size(head_bytes)
            .max_pending_accept_reset_streams(PENDING_RESETS)
            .max_local_error_reset_streams(Some(PROVOKED_RESETS))
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .data_frame_budget(SMALL_FRAMES_BYTES);
        // WebSocket (RFC 8441).
        builder.enable_connect_protocol();
        Self { builder, quiet, patience }
    }
}
