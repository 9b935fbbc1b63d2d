use std::{
    fs::File,
    io::Read as _,
    os::fd::{AsFd as _, AsRawFd as _},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

use super::*;

/// Longer than any step takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn launch(script: &str, output: OwnedFd) -> Launch {
    let null = || File::options().read(true).write(true).open("/dev/null").expect("/dev/null").into();
    Launch {
        program: c"/bin/sh".to_owned(),
        arguments: vec![c"sh".to_owned(), c"-c".to_owned(), c_string(script).expect("no NUL")],
        environment: vec![c"PATH=/usr/local/bin:/usr/bin:/bin".to_owned(), c"MARK=here".to_owned()],
        directory: Some(c"/".to_owned()),
        streams: [null(), output, null()],
        priority: Priority::Inherited,
        group: None,
        limits: Limits::default(),
    }
}

fn pipe() -> (File, OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("pipe");
    (reader.into(), writer)
}

fn wait(process: &mut Process) -> Ended {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(ended) = process.try_wait().expect("our child") {
            return ended;
        }
        assert!(Instant::now() < deadline, "{} has not ended", process.id());
        let timeout = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
        let _ = poll(&mut [PollFd::new(&process.as_fd(), PollFlags::IN)], Some(&timeout));
    }
}

/// Runs a script. Returns its output and how it ended.
fn run(script: &str, change: impl FnOnce(&mut Launch)) -> (String, Ended) {
    let (mut reader, writer) = pipe();
    let mut launch = launch(script, writer);
    change(&mut launch);
    let mut process = launch.start().expect("/bin/sh");
    drop(launch);
    let mut output = String::new();
    reader.read_to_string(&mut output).expect("text");
    let ended = wait(&mut process);
    (output, ended)
}

/// Fields of /proc/PID/stat, by their numbers in proc(5).
fn stat(line: &str, number: usize) -> i64 {
    let after_name = &line[line.rfind(')').expect("a name in brackets") + 2..];
    after_name.split(' ').nth(number - 3).expect("a field").parse().expect("a number")
}

/// Whether this process may set a priority. If not, the test is skipped with a message, or fails in CI.
fn may(test: &str, priority: Priority) -> bool {
    check(priority).map_err(|refused| skip(test, &refused)).is_ok()
}

/// Reports a test that cannot run here. In CI that is a failure.
fn skip(test: &str, why: &dyn fmt::Display) {
    assert!(std::env::var_os("CI").is_none(), "in CI {test} must run: {why}");
    eprintln!("SKIPPED: {test}: {why}");
}

#[test]
fn a_program_has_what_it_is_given_and_nothing_else() {
    let (output, ended) = run("echo $MARK; env | wc -l; pwd; ls /proc/$$/fd; exit 7", |_| {});
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines[0], "here");
    // The shell adds PWD, and some shells add _ and SHLVL.
    assert!(lines[1].trim().parse::<u32>().expect("a number") <= 5, "{output}");
    assert_eq!(lines[2], "/");
    assert_eq!(lines[3..], ["0", "1", "2"], "its streams and no other descriptor");
    assert_eq!(ended, Ended::Exit(7));
}

#[test]
fn signals_are_as_by_default() {
    // The test process ignores SIGPIPE. Signal 32 is glibc's own: its posix_spawn ignores it, and the test
    // process may have inherited that.
    let (output, _) = run("grep -E 'Sig(Ign|Blk)' /proc/self/status", |_| {});
    for line in output.lines() {
        let set = line.split_whitespace().nth(1).expect("a set");
        assert_eq!(u64::from_str_radix(set, 16).expect("hexadecimal") & !(1 << 31), 0, "{line}");
    }
    assert_eq!(output.lines().count(), 2);
}

#[test]
fn what_cannot_be_started_says_why_and_leaves_nothing() {
    let failed = |change: &dyn Fn(&mut Launch)| {
        let mut launch = launch("exit", pipe().1);
        change(&mut launch);
        launch.start().map(|_| ()).expect_err("it cannot start")
    };
    let missing = failed(&|launch| launch.program = c"/nowhere/at/all".to_owned());
    assert_eq!((missing.step, missing.error.kind()), (Step::Program, io::ErrorKind::NotFound));
    let directory = failed(&|launch| launch.directory = Some(c"/nowhere".to_owned()));
    assert_eq!((directory.step, directory.error.kind()), (Step::Directory, io::ErrorKind::NotFound));
    let no_program = failed(&|launch| launch.program = c"/proc/self/status".to_owned());
    assert_eq!((no_program.step, no_program.error.kind()), (Step::Program, io::ErrorKind::PermissionDenied));
    assert!(missing.to_string().starts_with("it cannot be run: "));
}

