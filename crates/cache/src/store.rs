//! What is stored: one index of all responses, whose bodies are in memory, on disk, or both.
//!
//! Invariants, whenever the lock is free:
//! - Every number in a slot is that of an entry, and every entry is in the slot of its key.
//! - `memory_bytes` is the sum of the heads of all entries and of the bodies in memory, and at most the bound.
//! - `disk_bytes` is the sum of the files of entries, and at most the bound.
//! - An entry whose body is whole is in the queue of memory; one with a file is in that of the disk.
//!
//! A use takes the lock for reading. Nothing is read or written, and no large piece copied, while it is held.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    io,
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::{
    disk::{Disk, Job, Told},
    fetch::{Fetch, Follow, Turn},
    file_format::Head,
    filling::{Reader, Source},
    gdsf::{Gdsf, Rank},
    purge::{Purge, target_of},
    stored::Stored,
};

/// Most responses of one target that differ by `Vary`. Clients choose the fields, so there must be an end.
const MOST_VARIANTS: usize = 32;
/// How long a target is remembered whose answer could not be stored. Requests for it do not wait for each other.
const ALONE_MS: u64 = 120_000;
/// Most targets that are remembered so.
const MOST_ALONE: usize = 16 * 1024;
/// The largest part of the memory for bodies that are not whole yet.
const FILLING_PART: u64 = 2;

/// The bounds of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Bytes in memory: the heads of all responses, and as many bodies as there is room for.
    pub memory_bytes: u64,
    /// The largest body that is stored.
    pub most_body_bytes: u64,
    /// Where responses are kept over a restart; `None`: in memory only.
    pub directory: Option<PathBuf>,
    /// Bytes of all files there.
    pub disk_bytes: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            memory_bytes: 64 * 1024 * 1024,
            most_body_bytes: 4 * 1024 * 1024,
            directory: None,
            disk_bytes: 1024 * 1024 * 1024,
        }
    }
}

/// Counts of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Stored responses.
    pub entries: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Responses that were stored.
    pub stored: u64,
    /// Responses that went because there was no room.
    pub evicted: u64,
    /// Responses that were purged or made invalid.
    pub purged: u64,
    /// Reads and writes of the disk that failed, and damaged files.
    pub disk_failures: u64,
}

/// A shared cache. Clones share all state.
#[derive(Clone, Debug)]
pub struct Store(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: StoreConfig,
    pub(crate) disk: Option<Arc<Disk>>,
    index: RwLock<Index>,
    alone: parking_lot::Mutex<HashMap<u64, u64>>,
    hasher: RandomState,
    /// Bytes of bodies that are not whole yet.
    pub(crate) filling_bytes: AtomicU64,
    stored: AtomicU64,
    evicted: AtomicU64,
    purged: AtomicU64,
}

#[derive(Debug, Default)]
struct Index {
    slots: HashMap<Arc<str>, Slot>,
    entries: HashMap<u64, Entry>,
    next_entry: u64,
    memory: Gdsf,
    memory_bytes: u64,
    files: Gdsf,
    disk_bytes: u64,
}

/// What is known of one target.
#[derive(Debug, Default)]
struct Slot {
    /// The newest first.
    variants: Vec<u64>,
    /// Requests to the origin under way. While there are any, the slot stays.
    fetches: usize,
    /// Counts purges. What was asked for before one is not stored after it.
    epoch: u64,
    /// The request for which others wait.
    flight: Option<watch::Receiver<bool>>,
}

#[derive(Debug)]
struct Entry {
    key: Arc<str>,
    stored: Arc<Stored>,
    head_bytes: u64,
    body: Body,
    rank: Option<Rank>,
    file: Option<OnDisk>,
}

#[derive(Debug)]
enum Body {
    Whole(Bytes),
    Filling(Source),
    OnDisk,
}

#[derive(Debug)]
struct OnDisk {
    file: u64,
    bytes: u64,
    rank: Rank,
}

/// A stored response that matches a request.
#[derive(Debug)]
pub struct Found {
    /// Its number in the store.
    pub entry: u64,
    /// Its head.
    pub stored: Arc<Stored>,
    /// Where its body is.
    pub body: FoundBody,
}

/// Where the body of a stored response is.
#[derive(Debug)]
pub enum FoundBody {
    /// In memory.
    Whole(Bytes),
    /// On its way from the origin.
    Filling(Reader),
    /// On disk, in this file: see [`Store::read`].
    OnDisk(u64),
}

