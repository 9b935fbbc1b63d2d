//! The body of a request.

use std::{
    error::Error,
    fs::File,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{
    store::{FILE_CHUNK_BYTES, FileRoom, Reader, Room, Store, write_at},
    upload::Upload,
};

/// The body of a request as it arrives on the client's connection.
#[derive(Debug)]
pub struct IncomingBody(Source);

#[derive(Debug)]
enum Source {
    Nothing,
    Http1(Upload),
    Other(UnsyncBoxBody<Bytes, io::Error>),
}

impl From<Option<Upload>> for IncomingBody {
    fn from(body: Option<Upload>) -> Self {
        Self(body.map_or(Source::Nothing, Source::Http1))
    }
}

impl IncomingBody {
    /// A body of another protocol than HTTP/1.
    pub fn new(body: impl Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static) -> Self {
        if body.is_end_stream() {
            return Self(Source::Nothing);
        }
        Self(Source::Other(body.map_err(io::Error::other).boxed_unsync()))
    }

    /// Whether the request's head announced no body. An announced body may still be empty.
    pub fn is_none(&self) -> bool {
        match &self.0 {
            Source::Nothing => true,
            Source::Http1(_) => false,
            Source::Other(_) => false,
        }
    }
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut self.get_mut().0 {
            Source::Nothing => Poll::Ready(None),
            Source::Http1(body) => Pin::new(body).poll_frame(cx),
            Source::Other(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Nothing => true,
            Source::Http1(body) => body.is_end_stream(),
            Source::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Nothing => SizeHint::with_exact(0),
            Source::Http1(body) => body.size_hint(),
            Source::Other(body) => body.size_hint(),
        }
    }
}

/// A body as the client sends it, with limits on the client's time.
#[derive(Debug)]
pub struct ClientBody<B = IncomingBody> {
    inner: B,
    /// `None`: there is no limit of time.
    pace: Option<Pace>,
    arrived: Arc<AtomicBool>,
}

/// How long a client may take to send its body.
#[derive(Clone, Debug)]
pub enum Patience {
    /// A least rate. The time is spent while the body is waited for, and arriving bytes add to it.
    Rate {
        /// The time at the start.
        time: Duration,
        /// Bytes that add a second. 0: `time` is the longest silence instead.
        bytes_per_second: u64,
    },
    /// A longest silence of both directions.
    Idle {
        /// The longest time without a byte.
        time: Duration,
        /// Shows that bytes of the response move.
        pulse: Pulse,
    },
}

/// Tells the body of a request that bytes of its response move; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// Notes that a part of the response has arrived.
    pub fn beat(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Measures how long a body has been waited for.
#[derive(Debug)]
struct Pace {
    patience: Patience,
    /// The beats of the pulse at the last look.
    beats: u64,
    /// Bytes that have arrived.
    bytes: u64,
    /// How long the body was waited for. Time in which it is not polled does not count.
    waited: Duration,
    /// When the current wait began.
    since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl<B: Body<Data = Bytes>> ClientBody<B> {
    /// Wraps a body. It fails with [`io::ErrorKind::TimedOut`] when the client has used up its `patience`.
    pub fn new(inner: B, patience: Option<Patience>) -> Self {
        let arrived = Arc::new(AtomicBool::new(inner.is_end_stream()));
        let pace = patience.filter(|_| !inner.is_end_stream()).map(Pace::new);
        Self { inner, pace, arrived }
    }

    /// Replaces the patience from now on.
    #[must_use]
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.pace = (!self.inner.is_end_stream()).then(|| Pace::new(patience));
        self
    }

    /// A flag that is set when the body has been read to its end. It outlives the body.
    pub fn arrived(&self) -> Arc<AtomicBool> {
        self.arrived.clone()
    }
}

impl<B> ClientBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
{
    /// Reads the body to its end and discards it.
    ///
    /// # Errors
    /// The body did not end within `limit_bytes` or in time, or it broke off.
    pub async fn drain(mut self, limit_bytes: u64) -> Result<(), CollectError> {
        let mut len_bytes = 0;
        while let Some(frame) = self.frame().await {
            len_bytes += frame?.data_ref().map_or(0, |data| data.len() as u64);
            if len_bytes > limit_bytes {
                return Err(CollectError::TooLarge);
            }
        }
        Ok(())
    }
}

impl<B> Body for ClientBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) else {
            let Some(pace) = &mut this.pace else { return Poll::Pending };
            ready!(pace.poll_over(cx));
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        };
        let frame = frame.transpose().map_err(io::Error::other)?;
        if let Some(pace) = &mut this.pace {
            pace.came(frame.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len));
        }
        if frame.as_ref().is_none_or(Frame::is_trailers) || this.inner.is_end_stream() {
            this.arrived.store(true, Relaxed);
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Pace {
    fn new(patience: Patience) -> Self {
        let (Patience::Rate { time, .. } | Patience::Idle { time, .. }) = patience;
        let timer = Box::pin(sleep_until(Instant::now() + time));
        Self { patience, beats: 0, bytes: 0, waited: Duration::ZERO, since: None, timer }
    }

    fn came(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
    }

    /// Ready when the client's time is used up. Polled when no bytes are there.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        let left = match &self.patience {
            Patience::Rate { time, bytes_per_second: 0 } => *time,
            Patience::Rate { time, bytes_per_second } => {
                (*time + Duration::from_secs(self.bytes / bytes_per_second)).saturating_sub(self.waited)
            }
            Patience::Idle { time, pulse } => {
                let beats = pulse.0.load(Relaxed);
                if std::mem::replace(&mut self.beats, beats) != beats {
                    self.since = None;
                }
                *time
            }
        };
        let due = *self.since.get_or_insert(now) + left;
        // The deadline only ever moves later, so the timer is set again only when it fires.
        loop {
            ready!(self.timer.as_mut().poll(cx));
            if now >= due {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due);
        }
    }
}

