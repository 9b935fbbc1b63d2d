//! Timers and timer slack on Linux, by timerfd and prctl.

use std::{
    io,
    num::NonZeroU64,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

#[derive(Debug)]
pub(super) struct TimerFd(OwnedFd);

impl From<OwnedFd> for TimerFd {
    fn from(timer: OwnedFd) -> Self {
        Self(timer)
    }
}

impl TimerFd {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?))
    }

    /// Arms the timer; `None` disarms it.
    pub(super) fn set(&self, after: Option<Duration>) -> io::Result<()> {
        const ZERO: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = after.map_or(ZERO, |after| Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: after.subsec_nanos().into(),
        });
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: ZERO, it_value: value })?;
        Ok(())
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(super) fn set_timer_slack_ns(slack_ns: u64) -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(slack_ns))?)
}