impl Store {
    /// An empty store. If it has a directory, a thread reads what is there. `seed` is up to chance.
    ///
    /// # Errors
    /// The directory cannot be made or written to.
    pub fn open(config: StoreConfig, seed: u64) -> io::Result<Self> {
        let disk = config.directory.as_deref().map(|directory| Disk::open(directory, seed)).transpose()?;
        let disk = disk.map(Arc::new);
        let shared = Arc::new(Shared {
            config,
            disk: disk.clone(),
            index: RwLock::default(),
            alone: parking_lot::Mutex::default(),
            hasher: RandomState::new(),
            filling_bytes: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            purged: AtomicU64::new(0),
        });
        if let Some(disk) = disk {
            let weak = Arc::downgrade(&shared);
            let told = move |tell: &mut dyn FnMut(&dyn Told)| {
                if let Some(shared) = Weak::upgrade(&weak) {
                    tell(&*shared);
                }
            };
            std::thread::Builder::new().name("cache-disk".into()).spawn(move || {
                disk.scan(&told);
                disk.work(&told);
            })?;
        }
        Ok(Self(shared))
    }

    /// The bounds.
    pub fn config(&self) -> &StoreConfig {
        &self.0.config
    }

    /// The response that a request for a target would get, fresh or not.
    pub fn find(&self, key: &str, request: &HeaderMap) -> Option<Found> {
        let index = self.0.index.read();
        let slot = index.slots.get(key)?;
        let matching =
            |id: &u64| Some((*id, index.entries.get(id).filter(|entry| entry.stored.vary.matches(request))?));
        let (id, entry) = slot.variants.iter().find_map(matching)?;
        if let Some(rank) = &entry.rank {
            index.memory.touch(rank);
        }
        if let Some(file) = &entry.file {
            index.files.touch(&file.rank);
        }
        let body = match (&entry.body, &entry.file) {
            (Body::Whole(bytes), _) => FoundBody::Whole(bytes.clone()),
            (Body::Filling(source), _) => FoundBody::Filling(source.read()),
            (Body::OnDisk, file) => FoundBody::OnDisk(file.as_ref()?.file),
        };
        Some(Found { entry: id, stored: entry.stored.clone(), body })
    }

    /// Begins a request to the origin, or says whose answer to wait for.
    pub fn begin(&self, key: &str, now_ms: u64) -> Turn {
        let is_alone = self.0.is_alone(key, now_ms);
        let mut index = self.0.index.write();
        let key: Arc<str> = match index.slots.get_key_value(key) {
            Some((key, _)) => key.clone(),
            None => key.into(),
        };
        let slot = index.slots.entry(key.clone()).or_default();
        if let (Some(flight), false) = (&slot.flight, is_alone) {
            return Turn::Follows(Follow(flight.clone()));
        }
        slot.fetches += 1;
        let leads = slot.flight.is_none() && !is_alone;
        let lead = leads.then(|| {
            let (sender, receiver) = watch::channel(false);
            slot.flight = Some(receiver);
            sender
        });
        Turn::Asks(Fetch::new(self.0.clone(), key, slot.epoch, lead))
    }

    /// Begins a request to the origin that waits for no other, and for which none waits.
    pub fn begin_alone(&self, key: &str) -> Fetch {
        let mut index = self.0.index.write();
        let key: Arc<str> = key.into();
        let slot = index.slots.entry(key.clone()).or_default();
        slot.fetches += 1;
        Fetch::new(self.0.clone(), key, slot.epoch, None)
    }

    /// Whether the last answer for a target could not be stored.
    pub fn is_alone(&self, key: &str, now_ms: u64) -> bool {
        self.0.is_alone(key, now_ms)
    }

    /// Reads the body of a stored response from disk, and keeps it in memory. `None`: it is not there any more, or was
    /// damaged and is not stored any more. Blocks.
    pub fn read(&self, entry: u64, file: u64) -> Option<Bytes> {
        let disk = self.0.disk.as_ref()?;
        let read = disk.read(file, self.0.config.most_body_bytes);
        let mut index = self.0.index.write();
        let found = index.entries.get(&entry).filter(|it| it.file.as_ref().is_some_and(|it| it.file == file))?;
        match read {
            Ok((head, body)) if *head.key == *found.key => {
                index.promote(entry, body.clone());
                self.0.settle(&mut index);
                Some(body)
            }
            read => {
                let error = read.err().unwrap_or_else(|| io::ErrorKind::InvalidData.into());
                self.0.remove(&mut index, entry);
                drop(index);
                disk.failed(&error, "a stored response cannot be read from disk; it is dropped");
                None
            }
        }
    }

