//! Starts programs on Linux: the calls between the creation of a process and `execve`.

use std::{
    alloc::{Layout, alloc, dealloc},
    ffi::{c_char, c_int, c_uint, c_void},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
};

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};

use super::launch::{Ended, Launch, LaunchError, Priority, Step};

/// Whether the server's own threads have left ordinary scheduling. If so, a program that is to have it must
/// be set back to it.
static RAISED: AtomicBool = AtomicBool::new(false);

/// Stack of a new process until it is the program: room for a few calls without large frames.
const STACK_BYTES: usize = 64 << 10;

/// The first descriptor after the streams. A new process holds `cgroup.procs` of its group there until it has
/// joined the group.
const ENTRANCE: RawFd = 3;

/// The capability to take any priority.
const CAP_SYS_NICE: u32 = 23;

#[derive(Debug)]
pub(super) struct Process {
    pid: Pid,
    /// `None` once the handle has been passed on to another thread that waits for the process.
    handle: Option<OwnedFd>,
    ended: Option<Ended>,
}

/// All data that the new process reads. It is made in advance, because the new process may not allocate:
/// another thread of the server may be within the allocator.
struct Plan<'a> {
    launch: &'a Launch,
    parent: c_int,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    streams: [RawFd; 3],
    group: Option<RawFd>,
    raised: bool,
    failed: Option<(Step, i32)>,
}

pub(super) fn start(launch: &Launch) -> Result<Process, LaunchError> {
    let failed = |step| move |error| LaunchError { step, error };
    // The streams go to descriptors 0 to 2. A stream that is already there would be overwritten before it is
    // copied.
    let mut moved = Vec::new();
    let mut streams = [0; 3];
    for (to, from) in streams.iter_mut().zip(&launch.streams) {
        *to = from.as_raw_fd();
        if *to < 3 {
            let copy =
                rustix::io::fcntl_dupfd_cloexec(from, 3).map_err(io::Error::from).map_err(failed(Step::Streams))?;
            *to = copy.as_raw_fd();
            moved.push(copy);
        }
    }
    let pointers = |strings: &[std::ffi::CString]| -> Vec<*const c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
    };
    let mut plan = Plan {
        launch,
        parent: rustix::process::getpid().as_raw_nonzero().get(),
        arguments: pointers(&launch.arguments),
        environment: pointers(&launch.environment),
        streams,
        group: launch.group.as_ref().map(|group| group.entrance().as_raw_fd()),
        raised: RAISED.load(Relaxed),
        failed: None,
    };
    let process = clone(&mut plan).map_err(failed(Step::Process))?;
    match plan.failed {
        None => Ok(process),
        // Dropping the process waits for it.
        Some((step, errno)) => Err(LaunchError { step, error: io::Error::from_raw_os_error(errno) }),
    }
}

/// Makes a process that runs [`new_process`] on its own stack in the server's memory. Returns when the
/// process has become the program or ended.
fn clone(plan: &mut Plan<'_>) -> io::Result<Process> {
    let stack = Stack::new()?;
    let mut handle: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // A signal handler of the server would act on the server's memory if it ran in the new process. So
    // signals are blocked until the new process has removed the handlers.
    let blocked = BlockedSignals::all()?;
    // SAFETY: `new_process` has the required signature and gets the plan. `CLONE_VFORK` suspends this thread
    // until the new process has called execve or ended, so nothing else uses the plan until the call returns.
    // The plan and the stack are both held here, so they outlive their use. The stack grows down from its
    // end, which is aligned to 16 bytes. The actions of `new_process` are safe in memory shared with running
    // threads (see there). The kernel writes one descriptor to `handle`.
    let pid =
        unsafe { libc::clone(new_process, stack.end(), flags, ptr::from_mut(plan).cast::<c_void>(), &raw mut handle) };
    let error = io::Error::last_os_error();
    drop(blocked);
    let Some(pid) = (pid > 0).then(|| Pid::from_raw(pid)).flatten() else { return Err(error) };
    // SAFETY: the call succeeded, so `handle` is a new descriptor with no other owner.
    let handle = unsafe { OwnedFd::from_raw_fd(handle) };
    Ok(Process { pid, handle: Some(handle), ended: None })
}

