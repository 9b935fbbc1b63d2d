//! The body of a response: empty, bytes in memory, or a file that is read while it is sent.
//!
//! A file is read in chunks of [`CHUNK_BYTES`], and only when the next chunk is polled for. A waiting
//! response holds at most two chunks. On Linux a chunk is first read from the page cache (`preadv2` with
//! `RWF_NOWAIT`), which never blocks. Data that is not cached is read by a thread that may block, two chunks
//! at a time. The kernel is then told to read ahead, so that the next chunks are found in the page cache.
//!
//! A caller that can send bytes of a file without a copy asks for parts of the file instead
//! ([`FileBody::cached_part`]). It gets only what the page cache has, so it does not wait for the disk. The bytes of a
//! file that is changed in place may then change until the client has them, as with all servers that use `sendfile`.
//!
//! Exactly the announced length is sent. A file that grew is cut off there. If it shrank or cannot be read,
//! the body ends in an error. The connection is then aborted, so that the client notices; the gap is never
//! filled with made-up bytes.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::{sync::OwnedSemaphorePermit, task::JoinHandle};

use super::{
    buffers,
    copies::Original,
    page_cache::{PageCache, Seen},
    stamp::Stamp,
};

/// Largest frame of a body read from a file. It is large enough that the overhead of a frame is small, and
/// small enough that thousands of waiting responses may hold one or two of them.
pub const CHUNK_BYTES: usize = buffers::BUFFER_BYTES;

/// Bytes read at once by a thread that may block.
const BLOCKING_READ_BYTES: usize = 2 * CHUNK_BYTES;

/// Bytes that the kernel is told to read ahead.
#[cfg(target_os = "linux")]
const READ_AHEAD_BYTES: u64 = 8 * CHUNK_BYTES as u64;

/// A file in memory that has at least this size is also kept open, because the kernel can send it without a copy.
/// Where fewer bytes are sent at a time, a copy is cheaper than the calls.
pub(crate) const LEAST_PART_BYTES: usize = 32 * 1024;

/// A response body whose length is known from the start.
///
/// Bodies of files must be polled within a tokio runtime.
#[derive(Debug)]
pub struct FileBody {
    inner: Inner,
    /// The file that this body is the whole of, if it is in memory.
    original: Option<Original>,
}

#[derive(Debug)]
enum Inner {
    Empty,
    Memory(Bytes),
    Stream(Box<Stream>),
}

/// The data from which ranges are read.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Memory(Bytes),
    File(Arc<File>),
    Both(Arc<Mirrored>),
}

/// A file whose bytes are in memory too.
#[derive(Debug)]
pub(crate) struct Mirrored {
    pub bytes: Bytes,
    pub file: File,
    /// The state of the file in which it has these bytes.
    pub stamp: Stamp,
    /// The page cache had the file up to here lately, from its start on.
    pub seen: Mutex<Option<Seen>>,
    pub _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Stream {
    parts: VecDeque<Part>,
    remaining_bytes: u64,
    reader: Reader,
    page_cache: PageCache,
}

/// The source of the parts of a stream that lie in a file.
#[derive(Debug)]
enum Reader {
    /// All parts are bytes.
    None,
    Memory(Arc<Mirrored>),
    File(FileReader),
}

#[derive(Debug)]
enum Part {
    Bytes(Bytes),
    File(Range<u64>),
}

impl FileBody {
    fn new(inner: Inner) -> Self {
        Self { inner, original: None }
    }

    /// An empty body.
    pub fn empty() -> Self {
        Self::new(Inner::Empty)
    }

    /// The same body, which is the whole of a file.
    pub(crate) fn of(self, original: Option<Original>) -> Self {
        Self { original, ..self }
    }

    /// The same body for a client that wants none of its bytes.
    pub(crate) fn emptied(self) -> Self {
        Self::empty().of(self.original)
    }

    /// The file that this is the whole of, if its bytes are in memory. A body for HEAD is empty and has it as well.
    pub fn original(&self) -> Option<&Original> {
        self.original.as_ref()
    }

    /// One range of a source. It must lie within it.
    pub(crate) fn range(source: &Source, range: Range<u64>) -> Self {
        match source {
            Source::Memory(bytes) => Self::from(slice(bytes, &range)),
            Source::File(_) | Source::Both(_) => Self::parts(source, [(Bytes::new(), range)], Bytes::new()),
        }
    }

