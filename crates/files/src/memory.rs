//! Bytes that a store holds in memory, and the options of such a store.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use quick_cache::{Options, OptionsBuilder};

/// Each separately locked part of a store holds at least this many of the largest entries. An entry that does
/// not fit one part would never be kept.
const LARGEST_PER_SHARD: u64 = 4;

/// The options of a store for so many bytes, in entries of at most `largest_bytes`.
pub(crate) fn options(capacity_bytes: u64, largest_bytes: u64) -> Options {
    let parallelism = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let shards_that_fit = capacity_bytes / largest_bytes.saturating_mul(LARGEST_PER_SHARD).max(1);
    // Rounded down to a power of two, because the store would round up.
    let shards = 1 << shards_that_fit.clamp(1, 4 * parallelism as u64).ilog2();
    OptionsBuilder::new()
        .shards(shards)
        .estimated_items_capacity(usize::try_from(capacity_bytes / 16_384).unwrap_or(0).max(64))
        .weight_capacity(capacity_bytes)
        .build()
        .unwrap_or_else(|_| unreachable!("both capacities are given"))
}

/// The bytes that came from a store, including evicted ones that responses still send. They stay below a bound.
#[derive(Debug)]
pub(crate) struct Held {
    bytes: Arc<AtomicU64>,
    most_bytes: u64,
}

/// Permission to hold bytes in memory, returned when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    held_bytes: Arc<AtomicU64>,
    size: u64,
}

impl Held {
    pub fn new(most_bytes: u64) -> Self {
        Self { bytes: Arc::default(), most_bytes }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Permission to hold so many bytes; `None`: responses hold too much already.
    pub fn reserve(&self, size: u64) -> Option<Reservation> {
        let before = self.bytes.fetch_add(size, Relaxed);
        let reservation = Reservation { held_bytes: Arc::clone(&self.bytes), size };
        (before.saturating_add(size) <= self.most_bytes).then_some(reservation)
    }
}

impl Reservation {
    /// Bytes whose last reference returns the reservation, which becomes one for so many bytes.
    pub fn fill(mut self, bytes: Vec<u8>) -> Bytes {
        let size = bytes.len() as u64;
        if size > self.size {
            self.held_bytes.fetch_add(size - self.size, Relaxed);
        } else {
            self.held_bytes.fetch_sub(self.size - size, Relaxed);
        }
        self.size = size;
        Bytes::from_owner(Filled { bytes, _reservation: self })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.held_bytes.fetch_sub(self.size, Relaxed);
    }
}

struct Filled {
    bytes: Vec<u8>,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
