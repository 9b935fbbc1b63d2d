//! Child processes: starting them off the threads that serve connections, reading their output, awaiting
//! their ends.
//!
//! A start blocks for about a millisecond, and until the new process gets the processor. Therefore it runs on
//! threads made for it, separately for each priority: a program that is denied the processor delays only
//! starts of the same priority. These threads never end, because a program is killed when the thread that
//! started it ends.

use std::{
    collections::{HashMap, VecDeque},
    ffi::CString,
    fmt, io,
    os::fd::OwnedFd,
    sync::{Arc, LazyLock},
    time::Duration,
};

use kernel::process::{self, Ended, Group, Launch, Limits, Process, ProcessEvents};
use parking_lot::{Condvar, Mutex};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::{
    net::unix::pipe,
    sync::oneshot,
    time::{Instant, timeout},
};

use crate::config::{ClassConfig, Config, Origin, Priority};

/// Time between SIGTERM and SIGKILL for programs of a request.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// A class whose priority cannot be given to its programs; the operator has to fix it.
#[derive(Debug)]
pub struct PriorityError {
    class: String,
    error: String,
}

impl fmt::Display for PriorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "priority of the class {}: {}", self.class, self.error)
    }
}

impl std::error::Error for PriorityError {}

/// Prepares the priorities of a configuration that has programs: tries them, makes control groups, and raises
/// the server's threads above real-time classes. Call it before the serving threads start, and at every
/// reload before anything is started for it. It revokes nothing that is in force, which `settle` does.
/// Blocks.
///
/// # Errors
/// The class whose priority may not be set, and the permission to grant.
pub fn prepare(config: &Config) -> Result<(), PriorityError> {
    prepare_classes(&config.classes.classes, are_run_by(config))
}

/// Whether a configuration runs programs: for requests, or as workers of an upstream.
pub(crate) fn are_run_by(config: &Config) -> bool {
    let cgi = config.sites.iter().flat_map(|site| &site.routes).any(|route| matches!(route.origin, Origin::Cgi(_)));
    cgi || config.upstreams.iter().any(|upstream| upstream.workers.is_some())
}

/// Does the same as [`prepare`] for changed classes; `are_run`: there are programs.
pub(crate) fn prepare_classes(classes: &[ClassConfig], are_run: bool) -> Result<(), PriorityError> {
    if !are_run {
        return Ok(());
    }
    let failed = |class: &ClassConfig, error: String| PriorityError { class: class.name.clone(), error };
    for class in classes {
        process::check(scheduling(class.priority).0).map_err(|error| failed(class, error.to_string()))?;
    }
    // Raised first, so that control groups are tried in the state in which they are used.
    if let Some(highest) = highest(classes) {
        raise(highest);
    }
    for class in classes {
        if let Priority::CgroupWeight(weight) = class.priority {
            let entered = group(&class.name, weight).and_then(|group| group.try_out());
            entered.map_err(|error| failed(class, error.to_string()))?;
        }
    }
    Ok(())
}

/// Completes [`prepare`] once a configuration is in force: control groups get their weights, unused empty
/// groups are removed, and the server's threads are lowered as far as possible. It cannot fail. Blocks for
/// moments.
pub(crate) fn settle(classes: &[ClassConfig], are_run: bool) {
    let classes = if are_run { classes } else { &[] };
    let weights = classes.iter().filter_map(|class| match class.priority {
        Priority::CgroupWeight(weight) => Some((class.name.as_str(), weight)),
        _ => None,
    });
    let weights: HashMap<&str, u16> = weights.collect();
    GROUPS.lock().retain(|class, group| match weights.get(class.as_str()) {
        Some(&weight) => {
            if let Err(error) = group.set_weight(weight) {
                tracing::warn!(%class, weight, %error, "the control group of a class keeps its weight");
            }
            true
        }
        // A group is kept while a program is being started in it or still runs in it.
        None => Arc::strong_count(group) > 1 || group.remove_if_empty().is_err(),
    });
    lower(highest(classes));
}

fn highest(classes: &[ClassConfig]) -> Option<u8> {
    classes.iter().filter_map(|class| scheduling(class.priority).0.real_time()).max()
}

