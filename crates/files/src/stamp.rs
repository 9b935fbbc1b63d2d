//! The state of a file, as far as the file system tells.

use std::{
    fs::{File, Metadata},
    os::unix::fs::MetadataExt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::negotiate::Coding;

/// The properties by which states of a file are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    /// Length in bytes.
    pub size: u64,
    /// Seconds since 1970.
    pub modified_s: i64,
    modified_ns: i64,
    /// Change time: it moves even if the modification time was set back.
    changed_s: i64,
    changed_ns: i64,
}

impl Stamp {
    /// The state of a file.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified_s: metadata.mtime(),
            modified_ns: metadata.mtime_nsec(),
            changed_s: metadata.ctime(),
            changed_ns: metadata.ctime_nsec(),
        }
    }

    /// Whether this was last modified in an earlier second than `other`. Whole seconds are compared, because
    /// some compressors copy only these of the original's time.
    pub fn older_than(&self, other: &Self) -> bool {
        self.modified_s < other.modified_s
    }

    /// Whether the file was modified less than `window` before `now`.
    pub fn modified_within(&self, window: Duration, now: SystemTime) -> bool {
        is_within(self.modified_s, self.modified_ns, window, now)
    }

    /// As [`Stamp::modified_within`], for any change, even of the modification time.
    pub fn changed_within(&self, window: Duration, now: SystemTime) -> bool {
        is_within(self.changed_s, self.changed_ns, window, now)
    }

    /// Whether an open file is still in this state, as far as the system knows without asking a server. Never
    /// blocks.
    #[cfg(target_os = "linux")]
    pub fn is_of(&self, file: &File) -> bool {
        use rustix::fs::{AtFlags, StatxFlags, statx};

        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let Ok(now) = statx(file, c"", flags, StatxFlags::BASIC_STATS) else { return false };
        let (modified, changed) = (now.stx_mtime, now.stx_ctime);
        (now.stx_size, modified.tv_sec, i64::from(modified.tv_nsec)) == (self.size, self.modified_s, self.modified_ns)
            && (changed.tv_sec, i64::from(changed.tv_nsec)) == (self.changed_s, self.changed_ns)
    }

    /// A strong entity tag. The inode is hashed, so that it is not revealed.
    pub fn etag(&self, coding: Coding) -> String {
        let mut mixed = 0xcbf2_9ce4_8422_2325_u64; // FNV-1a, 64 bits
        let fields = [self.modified_s as u64, self.modified_ns as u64, self.inode];
        for byte in fields.iter().flat_map(|field| field.to_le_bytes()) {
            mixed = (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let suffix = coding.suffix().replace('.', "-");
        format!("\"{:x}-{mixed:016x}{suffix}\"", self.size)
    }
}

fn is_within(time_s: i64, time_ns: i64, window: Duration, now: SystemTime) -> bool {
    let now_ns = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128);
    let time_ns = i128::from(time_s) * 1_000_000_000 + i128::from(time_ns);
    (0..window.as_nanos() as i128).contains(&(now_ns - time_ns))
}

#[cfg(test)]
impl Stamp {
    pub fn modified_in_tests(modified_s: i64) -> Self {
        Self { device: 1, inode: 2, size: 3, modified_s, modified_ns: 5, changed_s: 1_000_000_001, changed_ns: 6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp() -> Stamp {
        Stamp::modified_in_tests(1_000_000_000)
    }

    #[test]
    fn the_tag_changes_with_size_time_inode_and_coding() {
        let etag = stamp().etag(Coding::Identity);
        assert!(etag.starts_with("\"3-") && etag.ends_with('"'), "strong: {etag}");
        assert_eq!(stamp().etag(Coding::Identity), etag);
        assert_ne!(Stamp { size: 4, ..stamp() }.etag(Coding::Identity), etag);
        assert_ne!(Stamp { modified_ns: 6, ..stamp() }.etag(Coding::Identity), etag);
        assert_ne!(Stamp { modified_s: 6, ..stamp() }.etag(Coding::Identity), etag);
        assert_ne!(Stamp { inode: 6, ..stamp() }.etag(Coding::Identity), etag);
        let by_coding: std::collections::HashSet<_> = Coding::ALL.map(|coding| stamp().etag(coding)).into();
        assert_eq!(by_coding.len(), Coding::COUNT);
    }

    #[test]
    fn age_is_told_in_whole_seconds_between_siblings_and_exactly_against_the_clock() {
        assert!(!Stamp { modified_ns: 0, ..stamp() }.older_than(&stamp()));
        assert!(Stamp { modified_s: 999_999_999, ..stamp() }.older_than(&stamp()));
        let at = |ns| UNIX_EPOCH + Duration::from_secs(1_000_000_000) + Duration::from_nanos(ns);
        let window = Duration::from_nanos(100);
        assert!(stamp().modified_within(window, at(5)));
        assert!(stamp().modified_within(window, at(104)));
        assert!(!stamp().modified_within(window, at(105)));
        assert!(!stamp().modified_within(window, at(4)), "a time in the future is not recent");
    }
}