#[test]
fn a_signal_reaches_what_the_program_started() {
    // The grandchild holds the pipe open, so the end of the pipe shows that it has ended.
    let (mut reader, writer) = pipe();
    let launch = launch("sleep 1000 & echo $!; wait", writer);
    let mut process = launch.start().expect("/bin/sh");
    drop(launch);
    let mut first = [0; 1];
    reader.read_exact(&mut first).expect("the grandchild runs");
    process.kill().expect("ours");
    assert_eq!(wait(&mut process), Ended::Signal(libc::SIGKILL));
    reader.read_to_end(&mut Vec::new()).expect("all who could write have ended");
}

#[test]
fn what_is_left_of_the_group_ends_with_its_leader() {
    let (mut reader, writer) = pipe();
    let launch = launch("sleep 1000 & exit 3", writer);
    let mut process = launch.start().expect("/bin/sh");
    drop(launch);
    assert_eq!(wait(&mut process), Ended::Exit(3));
    reader.read_to_end(&mut Vec::new()).expect("the one left behind has ended");
}

#[test]
fn who_is_dropped_is_killed_and_waited_for() {
    let (mut reader, writer) = pipe();
    let launch = launch("echo; exec sleep 1000", writer);
    let process = launch.start().expect("/bin/sh");
    drop(launch);
    reader.read_exact(&mut [0]).expect("it runs");
    let folder = format!("/proc/{}", process.id());
    drop(process);
    reader.read_to_end(&mut Vec::new()).expect("it has ended");
    let deadline = Instant::now() + PATIENCE;
    while std::path::Path::new(&folder).exists() {
        assert!(Instant::now() < deadline, "a zombie is left");
        std::thread::yield_now();
    }
}

#[test]
fn a_program_ends_with_the_thread_that_started_it() {
    let (mut reader, writer) = pipe();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let process = launch("exec sleep 1000", writer).start().expect("/bin/sh");
        sender.send(process).expect("the test waits");
    });
    let mut process = receiver.recv().expect("it was started");
    reader.read_to_end(&mut Vec::new()).expect("it has ended");
    assert_eq!(wait(&mut process), Ended::Signal(libc::SIGKILL));
}

#[test]
fn priorities_are_seen_by_the_program_and_its_children() {
    const TEST: &str = "priorities_are_seen_by_the_program_and_its_children";
    // Fields of proc(5): 19 nice, 40 rt_priority, 41 policy.
    for (priority, expected) in [
        (Priority::Nice(7), (7, 0, i64::from(libc::SCHED_OTHER))),
        (Priority::Nice(-3), (-3, 0, i64::from(libc::SCHED_OTHER))),
        (Priority::RoundRobin(4), (0, 4, i64::from(libc::SCHED_RR))),
        (Priority::Fifo(2), (0, 2, i64::from(libc::SCHED_FIFO))),
    ] {
        if !may(TEST, priority) {
            continue;
        }
        // The shell itself writes the first line, and a child of it the second.
        let (output, ended) =
            run("read line </proc/self/stat; echo \"$line\"; cat /proc/self/stat", |launch| launch.priority = priority);
        assert_eq!(ended, Ended::Exit(0));
        for line in output.lines() {
            let nice = if priority.real_time().is_some() { 0 } else { stat(line, 19) };
            assert_eq!((nice, stat(line, 40), stat(line, 41)), expected, "{priority:?}: {line}");
        }
        assert_eq!(output.lines().count(), 2);
    }
    let own = std::fs::read_to_string("/proc/thread-self/stat").expect("proc");
    assert_eq!(stat(&own, 41), i64::from(libc::SCHED_OTHER), "a trial does not stick to who asks");
}

#[test]
fn a_program_cannot_rise() {
    if !may("a_program_cannot_rise", Priority::Fifo(1)) {
        return;
    }
    const ASK: &str = "grep -E 'Max (nice|realtime) priority' /proc/self/limits; grep CapBnd /proc/self/status";
    let (output, _) = run(ASK, |launch| launch.priority = Priority::Nice(5));
    let lines: Vec<_> = output.lines().collect();
    for line in &lines[..2] {
        let numbers: Vec<_> = line.split_whitespace().filter(|word| word.parse::<u64>().is_ok()).collect();
        assert_eq!(numbers, ["0", "0"], "{line}");
    }
    let bounding = u64::from_str_radix(lines[2].split_whitespace().nth(1).expect("a set"), 16).expect("hexadecimal");
    assert_eq!(bounding & 1 << 23, 0, "CAP_SYS_NICE is gone for good");
}

