//! A program that is run, and the end of it.

use std::{ffi::CString, io, os::fd::OwnedFd, time::Duration};

use kernel::process::{Ended, Launch, Limits, Process, ProcessEvents};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::{net::unix::pipe, time::timeout};

use crate::{
    config::Priority,
    priority::{group, scheduling},
};

/// Time between SIGTERM and SIGKILL for programs of a request.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// A program to run.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) path: CString,
    /// The arguments, of which the first is the program's name.
    pub(crate) arguments: Vec<CString>,
    pub(crate) environment: Vec<CString>,
    pub(crate) directory: Option<CString>,
    pub(crate) limits: Limits,
    /// Whether the program gets a pipe as standard input.
    pub(crate) input: bool,
}

/// A running program and this process's nonblocking ends of its pipes.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) process: Process,
    pub(crate) input: Option<OwnedFd>,
    pub(crate) output: OwnedFd,
    pub(crate) errors: OwnedFd,
}

impl Program {
    /// Starts the program. Call it on a thread of [`crate::spawner::on_spawner`].
    pub(crate) fn start(self, class: &str, priority: Priority) -> io::Result<Started> {
        let (priority, weight) = scheduling(priority);
        let group = weight.map(|weight| group(class, weight)).transpose()?;
        let (input, input_end) = if self.input {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            (theirs, Some(ours))
        } else {
            let null = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            (rustix::fs::open("/dev/null", null, rustix::fs::Mode::empty())?, None)
        };
        let (output_end, output) = pipe_with(PipeFlags::CLOEXEC)?;
        let (errors_end, errors) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only our ends become nonblocking: the two ends of a pipe have separate flags, and programs expect
        // theirs to block.
        for ours in input_end.iter().chain([&output_end, &errors_end]) {
            rustix::io::ioctl_fionbio(ours, true)?;
        }
        let launch = Launch {
            program: self.path,
            arguments: self.arguments,
            environment: self.environment,
            directory: self.directory,
            streams: [input, output, errors],
            priority,
            group,
            limits: self.limits,
        };
        let process = launch.start()?;
        Ok(Started { process, input: input_end, output: output_end, errors: errors_end })
    }
}

/// A running program whose end can be awaited. Dropping it kills the program.
#[derive(Debug)]
pub(crate) struct Running(ProcessEvents);

impl Running {
    /// Wraps a process. Must be called within a runtime.
    pub(crate) fn new(process: Process) -> io::Result<Self> {
        ProcessEvents::new(process).map(Self)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.process().id()
    }

    /// Waits for the end. The future may be dropped and made again.
    pub(crate) async fn ended(&mut self) -> Ended {
        match self.0.ended().await {
            Ok(ended) => ended,
            // The runtime is shutting down; dropping this kills the program.
            Err(_) => std::future::pending().await,
        }
    }

    /// Asks the program to end and, after a grace time, kills its process group.
    pub(crate) async fn stop(&mut self, grace: Duration) -> Ended {
        let _ = self.0.process().terminate();
        if let Ok(ended) = timeout(grace, self.ended()).await {
            return ended;
        }
        let _ = self.0.process().kill();
        self.ended().await
    }
}

/// This process's end of a pipe that a program writes to.
pub(crate) fn receiver(end: OwnedFd) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(end)
}

/// `PATH` for programs: the server's own, or a shell's default.
pub(crate) fn path_variable() -> std::ffi::OsString {
    std::env::var_os("PATH").filter(|path| !path.is_empty()).unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}
