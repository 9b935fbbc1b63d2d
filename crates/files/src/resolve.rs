//! Opens a path below a root, and never outside it.
//!
//! On Linux `openat2` does the whole walk in the kernel, so that no race can divert it. It may be missing or
//! forbidden (`ENOSYS`, or `EPERM` from a sandbox), and it cannot judge an absolute link. In these cases
//! [`walk`] goes component by component, keeps each directory open and resolves links itself. This is as safe
//! but needs more calls.
//!
//! All files are opened with `O_NONBLOCK`, so that a pipe without a writer does not block. Only files and
//! directories are served.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs::{File, Metadata},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use http::StatusCode;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::config::SymlinkPolicy;

/// A served directory, and the treatment of links in it.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    policy: SymlinkPolicy,
    /// The directory to which `path` led at the last check.
    current: ArcSwap<RootDirectory>,
    /// False where `openat2` was found missing, and in tests of the walk.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    use_openat2: std::sync::atomic::AtomicBool,
}

#[derive(Debug)]
struct RootDirectory {
    fd: OwnedFd,
    /// The real path of the directory, with which absolute links are compared.
    canonical: PathBuf,
    device: u64,
    inode: u64,
    /// Whether its file system answers from memory what it was asked before, and is never wrong then.
    is_in_memory: bool,
}

/// The file or directory at a path.
#[derive(Debug)]
pub enum Node {
    /// A regular file, open for reading.
    File(File, Metadata),
    /// A directory, open for reading.
    Directory(OwnedFd),
    /// A directory that may not be read, but perhaps passed through.
    ClosedDirectory,
}

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Most links followed; the kernel's own limit, and enough for any honest chain.
const MAX_LINKS: u32 = 40;