/// The real-time priority just below that of the server's threads.
static ABOVE: Mutex<Option<u8>> = Mutex::new(None);

/// Raises the server's threads above a real-time priority, unless they are above it already.
fn raise(highest: u8) {
    let mut above = ABOVE.lock();
    if *above >= Some(highest) {
        return;
    }
    if process::real_time_is_throttled() == Some(false) {
        tracing::warn!(
            "classes have real-time priorities, and kernel.sched_rt_runtime_us is -1: on kernels before 6.12 programs of theirs can \
             keep everything else from the processor (set it to 950000)"
        );
    }
    match process::raise_own_threads(highest) {
        Ok(ours) if ours > highest => tracing::info!(ours, highest, "our threads go before those of real-time classes"),
        Ok(_) => tracing::warn!("a class has the real-time priority 99, and nothing is above it: take 98 at most"),
        Err(error) => {
            return tracing::warn!(
                %error, highest,
                "our threads cannot be put above real-time classes: their programs may keep us from the processor (grant CAP_SYS_NICE)"
            );
        }
    }
    *above = Some(highest);
}

/// Lowers the server's threads to just above a real-time priority, or to ordinary scheduling.
fn lower(highest: Option<u8>) {
    let mut above = ABOVE.lock();
    if *above <= highest {
        return;
    }
    let done = match highest {
        Some(highest) => process::raise_own_threads(highest).map(|_| ()),
        None => process::lower_own_threads(),
    };
    match done {
        Ok(()) => *above = highest,
        Err(error) => tracing::warn!(%error, "our threads stay above real-time classes that are gone"),
    }
}

/// Removes the control groups made by [`prepare`] and kills the processes in them. Blocks.
pub fn finish() {
    GROUPS.lock().clear();
}

/// Control groups, by class name.
type Groups = HashMap<String, Arc<Group>>;

static GROUPS: LazyLock<Mutex<Groups>> = LazyLock::new(Mutex::default);

/// The control group of a class. An existing group keeps its weight, because the caller's configuration may
/// have been replaced. Blocks.
fn group(class: &str, weight: u16) -> io::Result<Arc<Group>> {
    let mut groups = GROUPS.lock();
    if let Some(group) = groups.get(class) {
        return Ok(group.clone());
    }
    let group = Arc::new(Group::make(class, weight)?);
    groups.insert(class.to_owned(), group.clone());
    Ok(group)
}

fn scheduling(priority: Priority) -> (process::Priority, Option<u16>) {
    match priority {
        Priority::Inherited => (process::Priority::Inherited, None),
        Priority::Nice(nice) => (process::Priority::Nice(nice), None),
        Priority::RoundRobin(priority) => (process::Priority::RoundRobin(priority), None),
        Priority::Fifo(priority) => (process::Priority::Fifo(priority), None),
        Priority::CgroupWeight(weight) => (process::Priority::Inherited, Some(weight)),
    }
}

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
    /// Starts the program. Call it on a thread of [`on_spawner`].
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

type Work = Box<dyn FnOnce() + Send>;

/// The threads that start programs of one priority.
struct Spawners {
    waiting: Mutex<VecDeque<Work>>,
    more: Condvar,
}

/// Runs `work`, which starts a program, on a thread that never ends and serves only this priority. If the
/// future is dropped before that, nothing is started. The queue is bounded only by the callers.
///
/// # Errors
/// The system cannot create a thread.
pub(crate) async fn on_spawner<T: Send + 'static>(
    priority: Priority,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let spawners = spawners(priority)?;
    let (reply, answer) = oneshot::channel();
    let work = move || {
        if !reply.is_closed() {
            let _ = reply.send(work());
        }
    };
    spawners.waiting.lock().push_back(Box::new(work));
    spawners.more.notify_one();
    answer.await.map_err(|_| io::Error::other("the thread that starts programs has panicked"))
}