/// The code of the new process, in the server's memory. It makes system calls, writes to its plan, and ends.
/// It allocates nothing, takes no lock and cannot panic, because other threads of the server run on and may
/// hold any lock.
extern "C" fn new_process(plan: *mut c_void) -> c_int {
    // SAFETY: `clone` above passes a valid plan that nothing else uses until this process has ended or become
    // a program.
    let plan = unsafe { &mut *plan.cast::<Plan<'_>>() };
    let (step, errno) = become_program(plan);
    plan.failed = Some((step, errno));
    // SAFETY: `_exit` runs none of the parent's exit handlers.
    unsafe { libc::_exit(127) }
}

/// Turns the process into the program. Returns only if a step failed.
fn become_program(plan: &Plan<'_>) -> (Step, i32) {
    macro_rules! attempt {
        ($step:expr, $result:expr) => {
            if $result < 0 {
                return ($step, errno());
            }
        };
    }
    let launch = plan.launch;
    default_signal_handlers();
    // SAFETY: system calls of this process about itself. They take numbers, strings and arrays of the plan
    // that end with a NUL or null pointer, and structures of this stack frame. `errno` is that of the
    // suspended thread.
    unsafe {
        attempt!(Step::Process, libc::setsid());
        attempt!(Step::Process, libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0));
        // The server may have been killed before the line above.
        if libc::getppid() != plan.parent {
            return (Step::Process, libc::ESRCH);
        }
        for (to, from) in (0..).zip(plan.streams) {
            attempt!(Step::Streams, libc::dup2(from, to));
        }
        // The descriptors are really closed, not only marked close-on-exec. From here on this process may
        // wait long for the processor. Open descriptors of the server, such as the streams of other programs,
        // would then stay open as long. Kernels before 5.9 cannot close a range; there the descriptors are
        // marked close-on-exec.
        let mut first = ENTRANCE;
        if let Some(group) = plan.group {
            attempt!(Step::Group, libc::dup2(group, ENTRANCE));
            first += 1;
        }
        libc::syscall(libc::SYS_close_range, first as c_uint, c_uint::MAX, 0 as c_uint);
        if let Some(directory) = &launch.directory {
            attempt!(Step::Directory, libc::chdir(directory.as_ptr()));
        }
        if plan.group.is_some() {
            // A group without time for real-time classes accepts no process that is in one.
            if plan.raised && set_scheduler(0, libc::SCHED_OTHER, 0).is_err() {
                return (Step::Priority, errno());
            }
            // "0" stands for the process that writes it.
            attempt!(Step::Group, libc::write(ENTRANCE, c"0".as_ptr().cast(), 1));
            libc::close(ENTRANCE);
        }
    }
    if set_priority(launch.priority, plan.raised).is_err() {
        return (Step::Priority, errno());
    }
    let seconds =
        |limit: std::time::Duration| limit.as_secs().saturating_add(u64::from(limit.subsec_nanos() > 0)).max(1);
    let micros = |limit: std::time::Duration| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX).max(1);
    if let (Some(limit), Some(_)) = (launch.limits.real_time, launch.priority.real_time()) {
        let soft = micros(limit);
        attempt!(Step::Limits, limit_to(libc::RLIMIT_RTTIME, soft, soft.saturating_add(1_000_000)));
    }
    if let Some(limit) = launch.limits.cpu {
        let soft = seconds(limit);
        attempt!(Step::Limits, limit_to(libc::RLIMIT_CPU, soft, soft.saturating_add(1)));
    }
    // The program keeps its priority but cannot get a higher one, and neither can its children.
    attempt!(Step::Limits, limit_to(libc::RLIMIT_RTPRIO, 0, 0));
    attempt!(Step::Limits, limit_to(libc::RLIMIT_NICE, 0, 0));
    if drop_right_to_rise() < 0 {
        return (Step::Limits, errno());
    }
    // SAFETY: as above.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        libc::execve(launch.program.as_ptr(), plan.arguments.as_ptr(), plan.environment.as_ptr());
    }
    (Step::Program, errno())
}

/// Sets all signals to their default action. The program would inherit ignored signals (the runtime ignores
/// SIGPIPE), and the server's handlers must not run in the new process.
fn default_signal_handlers() {
    for signal in 1..=64 {
        // SAFETY: an action of zeros is the default one without flags. The kernel refuses numbers that are
        // not signals and signals that cannot be changed.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, &raw const default, ptr::null_mut());
        }
    }
}

