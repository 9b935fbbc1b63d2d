//! A body that is stored while it is sent. One side takes it from the origin, at the speed of the origin; any number of
//! requests read it from the beginning, each at the speed of its client.
//!
//! A body that turns out to be too large is no longer kept: it passes, and the origin waits for the one reader that
//! there is then.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

/// How far the origin is ahead of the reader of a body that is not kept.
const AHEAD_BYTES: u64 = 256 * 1024;

#[derive(Debug, Default)]
struct State {
    /// The bytes that are kept, or those that the reader has yet to take.
    chunks: Vec<Bytes>,
    /// Chunks that were given up before those.
    taken_chunks: usize,
    /// Bytes in `chunks`.
    held_bytes: u64,
    all_bytes: u64,
    passes: bool,
    /// How it ended: with these trailers, or broken off.
    end: Option<Result<Option<HeaderMap>, Arc<str>>>,
    readers: usize,
    waiting: Vec<Waker>,
    writer: Option<Waker>,
}

/// The body as it is read.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    state: Arc<Mutex<State>>,
    exact_bytes: Option<u64>,
}

/// The side of the origin.
#[derive(Debug)]
pub(crate) struct Sink {
    state: Arc<Mutex<State>>,
    exact_bytes: Option<u64>,
}

/// One reading of a body.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    next_chunk: usize,
    read_bytes: u64,
    ended: bool,
}

pub(crate) fn filling(exact_bytes: Option<u64>) -> (Sink, Source) {
    let state = Arc::<Mutex<State>>::default();
    (Sink { state: state.clone(), exact_bytes }, Source { state, exact_bytes })
}

impl Source {
    pub(crate) fn read(&self) -> Reader {
        self.state.lock().readers += 1;
        Reader { source: self.clone(), next_chunk: 0, read_bytes: 0, ended: false }
    }
}

