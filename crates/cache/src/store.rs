//! A store of responses, as requests use it.

use std::{
    hash::RandomState,
    io,
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
    disk::{Disk, DiskEvents},
    fetch::{Fetch, Follow, Turn},
    filling::Reader,
    purge::{Purge, target_of},
    shared::{Body, Index, Shared, StoreConfig, StoreStats, Unread},
    stored::Stored,
};

/// A shared cache. Clones share all state.
#[derive(Clone, Debug)]
pub struct Store(pub(crate) Arc<Shared>);

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
            index: RwLock::new(Index { unread: disk.is_some().then(Unread::default), ..Index::default() }),
            alone: parking_lot::Mutex::default(),
            hasher: RandomState::new(),
            filling_bytes: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            purged: AtomicU64::new(0),
        });
        if let Some(disk) = disk {
            let weak = Arc::downgrade(&shared);
            let told = move |tell: &mut dyn FnMut(&dyn DiskEvents)| {
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
        if let Some(unread) = index.unread.as_mut().filter(|unread| unread.has_room()) {
            unread.purges.push(purge.clone());
        }
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
        if let Some(unread) = index.unread.as_mut().filter(|unread| unread.has_room()) {
            unread.keys.insert(key.into());
        }
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

#[cfg(test)]
mod tests;
