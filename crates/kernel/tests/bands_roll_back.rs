//! A step of an installation fails although its trial succeeded. The test has its own process, because it
//! replaces `tc`.
#![cfg(target_os = "linux")]

mod support;

use std::{fs, os::unix::fs::PermissionsExt};

use serpent_kernel::bands::{self, BandsError, InstallOptions};
use support::{DEVICE, Testbed, description};

#[test]
fn a_failure_midway_is_undone() {
    let Some(testbed) = Testbed::new("roll back") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let path = std::env::var("PATH").expect("set");
    // Breaks the last line of a batch, but not on the loopback device of the trial.
    let script = format!(
        "#!/bin/sh\nexport PATH='{path}:/usr/sbin:/sbin'\n\
         case \"$*\" in '-batch -') sed 's/dev va parent 5e7:1 handle.*/dev va parent 5e7:1 nonsense/' | tc -batch -;;\n\
         *) exec tc \"$@\";; esac\n"
    );
    let tc = directory.path().join("tc");
    fs::write(&tc, script).expect("written");
    fs::set_permissions(&tc, fs::Permissions::from_mode(0o755)).expect("ours");
    let before = testbed.in_server(description);

    // SAFETY: this is the only test of the process, and none of its threads is running now.
    unsafe { std::env::set_var("PATH", format!("{}:{path}", directory.path().display())) };
    testbed.in_server(|| {
        let error = bands::install(&InstallOptions::new(DEVICE, 10_000_000)).expect_err("spoilt");
        let BandsError::Kernel { command, said } = &error else { panic!("{error}") };
        assert!(command.starts_with("tc qdisc add dev va parent 5e7:1 "), "the step is named: {command}");
        assert!(said.contains("kind is unknown"), "{said}");
    });
    assert_eq!(testbed.in_server(description), before);
}
