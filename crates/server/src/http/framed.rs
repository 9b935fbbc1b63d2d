//! The transport under h2.

use std::{
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::{
    client_settings::ClientSettings,
    flood::Account,
    frames::{Fault, Frames, Part, filler, goaway, kind},
    http1::HTTP2_PREFACE,
    lingering_close::LingeringClose,
    priority_updates::PriorityUpdates,
};
use crate::{gate::Flow, metrics::WorkerMetrics};

/// A connection of HTTP/2, of which the first bytes may have been read already. It ends as such connections do:
/// acknowledgements of all kinds come until the end.
///
/// Frames are counted on their way. A client that floods the connection with control frames ([`super::flood`]) gets a
/// GOAWAY, and h2 sees the end of the connection. PRIORITY_UPDATE frames are read, because h2 ignores them.
///
/// h2 reads into a buffer that it never gives back, one read behind the other, until the end of the buffer is reached.
/// When the connection rests, a frame that h2 ignores fills the rest of the buffer. Then h2 begins a buffer, this one
/// or a new one, and the memory of all of its pages is given back.
#[derive(Debug)]
pub(super) struct Framed<S> {
    inner: S,
    early: Bytes,
    received: Frames,
    sent: Frames,
    account: Account,
    /// The client is cut off: nothing more comes, and nothing more goes out.
    is_cut: bool,
    metrics: Arc<WorkerMetrics>,
    lingering_close: LingeringClose,
    client_settings: ClientSettings,
    priority_updates: PriorityUpdates,
    /// Is told the window with which the client lets streams begin, and how urgent they are.
    flow: Option<Flow>,
    /// Streams that a client may call urgent before it opens them.
    most_early: usize,
    buffer: Buffer,
}

/// The buffer into which h2 reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Buffer {
    InUse,
    /// It was filled, so that the next read is to the start of one.
    Filled,
    /// Its memory was given back.
    GivenBack,
}

impl<S> Framed<S> {
    pub(super) fn new(inner: S, early: Bytes, metrics: Arc<WorkerMetrics>) -> Self {
        Self {
            inner,
            early,
            received: Frames::behind(HTTP2_PREFACE.len()),
            sent: Frames::behind(0),
            account: Account::new(Instant::now()),
            is_cut: false,
            metrics,
            lingering_close: LingeringClose::default(),
            client_settings: ClientSettings::behind(HTTP2_PREFACE.len()),
            priority_updates: PriorityUpdates::default(),
            flow: None,
            most_early: 0,
            buffer: Buffer::InUse,
        }
    }

    /// `flow` is told the windows and priorities that the client sends. The client may have `streams` streams at once.
    pub(super) fn with_flow(mut self, flow: Flow, streams: u32) -> Self {
        flow.set_keeps_buffer();
        (self.flow, self.most_early) = (Some(flow), streams as usize);
        self
    }

    /// `frames`: how many SETTINGS frames begin in the bytes that came.
    fn note_settings(&mut self, bytes: &[u8], frames: u32) {
        let Some(flow) = &self.flow else { return };
        let was_read = self.client_settings.is_read();
        let window_bytes = self.client_settings.read(bytes);
        if frames > u32::from(!was_read) {
            // Another window holds from a later frame on.
            flow.set_stream_window(None);
        } else if window_bytes.is_some() {
            flow.set_stream_window(window_bytes);
        }
    }

