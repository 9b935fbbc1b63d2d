//! How much of a file the page cache holds.
//!
//! `sendfile` reads what the page cache lacks from the disk, and its caller waits. So the page cache is probed before:
//! `preadv2` with `RWF_NOWAIT` reads one byte, or tells that it would have to wait. Every [`PROBE_BYTES`] one byte is
//! read, because the kernel reads ahead, and evicts, many pages at a time. A page that was evicted alone between two
//! probes costs one wait for the disk.

use std::{
    fs::File,
    ops::Range,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// The distance of probes.
const PROBE_BYTES: u64 = 64 * 1024;

/// So much is probed at a time.
const WINDOW_BYTES: u64 = 2 * 1024 * 1024;

/// A probe counts as a use of the page, so the page stays for a while. A response that waits for its turn for longer
/// probes again.
const TRUST: Duration = Duration::from_millis(100);

/// Knowledge of the part of a file that is sent next.
#[derive(Debug, Default)]
pub(crate) struct PageCache {
    /// Whether the file may be sent from the page cache.
    pub is_used: bool,
    has_begun: bool,
    seen: Option<Seen>,
}

/// The page cache held a file, from where it was probed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    end: u64,
    at: Instant,
}

impl PageCache {
    /// Before the first use. `may` tells whether the page cache can be used.
    pub fn begin(&mut self, may: impl FnOnce() -> bool) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.is_used = cfg!(target_os = "linux") && may();
        }
    }

    /// The end of what the page cache holds from the start of the range on, at most `most_bytes`; `None`: it lacks the
    /// start.
    pub fn cached_end(&mut self, file: &File, range: &Range<u64>, most_bytes: u64) -> Option<u64> {
        if !self.is_used || range.is_empty() {
            return None;
        }
        let wanted_end = range.end.min(range.start.saturating_add(most_bytes));
        let now = Instant::now();
        let seen = match self.seen {
            Some(seen) if wanted_end <= seen.end && now - seen.at < TRUST => seen,
            _ => {
                let end = self.probe(file, range)?;
                *self.seen.insert(Seen { end, at: now })
            }
        };
        Some(wanted_end.min(seen.end))
    }

    /// As [`PageCache::cached_end`], for a file that many responses send from its start. A probe of one of them holds
    /// for the others.
    pub fn shared_end(
        &mut self,
        file: &File,
        range: &Range<u64>,
        most_bytes: u64,
        shared: &Mutex<Option<Seen>>,
    ) -> Option<u64> {
        if self.seen.is_none() {
            self.seen = *shared.lock();
        }
        let before = self.seen.map(|seen| seen.at);
        let end = self.cached_end(file, range, most_bytes);
        if range.start == 0 && self.seen.map(|seen| seen.at) != before {
            *shared.lock() = self.seen;
        }
        end
    }

    fn probe(&mut self, file: &File, range: &Range<u64>) -> Option<u64> {
        let end = range.end.min(range.start.saturating_add(WINDOW_BYTES));
        if !self.has_byte(file, range.start) {
            return None;
        }
        let mut seen_end = range.start;
        while seen_end < end {
            let next_end = end.min((seen_end + 1).next_multiple_of(PROBE_BYTES));
            if !self.has_byte(file, next_end - 1) {
                break;
            }
            seen_end = next_end;
        }
        // Less than up to the first probe is read like the bytes that are not cached.
        (seen_end > range.start).then_some(seen_end)
    }

    #[cfg(target_os = "linux")]
    fn has_byte(&mut self, file: &File, at: u64) -> bool {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};

        loop {
            let mut byte = [0];
            match preadv2(file, &mut [std::io::IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT) {
                Ok(read) => return read == 1,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                // The file system does not tell.
                Err(_) => {
                    self.is_used = false;
                    return false;
                }
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn has_byte(&mut self, _file: &File, _at: u64) -> bool {
        false
    }
}
