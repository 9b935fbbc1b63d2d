//! Placeholders for systems on which no programs are started.

use std::{convert::Infallible, io};

use super::launch::{Ended, Launch, LaunchError, Priority, Step};

#[derive(Debug)]
pub(super) struct Process(Infallible);

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "only Linux has it")
}

pub(super) fn start(_: &Launch) -> Result<Process, LaunchError> {
    Err(LaunchError { step: Step::Process, error: unsupported() })
}

pub(super) fn set_own(priority: Priority) -> io::Result<()> {
    if priority == Priority::Inherited { Ok(()) } else { Err(unsupported()) }
}

pub(super) fn raise_own_threads(_: u8) -> io::Result<()> {
    Err(unsupported())
}

pub(super) fn lower_own_threads() -> io::Result<()> {
    Ok(())
}

impl Process {
    pub fn id(&self) -> u32 {
        match self.0 {}
    }

    pub fn signal_group(&self, _: i32) -> io::Result<()> {
        match self.0 {}
    }

    pub fn try_wait(&mut self) -> io::Result<Option<Ended>> {
        match self.0 {}
    }

    pub fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self.0 {}
    }
}
