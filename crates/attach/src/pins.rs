//! The file by which a server without privileges opens the map that it writes. It is `DIRECTORY/told-NAMESPACE-DEVICE`,
//! with the inode of the network namespace and the number of the device. It belongs to the server's user.
//!
//! The directory is a file system of its own, mounted for the first such file. That of systemd at `/sys/fs/bpf` is closed
//! to all but root.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

use aya::{maps::Map, pin::PinError};
use rustix::fs::{FlockOperation, flock};

use crate::error::AttachError;

const DIRECTORY: &str = "/run/serpent/bpf";
/// One process at a time mounts or unmounts the directory.
const LOCK: &str = "/run/serpent/bpf.lock";

/// The file of a device.
pub(crate) fn path(device_index: i32) -> PathBuf {
    let namespace = fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino());
    Path::new(DIRECTORY).join(format!("told-{namespace}-{device_index}"))
}

/// Makes the file of a device for a user, in place of an earlier one.
pub(crate) fn pin(map: &Map, device_index: i32, user_id: u32) -> Result<(), AttachError> {
    let path = path(device_index);
    let unfinished = path.with_file_name(format!("unfinished-{}", std::process::id()));
    let make = || -> io::Result<()> {
        let directory = Path::new(DIRECTORY);
        fs::create_dir_all(directory)?;
        let _lock = lock()?;
        if !kernel::bpf::has_files(directory) {
            kernel::bpf::mount_files(directory)?;
        }
        map.pin(&unfinished).map_err(|error| match error {
            PinError::SyscallError(error) => error.io_error,
            error => io::Error::other(error),
        })?;
        chown(&unfinished, Some(user_id), None)?;
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o600))?;
        fs::rename(&unfinished, &path)
    };
    make().map_err(|source| {
        let _ = fs::remove_file(&unfinished);
        match source.kind() {
            io::ErrorKind::PermissionDenied => AttachError::NotPermitted { what: format!("make {}", path.display()) },
            _ => AttachError::Earlier { path: path.clone(), source },
        }
    })
}

/// Removes the file of a device, and the file system if it is empty then.
pub(crate) fn unpin(device_index: i32) {
    let directory = Path::new(DIRECTORY);
    if !kernel::bpf::has_files(directory) {
        return;
    }
    let Ok(_lock) = lock() else { return };
    // A file that stays behind does no harm: it is of a map that no program reads.
    let _ = fs::remove_file(path(device_index));
    if fs::read_dir(directory).is_ok_and(|mut files| files.next().is_none()) {
        let _ = kernel::bpf::unmount_files(directory);
    }
}

/// Held until it is dropped.
fn lock() -> io::Result<File> {
    let file = File::create(LOCK)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}