impl Root {
    /// Opens a root. The error names it.
    pub fn open(path: &Path, policy: SymlinkPolicy) -> io::Result<Self> {
        let directory = RootDirectory::open(path).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot serve the directory {}: {error}", path.display()))
        })?;
        Ok(Self {
            // A relative root is made absolute, so that a change of the working directory has no effect.
            path: if path.is_absolute() { path.to_path_buf() } else { directory.canonical.clone() },
            policy,
            current: ArcSwap::from_pointee(directory),
            use_openat2: cfg!(target_os = "linux").into(),
        })
    }

    /// Follows the root's path if it leads to another directory by now, as after a deployment that switches a
    /// link, and says whether it does. A root that vanished is kept. Blocks.
    pub fn refresh(&self) -> bool {
        let current = self.current.load();
        if let Ok(metadata) = std::fs::metadata(&self.path)
            && !current.is(&metadata)
            && let Ok(directory) = RootDirectory::open(&self.path)
        {
            self.current.store(Arc::new(directory));
            return true;
        }
        false
    }

    /// Opens the file or directory at a path below the root; the empty path is the root. The path must have
    /// no `..`. Blocks.
    pub fn find(&self, relative: &Path) -> Result<Node, Errno> {
        let root = self.current.load();
        let fd = match self.open_beneath(&root, relative, OPEN) {
            Ok(fd) => fd,
            Err(Errno::ACCESS) if self.is_directory(&root, relative) => return Ok(Node::ClosedDirectory),
            Err(error) => return Err(error),
        };
        let file = File::from(fd);
        let metadata = file.metadata().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        if metadata.is_file() {
            Ok(Node::File(file, metadata))
        } else if metadata.is_dir() {
            Ok(Node::Directory(file.into()))
        } else {
            Err(Errno::NOENT)
        }
    }

    /// Looks a path up in the kernel's memory alone: never waits for a disk, and opens nothing for reading. `Err`: the
    /// kernel cannot answer so, or an answer would not be sure, as on the file systems of other machines.
    pub(crate) fn find_in_memory(&self, relative: &Path) -> Result<Option<Metadata>, ()> {
        let root = self.current.load();
        if !root.is_in_memory {
            return Err(());
        }
        let found = open_in_memory(root.fd.as_fd(), relative, Some(self.policy), OFlags::PATH);
        match found.map(|fd| File::from(fd).metadata()) {
            Ok(Ok(metadata)) => Ok(Some(metadata)),
            Err(Errno::NOENT) => Ok(None),
            _ => Err(()),
        }
    }

    /// Opens a regular file for reading, if the kernel finds it in its memory alone: never waits for a disk. `None`: the
    /// kernel cannot do so, or [`Root::find`] has something else to say.
    pub(crate) fn open_in_memory(&self, relative: &Path) -> Option<(File, Metadata)> {
        let root = self.current.load();
        if !root.is_in_memory {
            return None;
        }
        let file = File::from(open_in_memory(root.fd.as_fd(), relative, Some(self.policy), OPEN).ok()?);
        let metadata = file.metadata().ok()?;
        metadata.is_file().then_some((file, metadata))
    }

    /// Whether the root's path still leads to the same directory, as far as the kernel knows without a disk.
    pub(crate) fn is_current_in_memory(&self) -> bool {
        let current = self.current.load();
        current.is_in_memory
            && open_in_memory(rustix::fs::CWD, &self.path, None, OFlags::PATH)
                .is_ok_and(|fd| File::from(fd).metadata().is_ok_and(|metadata| current.is(&metadata)))
    }

    /// The treatment of links.
    pub fn policy(&self) -> SymlinkPolicy {
        self.policy
    }

    /// Whether the path is a directory that merely cannot be read. Without `O_PATH` it counts as forbidden.
    fn is_directory(&self, root: &RootDirectory, relative: &Path) -> bool {
        cfg!(target_os = "linux") && self.open_beneath(root, relative, STEP).is_ok()
    }

    fn open_beneath(&self, root: &RootDirectory, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        if self.policy == SymlinkPolicy::Follow {
            return retry(|| rustix::fs::openat(&root.fd, relative, flags, Mode::empty()));
        }
        #[cfg(target_os = "linux")]
        if let Some(result) = self.open_in_kernel(root, relative, flags) {
            return result;
        }
        walk(root.fd.as_fd(), &root.canonical, relative, flags, self.policy)
    }

    /// Opens by `openat2`; `None` if it cannot decide.
    #[cfg(target_os = "linux")]
    fn open_in_kernel(&self, root: &RootDirectory, relative: &Path, flags: OFlags) -> Option<Result<OwnedFd, Errno>> {
        use std::sync::atomic::Ordering::Relaxed;

        use rustix::fs::ResolveFlags;

        if !self.use_openat2.load(Relaxed) {
            return None;
        }
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if self.policy == SymlinkPolicy::Never {
            resolve |= ResolveFlags::NO_SYMLINKS;
        }
        match retry(|| rustix::fs::openat2(&root.fd, relative, flags, Mode::empty(), resolve)) {
            Err(Errno::NOSYS | Errno::PERM) => {
                self.use_openat2.store(false, Relaxed);
                None
            }
            // AGAIN: a rename happened during the walk. XDEV: a link leads out of the root, or is absolute
            // and may still lead into it.
            Err(Errno::AGAIN) => None,
            Err(Errno::XDEV) if self.policy == SymlinkPolicy::WithinRoot => None,
            result => Some(result),
        }
    }
}

