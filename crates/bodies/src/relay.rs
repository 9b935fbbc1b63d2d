//! A response on its way from an origin to a client that may be slower. The bytes that the client has not
//! taken yet are kept, so that the origin is free for its next work. They are kept in memory first, then in a
//! file. When the file is full, the origin has to wait.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::store::{FILE_CHUNK_BYTES, FileRoom, Reader, Room, Store, write_at};

/// Limits on reading a response whose client is gone. Most responses end within these limits, which costs the
/// origin less than a broken connection. A long or endless response must not occupy the origin without a
/// client.
const AFTERWARDS_BYTES: u64 = 1024 * 1024;
const AFTERWARDS: Duration = Duration::from_secs(5);

/// A larger file is given back once the client has taken all of it.
const KEPT_FILE_BYTES: u64 = 1024 * 1024;

/// The client's end of a relay: a body.
#[derive(Debug)]
pub struct Relayed {
    shared: Arc<Mutex<State>>,
    reader: Reader,
    /// The file that is being read, and the requested range.
    reading: Option<(Arc<File>, u64, u64)>,
}

/// The origin's end of a relay.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Mutex<State>>,
    store: Store,
    /// Bytes to be written to the file.
    pending: BytesMut,
}

#[derive(Debug)]
struct State {
    /// Bytes that come before those in the file. Each entry has its share of `room`: its whole length, or 0.
    memory: VecDeque<(Bytes, usize)>,
    room: Room,
    /// A ring: byte number `n` of the file lies at `n` modulo `file_bytes`.
    file: Option<Arc<File>>,
    /// Bytes taken from the file so far.
    taken_bytes: u64,
    /// Bytes written to the file so far.
    written_bytes: u64,
    file_room: FileRoom,
    /// The largest allowed size of the file.
    file_bytes: u64,
    /// The end of the body: its trailers, or the error that broke it off. `None`: more may come.
    end: Option<io::Result<Option<HeaderMap>>>,
    /// Bytes that the client has yet to take: of the announced length, or of the length found at the end.
    left_bytes: Option<u64>,
    /// The client is gone.
    closed: bool,
    /// The client's task, which waits for bytes.
    reader: Option<Waker>,
    /// The origin's task, which waits for room.
    writer: Option<Waker>,
    /// The task that waits until the origin sends more or the client goes.
    waits: Option<Waker>,
}

/// The place for bytes that wait for the client.
enum Place {
    File,
    /// There is no room in files, and the client has taken all else.
    Memory,
    /// The client is gone.
    Nowhere,
}

/// How a body is read on after its client is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// Up to a megabyte and for up to 5 s, so that most origins can end their work normally.
    ALittle,
    /// Not at all.
    Nothing,
}

/// How a body ended at its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayEnd {
    /// It arrived whole.
    Whole,
    /// It broke off, with this error.
    BrokenOff(String),
    /// It could not be kept; the log has the error.
    NotKept,
    /// The client was gone before the end.
    ClientGone,
}

/// Makes both ends of a relay. `exact_bytes` is the announced length, if there is one.
pub fn relay(store: &Store, exact_bytes: Option<u64>) -> (Relay, Relayed) {
    let shared = Arc::new(Mutex::new(State {
        memory: VecDeque::new(),
        room: store.room(),
        file: None,
        taken_bytes: 0,
        written_bytes: 0,
        file_room: store.file_room(),
        file_bytes: store.file_bytes(),
        end: None,
        left_bytes: exact_bytes,
        closed: false,
        reader: None,
        writer: None,
        waits: None,
    }));
    let relayed = Relayed { shared: shared.clone(), reader: Reader::default(), reading: None };
    (Relay { shared, store: store.clone(), pending: BytesMut::new() }, relayed)
}

