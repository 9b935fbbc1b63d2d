//! Counts the server's system calls by the kernel's own tracepoint, with `perf stat`. It never stops the
//! server, unlike strace, which stops it at every call. Counting costs about a tenth of a microsecond per
//! call.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use kernel::netns::{NetNs, kill_with_spawning_thread};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, FileType, Mode, OFlags, mknodat},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};
use tempfile::TempDir;

use super::processes::Processes;
use crate::{bed::TestBed, temporary};

/// A running count of system calls, until it is stopped or dropped.
#[derive(Debug)]
pub struct SystemCalls {
    perf: Child,
    work: TempDir,
}

/// Time limit for perf to start.
const READY_WITHIN: Duration = Duration::from_secs(5);
/// Time limit for perf to print its count.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

impl SystemCalls {
    /// Starts counting the calls of all processes in the server's namespace, and of their children; counting
    /// is active when this returns. `Err` contains the reason for the notes of a run, which is still valid
    /// without the count.
    pub fn count(bed: &TestBed) -> Result<Self, String> {
        Self::begin(bed).map_err(|reason| format!("system calls are not counted: {reason}"))
    }

    /// Checks by a trial on this process whether calls can be counted; `Err` contains the reason if not.
    pub fn check() -> Result<(), String> {
        Self::count_of(&[std::process::id()])?.stop().map(drop)
    }

    fn begin(bed: &TestBed) -> Result<Self, String> {
        let (server, _) = bed.server_device();
        let pids = NetNs::open(server).and_then(|ns| Processes::of(ns).pids()).map_err(|error| error.to_string())?;
        if pids.is_empty() {
            return Err("no process runs in the server's namespace".to_owned());
        }
        Self::count_of(&pids)
    }

    fn count_of(pids: &[u32]) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot set up perf: {error}");
        let work = temporary::directory(0o700).map_err(failed)?;
        let mut commands = fifo(&work.path().join(COMMANDS)).map_err(failed)?;
        let answers = fifo(&work.path().join(ANSWERS)).map_err(failed)?;
        let said = File::create(work.path().join(SAID)).map_err(failed)?;
        let pids = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let mut perf = Command::new("perf");
        // Starts with its counters off, and enables them on command.
        perf.current_dir(work.path()).args(["stat", "-D", "-1", "--control", &format!("fifo:{COMMANDS},{ANSWERS}")]);
        perf.args(["-x", ",", "-o", COUNTED, "-e", EVENT, "-p", &pids]);
        perf.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).process_group(0);
        kill_with_spawning_thread(&mut perf);
        let perf = perf.spawn().map_err(|error| {
            format!("`perf` cannot be run ({error}); it is in Debian's package linux-perf, Ubuntu's linux-tools")
        })?;
        let mut counting = Self { perf, work };
        commands.write_all(b"enable\n").map_err(failed)?;
        counting.wait_for_answer(&answers)?;
        Ok(counting)
    }

    fn wait_for_answer(&mut self, answers: &File) -> Result<(), String> {
        let deadline = Instant::now() + READY_WITHIN;
        while Instant::now() < deadline {
            let mut ready = [PollFd::new(answers, PollFlags::IN)];
            let turn = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            // Polls again after a signal.
            if poll(&mut ready, Some(&turn)).is_ok_and(|ready| ready > 0) {
                return Ok(());
            }
            if !matches!(self.perf.try_wait(), Ok(None)) {
                return Err(format!("`perf stat` ended: {}", self.read(SAID)));
            }
        }
        Err(format!("`perf stat` did not begin within {} s", READY_WITHIN.as_secs()))
    }

    /// Stops counting and returns the calls since [`Self::count`]. `Err` as there.
    pub fn stop(mut self) -> Result<u64, String> {
        self.end(Signal::INT, ENDED_WITHIN);
        let counted = self.read(COUNTED);
        parse(&counted).ok_or_else(|| {
            format!("system calls are not counted: `perf stat` printed `{counted}` and said `{}`", self.read(SAID))
        })
    }

    /// Ends perf by `signal`, or by force after the time limit.
    fn end(&mut self, signal: Signal, within: Duration) {
        let pid = Pid::from_child(&self.perf);
        // Readable when the process has ended.
        let ended = pidfd_open(pid, PidfdFlags::empty());
        // perf may have ended with the server; then the signal has no target.
        let _ = kill_process(pid, signal);
        let turn = Timespec { tv_sec: within.as_secs().cast_signed(), tv_nsec: 0 };
        let in_time = ended.is_ok_and(|ended| {
            poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&turn)).is_ok_and(|ready| ready > 0)
        });
        if !in_time {
            let _ = self.perf.kill();
        }
        let _ = self.perf.wait();
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.work.path().join(file)).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for SystemCalls {
    fn drop(&mut self) {
        if let Ok(None) = self.perf.try_wait() {
            self.end(Signal::KILL, ENDED_WITHIN);
        }
    }
}

