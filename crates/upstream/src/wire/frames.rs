//! A body for tests.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame};

/// A body of these frames.
#[derive(Default)]
pub(super) struct Frames(VecDeque<io::Result<Frame<Bytes>>>);

impl Frames {
    pub(super) fn data(texts: &[&'static str]) -> Self {
        Self(texts.iter().map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes())))).collect())
    }

    pub(super) fn and(mut self, last: io::Result<Frame<Bytes>>) -> Self {
        self.0.push_back(last);
        self
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.0.pop_front())
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}
