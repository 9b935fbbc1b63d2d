//! One response in HTTP/2, checked as strictly as in HTTP/1.1.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use h2::{RecvStream, client::ResponseFuture};
use http::header::CONTENT_LENGTH;
use workload::{outcome::End, sequence::Request};

use crate::{client::report::Progress, docroot::Content};

/// A sent request with its response. Dropping it before its end resets the stream (CANCEL).
pub(super) struct Stream {
    file: u32,
    size_bytes: u64,
    progress: Progress,
    part: Part,
    waker: Waker,
}

enum Part {
    Head(ResponseFuture),
    Body(RecvStream),
}

/// Why a response is incomplete.
pub(super) enum Failure {
    /// It is wrong.
    Wrong(End),
    /// The stream or its connection failed.
    Protocol(h2::Error),
}

impl Stream {
    /// The response to a request; `waker` is woken when there is more of it.
    pub(super) fn new(request: &Request, response: ResponseFuture, waker: Waker) -> Self {
        let Request { file, size_bytes, .. } = *request;
        Self { file, size_bytes, progress: Progress::default(), part: Part::Head(response), waker }
    }

    /// Progress of the response. The head counts as uncompressed names and values, because h2 does not report
    /// its size on the wire.
    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    /// Reads all received data. Ready when the stream has ended, with success or not.
    pub(super) fn poll(&mut self, content: &Content) -> Poll<Result<(), Failure>> {
        let context = &mut Context::from_waker(&self.waker);
        if let Part::Head(response) = &mut self.part {
            let response = ready!(Pin::new(response).poll(context)).map_err(Failure::Protocol)?;
            let (head, body) = response.into_parts();
            self.part = Part::Body(body);
            self.progress.answered = true;
            self.progress.head_bytes =
                head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() as u32;
            if head.status != 200 {
                return Poll::Ready(Err(Failure::Wrong(End::WrongStatus)));
            }
            let announced =
                head.headers.get_all(CONTENT_LENGTH).iter().map(|value| value.to_str().ok()?.parse::<u64>().ok());
            if !announced.eq([Some(self.size_bytes)]) {
                return Poll::Ready(Err(Failure::Wrong(End::WrongHead)));
            }
        }
        let Part::Body(body) = &mut self.part else { unreachable!("the head is there") };
        while let Some(bytes) = ready!(body.poll_data(context)) {
            let bytes = bytes.map_err(Failure::Protocol)?;
            let more_than_announced = bytes.len() as u64 > self.size_bytes - self.progress.body_bytes;
            if more_than_announced || !content.matches(self.file, self.progress.body_bytes, &bytes) {
                return Poll::Ready(Err(Failure::Wrong(End::WrongBody)));
            }
            self.progress.body_bytes += bytes.len() as u64;
            body.flow_control().release_capacity(bytes.len()).map_err(Failure::Protocol)?;
        }
        let whole = self.progress.body_bytes == self.size_bytes;
        Poll::Ready(if whole { Ok(()) } else { Err(Failure::Wrong(End::Truncated)) })
    }
}