#[test]
fn who_computes_for_too_long_is_ended() {
    let (_, ended) = run("while :; do :; done", |launch| launch.limits.cpu = Some(Duration::from_millis(300)));
    assert_eq!(ended, Ended::Signal(libc::SIGXCPU));
    if !may("who_computes_for_too_long_is_ended", Priority::RoundRobin(1)) {
        return;
    }
    let (_, ended) = run("while :; do :; done", |launch| {
        launch.priority = Priority::RoundRobin(1);
        launch.limits.real_time = Some(Duration::from_millis(200));
    });
    assert_eq!(ended, Ended::Signal(libc::SIGXCPU));
    // A real-time limit has no effect on a process outside the real-time classes.
    let (_, ended) = run("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done", |launch| {
        launch.limits.real_time = Some(Duration::from_micros(1));
    });
    assert_eq!(ended, Ended::Exit(0));
}

#[test]
fn a_group_has_its_weight_and_its_program() {
    const TEST: &str = "a_group_has_its_weight_and_its_program";
    let group = match Group::make("te/st", 300) {
        Ok(group) => Arc::new(group),
        // A machine may lack the controller, or may not let this process change control groups. That is no
        // fault of the code, not even in CI.
        Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::ReadOnlyFilesystem) => {
            return eprintln!("SKIPPED: {TEST}: {error}");
        }
        Err(error) => return skip(TEST, &error),
    };
    group.try_out().expect("programs can be put in it");
    let folder = group.folder().to_owned();
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned());
    let weight = || (read("cpu.weight"), read("cpu.shares"));
    assert!(matches!(weight(), (Some(weight), _) if weight == "300") || weight() == (None, Some("3072".to_owned())));
    group.set_weight(50).expect("ours");
    assert!(matches!(weight(), (Some(weight), _) if weight == "50") || weight() == (None, Some("512".to_owned())));

    let (output, _) = run("cat /proc/self/cgroup", |launch| launch.group = Some(group.clone()));
    let name = folder.file_name().expect("a name").to_str().expect("text");
    assert!(name.ends_with("-te_st"), "{name}");
    assert!(output.contains(name), "{output}");
    assert_eq!(run("ls /proc/$$/fd", |launch| launch.group = Some(group.clone())).0, "0\n1\n2\n");

    let (mut reader, writer) = pipe();
    let mut launch = launch("echo; exec sleep 1000", writer);
    launch.group = Some(group.clone());
    let mut process = launch.start().expect("/bin/sh");
    drop(launch);
    reader.read_exact(&mut [0]).expect("it runs");
    group.remove_if_empty().expect_err("it is in it");
    process.kill().expect("ours");
    wait(&mut process);
    // A process that has ended and was waited for stays in its group for another moment.
    let started = std::time::Instant::now();
    while let Err(error) = group.remove_if_empty() {
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "nobody is in it: {error}");
        std::thread::yield_now();
    }
    let gone = group.try_out().expect_err("it is not there any more").to_string();
    assert!(gone.contains("it cannot be put in its control group"), "{gone}");
    drop(group);
    assert!(!folder.exists(), "nothing is left");
}

#[test]
fn who_may_not_is_told_what_to_grant() {
    let refused = std::thread::spawn(|| {
        let none = rustix::thread::CapabilitySets {
            effective: rustix::thread::CapabilitySet::empty(),
            permitted: rustix::thread::CapabilitySet::empty(),
            inheritable: rustix::thread::CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, none).expect("laying capabilities down is always allowed");
        (check(Priority::Nice(19)), check(Priority::Fifo(99)).err(), check(Priority::Nice(-20)).err())
    });
    let (lower, fifo, nice) = refused.join().expect("thread");
    lower.expect("to be nice needs no leave");
    let refused = |priority| NotAllowed { priority, error: io::ErrorKind::PermissionDenied.into() }.to_string();
    let told = refused(Priority::Fifo(99));
    assert!(
        told.contains("SCHED_FIFO 99") && told.contains("CAP_SYS_NICE") && told.contains("LimitRTPRIO=99"),
        "{told}"
    );
    let told = refused(Priority::Nice(-20));
    assert!(told.contains("nice -20") && told.contains("CAP_SYS_NICE") && told.contains("LimitNICE=-20"), "{told}");
    for (resource, refused) in [(rustix::process::Resource::Rtprio, fifo), (rustix::process::Resource::Nice, nice)] {
        if rustix::process::getrlimit(resource).current != Some(0) {
            skip("who_may_not_is_told_what_to_grant", &format!("{resource:?}: limits let everybody"));
            continue;
        }
        assert_eq!(refused.expect("not allowed").error.kind(), io::ErrorKind::PermissionDenied);
    }
}

