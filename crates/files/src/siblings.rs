//! Directories in which no file has a precompressed sibling.
//!
//! Most directories have none. A directory is read once by a thread that may block. While its state is the same, one
//! look at it replaces three look-ups of names beside each of its files. A file in it can then be answered without
//! another thread.
//!
//! *Invariant.* A directory is known only if its state was the same before and after it was read, and was not new then.
//! The kernel's clock for the times of a directory ticks every few milliseconds, so a second change within the same
//! tick would go unnoticed.

use std::{
    fs::File,
    io,
    path::Path,
    time::{Duration, SystemTime},
};

use quick_cache::sync::Cache;
use rustix::fs::{Dir, DirEntry};

use super::{
    negotiate::Coding,
    resolve::{Node, Root},
    stamp::Stamp,
};

/// Directories known at a time.
const MOST_DIRECTORIES: usize = 4096;
/// A directory with more entries is not known, because reading it after each change would cost more than it saves.
const MOST_ENTRIES: usize = 10_000;
/// A directory that changes all the time is read this often at most.
const READ_INTERVAL_NS: u64 = 1_000_000_000;
/// A directory that changed less than this ago is not known yet.
const RECENT: Duration = Duration::from_millis(100);

/// The known directories of a site.
#[derive(Debug)]
pub(crate) struct Siblings {
    directories: Cache<Box<Path>, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    stamp: Stamp,
    /// Whether it was read to its end, and no name had the suffix of a coding.
    has_none: bool,
    /// When this was last seen to be so, on the cache's clock.
    checked_ns: u64,
    read_ns: u64,
}

impl Siblings {
    pub(crate) fn new() -> Self {
        Self { directories: Cache::new(MOST_DIRECTORIES) }
    }

    /// When it was last seen that no file in the directory has a sibling. `None`: it may have one. `is_fresh` tells whether
    /// an earlier moment will do. Never blocks.
    pub(crate) fn none_in(
        &self,
        root: &Root,
        directory: &Path,
        now_ns: u64,
        is_fresh: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let known = self.directories.get(directory)?;
        if known.has_none && is_fresh(known.checked_ns) {
            return Some(known.checked_ns);
        }
        let metadata = root.find_in_memory(directory).ok()??;
        if Stamp::of(&metadata) != known.stamp || !known.has_none {
            return None;
        }
        self.directories.insert(directory.into(), Known { checked_ns: now_ns, ..known });
        Some(now_ns)
    }

    /// Reads a directory, unless its state is known. Blocks.
    pub(crate) fn learn(&self, root: &Root, directory: &Path, now_ns: u64) {
        let Ok(Node::Directory(fd)) = root.find(directory) else { return };
        let opened = File::from(fd);
        let state = || opened.metadata().ok().map(|metadata| Stamp::of(&metadata));
        let Some(stamp) = state() else { return };
        let known = self.directories.peek(directory);
        if known.is_some_and(|known| known.stamp == stamp || now_ns.saturating_sub(known.read_ns) < READ_INTERVAL_NS)
            || stamp.changed_within(RECENT, SystemTime::now())
        {
            return;
        }
        let Ok(names) = Dir::read_from(&opened) else { return };
        let is_none = |entry: io::Result<DirEntry>| entry.is_ok_and(|it| !may_be_sibling(it.file_name().to_bytes()));
        let mut read = names.map(|entry| is_none(entry.map_err(Into::into))).take(MOST_ENTRIES + 1).enumerate();
        let has_none = read.all(|(at, is_none)| is_none && at < MOST_ENTRIES) && state() == Some(stamp);
        self.directories.insert(directory.into(), Known { stamp, has_none, checked_ns: now_ns, read_ns: now_ns });
    }

    /// Forgets everything, because the root is another directory now.
    pub(crate) fn clear(&self) {
        self.directories.clear();
    }
}

/// Whether a name has the suffix of a coding. Case does not matter to some directories.
fn may_be_sibling(name: &[u8]) -> bool {
    Coding::ALL.iter().map(|coding| coding.suffix().as_bytes()).any(|suffix| {
        !suffix.is_empty()
            && name.len() >= suffix.len()
            && name[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::SymlinkPolicy;

    const SECOND_NS: u64 = 1_000_000_000;

    fn wait_until_old(directory: &Path) {
        while Stamp::of(&fs::metadata(directory).unwrap()).changed_within(RECENT, SystemTime::now()) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_directory_is_known_until_it_changes() {
        let top = tempfile::tempdir().unwrap();
        let root = Root::open(top.path(), SymlinkPolicy::WithinRoot).unwrap();
        if !root.is_current_in_memory() {
            return println!("SKIPPED: the temporary folder is on a file system that is asked on another thread");
        }
        let sub = top.path().join("sub");
        fs::create_dir(&sub).unwrap();
        fs::write(sub.join("a.js"), "a").unwrap();
        let (siblings, here) = (Siblings::new(), Path::new("sub"));
        let none = |now_ns, trusted| siblings.none_in(&root, here, now_ns, |_| trusted);

        siblings.learn(&root, here, 0);
        wait_until_old(&sub);
        siblings.learn(&root, here, SECOND_NS);
        assert_eq!(none(2 * SECOND_NS, true), Some(SECOND_NS), "an earlier look will do");
        assert_eq!(none(2 * SECOND_NS, false), Some(2 * SECOND_NS));
        assert_eq!(none(3 * SECOND_NS, true), Some(2 * SECOND_NS), "the look was remembered");

        fs::write(sub.join("a.js.GZ"), "a").unwrap();
        assert_eq!(none(3 * SECOND_NS, false), None, "the directory has changed");
        wait_until_old(&sub);
        siblings.learn(&root, here, 4 * SECOND_NS);
        assert_eq!(none(4 * SECOND_NS, true), None, "it has a sibling");

        fs::remove_file(sub.join("a.js.GZ")).unwrap();
        wait_until_old(&sub);
        siblings.learn(&root, here, 4 * SECOND_NS + 1);
        assert_eq!(none(4 * SECOND_NS + 1, true), None, "it was read a moment ago");
        siblings.learn(&root, here, 5 * SECOND_NS);
        assert_eq!(none(5 * SECOND_NS, true), Some(5 * SECOND_NS));
        siblings.clear();
        assert_eq!(none(5 * SECOND_NS, true), None);
    }

    #[test]
    fn the_root_and_a_directory_that_is_not_there_are_looked_at_too() {
        let top = tempfile::tempdir().unwrap();
        let root = Root::open(top.path(), SymlinkPolicy::Never).unwrap();
        if !root.is_current_in_memory() {
            return println!("SKIPPED: the temporary folder is on a file system that is asked on another thread");
        }
        wait_until_old(top.path());
        let siblings = Siblings::new();
        for directory in ["", "missing"] {
            siblings.learn(&root, Path::new(directory), SECOND_NS);
        }
        assert_eq!(siblings.none_in(&root, Path::new(""), SECOND_NS, |_| false), Some(SECOND_NS));
        assert_eq!(siblings.none_in(&root, Path::new("missing"), SECOND_NS, |_| false), None);
    }
}
