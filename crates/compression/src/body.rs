//! A body that is compressed while it is sent.

use std::{
    fmt, io, mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use crate::{
    encoder::{Encoder, Step},
    prediction::{Prediction, Ratio},
};

/// Compressed bytes are passed on when there are so many, or when nothing more is ready.
const OUT_BYTES: usize = 8 * 1024;

/// A body that is compressed while it is sent. Trailers pass unchanged.
pub struct CompressedBody<B> {
    inner: B,
    state: State,
    ratio: Ratio,
    prediction: Option<Prediction>,
    plain_bytes: u64,
    compressed_bytes: u64,
    /// Whether the inner body has ended, so that the last step of the encoder is done or under way.
    is_finishing: bool,
    trailers: Option<Frame<Bytes>>,
}

enum State {
    Ready(Encoder),
    /// A thread has the encoder, for a step that takes long.
    Working(JoinHandle<io::Result<Encoder>>),
    Ended,
}

impl<B: Body<Data = Bytes, Error = io::Error> + Unpin> CompressedBody<B> {
    /// Compresses `inner`. `ratio` is that of the place where the body comes from.
    pub fn new(inner: B, encoder: Encoder, ratio: Ratio) -> Self {
        let prediction = inner.size_hint().exact().map(|bytes| Prediction::new(bytes, &ratio));
        Self {
            inner,
            state: State::Ready(encoder),
            ratio,
            prediction,
            plain_bytes: 0,
            compressed_bytes: 0,
            is_finishing: false,
            trailers: None,
        }
    }

    /// The bytes that are expected to be left of the body; `None` where the length of the inner body is not known.
    pub fn prediction(&self) -> Option<Prediction> {
        self.prediction.clone()
    }

    /// The body that is compressed.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Takes compressed bytes out of the encoder, if there are enough of them or `all`.
    fn take(&mut self, encoder: &mut Encoder, all: bool) -> Option<Bytes> {
        let bytes = encoder.take_if(if all { 1 } else { OUT_BYTES })?;
        self.passed(bytes.len());
        Some(bytes)
    }

    fn passed(&mut self, compressed_bytes: usize) {
        self.compressed_bytes += compressed_bytes as u64;
        if let Some(prediction) = &self.prediction {
            let left_bytes = self.inner.size_hint().lower();
            prediction.update(&self.ratio, self.plain_bytes, self.compressed_bytes, left_bytes);
        }
    }

    /// Passes on all that is compressed. The inner body, which has nothing ready, wakes the task for more.
    fn pass_on(&mut self, mut encoder: Encoder) -> Poll<Option<io::Result<Bytes>>> {
        let bytes = self.take(&mut encoder, true);
        self.state = State::Ready(encoder);
        bytes.map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(bytes))))
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let mut encoder = match mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Poll::Ready(None),
                State::Ready(encoder) => encoder,
                State::Working(mut worker) => match Pin::new(&mut worker).poll(cx) {
                    Poll::Pending => {
                        self.state = State::Working(worker);
                        return Poll::Pending;
                    }
                    Poll::Ready(done) => done.map_err(io::Error::other)??,
                },
            };
            if self.is_finishing {
                let bytes = self.take(&mut encoder, true);
                self.ratio.learn(self.plain_bytes, self.compressed_bytes);
                return Poll::Ready(bytes.map(Ok));
            }
            if let Some(bytes) = self.take(&mut encoder, false) {
                self.state = State::Ready(encoder);
                return Poll::Ready(Some(Ok(bytes)));
            }
            let step = match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Ready(frame) => match frame.transpose()?.map(Frame::into_data) {
                    Some(Ok(data)) => {
                        self.plain_bytes += data.len() as u64;
                        Step::Write(data)
                    }
                    end => {
                        self.trailers = end.and_then(Result::err);
                        self.is_finishing = true;
                        Step::Finish
                    }
                },
                Poll::Pending if !encoder.is_flushed() => Step::Flush,
                Poll::Pending => return self.pass_on(encoder),
            };
            if encoder.is_long(&step) {
                self.state = State::Working(tokio::task::spawn_blocking(move || encoder.step(&step).map(|()| encoder)));
                continue;
            }
            encoder.step(&step)?;
            if matches!(step, Step::Flush) {
                return self.pass_on(encoder);
            }
            self.state = State::Ready(encoder);
        }
    }
}

