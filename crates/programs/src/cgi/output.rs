//! The output of a program: the head of its answer, and its body.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bodies::{OriginBody, RequestBody, full};
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::{net::unix::pipe, sync::oneshot, time::Instant};

use super::{
    answer::{self, Head, ResponseHead},
    error::CgiError,
    keeper::{Incomplete, Keeper, RestToDrain},
    slot::ProgramSlot,
};
use crate::program::{Running, Started, receiver};

/// Bytes read from a program at once: the capacity of a pipe.
const READ_BYTES: usize = 64 << 10;

/// The output of a program, for the reader of the answer.
#[derive(Debug)]
pub(super) struct Output {
    stream: pipe::Receiver,
    read: BytesMut,
    /// `None`: the keeper has finished, so the program has ended.
    incomplete: Option<oneshot::Receiver<Incomplete>>,
    done: Option<oneshot::Sender<RestToDrain>>,
}

impl Output {
    /// Spawns the keeper of a started program.
    pub(super) fn keep(
        name: &str,
        started: Started,
        body: RequestBody,
        slot: ProgramSlot,
        deadline: Instant,
    ) -> io::Result<Self> {
        let Started { process, input, output, errors } = started;
        let program = Running::new(process)?;
        let input = input.map(pipe::Sender::from_owned_fd).transpose()?;
        let (errors, stream) = (receiver(errors)?, receiver(output)?);
        let (incomplete_sender, incomplete) = oneshot::channel();
        let (done_sender, done) = oneshot::channel();
        let keeper =
            Keeper { name: name.to_owned(), program, deadline, incomplete: Some(incomplete_sender), done, slot };
        tokio::spawn(keeper.keep(input, body, errors));
        Ok(Self { stream, read: BytesMut::new(), incomplete: Some(incomplete), done: Some(done_sender) })
    }

    /// Reads more output; `false` at the end.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Incomplete>> {
        if let Some(incomplete) = &mut self.incomplete {
            // Polled first, because the output of a killed program ends too.
            match Pin::new(incomplete).poll(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(why)) => {
                    self.incomplete = None;
                    return Poll::Ready(Err(why));
                }
                Poll::Ready(Err(_)) => self.incomplete = None,
            }
        }
        self.read.reserve(READ_BYTES);
        if self.incomplete.is_none() {
            return Poll::Ready(Ok(self.read_left()));
        }
        loop {
            if ready!(self.stream.poll_read_ready(cx)).is_err() {
                return Poll::Ready(Ok(false));
            }
            match self.stream.try_read_buf(&mut self.read) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(Ok(result.is_ok_and(|read| read > 0))),
            }
        }
    }

    /// Reads the output that an ended program left in its pipe. A process outside the group that holds the
    /// pipe open is not waited for. It reads directly, since the runtime may not have been notified of the
    /// data yet.
    fn read_left(&mut self) -> bool {
        let mut buffer = [0; 4096];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.stream, &mut buffer)) {
            Ok(read) => {
                self.read.extend_from_slice(&buffer[..read]);
                read > 0
            }
            Err(_) => false,
        }
    }

    /// Reads the head; the start of the body stays in `read`.
    pub(super) async fn head(&mut self, limit_bytes: usize) -> Result<Head, CgiError> {
        let wrong = |what: &str| Err(CgiError::Answer(what.to_owned()));
        let mut seen = 0;
        loop {
            let end = answer::end(&self.read, seen);
            if end.unwrap_or(self.read.len()) > limit_bytes {
                return Err(CgiError::Answer(format!("its head is longer than {limit_bytes} bytes")));
            }
            if let Some(end) = end {
                let head = self.read.split_to(end);
                return answer::parse(&head).map_err(CgiError::Answer);
            }
            seen = self.read.len();
            match std::future::poll_fn(|cx| self.poll_more(cx)).await {
                Ok(true) => {}
                Ok(false) if seen == 0 => return wrong("it ended without any"),
                Ok(false) => return wrong("it ended before the empty line after its head"),
                Err(Incomplete::TimedOut) => return Err(CgiError::TimedOut),
                Err(Incomplete::Request(error)) => return Err(CgiError::Request(error)),
            }
        }
    }

    /// Gives the rest of the output to the keeper, which drains it.
    pub(super) fn discard(self) {
        let Self { stream, done, .. } = self;
        if let Some(done) = done {
            let _ = done.send(Some(stream));
        }
    }

    pub(super) fn into_response(self, head: ResponseHead, is_head: bool, name: String) -> Response<OriginBody> {
        let ResponseHead { status, fields, len_bytes } = head;
        // These statuses allow no length but 0.
        let empty = matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT);
        let body = if is_head || empty || status == StatusCode::NOT_MODIFIED || len_bytes == Some(0) {
            self.discard();
            full(Bytes::new())
        } else {
            ProgramBody { output: Some(self), left_bytes: len_bytes, name }.boxed_unsync()
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = fields;
        if let (Some(len_bytes), false) = (len_bytes, empty) {
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(len_bytes));
        }
        response
    }
}

/// The body of a program's answer. Dropping it before its end kills the program.
#[derive(Debug)]
struct ProgramBody {
    /// `None`: the end.
    output: Option<Output>,
    /// The remaining bytes, if the program gave a length.
    left_bytes: Option<u64>,
    name: String,
}

impl ProgramBody {
    /// Takes the bytes read that belong to the body.
    fn take(&mut self) -> Option<Bytes> {
        let output = self.output.as_mut().filter(|output| !output.read.is_empty())?;
        let mut data = output.read.split().freeze();
        if let Some(left_bytes) = &mut self.left_bytes {
            if data.len() as u64 > *left_bytes {
                tracing::warn!(program = %self.name, "a program writes more than its Content-Length: the rest is cut off");
                data.truncate(usize::try_from(*left_bytes).unwrap_or(usize::MAX));
            }
            *left_bytes -= data.len() as u64;
            if *left_bytes == 0
                && let Some(output) = self.output.take()
            {
                output.discard();
            }
        }
        Some(data)
    }
}

impl Body for ProgramBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            if let Some(data) = self.take() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            let Some(output) = &mut self.output else { return Poll::Ready(None) };
            let error = match ready!(output.poll_more(cx)) {
                Ok(true) => continue,
                Ok(false) => {
                    if let Some(done) = output.done.take() {
                        let _ = done.send(None);
                    }
                    match self.left_bytes {
                        Some(1..) => io::Error::new(
                            io::ErrorKind::UnexpectedEof,
                            format!("{} has written less than its Content-Length", self.name),
                        ),
                        _ => {
                            self.output = None;
                            return Poll::Ready(None);
                        }
                    }
                }
                Err(Incomplete::TimedOut) => io::Error::new(io::ErrorKind::TimedOut, CgiError::TimedOut.to_string()),
                Err(Incomplete::Request(error)) => error,
            };
            self.output = None;
            tracing::warn!(program = %self.name, %error, "a program's answer is cut off");
            return Poll::Ready(Some(Err(error)));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.output.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match (self.left_bytes, &self.output) {
            (Some(bytes), _) => SizeHint::with_exact(bytes),
            (None, Some(_)) => SizeHint::new(),
            (None, None) => SizeHint::with_exact(0),
        }
    }
}
