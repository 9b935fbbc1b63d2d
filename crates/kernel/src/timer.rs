//! Timers finer than a runtime's, whose resolution is a millisecond: a two-segment chunk at 100 Mbit/s takes
//! 0.24 ms.

use std::{io, time::Duration};

#[cfg(target_os = "linux")]
#[path = "timer/linux.rs"]
mod sys;
#[cfg(not(target_os = "linux"))]
#[path = "timer/elsewhere.rs"]
mod sys;

/// A one-shot timer on the monotonic clock behind a file descriptor (see `timerfd_create(2)`), non-blocking,
/// closed on exec. It becomes readable when it expires; `AsFd` and `AsRawFd` let a runtime wait for that.
#[derive(Debug)]
pub struct TimerFd(sys::TimerFd);

impl TimerFd {
    /// A timer that is not armed.
    pub fn new() -> io::Result<Self> {
        sys::TimerFd::new().map(Self)
    }

    /// Arms the timer to expire once, after this time, and cancels any earlier setting. Zero expires at once.
    /// An unread expiry is forgotten.
    pub fn set_after(&self, after: Duration) -> io::Result<()> {
        // To the kernel a time of zero means "disarm".
        self.0.set(Some(after.max(Duration::from_nanos(1))))
    }

    /// Disarms the timer and forgets an unread expiry.
    pub fn disarm(&self) -> io::Result<()> {
        self.0.set(None)
    }
}

/// A timer that was made elsewhere (`timerfd_create(2)`), non-blocking. Any other descriptor can neither be set nor expire.
#[cfg(target_os = "linux")]
impl From<std::os::fd::OwnedFd> for TimerFd {
    fn from(timer: std::os::fd::OwnedFd) -> Self {
        Self(timer.into())
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for TimerFd {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(unix)]
impl std::os::fd::AsRawFd for TimerFd {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(self))
    }
}

/// Sets how late the kernel may wake the calling thread in order to save power (`PR_SET_TIMERSLACK`, see
/// prctl(2)). The default is 50 us, 1 ns is the most exact, 0 restores the thread's first value. Threads
/// started later inherit it.
pub fn set_timer_slack_ns(slack_ns: u64) -> io::Result<()> {
    sys::set_timer_slack_ns(slack_ns)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Waits for the timer to become readable; false when it does not within `limit`.
    fn expires_within(timer: &TimerFd, limit: Timespec) -> bool {
        poll(&mut [PollFd::new(timer, PollFlags::IN)], Some(&limit)).expect("poll") == 1
    }

    const LONG: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    #[test]
    fn expires_not_early_and_once() {
        let timer = TimerFd::new().expect("timerfd");
        let start = std::time::Instant::now();
        timer.set_after(Duration::from_millis(3)).expect("armed");
        assert!(expires_within(&timer, LONG));
        assert!(start.elapsed() >= Duration::from_millis(3));
        timer.set_after(Duration::from_secs(3600)).expect("armed anew");
        assert!(!expires_within(&timer, NOW), "the expiry was before that");
    }

    #[test]
    fn zero_expires_at_once() {
        let timer = TimerFd::new().expect("timerfd");
        timer.set_after(Duration::ZERO).expect("armed");
        assert!(expires_within(&timer, LONG));
    }

    #[test]
    fn a_disarmed_timer_and_one_never_armed_do_not_expire() {
        let timer = TimerFd::new().expect("timerfd");
        assert!(!expires_within(&timer, NOW), "never armed");
        timer.set_after(Duration::ZERO).expect("armed");
        assert!(expires_within(&timer, LONG));
        timer.disarm().expect("disarmed");
        assert!(!expires_within(&timer, NOW), "the unread expiry is forgotten");
    }

    #[test]
    fn arming_anew_replaces_the_earlier_time() {
        let timer = TimerFd::new().expect("timerfd");
        timer.set_after(Duration::from_secs(3600)).expect("armed");
        timer.set_after(Duration::from_micros(1)).expect("armed anew");
        assert!(expires_within(&timer, LONG));
    }

    #[test]
    fn times_beyond_the_clock_are_no_error() {
        TimerFd::new().expect("timerfd").set_after(Duration::MAX).expect("armed, for ever");
    }

    #[test]
    fn slack_is_set_for_this_thread_only() {
        let before = rustix::thread::current_timer_slack().expect("slack");
        std::thread::spawn(|| {
            set_timer_slack_ns(1).expect("needs no privilege");
            assert_eq!(rustix::thread::current_timer_slack().expect("slack"), 1);
        })
        .join()
        .expect("thread");
        assert_eq!(rustix::thread::current_timer_slack().expect("slack"), before);
    }
}