impl<B: Body<Data = Bytes, Error = io::Error> + Unpin> Body for CompressedBody<B> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match ready!(self.poll_bytes(cx)) {
            Some(bytes) => Poll::Ready(Some(bytes.map(Frame::data))),
            None => Poll::Ready(self.trailers.take().map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Ended) && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if matches!(self.state, State::Ended) { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

impl<B> fmt::Debug for CompressedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompressedBody")
            .field("plain_bytes", &self.plain_bytes)
            .field("compressed_bytes", &self.compressed_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, io::Read as _};

    use http_body_util::BodyExt as _;
    use proptest::prelude::*;

    use super::*;
    use crate::encoder::{
        Coding, Levels,
        tests::{ALL, decoder, decompress},
    };

    fn encoder(coding: Coding) -> Encoder {
        Encoder::new(coding, Levels::default()).expect("there is memory")
    }

    /// Chunks, with a moment between two of them at which nothing is ready.
    struct Chunks(VecDeque<Option<Frame<Bytes>>>);

    impl Chunks {
        fn of<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Self {
            let frames = chunks.into_iter().map(|chunk| Some(Frame::data(Bytes::copy_from_slice(chunk))));
            Self(frames.flat_map(|frame| [frame, None]).collect())
        }

        fn body(self, coding: Coding) -> CompressedBody<Self> {
            CompressedBody::new(self, encoder(coding), Ratio::default())
        }
    }

    impl Body for Chunks {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            match self.0.pop_front() {
                Some(None) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Some(Some(frame)) => Poll::Ready(Some(Ok(frame))),
                None => Poll::Ready(None),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_was_put_in_comes_out_however_it_is_cut(
            chunks in prop::collection::vec(prop::collection::vec(0u8..4, 0..20_000), 0..6),
            coding in prop::sample::select(ALL.to_vec()),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let body = Chunks::of(chunks.iter().map(Vec::as_slice)).body(coding);
            let bytes = runtime.block_on(body.collect()).unwrap().to_bytes();
            prop_assert_eq!(decompress(coding, &bytes).unwrap(), chunks.concat());
        }
    }

    #[tokio::test]
    async fn nothing_is_held_back_while_the_inner_body_has_nothing_ready() {
        for coding in ALL {
            let mut body = Chunks::of([b"data: one\n\n".as_slice(), b"data: two\n\n"]).body(coding);
            let first = body.frame().await.expect("a frame").unwrap().into_data().unwrap();
            assert_eq!(body.inner().0.len(), 2, "{coding:?}: the second chunk was not needed");
            let mut seen = [0; 11];
            decoder(coding, &first).read_exact(&mut seen).unwrap();
            assert_eq!(&seen, b"data: one\n\n", "{coding:?}");
        }
    }

    /// A chunk, and then nothing that is ready.
    struct OneChunk(Option<Bytes>);

    impl Body for OneChunk {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            self.0.take().map_or(Poll::Pending, |chunk| Poll::Ready(Some(Ok(Frame::data(chunk)))))
        }
    }

    #[tokio::test]
    async fn a_long_chunk_is_not_held_back_either() {
        let text: String = (0..20_000).map(|line| format!("{line}\n")).collect();
        for coding in ALL {
            let inner = OneChunk(Some(text.clone().into()));
            let mut body = CompressedBody::new(inner, encoder(coding), Ratio::default());
            let (mut compressed, mut seen) = (Vec::new(), vec![0; text.len()]);
            while decoder(coding, &compressed).read_exact(&mut seen).is_err() {
                compressed.extend(body.frame().await.expect("a frame").unwrap().into_data().unwrap());
            }
            assert!(seen == text.as_bytes(), "{coding:?}");
        }
    }

    #[tokio::test]
    async fn trailers_follow_the_compressed_bytes() {
        let mut chunks = Chunks::of([b"text".as_slice()]);
        chunks.0.push_back(Some(Frame::trailers(Default::default())));
        let collected = chunks.body(Coding::Gzip).collect().await.unwrap();
        assert!(collected.trailers().is_some());
        assert_eq!(decompress(Coding::Gzip, &collected.to_bytes()).unwrap(), b"text");
    }

    #[tokio::test]
    async fn the_length_is_predicted_and_exact_at_the_end() {
        let text: Vec<u8> = (0..600_000u32).flat_map(|number| (number % 7919).to_le_bytes()).collect();
        let inner = http_body_util::Full::new(Bytes::from(text)).map_err(|never| match never {});
        let mut body = CompressedBody::new(inner, encoder(Coding::Zstd), Ratio::default());
        let prediction = body.prediction().expect("the length is known");
        assert_eq!(prediction.left_bytes(), 600_000);
        while body.frame().await.transpose().unwrap().is_some() {}
        assert_eq!(prediction.left_bytes(), 0);
        assert_eq!(body.size_hint().exact(), Some(0));
    }
}
