//! The files that a subject serves. The client knows every byte, so it detects mixed, repeated or invented
//! data.

use std::{
    fs,
    io::{BufWriter, Write},
    path::Path,
};

use tempfile::TempDir;

use crate::{LabError, temporary};

/// Files of given sizes in a temporary directory, readable by any user.
#[derive(Debug)]
pub struct DocRoot {
    dir: TempDir,
}

impl DocRoot {
    /// Writes one file for each size.
    pub fn write(sizes_bytes: &[u64]) -> Result<Self, LabError> {
        temporary::remove_stale();
        check_room(sizes_bytes.iter().fold(0, |sum, &size| sum.saturating_add(size)))?;
        // nginx's workers are not root.
        let dir =
            temporary::directory(0o755).map_err(LabError::io("cannot make a directory for the files to serve"))?;
        let content = Content::new();
        let all = || -> std::io::Result<()> {
            for (file, &size) in sizes_bytes.iter().enumerate() {
                let mut out = BufWriter::new(fs::File::create(dir.path().join(name(file as u32)))?);
                let mut at = 0;
                while at < size {
                    let piece = content.piece(file as u32, at, size - at);
                    out.write_all(piece)?;
                    at += piece.len() as u64;
                }
                out.flush()?;
            }
            Ok(())
        };
        all().map_err(LabError::io("cannot write the files to serve"))?;
        Ok(Self { dir })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Returns an error if the file system has not enough space.
pub(crate) fn check_room(bytes: u64) -> Result<(), LabError> {
    let dir = std::env::temp_dir();
    let room = rustix::fs::statvfs(&dir).map_err(|error| {
        LabError::Io(format!("cannot see how much room is left in {}", dir.display()), error.into())
    })?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    if bytes <= free.saturating_sub(MARGIN_BYTES) {
        return Ok(());
    }
    let megabytes = |bytes: u64| bytes / 1_000_000;
    Err(LabError::Request(format!(
        "the files to serve take {} MB, and {} has {} MB left, of which {} MB are not touched: ask for fewer or smaller \
         files, or have TMPDIR name a folder with more room",
        megabytes(bytes),
        dir.display(),
        megabytes(free),
        megabytes(MARGIN_BYTES),
    )))
}

/// Space left for others on the machine.
const MARGIN_BYTES: u64 = 256_000_000;

/// Name of a file below the root.
pub fn name(file: u32) -> String {
    format!("{file:06}.bin")
}

/// The bytes of the files: one sequence of prime period, with a different start for each file.
#[derive(Debug)]
pub struct Content {
    bytes: Vec<u8>,
}

impl Content {
    const PERIOD: u64 = 65_521;
    const LONGEST_PIECE: u64 = 65_536;

    /// The sequence.
    pub fn new() -> Self {
        // A linear congruence is enough: neighbours differ, and so do files.
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let mut bytes: Vec<u8> = (0..Self::PERIOD).map(|_| next()).collect();
        bytes.extend_from_within(..);
        bytes.extend_from_within(..Self::LONGEST_PIECE as usize - Self::PERIOD as usize);
        Self { bytes }
    }

    /// The next bytes of `file` from offset `at`: at most `limit`, and at least one unless that is 0.
    pub fn piece(&self, file: u32, at: u64, limit: u64) -> &[u8] {
        let from = (u64::from(file) * 7_919 + at) % Self::PERIOD;
        &self.bytes[from as usize..(from + limit.min(Self::LONGEST_PIECE)) as usize]
    }

    /// Whether `bytes` match `file` from offset `at`.
    pub fn matches(&self, file: u32, at: u64, bytes: &[u8]) -> bool {
        let mut at = at;
        bytes.chunks(Self::LONGEST_PIECE as usize).all(|chunk| {
            let same = self.piece(file, at, chunk.len() as u64) == chunk;
            at += chunk.len() as u64;
            same
        })
    }
}

impl Default for Content {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_sizes_and_bytes() {
        let sizes = [0, 1, 65_521, 200_000];
        let root = DocRoot::write(&sizes).unwrap();
        let content = Content::new();
        for (file, &size) in sizes.iter().enumerate() {
            let bytes = fs::read(root.path().join(name(file as u32))).unwrap();
            assert_eq!(bytes.len() as u64, size);
            assert!(content.matches(file as u32, 0, &bytes));
        }
    }

    #[test]
    fn more_than_there_is_room_for_is_not_begun() {
        let refused = DocRoot::write(&[1, u64::MAX]).unwrap_err();
        assert!(matches!(&refused, LabError::Request(what) if what.contains("TMPDIR")), "{refused}");
    }

    #[test]
    fn a_shifted_changed_or_foreign_byte_is_seen() {
        let root = DocRoot::write(&[1_000, 150_000]).unwrap();
        let content = Content::new();
        let mut bytes = fs::read(root.path().join(name(1))).unwrap();
        assert!(content.matches(1, 70_000, &bytes[70_000..]), "from any offset");
        assert!(!content.matches(0, 0, &bytes[..1_000]), "another file");
        assert!(!content.matches(1, 0, &bytes[1..]), "one byte lost");
        bytes[140_000] ^= 1;
        assert!(!content.matches(1, 0, &bytes), "one bit changed");
    }
}