fn spawners(priority: Priority) -> io::Result<Arc<Spawners>> {
    static ALL: LazyLock<Mutex<HashMap<Priority, Arc<Spawners>>>> = LazyLock::new(Mutex::default);
    // The threads are the same for every weight, so there is one kind for all weights; they are never
    // released.
    let kind = match priority {
        Priority::CgroupWeight(_) => Priority::CgroupWeight(100),
        other => other,
    };
    let mut all = ALL.lock();
    if let Some(spawners) = all.get(&kind) {
        return Ok(spawners.clone());
    }
    let spawners = Arc::new(Spawners { waiting: Mutex::default(), more: Condvar::new() });
    for number in 0..threads() {
        let runs = spawners.clone();
        match std::thread::Builder::new().name("spawner".to_owned()).spawn(move || runs.run()) {
            Ok(_) => {}
            Err(error) if number == 0 => return Err(error),
            // Fewer threads are enough.
            Err(_) => break,
        }
    }
    Ok(all.entry(kind).or_insert(spawners).clone())
}

/// At least two threads, so that a program on a slow disk does not block all others.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, |processors| processors.get().clamp(2, 4))
}

impl Spawners {
    fn run(&self) {
        loop {
            let work = {
                let mut waiting = self.waiting.lock();
                loop {
                    match waiting.pop_front() {
                        Some(work) => break work,
                        None => self.more.wait(&mut waiting),
                    }
                }
            };
            // The thread must survive a panic, because all programs that it started would die with it.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        }
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

/// Longest logged line of a program; longer ones are cut off.
const LINE_BYTES: usize = 1024;

/// Most lines of a program logged at once, and per second after that. The others are only counted.
const LINES_AT_ONCE: f64 = 50.0;
const LINES_PER_SECOND: f64 = 10.0;

/// Splits a program's output into lines, and limits their length and number.
#[derive(Debug)]
pub(crate) struct Lines {
    line: Vec<u8>,
    leave: f64,
    at: Instant,
    dropped: u64,
}

impl Lines {
    pub(crate) fn new(now: Instant) -> Self {
        Self { line: Vec::new(), leave: LINES_AT_ONCE, at: now, dropped: 0 }
    }

    /// Takes more bytes and logs the complete lines.
    pub(crate) fn take(&mut self, now: Instant, bytes: &[u8], mut log: impl FnMut(&str)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, whole) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            // One byte more than is shown reveals that the line is cut off.
            let room = (LINE_BYTES + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if whole {
                self.end_of_line(now, &mut log);
            }
        }
    }

    /// Logs an unfinished last line.
    pub(crate) fn finish(&mut self, now: Instant, mut log: impl FnMut(&str)) {
        if !self.line.is_empty() {
            self.end_of_line(now, &mut log);
        }
        if self.dropped > 0 {
            log(&format!("({} lines were left out)", std::mem::take(&mut self.dropped)));
        }
    }

    fn end_of_line(&mut self, now: Instant, log: &mut impl FnMut(&str)) {
        let more = now.duration_since(self.at).as_secs_f64() * LINES_PER_SECOND;
        (self.leave, self.at) = ((self.leave + more).min(LINES_AT_ONCE), now);
        if self.leave < 1.0 {
            self.dropped += 1;
            self.line.clear();
            return;
        }
        if self.dropped > 0 {
            log(&format!("({} lines were left out)", std::mem::take(&mut self.dropped)));
        }
        self.leave -= 1.0;
        let cut = self.line.len() > LINE_BYTES;
        self.line.truncate(LINE_BYTES);
        let text = String::from_utf8_lossy(self.line.trim_ascii_end());
        // A program's output must not look like log lines of the server, nor move a terminal's cursor.
        let clean = |letter: char| if letter.is_control() && letter != '\t' { '\u{fffd}' } else { letter };
        let mut text: String = text.chars().map(clean).collect();
        if cut {
            text.push_str(" ...");
        }
        if !text.is_empty() {
            log(&text);
        }
        self.line.clear();
    }
}

/// Logs a program's output until the last writer has closed the pipe.
pub(crate) async fn log_lines(mut from: pipe::Receiver, log: impl Fn(&str)) {
    use tokio::io::AsyncReadExt as _;
    let mut lines = Lines::new(Instant::now());
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        lines.take(Instant::now(), &buffer[..read], &log);
    }
    lines.finish(Instant::now(), &log);
}

/// `PATH` for programs: the server's own, or a shell's default.
pub(crate) fn path_variable() -> std::ffi::OsString {
    std::env::var_os("PATH").filter(|path| !path.is_empty()).unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Whether a priority may be set here. If not, the test says that it is skipped; in CI it fails.
    pub(crate) fn may(test: &str, priority: Priority) -> bool {
        let Err(refused) = process::check(scheduling(priority).0) else { return true };
        skip(test, &refused);
        false
    }

    /// Reports a test that cannot run here; in CI it fails.
    fn skip(test: &str, why: &dyn fmt::Display) {
        assert!(std::env::var_os("CI").is_none(), "in CI {test} must run: {why}");
        eprintln!("SKIPPED: {test}: {why}");
    }

    fn class(name: &str, priority: Priority) -> ClassConfig {
        ClassConfig { name: name.to_owned(), priority, ..crate::config::Classes::one().classes.remove(0) }
    }

    #[test]
    fn a_class_whose_priority_we_may_not_set_is_named_with_what_to_grant() {
        const TEST: &str = "a_class_whose_priority_we_may_not_set_is_named_with_what_to_grant";
        if rustix::process::getrlimit(rustix::process::Resource::Rtprio).current != Some(0) {
            return skip(TEST, &"everybody may set real-time priorities here");
        }
        let refused = std::thread::spawn(move || {
            let none = rustix::thread::CapabilitySets {
                effective: rustix::thread::CapabilitySet::empty(),
                permitted: rustix::thread::CapabilitySet::empty(),
                inheritable: rustix::thread::CapabilitySet::empty(),
            };
            rustix::thread::set_capabilities(None, none).expect("laying capabilities down is always allowed");
            prepare_classes(&[class("tin", Priority::Nice(19)), class("gold", Priority::Fifo(10))], true)
        });
        let refused = refused.join().expect("thread").expect_err("it may not").to_string();
        assert!(refused.starts_with("priority of the class gold: ") && refused.contains("LimitRTPRIO=10"), "{refused}");
    }

    #[test]
    fn weights_are_set_and_groups_go_when_a_configuration_is_in_force() {
        const TEST: &str = "weights_are_set_and_groups_go_when_a_configuration_is_in_force";
        let classes =
            [class("settled-one", Priority::CgroupWeight(200)), class("settled-two", Priority::CgroupWeight(50))];
        match Group::make("trial", 100) {
            Ok(_) => {}
            // A missing controller, or control groups owned by another system, is a property of the machine.
            Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::ReadOnlyFilesystem) => {
                return eprintln!("SKIPPED: {TEST}: {error}");
            }
            Err(error) => return skip(TEST, &error),
        }
        prepare_classes(&classes, true).expect("they can be made");
        let folder = |class: &str| GROUPS.lock().get(class).map(|group| group.folder().to_owned());
        let (one, two) = (folder("settled-one").expect("made"), folder("settled-two").expect("made"));
        let weight = |folder: &std::path::Path| {
            let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
            let shares = || read("cpu.shares")?.trim().parse::<u32>().ok().map(|shares| shares * 100 / 1024);
            read("cpu.weight").and_then(|weight| weight.trim().parse().ok()).or_else(shares)
        };
        assert_eq!((weight(&one), weight(&two)), (Some(200), Some(50)));
        // A preparation that may still be abandoned changes no weights; neither do programs of the earlier
        // configuration.
        let changed = [class("settled-one", Priority::CgroupWeight(400))];
        prepare_classes(&changed, true).expect("as before");
        assert_eq!((weight(&one), weight(&two)), (Some(200), Some(50)));
        // A reaped process stays in its group for another moment, so the removal is tried again.
        let settle_without = |class: &str, folder_of_it: &std::path::Path, are_run: bool| {
            let started = Instant::now();
            loop {
                settle(&changed, are_run);
                if folder(class).is_none() && !folder_of_it.exists() {
                    return;
                }
                assert!(started.elapsed() < Duration::from_secs(60), "the group of {class} stays");
                std::thread::yield_now();
            }
        };
        settle_without("settled-two", &two, true);
        assert_eq!(weight(&one), Some(400));
        drop(group("settled-one", 200).expect("it is there"));
        assert_eq!(weight(&one), Some(400));
        settle_without("settled-one", &one, false);
    }

