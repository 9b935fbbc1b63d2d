//! Small hot files in memory.
//!
//! An entry is found by the raw path of the request, so that a hit decodes nothing and makes no system call.
//! Only the canonical spelling of a path is kept. Other spellings are converted first and cannot fill the
//! cache.
//!
//! A file of 32 KiB or more is read into memory when it is asked for again. Until then its entry has no content.
//!
//! An entry is trusted for `revalidate_after`. The first request after that checks the file, while other
//! requests are still answered from memory.
//!
//! *Invariant.* All bytes that came from the cache are counted, including evicted ones that responses still
//! send. They stay below twice the capacity: above that, files are read from disk while they are sent.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use quick_cache::{DefaultHashBuilder, Equivalent, Weighter, sync};
use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    copies::Copies,
    memory::{Held, Reservation, options},
    negotiate::Coding,
    representation::Representation,
    stamp::Stamp,
};
use crate::config::CacheConfig;

/// Estimated bytes of an entry beside its content: headers, key, bookkeeping. It bounds the number of tiny
/// files too.
const ENTRY_OVERHEAD_BYTES: u64 = 2048;

/// The same of a file that was asked for once, and is not in memory.
const KNOWN_OVERHEAD_BYTES: u64 = 512;

/// The most files that are kept open, unless that is more than a sixteenth of what the process may open.
const MOST_OPEN_FILES: u64 = 1024;

/// Small hot files of all sites. Clones share one store.
#[derive(Clone)]
pub struct Cache(Arc<Shared>);

/// The statistics of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Requests for files answered from memory.
    pub hits: u64,
    /// Requests for files that needed the file system.
    pub misses: u64,
    /// Bytes of all entries, with an estimate of their bookkeeping.
    pub bytes: u64,
    /// Bytes of files held in memory, including evicted ones that responses still send.
    pub held_bytes: u64,
    /// The number of entries.
    pub entries: u64,
}

struct Shared {
    config: CacheConfig,
    /// `None`: the cache is off.
    store: Option<sync::Cache<Key, Arc<Entry>, Weight>>,
    started: Instant,
    hits: AtomicU64,
    misses: AtomicU64,
    held: Held,
    copies: Copies,
    /// Files that may still be kept open beside their bytes.
    open_files: Arc<Semaphore>,
    sites: AtomicU32,
}

/// One path of one site, with its representations.
#[derive(Debug)]
pub(crate) struct Entry {
    /// By coding.
    pub variants: [Variant; Coding::COUNT],
    /// When the file system was last checked, on the cache's clock.
    checked_ns: AtomicU64,
}

/// The cached state of a representation.
#[derive(Clone, Debug)]
pub(crate) enum Variant {
    /// It does not exist.
    Absent,
    /// It exists.
    Known(Stamp),
    /// It is in memory.
    Loaded(Arc<Representation>),
}

/// Identifies an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub site: u32,
    /// The canonical request path.
    pub path: Box<str>,
}

#[derive(Hash)]
struct KeyRef<'a> {
    site: u32,
    path: &'a str,
}

impl Entry {
    /// Whether this is a file without siblings that was asked for, and is not in memory.
    pub(crate) fn is_known_alone(&self) -> bool {
        matches!(&self.variants, [Variant::Known(_), Variant::Absent, Variant::Absent, Variant::Absent])
    }
}