    /// Several ranges of a source, each with the bytes before it, and the bytes after the last one.
    pub(crate) fn parts(source: &Source, ranges: impl IntoIterator<Item = (Bytes, Range<u64>)>, tail: Bytes) -> Self {
        let mut parts = VecDeque::new();
        let mut remaining_bytes = tail.len() as u64;
        for (head, range) in ranges {
            remaining_bytes += head.len() as u64 + (range.end - range.start);
            parts.push_back(Part::Bytes(head));
            parts.push_back(match source {
                Source::Memory(bytes) => Part::Bytes(slice(bytes, &range)),
                Source::File(_) | Source::Both(_) => Part::File(range),
            });
        }
        parts.push_back(Part::Bytes(tail));
        let reader = match source {
            Source::Memory(_) => Reader::None,
            Source::File(file) => Reader::File(FileReader::new(Arc::clone(file))),
            Source::Both(both) => Reader::Memory(Arc::clone(both)),
        };
        let page_cache = PageCache::default();
        Self::new(Inner::Stream(Box::new(Stream { parts, remaining_bytes, reader, page_cache })))
    }

    /// The next bytes of the body, at most `most_bytes`, if they lie in a file and in the page cache. A file that is
    /// also in memory counts only if sending `at_once_bytes` of it at a time pays. Never blocks.
    ///
    /// The caller may send some of them (`sendfile`), and then tells so ([`FileBody::handle_sent`]). `None`: `poll_frame`
    /// has the next bytes.
    pub fn cached_part(&mut self, most_bytes: u64, at_once_bytes: u64) -> Option<(&File, Range<u64>)> {
        let Inner::Stream(stream) = &mut self.inner else { return None };
        stream.cached_part(most_bytes, at_once_bytes)
    }

    /// So many bytes of the part were sent.
    pub fn handle_sent(&mut self, bytes: u64) {
        let Inner::Stream(stream) = &mut self.inner else { return };
        if let Some(Part::File(range)) = stream.parts.front_mut() {
            range.start += bytes;
            stream.remaining_bytes -= bytes;
        }
        if stream.remaining_bytes == 0 {
            self.inner = Inner::Empty;
        }
    }

    /// The part cannot be sent from the file. From now on `poll_frame` has all bytes.
    pub fn refuse_parts(&mut self) {
        if let Inner::Stream(stream) = &mut self.inner {
            stream.page_cache.is_used = false;
        }
    }

    /// Bytes not yet handed out.
    pub fn remaining_bytes(&self) -> u64 {
        match &self.inner {
            Inner::Empty => 0,
            Inner::Memory(bytes) => bytes.len() as u64,
            Inner::Stream(stream) => stream.remaining_bytes,
        }
    }
}

impl Source {
    /// The bytes, if they are in memory.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Memory(bytes) => Some(bytes),
            Self::Both(both) => Some(&both.bytes),
            Self::File(_) => None,
        }
    }
}

