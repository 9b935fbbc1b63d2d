//! Starts, limits, signals and waits for programs with a processor priority of their own.
//!
//! A program has its priority, its limits and its control group *before* its first instruction, because they
//! are set between the creation of the process and `execve`. It leads its own session, so that a signal
//! reaches everything it started. The kernel kills it when the thread that started it ends, so the caller
//! must keep that thread. If the server itself is killed, the kernel kills the programs but not their
//! children. Only a supervisor of all of them can kill those too (systemd: `KillMode=control-group`).
//!
//! Nothing is copied: the new process borrows the server's memory until it has become the program (`CLONE_VM
//! | CLONE_VFORK`, as `posix_spawn` does). So a start costs the same however much memory the server uses. The
//! standard library falls back to `fork` if anything has to be set in between. `fork` copies page tables and
//! makes every later write of the server fault.
//!
//! # Real-time classes and the rest of the machine
//!
//! A program in a real-time class runs before all ordinary work, so four limits keep it from locking up the
//! machine:
//!
//! - The kernel itself leaves 5 % of every processor to ordinary work (`kernel.sched_rt_runtime_us`, since
//!   Linux 6.12 the fair server), unless it is configured otherwise: see [`real_time_is_throttled`].
//! - [`Limits::real_time`] (`RLIMIT_RTTIME`): a process that computes for longer without waiting once gets
//!   SIGXCPU, and a second later SIGKILL.
//! - [`Limits::cpu`] (`RLIMIT_CPU`) holds in every class, also for processes that left the session of their
//!   program.
//! - A program cannot raise its priority: it starts without `CAP_SYS_NICE`, and with the limits on priorities
//!   at zero. Root without `CAP_SETPCAP` cannot drop the capability for good; there `no_new_privs` has the
//!   same effect. Children inherit the priority (no `SCHED_RESET_ON_FORK`), because they do the work of a
//!   shell script.

use std::{ffi::CString, fmt, fs::OpenOptions, io, os::fd::OwnedFd, path::PathBuf, sync::Arc};

mod events;
mod group;
mod launch;
#[cfg(target_os = "linux")]
#[path = "process/linux.rs"]
mod sys;
#[cfg(not(target_os = "linux"))]
#[path = "process/elsewhere.rs"]
mod sys;

pub use self::{
    events::ProcessEvents,
    group::Group,
    launch::{Ended, Launch, LaunchError, Limits, Priority, Step},
};

impl From<LaunchError> for io::Error {
    fn from(failed: LaunchError) -> Self {
        Self::new(failed.error.kind(), failed.to_string())
    }
}

impl Launch {
    /// Starts the program. Blocks until it runs or has failed: normally a fraction of a millisecond, longer
    /// when its file has to be read from a disk. The calling thread must live for as long as the program may.
    pub fn start(&self) -> Result<Process, LaunchError> {
        sys::start(self).map(Process)
    }
}

/// A program that was started. Its descriptor becomes readable when the program has ended. Dropping this
/// kills the program with the process group of its session.
#[derive(Debug)]
pub struct Process(sys::Process);

impl Process {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Asks the program and its process group to end (SIGTERM). It is no error if they have already ended.
    pub fn terminate(&self) -> io::Result<()> {
        self.0.signal_group(libc::SIGTERM)
    }

    /// Kills the program and its process group (SIGKILL). It is no error if they have already ended.
    pub fn kill(&self) -> io::Result<()> {
        self.0.signal_group(libc::SIGKILL)
    }

    /// Tells whether it has ended, and how. The rest of its process group is killed before the group's id is
    /// released.
    pub fn try_wait(&mut self) -> io::Result<Option<Ended>> {
        self.0.try_wait()
    }
}

