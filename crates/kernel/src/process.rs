//! Programs with a processor priority of their own: started, limited, signalled, waited for.
//!
//! A program has its priority, its limits and its control group *before* its first instruction, because they are set between the
//! making of the process and `execve`. It leads a session of its own, so that a signal reaches all that it started, and the kernel
//! kills it when the thread that started it ends. Whoever starts programs keeps that thread. If we are killed ourselves, the kernel
//! kills the programs, but not what they have started: only who looks after all of us can (systemd: `KillMode=control-group`).
//!
//! Nothing is copied: the new process borrows our memory until it has become the program (`CLONE_VM | CLONE_VFORK`, as
//! `posix_spawn` does), so that a start costs the same whatever we hold. `fork`, which the standard library falls back to
//! as soon as anything is to be set in between, copies page tables and makes every later write of ours fault.
//!
//! # Real-time classes and the rest of the machine
//!
//! A program in a real-time class goes before everything ordinary, so four things keep it from locking up the machine:
//!
//! - The kernel itself leaves 5 % of every processor to ordinary work (`kernel.sched_rt_runtime_us`, since Linux 6.12 the fair
//!   server), unless it was told not to: see [`real_time_is_throttled`].
//! - [`Limits::real_time`] (`RLIMIT_RTTIME`): who computes for longer without once waiting gets SIGXCPU, a second later SIGKILL.
//! - [`Limits::cpu`] (`RLIMIT_CPU`) holds in every class, also for what left the session of its program.
//! - A program cannot rise: it is started without `CAP_SYS_NICE`, and with the limits on priorities at zero. (Where we are root and
//!   may not drop it for good, for want of `CAP_SETPCAP`, by `no_new_privs`.) Its children inherit
//!   what it has, since a shell script's work is done by them; hence no `SCHED_RESET_ON_FORK`.

use std::{ffi::CString, fmt, io, os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Duration};

mod events;
mod group;
#[cfg(target_os = "linux")]
#[path = "process/linux.rs"]
mod sys;
#[cfg(not(target_os = "linux"))]
#[path = "process/elsewhere.rs"]
mod sys;

pub use self::{events::ProcessEvents, group::Group};

/// Who goes first on the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// As we were when we began; see [`raise_own_threads`].
    #[default]
    Inherited,
    /// Ordinary scheduling with a nice value: -20 (first) to 19.
    Nice(i8),
    /// Before all ordinary ones, in turns with its like (`SCHED_RR`), from 1 to 99 (first).
    RoundRobin(u8),
    /// Before all ordinary ones, until it waits for something (`SCHED_FIFO`), from 1 to 99 (first).
    Fifo(u8),
}

impl Priority {
    /// The real-time priority, if it is one.
    pub fn real_time(self) -> Option<u8> {
        match self {
            Self::RoundRobin(priority) | Self::Fifo(priority) => Some(priority),
            Self::Inherited | Self::Nice(_) => None,
        }
    }
}

/// What a program may use. `None`: as much as we may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Time on the processor in a real-time class without once waiting for something (`RLIMIT_RTTIME`).
    pub real_time: Option<Duration>,
    /// Time on the processor of each process, in whole seconds (`RLIMIT_CPU`).
    pub cpu: Option<Duration>,
}

/// A program about to be started.
#[derive(Debug)]
pub struct Launch {
    /// The path of the program.
    pub program: CString,
    /// Its arguments, the first being its own name.
    pub arguments: Vec<CString>,
    /// All of its environment, each `NAME=value`.
    pub environment: Vec<CString>,
    /// Where it starts; `None`: where we are.
    pub directory: Option<CString>,
    /// Its standard input, output and error. It has no other descriptor of ours.
    pub streams: [OwnedFd; 3],
    /// Its priority.
    pub priority: Priority,
    /// Its control group; `None`: ours.
    pub group: Option<Arc<Group>>,
    /// What it may use.
    pub limits: Limits,
}

/// Why a program was not started.
#[derive(Debug)]
pub struct LaunchError {
    /// What was being done.
    pub step: Step,
    /// What the system says.
    pub error: io::Error,
}

