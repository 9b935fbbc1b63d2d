//! Maps of BPF programs that hold a value for each socket (`BPF_MAP_TYPE_SK_STORAGE`), and the file system by which a
//! privileged program hands them to others. All else of BPF is done by crates without `unsafe`.

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Commands of bpf(2).
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_OBJ_GET: libc::c_long = 7;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
/// `BPF_F_WRONLY`: values cannot be read through the descriptor.
const WRITE_ONLY: u32 = 1 << 4;
const BPF_MAP_TYPE_SK_STORAGE: u32 = 24;

/// A map that holds a value of `BYTES` bytes for each socket.
#[derive(Debug)]
pub struct SocketStorage<const BYTES: usize> {
    map: OwnedFd,
}

impl<const BYTES: usize> SocketStorage<BYTES> {
    /// Opens a map by its file, to write.
    pub fn open(path: &Path) -> io::Result<Self> {
        #[repr(C)]
        struct Get {
            path: u64,
            unused: u32,
            flags: u32,
        }
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut get = Get { path: path.as_ptr().expose_provenance() as u64, unused: 0, flags: WRITE_ONLY };
        // SAFETY: the path lives until the end of the function, and the kernel only reads it.
        let map = unsafe { call(BPF_OBJ_GET, &mut get) }?;
        // SAFETY: the kernel has returned a new descriptor, which nothing else owns.
        Self::new(unsafe { OwnedFd::from_raw_fd(map) })
    }

    /// Takes the descriptor of a map, and checks its type and sizes.
    pub fn new(map: OwnedFd) -> io::Result<Self> {
        #[repr(C)]
        struct Ask {
            map: u32,
            info_bytes: u32,
            info: u64,
        }
        #[repr(C)]
        #[derive(Default)]
        struct Info {
            kind: u32,
            id: u32,
            key_bytes: u32,
            value_bytes: u32,
        }
        let mut info = Info::default();
        let mut ask = Ask {
            map: map.as_raw_fd() as u32,
            info_bytes: size_of::<Info>() as u32,
            info: (&raw mut info).expose_provenance() as u64,
        };
        // SAFETY: the kernel writes at most `info_bytes` bytes to `info`, which has as many and lives on.
        unsafe { call(BPF_OBJ_GET_INFO_BY_FD, &mut ask) }?;
        if (info.kind, info.key_bytes, info.value_bytes as usize) != (BPF_MAP_TYPE_SK_STORAGE, 4, BYTES) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the map is of another type or another version"));
        }
        Ok(Self { map })
    }

    /// Sets the value of a socket. A program in the kernel sees the old value or the new one.
    pub fn set(&self, socket: impl AsFd, value: &[u8; BYTES]) -> io::Result<()> {
        #[repr(C)]
        struct Update {
            map: u32,
            unused: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let key = socket.as_fd().as_raw_fd();
        let mut update = Update {
            map: self.map.as_raw_fd() as u32,
            unused: 0,
            key: (&raw const key).expose_provenance() as u64,
            value: value.as_ptr().expose_provenance() as u64,
            flags: 0,
        };
        // SAFETY: key and value live until the end of the function. The kernel only reads them, as many bytes as the
        // map has for each: `new` has compared those with the types here.
        unsafe { call(BPF_MAP_UPDATE_ELEM, &mut update) }.map(drop)
    }
}

/// Mounts the file system of maps and programs on a directory.
pub fn mount_files(directory: &Path) -> io::Result<()> {
    Ok(mount("bpf", directory, "bpf", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, c"mode=0755")?)
}

/// Unmounts it.
pub fn unmount_files(directory: &Path) -> io::Result<()> {
    Ok(unmount(directory, UnmountFlags::NOFOLLOW)?)
}

/// Whether a directory is in the file system of maps and programs.
pub fn has_files(directory: &Path) -> bool {
    const BPF_FS_MAGIC: u64 = 0xcafe_4a11;
    rustix::fs::statfs(directory).is_ok_and(|found| found.f_type as u64 == BPF_FS_MAGIC)
}

/// The number of the user with this name; `None` if there is none.
pub fn user_id(name: &str) -> io::Result<Option<u32>> {
    let name = CString::new(name)?;
    let mut buffer = vec![0; 1 << 14];
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    // SAFETY: the pointers are to living memory of these sizes; `found` is null or points to `entry` afterwards.
    let status = unsafe {
        libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found)
    };
    match status {
        // SAFETY: the call has filled in the entry that `found` points to.
        0 => Ok((!found.is_null()).then(|| unsafe { (*found).pw_uid })),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Calls bpf(2) with attributes that begin with `attributes`; the kernel takes the others as zero.
///
/// # Safety
///
/// Addresses in the attributes must be of memory that the command may use.
unsafe fn call<T>(command: libc::c_long, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes at most the given number of bytes; the rest is the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        assert_eq!(user_id("root").unwrap(), Some(0));
        assert_eq!(user_id("no-such-user-here").unwrap(), None);
        assert!(user_id("a\0b").is_err());
    }

    #[test]
    fn what_is_no_map_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(SocketStorage::<16>::open(file.path()).is_err());
        assert!(SocketStorage::<16>::new(file.reopen().unwrap().into()).is_err());
        assert!(!has_files(file.path()));
    }
}