/// The body of a request as an origin reads it.
#[derive(Debug, Default)]
pub enum RequestBody {
    /// There is none.
    #[default]
    Empty,
    /// A body kept in memory or in a temporary file. It can be read more than once.
    Whole(Box<Whole>),
    /// A body that the client is still sending.
    Streamed(Box<Streamed>),
}

/// A body that has arrived whole.
#[derive(Debug)]
pub struct Whole {
    kept: Arc<Kept>,
    at: u64,
    reader: Reader,
    ended: bool,
}

#[derive(Debug)]
struct Kept {
    /// The beginning.
    memory: Bytes,
    /// The rest.
    file: Option<Arc<File>>,
    len_bytes: u64,
    trailers: Option<HeaderMap>,
    _room: Room,
    /// Dropped after the file, so that the room is given back only when the file is gone.
    _file_room: FileRoom,
}

/// A body of which the client has yet to send a part.
#[derive(Debug)]
pub struct Streamed {
    /// The beginning, as far as there was room for it.
    kept: Option<Whole>,
    /// The bytes that found no room.
    next: Bytes,
    body: ClientBody,
    left_bytes: u64,
}

/// Why a body has not arrived whole.
#[derive(Debug)]
pub enum CollectError {
    /// It is longer than allowed.
    TooLarge,
    /// It broke off or is malformed. The client's fault.
    Client,
    /// It arrived too slowly. The client's fault.
    Late,
    /// It cannot be kept; the operator has to fix it.
    Store(io::Error),
}

impl From<io::Error> for CollectError {
    /// Sorts an error of [`ClientBody`].
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::TimedOut { Self::Late } else { Self::Client }
    }
}

