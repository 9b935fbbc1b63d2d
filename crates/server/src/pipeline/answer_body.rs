//! The body of an answer, wherever it comes from.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use compression::CompressedBody;
use heads::GrpcStatus;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tokio::io::DuplexStream;

use super::{call::CallBody, presence::Presence};
use crate::{
    admission::Slot,
    body::{OriginBody, Pulse, ReaderBody, Relayed},
    upstream::{UpstreamBody, UpstreamError},
};
use files::FileBody;

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum AnswerBody {
    /// From a file, or a page of ours.
    File(FileBody),
    /// As an upstream sends it.
    Upstream(Box<SlotBody>),
    /// As a program writes it; or here whole, with trailers.
    Program(OriginBody),
    /// As an origin sent it; kept here until the client takes it.
    Relayed(Relayed),
    /// As it is stored, by this request or another one.
    Stored(cache::Reader),
    /// The answer of an upstream to a call of gRPC.
    Call(Box<CallBody<AnswerBody>>),
    /// Bytes of another protocol.
    Tunnel(ReaderBody<DuplexStream>),
    /// One of the others, compressed while it is sent.
    Compressed(Box<CompressedBody<Box<AnswerBody>>>),
}

/// A body that holds a slot to its end, where there is one, or until its client is gone.
pub(crate) struct SlotBody {
    body: UpstreamBody,
    slot: Option<Slot>,
    presence: Option<Presence>,
    pulse: Option<Pulse>,
}

impl fmt::Debug for SlotBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotBody").field("body", &self.body).field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl SlotBody {
    pub(super) fn new(body: UpstreamBody, slot: Option<Slot>, presence: Presence, pulse: Option<Pulse>) -> Self {
        Self { body, slot, presence: Some(presence), pulse }
    }

    /// A body for no client.
    pub(super) fn without_client(body: UpstreamBody, slot: Option<Slot>) -> Self {
        Self { body, slot, presence: None, pulse: None }
    }

    /// A body of which nothing is to be waited for.
    pub(super) fn ended(body: UpstreamBody) -> Self {
        Self { body, slot: None, presence: None, pulse: None }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            let Some(presence) = &mut self.presence else { return Poll::Pending };
            return Pin::new(presence).poll(cx).map(|()| {
                self.presence = None;
                Some(Err(io::ErrorKind::ConnectionAborted.into()))
            });
        };
        if let Some(pulse) = &self.pulse {
            pulse.beat();
        }
        match &frame {
            Some(Err(error)) => {
                let error = UpstreamError::in_body(error);
                if error.is_none_or(UpstreamError::is_of_upstream) {
                    self.slot.take().into_iter().for_each(Slot::fail);
                }
                match error {
                    Some(error) => error.log(),
                    None => tracing::warn!("a response of an upstream broke off"),
                }
            }
            // A call of gRPC tells at its end whether it has failed.
            Some(Ok(frame)) => {
                if let (Some(slot), Some(trailers)) = (&mut self.slot, frame.trailers_ref())
                    && GrpcStatus::of(trailers).is_some_and(GrpcStatus::is_of_server)
                {
                    slot.answered(StatusCode::INTERNAL_SERVER_ERROR);
                }
            }
            None => {}
        }
        if frame.is_none()
            && let Some(slot) = self.slot.take()
        {
            slot.finish();
        }
        Poll::Ready(frame)
    }
}

impl Drop for SlotBody {
    fn drop(&mut self) {
        // A body of known length is dropped with its last byte.
        if let Some(slot) = self.slot.take()
            && self.body.is_end_stream()
        {
            slot.finish();
        }
    }
}

impl AnswerBody {
    /// The body is taken to its end from now on, even if its client goes.
    pub(super) fn leave_client(&mut self) {
        if let Self::Upstream(holding) = self {
            holding.presence = None;
        }
    }
}

impl Default for AnswerBody {
    fn default() -> Self {
        Self::File(FileBody::empty())
    }
}

impl From<FileBody> for AnswerBody {
    fn from(body: FileBody) -> Self {
        Self::File(body)
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::File(body) => Pin::new(body).poll_frame(cx),
            Self::Upstream(body) => body.poll_frame(cx),
            Self::Program(body) => Pin::new(body).poll_frame(cx),
            Self::Relayed(body) => Pin::new(body).poll_frame(cx),
            Self::Stored(body) => Pin::new(body).poll_frame(cx),
            Self::Call(body) => Pin::new(&mut **body).poll_frame(cx),
            Self::Tunnel(body) => Pin::new(body).poll_frame(cx),
            Self::Compressed(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::File(body) => body.is_end_stream(),
            Self::Upstream(body) => body.body.is_end_stream(),
            Self::Program(body) => body.is_end_stream(),
            Self::Relayed(body) => body.is_end_stream(),
            Self::Stored(body) => body.is_end_stream(),
            Self::Call(body) => body.is_end_stream(),
            Self::Tunnel(body) => body.is_end_stream(),
            Self::Compressed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::File(body) => body.size_hint(),
            Self::Upstream(body) => body.body.size_hint(),
            Self::Program(body) => body.size_hint(),
            Self::Relayed(body) => body.size_hint(),
            Self::Stored(body) => body.size_hint(),
            Self::Call(body) => body.size_hint(),
            Self::Tunnel(body) => body.size_hint(),
            Self::Compressed(body) => body.size_hint(),
        }
    }
}