    /// Gives up what matches. Returns how many responses that were. May take long.
    pub fn purge(&self, purge: &Purge) -> usize {
        let mut index = self.0.index.write();
        let mut gone = Vec::new();
        for (key, slot) in &mut index.slots {
            // The tags of an answer that is on its way are not known yet.
            if purge.is_by_tag() || purge.matches(target_of(key), &[]) {
                slot.epoch += 1;
            }
        }
        for (id, entry) in &index.entries {
            if purge.matches(target_of(&entry.key), &entry.stored.tags) {
                gone.push(*id);
            }
        }
        gone.iter().for_each(|id| self.0.remove(&mut index, *id));
        self.0.purged.fetch_add(gone.len() as u64, Relaxed);
        gone.len()
    }

    /// Gives up what is stored for a target.
    pub fn invalidate(&self, key: &str) {
        let mut index = self.0.index.write();
        let Some(slot) = index.slots.get_mut(key) else { return };
        slot.epoch += 1;
        let variants = slot.variants.clone();
        variants.iter().for_each(|id| self.0.remove(&mut index, *id));
        self.0.purged.fetch_add(variants.len() as u64, Relaxed);
    }

    /// The counts.
    pub fn stats(&self) -> StoreStats {
        let index = self.0.index.read();
        StoreStats {
            entries: index.entries.len() as u64,
            memory_bytes: index.memory_bytes,
            disk_bytes: index.disk_bytes,
            stored: self.0.stored.load(Relaxed),
            evicted: self.0.evicted.load(Relaxed),
            purged: self.0.purged.load(Relaxed),
            disk_failures: self.0.disk.as_ref().map_or(0, |disk| disk.failures.load(Relaxed)),
        }
    }
}

impl Shared {
    fn is_alone(&self, key: &str, now_ms: u64) -> bool {
        self.alone.lock().get(&self.hasher.hash_one(key)).is_some_and(|until_ms| now_ms < *until_ms)
    }

    /// Remembers that the answer for a target could not be stored.
    pub(crate) fn handle_alone(&self, key: &str, now_ms: u64) {
        let mut alone = self.alone.lock();
        if alone.len() >= MOST_ALONE {
            alone.retain(|_, until_ms| now_ms < *until_ms);
        }
        if alone.len() >= MOST_ALONE {
            alone.clear();
        }
        alone.insert(self.hasher.hash_one(key), now_ms + ALONE_MS);
    }

