//! Other systems have no timerfd: this type is never constructed there.

use std::{convert::Infallible, io, time::Duration};

#[derive(Debug)]
pub(super) struct TimerFd(Infallible);

impl TimerFd {
    pub(super) fn new() -> io::Result<Self> {
        unsupported("timers behind a file descriptor")
    }

    pub(super) fn set(&self, _: Option<Duration>) -> io::Result<()> {
        match self.0 {}
    }

    #[cfg(unix)]
    pub(super) fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self.0 {}
    }
}

pub(super) fn set_timer_slack_ns(_: u64) -> io::Result<()> {
    unsupported("timer slack")
}

fn unsupported<T>(what: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("{what}: known to Serpent on Linux only")))
}
