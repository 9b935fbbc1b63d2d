//! The index of a store: all that is known of stored responses, whose bodies are in memory, on disk, or both.
//!
//! Invariants, whenever the lock is free:
//! - Every number in a slot is that of an entry, and every entry is in the slot of its key.
//! - `memory_bytes` is the sum of the heads of all entries and of the bodies in memory, and at most the bound.
//! - `disk_bytes` is the sum of the files of entries, and at most the bound.
//! - An entry whose body is whole is in the queue of memory; one with a file is in that of the disk.
//!
//! A use takes the lock for reading. Nothing is read or written, and no large piece copied, while it is held.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::{
    disk::{Disk, DiskEvents, Job},
    file_format::Head,
    filling::Source,
    gdsf::{Gdsf, Rank},
    purge::{Purge, target_of},
    stored::Stored,
};

/// Most responses of one target that differ by `Vary`. Clients choose the fields, so there must be an end.
pub(crate) const MOST_VARIANTS: usize = 32;
/// How long a target is remembered whose answer could not be stored. Requests for it do not wait for each other.
pub(crate) const ALONE_MS: u64 = 120_000;
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

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: StoreConfig,
    pub(crate) disk: Option<Arc<Disk>>,
    pub(crate) index: RwLock<Index>,
    pub(crate) alone: parking_lot::Mutex<HashMap<u64, u64>>,
    pub(crate) hasher: RandomState,
    /// Bytes of bodies that are not whole yet.
    pub(crate) filling_bytes: AtomicU64,
    pub(crate) stored: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) purged: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) slots: HashMap<Arc<str>, Slot>,
    pub(crate) entries: HashMap<u64, Entry>,
    pub(crate) next_entry: u64,
    pub(crate) memory: Gdsf,
    pub(crate) memory_bytes: u64,
    pub(crate) files: Gdsf,
    pub(crate) disk_bytes: u64,
    /// Purges and invalidated targets while the files of the directory are still being read; `None`: all were read.
    pub(crate) unread: Option<Unread>,
}

/// Responses that must not come back from files that are not read yet.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    pub(crate) purges: Vec<Purge>,
    pub(crate) keys: HashSet<Arc<str>>,
}

/// Most of them. Beyond that nothing more is taken from files.
const MOST_UNREAD: usize = 10_000;

impl Unread {
    fn forbids(&self, key: &str, tags: &[Box<str>]) -> bool {
        self.purges.len() + self.keys.len() > MOST_UNREAD
            || self.keys.contains(key)
            || self.purges.iter().any(|purge| purge.matches(target_of(key), tags))
    }

    pub(crate) fn has_room(&self) -> bool {
        self.purges.len() + self.keys.len() <= MOST_UNREAD
    }
}

/// The stored variants of one target, and its requests to the origin.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The newest first.
    pub(crate) variants: Vec<u64>,
    /// Requests to the origin under way. While there are any, the slot stays.
    pub(crate) fetches: usize,
    /// Counts purges. A response that was asked for before a purge is not stored after it.
    pub(crate) epoch: u64,
    /// The request for which others wait.
    pub(crate) flight: Option<watch::Receiver<bool>>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Arc<str>,
    pub(crate) stored: Arc<Stored>,
    pub(crate) head_bytes: u64,
    pub(crate) body: Body,
    pub(crate) rank: Option<Rank>,
    pub(crate) file: Option<OnDisk>,
}

#[derive(Debug)]
pub(crate) enum Body {
    Whole(Bytes),
    Filling(Source),
    OnDisk,
}

#[derive(Debug)]
pub(crate) struct OnDisk {
    pub(crate) file: u64,
    pub(crate) bytes: u64,
    pub(crate) rank: Rank,
}

impl Shared {
    pub(crate) fn is_alone(&self, key: &str, now_ms: u64) -> bool {
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
        // A stored response that answers the same requests is replaced.
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

    pub(crate) fn remove(&self, index: &mut Index, id: u64) {
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
    pub(crate) fn settle(&self, index: &mut Index) {
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
    pub(crate) fn promote(&mut self, id: u64, body: Bytes) {
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

impl DiskEvents for Shared {
    fn handle_found(&self, file: u64, file_bytes: u64, head: Head) {
        let mut index = self.index.write();
        let key: Arc<str> = head.key.into();
        let is_forbidden = index.unread.as_ref().is_some_and(|it| it.forbids(&key, &head.stored.tags));
        let slot = index.slots.entry(key.clone()).or_default();
        let (epoch, known) = (slot.epoch, slot.variants.clone());
        // A response that was stored since the start is newer; of two files the newer one counts.
        let newer = |id: &u64| {
            let Some(known) = index.entries.get(id).filter(|it| it.stored.vary == head.stored.vary) else {
                return false;
            };
            known.stored.received_ms >= head.stored.received_ms
        };
        let is_old = known.iter().any(newer) || head.body_bytes > self.config.most_body_bytes || is_forbidden;
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

    fn handle_all_found(&self) {
        self.index.write().unread = None;
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
