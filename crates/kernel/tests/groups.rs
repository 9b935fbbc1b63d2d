//! Groups of several gateways below one control group. Each gateway is a process, so that this test has one of its own.
#![cfg(target_os = "linux")]

use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use serpent_kernel::process::Group;

const TEST: &str = "a_sweep_takes_away_what_is_left_over_and_nothing_of_a_gateway_in_another_namespace";
/// Says to a process of this test that it is a gateway.
const GATEWAY: &str = "SERPENT_TEST_GATEWAY";

/// Makes a group, says where, and stays until its standard input ends.
fn be_a_gateway() {
    match Group::make("test", 100) {
        Ok(group) => {
            println!("\ngroup {}", group.folder().display());
            let _ = std::io::stdin().read(&mut [0]);
        }
        Err(error) => println!("\nnone {error}"),
    }
}

/// A gateway in a process of its own; killed when it is dropped.
struct Gateway {
    process: Child,
    output: BufReader<ChildStdout>,
    group: PathBuf,
}

impl Gateway {
    /// An error says why there can be no group here.
    fn start(own_namespace: bool) -> Result<Self, String> {
        let us = std::env::current_exe().expect("a path");
        let mut command = if own_namespace {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(us);
            command
        } else {
            Command::new(us)
        };
        command.args(["--exact", TEST, "--nocapture"]).env(GATEWAY, "1");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare was there");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut gateway = Self { process, output, group: PathBuf::new() };
        loop {
            let mut line = String::new();
            if gateway.output.read_line(&mut line).expect("text") == 0 {
                return Err("it ended".to_owned());
            }
            if let Some(folder) = line.trim_end().strip_prefix("group ") {
                gateway.group = folder.into();
                return Ok(gateway);
            }
            if let Some(why) = line.strip_prefix("none ") {
                return Err(why.to_owned());
            }
        }
    }

    /// Lets it end by itself.
    fn end(mut self) -> PathBuf {
        drop(self.process.stdin.take());
        self.output.read_to_end(&mut Vec::new()).expect("a pipe");
        self.group.clone()
    }

    /// Kills it, and waits for the end of the last process that has its output. Its group stays.
    fn kill(mut self) -> PathBuf {
        self.process.kill().expect("ours");
        self.output.read_to_end(&mut Vec::new()).expect("a pipe");
        self.process.wait().expect("ours");
        self.group.clone()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_sweep_takes_away_what_is_left_over_and_nothing_of_a_gateway_in_another_namespace() {
    if std::env::var_os(GATEWAY).is_some() {
        return be_a_gateway();
    }
    let sweeps = |there: &[&Path], gone: &[&Path]| {
        let gateway = Gateway::start(false).expect("as before");
        for folder in there {
            assert!(folder.exists(), "{} is a live gateway's", folder.display());
        }
        for folder in gone {
            assert!(!folder.exists(), "{} is left over", folder.display());
        }
        gateway.kill()
    };
    // A machine without the controller, or whose control groups are of others, is no fault of ours, in CI neither.
    let outside = match Gateway::start(false) {
        Ok(gateway) => gateway,
        Err(why) => return eprintln!("SKIPPED: {TEST}: {why}"),
    };
    let can_unshare = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).status();
    if !can_unshare.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none(), "in CI {TEST} must run: no namespace can be made");
        return eprintln!("SKIPPED: {TEST}: no namespace can be made");
    }
    // Both have the process id 1 where they are, and neither sees that of the gateway outside.
    let one = Gateway::start(true).expect("as before");
    assert!(outside.group.exists(), "it lives");
    let other = Gateway::start(true).expect("a name of its own");
    assert_ne!(one.group, other.group);
    let first = sweeps(&[&outside.group, &one.group, &other.group], &[]);
    assert!(!outside.end().exists(), "it has ended by itself");
    assert!(first.exists(), "it was killed");
    let one = one.kill();
    assert!(one.exists(), "it was killed");
    let second = sweeps(&[&other.group], &[&one, &first]);
    let other = other.kill();
    let last = Gateway::start(false).expect("as before");
    assert!(!other.exists() && !second.exists(), "both are left over");
    assert!(!last.end().exists());
}
