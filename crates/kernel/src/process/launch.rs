//! A program to be started, the reasons why it was not, and how it ended.

use std::{ffi::CString, fmt, io, os::fd::OwnedFd, sync::Arc, time::Duration};

use super::group::Group;

/// The processor priority of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// The priority that the server had when it started; see [`raise_own_threads`](super::raise_own_threads).
    #[default]
    Inherited,
    /// Ordinary scheduling with a nice value from -20 (first) to 19.
    Nice(i8),
    /// Before all ordinary processes, in turns with equals (`SCHED_RR`), from 1 to 99 (first).
    RoundRobin(u8),
    /// Before all ordinary processes, until it waits for something (`SCHED_FIFO`), from 1 to 99 (first).
    Fifo(u8),
}

impl Priority {
    /// The real-time priority, if this is one.
    pub fn real_time(self) -> Option<u8> {
        match self {
            Self::RoundRobin(priority) | Self::Fifo(priority) => Some(priority),
            Self::Inherited | Self::Nice(_) => None,
        }
    }
}

/// Limits of a program. `None` keeps the server's own limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Processor time in a real-time class without waiting once (`RLIMIT_RTTIME`).
    pub real_time: Option<Duration>,
    /// Processor time of each process, in whole seconds (`RLIMIT_CPU`).
    pub cpu: Option<Duration>,
}

/// A program about to be started.
#[derive(Debug)]
pub struct Launch {
    /// The path of the program.
    pub program: CString,
    /// Its arguments. The first is its own name.
    pub arguments: Vec<CString>,
    /// Its whole environment, each variable as `NAME=value`.
    pub environment: Vec<CString>,
    /// Its working directory; `None` is the server's.
    pub directory: Option<CString>,
    /// Its standard input, output and error. It gets no other descriptor of the server.
    pub streams: [OwnedFd; 3],
    /// Its priority.
    pub priority: Priority,
    /// Its control group; `None` is the server's.
    pub group: Option<Arc<Group>>,
    /// Its limits.
    pub limits: Limits,
}

/// The reason why a program was not started.
#[derive(Debug)]
pub struct LaunchError {
    /// The step that failed.
    pub step: Step,
    /// The error of the system.
    pub error: io::Error,
}

/// A step in the start of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Creating a process.
    Process,
    /// Setting its streams.
    Streams,
    /// Setting its directory.
    Directory,
    /// Joining its control group.
    Group,
    /// Setting its priority.
    Priority,
    /// Setting its limits.
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

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Exit(i32),
    /// It was killed by this signal.
    Signal(i32),
    /// Its end is unknown: the kernel did not keep the status, because SIGCHLD is ignored.
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
