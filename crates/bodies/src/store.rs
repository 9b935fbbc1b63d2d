//! Room for waiting bodies: in memory first, then in temporary files without a name.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use tokio::task::JoinHandle;

/// Bytes of one read or write of a file.
pub(super) const FILE_CHUNK_BYTES: usize = 128 * 1024;

/// The number of bodies that may use all memory that one body is allowed. When that much memory is in use,
/// further bodies go to files immediately.
const BODIES_IN_MEMORY: usize = 1024;

/// Limits on the bodies that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Most bytes of one body in memory; the rest goes to a temporary file.
    pub memory_bytes: usize,
    /// Most bytes of one body in a temporary file; beyond it the sender of the body has to wait.
    pub file_bytes: u64,
    /// Most bytes of all bodies in temporary files; beyond it a body is treated as if it were allowed no file.
    pub files_bytes: u64,
    /// The directory of temporary files; `None`: the system's.
    pub directory: Option<PathBuf>,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self { memory_bytes: 256 << 10, file_bytes: 1 << 30, files_bytes: 16 << 30, directory: None }
    }
}

/// Room for bodies; cheap to clone.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: StoreLimits,
    /// Most bytes of all bodies in memory.
    total_bytes: usize,
    /// Shared with the stores that this one was renewed from, whose files lie on the same disk.
    disk: Arc<Disk>,
    used_bytes: AtomicUsize,
}

/// Bytes of all files together, and the bodies that found no room in them.
#[derive(Debug, Default)]
struct Disk {
    used_bytes: AtomicU64,
    refused: AtomicU64,
}

/// The state of the room for files, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Bytes of all files now.
    pub file_bytes: u64,
    /// Bodies so far that found no room because other bodies had it.
    pub refused: u64,
}

/// A part of the room for files, given back when dropped.
#[derive(Debug)]
pub(super) struct FileRoom {
    store: Arc<Inner>,
    bytes: u64,
    is_refused: bool,
}

/// A part of the memory, given back when dropped.
#[derive(Debug)]
pub(super) struct Room {
    store: Arc<Inner>,
    bytes: usize,
}

impl Store {
    /// Makes an empty store.
    pub fn new(limits: impl Into<StoreLimits>) -> Self {
        Self::with_disk(limits.into(), Arc::default())
    }

    /// Makes a store with other limits that shares the room for files with this one.
    #[must_use]
    pub fn renewed(&self, limits: impl Into<StoreLimits>) -> Self {
        Self::with_disk(limits.into(), self.0.disk.clone())
    }

    fn with_disk(limits: StoreLimits, disk: Arc<Disk>) -> Self {
        let total_bytes = limits.memory_bytes.saturating_mul(BODIES_IN_MEMORY);
        Self(Arc::new(Inner { limits, total_bytes, disk, used_bytes: AtomicUsize::new(0) }))
    }

    /// Most bytes of one body in a file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.0.limits.file_bytes
    }

    /// Most bytes of one body in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.limits.memory_bytes
    }

    /// The state of the room for files.
    pub fn stats(&self) -> StoreStats {
        let Disk { used_bytes, refused } = &*self.0.disk;
        StoreStats { file_bytes: used_bytes.load(Relaxed), refused: refused.load(Relaxed) }
    }

    /// No part of a file yet.
    pub(super) fn file_room(&self) -> FileRoom {
        FileRoom { store: self.0.clone(), bytes: 0, is_refused: false }
    }

    /// No memory yet.
    pub(super) fn room(&self) -> Room {
        Room { store: self.0.clone(), bytes: 0 }
    }

    /// A new file without a name.
    pub(super) async fn file(&self) -> io::Result<Arc<File>> {
        let directory = self.0.limits.directory.clone();
        let make = move || match &directory {
            Some(directory) => tempfile::tempfile_in(directory),
            None => tempfile::tempfile(),
        };
        let file = blocking(make).await;
        file.map(Arc::new).map_err(|error| {
            let directory = self.0.limits.directory.as_deref().map_or_else(std::env::temp_dir, Path::to_owned);
            io::Error::new(error.kind(), format!("no temporary file for a body in {}: {error}", directory.display()))
        })
    }
}

