//! Copies of small files in another form, such as a coding: a text that was compressed once is not compressed again.
//!
//! A copy belongs to one state of one file and to one form. A file that was changed is in another state, so its old copies
//! are never found again; they go when their room is needed. Only files in the cache have copies, because only their bytes
//! are known to be those of one state.
//!
//! A copy is made once, however many requests wait for it, and to its end, even if all of them go.
//!
//! *Invariant.* The bytes of all copies are counted, also of those that are being made (by the size of the file) and of
//! evicted ones that responses still send. They stay below twice the capacity: above that, no copy is made.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use quick_cache::{DefaultHashBuilder, Weighter, sync};
use tokio::sync::Semaphore;

use super::{
    memory::{Held, options},
    stamp::Stamp,
};

/// Estimated bytes of a copy beside its content.
const ENTRY_OVERHEAD_BYTES: u64 = 512;

/// The form of a copy. The number means what the caller says, such as a coding with its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form(pub u16);

/// The bytes of a file in one of its states. Cheap to clone.
#[derive(Clone)]
pub struct Original(Arc<State>);

struct State {
    stamp: Stamp,
    bytes: Bytes,
}

/// The copies of the files of all sites. Clones share one store.
#[derive(Clone)]
pub struct Copies(Arc<Shared>);

/// The statistics of the copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyStats {
    /// Requests answered from a copy that was there.
    pub hits: u64,
    /// Requests for which a copy was made, or that waited for one.
    pub misses: u64,
    /// Bytes of all copies, with an estimate of their bookkeeping.
    pub bytes: u64,
    /// The number of copies.
    pub entries: u64,
}

type Key = (Stamp, Form);

struct Shared {
    capacity_bytes: u64,
    /// `None`: no copies are kept.
    store: Option<sync::Cache<Key, Bytes, Weight>>,
    held: Held,
    hits: AtomicU64,
    misses: AtomicU64,
    /// As many copies are made at once as there are processors.
    making: Semaphore,
}

impl Copies {
    /// `largest_bytes`: no file is larger than this.
    pub(crate) fn new(capacity_bytes: u64, largest_bytes: u64) -> Self {
        let store = (capacity_bytes > 0).then(|| {
            let options = options(capacity_bytes, largest_bytes);
            sync::Cache::with_options(options, Weight, DefaultHashBuilder::default(), Default::default())
        });
        Self(Arc::new(Shared {
            capacity_bytes,
            store,
            held: Held::new(capacity_bytes.saturating_mul(2)),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            making: Semaphore::new(std::thread::available_parallelism().map_or(1, |cores| cores.get())),
        }))
    }

    /// The counters since the start, and the current sizes.
    pub fn stats(&self) -> CopyStats {
        let Shared { store, hits, misses, .. } = &*self.0;
        CopyStats {
            hits: hits.load(Relaxed),
            misses: misses.load(Relaxed),
            bytes: store.as_ref().map_or(0, |store| store.weight()),
            entries: store.as_ref().map_or(0, |store| store.len() as u64),
        }
    }

    /// Whether there is room for the copies of a file at all.
    pub fn may_have(&self, of: &Original) -> bool {
        of.0.bytes.len() as u64 <= self.0.capacity_bytes
    }

    /// The copy, if it was made.
    pub fn get(&self, of: &Original, form: Form) -> Option<Bytes> {
        let copy = self.0.store.as_ref()?.get(&(of.0.stamp, form))?;
        self.0.hits.fetch_add(1, Relaxed);
        Some(copy)
    }

    /// The copy that `make` makes on a thread that may block, or that it makes for another request. `None`: it failed, or
    /// responses hold too many copies already. To be awaited within a tokio runtime; it may be dropped at any time.
    pub async fn make(
        &self,
        of: Original,
        form: Form,
        make: impl FnOnce(&Bytes) -> io::Result<Vec<u8>> + Send + 'static,
    ) -> Option<Bytes> {
        let Self(shared) = self.clone();
        shared.misses.fetch_add(1, Relaxed);
        // In a task, so that what was begun for several requests does not end with the first of them.
        let made = tokio::spawn(async move {
            let key = (of.0.stamp, form);
            let made = async {
                let room = shared.held.reserve(of.0.bytes.len() as u64).ok_or(())?;
                let _permit = shared.making.acquire().await.map_err(drop)?;
                let made = tokio::task::spawn_blocking(move || make(&of.0.bytes)).await.map_err(drop)?;
                match made {
                    Ok(bytes) => Ok(room.fill(bytes)),
                    Err(error) => {
                        tracing::warn!(%error, "no copy of a file can be made");
                        Err(())
                    }
                }
            };
            shared.store.as_ref()?.get_or_insert_async(&key, made).await.ok()
        });
        made.await.ok()?
    }
}

impl Original {
    pub(crate) fn new(stamp: Stamp, bytes: Bytes) -> Self {
        Self(Arc::new(State { stamp, bytes }))
    }
}