impl std::os::fd::AsFd for Process {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::os::fd::AsRawFd for Process {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// A priority that the server may not set.
#[derive(Debug)]
pub struct NotAllowed {
    /// The priority.
    pub priority: Priority,
    /// The error of the system.
    pub error: io::Error,
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, limit) = match self.priority {
            Priority::Inherited => return write!(f, "a thread cannot be started: {}", self.error),
            Priority::Nice(nice) => {
                (format!("nice {nice}"), format!("a limit on nice values that allows it (systemd: LimitNICE={nice})"))
            }
            Priority::RoundRobin(priority) => (
                format!("SCHED_RR {priority}"),
                format!("a limit on real-time priorities that allows it (systemd: LimitRTPRIO={priority})"),
            ),
            Priority::Fifo(priority) => (
                format!("SCHED_FIFO {priority}"),
                format!("a limit on real-time priorities that allows it (systemd: LimitRTPRIO={priority})"),
            ),
        };
        write!(f, "this process may not set {name}: {}. ", self.error)?;
        match self.error.kind() {
            io::ErrorKind::PermissionDenied => {
                write!(f, "It needs CAP_SYS_NICE (systemd: AmbientCapabilities=CAP_SYS_NICE), or {limit}")?;
                if self.priority.real_time().is_some() {
                    write!(
                        f,
                        "; in a control group (version 1) with cpu.rt_runtime_us 0 no real-time class is allowed, whatever is granted"
                    )?;
                }
                Ok(())
            }
            _ => write!(f, "The system cannot do it"),
        }
    }
}

impl std::error::Error for NotAllowed {}

/// Checks whether this process may set a priority. The check tries it on a new thread, because capabilities,
/// limits, control groups and security modules all decide.
pub fn check(priority: Priority) -> Result<(), NotAllowed> {
    let failed = |error| NotAllowed { priority, error };
    // The trial changes only a new thread.
    let trial = std::thread::Builder::new().name("priority-trial".to_owned()).spawn(move || sys::set_own(priority));
    trial.map_err(failed)?.join().unwrap_or_else(|_| Err(io::Error::other("the trial failed"))).map_err(failed)
}

impl Group {
    /// Checks whether programs can be put in the group. It starts a program that does not exist, which gets
    /// as far as joining the group. Blocks for a moment.
    ///
    /// # Errors
    /// The error of the system.
    pub fn try_out(self: &Arc<Self>) -> io::Result<()> {
        let null = || OpenOptions::new().read(true).write(true).open("/dev/null").map(OwnedFd::from);
        let launch = Launch {
            program: c"".to_owned(),
            arguments: vec![c"".to_owned()],
            environment: Vec::new(),
            directory: None,
            streams: [null()?, null()?, null()?],
            priority: Priority::Inherited,
            group: Some(self.clone()),
            limits: Limits::default(),
        };
        match launch.start() {
            Ok(_) => Ok(()),
            Err(failed) if failed.step == Step::Program => Ok(()),
            Err(failed) => Err(io::Error::new(failed.error.kind(), format!("{}: {failed}", self.folder().display()))),
        }
    }
}

/// Raises all threads of this process, and those they start later, just above a real-time priority. So
/// programs of that priority cannot keep the server from the processor. Returns the new priority: `above +
/// 1`, but at most 99, which is not above 99. From then on, programs with [`Priority::Inherited`] or
/// [`Priority::Nice`] start with ordinary scheduling.
///
/// # Errors
/// The error that [`check`] finds for that priority. Threads that were already raised are lowered again.
pub fn raise_own_threads(above: u8) -> io::Result<u8> {
    let priority = above.saturating_add(1).clamp(1, 99);
    sys::raise_own_threads(priority)?;
    Ok(priority)
}

/// Undoes [`raise_own_threads`]: all threads of this process have ordinary scheduling again. It does nothing
/// if they were not raised.
///
/// # Errors
/// The error of the system. Some threads may then still be raised.
pub fn lower_own_threads() -> io::Result<()> {
    sys::lower_own_threads()
}

/// Whether the kernel leaves a part of the processors to ordinary work when real-time classes want all of it.
/// `None` if the kernel does not tell.
pub fn real_time_is_throttled() -> Option<bool> {
    let runtime = std::fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").ok()?;
    Some(runtime.trim() != "-1")
}

/// Makes a path or argument for a [`Launch`]. It is an error if the text holds a NUL.
pub fn c_string(bytes: impl Into<Vec<u8>>) -> io::Result<CString> {
    CString::new(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL within a path, argument or variable"))
}

/// Makes a path for a [`Launch`].
pub fn c_path(path: impl Into<PathBuf>) -> io::Result<CString> {
    c_string(path.into().into_os_string().into_encoded_bytes())
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
