//! A note of what a device was like before us, kept where it outlives this process but not the machine's run:
//! `/run/serpent/uplink-DEVICE@NAMESPACE.json`, where NAMESPACE is the inode of the network namespace, because devices in
//! different namespaces may have the same name.
//!
//! The kernel's own state is the truth; the note is only needed to restore what was there. Without it the device's default
//! is restored.

use std::{fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::BandsError;

const DIRECTORY: &str = "/run/serpent";

/// What a device was like before us, and what we made of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// The device's number, which a device of the same name made later does not have.
    pub ifindex: u32,
    /// Before us.
    pub gso_max_segs_before: u32,
    /// As we set it: where our bands are gone and it is different, it is somebody else's.
    pub gso_max_segs_set: u32,
    /// The root that was replaced, in the words of `tc`, if it was not the kernel's default.
    pub replaced: Option<String>,
}

impl Memory {
    /// The note on a device; `None` when there is none, it is not readable, or it is about another device.
    pub(super) fn load(device: &str, ifindex: u32) -> Option<Self> {
        let text = fs::read(path(device)).ok()?;
        serde_json::from_slice::<Self>(&text).ok().filter(|memory| memory.ifindex == ifindex)
    }

    /// Writes the note so that a crash leaves the old one or the new one.
    pub(super) fn save(&self, device: &str) -> Result<(), BandsError> {
        let path = path(device);
        let write = || -> io::Result<()> {
            fs::create_dir_all(DIRECTORY)?;
            let unfinished = path.with_extension(format!("json.{}", std::process::id()));
            fs::write(&unfinished, serde_json::to_vec_pretty(self)?)?;
            fs::rename(&unfinished, &path)
        };
        write().map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => BandsError::NotPermitted { what: format!("write {}", path.display()) },
            _ => BandsError::Memory { path: path.clone(), source },
        })
    }

    /// Forgets the note on a device.
    pub(super) fn forget(device: &str) {
        // A note that stays behind is about a device number that is gone, or about values that are no longer set.
        let _ = fs::remove_file(path(device));
    }
}

fn path(device: &str) -> PathBuf {
    PathBuf::from(DIRECTORY).join(format!("uplink-{device}@{}.json", namespace()))
}

/// The inode of the calling thread's network namespace.
#[cfg(target_os = "linux")]
fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino())
}

#[cfg(not(target_os = "linux"))]
fn namespace() -> u64 {
    0
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_note_names_device_and_namespace() {
        let inode = fs::read_link("/proc/self/ns/net").expect("Linux").to_string_lossy().into_owned();
        let inode = inode.trim_start_matches("net:[").trim_end_matches(']');
        assert_eq!(path("eth0.5"), PathBuf::from(format!("/run/serpent/uplink-eth0.5@{inode}.json")));
    }

    #[test]
    fn without_a_note_there_is_nothing_to_load() {
        assert_eq!(Memory::load("no-such-device", 1), None);
    }
}