impl RequestBody {
    /// The same body from its beginning; `None` if it cannot be read again.
    pub fn again(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Whole(whole) => Some(Self::whole(whole.kept.clone())),
            Self::Streamed(_) => None,
        }
    }

    fn whole(kept: Arc<Kept>) -> Self {
        Self::Whole(Box::new(Whole::new(kept)))
    }

    /// A body in memory.
    pub fn from_bytes(bytes: impl Into<Bytes>, store: &Store) -> Self {
        let memory = bytes.into();
        let len_bytes = memory.len() as u64;
        let (_room, _file_room) = (store.room(), store.file_room());
        Self::whole(Arc::new(Kept { memory, file: None, len_bytes, trailers: None, _room, _file_room }))
    }

    /// A client's body that is passed on as it arrives. It fails after `limit_bytes`.
    pub fn streamed(body: ClientBody, limit_bytes: u64) -> Self {
        let streamed = Streamed { kept: None, next: Bytes::new(), body, left_bytes: limit_bytes };
        Self::Streamed(Box::new(streamed))
    }

    /// Puts the beginning of a streamed body back, which was read from it.
    #[must_use]
    pub fn preceded_by(self, bytes: Bytes) -> Self {
        match self {
            Self::Streamed(mut streamed) => {
                streamed.next = if streamed.next.is_empty() { bytes } else { [bytes, streamed.next].concat().into() };
                Self::Streamed(streamed)
            }
            other => other,
        }
    }

    /// Reads a client's body to its end, or as far as there is room for it. The client then waits with the rest
    /// until the origin takes it.
    ///
    /// # Errors
    /// The body is too large, broke off, was too slow, or cannot be kept.
    pub async fn collect(mut body: ClientBody, limit_bytes: u64, store: &Store) -> Result<Self, CollectError> {
        let (mut room, mut file_room) = (store.room(), store.file_room());
        let mut memory = BytesMut::new();
        let mut file: Option<Arc<File>> = None;
        let (mut written_bytes, mut pending) = (0, BytesMut::new());
        let (mut len_bytes, mut trailers) = (0_u64, None);
        while let Some(frame) = body.frame().await {
            match frame?.into_data() {
                Ok(data) => {
                    len_bytes += data.len() as u64;
                    if len_bytes > limit_bytes {
                        return Err(CollectError::TooLarge);
                    }
                    if file.is_none() && room.grow(data.len()) {
                        memory.extend_from_slice(&data);
                        continue;
                    }
                    let file_bytes = written_bytes + (pending.len() + data.len()) as u64;
                    let is_full = file_bytes > store.file_bytes() || !file_room.grow_to(file_bytes);
                    pending.extend_from_slice(&data);
                    if is_full {
                        let next = pending.freeze();
                        let kept_bytes = len_bytes - next.len() as u64;
                        let memory = memory.freeze();
                        file_room.shrink_to(written_bytes);
                        let (_room, _file_room) = (room, file_room);
                        let kept = Kept { memory, file, len_bytes: kept_bytes, trailers: None, _room, _file_room };
                        let kept = Some(Whole::new(Arc::new(kept)));
                        let left_bytes = limit_bytes - len_bytes;
                        return Ok(Self::Streamed(Box::new(Streamed { kept, next, body, left_bytes })));
                    }
                    let file = match &mut file {
                        Some(file) => file,
                        None => file.insert(store.file().await.map_err(CollectError::Store)?),
                    };
                    if pending.len() >= FILE_CHUNK_BYTES {
                        let bytes = pending.split().freeze();
                        let at = written_bytes;
                        written_bytes += bytes.len() as u64;
                        write_at(file.clone(), bytes, at).await.map_err(CollectError::Store)?;
                    }
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        if let (Some(file), false) = (&file, pending.is_empty()) {
            write_at(file.clone(), pending.freeze(), written_bytes).await.map_err(CollectError::Store)?;
        }
        if len_bytes == 0 && trailers.is_none() {
            return Ok(Self::Empty);
        }
        let memory = memory.freeze();
        let kept = Kept { memory, file, len_bytes, trailers, _room: room, _file_room: file_room };
        Ok(Self::whole(Arc::new(kept)))
    }

    /// The length; `None` if the client did not announce it.
    pub fn len_bytes(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Whole(whole) => Some(whole.kept.len_bytes),
            Self::Streamed(streamed) => streamed.size_hint().exact(),
        }
    }
}

impl Streamed {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(kept) = &mut self.kept {
            match ready!(kept.poll_frame(cx)) {
                None => self.kept = None,
                frame => return Poll::Ready(frame),
            }
        }
        if !self.next.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.next)))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose()?;
        let len_bytes = frame.as_ref().and_then(Frame::data_ref).map_or(0, |data| data.len() as u64);
        match self.left_bytes.checked_sub(len_bytes) {
            Some(left) => self.left_bytes = left,
            None => return Poll::Ready(Some(Err(io::ErrorKind::FileTooLarge.into()))),
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.kept.as_ref().is_none_or(Whole::is_end_stream) && self.next.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let here = self.kept.as_ref().map_or(0, Whole::left_bytes) + self.next.len() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + here);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + here);
        }
        hint
    }
}