impl fmt::Debug for Original {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Original").field("stamp", &self.0.stamp).finish_non_exhaustive()
    }
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Bytes> for Weight {
    fn weight(&self, _: &Key, copy: &Bytes) -> u64 {
        copy.len() as u64 + ENTRY_OVERHEAD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::AtomicUsize,
        mpsc::{self, Receiver, Sender},
    };

    use super::*;

    fn original(modified_s: i64) -> Original {
        Original::new(Stamp::modified_in_tests(modified_s), Bytes::from(vec![b'a'; 1000]))
    }

    fn halved(bytes: &Bytes) -> io::Result<Vec<u8>> {
        Ok(bytes[..bytes.len() / 2].to_vec())
    }

    #[tokio::test]
    async fn a_copy_is_of_one_state_and_one_form() {
        let copies = Copies::new(1 << 20, 4096);
        let (old, new) = (original(1), original(2));
        assert_eq!(copies.get(&old, Form(1)), None);
        let made = copies.make(old.clone(), Form(1), halved).await.unwrap();
        assert_eq!(made.len(), 500);
        assert_eq!(copies.get(&old, Form(1)), Some(made));
        assert_eq!(copies.get(&old, Form(2)), None);
        assert_eq!(copies.get(&new, Form(1)), None, "the file was changed");
        let stats = copies.stats();
        assert_eq!((stats.hits, stats.misses, stats.entries), (1, 1, 1));
        assert_eq!(stats.bytes, 500 + ENTRY_OVERHEAD_BYTES);
    }

    /// Makes a copy as soon as it is told, and counts how often one is made.
    fn slowly(runs: &Arc<AtomicUsize>, gate: Receiver<()>) -> impl FnOnce(&Bytes) -> io::Result<Vec<u8>> + use<> {
        let runs = Arc::clone(runs);
        move |bytes| {
            let _ = gate.recv();
            runs.fetch_add(1, Relaxed);
            halved(bytes)
        }
    }

    #[tokio::test]
    async fn a_copy_is_made_once_for_all_that_wait_even_if_the_first_goes() {
        let copies = Copies::new(1 << 20, 4096);
        let (of, runs) = (original(1), Arc::default());
        let mut releases: Vec<Sender<()>> = Vec::new();
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let (release, gate) = mpsc::channel();
                releases.push(release);
                let (copies, of, make) = (copies.clone(), of.clone(), slowly(&runs, gate));
                tokio::spawn(async move { copies.make(of, Form(1), make).await })
            })
            .collect();
        while copies.stats().misses < 20 {
            tokio::task::yield_now().await;
        }
        waiting[0].abort();
        drop(releases);
        for made in waiting.into_iter().skip(1) {
            assert_eq!(made.await.unwrap().map(|bytes| bytes.len()), Some(500));
        }
        assert_eq!(runs.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn a_copy_that_cannot_be_made_leaves_nothing_behind() {
        let copies = Copies::new(1 << 20, 4096);
        let of = original(1);
        let fails = |_: &Bytes| Err(io::Error::other("on purpose"));
        assert_eq!(copies.make(of.clone(), Form(1), fails).await, None);
        assert_eq!(copies.make(of.clone(), Form(1), |_| panic!("on purpose")).await, None);
        assert_eq!((copies.stats().entries, copies.0.held.bytes()), (0, 0));
        assert!(copies.make(of, Form(1), halved).await.is_some());
    }

    #[tokio::test]
    async fn copies_are_bounded_in_bytes_and_so_is_what_responses_hold_of_them() {
        let capacity_bytes = 8 * 1024;
        let copies = Copies::new(capacity_bytes, 1000);
        let mut held = Vec::new();
        for number in 0..100 {
            held.extend(copies.make(original(number), Form(1), halved).await);
            assert!(copies.stats().bytes <= capacity_bytes, "{:?}", copies.stats());
        }
        assert!(copies.stats().entries > 2, "{:?}", copies.stats());
        let held_bytes: usize = held.iter().map(Bytes::len).sum();
        let most_bytes = 2 * capacity_bytes;
        assert!(held_bytes as u64 <= most_bytes && held_bytes as u64 > most_bytes - 2000, "{held_bytes}");
        drop(held);
        assert_eq!(copies.0.held.bytes(), 500 * copies.stats().entries, "what is evicted is given back");
        assert!(copies.make(original(200), Form(1), halved).await.is_some());
    }

    #[tokio::test]
    async fn without_room_there_are_no_copies() {
        let off = Copies::new(0, 4096);
        assert!(!off.may_have(&original(1)));
        assert_eq!(off.make(original(1), Form(1), halved).await, None);
        assert!(!Copies::new(999, 4096).may_have(&original(1)));
        assert!(Copies::new(1000, 4096).may_have(&original(1)));
    }
}