impl FileRoom {
    /// Takes room until it holds this many bytes in all; false if there is not enough.
    pub(super) fn grow_to(&mut self, bytes: u64) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|&more| more > 0) else { return true };
        let Disk { used_bytes, refused } = &*self.store.disk;
        let before = used_bytes.fetch_add(more, Relaxed);
        if before.saturating_add(more) > self.store.limits.files_bytes {
            used_bytes.fetch_sub(more, Relaxed);
            if !std::mem::replace(&mut self.is_refused, true) {
                refused.fetch_add(1, Relaxed);
            }
            return false;
        }
        self.bytes = bytes;
        true
    }

    /// Gives back all but this many bytes.
    pub(super) fn shrink_to(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.store.disk.used_bytes.fetch_sub(less, Relaxed);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for FileRoom {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

impl Room {
    /// Takes memory for this many more bytes; false if there is not enough.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        if self.bytes.saturating_add(bytes) > self.store.limits.memory_bytes {
            return false;
        }
        let before = self.store.used_bytes.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > self.store.total_bytes {
            self.store.used_bytes.fetch_sub(bytes, Relaxed);
            return false;
        }
        self.bytes += bytes;
        true
    }

    /// Gives back this many bytes.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.store.used_bytes.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

/// Writes all bytes at an offset, on a thread that may block.
pub(super) async fn write_at(file: Arc<File>, bytes: Bytes, at: u64) -> io::Result<()> {
    blocking(move || file.write_all_at(&bytes, at)).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Reads a part of a file, chunk by chunk.
#[derive(Debug, Default)]
pub(super) struct Reader(Option<JoinHandle<io::Result<Bytes>>>);

impl Reader {
    /// Reads bytes from `at` up to `end`, or fewer. Poll it with the same numbers until it is ready.
    pub fn poll(&mut self, cx: &mut Context<'_>, file: &Arc<File>, at: u64, end: u64) -> Poll<io::Result<Bytes>> {
        let reading = self.0.get_or_insert_with(|| {
            let file = file.clone();
            let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(FILE_CHUNK_BYTES);
            tokio::task::spawn_blocking(move || {
                let mut bytes = BytesMut::zeroed(len);
                file.read_exact_at(&mut bytes, at)?;
                Ok(bytes.freeze())
            })
        });
        let read = ready!(Pin::new(reading).poll(cx));
        self.0 = None;
        Poll::Ready(read.unwrap_or_else(|error| Err(io::Error::other(error))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_and_given_back() {
        let store = Store::new(StoreLimits { memory_bytes: 100, ..StoreLimits::default() });
        let mut rooms: Vec<Room> = (0..BODIES_IN_MEMORY).map(|_| store.room()).collect();
        assert!(rooms.iter_mut().all(|room| room.grow(100)));
        assert!(!rooms[0].grow(1), "a body has no more than its own part");
        let mut late = store.room();
        assert!(!late.grow(1), "all is taken");
        rooms[7].shrink(40);
        assert!(late.grow(40) && !late.grow(1));
        drop((rooms, late));
        assert_eq!(store.0.used_bytes.load(Relaxed), 0);
    }

    #[test]
    fn files_share_one_room_whichever_configuration_they_were_made_under() {
        let limits = StoreLimits { files_bytes: 100, ..StoreLimits::default() };
        let before = Store::new(limits.clone());
        let mut early = before.file_room();
        assert!(early.grow_to(60) && early.grow_to(60));
        let store = before.renewed(StoreLimits { files_bytes: 90, ..limits });
        drop(before);
        let mut late = store.file_room();
        assert!(late.grow_to(30) && !late.grow_to(31) && !late.grow_to(40));
        assert_eq!(store.stats(), StoreStats { file_bytes: 90, refused: 1 });
        early.shrink_to(50);
        assert!(late.grow_to(40));
        drop((early, late));
        assert_eq!(store.stats(), StoreStats { file_bytes: 0, refused: 1 });
    }
}
