//! The saved state of a device before Serpent changed it. It outlives this process but not a reboot, in the
//! file `/run/serpent/uplink-DEVICE@NAMESPACE.json`. NAMESPACE is the inode of the network namespace, because
//! devices in different namespaces may have the same name.
//!
//! The kernel's own state is the truth; the saved state is only needed to restore the old one. Without it the
//! device's default is restored.

use std::{fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::error::BandsError;

const DIRECTORY: &str = "/run/serpent";

/// The state of a device before Serpent changed it, and the packet size that Serpent set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// The device's number. A later device of the same name has another number.
    pub ifindex: u32,
    /// The packet size before.
    pub gso_max_segs_before: u32,
    /// The packet size that Serpent set. If the bands are gone and the size differs, it was set by other
    /// software.
    pub gso_max_segs_set: u32,
    /// The replaced root as `tc` printed it, if it was not the kernel's default.
    pub replaced: Option<String>,
}

impl Memory {
    /// Loads the saved state of a device. `None` if there is none, it is not readable, or it is about another
    /// device.
    pub(super) fn load(device: &str, ifindex: u32) -> Option<Self> {
        let text = fs::read(path(device)).ok()?;
        serde_json::from_slice::<Self>(&text).ok().filter(|memory| memory.ifindex == ifindex)
    }

    /// Writes the state so that a crash leaves the old or the new version.
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

    /// Deletes the saved state of a device.
    pub(super) fn forget(device: &str) {
        // A file that stays behind does no harm: its device number or its values no longer match.
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