const EVENT: &str = "raw_syscalls:sys_enter";
const COMMANDS: &str = "commands";
const ANSWERS: &str = "answers";
const COUNTED: &str = "counted";
const SAID: &str = "said";

/// Makes a fifo and opens it so that neither end blocks.
fn fifo(path: &Path) -> io::Result<File> {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    OpenOptions::new().read(true).write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

/// The count from `perf stat -x,`.
fn parse(counted: &str) -> Option<u64> {
    let line = counted.lines().find(|line| line.contains(EVENT))?;
    match line.split(',').next()? {
        // No process ran at all.
        "<not counted>" => Some(0),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, os::unix::process::ExitStatusExt as _};

    use super::*;

    #[test]
    fn the_count_is_read_from_what_perf_prints() {
        let counted = "# started on Sun Nov 22 01:21:05 2026\n\n1000164,,raw_syscalls:sys_enter,449653224,100.00,,\n";
        assert_eq!(parse(counted), Some(1_000_164));
        assert_eq!(parse("<not counted>,,raw_syscalls:sys_enter,0,100.00,,"), Some(0));
        assert_eq!(parse("<not supported>,,raw_syscalls:sys_enter,0,100.00,,"), None);
        assert_eq!(parse(""), None);
    }

    /// `dd` reads and writes a byte at a time: two calls per byte, and few others. The first byte shows that
    /// its start is over.
    #[test]
    fn calls_are_counted_one_by_one_or_it_is_said_why_not() {
        let mut dd = Command::new("dd");
        dd.args(["bs=1", "count=5001", "status=none"]);
        let mut dd = dd.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        dd.stdin.as_mut().unwrap().write_all(&[0]).unwrap();
        dd.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        match SystemCalls::count_of(&[dd.id()]) {
            Ok(counting) => {
                dd.stdin.take().unwrap().write_all(&[0; 5000]).unwrap();
                dd.wait().unwrap();
                let calls = counting.stop().unwrap();
                assert!((10_000..10_100).contains(&calls), "{calls}");
            }
            Err(reason) => {
                eprintln!("not tested: {reason}");
                drop(dd.stdin.take());
                dd.wait().unwrap();
                assert!(reason.contains("perf"), "{reason}");
            }
        }
    }

    #[test]
    fn one_that_does_not_end_when_it_is_told_is_killed() {
        let mut deaf = Command::new("sh");
        let mut deaf = deaf.args(["-c", "trap '' INT; echo; exec sleep 1000"]).stdout(Stdio::piped()).spawn().unwrap();
        // It ignores the signal from now on.
        deaf.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let mut counting = SystemCalls { perf: deaf, work: temporary::directory(0o700).unwrap() };
        counting.end(Signal::INT, Duration::ZERO);
        assert_eq!(counting.perf.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn a_process_that_is_not_there_is_no_reason_to_hang() {
        let refused = SystemCalls::count_of(&[u32::MAX]).unwrap_err();
        assert!(refused.contains("perf"), "{refused}");
    }
}