impl Whole {
    fn new(kept: Arc<Kept>) -> Self {
        Self { kept, at: 0, reader: Reader::default(), ended: false }
    }

    fn left_bytes(&self) -> u64 {
        self.kept.len_bytes.saturating_sub(self.at)
    }

    fn is_end_stream(&self) -> bool {
        self.left_bytes() == 0 && (self.ended || self.kept.trailers.is_none())
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Kept { memory, file, len_bytes, trailers, .. } = &*self.kept;
        let in_memory = memory.len() as u64;
        if self.at < in_memory {
            self.at = in_memory;
            return Poll::Ready(Some(Ok(Frame::data(memory.clone()))));
        }
        if let (Some(file), true) = (file, self.at < *len_bytes) {
            let bytes = ready!(self.reader.poll(cx, file, self.at - in_memory, *len_bytes - in_memory))?;
            self.at += bytes.len() as u64;
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if std::mem::replace(&mut self.ended, true) {
            return Poll::Ready(None);
        }
        Poll::Ready(trailers.clone().map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Whole(whole) => whole.poll_frame(cx),
            Self::Streamed(streamed) => streamed.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(whole) => whole.is_end_stream(),
            Self::Streamed(streamed) => streamed.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Whole(whole) => SizeHint::with_exact(whole.left_bytes()),
            Self::Streamed(streamed) => streamed.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use tokio::{io::AsyncWriteExt as _, sync::mpsc};

    use super::*;
    use crate::store::StoreLimits;

    struct Channel(mpsc::Receiver<Bytes>);

    impl Body for Channel {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    const PATIENCE: Duration = Duration::from_secs(30);
    const BODY_BYTES_PER_SECOND: u64 = 500;

    fn patience(bytes_per_second: u64) -> Option<Patience> {
        Some(Patience::Rate { time: PATIENCE, bytes_per_second })
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_falls_silent_in_its_body_is_given_up() {
        let (sender, receiver) = mpsc::channel(8);
        let start = Instant::now();
        // Ten seconds' worth at the least rate.
        sender.send(Bytes::from(vec![0; 10 * BODY_BYTES_PER_SECOND as usize])).await.unwrap();
        let body = ClientBody::new(Channel(receiver), patience(BODY_BYTES_PER_SECOND));
        let arrived = body.arrived();
        assert!(matches!(body.drain(u64::MAX).await, Err(CollectError::Late)));
        let waited = start.elapsed();
        assert!(waited >= Duration::from_secs(40) && waited < Duration::from_secs(41), "{waited:?}");
        assert!(!arrived.load(Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_in_which_nobody_asks_for_a_body_is_not_its_clients() {
        let (sender, receiver) = mpsc::channel(8);
        let mut body = ClientBody::new(Channel(receiver), patience(BODY_BYTES_PER_SECOND));
        let arrived = body.arrived();
        for _ in 0..10 {
            tokio::time::sleep(PATIENCE).await;
            sender.send(Bytes::from_static(b"x")).await.unwrap();
            assert!(body.frame().await.unwrap().is_ok());
        }
        drop(sender);
        assert!(!arrived.load(Relaxed));
        assert!(body.frame().await.is_none() && arrived.load(Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_least_rate_a_slow_body_is_read_to_its_end_and_a_silent_one_is_given_up() {
        let (sender, receiver) = mpsc::channel(8);
        let sending = tokio::spawn(async move {
            for _ in 0..10 {
                tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
                sender.send(Bytes::from_static(b"x")).await.unwrap();
            }
            sender
        });
        let mut body = ClientBody::new(Channel(receiver), patience(0));
        for _ in 0..10 {
            assert!(body.frame().await.unwrap().is_ok());
        }
        let _sender = sending.await.unwrap();
        let silent = Instant::now();
        assert!(matches!(body.drain(u64::MAX).await, Err(CollectError::Late)));
        assert_eq!(silent.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_goes_on_as_it_comes_may_pause_as_long_as_its_answer_moves() {
        let (_sender, receiver) = mpsc::channel(8);
        let pulse = Pulse::default();
        let body = ClientBody::new(Channel(receiver), patience(BODY_BYTES_PER_SECOND))
            .with_patience(Patience::Idle { time: PATIENCE, pulse: pulse.clone() });
        let start = Instant::now();
        let answering = async {
            for _ in 0..20 {
                tokio::time::sleep(PATIENCE / 2).await;
                pulse.beat();
            }
        };
        let (drained, ()) = tokio::join!(body.drain(u64::MAX), answering);
        assert!(matches!(drained, Err(CollectError::Late)));
        let waited = start.elapsed();
        assert!((11 * PATIENCE..=12 * PATIENCE).contains(&waited), "{waited:?}");
    }

    #[tokio::test]
    async fn a_body_for_whose_file_there_is_no_room_waits_for_the_origin() {
        let limits = StoreLimits { memory_bytes: 10_000, files_bytes: 50_000, ..StoreLimits::default() };
        let store = Store::new(limits);
        let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 200000\r\n\r\n";
        let (body, mut client) = incoming(head).await;
        client.write_all(&[7; 200_000]).await.unwrap();
        let body = RequestBody::collect(body, 1 << 20, &store).await.unwrap();
        assert!(matches!(body, RequestBody::Streamed(_)));
        assert_eq!(store.stats().refused, 1);
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 200_000);
        assert_eq!(store.stats().file_bytes, 0);
    }

    /// A request's body with these bytes, in chunks without an end until more is written.
    async fn incoming(head: &str) -> (ClientBody, tokio::io::DuplexStream) {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(head.as_bytes()).await.unwrap();
        let (sender, mut receiver) = mpsc::channel(1);
        let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
            let sender = sender.clone();
            async move {
                sender.send(IncomingBody::new(request.into_body())).await.unwrap();
                std::future::pending::<Result<Response<String>, io::Error>>().await
            }
        });
        let server = hyper_util::rt::TokioIo::new(server);
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(server, service));
        (ClientBody::new(receiver.recv().await.unwrap(), None), client)
    }

    #[tokio::test]
    async fn what_finds_no_room_waits_for_the_origin() {
        let sent: Vec<u8> = (0..300_000_u32).map(|at| (at / 7) as u8).collect();
        for (memory_bytes, file_bytes) in [(10_000, 0), (0, 0), (0, 40_000), (10_000, 150_000)] {
            // No file can be made where none may be.
            let directory = (file_bytes == 0).then(|| "/nowhere".into());
            let limits = StoreLimits { memory_bytes, file_bytes, directory, ..StoreLimits::default() };
            let store = Store::new(limits);
            let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", sent.len());
            let (body, mut client) = incoming(&head).await;
            client.write_all(&sent[..200_000]).await.unwrap();
            // All that is needed for an answer is here, though the client has not sent everything.
            let body = RequestBody::collect(body, 1 << 20, &store).await.unwrap();
            assert!(matches!(body, RequestBody::Streamed(_)) && body.again().is_none());
            assert_eq!(body.len_bytes(), Some(300_000));
            client.write_all(&sent[200_000..]).await.unwrap();
            let got = body.collect().await.unwrap().to_bytes();
            assert!(got == sent, "{memory_bytes} {file_bytes}: {}", got.len());
        }
    }
}