    #[tokio::test]
    async fn classes_with_weights_share_their_threads() {
        let mut seen = std::collections::HashSet::new();
        for weight in 1..=30 {
            let thread = on_spawner(Priority::CgroupWeight(weight), || std::thread::current().id()).await;
            seen.insert(thread.expect("a thread"));
        }
        assert!(seen.len() <= threads(), "{} threads", seen.len());
    }

    fn said(lines: &mut Lines, now: Instant, bytes: &[u8]) -> Vec<String> {
        let mut said = Vec::new();
        lines.take(now, bytes, |line| said.push(line.to_owned()));
        said
    }

    #[test]
    fn lines_are_whole_bounded_and_clean() {
        let now = Instant::now();
        let mut lines = Lines::new(now);
        assert_eq!(said(&mut lines, now, b"one\r\ntw"), ["one"]);
        assert_eq!(said(&mut lines, now, b"o\n\nthree\x1b[2J \xff\n"), ["two", "three\u{fffd}[2J \u{fffd}"]);
        let long = said(&mut lines, now, &[&[b'x'; 5 * LINE_BYTES][..], b"\n"].concat());
        assert_eq!(long, [format!("{} ...", "x".repeat(LINE_BYTES))]);
        let exact = said(&mut lines, now, &[&[b'x'; LINE_BYTES][..], b"\n"].concat());
        assert_eq!(exact, ["x".repeat(LINE_BYTES)]);
        assert!(said(&mut lines, now, b"no end").is_empty());
        let mut rest = Vec::new();
        lines.finish(now, |line| rest.push(line.to_owned()));
        assert_eq!(rest, ["no end"]);
    }

