//! Raising this process's own threads to a real-time class. It changes the whole process, so the test has its
//! own.
#![cfg(target_os = "linux")]

use std::{ffi::CString, fmt, fs, fs::File, io::Read as _, os::fd::OwnedFd, sync::Arc};

use serpent_kernel::process::{self, Group, Launch, Limits, Priority};

const TEST: &str = "threads_go_up_and_come_down_and_programs_stay_where_they_are";

fn skip(why: &dyn fmt::Display) {
    assert!(std::env::var_os("CI").is_none(), "in CI {TEST} must run: {why}");
    eprintln!("SKIPPED: {TEST}: {why}");
}

/// Fields 40 and 41 of proc(5): rt_priority and policy.
fn scheduling(stat: &str) -> (&str, &str) {
    let mut fields = stat[stat.rfind(')').expect("a name in brackets") + 2..].trim().split(' ').skip(40 - 3);
    (fields.next().expect("a priority"), fields.next().expect("a policy"))
}

/// The scheduling that a started program reads of itself.
fn program(priority: Priority, group: Option<Arc<Group>>) -> String {
    let (mut reader, writer): (File, OwnedFd) = {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("pipe");
        (reader.into(), writer)
    };
    let null = || File::options().read(true).write(true).open("/dev/null").expect("/dev/null").into();
    let launch = Launch {
        program: c"/bin/cat".to_owned(),
        arguments: ["cat", "/proc/self/stat"].map(|word| CString::new(word).expect("no NUL")).to_vec(),
        environment: Vec::new(),
        directory: None,
        streams: [null(), writer, null()],
        priority,
        group,
        limits: Limits::default(),
    };
    let _process = launch.start().expect("/bin/cat");
    drop(launch);
    let mut seen = String::new();
    reader.read_to_string(&mut seen).expect("text");
    seen
}

#[test]
fn threads_go_up_and_come_down_and_programs_stay_where_they_are() {
    if let Err(refused) = process::check(Priority::RoundRobin(6)) {
        return skip(&refused);
    }
    let all_are = |expected: (&str, &str)| {
        for thread in fs::read_dir("/proc/self/task").expect("proc") {
            let stat = fs::read_to_string(thread.expect("an entry").path().join("stat")).expect("no thread ends");
            assert_eq!(scheduling(&stat), expected, "{stat}");
        }
    };
    // One more thread, which lives as long as the test.
    let (alive, waits) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || waits.recv());

    assert_eq!(process::raise_own_threads(5).expect("allowed"), 6);
    all_are(("6", "2"));
    assert_eq!(scheduling(&program(Priority::Inherited, None)), ("0", "0"));
    assert_eq!(scheduling(&program(Priority::Nice(3), None)), ("0", "0"));
    assert_eq!(scheduling(&program(Priority::Fifo(2), None)), ("2", "1"));
    match Group::make("raised", 200) {
        // With CONFIG_RT_GROUP_SCHED no real-time thread can enter the group.
        Ok(group) => {
            let group = Arc::new(group);
            group.try_out().expect("programs can be put in it");
            assert_eq!(scheduling(&program(Priority::Inherited, Some(group))), ("0", "0"));
        }
        Err(error)
            if matches!(error.kind(), std::io::ErrorKind::Unsupported | std::io::ErrorKind::ReadOnlyFilesystem) =>
        {
            eprintln!("SKIPPED: {TEST}, control groups: {error}");
        }
        Err(error) => skip(&error),
    }

    assert_eq!(process::raise_own_threads(3).expect("allowed"), 4);
    all_are(("4", "2"));
    process::lower_own_threads().expect("it is always allowed");
    all_are(("0", "0"));
    assert_eq!(scheduling(&program(Priority::Inherited, None)), ("0", "0"));
    drop(alive);
    let _ = other.join();
}
