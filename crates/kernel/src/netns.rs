//! Named network namespaces, as `ip netns` makes them: enter one for a while, and list its processes.

use std::{
    fs::File,
    io,
    marker::PhantomData,
    os::{
        fd::AsFd,
        unix::{fs::MetadataExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::Command,
};

use rustix::{
    process::{Signal, set_parent_process_death_signal},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// Where `ip netns` keeps the names.
const NAMES: &str = "/run/netns";

/// A network namespace, held open.
#[derive(Debug)]
pub struct NetNs {
    file: File,
    inode: u64,
}

impl NetNs {
    /// Opens the namespace that `ip netns add NAME` made.
    pub fn open(name: &str) -> io::Result<Self> {
        Self::open_path(&Path::new(NAMES).join(name))
    }

    /// The namespace of the calling thread.
    pub fn current() -> io::Result<Self> {
        Self::open_path(Path::new("/proc/thread-self/ns/net"))
    }

    fn open_path(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let inode = file.metadata()?.ino();
        Ok(Self { file, inode })
    }

    /// Moves the calling thread into this namespace until the guard is dropped. Sockets opened, processes
    /// spawned and `/proc/thread-self/net` read meanwhile belong to it. Needs `CAP_SYS_ADMIN`.
    pub fn enter(&self) -> io::Result<Entered> {
        let home = Self::current()?;
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(Entered { home, _of_this_thread: PhantomData })
    }

    /// Ids of the processes whose first thread is in this namespace.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        for entry in std::fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A process may end during the listing; then it is left out.
            if std::fs::metadata(namespace_of(pid)).is_ok_and(|ns| ns.ino() == self.inode) {
                pids.push(pid);
            }
        }
        Ok(pids)
    }
}

/// Runs a closure in a network namespace made for it, on a thread of its own. It has only a loopback device, so that what
/// the kernel accepts can be tried without side effects. `None` means that no namespace can be made here.
pub fn in_temporary<T: Send>(run: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let trial = scope.spawn(|| {
            // SAFETY: a new network namespace for this thread alone touches no memory, no file and no
            // descriptor that Rust knows of; the thread ends right after.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.ok()?;
            Some(run())
        });
        trial.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The calling thread is in a namespace; dropping this returns it to its own.
#[derive(Debug)]
pub struct Entered {
    home: NetNs,
    /// A namespace is a property of the thread that entered it.
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Err(error) = move_into_link_name_space(self.home.file.as_fd(), Some(LinkNameSpaceType::Network)) {
            // Continuing would use the host's network instead of the namespace's. Entering took the same
            // privilege, so a failure means that the program gave up the privilege in between.
            panic!("cannot leave a network namespace: {error}");
        }
    }
}

/// Makes the kernel kill the process with `SIGKILL` when the *thread* that spawns it ends for any reason.
pub fn kill_with_spawning_thread(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only async-signal-safe calls are allowed: this is one prctl(2), without
    // allocation.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) }
}

fn namespace_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/ns/net"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_in_its_own_namespace() {
        let here = NetNs::current().unwrap();
        assert!(here.processes().unwrap().contains(&std::process::id()));
    }

    #[test]
    fn a_name_that_nobody_made_is_not_found() {
        assert_eq!(NetNs::open("no-such-namespace").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn entering_and_leaving_needs_privilege_or_works() {
        let here = NetNs::current().unwrap();
        match here.enter() {
            Ok(entered) => {
                drop(entered);
                assert_eq!(NetNs::current().unwrap().inode, here.inode);
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }

    #[test]
    fn a_command_still_runs_when_bound_to_its_thread() {
        let status = kill_with_spawning_thread(&mut Command::new("true")).status().unwrap();
        assert!(status.success());
    }
}