/// Runs a function on a thread without some capabilities.
fn without<T: Send + 'static>(
    dropped: rustix::thread::CapabilitySet,
    what: impl FnOnce() -> T + Send + 'static,
) -> std::thread::Result<T> {
    let thread = std::thread::spawn(move || {
        let mut sets = rustix::thread::capabilities(None).expect("ours");
        for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
            set.remove(dropped);
        }
        rustix::thread::set_capabilities(None, sets).expect("laying capabilities down is always allowed");
        what()
    });
    thread.join()
}

#[test]
fn root_that_may_drop_nothing_for_good_starts_nobody_who_can_rise() {
    const ASK: &str = "grep -E 'Cap(Prm|Eff)' /proc/self/status";
    let mut writer = pipe();
    let launched = launch(ASK, std::mem::replace(&mut writer.1, pipe().1));
    let ended = without(rustix::thread::CapabilitySet::SETPCAP, move || wait(&mut launched.start().expect("/bin/sh")));
    assert_eq!(ended.expect("thread"), Ended::Exit(0));
    let mut output = String::new();
    writer.0.read_to_string(&mut output).expect("text");
    assert_eq!(output.lines().count(), 2);
    for line in output.lines() {
        let set = u64::from_str_radix(line.split_whitespace().nth(1).expect("a set"), 16).expect("hexadecimal");
        assert_eq!(set & 1 << 23, 0, "CAP_SYS_NICE: {line}");
    }
}

#[test]
fn who_has_yet_to_become_its_program_holds_nothing_of_ours() {
    // A lease keeps the new process within execve until the lease holder lets it open the program.
    const TEST: &str = "who_has_yet_to_become_its_program_holds_nothing_of_ours";
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("program");
    // Another process copies the file, because no other process may have it open.
    assert!(std::process::Command::new("cp").arg("/bin/sh").arg(&program).status().expect("cp").success());
    let file = File::open(&program).expect("ours");
    let lease = |command, argument: i32| {
        // SAFETY: the call takes numbers only.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
    };
    const F_SETSIG: i32 = 10;
    // The lease sends a signal when a process waits for it. The default action of this signal is to be
    // ignored.
    lease(F_SETSIG, libc::SIGURG).expect("any signal will do");
    if let Err(error) = lease(libc::F_SETLEASE, libc::F_WRLCK) {
        return skip(TEST, &error);
    }
    let (mut reader, writer) = pipe();
    let mut launch = launch("echo done", writer);
    launch.program = c_path(&program).expect("no NUL");
    let (sender, thread) = std::sync::mpsc::channel();
    let starting = std::thread::spawn(move || {
        sender.send(rustix::thread::gettid()).expect("the test waits");
        let process = launch.start();
        drop(launch);
        wait(&mut process.expect("a shell"))
    });
    let thread = thread.recv().expect("a thread").as_raw_nonzero();
    let deadline = Instant::now() + PATIENCE;
    while lease(libc::F_GETLEASE, 0).expect("ours") == libc::F_WRLCK {
        assert!(Instant::now() < deadline, "the program is not opened");
        std::thread::yield_now();
    }
    let children = std::fs::read_to_string(format!("/proc/self/task/{thread}/children")).expect("CONFIG_PROC_CHILDREN");
    let held = std::fs::read_dir(format!("/proc/{}/fd", children.trim())).expect("it waits");
    let mut held: Vec<_> = held.map(|one| one.expect("an entry").file_name()).collect();
    held.sort();
    lease(libc::F_SETLEASE, libc::F_UNLCK).expect("ours");
    assert_eq!(starting.join().expect("no panic"), Ended::Exit(0));
    assert_eq!(held, ["0", "1", "2"]);
    let mut output = String::new();
    reader.read_to_string(&mut output).expect("text");
    assert_eq!(output, "done\n");
}
