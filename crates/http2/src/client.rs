//! A connection to a server: sends requests.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{
    client::{Builder, ResponseFuture, SendRequest},
    ext::Protocol,
};
use http::{HeaderMap, Request, Response};
use http_body::Body;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Notify,
};

use crate::{
    incoming::Incoming,
    keep_alive::{Heard, Listening},
    sending::{EndedEarly, Sending},
};

/// The window of a connection that nothing is said about (RFC 9113, section 6.9.2).
pub const FIRST_WINDOW_BYTES: u32 = 65_535;
/// Streams that a server takes until it says how many.
const FIRST_STREAMS: usize = 100;
/// Bytes that the framing may hold of a request's body while its server opens no window.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Memory that small DATA frames may take beyond what windows allow, as h2 counts it: a quarter of a kilobyte for each
/// frame that waits. Streams of short messages whose clients take none must not end the calls of others.
const SMALL_FRAMES_BYTES: usize = 64 * 1024 * 1024;

/// Sends requests on a connection; cheap to clone.
#[derive(Clone)]
pub struct Sender {
    requests: SendRequest<Bytes>,
    state: Arc<State>,
}

/// The state of a connection. Its task keeps it up to date.
#[derive(Debug)]
struct State {
    most_streams: AtomicUsize,
    is_over: AtomicBool,
    heard: Heard,
    /// Bytes have come, or the connection has ended.
    moved: Notify,
}

/// Why a request was not sent.
#[derive(Debug)]
pub enum Unsent<B> {
    /// The connection is at its end. Returns the fields and the body.
    Over(HeaderMap, B),
    /// The head cannot be written, or the connection ended at this moment.
    Failed(h2::Error),
}

/// A response that is waited for.
#[derive(Debug)]
pub struct Answering(ResponseFuture);

/// Begins a connection whose streams have windows of so many bytes. Heads of responses have up to `head_bytes`. Returns
/// a future that has to run until the connection has ended.
///
/// # Errors
/// The connection broke off.
pub async fn connect<S>(
    stream: S,
    stream_window: u32,
    connection_window: u32,
    head_bytes: u32,
) -> Result<(Sender, impl Future<Output = ()> + Send + use<S>), h2::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (stream, heard) = Listening::new(stream);
    let (requests, mut http) = Builder::new()
        .enable_push(false)
        .initial_max_send_streams(FIRST_STREAMS)
        .initial_window_size(stream_window)
        .initial_connection_window_size(connection_window)
        .max_header_list_size(head_bytes)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .data_frame_budget(SMALL_FRAMES_BYTES)
        .handshake(stream)
        .await?;
    let most_streams = AtomicUsize::new(http.max_concurrent_send_streams());
    let state = Arc::new(State { most_streams, is_over: AtomicBool::new(false), heard, moved: Notify::new() });
    let sender = Sender { requests, state: state.clone() };
    let driven = std::future::poll_fn(move |cx| {
        let polled: Poll<_> = Pin::new(&mut http).poll(cx);
        state.most_streams.store(http.max_concurrent_send_streams(), Relaxed);
        state.is_over.store(polled.is_ready(), Relaxed);
        state.moved.notify_waiters();
        let ended = ready!(polled);
        if let Err(error) = ended {
            tracing::debug!("an HTTP/2 connection to a server ends: {error}");
        }
        Poll::Ready(())
    });
    Ok((sender, driven))
}

impl Sender {
    /// Whether no more requests can be sent.
    pub fn is_over(&self) -> bool {
        if self.state.is_over.load(Relaxed) {
            return true;
        }
        // The server may have said that it goes away.
        let polled = self.requests.clone().poll_ready(&mut Context::from_waker(std::task::Waker::noop()));
        matches!(polled, Poll::Ready(Err(_)))
    }

    /// The streams that the server takes at once.
    pub fn most_streams(&self) -> usize {
        self.state.most_streams.load(Relaxed)
    }

    /// How often bytes have come from the server.
    pub fn heard(&self) -> u64 {
        self.state.heard.count()
    }

    /// Whether the server takes requests for other protocols (RFC 8441). It says so when the connection begins.
    pub fn takes_protocols(&self) -> bool {
        self.requests.is_extended_connect_protocol_enabled()
    }

    /// Waits until the server has said something, or is gone.
    pub async fn greeted(&self) {
        loop {
            let notified = self.state.moved.notified();
            if self.state.heard.count() > 0 || self.is_over() {
                return;
            }
            notified.await;
        }
    }

    /// Sends a request, for another protocol if there is one. Without a body, the request ends with its head.
    ///
    /// # Errors
    /// The connection is at its end, or the head cannot be written.
    pub fn send<B>(
        &mut self,
        request: Request<B>,
        protocol: Option<&'static str>,
    ) -> Result<(Answering, Option<Sending<B>>), Unsent<B>>
    where
        B: Body<Data = Bytes, Error: Into<EndedEarly>> + Unpin,
    {
        if self.is_over() {
            let (parts, body) = request.into_parts();
            return Err(Unsent::Over(parts.headers, body));
        }
        let (mut parts, body) = request.into_parts();
        if let Some(protocol) = protocol {
            parts.extensions.insert(Protocol::from_static(protocol));
        }
        let is_whole = body.is_end_stream();
        let (response, stream) =
            self.requests.send_request(Request::from_parts(parts, ()), is_whole).map_err(Unsent::Failed)?;
        Ok((Answering(response), (!is_whole).then(|| Sending::new(body, stream))))
    }
}

impl Answering {
    /// Polls for the head of the response. `interim` gets the interim responses before it.
    ///
    /// # Errors
    /// The server has reset the stream, or the connection is at its end.
    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        interim: &mut (dyn FnMut(Response<()>) + Send),
    ) -> Poll<Result<Response<Incoming>, h2::Error>> {
        while let Poll::Ready(Some(told)) = self.0.poll_informational(cx) {
            interim(told?);
        }
        let (head, body) = ready!(Pin::new(&mut self.0).poll(cx))?.into_parts();
        let body = Incoming::new(body, &head.headers);
        Poll::Ready(Ok(Response::from_parts(head, body)))
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("state", &self.state).finish_non_exhaustive()
    }
}
