//! Where bodies are kept that wait: in memory as far as that goes, then in temporary files without a name.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use tokio::task::JoinHandle;

use crate::config::Limits;

/// Bytes that go to or from a file at once.
pub(super) const FILE_CHUNK_BYTES: usize = 128 * 1024;

/// So many bodies may fill the memory that each of them is allowed; when it is taken, further ones go to files at once.
const BODIES_IN_MEMORY: usize = 1024;

/// Room for bodies; cheap to clone.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    memory_bytes: usize,
    total_bytes: usize,
    file_bytes: u64,
    directory: Option<PathBuf>,
    used_bytes: AtomicUsize,
}

/// A part of the memory, given back when dropped.
#[derive(Debug)]
pub(super) struct Room {
    store: Arc<Inner>,
    bytes: usize,
}

impl Store {
    /// Nothing is kept yet.
    pub fn new(limits: &Limits) -> Self {
        Self(Arc::new(Inner {
            memory_bytes: limits.body_memory_bytes,
            total_bytes: limits.body_memory_bytes.saturating_mul(BODIES_IN_MEMORY),
            file_bytes: limits.body_file_bytes,
            directory: limits.body_directory.clone(),
            used_bytes: AtomicUsize::new(0),
        }))
    }

    /// Bytes of one body that may lie in a file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.0.file_bytes
    }

    /// Bytes of one body that may lie in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.memory_bytes
    }

    /// No memory yet.
    pub(super) fn room(&self) -> Room {
        Room { store: self.0.clone(), bytes: 0 }
    }

    /// A new file without a name.
    pub(super) async fn file(&self) -> io::Result<Arc<File>> {
        let directory = self.0.directory.clone();
        let make = move || match &directory {
            Some(directory) => tempfile::tempfile_in(directory),
            None => tempfile::tempfile(),
        };
        let file = blocking(make).await;
        file.map(Arc::new).map_err(|error| {
            let directory = self.0.directory.as_deref().map_or_else(std::env::temp_dir, Path::to_owned);
            io::Error::new(error.kind(), format!("no temporary file for a body in {}: {error}", directory.display()))
        })
    }
}

impl Room {
    /// Takes memory for so many bytes more, if there is any.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        if self.bytes.saturating_add(bytes) > self.store.memory_bytes {
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

    /// Gives back memory of so many bytes.
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

/// Writes all of it at a place. Does not block the thread that asks.
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
    /// The next bytes from `at`, at most up to `end`, which lies behind it. Ask with the same numbers until it is ready.
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
        let limits = Limits { body_memory_bytes: 100, ..Limits::default() };
        let store = Store::new(&limits);
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
}