/// Drops CAP_SYS_NICE for the program of this process, whichever user it runs as.
fn drop_right_to_rise() -> c_int {
    /// `struct __user_cap_header_struct`, version 3.
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    /// `struct __user_cap_data_struct`: effective, permitted, inheritable.
    type Sets = [[u32; 3]; 2];
    let (nice, none): (libc::c_ulong, libc::c_ulong) = (CAP_SYS_NICE.into(), 0);
    // SAFETY: system calls of this process about itself, on numbers and on structures of this stack frame
    // with the kernel's layout.
    unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_LOWER as libc::c_ulong, nice, none, none);
        let dropped = libc::prctl(libc::PR_CAPBSET_DROP, nice, none, none, none) == 0;
        // Dropping fails without CAP_SETPCAP. Only for root does `execve` add capabilities.
        if dropped || libc::geteuid() != 0 || libc::prctl(libc::PR_CAPBSET_READ, nice, none, none, none) != 1 {
            return 0;
        }
        let mut header = Header { version: 0x2008_0522, pid: 0 };
        let mut sets: Sets = [[0; 3]; 2];
        if libc::syscall(libc::SYS_capget, &raw mut header, &raw mut sets) < 0 {
            return -1;
        }
        for set in &mut sets[0] {
            *set &= !(1 << CAP_SYS_NICE);
        }
        if libc::syscall(libc::SYS_capset, &raw mut header, &raw const sets) < 0 {
            return -1;
        }
        // With this flag root gets no more capabilities either.
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, none, none, none)
    }
}

/// The type of `RLIMIT_*`.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = c_int;

fn limit_to(resource: Resource, soft: u64, hard: u64) -> c_int {
    // SAFETY: the kernel writes to and reads from a structure of this stack frame.
    unsafe {
        let mut now: libc::rlimit64 = std::mem::zeroed();
        if libc::getrlimit64(resource, &raw mut now) < 0 {
            return -1;
        }
        // Only a privileged process may raise the hard limit, and there is no need to.
        let hard = hard.min(now.rlim_max);
        let limit = libc::rlimit64 { rlim_cur: soft.min(hard), rlim_max: hard };
        libc::setrlimit64(resource, &raw const limit)
    }
}

pub(super) fn set_own(priority: Priority) -> io::Result<()> {
    set_priority(priority, RAISED.load(Relaxed))
}

/// Sets the priority of the calling thread. It neither allocates nor locks.
fn set_priority(priority: Priority, raised: bool) -> io::Result<()> {
    let ordinary = || if raised { set_scheduler(0, libc::SCHED_OTHER, 0) } else { Ok(()) };
    match priority {
        Priority::Inherited => ordinary(),
        Priority::Nice(nice) => {
            ordinary()?;
            // SAFETY: the call takes numbers only. 0 is the calling thread.
            match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, c_int::from(nice)) } {
                // POSIX also allows EACCES, with the same meaning.
                done if done < 0 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        }
        Priority::RoundRobin(priority) => set_scheduler(0, libc::SCHED_RR, priority),
        Priority::Fifo(priority) => set_scheduler(0, libc::SCHED_FIFO, priority),
    }
}

/// Sets the scheduling class. It uses the system call, because the function of that name in musl always fails
/// with ENOSYS.
fn set_scheduler(thread: c_int, policy: c_int, priority: u8) -> io::Result<()> {
    /// `struct sched_param` as the kernel has it.
    #[repr(C)]
    struct Param {
        priority: c_int,
    }
    let param = Param { priority: c_int::from(priority) };
    // SAFETY: the kernel reads one structure of this stack frame.
    let done = unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, policy, &raw const param) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(super) fn raise_own_threads(priority: u8) -> io::Result<()> {
    // Set first, so that a program started meanwhile does not inherit the raised priority.
    let before = RAISED.swap(true, Relaxed);
    let done = all_own_threads(libc::SCHED_RR, priority);
    if done.is_err() && !before {
        // Some threads may be raised already. The flag stays set as long as one is.
        let _ = lower_own_threads();
    }
    done
}

pub(super) fn lower_own_threads() -> io::Result<()> {
    if !RAISED.load(Relaxed) {
        return Ok(());
    }
    all_own_threads(libc::SCHED_OTHER, 0)?;
    // Cleared last, for the same reason.
    RAISED.store(false, Relaxed);
    Ok(())
}