/// What is done to start a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Making a process.
    Process,
    /// Its streams.
    Streams,
    /// Its directory.
    Directory,
    /// Its control group.
    Group,
    /// Its priority.
    Priority,
    /// Its limits.
    Limits,
    /// Becoming the program.
    Program,
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.step {
            Step::Process => "no process can be made",
            Step::Streams => "its streams cannot be set up",
            Step::Directory => "its directory cannot be entered",
            Step::Group => "it cannot be put in its control group",
            Step::Priority => "its priority cannot be set",
            Step::Limits => "its limits cannot be set",
            Step::Program => "it cannot be run",
        };
        write!(f, "{what}: {}", self.error)
    }
}

impl std::error::Error for LaunchError {}

impl From<LaunchError> for io::Error {
    fn from(failed: LaunchError) -> Self {
        Self::new(failed.error.kind(), failed.to_string())
    }
}

impl Launch {
    /// Starts the program. Blocks until it runs, or cannot: a fraction of a millisecond as a rule, longer when its file has to be
    /// read from a disk. The thread that calls this has to live for as long as the program may.
    pub fn start(&self) -> Result<Process, LaunchError> {
        sys::start(self).map(Process)
    }
}

/// A program that was started. It is readable as a descriptor as soon as the program has ended, and not before. Dropping it kills the
/// program with its session's process group.
#[derive(Debug)]
pub struct Process(sys::Process);

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this status.
    Exit(i32),
    /// By a signal.
    Signal(i32),
    /// Somehow: the kernel did not keep it for us (SIGCHLD is ignored).
    Unknown,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exit(status) => write!(f, "ended with status {status}"),
            Self::Signal(libc::SIGXCPU) => write!(f, "was ended for computing longer than its limit (SIGXCPU)"),
            Self::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Self::Unknown => write!(f, "ended"),
        }
    }
}

impl Process {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Asks the program and all in its process group to end (SIGTERM). That they have ended already is no error.
    pub fn terminate(&self) -> io::Result<()> {
        self.0.signal_group(libc::SIGTERM)
    }

    /// Kills the program and all in its process group (SIGKILL). That they have ended already is no error.
    pub fn kill(&self) -> io::Result<()> {
        self.0.signal_group(libc::SIGKILL)
    }

    /// Whether it has ended, and how. What it left running in its process group is killed before its id is given back.
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

/// A priority that we may not set.
#[derive(Debug)]
pub struct NotAllowed {
    /// The priority.
    pub priority: Priority,
    /// What the system says.
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

/// Whether this process may set a priority. It is tried, on a thread made for it, since capabilities, limits, control groups and
/// security modules all have a say.
pub fn check(priority: Priority) -> Result<(), NotAllowed> {
    let failed = |error| NotAllowed { priority, error };
    // A new thread, so that what is tried does not stick.
    let trial = std::thread::Builder::new().name("priority-trial".to_owned()).spawn(move || sys::set_own(priority));
    trial.map_err(failed)?.join().unwrap_or_else(|_| Err(io::Error::other("the trial failed"))).map_err(failed)
}

/// Puts all threads of this process, and those they start later, just above a real-time priority, so that programs of that priority
/// cannot keep us from the processor. Answers what they have now: `above + 1`, and 99 at most, which is not above 99. Programs with
/// [`Priority::Inherited`] or [`Priority::Nice`] are from now on started with ordinary scheduling.
///
/// # Errors
/// What [`check`] finds for that priority; those that had been raised by then are lowered again.
pub fn raise_own_threads(above: u8) -> io::Result<u8> {
    let priority = above.saturating_add(1).clamp(1, 99);
    sys::raise_own_threads(priority)?;
    Ok(priority)
}

/// Takes back what [`raise_own_threads`] did: all threads of this process have ordinary scheduling again. Nothing if they were not
/// raised.
///
/// # Errors
/// What the system says; then some may be raised still.
pub fn lower_own_threads() -> io::Result<()> {
    sys::lower_own_threads()
}

/// Whether the kernel leaves a part of the processors to ordinary work when real-time classes want all of it. `None`: it does not say.
pub fn real_time_is_throttled() -> Option<bool> {
    let runtime = std::fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").ok()?;
    Some(runtime.trim() != "-1")
}

/// A path or argument for a [`Launch`]; an error if there is a NUL in it.
pub fn c_string(bytes: impl Into<Vec<u8>>) -> io::Result<CString> {
    CString::new(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL within a path, argument or variable"))
}

/// A path for a [`Launch`].
pub fn c_path(path: impl Into<PathBuf>) -> io::Result<CString> {
    c_string(path.into().into_os_string().into_encoded_bytes())
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