    /// Takes room for bytes of a body that is not whole yet.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        let most = self.config.memory_bytes / FILLING_PART;
        let grown = |before: u64| before.checked_add(bytes).filter(|after| *after <= most);
        self.filling_bytes.fetch_update(Relaxed, Relaxed, grown).is_ok()
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.filling_bytes.fetch_sub(bytes, Relaxed);
    }

    /// The request for which others waited has its answer, or none.
    pub(crate) fn end_flight(&self, key: &str) {
        if let Some(slot) = self.index.write().slots.get_mut(key) {
            slot.flight = None;
        }
    }

    pub(crate) fn end_fetch(&self, key: &str) {
        let mut index = self.index.write();
        if let Some(slot) = index.slots.get_mut(key) {
            slot.fetches -= 1;
            index.tidy(key);
        }
    }

    /// Stores a response whose body is on its way. `None`: it was purged meanwhile.
    pub(crate) fn insert_filling(
        &self,
        key: &Arc<str>,
        epoch: u64,
        stored: Arc<Stored>,
        source: Source,
    ) -> Option<u64> {
        let mut index = self.index.write();
        let id = self.insert(&mut index, key, epoch, stored, Body::Filling(source))?;
        self.settle(&mut index);
        Some(id)
    }

    /// Stores a response. `None`: it was purged meanwhile.
    pub(crate) fn insert_whole(&self, key: &Arc<str>, epoch: u64, stored: Arc<Stored>, body: Bytes) -> Option<u64> {
        let mut index = self.index.write();
        let id = self.insert(&mut index, key, epoch, stored.clone(), Body::Whole(body.clone()))?;
        self.stored.fetch_add(1, Relaxed);
        self.settle(&mut index);
        drop(index);
        self.write(id, key, stored, body);
        Some(id)
    }

    /// The body of a response is whole. `cost_us`: how long the site worked on all of it.
    pub(crate) fn complete(&self, id: u64, cost_us: u64, body: Bytes) {
        let mut index = self.index.write();
        let Some(entry) = index.entries.get_mut(&id) else { return };
        Arc::make_mut(&mut entry.stored).cost_us = cost_us;
        let (key, stored) = (entry.key.clone(), entry.stored.clone());
        index.promote(id, body.clone());
        self.stored.fetch_add(1, Relaxed);
        self.settle(&mut index);
        drop(index);
        self.write(id, &key, stored, body);
    }

    /// The head of a stored response is replaced after a 304. The file keeps the old one, and is validated after a restart.
    pub(crate) fn refresh(&self, id: u64, epoch: u64, stored: Arc<Stored>) -> bool {
        let mut index = self.index.write();
        let Some(entry) = index.entries.get(&id) else { return false };
        let key = entry.key.clone();
        let (before, after) = (entry.head_bytes, stored.head_bytes() + key.len() as u64);
        if index.slots.get(&key).is_none_or(|slot| slot.epoch != epoch) {
            return false;
        }
        let Some(entry) = index.entries.get_mut(&id) else { return false };
        (entry.stored, entry.head_bytes) = (stored, after);
        index.memory_bytes = index.memory_bytes - before + after;
        self.settle(&mut index);
        true
    }

    pub(crate) fn drop_entry(&self, id: u64) {
        self.remove(&mut self.index.write(), id);
    }

    fn insert(&self, index: &mut Index, key: &Arc<str>, epoch: u64, stored: Arc<Stored>, body: Body) -> Option<u64> {
        let slot = index.slots.entry(key.clone()).or_default();
        if slot.epoch != epoch {
            return None;
        }
        // What answers the same requests is replaced.
        let old = slot.variants.clone();
        let same = |id: &u64| index.entries.get(id).is_some_and(|old| old.stored.vary == stored.vary);
        let mut replaced: Vec<_> = old.iter().copied().filter(same).collect();
        if replaced.is_empty() && old.len() >= MOST_VARIANTS {
            replaced.extend(old.last());
        }
        // The slot is held by its fetch, so it stays while it is empty.
        replaced.into_iter().for_each(|id| self.remove(index, id));
        let id = index.next_entry;
        index.next_entry += 1;
        let head_bytes = stored.head_bytes() + key.len() as u64;
        index.memory_bytes += head_bytes;
        let (body, whole) = match body {
            Body::Whole(bytes) => (Body::OnDisk, Some(bytes)),
            other @ (Body::Filling(_) | Body::OnDisk) => (other, None),
        };
        index.entries.insert(id, Entry { key: key.clone(), stored, head_bytes, body, rank: None, file: None });
        index.slots.entry(key.clone()).or_default().variants.insert(0, id);
        if let Some(whole) = whole {
            index.promote(id, whole);
        }
        Some(id)
    }

    fn remove(&self, index: &mut Index, id: u64) {
        if let Some(entry) = index.take(id)
            && let (Some(file), Some(disk)) = (entry.file, &self.disk)
        {
            disk.queue(Job::Remove { file: file.file });
        }
    }

    fn write(&self, entry: u64, key: &Arc<str>, stored: Arc<Stored>, body: Bytes) {
        if let Some(disk) = &self.disk
            && !disk.queue(Job::Write { entry, key: key.clone(), stored, body })
        {
            disk.failed(&io::ErrorKind::WouldBlock.into(), "the disk is too slow for all that is to be stored");
        }
    }

    /// Gives up entries until the bounds hold.
    fn settle(&self, index: &mut Index) {
        while index.memory_bytes > self.config.memory_bytes {
            let Index { memory, entries, .. } = &mut *index;
            let Some(id) = memory.pop(|id| entries.get(&id)?.rank.as_ref()) else { break };
            let Some(entry) = index.entries.get_mut(&id) else { continue };
            let before = entry.rank.take();
            match &entry.body {
                // Its file has the body, so only that leaves the memory.
                Body::Whole(bytes) if entry.file.is_some() => {
                    index.memory_bytes -= bytes.len() as u64;
                    entry.body = Body::OnDisk;
                    let uses = before.as_ref().map_or(1, Rank::uses);
                    entry.rank = Some(index.memory.insert(id, uses, entry.stored.cost_us, entry.head_bytes));
                }
                _ => {
                    self.remove(index, id);
                    self.evicted.fetch_add(1, Relaxed);
                }
            }
        }
        while index.disk_bytes > self.config.disk_bytes {
            let Index { files, entries, .. } = &mut *index;
            let Some(id) = files.pop(|id| Some(&entries.get(&id)?.file.as_ref()?.rank)) else { break };
            let Some(entry) = index.entries.get_mut(&id) else { continue };
            let Some(file) = entry.file.take() else { continue };
            index.disk_bytes -= file.bytes;
            if let Some(disk) = &self.disk {
                disk.queue(Job::Remove { file: file.file });
            }
            if matches!(entry.body, Body::OnDisk) {
                self.remove(index, id);
            }
            self.evicted.fetch_add(1, Relaxed);
        }
    }
}