impl Relay {
    /// Passes a body on to its end, or until the client is gone. Then `afterwards` says how much is still read.
    pub async fn pass<B>(mut self, body: B, afterwards: Afterwards) -> RelayEnd
    where
        B: Body<Data = Bytes, Error = io::Error>,
    {
        let mut body = std::pin::pin!(body);
        loop {
            let mut next = std::future::poll_fn(|cx| Poll::Ready(body.as_mut().poll_frame(cx))).await;
            let mut kept = Ok(true);
            if next.is_pending() {
                // The origin pauses, so bytes must not wait for a full chunk.
                if !self.pending.is_empty() {
                    kept = self.write().await;
                }
                if matches!(kept, Ok(true)) {
                    next = std::future::poll_fn(|cx| self.poll_next(body.as_mut(), cx)).await;
                }
            }
            let frame = match next {
                // The client is gone.
                Poll::Pending => None,
                Poll::Ready(None) => return self.finish(Ok(None)).await,
                Poll::Ready(Some(Err(error))) => return self.finish(Err(error)).await,
                Poll::Ready(Some(Ok(frame))) => Some(frame),
            };
            if matches!(kept, Ok(true)) {
                kept = match frame.map(Frame::into_data) {
                    None => Ok(false),
                    Some(Ok(data)) => self.push(data).await,
                    Some(Err(frame)) => return self.finish(Ok(frame.into_trailers().ok())).await,
                };
            }
            match kept {
                Ok(true) => {}
                Ok(false) => {
                    if afterwards == Afterwards::ALittle {
                        take_a_little(body.as_mut()).await;
                    }
                    return RelayEnd::ClientGone;
                }
                Err(error) => {
                    tracing::error!(%error, "a response cannot be kept until its client takes it");
                    self.finish(Err(error)).await;
                    return RelayEnd::NotKept;
                }
            }
        }
    }