    fn note_sent(&mut self, bytes: &[u8]) {
        let Self { sent, account, .. } = self;
        sent.read(bytes, |frame| account.sent(frame));
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Framed<S> {
    fn poll_bytes(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let len = self.early.len().min(buf.remaining());
        buf.put_slice(&self.early[..len]);
        self.early.advance(len);
        Poll::Ready(Ok(()))
    }

    /// Nothing is there to be read into the buffer. Ready when it was filled by what h2 ignores.
    fn poll_buffer(&mut self, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let may_rest = self.flow.as_ref().is_some_and(Flow::is_resting) && self.received.takes_any();
        match self.buffer {
            Buffer::InUse if may_rest => {
                let room = buf.remaining();
                let Some((head, len)) = filler(room) else { return Poll::Pending };
                buf.put_slice(&head);
                buf.initialize_unfilled_to(len - head.len());
                buf.advance(len - head.len());
                if len == room {
                    self.buffer = Buffer::Filled;
                }
                return Poll::Ready(Ok(()));
            }
            Buffer::Filled => {
                kernel::memory::give_back(buf.initialize_unfilled());
                self.buffer = Buffer::GivenBack;
            }
            Buffer::InUse | Buffer::GivenBack => {}
        }
        Poll::Pending
    }

    /// Tells the client why, if no frame is half sent, and the connection takes it at once.
    fn cut(&mut self, cx: &mut Context<'_>, fault: Fault) {
        self.is_cut = true;
        if fault == Fault::EnhanceYourCalm {
            self.metrics.http2_floods.fetch_add(1, Relaxed);
            tracing::debug!("a client floods an HTTP/2 connection with control frames, and is cut off");
        } else {
            tracing::debug!(?fault, "a client sends a PRIORITY_UPDATE frame that no client may send, and is cut off");
        }
        if self.sent.is_between() {
            let _ = Pin::new(&mut self.inner).poll_write(cx, &goaway(self.account.last_stream(), fault));
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Framed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.is_cut {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        match this.poll_bytes(cx, buf) {
            Poll::Ready(read) => read?,
            Poll::Pending => return this.poll_buffer(buf),
        }
        this.buffer = Buffer::InUse;
        let Self { account, priority_updates, flow, most_early, .. } = this;
        let now = Instant::now();
        let mut fault = None;
        let bytes = &buf.filled()[before..];
        let mut settings = 0;
        this.received.read_parts(bytes, |part| match part {
            Part::Head(frame) => {
                if account.received(frame, now).is_err() {
                    fault = Some(Fault::EnhanceYourCalm);
                }
                // An acknowledgement is empty.
                settings += u32::from(frame.kind == kind::SETTINGS && frame.len > 0);
                fault = fault.or(priority_updates.handle_head(frame).err());
            }
            Part::Payload(payload) => match (priority_updates.handle_payload(payload), &*flow) {
                (Ok(Some(update)), Some(flow)) => {
                    let taken = flow.handle_priority(update.stream, update.field, account.last_stream(), *most_early);
                    fault = fault.or(taken.is_err().then_some(Fault::Protocol));
                }
                (Ok(_), _) => {}
                (Err(bad), _) => fault = fault.or(Some(bad)),
            },
        });
        this.note_settings(bytes, settings);
        if let Some(fault) = fault {
            buf.set_filled(before);
            this.cut(cx, fault);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Framed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_cut {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.note_sent(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_cut {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, slices))?;
        let mut left = written;
        for slice in slices {
            let len = left.min(slice.len());
            self.note_sent(&slice[..len]);
            left -= len;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.lingering_close.poll(&mut this.inner, true, cx));
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, time::Duration};

    use http::{Request, Response};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        time::sleep,
    };

    use super::*;
    use crate::{
        config::{Classes, Cutoffs, Enforce, UplinkConfig, UplinkRate},
        gate::{
            Gate,
            tests::memory::{self, MemoryClient},
        },
        uplink::Uplink,
    };

    /// An uplink without a rate: nothing waits for leave.
    fn uplink() -> Uplink {
        let config = UplinkConfig {
            rate: UplinkRate::Off,
            order: scheduler::Order::Srpt,
            enforce: Enforce::Off,
            line: None,
            cutoffs: Cutoffs::Learned,
            guard_stretch: None,
            utilisation: Some(1.0),
            segment_overhead_bytes: 66,
            device: None,
            keep: Default::default(),
        };
        Uplink::new(&config, &Classes::one()).expect("nothing is needed for it")
    }

    #[tokio::test]
    async fn the_flow_is_told_the_window_of_the_first_settings_and_forgets_it_with_the_next_ones() {
        const SETTINGS: &[u8] = &[0, 0, 6, kind::SETTINGS, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0];
        const ACKNOWLEDGEMENT: &[u8] = &[0, 0, 0, kind::SETTINGS, 1, 0, 0, 0, 0];
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap());
        let (_client, accepted) = tokio::join!(client, listener.accept());
        let flow = Gate::tcp(accepted.unwrap().0, &uplink()).flow();
        let window_after = async |frames: &[&[u8]]| {
            let bytes = [HTTP2_PREFACE, &frames.concat()].concat();
            let early = Bytes::from(bytes.clone());
            let mut framed = Framed::new(tokio::io::empty(), early, Arc::default()).with_flow(flow.clone(), 128);
            framed.read_exact(&mut vec![0; bytes.len()]).await.unwrap();
            flow.open_window_bytes(0)
        };
        assert_eq!(window_after(&[SETTINGS]).await, 1 << 16);
        assert_eq!(window_after(&[SETTINGS, ACKNOWLEDGEMENT]).await, 1 << 16);
        assert_eq!(window_after(&[SETTINGS, ACKNOWLEDGEMENT, SETTINGS]).await, 0);
    }

    /// Notes how much room the last read had that found nothing.
    struct Watched<S> {
        inner: S,
        room: Arc<AtomicUsize>,
    }

    impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let read = Pin::new(&mut self.inner).poll_read(cx, buf);
            if read.is_pending() {
                self.room.store(buf.remaining(), Relaxed);
            }
            read
        }
    }

    impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.inner).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_shutdown(cx)
        }
    }

    /// h2 behind a gate; and the room in its buffer.
    fn served() -> (MemoryClient, Arc<AtomicUsize>) {
        let (transport, client) = memory::connection(1 << 16);
        let gate = Gate::new(transport, &uplink());
        let flow = gate.flow();
        let inner = Framed::new(gate, Bytes::new(), Arc::default()).with_flow(flow, 128);
        let room = Arc::<AtomicUsize>::default();
        let watched = Watched { inner, room: room.clone() };
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(watched).await.unwrap();
            while let Some(request) = connection.accept().await {
                request.unwrap().1.send_response(Response::new(()), true).unwrap();
            }
        });
        (client, room)
    }

    #[tokio::test(start_paused = true)]
    async fn the_buffer_of_a_connection_that_rests_is_read_to_from_its_start_again() {
        let (client, room) = served();
        let (mut client, connection) = h2::client::handshake(client).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..3 {
            for _ in 0..30 {
                let request = Request::builder().uri("http://a/").header("x", "y".repeat(200)).body(()).unwrap();
                client.send_request(request, true).unwrap().0.await.unwrap();
            }
            let used = room.load(Relaxed);
            assert!(used % 4096 != 0, "{used}");
            sleep(Duration::from_secs(10)).await;
            assert_eq!(room.load(Relaxed), 8192);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_rest_within_a_block_of_fields() {
        const HEADERS: &[u8] = &[0, 0, 2, kind::HEADERS, 1, 0, 0, 0, 1, 0x82, 0x87];
        const CONTINUATION: &[u8] = &[0, 0, 4, kind::CONTINUATION, 4, 0, 0, 0, 1, 0x84, 0x01, 0x01, b'a'];
        const NO_SETTINGS: &[u8] = &[0, 0, 0, kind::SETTINGS, 0, 0, 0, 0, 0];
        let (mut client, room) = served();
        client.write_all(&[HTTP2_PREFACE, NO_SETTINGS, HEADERS].concat()).await.unwrap();
        sleep(Duration::from_secs(10)).await;
        assert_ne!(room.load(Relaxed), 8192);
        client.write_all(CONTINUATION).await.unwrap();
        sleep(Duration::from_secs(10)).await;
        assert_eq!(room.load(Relaxed), 8192);
        let mut sent = vec![0; 4096];
        let len = client.read(&mut sent).await.unwrap();
        let mut kinds = Vec::new();
        Frames::behind(0).read(&sent[..len], |frame| kinds.push((frame.kind, frame.stream)));
        assert!(kinds.contains(&(kind::HEADERS, 1)), "{kinds:?}");
    }
}