impl RootDirectory {
    fn open(path: &Path) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        let access = OFlags::PATH;
        #[cfg(not(target_os = "linux"))]
        let access = OFlags::RDONLY;
        let fd = rustix::fs::open(path, access | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let file = File::from(fd);
        let metadata = file.metadata()?;
        Ok(Self {
            is_in_memory: is_local(&file),
            fd: file.into(),
            canonical: std::fs::canonicalize(path)?,
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }

    fn is(&self, metadata: &Metadata) -> bool {
        (metadata.dev(), metadata.ino()) == (self.device, self.inode)
    }
}

/// Whether a directory is on a file system of this machine. Others may change without the kernel's knowledge, and wait
/// for the network.
#[cfg(target_os = "linux")]
fn is_local(directory: &File) -> bool {
    const BTRFS: u64 = 0x9123_683E;
    const EXT4: u64 = 0xEF53;
    const F2FS: u64 = 0xF2F5_2010;
    const TMPFS: u64 = 0x0102_1994;
    const XFS: u64 = 0x5846_5342;
    rustix::fs::fstatfs(directory).is_ok_and(|it| [BTRFS, EXT4, F2FS, TMPFS, XFS].contains(&(it.f_type as u64)))
}

#[cfg(not(target_os = "linux"))]
fn is_local(_: &File) -> bool {
    false
}

/// Opens a place if the kernel has the whole way in memory. With a policy, the way stays on the file system that it
/// begins on.
#[cfg(target_os = "linux")]
fn open_in_memory(
    from: BorrowedFd<'_>,
    path: &Path,
    policy: Option<SymlinkPolicy>,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    use rustix::fs::ResolveFlags as Flags;
    let resolve = match policy {
        None => Flags::empty(),
        Some(SymlinkPolicy::Follow) => Flags::NO_XDEV,
        Some(SymlinkPolicy::WithinRoot) => Flags::NO_XDEV | Flags::BENEATH | Flags::NO_MAGICLINKS,
        Some(SymlinkPolicy::Never) => Flags::NO_XDEV | Flags::BENEATH | Flags::NO_SYMLINKS,
    };
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    rustix::fs::openat2(from, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve | Flags::CACHED)
}

#[cfg(not(target_os = "linux"))]
fn open_in_memory(_: BorrowedFd<'_>, _: &Path, _: Option<SymlinkPolicy>, _: OFlags) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}

/// The status for a path that could not be opened.
pub(crate) fn status_of(error: Errno) -> StatusCode {
    match error {
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::NAMETOOLONG
        // A link that the policy does not follow, leads out of the root, or leads nowhere.
        | Errno::LOOP
        | Errno::XDEV
        // Sockets and devices without a driver.
        | Errno::NXIO
        | Errno::NODEV
        | Errno::INVAL
        | Errno::ILSEQ
        | Errno::STALE => StatusCode::NOT_FOUND,
        Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Opens `relative` below `root`, one component at a time. Passed directories are kept open, so a `..` (only
/// links can contain one) returns to the previous directory and never above the root.
fn walk(
    root: BorrowedFd<'_>,
    canonical_root: &Path,
    relative: &Path,
    flags: OFlags,
    policy: SymlinkPolicy,
) -> Result<OwnedFd, Errno> {
    let mut passed: Vec<OwnedFd> = Vec::new();
    let mut ahead = components(relative);
    let mut links = 0;
    loop {
        let here = passed.last().map_or(root, |fd| fd.as_fd());
        let Some(name) = ahead.pop_front() else {
            return retry(|| rustix::fs::openat(here, ".", flags, Mode::empty()));
        };
        if name == ".." {
            passed.pop().ok_or(Errno::XDEV)?;
            continue;
        }
        let last = ahead.is_empty();
        let step = if last { flags } else { STEP } | OFlags::NOFOLLOW;
        let error = match retry(|| rustix::fs::openat(here, &name, step, Mode::empty())) {
            // With O_PATH a link itself is opened, unless a directory is required, which STEP and `find` do.
            Ok(fd) if last => return Ok(fd),
            Ok(fd) => {
                passed.push(fd);
                continue;
            }
            Err(error) => error,
        };
        // Systems report a link by different errors, so it is identified by reading it.
        let Ok(target) = rustix::fs::readlinkat(here, &name, Vec::new()) else { return Err(error) };
        links += 1;
        if policy == SymlinkPolicy::Never || links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        let mut next = if target.is_absolute() {
            passed.clear();
            components(target.strip_prefix(canonical_root).map_err(|_| Errno::XDEV)?)
        } else {
            components(target)
        };
        next.append(&mut ahead);
        ahead = next;
    }
}

#[cfg(target_os = "linux")]
const STEP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const STEP: OFlags = OPEN.union(OFlags::DIRECTORY);

fn components(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use tempfile::TempDir;

    use super::*;

    /// A file outside/secret, and a root with files, directories and links of every kind.
    fn tree() -> TempDir {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("outside/deep")).unwrap();
        fs::write(at("outside/secret"), "SECRET").unwrap();
        fs::create_dir_all(at("root/sub/deeper")).unwrap();
        fs::write(at("root/file"), "file").unwrap();
        fs::write(at("root/sub/inner"), "inner").unwrap();
        for (target, link) in [
            ("file", "to_file"),
            ("sub", "to_sub"),
            ("../file", "sub/up_to_file"),
            ("sub/../sub/deeper/../inner", "winding"),
            ("to_file", "to_link"),
            ("../outside/secret", "out_relative"),
            ("../outside", "out_directory"),
            ("sub/../../outside/secret", "out_winding"),
            ("..", "parent"),
            ("loop_b", "loop_a"),
            ("loop_a", "loop_b"),
            ("nowhere", "dangling"),
            ("/etc/passwd", "out_absolute"),
            ("/proc/self/root/etc/passwd", "out_magic"),
            (".", "self"),
        ] {
            symlink(target, at("root").join(link)).unwrap();
        }
        symlink(at("root/sub/inner").canonicalize().unwrap(), at("root/in_absolute")).unwrap();
        symlink(at("outside/secret").canonicalize().unwrap(), at("root/sub/out_absolute")).unwrap();
        // The name starts with the root's, which would deceive a comparison of strings.
        fs::create_dir(at("root_beside")).unwrap();
        fs::write(at("root_beside/secret"), "SECRET").unwrap();
        symlink(at("root_beside/secret").canonicalize().unwrap(), at("root/out_beside")).unwrap();
        top
    }

    /// The root twice: with the kernel's walk, and with [`walk`].
    fn both(top: &TempDir, policy: SymlinkPolicy) -> [Root; 2] {
        let kernel = Root::open(&top.path().join("root"), policy).unwrap();
        let walking = Root::open(&top.path().join("root"), policy).unwrap();
        walking.use_openat2.store(false, std::sync::atomic::Ordering::Relaxed);
        [kernel, walking]
    }

    fn content(root: &Root, path: &str) -> Result<String, Errno> {
        match root.find(Path::new(path))? {
            Node::File(file, _) => Ok(io::read_to_string(file).unwrap()),
            Node::Directory(_) => Ok("directory".into()),
            Node::ClosedDirectory => Ok("closed".into()),
        }
    }

    #[test]
    fn plain_paths_open_under_every_policy() {
        let top = tree();
        for policy in [SymlinkPolicy::Never, SymlinkPolicy::WithinRoot, SymlinkPolicy::Follow] {
            for root in both(&top, policy) {
                assert_eq!(content(&root, "file"), Ok("file".into()));
                assert_eq!(content(&root, "sub/inner"), Ok("inner".into()));
                assert_eq!(content(&root, ""), Ok("directory".into()));
                assert_eq!(content(&root, "sub/deeper"), Ok("directory".into()));
                assert_eq!(content(&root, "missing"), Err(Errno::NOENT));
                assert_eq!(content(&root, "file/below"), Err(Errno::NOTDIR));
                assert_eq!(content(&root, &"x".repeat(300)), Err(Errno::NAMETOOLONG));
            }
        }
    }

    #[test]
    fn never_follows_no_link() {
        let top = tree();
        for root in both(&top, SymlinkPolicy::Never) {
            for path in ["to_file", "to_sub/inner", "to_sub", "sub/up_to_file", "in_absolute", "out_absolute", "parent"]
            {
                assert_eq!(content(&root, path), Err(Errno::LOOP), "{path}");
            }
        }
    }

    #[test]
    fn within_root_follows_links_that_end_within_it() {
        let top = tree();
        for root in both(&top, SymlinkPolicy::WithinRoot) {
            assert_eq!(content(&root, "to_file"), Ok("file".into()));
            assert_eq!(content(&root, "to_link"), Ok("file".into()));
            assert_eq!(content(&root, "to_sub"), Ok("directory".into()));
            assert_eq!(content(&root, "to_sub/inner"), Ok("inner".into()));
            assert_eq!(content(&root, "sub/up_to_file"), Ok("file".into()));
            assert_eq!(content(&root, "winding"), Ok("inner".into()));
            assert_eq!(content(&root, "in_absolute"), Ok("inner".into()));
            assert_eq!(content(&root, "self/self/file"), Ok("file".into()));
            assert_eq!(content(&root, "dangling"), Err(Errno::NOENT));
            assert_eq!(content(&root, "loop_a"), Err(Errno::LOOP));
        }
    }

    #[test]
    fn within_root_never_leaves_it() {
        let top = tree();
        for root in both(&top, SymlinkPolicy::WithinRoot) {
            for path in [
                "out_relative",
                "out_directory",
                "out_directory/secret",
                "out_winding",
                "out_absolute",
                "out_magic",
                "out_beside",
                "sub/out_absolute",
                "parent",
                "parent/outside/secret",
                "parent/root/file",
            ] {
                assert_eq!(content(&root, path), Err(Errno::XDEV), "{path}");
            }
        }
    }

    #[test]
    fn follow_trusts_the_operator() {
        let top = tree();
        let root = Root::open(&top.path().join("root"), SymlinkPolicy::Follow).unwrap();
        assert_eq!(content(&root, "out_relative"), Ok("SECRET".into()));
        assert_eq!(content(&root, "sub/out_absolute"), Ok("SECRET".into()));
    }

    /// Swapping a directory for a link during the walk must not lead out of the root.
    #[test]
    fn a_race_between_a_directory_and_a_link_never_leads_out() {
        let top = tree();
        let at = |name: &str| top.path().join("root").join(name);
        fs::create_dir(at("flip")).unwrap();
        fs::write(at("flip/secret"), "public").unwrap();
        symlink("../outside", at("link")).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    fs::rename(at("flip"), at("aside")).unwrap();
                    fs::rename(at("link"), at("flip")).unwrap();
                    fs::rename(at("flip"), at("link")).unwrap();
                    fs::rename(at("aside"), at("flip")).unwrap();
                }
            });
            let seen: std::collections::BTreeSet<String> = [SymlinkPolicy::Never, SymlinkPolicy::WithinRoot]
                .iter()
                .flat_map(|policy| both(&top, *policy))
                .flat_map(|root| (0..3000).filter_map(move |_| content(&root, "flip/secret").ok()))
                .collect();
            // Set before the assertion, so that a failure does not leave the other thread running.
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(seen.iter().all(|text| text == "public"), "{seen:?}");
        });
    }