impl Cache {
    /// Makes a cache. One is meant to serve the whole process.
    pub fn new(config: CacheConfig) -> Self {
        let store = is_on(&config).then(|| {
            let options = options(config.capacity_bytes, config.max_file_bytes);
            sync::Cache::with_options(options, Weight, DefaultHashBuilder::default(), Default::default())
        });
        Self(Arc::new(Shared {
            config,
            store,
            started: Instant::now(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            held: Held::new(config.capacity_bytes.saturating_mul(2)),
            copies: Copies::new(if is_on(&config) { config.copies_bytes } else { 0 }, config.max_file_bytes),
            open_files: Arc::new(Semaphore::new(most_open_files())),
            sites: AtomicU32::new(0),
        }))
    }

    /// The counters since the start, and the current sizes.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.0.hits.load(Relaxed),
            misses: self.0.misses.load(Relaxed),
            bytes: self.0.store.as_ref().map_or(0, |store| store.weight()),
            held_bytes: self.0.held.bytes(),
            entries: self.0.store.as_ref().map_or(0, |store| store.len() as u64),
        }
    }

    /// The copies of files in another form.
    pub fn copies(&self) -> &Copies {
        &self.0.copies
    }

    /// A number for a site, unique in the life of the cache.
    pub(crate) fn new_site(&self) -> u32 {
        self.0.sites.fetch_add(1, Relaxed)
    }

    pub(crate) fn get(&self, site: u32, path: &str) -> Option<Arc<Entry>> {
        self.0.store.as_ref()?.get(&KeyRef { site, path })
    }

    /// The entry, without counting this look-up as a use.
    pub(crate) fn peek(&self, key: &Key) -> Option<Arc<Entry>> {
        self.0.store.as_ref()?.peek(key)
    }

    pub(crate) fn insert(&self, key: Key, variants: [Variant; Coding::COUNT], checked_ns: u64) {
        if let Some(store) = &self.0.store {
            store.insert(key, Arc::new(Entry { variants, checked_ns: AtomicU64::new(checked_ns) }));
        }
    }

    pub(crate) fn remove(&self, key: &Key) {
        if let Some(store) = &self.0.store {
            store.remove(key);
        }
    }

    /// Removes all entries of a site.
    pub(crate) fn remove_site(&self, site: u32) {
        if let Some(store) = &self.0.store {
            store.retain(|key, _| key.site != site);
        }
    }

    /// Whether an entry may be used without a check. Once it is too old, exactly one caller gets false and
    /// has to check the file; for the others the entry counts as checked.
    pub(crate) fn fresh(&self, entry: &Entry) -> bool {
        let now_ns = self.now_ns();
        let checked_ns = entry.checked_ns.load(Relaxed);
        if self.trusts(checked_ns, now_ns) {
            return true;
        }
        match entry.checked_ns.compare_exchange(checked_ns, now_ns, Relaxed, Relaxed) {
            Ok(_) => false,
            Err(checked_ns) => self.trusts(checked_ns, now_ns),
        }
    }

    /// Whether a look at the file system that was made then is still good.
    pub(crate) fn trusts(&self, checked_ns: u64, now_ns: u64) -> bool {
        let trusted_ns = u64::try_from(self.0.config.revalidate_after.as_nanos()).unwrap_or(u64::MAX);
        now_ns.saturating_sub(checked_ns) < trusted_ns
    }

    /// The file of an entry was last checked at this moment.
    pub(crate) fn set_checked(&self, entry: &Entry, checked_ns: u64) {
        entry.checked_ns.store(checked_ns, Relaxed);
    }

    /// Whether a file of this size may be kept in memory.
    pub(crate) fn takes(&self, size: u64) -> bool {
        let CacheConfig { capacity_bytes, max_file_bytes, .. } = self.0.config;
        self.0.store.is_some() && size <= max_file_bytes && size <= capacity_bytes
    }

    /// Permission to hold `size` bytes, if the file is small enough and responses do not hold too much
    /// already.
    pub(crate) fn reserve(&self, size: u64) -> Option<Reservation> {
        if self.takes(size) { self.0.held.reserve(size) } else { None }
    }

    /// Permission to keep a file open as long as its bytes are in memory.
    pub(crate) fn keep_open(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.open_files).try_acquire_owned().ok()
    }

    pub(crate) fn count_hit(&self) {
        self.0.hits.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_miss(&self) {
        self.0.misses.fetch_add(1, Relaxed);
    }

    /// Nanoseconds since the cache was made.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.0.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

fn is_on(config: &CacheConfig) -> bool {
    config.capacity_bytes > 0 && config.max_file_bytes > 0
}

fn most_open_files() -> usize {
    let allowed = getrlimit(Resource::Nofile).maximum;
    allowed.map_or(MOST_OPEN_FILES, |allowed| (allowed / 16).min(MOST_OPEN_FILES)) as usize
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("config", &self.0.config).field("stats", &self.stats()).finish()
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        KeyRef { site: self.site, path: &self.path }.hash(state);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.site == key.site && *self.path == *key.path
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Arc<Entry>> for Weight {
    fn weight(&self, key: &Key, entry: &Arc<Entry>) -> u64 {
        let loaded = entry.variants.iter().map(|variant| match variant {
            Variant::Loaded(representation) => representation.stamp.size + ENTRY_OVERHEAD_BYTES,
            Variant::Absent | Variant::Known(_) => 0,
        });
        loaded.sum::<u64>().max(KNOWN_OVERHEAD_BYTES) + key.path.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use bytes::Bytes;
    use http::HeaderValue;

    use super::*;
    use crate::{body::Source, representation::Description};

    fn config(capacity_bytes: u64, revalidate_after: Duration) -> CacheConfig {
        CacheConfig { capacity_bytes, max_file_bytes: 4096, revalidate_after, ..CacheConfig::default() }
    }

    fn variants(cache: &Cache, size: usize) -> [Variant; Coding::COUNT] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, vec![0; size]).unwrap();
        let bytes = cache.reserve(size as u64).unwrap().fill(vec![0; size]);
        let description = Description {
            coding: Coding::Identity,
            varies: false,
            content_type: HeaderValue::from_static("text/plain"),
            cache_control: None,
            tells_type: false,
            server_name: None,
            is_kept: true,
            now: std::time::SystemTime::now(),
        };
        let stamp = Stamp::of(&fs::metadata(&path).unwrap());
        let representation = Representation::new(stamp, Source::Memory(bytes), description);
        [Variant::Loaded(Arc::new(representation)), Variant::Absent, Variant::Absent, Variant::Absent]
    }

    fn key(site: u32, path: &str) -> Key {
        Key { site, path: path.into() }
    }

    #[test]
    fn sites_do_not_mix_and_are_forgotten_one_by_one() {
        let cache = Cache::new(config(1 << 20, Duration::MAX));
        let (one, two) = (cache.new_site(), cache.new_site());
        cache.insert(key(one, "/a"), variants(&cache, 10), 0);
        assert!(cache.get(one, "/a").is_some());
        assert!(cache.get(two, "/a").is_none());
        assert!(cache.get(one, "/b").is_none());
        cache.insert(key(two, "/a"), variants(&cache, 10), 0);
        cache.remove_site(one);
        assert!(cache.get(one, "/a").is_none());
        assert!(cache.get(two, "/a").is_some());
    }

    #[test]
    fn the_store_is_bounded_in_bytes() {
        let cache = Cache::new(config(1 << 16, Duration::MAX));
        let site = cache.new_site();
        for number in 0..200 {
            cache.insert(key(site, &format!("/{number}")), variants(&cache, 4096), 0);
            assert!(cache.stats().bytes <= 1 << 16);
        }
        let stats = cache.stats();
        assert!((5..=16).contains(&stats.entries), "{stats:?}");
        assert_eq!(stats.held_bytes, stats.entries * 4096, "what is evicted is given back");
    }

    #[test]
    fn what_responses_hold_is_bounded_too() {
        let cache = Cache::new(config(8192, Duration::MAX));
        let held: Vec<Bytes> =
            std::iter::from_fn(|| cache.reserve(4096).map(|room| room.fill(vec![0; 4096]))).collect();
        assert_eq!(held.len(), 4, "twice the capacity");
        assert_eq!(cache.stats().held_bytes, 16_384);
        let clone = held[0].slice(..1);
        drop(held);
        assert_eq!(cache.stats().held_bytes, 4096, "a part of the bytes holds all of them");
        drop(clone);
        assert_eq!(cache.stats().held_bytes, 0);
    }

    #[test]
    fn too_large_files_and_a_cache_that_is_off_hold_nothing() {
        assert!(Cache::new(config(1 << 20, Duration::MAX)).reserve(4097).is_none());
        let off = Cache::new(config(0, Duration::MAX));
        assert!(off.reserve(1).is_none());
        assert!(off.get(0, "/").is_none());
        let no_files = CacheConfig { max_file_bytes: 0, ..config(1 << 20, Duration::MAX) };
        assert!(Cache::new(no_files).reserve(1).is_none());
    }

    #[test]
    fn one_caller_looks_again_while_the_others_go_on() {
        let hour = Duration::from_secs(3600);
        let cache = Cache::new(config(1 << 20, hour));
        let entry = |checked_ns| Entry { variants: variants(&cache, 1), checked_ns: AtomicU64::new(checked_ns) };
        assert!(cache.fresh(&entry(cache.now_ns())));
        let trusting = Cache::new(config(1 << 20, Duration::MAX));
        assert!(trusting.fresh(&entry(0)));
        let doubting = Cache::new(config(1 << 20, Duration::ZERO));
        let doubted = entry(0);
        assert!(!doubting.fresh(&doubted));
        assert!(!doubting.fresh(&doubted));
        let nanosecond = Cache::new(config(1 << 20, Duration::from_nanos(1)));
        assert!(!nanosecond.fresh(&entry(0)));
    }
}
