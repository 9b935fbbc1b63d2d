//! The output of a program or an application: the head of its answer, and its body.

use std::{
    fmt,
    future::poll_fn,
    io,
    pin::Pin,
    sync::LazyLock,
    task::{Context, Poll, ready},
};

use bodies::{OriginBody, full};
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    answer::{self, Head, ResponseHead},
    error::CgiError,
    lines::Budget,
};

/// Why an answer stays incomplete.
#[derive(Debug)]
pub(crate) enum Incomplete {
    /// The program took too long.
    TimedOut,
    /// The client's body broke off.
    Request(io::Error),
    /// The application accepts no more requests.
    Busy,
    /// The application closed the connection, or broke the protocol.
    Broken(String),
}

/// A source of output. Dropping it before its end ends the program's work for the request.
pub(crate) trait Output: Send + Unpin + Sized + 'static {
    /// The bytes that were read and not taken.
    fn unread(&mut self) -> &mut BytesMut;

    /// Reads more output; `false` at the end.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Incomplete>>;

    /// Whether an answer may begin with a status line, as that of an HTTP server.
    fn has_status_line(&self) -> bool {
        false
    }

    /// The end was read.
    fn finish(&mut self);

    /// Has the rest of the output read and thrown away, so that the program can end normally.
    fn discard(self);
}

/// Reads the head; the start of the body stays unread.
pub(crate) async fn head(output: &mut impl Output, limit_bytes: usize) -> Result<Head, CgiError> {
    let wrong = |what: &str| Err(CgiError::Answer(what.to_owned()));
    let mut seen = 0;
    loop {
        let bytes = output.unread();
        let end = answer::end(bytes, seen);
        if end.unwrap_or(bytes.len()) > limit_bytes {
            return Err(CgiError::Answer(format!("its head is longer than {limit_bytes} bytes")));
        }
        if let Some(end) = end {
            let head = bytes.split_to(end);
            let parsed = match output.has_status_line() {
                true => answer::parse_with_status_line(&head),
                false => answer::parse(&head),
            };
            return parsed.map_err(CgiError::Answer);
        }
        seen = bytes.len();
        match poll_fn(|cx| output.poll_more(cx)).await {
            Ok(true) => {}
            Ok(false) if seen == 0 => return wrong("it ended without any"),
            Ok(false) => return wrong("it ended before the empty line after its head"),
            Err(Incomplete::TimedOut) => return Err(CgiError::TimedOut),
            Err(Incomplete::Request(error)) => return Err(CgiError::Request(error)),
            Err(Incomplete::Busy) => return Err(CgiError::Busy),
            Err(Incomplete::Broken(what)) => return Err(CgiError::Answer(what)),
        }
    }
}

/// The response of a head and the output behind it. `name`: the program, for the log.
pub(crate) fn into_response(
    output: impl Output,
    head: ResponseHead,
    is_head: bool,
    name: String,
) -> Response<OriginBody> {
    let ResponseHead { status, fields, len_bytes } = head;
    // These statuses allow no length but 0.
    let empty = matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT);
    let body = if is_head || empty || status == StatusCode::NOT_MODIFIED || len_bytes == Some(0) {
        output.discard();
        full(Bytes::new())
    } else {
        ProgramBody { output: Some(output), left_bytes: len_bytes, name }.boxed_unsync()
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    if let (Some(len_bytes), false) = (len_bytes, empty) {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(len_bytes));
    }
    response
}

/// Logs what is wrong with the body of an answer. All programs share the number of lines, because clients choose how often
/// that happens.
fn warn(program: &str, wrong: &dyn fmt::Display) {
    static BUDGET: LazyLock<Mutex<Budget>> = LazyLock::new(|| Mutex::new(Budget::new(Instant::now())));
    let log = |line: &str| tracing::warn!(program, "{line}");
    if BUDGET.lock().grants(Instant::now(), log) {
        log(&wrong.to_string());
    }
}

/// The body of an answer.
#[derive(Debug)]
struct ProgramBody<O> {
    /// `None`: the end.
    output: Option<O>,
    /// The remaining bytes, if the program gave a length.
    left_bytes: Option<u64>,
    name: String,
}

impl<O: Output> ProgramBody<O> {
    /// Takes the bytes read that belong to the body.
    fn take(&mut self) -> Option<Bytes> {
        let unread = self.output.as_mut()?.unread();
        if unread.is_empty() {
            return None;
        }
        let mut data = unread.split().freeze();
        if let Some(left_bytes) = &mut self.left_bytes {
            if data.len() as u64 > *left_bytes {
                warn(&self.name, &"a program writes more than its Content-Length: the rest is cut off");
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

impl<O: Output> Body for ProgramBody<O> {
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
                    output.finish();
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
                Err(Incomplete::Busy) => io::Error::other(CgiError::Busy.to_string()),
                Err(Incomplete::Broken(what)) => io::Error::other(what),
            };
            self.output = None;
            warn(&self.name, &format_args!("a program's answer is cut off: {error}"));
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