fn all_own_threads(policy: c_int, priority: u8) -> io::Result<()> {
    let mut done = std::collections::HashSet::new();
    // A thread that is not changed yet may start another one during the scan. The next scan finds it.
    loop {
        let mut new = false;
        for thread in std::fs::read_dir("/proc/self/task")? {
            let Some(thread) = thread?.file_name().to_str().and_then(|name| name.parse::<c_int>().ok()) else {
                continue;
            };
            if done.insert(thread) {
                new = true;
                match set_scheduler(thread, policy, priority) {
                    // The thread has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    other => other?,
                }
            }
        }
        if !new {
            return Ok(());
        }
    }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

impl Process {
    pub fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        // Only `drop` takes the handle.
        self.handle.as_ref().expect("a process that is not dropped has its handle").as_fd()
    }

    /// Sends a signal to the process group. The group's id is that of its leader, and the kernel does not
    /// reuse it until the leader has been waited for.
    pub fn signal_group(&self, signal: i32) -> io::Result<()> {
        if self.ended.is_some() {
            return Ok(());
        }
        // SAFETY: the call takes numbers only.
        let done = unsafe { libc::kill(-self.pid.as_raw_nonzero().get(), signal) };
        match io::Error::last_os_error() {
            _ if done == 0 => Ok(()),
            error if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            error => Err(error),
        }
    }

    pub fn try_wait(&mut self) -> io::Result<Option<Ended>> {
        if self.ended.is_some() {
            return Ok(self.ended);
        }
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::PidFd(self.as_fd()), look) {
            Ok(None) => return Ok(None),
            Ok(Some(_)) => {}
            Err(rustix::io::Errno::CHILD) => {
                self.ended = Some(Ended::Unknown);
                return Ok(self.ended);
            }
            Err(error) => return Err(error.into()),
        }
        let _ = self.signal_group(libc::SIGKILL);
        let status = waitid(WaitId::PidFd(self.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        self.ended = Some(status.ok().flatten().map_or(Ended::Unknown, ended));
        Ok(self.ended)
    }
}

fn ended(status: WaitIdStatus) -> Ended {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => Ended::Exit(status),
        (None, Some(signal)) => Ended::Signal(signal),
        (None, None) => Ended::Unknown,
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        let _ = self.signal_group(libc::SIGKILL);
        if let (Ok(None), Some(handle)) = (self.try_wait(), self.handle.take()) {
            bury(handle);
        }
    }
}

/// Waits for a killed process on another thread. The process ends at once, unless the kernel is still working
/// for it.
fn bury(handle: OwnedFd) {
    static UNDERTAKER: OnceLock<Option<mpsc::Sender<OwnedFd>>> = OnceLock::new();
    let sender = UNDERTAKER.get_or_init(|| {
        let (sender, handles) = mpsc::channel::<OwnedFd>();
        let wait = move || {
            for handle in handles {
                let _ = rustix::io::retry_on_intr(|| waitid(WaitId::PidFd(handle.as_fd()), WaitIdOptions::EXITED));
            }
        };
        std::thread::Builder::new().name("undertaker".to_owned()).spawn(wait).ok().map(|_| sender)
    });
    if let Some(sender) = sender {
        let _ = sender.send(handle);
    }
}

/// Blocks all signals of the calling thread until this is dropped.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn all() -> io::Result<Self> {
        // SAFETY: the calls write to and read from structures of this stack frame, for which zeros are valid.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) {
                0 => Ok(Self(before)),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the call reads a set that came from the system.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// The stack of a new process.
struct Stack(*mut u8);

impl Stack {
    const LAYOUT: Layout = match Layout::from_size_align(STACK_BYTES, 4096) {
        Ok(layout) => layout,
        Err(_) => panic!("the size is a multiple of the alignment"),
    };

    fn new() -> io::Result<Self> {
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc(Self::LAYOUT) };
        if start.is_null() { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(Self(start)) }
    }

    /// One past the last byte. A stack begins there and grows down.
    fn end(&self) -> *mut c_void {
        // SAFETY: the pointer is one past the end of the allocation.
        unsafe { self.0.add(STACK_BYTES) }.cast()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated in `new` with the same layout, and is freed once.
        unsafe { dealloc(self.0, Self::LAYOUT) };
    }
}