    #[test]
    fn what_is_no_file_is_not_served_and_does_not_block() {
        let top = tree();
        let pipe = top.path().join("root/pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(top.path().join("root/socket")).unwrap();
        symlink("/dev/zero", top.path().join("root/zero")).unwrap();
        for root in both(&top, SymlinkPolicy::Follow) {
            for name in ["pipe", "socket", "zero"] {
                let error = content(&root, name).unwrap_err();
                assert_eq!(status_of(error), StatusCode::NOT_FOUND, "{name}");
            }
        }
    }

    #[test]
    fn a_root_that_is_switched_by_a_link_is_followed() {
        let top = tempfile::tempdir().unwrap();
        for release in ["one", "two"] {
            fs::create_dir(top.path().join(release)).unwrap();
            fs::write(top.path().join(release).join("file"), release).unwrap();
        }
        symlink("one", top.path().join("current")).unwrap();
        let root = Root::open(&top.path().join("current"), SymlinkPolicy::Never).unwrap();
        assert_eq!(content(&root, "file"), Ok("one".into()));
        symlink("two", top.path().join("next")).unwrap();
        fs::rename(top.path().join("next"), top.path().join("current")).unwrap();
        root.refresh();
        assert_eq!(content(&root, "file"), Ok("two".into()));
        fs::remove_file(top.path().join("current")).unwrap();
        root.refresh();
        assert_eq!(content(&root, "file"), Ok("two".into()));
    }

    #[test]
    fn the_error_for_a_bad_root_names_it() {
        let top = tempfile::tempdir().unwrap();
        let missing = Root::open(&top.path().join("missing"), SymlinkPolicy::Never).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(missing.to_string().contains("missing"), "{missing}");
        fs::write(top.path().join("file"), "").unwrap();
        let file = Root::open(&top.path().join("file"), SymlinkPolicy::Never).unwrap_err();
        assert_eq!(file.kind(), io::ErrorKind::NotADirectory);
    }

    /// Root is subject to permissions too once it drops the capabilities to override them; capabilities are
    /// per thread.
    #[cfg(target_os = "linux")]
    #[test]
    fn permissions_answer_403_and_closed_directories_can_be_passed() {
        use std::os::unix::fs::PermissionsExt;

        let top = tree();
        let at = |name: &str| top.path().join("root").join(name);
        let mode = |name: &str, mode| fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        mode("file", 0o000);
        mode("sub", 0o311);
        fs::create_dir(at("shut")).unwrap();
        mode("shut", 0o000);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop_overrides();
                for root in both(&top, SymlinkPolicy::WithinRoot) {
                    assert_eq!(content(&root, "file").map_err(status_of), Err(StatusCode::FORBIDDEN));
                    assert_eq!(content(&root, "shut/x").map_err(status_of), Err(StatusCode::FORBIDDEN));
                    assert_eq!(content(&root, "shut"), Ok("closed".into()));
                    assert_eq!(content(&root, "sub"), Ok("closed".into()));
                    assert_eq!(content(&root, "sub/inner"), Ok("inner".into()));
                }
            });
        });
        mode("sub", 0o755);
        mode("shut", 0o755);
    }

    #[cfg(target_os = "linux")]
    fn drop_overrides() {
        use rustix::thread::CapabilitySet;

        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective &= !(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        rustix::thread::set_capabilities(None, sets).unwrap();
    }
}
