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
    frames::{Fault, Frames, Part, goaway, kind},
    http1::HTTP2_PREFACE,
    lingering_close::LingeringClose,
    priority_updates::PriorityUpdates,
};
use crate::{gate::Flow, metrics::WorkerMetrics};

/// A connection of HTTP/2, of which the first bytes may have been read already. It ends as such connections do: acknowledgements
/// of all kinds come until the end.
///
/// Frames are counted on their way. A client that floods the connection with control frames ([`super::flood`]) gets a GOAWAY, and
/// h2 sees the end of the connection. PRIORITY_UPDATE frames are read, because h2 ignores them.
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
        }
    }

    /// What the client says of its windows and of what is urgent concerns `flow`. It may have so many streams at once.
    pub(super) fn with_flow(mut self, flow: Flow, streams: u32) -> Self {
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
        ready!(this.poll_bytes(cx, buf))?;
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
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::{
        config::{Classes, Cutoffs, Enforce, UplinkConfig, UplinkRate},
        gate::Gate,
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
}
