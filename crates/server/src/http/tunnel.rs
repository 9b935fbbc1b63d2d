//! A connection on which HTTP has ended: WebSocket and other protocols, passed through as they are.

use std::{
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, copy_bidirectional};
use tokio_util::sync::CancellationToken;

use crate::{
    body::{BodyReader, IncomingBody, ReaderBody},
    gate::{Burst, Flow},
    uplink::ClassAt,
    upstream::Upgraded,
};

/// Passes bytes both ways until both sides have ended, nothing moved for `idle`, or the server stops.
pub(super) async fn run<S>(mut client: Client<S>, mut upstream: Upgraded, stopping: &CancellationToken, idle: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let moved = client.moved.clone();
    let early = std::mem::take(&mut client.early);
    let passed = async {
        upstream.write_all(&early).await?;
        copy_bidirectional(&mut client, &mut upstream).await.map(drop)
    };
    let silent = async {
        let mut before = moved.load(Relaxed);
        loop {
            tokio::time::sleep(idle).await;
            let now = moved.load(Relaxed);
            if now == before {
                return;
            }
            before = now;
        }
    };
    let mut passed = pin!(passed);
    tokio::select! {
        // The side that broke off knows why.
        _ = &mut passed => {}
        () = silent => {}
        () = stopping.cancelled() => {}
    }
}

/// Bytes that wait for the uplink or for the window of the client.
const STREAM_BYTES: usize = 16 * 1024;

/// The same in a task of its own, between the upstream and a stream of HTTP/2. Returns what its client gets. The body
/// of the response takes its turns on the uplink, like any other of its connection. When it is dropped, the task ends.
pub(crate) fn of_stream(
    from_client: IncomingBody,
    upstream: Upgraded,
    stopping: CancellationToken,
    idle: Duration,
) -> ReaderBody<DuplexStream> {
    let (near, far) = tokio::io::duplex(STREAM_BYTES);
    let inner = tokio::io::join(BodyReader::new(from_client), near);
    let client = Client { inner, early: Bytes::new(), moved: Arc::default(), ranked: None, burst: None };
    tokio::spawn(async move { run(client, upstream, &stopping, idle).await });
    ReaderBody::new(far)
}

/// The client's side. Counts the bytes that pass. Bytes for the client take their turn on the uplink, burst by burst. A
/// burst comes without a pause, and is ranked like one response of unknown length. So bytes sent earlier do not lower
/// the rank of a short message.
pub(super) struct Client<S> {
    inner: S,
    /// Bytes of the client's that were read already.
    early: Bytes,
    moved: Arc<AtomicU64>,
    /// `None`: what takes it sees to that.
    ranked: Option<(Flow, ClassAt)>,
    burst: Option<Burst>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(super) fn new(inner: S, early: Bytes, flow: Flow, class: ClassAt) -> Self {
        Self { inner, early, moved: Arc::default(), ranked: Some((flow, class)), burst: None }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Client<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.moved.fetch_add((buf.filled().len() - before) as u64, Relaxed);
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Client<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.burst.is_none() {
            self.burst = self.ranked.as_ref().map(|(flow, class)| flow.burst(*class));
        }
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        if let Poll::Ready(Ok(bytes)) = &written {
            self.moved.fetch_add(*bytes as u64, Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // There is nothing more to be written for now.
        self.burst = None;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
