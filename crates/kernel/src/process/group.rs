//! Control groups with a weight on the processor, one for each class that asks for one.
//!
//! They are children of the server's own group: of version 2 where it has the `cpu` controller, else of version 1.
//! In version 2 a group either holds processes or shares out a controller. Where the own group holds the
//! server, the server moves to a child of it first. When the first group is made, groups of gateways that have
//! ended are removed.
//!
//! *Invariant*: a group of a live gateway is locked (`flock` on its `cgroup.procs`), and only a group whose lock
//! is free is removed. The kernel frees the lock when the gateway ends, however it ends. A lock means the same in
//! all namespaces. Process ids do not: gateways in two namespaces of process ids may share a parent group, and
//! neither sees the other in `/proc`.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use rustix::fs::{FlockOperation, flock};

/// Number of names that are tried for a group. A name that is taken belongs to a group of another gateway.
const MOST_NAMES: usize = 1000;

/// A control group of the server. Dropping it kills the processes in it and removes it.
#[derive(Debug)]
pub struct Group {
    version: Version,
    locked: LockedFolder,
}

/// The folder of a group, which is locked.
#[derive(Debug)]
struct LockedFolder {
    folder: PathBuf,
    /// `cgroup.procs`. A process that writes 0 to it is in the group. The lock is held for as long as this is open.
    entrance: File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The parent of the server's control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Home {
    version: Version,
    folder: PathBuf,
}

impl Group {
    /// Makes a group. Weights are from 1 to 10000, and 100 is the default. A group gets processor time in
    /// proportion to its weight, among the groups beside it that want the processor. `name` helps people who
    /// look at the system.
    ///
    /// # Errors
    /// The error of the system, with advice for the operator.
    pub fn make(name: &str, weight: u16) -> io::Result<Self> {
        let home = home()?;
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
        let name: String = name.chars().take(64).map(plain).collect();
        let group = Self { version: home.version, locked: LockedFolder::make(&home.folder, &name)? };
        group.set_weight(weight)?;
        Ok(group)
    }

    /// Changes the weight.
    pub fn set_weight(&self, weight: u16) -> io::Result<()> {
        let weight = u32::from(weight.clamp(1, 10_000));
        let (file, value) = match self.version {
            Version::Two => ("cpu.weight", weight),
            // The default here is 1024, and the least is 2.
            Version::One => ("cpu.shares", (weight * 1024 / 100).max(2)),
        };
        let file = self.folder().join(file);
        fs::write(&file, value.to_string()).map_err(|error| explain(&file, &error))
    }

    /// Removes the group if it is empty. Otherwise the group stays as it is.
    ///
    /// # Errors
    /// If the group still holds a process.
    pub fn remove_if_empty(&self) -> io::Result<()> {
        fs::remove_dir(self.folder())
    }

    /// The folder of the group.
    pub fn folder(&self) -> &Path {
        &self.locked.folder
    }

    pub(super) fn entrance(&self) -> BorrowedFd<'_> {
        self.locked.entrance.as_fd()
    }
}

impl LockedFolder {
    /// Makes a folder in a group, with a name that no other has.
    fn make(home: &Path, name: &str) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        for _ in 0..MOST_NAMES {
            let number = NUMBER.fetch_add(1, Relaxed);
            let folder = home.join(format!("serpent-{}-{number}-{name}", std::process::id()));
            match fs::create_dir(&folder) {
                Ok(()) => {}
                // A gateway in another namespace has the same process id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(explain(&folder, &error)),
            }
            let locked = lock_new(&folder).map_err(|error| {
                let _ = fs::remove_dir(&folder);
                explain(&folder, &error)
            })?;
            if let Some(entrance) = locked {
                return Ok(Self { folder, entrance });
            }
        }
        let said = format!("{}: the groups of other gateways have all names that were tried", home.display());
        Err(io::Error::new(io::ErrorKind::AlreadyExists, said))
    }
}

/// The entrance of a new folder, locked; `None`: a gateway that sweeps has taken the folder away before it was locked.
fn lock_new(folder: &Path) -> io::Result<Option<File>> {
    let path = folder.join("cgroup.procs");
    let entrance = match OpenOptions::new().write(true).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    // A gateway that sweeps holds the lock for a moment.
    rustix::io::retry_on_intr(|| flock(&entrance, FlockOperation::LockExclusive))?;
    let locked = entrance.metadata()?.ino();
    Ok(fs::metadata(&path).is_ok_and(|now| now.ino() == locked).then_some(entrance))
}

impl Drop for Group {
    fn drop(&mut self) {
        remove(self.folder());
    }
}

/// Kills the processes in a group and removes it. If a process takes time to die, the folder stays, and the
/// next start of the server removes it.
fn remove(folder: &Path) {
    // `cgroup.kill` exists in version 2 since Linux 5.14. Elsewhere programs die with their own process
    // groups.
    let _ = fs::write(folder.join("cgroup.kill"), "1");
    let _ = fs::remove_dir(folder);
}