impl Index {
    /// The body of an entry is in memory from now on.
    fn promote(&mut self, id: u64, body: Bytes) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let uses = match entry.rank.take() {
            Some(rank) => {
                self.memory.remove(id, &rank);
                rank.uses()
            }
            None => 1,
        };
        if let Body::Whole(before) = &entry.body {
            self.memory_bytes -= before.len() as u64;
        }
        let bytes = body.len() as u64;
        self.memory_bytes += bytes;
        entry.body = Body::Whole(body);
        entry.rank = Some(self.memory.insert(id, uses, entry.stored.cost_us, entry.head_bytes + bytes));
    }

    /// Takes an entry out of all that has its number.
    fn take(&mut self, id: u64) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.memory_bytes -= entry.head_bytes;
        if let Body::Whole(bytes) = &entry.body {
            self.memory_bytes -= bytes.len() as u64;
        }
        if let Some(rank) = &entry.rank {
            self.memory.remove(id, rank);
        }
        if let Some(file) = &entry.file {
            self.files.remove(id, &file.rank);
            self.disk_bytes -= file.bytes;
        }
        if let Some(slot) = self.slots.get_mut(&entry.key) {
            slot.variants.retain(|other| *other != id);
        }
        self.tidy(&entry.key);
        Some(entry)
    }

    /// Forgets a slot of which nothing is known.
    fn tidy(&mut self, key: &str) {
        if self.slots.get(key).is_some_and(|slot| slot.variants.is_empty() && slot.fetches == 0) {
            self.slots.remove(key);
        }
    }
}

impl Told for Shared {
    fn handle_found(&self, file: u64, file_bytes: u64, head: Head) {
        let mut index = self.index.write();
        let key: Arc<str> = head.key.into();
        let slot = index.slots.entry(key.clone()).or_default();
        let (epoch, known) = (slot.epoch, slot.variants.clone());
        // What was stored since the start is newer; of two files the newer one counts.
        let newer = |id: &u64| {
            let Some(known) = index.entries.get(id).filter(|it| it.stored.vary == head.stored.vary) else {
                return false;
            };
            known.stored.received_ms >= head.stored.received_ms
        };
        let is_old = known.iter().any(newer) || head.body_bytes > self.config.most_body_bytes || epoch > 0;
        let id = match is_old {
            true => None,
            false => self.insert(&mut index, &key, epoch, Arc::new(head.stored), Body::OnDisk),
        };
        let Index { files, entries, memory, disk_bytes, .. } = &mut *index;
        match id.and_then(|id| Some((id, entries.get_mut(&id)?))) {
            Some((id, entry)) => {
                let cost = entry.stored.cost_us;
                entry.rank = Some(memory.insert(id, 1, cost, entry.head_bytes));
                entry.file = Some(OnDisk { file, bytes: file_bytes, rank: files.insert(id, 1, cost, file_bytes) });
                *disk_bytes += file_bytes;
                self.settle(&mut index);
            }
            None => {
                index.tidy(&key);
                if let Some(disk) = &self.disk {
                    disk.queue(Job::Remove { file });
                }
            }
        }
    }

    fn handle_written(&self, id: u64, file: u64, file_bytes: u64) -> bool {
        let mut index = self.index.write();
        let Index { files, entries, disk_bytes, .. } = &mut *index;
        let Some(entry) = entries.get_mut(&id).filter(|entry| entry.file.is_none()) else { return false };
        let uses = entry.rank.as_ref().map_or(1, Rank::uses);
        let rank = files.insert(id, uses, entry.stored.cost_us, file_bytes);
        entry.file = Some(OnDisk { file, bytes: file_bytes, rank });
        *disk_bytes += file_bytes;
        self.settle(&mut index);
        true
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            disk.end();
        }
    }
}

#[cfg(test)]
mod tests;