impl Sink {
    pub(crate) fn push(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        let waiting = {
            let mut state = self.state.lock();
            state.held_bytes += data.len() as u64;
            state.all_bytes += data.len() as u64;
            state.chunks.push(data);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// The bytes so far.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.state.lock().all_bytes
    }

    /// From now on, bytes that were read are given up.
    pub(crate) fn pass(&mut self) {
        self.state.lock().passes = true;
    }

    pub(crate) fn is_read(&self) -> bool {
        self.state.lock().readers > 0
    }

    /// Ready when more may be pushed. False: the body is not kept, and no client reads it.
    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.state.lock();
        if !state.passes || (state.readers > 0 && state.held_bytes < AHEAD_BYTES) {
            return Poll::Ready(true);
        }
        if state.readers == 0 {
            return Poll::Ready(false);
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ends the body. Returns all of it, if it was kept and has the announced length.
    pub(crate) fn end(&mut self, end: Result<Option<HeaderMap>, Arc<str>>) -> Option<Bytes> {
        let (waiting, chunks) = {
            let mut state = self.state.lock();
            if state.end.is_some() {
                return None;
            }
            let short = self.exact_bytes.is_some_and(|exact| exact != state.all_bytes);
            let end = if short && end.is_ok() { Err("the body is shorter than announced".into()) } else { end };
            let kept = !state.passes && end.is_ok();
            state.end = Some(end);
            (std::mem::take(&mut state.waiting), kept.then(|| state.chunks.clone()))
        };
        waiting.into_iter().for_each(Waker::wake);
        // One piece of its own, because a chunk may keep a larger buffer alive.
        let chunks = chunks?;
        let mut whole = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
        chunks.iter().for_each(|chunk| whole.extend_from_slice(chunk));
        Some(whole.freeze())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.end(Err("the origin's answer was given up".into()));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.source.state.lock();
        state.readers -= 1;
        if let Some(writer) = state.writer.take() {
            drop(state);
            writer.wake();
        }
    }
}

impl Body for Reader {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        let mut state = this.source.state.lock();
        let at = this.next_chunk - state.taken_chunks;
        if let Some(chunk) = state.chunks.get(at).cloned() {
            this.next_chunk += 1;
            this.read_bytes += chunk.len() as u64;
            let mut writer = None;
            // A body that passes has one reader.
            if state.passes && state.readers == 1 {
                for chunk in state.chunks.drain(..=at).collect::<Vec<_>>() {
                    state.held_bytes -= chunk.len() as u64;
                    state.taken_chunks += 1;
                }
                writer = state.writer.take();
            }
            drop(state);
            if let Some(writer) = writer {
                writer.wake();
            }
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        match &state.end {
            Some(end) => {
                this.ended = true;
                match end {
                    Ok(Some(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers.clone())))),
                    Ok(None) => Poll::Ready(None),
                    Err(error) => Poll::Ready(Some(Err(io::Error::other(error.to_string())))),
                }
            }
            None => {
                if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                    state.waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = self.source.state.lock();
        self.ended
            || (state.chunks.len() + state.taken_chunks == self.next_chunk && matches!(state.end, Some(Ok(None))))
    }

    fn size_hint(&self) -> SizeHint {
        let left = |all: u64| SizeHint::with_exact(all.saturating_sub(self.read_bytes));
        if let Some(exact) = self.source.exact_bytes {
            return left(exact);
        }
        let state = self.source.state.lock();
        match state.end {
            Some(Ok(_)) => left(state.all_bytes),
            _ => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(reader: &mut Reader) -> Option<Option<Result<Bytes, String>>> {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(reader).poll_frame(&mut cx) {
            Poll::Pending => None,
            Poll::Ready(frame) => {
                Some(frame.map(|frame| frame.map(|it| it.into_data().unwrap()).map_err(|it| it.to_string())))
            }
        }
    }

    #[test]
    fn each_reader_has_all_of_it_from_the_beginning() {
        let (mut sink, source) = filling(Some(4));
        let mut early = source.read();
        assert_eq!(next(&mut early), None);
        sink.push(Bytes::from_static(b"ab"));
        assert_eq!(next(&mut early), Some(Some(Ok("ab".into()))));
        assert_eq!(early.size_hint().exact(), Some(2));
        sink.push(Bytes::from_static(b"cd"));
        let mut late = source.read();
        assert_eq!(next(&mut late), Some(Some(Ok("ab".into()))));
        assert_eq!(sink.end(Ok(None)).as_deref(), Some(&b"abcd"[..]));
        assert_eq!(next(&mut late), Some(Some(Ok("cd".into()))));
        assert!(late.is_end_stream());
        assert_eq!(next(&mut late), Some(None));
    }

    #[test]
    fn what_breaks_off_or_is_too_short_is_an_error_for_all_and_is_not_kept() {
        let (mut sink, source) = filling(Some(4));
        let mut reader = source.read();
        sink.push(Bytes::from_static(b"ab"));
        assert_eq!(sink.end(Ok(None)), None);
        assert!(matches!(next(&mut reader), Some(Some(Ok(_)))));
        assert!(matches!(next(&mut reader), Some(Some(Err(_)))));
        assert_eq!(next(&mut reader), Some(None));
        let (sink, source) = filling(None);
        let mut reader = source.read();
        drop(sink);
        assert!(matches!(next(&mut reader), Some(Some(Err(_)))));
    }

    #[test]
    fn a_body_that_passes_waits_for_its_reader_and_ends_without_one() {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut sink, source) = filling(None);
        let mut reader = source.read();
        let chunk = Bytes::from(vec![7; AHEAD_BYTES as usize]);
        sink.push(chunk.clone());
        assert!(sink.poll_room(&mut cx).is_ready(), "what is kept does not wait");
        sink.pass();
        assert!(sink.poll_room(&mut cx).is_pending());
        assert!(next(&mut reader).is_some());
        assert_eq!(sink.poll_room(&mut cx), Poll::Ready(true));
        sink.push(chunk);
        drop(reader);
        assert_eq!(sink.poll_room(&mut cx), Poll::Ready(false));
        assert_eq!(sink.end(Ok(None)), None, "it was not kept");
    }
}