    /// The next frame, or `Pending` if the client is gone.
    fn poll_next<B>(&self, body: Pin<&mut B>, cx: &mut Context<'_>) -> Poll<Poll<Option<io::Result<Frame<Bytes>>>>>
    where
        B: Body<Data = Bytes, Error = io::Error>,
    {
        let next = body.poll_frame(cx);
        if next.is_ready() {
            return Poll::Ready(next);
        }
        let mut state = self.shared.lock();
        if state.gone() {
            return Poll::Ready(Poll::Pending);
        }
        state.waits = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Keeps bytes, and waits only if there is no room for them. False: the client is gone.
    async fn push(&mut self, data: Bytes) -> io::Result<bool> {
        if self.store.file_bytes() == 0 && !self.room_in_memory(data.len()).await {
            return Ok(false);
        }
        let reader = {
            let mut state = self.shared.lock();
            if state.closed {
                return Ok(false);
            }
            let behind_file = state.taken_bytes < state.written_bytes || !self.pending.is_empty();
            let has_room = !behind_file && state.room.grow(data.len());
            if data.is_empty() || has_room || self.store.file_bytes() == 0 {
                let room_bytes = if has_room { data.len() } else { 0 };
                state.memory.push_back((data, room_bytes));
                Some(state.reader.take())
            } else {
                self.pending.extend_from_slice(&data);
                None
            }
        };
        match reader {
            Some(reader) => {
                wake(reader);
                Ok(true)
            }
            None if self.pending.len() as u64 >= self.chunk_bytes() => self.write().await,
            // A client that has taken all earlier bytes must not wait for a full chunk.
            None if self.shared.lock().is_empty() => self.write().await,
            None => Ok(true),
        }
    }

    /// Writes pending bytes to the file. If the file has no room, they wait until the client has taken all
    /// earlier bytes. False: the client is gone.
    async fn write(&mut self) -> io::Result<bool> {
        let bytes = self.pending.split().freeze();
        match self.place(bytes.len() as u64).await {
            Place::Nowhere => return Ok(false),
            Place::Memory => {
                let reader = {
                    let mut state = self.shared.lock();
                    state.memory.push_back((bytes, 0));
                    state.reader.take()
                };
                wake(reader);
                return Ok(true);
            }
            Place::File => {}
        }
        let (file, at, file_bytes) = {
            let state = self.shared.lock();
            (state.file.clone(), state.written_bytes, state.file_bytes)
        };
        let file = match file {
            Some(file) => file,
            None => {
                let file = self.store.file().await?;
                self.shared.lock().file = Some(file.clone());
                file
            }
        };
        let len_bytes = bytes.len() as u64;
        let at = at % file_bytes;
        let mut first = bytes;
        let rest = first.split_off(usize::try_from(file_bytes - at).map_or(first.len(), |end| end.min(first.len())));
        write_at(file.clone(), first, at).await?;
        if !rest.is_empty() {
            write_at(file, rest, 0).await?;
        }
        let reader = {
            let mut state = self.shared.lock();
            state.written_bytes += len_bytes;
            state.reader.take()
        };
        wake(reader);
        Ok(true)
    }

    /// The size of one write to the file.
    fn chunk_bytes(&self) -> u64 {
        (FILE_CHUNK_BYTES.min(self.store.memory_bytes().max(1)) as u64).min(self.store.file_bytes())
    }

    /// For a store without files: waits for room in memory, or until all bytes were taken, so that some bytes
    /// are always on their way. False: the client is gone.
    async fn room_in_memory(&self, bytes: usize) -> bool {
        std::future::poll_fn(|cx| {
            let mut state = self.shared.lock();
            if state.closed {
                return Poll::Ready(false);
            }
            if state.memory.is_empty() || state.room.grow(bytes) {
                // `push` takes the room for good.
                state.room.shrink(bytes);
                return Poll::Ready(true);
            }
            state.writer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Waits for room in the file. If the file cannot grow, waits until all bytes were taken.
    async fn place(&self, bytes: u64) -> Place {
        let (place, emptied) = std::future::poll_fn(|cx| {
            let mut state = self.shared.lock();
            if state.closed {
                return Poll::Ready((Place::Nowhere, None));
            }
            let unread_bytes = state.written_bytes - state.taken_bytes;
            let mut emptied = None;
            if unread_bytes == 0 {
                // All was taken: writing starts at the beginning again, and a large file is given back.
                (state.taken_bytes, state.written_bytes) = (0, 0);
                if state.file_room.bytes() > KEPT_FILE_BYTES {
                    let room = std::mem::replace(&mut state.file_room, self.store.file_room());
                    emptied = Some((state.file.take(), room));
                }
            }
            if unread_bytes.saturating_add(bytes) <= state.file_bytes {
                let file_bytes = state.file_bytes.min(state.written_bytes + bytes);
                if state.file_room.grow_to(file_bytes) {
                    return Poll::Ready((Place::File, emptied));
                }
            }
            if state.is_empty() {
                return Poll::Ready((Place::Memory, emptied));
            }
            state.writer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        if emptied.is_some() {
            // Closing a large file takes time.
            tokio::task::spawn_blocking(move || drop(emptied));
        }
        place
    }

    async fn finish(&mut self, mut end: io::Result<Option<HeaderMap>>) -> RelayEnd {
        // The client still gets the bytes from before a failure.
        if !self.pending.is_empty()
            && let Err(error) = self.write().await
        {
            end = Err(error);
        }
        let broken = end.as_ref().err().map(io::Error::to_string);
        let whole = broken.is_none();
        let reader = {
            let mut state = self.shared.lock();
            if whole && state.gone() {
                return RelayEnd::ClientGone;
            }
            // No length is announced before trailers, because a body of known length has none in HTTP/1.1.
            if matches!(end, Ok(None)) && state.left_bytes.is_none() {
                state.left_bytes = Some(state.kept_bytes());
            }
            state.end = Some(end);
            state.reader.take()
        };
        wake(reader);
        broken.map_or(RelayEnd::Whole, RelayEnd::BrokenOff)
    }
}

/// Reads and discards a body within [`AFTERWARDS_BYTES`] and [`AFTERWARDS`].
async fn take_a_little<B>(mut body: Pin<&mut B>)
where
    B: Body<Data = Bytes, Error = io::Error>,
{
    let end = Instant::now() + AFTERWARDS;
    let mut left_bytes = AFTERWARDS_BYTES;
    while let Ok(Some(Ok(frame))) = timeout_at(end, std::future::poll_fn(|cx| body.as_mut().poll_frame(cx))).await {
        let len_bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        left_bytes = left_bytes.saturating_sub(len_bytes);
        if left_bytes == 0 || end <= Instant::now() {
            return;
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The future of `pass` was dropped.
        let reader = {
            let mut state = self.shared.lock();
            state.end.get_or_insert_with(|| Err(io::ErrorKind::UnexpectedEof.into()));
            state.reader.take()
        };
        wake(reader);
    }
}

impl State {
    fn kept_bytes(&self) -> u64 {
        self.memory.iter().map(|(bytes, _)| bytes.len() as u64).sum::<u64>() + self.written_bytes - self.taken_bytes
    }

    /// Whether the client is gone before it had all bytes. After the last byte of a known length it need not
    /// take the end.
    fn gone(&self) -> bool {
        self.closed && self.left_bytes != Some(0)
    }

    fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.taken_bytes == self.written_bytes
    }
}

impl Body for Relayed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        if this.reading.is_none() {
            let mut state = this.shared.lock();
            if let Some((bytes, room_bytes)) = state.memory.pop_front() {
                state.room.shrink(room_bytes);
                state.left_bytes = state.left_bytes.map(|left| left.saturating_sub(bytes.len() as u64));
                let writer = state.writer.take();
                drop(state);
                wake(writer);
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            match &state.file {
                Some(file) if state.taken_bytes < state.written_bytes => {
                    let at = state.taken_bytes % state.file_bytes;
                    let end = state.file_bytes.min(at + (state.written_bytes - state.taken_bytes));
                    this.reading = Some((file.clone(), at, end));
                }
                _ => {
                    return match &mut state.end {
                        None => {
                            state.reader = Some(cx.waker().clone());
                            Poll::Pending
                        }
                        Some(end) => {
                            let end = std::mem::replace(end, Ok(None));
                            Poll::Ready(end.map(|trailers| trailers.map(Frame::trailers)).transpose())
                        }
                    };
                }
            }
        }
        let Some((file, at, end)) = &this.reading else { unreachable!("set above") };
        let bytes = ready!(this.reader.poll(cx, file, *at, *end))?;
        this.reading = None;
        let writer = {
            let mut state = this.shared.lock();
            state.taken_bytes += bytes.len() as u64;
            state.left_bytes = state.left_bytes.map(|left| left.saturating_sub(bytes.len() as u64));
            state.writer.take()
        };
        wake(writer);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        let state = self.shared.lock();
        state.is_empty() && matches!(state.end, Some(Ok(None)))
    }

    fn size_hint(&self) -> SizeHint {
        self.shared.lock().left_bytes.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        let (writer, waits, kept) = {
            let mut state = self.shared.lock();
            state.closed = true;
            let bytes = state.memory.iter().map(|(_, room_bytes)| room_bytes).sum();
            state.room.shrink(bytes);
            let file = state.file.take();
            state.file_room.shrink_to(0);
            (state.writer.take(), state.waits.take(), (std::mem::take(&mut state.memory), file))
        };
        drop(kept);
        wake(writer);
        wake(waits);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body_util::BodyExt as _;
    use proptest::prelude::*;

    use super::*;
    use crate::store::StoreLimits;

    /// A body of these frames; `None` is a pause until the next poll.
    struct Frames(VecDeque<Option<io::Result<Frame<Bytes>>>>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            match self.0.pop_front() {
                Some(None) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Some(Some(frame)) => Poll::Ready(Some(frame)),
                None => Poll::Ready(None),
            }
        }
    }

    fn store(memory_bytes: usize, file_bytes: u64) -> Store {
        Store::new(StoreLimits { memory_bytes, file_bytes, ..StoreLimits::default() })
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn data(len: usize, seed: u8) -> Bytes {
        (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// The client gets the bytes that were sent, in order, with the trailers or the error at the end. Sizes, pauses,
        /// room in memory and file, and the client's speed are drawn.
        #[test]
        fn what_goes_in_comes_out(
            frames in prop::collection::vec(prop::option::of(0_usize..60_000), 0..40),
            memory_bytes in 0_usize..100_000,
            file_bytes in prop_oneof![Just(0), 1_u64..400_000],
            pauses in prop::collection::vec(0_u32..4, 1..10),
            ending in 0..3,
        ) {
            let mut sent = Vec::new();
            let mut queue: VecDeque<_> = frames.iter().enumerate().map(|(at, len)| len.map(|len| {
                let bytes = data(len, at as u8);
                sent.extend_from_slice(&bytes);
                Ok(Frame::data(bytes))
            })).collect();
            match ending {
                0 => {}
                1 => queue.push_back(Some(Ok(Frame::trailers(HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("x"))]))))),
                _ => queue.push_back(Some(Err(io::ErrorKind::ConnectionReset.into()))),
            }
            runtime().block_on(async {
                let (relay, mut relayed) = relay(&store(memory_bytes, file_bytes), None);
                let passing = tokio::spawn(relay.pass(Frames(queue), Afterwards::Nothing));
                let mut got = Vec::new();
                let (mut trailers, mut failed) = (false, false);
                let mut pauses = pauses.iter().cycle();
                loop {
                    for _ in 0..*pauses.next().unwrap() {
                        tokio::task::yield_now().await;
                    }
                    match relayed.frame().await {
                        None => break,
                        Some(Err(_)) => { failed = true; break }
                        Some(Ok(frame)) => match frame.into_data() {
                            Ok(bytes) => got.extend_from_slice(&bytes),
                            Err(_) => trailers = true,
                        },
                    }
                }
                prop_assert_eq!(&got, &sent);
                prop_assert_eq!((trailers, failed), (ending == 1, ending == 2));
                let end = passing.await.unwrap();
                prop_assert_eq!(matches!(end, RelayEnd::BrokenOff(_)), ending == 2);
                prop_assert_eq!(end == RelayEnd::Whole, ending != 2);
                Ok(())
            })?;
        }
    }

    #[test]
    fn an_origin_ends_its_work_though_its_client_takes_nothing() {
        runtime().block_on(async {
            let (relay, relayed) = relay(&store(1000, 1 << 20), None);
            let frames = (0..50).map(|at| Some(Ok(Frame::data(data(10_000, at))))).collect();
            assert_eq!(relay.pass(Frames(frames), Afterwards::Nothing).await, RelayEnd::Whole);
            assert_eq!(relayed.size_hint().exact(), Some(500_000), "now it is known how long it is");
        });
    }

    #[test]
    fn an_origin_waits_when_the_file_is_full_and_is_told_when_the_client_goes() {
        for afterwards in [Afterwards::Nothing, Afterwards::ALittle] {
            runtime().block_on(async {
                let (relay, relayed) = relay(&store(1000, 200_000), None);
                let frames = (0..100).map(|at| Some(Ok(Frame::data(data(10_000, at))))).collect();
                let mut passing = Box::pin(relay.pass(Frames(frames), afterwards));
                // All the room is taken long before it has looked so often.
                for _ in 0..1000 {
                    assert!(futures_poll(&mut passing).await.is_pending());
                    tokio::task::spawn_blocking(|| ()).await.unwrap();
                }
                let kept = relayed.shared.lock().kept_bytes();
                assert!((100_000..=200_000).contains(&kept), "{kept}");
                drop(relayed);
                assert_eq!(passing.await, RelayEnd::ClientGone);
            });
        }
    }

    /// The ends of a relay whose origin runs in its own task and has filled all room.
    async fn full_relay(memory_bytes: usize, file_bytes: u64) -> (tokio::task::JoinHandle<RelayEnd>, Relayed) {
        let (relay, relayed) = relay(&store(memory_bytes, file_bytes), None);
        let frames = (0..100).map(|at| Some(Ok(Frame::data(data(10_000, at))))).collect();
        let passing = tokio::spawn(relay.pass(Frames(frames), Afterwards::Nothing));
        // The clock moves when the task is parked, and no file is being written.
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!passing.is_finished());
        (passing, relayed)
    }

    #[tokio::test(start_paused = true)]
    async fn an_origin_that_waits_in_its_task_is_woken_by_the_clients_that_takes_or_goes() {
        const LONG: Duration = Duration::from_secs(3600);
        for (memory_bytes, file_bytes) in [(25_000, 0), (1000, 200_000), (0, 0)] {
            let (passing, relayed) = full_relay(memory_bytes, file_bytes).await;
            let got = tokio::spawn(tokio::time::timeout(LONG, relayed.collect()));
            assert_eq!(got.await.unwrap().expect("the client is woken").unwrap().to_bytes().len(), 1_000_000);
            assert_eq!(passing.await.unwrap(), RelayEnd::Whole);

            let (passing, relayed) = full_relay(memory_bytes, file_bytes).await;
            tokio::spawn(async move { drop(relayed) });
            let end = tokio::time::timeout(LONG, passing).await.expect("the origin is woken");
            assert_eq!(end.unwrap(), RelayEnd::ClientGone);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_in_its_task_is_woken_by_the_origins_that_brings_or_ends() {
        const LONG: Duration = Duration::from_secs(3600);
        for (memory_bytes, file_bytes) in [(1000, 0), (0, 100_000)] {
            for whole in [true, false] {
                let (relay, mut relayed) = relay(&store(memory_bytes, file_bytes), None);
                let (sender, body) = tokio::sync::mpsc::channel::<Bytes>(8);
                let passing = tokio::spawn(relay.pass(Channel(body), Afterwards::Nothing));
                let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
                tokio::spawn(async move {
                    while let Some(frame) = relayed.frame().await {
                        told.send(frame.map(|frame| frame.into_data().unwrap().len()).ok()).unwrap();
                    }
                });
                for _ in 0..3 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    sender.send(data(100, 0)).await.unwrap();
                    let heard = tokio::time::timeout(LONG, heard.recv()).await.expect("the client is woken");
                    assert_eq!(heard, Some(Some(100)));
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
                if whole {
                    drop(sender)
                } else {
                    passing.abort()
                }
                let end = tokio::time::timeout(LONG, heard.recv()).await.expect("the client is woken");
                assert_eq!(end, if whole { None } else { Some(None) });
            }
        }
    }

    #[test]
    fn a_file_is_no_larger_than_it_may_be_though_its_client_never_has_all_of_it() {
        runtime().block_on(async {
            const FILE_BYTES: u64 = 300_000;
            let (relay, mut relayed) = relay(&store(1000, FILE_BYTES), None);
            let frames = (0..200).map(|at| Some(Ok(Frame::data(data(10_000, at))))).collect();
            let passing = tokio::spawn(relay.pass(Frames(frames), Afterwards::Nothing));
            let (mut got, mut largest) = (Vec::new(), 0);
            loop {
                // The client reads on only when much waits for it.
                let much_waits = |state: &State| state.end.is_some() || state.kept_bytes() > FILE_BYTES / 2;
                while !much_waits(&relayed.shared.lock()) {
                    tokio::task::yield_now().await;
                }
                let Some(frame) = relayed.frame().await else { break };
                got.extend_from_slice(&frame.unwrap().into_data().unwrap());
                let file = relayed.shared.lock().file.clone();
                largest = largest.max(file.map_or(0, |file| file.metadata().unwrap().len()));
            }
            assert!(got == (0..200).flat_map(|at| data(10_000, at)).collect::<Vec<_>>());
            assert!(0 < largest && largest <= FILE_BYTES, "{largest}");
            assert_eq!(passing.await.unwrap(), RelayEnd::Whole);
        });
    }

    #[test]
    fn when_other_bodies_have_all_the_room_in_files_an_origin_waits_for_its_client() {
        runtime().block_on(async {
            let store = Store::new(StoreLimits { memory_bytes: 1000, files_bytes: 300_000, ..StoreLimits::default() });
            let frames = || (0..40).map(|at| Some(Ok(Frame::data(data(10_000, at))))).collect();
            let (first, lazy) = relay(&store, None);
            let mut first = Box::pin(first.pass(Frames(frames()), Afterwards::Nothing));
            let (second, mut relayed) = relay(&store, None);
            let mut second = Box::pin(second.pass(Frames(frames()), Afterwards::Nothing));
            for _ in 0..1000 {
                assert!(futures_poll(&mut first).await.is_pending());
                assert!(futures_poll(&mut second).await.is_pending());
                tokio::task::spawn_blocking(|| ()).await.unwrap();
            }
            let stats = store.stats();
            assert!((200_000..=300_000).contains(&stats.file_bytes) && stats.refused > 0, "{stats:?}");
            // A client that reads gets all of its response.
            let mut got = Vec::new();
            let (end, ()) = tokio::join!(second, async {
                while let Some(frame) = relayed.frame().await {
                    got.extend_from_slice(&frame.unwrap().into_data().unwrap());
                }
            });
            assert_eq!(end, RelayEnd::Whole);
            assert!(got == (0..40).flat_map(|at| data(10_000, at)).collect::<Vec<_>>());
            drop((lazy, relayed));
            assert_eq!(first.await, RelayEnd::ClientGone);
            assert_eq!(store.stats().file_bytes, 0);
        });
    }

    #[test]
    fn where_files_are_off_an_origin_waits_for_room_in_memory() {
        runtime().block_on(async {
            // A file could not be made here.
            let store = Store::new(StoreLimits {
                memory_bytes: 25_000,
                file_bytes: 0,
                directory: Some("/nowhere".into()),
                ..StoreLimits::default()
            });
            for frame_bytes in [10_000, 30_000] {
                let (relay, mut relayed) = relay(&store, None);
                let frames = (0..10).map(|at| Some(Ok(Frame::data(data(frame_bytes, at))))).collect();
                let mut passing = Box::pin(relay.pass(Frames(frames), Afterwards::Nothing));
                assert!(futures_poll(&mut passing).await.is_pending());
                let kept = relayed.shared.lock().kept_bytes();
                assert_eq!(kept, if frame_bytes == 10_000 { 20_000 } else { 30_000 });
                let mut got = 0;
                let (end, ()) = tokio::join!(passing, async {
                    while let Some(frame) = relayed.frame().await {
                        got += frame.unwrap().into_data().unwrap().len();
                    }
                });
                assert_eq!((end, got), (RelayEnd::Whole, 10 * frame_bytes));
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_client_that_is_gone_an_endless_or_silent_origin_hears_soon() {
        struct Endless(Arc<std::sync::atomic::AtomicU64>);

        impl Body for Endless {
            type Data = Bytes;
            type Error = io::Error;

            fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
                self.0.fetch_add(1000, std::sync::atomic::Ordering::Relaxed);
                Poll::Ready(Some(Ok(Frame::data(data(1000, 0)))))
            }
        }

        let (relay_, relayed) = relay(&store(1 << 20, 1 << 20), None);
        drop(relayed);
        let given = Arc::default();
        assert_eq!(relay_.pass(Endless(Arc::clone(&given)), Afterwards::ALittle).await, RelayEnd::ClientGone);
        let given = given.load(std::sync::atomic::Ordering::Relaxed);
        assert!((AFTERWARDS_BYTES..AFTERWARDS_BYTES + 3000).contains(&given), "{given}");

        // One that says nothing is left at once, or a little later.
        for afterwards in [Afterwards::Nothing, Afterwards::ALittle] {
            let (relay, relayed) = relay(&store(1000, 1000), None);
            let (_sender, body) = tokio::sync::mpsc::channel::<Bytes>(8);
            let start = Instant::now();
            let mut passing = Box::pin(relay.pass(Channel(body), afterwards));
            assert!(futures_poll(&mut passing).await.is_pending());
            drop(relayed);
            assert_eq!(passing.await, RelayEnd::ClientGone);
            let waited = if afterwards == Afterwards::ALittle { AFTERWARDS } else { Duration::ZERO };
            assert!((waited..waited + Duration::from_millis(2)).contains(&start.elapsed()), "{:?}", start.elapsed());
        }
    }

    #[test]
    fn before_trailers_no_length_is_told() {
        runtime().block_on(async {
            let (relay, relayed) = relay(&store(1000, 0), None);
            let trailers = HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("x"))]);
            let frames = [Some(Ok(Frame::data(data(10, 0)))), Some(Ok(Frame::trailers(trailers)))];
            assert_eq!(relay.pass(Frames(frames.into()), Afterwards::Nothing).await, RelayEnd::Whole);
            assert_eq!(relayed.size_hint().exact(), None);
        });
    }

    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
    }

    #[test]
    fn what_is_kept_does_not_wait_for_an_origin_that_pauses() {
        runtime().block_on(async {
            let (relay, mut relayed) = relay(&store(10, 1 << 20), None);
            let (sender, body) = tokio::sync::mpsc::channel::<Bytes>(8);
            let frames = Channel(body);
            tokio::spawn(relay.pass(frames, Afterwards::Nothing));
            for at in 0..5 {
                sender.send(data(100, at)).await.unwrap();
                let mut got = Vec::new();
                while got.len() < 100 {
                    got.extend_from_slice(&relayed.frame().await.unwrap().unwrap().into_data().unwrap());
                }
                assert_eq!(got, data(100, at));
            }
        });
    }

    #[test]
    fn who_is_gone_is_noticed_though_the_origin_is_silent() {
        for (bytes, end) in [(99, RelayEnd::ClientGone), (100, RelayEnd::Whole)] {
            runtime().block_on(async {
                let (relay, mut relayed) = relay(&store(1000, 1 << 20), Some(100));
                let (sender, body) = tokio::sync::mpsc::channel::<Bytes>(8);
                let passing = tokio::spawn(relay.pass(Channel(body), Afterwards::Nothing));
                sender.send(data(bytes, 0)).await.unwrap();
                assert_eq!(relayed.frame().await.unwrap().unwrap().into_data().unwrap().len(), bytes);
                drop(relayed);
                if end == RelayEnd::Whole {
                    // It has all that was announced; the origin ends when it likes.
                    drop(sender);
                }
                assert_eq!(passing.await.unwrap(), end);
            });
        }
    }

    struct Channel(tokio::sync::mpsc::Receiver<Bytes>);

    impl Body for Channel {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
        }
    }
}