impl From<Bytes> for FileBody {
    fn from(bytes: Bytes) -> Self {
        Self::new(if bytes.is_empty() { Inner::Empty } else { Inner::Memory(bytes) })
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let result = match &mut self.inner {
            Inner::Empty => return Poll::Ready(None),
            Inner::Memory(bytes) => Ok(std::mem::take(bytes)),
            Inner::Stream(stream) => match ready!(stream.poll_next(cx)) {
                None => return Poll::Ready(None),
                Some(result) => result,
            },
        };
        if let Err(error) = &result {
            tracing::warn!(%error, missing_bytes = self.remaining_bytes(), "a response is cut off: its file cannot be read");
        }
        if result.is_err() || self.remaining_bytes() == 0 {
            self.inner = Inner::Empty;
        }
        Poll::Ready(Some(result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining_bytes() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining_bytes())
    }
}

impl Stream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let bytes = loop {
            match self.parts.front_mut() {
                None => return Poll::Ready(None),
                Some(Part::Bytes(bytes)) if bytes.is_empty() => {}
                Some(Part::Bytes(bytes)) => break std::mem::take(bytes),
                Some(Part::File(range)) if range.is_empty() => {}
                Some(Part::File(range)) => {
                    let bytes = match &mut self.reader {
                        Reader::None => Err(io::Error::other("a range of a file without the file")),
                        Reader::Memory(both) => Ok(slice(&both.bytes, range)),
                        Reader::File(reader) => ready!(reader.poll_read(cx, range)),
                    };
                    match bytes {
                        Ok(bytes) => {
                            range.start += bytes.len() as u64;
                            break bytes;
                        }
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    }
                }
            }
            self.parts.pop_front();
        };
        self.remaining_bytes -= bytes.len() as u64;
        Poll::Ready(Some(Ok(bytes)))
    }

    fn cached_part(&mut self, most_bytes: u64, at_once_bytes: u64) -> Option<(&File, Range<u64>)> {
        while let Some(Part::Bytes(bytes)) = self.parts.front()
            && bytes.is_empty()
        {
            self.parts.pop_front();
        }
        let Some(Part::File(range)) = self.parts.front() else { return None };
        let page_cache = &mut self.page_cache;
        let (file, end) = match &self.reader {
            Reader::None => return None,
            Reader::Memory(_) if at_once_bytes < LEAST_PART_BYTES as u64 => return None,
            Reader::Memory(both) => {
                page_cache.begin(|| both.stamp.is_of(&both.file));
                (&both.file, page_cache.shared_end(&both.file, range, most_bytes, &both.seen)?)
            }
            Reader::File(reader) => {
                page_cache.begin(|| reader.ask_page_cache);
                if !reader.ahead.is_empty() || reader.pending.is_some() {
                    return None;
                }
                (&*reader.file, page_cache.cached_end(&reader.file, range, most_bytes)?)
            }
        };
        Some((file, range.start..end))
    }
}

/// Reads a file piece by piece.
#[derive(Debug)]
struct FileReader {
    file: Arc<File>,
    /// Whether reads from the page cache alone work; some file systems lack them.
    ask_page_cache: bool,
    /// Bytes read ahead, from the start of the range that `poll_read` is called with.
    ahead: Bytes,
    /// A thread is reading the bytes from the start of that range.
    pending: Option<JoinHandle<io::Result<Bytes>>>,
}

impl FileReader {
    fn new(file: Arc<File>) -> Self {
        Self { file, ask_page_cache: cfg!(target_os = "linux"), ahead: Bytes::new(), pending: None }
    }