    #[test]
    fn who_says_too_much_is_cut_short_for_a_while() {
        let now = Instant::now();
        let mut lines = Lines::new(now);
        assert_eq!(said(&mut lines, now, &b"x\n".repeat(80)).len(), 50);
        let now = now + Duration::from_millis(250);
        assert_eq!(said(&mut lines, now, &b"y\n".repeat(5)), ["(30 lines were left out)", "y", "y"]);
        let mut rest = Vec::new();
        lines.finish(now, |line| rest.push(line.to_owned()));
        assert_eq!(rest, ["(3 lines were left out)"]);
    }

    #[tokio::test]
    async fn a_panic_does_not_end_a_thread_that_starts_programs() {
        let seen = || async {
            let mut seen = std::collections::HashSet::new();
            for _ in 0..50 {
                seen.insert(on_spawner(Priority::Nice(19), || std::thread::current().id()).await.expect("a thread"));
            }
            seen
        };
        let before = seen().await;
        for _ in 0..20 {
            let panics = on_spawner(Priority::Nice(19), || -> () { panic!("as the test wants") });
            panics.await.expect_err("it panicked");
        }
        let after: std::collections::HashSet<_> = seen().await.union(&before).copied().collect();
        assert!(after.len() <= threads(), "the same threads as before");
    }

    #[tokio::test]
    async fn who_waits_no_more_has_nothing_started() {
        // All threads of a priority that no other test uses are kept busy, so that the next work has to wait.
        let priority = Priority::Nice(18);
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (begun, mut have_begun) = tokio::sync::mpsc::unbounded_channel();
        let holding: Vec<_> = (0..4)
            .map(|_| {
                let (held, begun) = (held.clone(), begun.clone());
                let hold = move || {
                    let _ = begun.send(());
                    held.lock().recv()
                };
                tokio::spawn(on_spawner(priority, hold))
            })
            .collect();
        for _ in 0..threads() {
            have_begun.recv().await.expect("they begin");
        }
        let started = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mark = started.clone();
        let given_up = on_spawner(priority, move || mark.store(true, std::sync::atomic::Ordering::SeqCst));
        // Polled once, so that the work is in the queue.
        tokio::select! {
            biased;
            _ = given_up => panic!("nobody can do it"),
            () = std::future::ready(()) => {}
        }
        for _ in 0..4 {
            release.send(()).expect("held up");
        }
        for holding in holding {
            let _ = holding.await.expect("no panic");
        }
        on_spawner(priority, || ()).await.expect("a thread");
        assert!(!started.load(std::sync::atomic::Ordering::SeqCst));
    }
}