/// The parent of the server's control groups. It is found and prepared on the first call.
fn home() -> io::Result<Home> {
    // With the place that we moved to, whose lock is held to our end.
    static HOME: Mutex<Option<(Home, Option<LockedFolder>)>> = Mutex::new(None);
    let mut known = HOME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((home, _)) = &*known {
        return Ok(home.clone());
    }
    let home =
        find(&fs::read_to_string("/proc/self/mountinfo")?, &fs::read_to_string("/proc/self/cgroup")?, |folder| {
            fs::read_to_string(folder.join("cgroup.controllers")).is_ok_and(|controllers| has(&controllers, "cpu"))
        });
    let home = home.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::Unsupported,
            "no control group with the cpu controller is ours (systemd: Delegate=cpu; else use nice values)",
        )
    })?;
    sweep(&home.folder);
    let moved_to = match home.version {
        Version::One => None,
        Version::Two => share_out(&home.folder)?,
    };
    Ok(known.insert((home, moved_to)).0.clone())
}

/// Finds the server's group that has the `cpu` controller.
fn find(mounts: &str, groups: &str, version_two_has_cpu: impl Fn(&Path) -> bool) -> Option<Home> {
    let group_of = |wanted: &dyn Fn(&str, &str) -> bool| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            wanted(number, controllers).then_some(path)
        })
    };
    let folder_of = |wanted: &dyn Fn(&str, &str) -> bool, path: &str| {
        mounts.lines().find_map(|line| {
            // 30 23 0:26 /root /mount/point options... - type source options
            let (place, kind) = line.split_once(" - ")?;
            let mut place = place.split(' ').skip(3);
            let (root, point) = (place.next()?, place.next()?);
            let mut kind = kind.split(' ');
            let (kind, options) = (kind.next()?, kind.nth(1)?);
            let below = Path::new(path).strip_prefix(root).ok()?;
            wanted(kind, options).then(|| Path::new(point).join(below))
        })
    };
    let two = group_of(&|number, controllers| number == "0" && controllers.is_empty())
        .and_then(|path| folder_of(&|kind, _| kind == "cgroup2", path))
        .filter(|folder| version_two_has_cpu(folder));
    if let Some(folder) = two {
        return Some(Home { version: Version::Two, folder });
    }
    let has_cpu = |list: &str| list.split(',').any(|one| one == "cpu");
    let path = group_of(&|_, controllers| has_cpu(controllers))?;
    let folder = folder_of(&|kind, options| kind == "cgroup" && has_cpu(options), path)?;
    Some(Home { version: Version::One, folder })
}

fn has(words: &str, word: &str) -> bool {
    words.split_ascii_whitespace().any(|one| one == word)
}

/// Sees to it that children of the group have the `cpu` controller. Where we had to move for that: to where.
fn share_out(folder: &Path) -> io::Result<Option<LockedFolder>> {
    let control = folder.join("cgroup.subtree_control");
    if fs::read_to_string(&control).is_ok_and(|controllers| has(&controllers, "cpu")) {
        return Ok(None);
    }
    let first = match fs::write(&control, "+cpu") {
        Ok(()) => return Ok(None),
        Err(error) => error,
    };
    if first.kind() != io::ErrorKind::ResourceBusy {
        return Err(explain(&control, &first));
    }
    // The group holds processes, and the server is one of them.
    let us = std::process::id();
    let room = LockedFolder::make(folder, "gateway")?;
    let moved = fs::write(room.folder.join("cgroup.procs"), us.to_string());
    if let Err(error) = moved.and_then(|()| fs::write(&control, "+cpu")) {
        let _ = fs::write(folder.join("cgroup.procs"), us.to_string());
        let _ = fs::remove_dir(&room.folder);
        return Err(match error.kind() {
            io::ErrorKind::ResourceBusy => io::Error::new(
                error.kind(),
                format!("{}: other processes are in our control group: start us in one of our own", control.display()),
            ),
            _ => explain(&control, &error),
        });
    }
    Ok(Some(room))
}

/// Removes groups left over from gateways that have ended.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix("serpent-"));
        let is_group = rest.and_then(|rest| rest.split('-').next()).is_some_and(|pid| pid.parse::<u32>().is_ok());
        if !is_group {
            continue;
        }
        let Ok(entrance) = File::open(entry.path().join("cgroup.procs")) else { continue };
        if flock(&entrance, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove(&entry.path());
        }
    }
}

fn explain(path: &Path, error: &io::Error) -> io::Error {
    let help = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            " (our control group must be ours to divide; systemd: Delegate=cpu)"
        }
        _ => "",
    };
    io::Error::new(error.kind(), format!("{}: {error}{help}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
24 1 0:22 / /proc rw - proc proc rw
30 24 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
31 24 0:27 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
32 24 0:28 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw
";

    #[test]
    fn our_group_is_found_in_either_version() {
        let groups = "9:cpuset:/other\n3:cpu,cpuacct:/a/b\n0::/c\n";
        assert_eq!(
            find(HYBRID, groups, |folder| folder == Path::new("/sys/fs/cgroup/unified/c")),
            Some(Home { version: Version::Two, folder: "/sys/fs/cgroup/unified/c".into() })
        );
        assert_eq!(
            find(HYBRID, groups, |_| false),
            Some(Home { version: Version::One, folder: "/sys/fs/cgroup/cpu/a/b".into() })
        );
        assert_eq!(find(HYBRID, "9:cpuset:/other\n", |_| true), None);
    }

    #[test]
    fn a_mount_that_shows_a_part_of_the_tree_is_taken_for_what_it_is() {
        let mounts = "30 23 0:26 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let found = |groups| find(mounts, groups, |_| true).map(|home| home.folder);
        assert_eq!(found("0::/docker/x/y\n"), Some("/sys/fs/cgroup/y".into()));
        assert_eq!(found("0::/docker/other\n"), None, "what the mount does not show cannot be reached");
    }
}