    /// The first bytes of `range`: at least one, at most [`CHUNK_BYTES`]. The next call must continue where
    /// this one ended, or begin another range once this one is done.
    fn poll_read(&mut self, cx: &mut Context<'_>, range: &Range<u64>) -> Poll<io::Result<Bytes>> {
        loop {
            if let Some(pending) = &mut self.pending {
                let result = ready!(Pin::new(pending).poll(cx));
                self.pending = None;
                self.ahead = result.map_err(io::Error::other)??;
                if self.ahead.is_empty() {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        format!(
                            "the file ended at byte {}, {} bytes early: it shrank while being sent",
                            range.start,
                            range.end - range.start
                        ),
                    )));
                }
            }
            if !self.ahead.is_empty() {
                let length = self.ahead.len().min(CHUNK_BYTES);
                return Poll::Ready(Ok(self.ahead.split_to(length)));
            }
            let wanted = range.end - range.start;
            if self.ask_page_cache
                && let Some(bytes) = self.read_from_page_cache(range.start, at_most(wanted, CHUNK_BYTES))
            {
                return Poll::Ready(Ok(bytes));
            }
            let (file, start) = (Arc::clone(&self.file), range.start);
            let length = at_most(wanted, BLOCKING_READ_BYTES);
            self.pending = Some(tokio::task::spawn_blocking(move || read_blocking(&file, start, length)));
        }
    }

    /// Reads at least one byte from the page cache; `None` if a thread that may block has to read.
    #[cfg(target_os = "linux")]
    fn read_from_page_cache(&mut self, start: u64, length: usize) -> Option<Bytes> {
        use rustix::io::ReadWriteFlags;

        let mut buffer = buffers::take(length);
        loop {
            let mut slices = [io::IoSliceMut::new(&mut buffer.as_mut()[..length])];
            match rustix::io::preadv2(&*self.file, &mut slices, start, ReadWriteFlags::NOWAIT) {
                // Perhaps the end of the file. Some kernels (5.9, 5.10) also return 0 if the page is not
                // cached.
                Ok(0) => return None,
                Ok(read) => return Some(buffer.into_bytes(read)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return None,
                Err(_) => {
                    self.ask_page_cache = false;
                    return None;
                }
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn read_from_page_cache(&mut self, _start: u64, _length: usize) -> Option<Bytes> {
        None
    }
}

/// Reads `length` bytes, or less where the file ends. Blocks.
pub(crate) fn read_up_to(file: &File, start: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(length)?;
    while buffer.len() < length {
        let offset = start + buffer.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut buffer), offset) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The allocator may have given more than requested, and the read may have used it.
    buffer.truncate(length);
    Ok(buffer)
}

/// As [`read_up_to`], from the page cache alone, so that it never blocks. An error where the page cache lacks a part.
#[cfg(target_os = "linux")]
pub(crate) fn read_from_page_cache(file: &File, start: u64, length: usize) -> io::Result<Vec<u8>> {
    use rustix::io::ReadWriteFlags;

    let mut buffer = Vec::new();
    buffer.try_reserve_exact(length)?;
    buffer.resize(length, 0);
    let mut filled = 0;
    while filled < length {
        let mut slices = [io::IoSliceMut::new(&mut buffer[filled..])];
        match rustix::io::preadv2(file, &mut slices, start + filled as u64, ReadWriteFlags::NOWAIT) {
            // Perhaps the end of the file.
            Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(buffer)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn read_from_page_cache(_: &File, _: u64, _: usize) -> io::Result<Vec<u8>> {
    Err(io::ErrorKind::WouldBlock.into())
}

fn read_blocking(file: &File, start: u64, length: usize) -> io::Result<Bytes> {
    let bytes = read_up_to(file, start, length)?;
    #[cfg(target_os = "linux")]
    {
        let next = start + bytes.len() as u64;
        // Only advice: if it is ignored, the next read blocks a thread as this one did.
        let _ =
            rustix::fs::fadvise(file, next, std::num::NonZeroU64::new(READ_AHEAD_BYTES), rustix::fs::Advice::WillNeed);
    }
    Ok(Bytes::from(bytes))
}

fn at_most(wanted: u64, limit: usize) -> usize {
    usize::try_from(wanted).unwrap_or(limit).min(limit)
}

fn slice(bytes: &Bytes, range: &Range<u64>) -> Bytes {
    let length = bytes.len() as u64;
    let (start, end) = (range.start.min(length), range.end.min(length));
    bytes.slice(start as usize..end as usize)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use http_body_util::BodyExt;
    use proptest::prelude::*;

    use super::*;

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index % 251) as u8).collect()
    }

    fn file_with(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn source(file: &File) -> Source {
        Source::File(Arc::new(file.try_clone().unwrap()))
    }

    fn reader(body: &mut FileBody) -> &mut FileReader {
        match &mut body.inner {
            Inner::Stream(stream) => match &mut stream.reader {
                Reader::File(reader) => reader,
                other => panic!("a file is streamed: {other:?}"),
            },
            other => panic!("a file is streamed: {other:?}"),
        }
    }

    /// The frames until the end, and the error if it ended in one. The size hint must be right at every
    /// frame.
    async fn frames(mut body: FileBody) -> (Vec<Bytes>, Option<io::Error>) {
        let mut frames = Vec::new();
        loop {
            let hint = body.size_hint().exact().unwrap();
            assert_eq!(body.is_end_stream(), hint == 0);
            match body.frame().await {
                None => return (frames, None),
                Some(Err(error)) => {
                    assert!(body.frame().await.is_none(), "nothing comes after an error");
                    return (frames, Some(error));
                }
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap();
                    assert!(!data.is_empty());
                    assert_eq!(body.size_hint().exact(), Some(hint - data.len() as u64));
                    frames.push(data);
                }
            }
        }
    }

    #[tokio::test]
    async fn a_file_is_sent_in_chunks() {
        let content = pattern(3 * CHUNK_BYTES + 5);
        let file = file_with(&content);
        let body = FileBody::range(&source(&file), 0..content.len() as u64);
        let (frames, error) = frames(body).await;
        assert!(error.is_none());
        assert!(frames.iter().all(|frame| frame.len() <= CHUNK_BYTES));
        assert_eq!(frames.concat(), content);
    }

    #[tokio::test]
    async fn without_the_page_cache_two_chunks_are_read_at_once() {
        let content = pattern(5 * CHUNK_BYTES);
        let file = file_with(&content);
        let mut body = FileBody::range(&source(&file), 7..content.len() as u64);
        reader(&mut body).ask_page_cache = false;
        let (frames, error) = frames(body).await;
        assert!(error.is_none());
        let sizes: Vec<usize> = frames.iter().map(Bytes::len).collect();
        assert_eq!(sizes, [CHUNK_BYTES, CHUNK_BYTES, CHUNK_BYTES, CHUNK_BYTES, CHUNK_BYTES - 7]);
        assert_eq!(frames.concat(), content[7..]);
    }

    #[tokio::test]
    async fn a_file_that_grows_is_cut_at_the_announced_length() {
        let content = pattern(CHUNK_BYTES + 1);
        let mut file = file_with(&content);
        let body = FileBody::range(&source(&file), 0..content.len() as u64);
        file.write_all(&[7; 1000]).unwrap();
        assert_eq!(frames(body).await.0.concat(), content);
    }

    #[tokio::test]
    async fn a_file_that_shrinks_ends_in_an_error_after_what_was_there() {
        for ask_page_cache in [true, false] {
            let content = pattern(4 * CHUNK_BYTES);
            let file = file_with(&content);
            let mut body = FileBody::range(&source(&file), 0..content.len() as u64);
            reader(&mut body).ask_page_cache &= ask_page_cache;
            file.set_len(CHUNK_BYTES as u64 + 10).unwrap();
            let (frames, error) = frames(body).await;
            assert_eq!(frames.concat(), content[..CHUNK_BYTES + 10]);
            assert_eq!(error.unwrap().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_ends_in_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let source = Source::File(Arc::new(File::open(directory.path()).unwrap()));
        let (frames, error) = frames(FileBody::range(&source, 0..10)).await;
        assert!(frames.is_empty());
        assert_eq!(error.unwrap().kind(), io::ErrorKind::IsADirectory);
    }

    #[tokio::test]
    async fn a_removed_file_is_still_sent_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, pattern(2 * CHUNK_BYTES)).unwrap();
        let source = Source::File(Arc::new(File::open(&path).unwrap()));
        std::fs::remove_file(&path).unwrap();
        let body = FileBody::range(&source, 0..2 * CHUNK_BYTES as u64);
        assert_eq!(frames(body).await.0.concat(), pattern(2 * CHUNK_BYTES));
    }

    #[tokio::test]
    async fn memory_is_sent_as_one_frame_that_shares_it() {
        let bytes = Bytes::from(pattern(1000));
        let (frames, _) = frames(FileBody::from(bytes.clone())).await;
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0].as_ptr(), bytes.as_ptr());
        assert!(FileBody::empty().is_end_stream());
        assert!(FileBody::from(Bytes::new()).is_end_stream());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn parts_are_sent_in_order_from_memory_and_from_files_alike(
            ranges in prop::collection::vec((0u64..150_000, 0u64..150_000), 0..6),
            blocking in any::<bool>(),
        ) {
            let content = pattern(150_000);
            let ranges: Vec<_> = ranges.into_iter().map(|(a, b)| a.min(b)..a.max(b)).collect();
            let framed = ranges.iter().map(|range| (Bytes::from_static(b"<head>"), range.clone()));
            let expected: Vec<u8> = ranges
                .iter()
                .flat_map(|range| [b"<head>", &content[range.start as usize..range.end as usize]].concat())
                .chain(*b"<tail>")
                .collect();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            for source in [Source::Memory(content.clone().into()), source(&file_with(&content))] {
                let mut body = FileBody::parts(&source, framed.clone(), Bytes::from_static(b"<tail>"));
                prop_assert_eq!(body.size_hint().exact(), Some(expected.len() as u64));
                if let Inner::Stream(stream) = &mut body.inner
                    && let Reader::File(reader) = &mut stream.reader
                {
                    reader.ask_page_cache &= !blocking;
                }
                let (frames, error) = runtime.block_on(frames(body));
                prop_assert!(error.is_none());
                prop_assert_eq!(frames.concat(), expected.clone());
            }
        }
    }

    /// All bytes of a body, and how many of them came as parts of the file. `most_bytes` are asked for at a time, and
    /// half of what is offered is sent.
    async fn sent(mut body: FileBody, most_bytes: u64) -> (Vec<u8>, u64) {
        let (mut all, mut from_parts) = (Vec::new(), 0);
        while !body.is_end_stream() {
            if let Some((file, part)) = body.cached_part(most_bytes, u64::MAX) {
                assert!(part.end - part.start <= most_bytes);
                let taken = (part.end - part.start).div_ceil(2);
                all.extend(read_up_to(file, part.start, taken as usize).unwrap());
                body.handle_sent(taken);
                from_parts += taken;
            } else {
                all.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
            }
        }
        assert!(body.cached_part(1, u64::MAX).is_none());
        (all, from_parts)
    }

    fn both(file: &File, bytes: &[u8]) -> Source {
        let _permit = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().unwrap();
        let stamp = Stamp::of(&file.metadata().unwrap());
        let (bytes, file) = (Bytes::copy_from_slice(bytes), file.try_clone().unwrap());
        Source::Both(Arc::new(Mirrored { bytes, file, stamp, seen: Mutex::default(), _permit }))
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_the_page_cache_has_is_offered_as_parts_of_the_file() {
        let content = pattern(9 * CHUNK_BYTES + 5);
        let file = file_with(&content);
        let length = content.len() as u64;
        for source in [source(&file), both(&file, &content)] {
            for (range, most_bytes) in [(0..length, u64::MAX), (7..length - 7, 100_000), (length - 1..length, 1)] {
                let expected = &content[range.start as usize..range.end as usize];
                let (all, from_parts) = sent(FileBody::range(&source, range), most_bytes).await;
                assert!(all == expected);
                assert_eq!(from_parts, all.len() as u64);
            }
            let parts = [(Bytes::from_static(b"one"), 0..100_000), (Bytes::from_static(b"two"), 5..6)];
            let (all, from_parts) = sent(FileBody::parts(&source, parts, Bytes::from_static(b"end")), u64::MAX).await;
            assert!(all == [b"one", &content[..100_000], b"two", &content[5..6], b"end"].concat());
            assert_eq!(from_parts, 100_001);
            let mut refused = FileBody::range(&source, 0..length);
            assert!(refused.cached_part(1, u64::MAX).is_some());
            refused.refuse_parts();
            assert_eq!(sent(refused, u64::MAX).await, (content.clone(), 0));
        }
        // A few bytes at a time come from memory, if they are there.
        let few = LEAST_PART_BYTES as u64 - 1;
        assert!(FileBody::range(&both(&file, &content), 0..length).cached_part(u64::MAX, few).is_none());
        assert!(FileBody::range(&source(&file), 0..length).cached_part(u64::MAX, few).is_some());
        assert!(FileBody::from(Bytes::from(content)).cached_part(1, u64::MAX).is_none());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_the_page_cache_lacks_is_not_offered() {
        use rustix::fs::{Advice, fadvise};

        // The system's directory for temporary files may be in memory, where nothing is evicted.
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let content = pattern(4 * CHUNK_BYTES);
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        let length = content.len() as u64;
        assert_eq!(FileBody::range(&source(&file), 0..length).cached_part(u64::MAX, u64::MAX).unwrap().1, 0..length);
        fadvise(&file, 2 * CHUNK_BYTES as u64, None, Advice::DontNeed).unwrap();
        let mut rest = FileBody::range(&source(&file), 3 * CHUNK_BYTES as u64..length);
        if rest.cached_part(1, u64::MAX).is_some() {
            println!("this file system evicts nothing");
            return;
        }
        let mut body = FileBody::range(&source(&file), 0..length);
        assert_eq!(body.cached_part(u64::MAX, u64::MAX).unwrap().1, 0..2 * CHUNK_BYTES as u64);
        let (all, from_parts) = sent(body, u64::MAX).await;
        assert!(all == content && from_parts < length, "the first bytes that were evicted come as a frame");
    }

    #[tokio::test]
    async fn a_file_that_no_longer_has_the_bytes_in_memory_is_not_offered() {
        let content = pattern(2 * CHUNK_BYTES);
        let mut file = file_with(&content);
        let source = both(&file, &content);
        file.set_len(0).unwrap();
        file.write_all(b"other").unwrap();
        let body = FileBody::range(&source, 0..content.len() as u64);
        assert_eq!(sent(body, u64::MAX).await, (content, 0));
    }
}
