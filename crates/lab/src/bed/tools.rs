//! `ip`, `tc` and sysctl, with errors that say what was tried.

use std::process::Command;

use crate::LabError;

/// Runs a program to its end.
pub(super) fn run(program: &str, args: &[&str]) -> Result<(), LabError> {
    output(program, args).map(drop)
}

/// Runs `tc` in the namespace `ns`.
pub(super) fn tc(ns: &str, args: &[&str]) -> Result<(), LabError> {
    run("tc", &[&["-n", ns], args].concat())
}

/// Runs a program to its end and gives what it printed.
pub(super) fn output(program: &str, args: &[&str]) -> Result<String, LabError> {
    let shown = || format!("`{program} {}`", args.join(" "));
    let out = Command::new(program).args(args).output().map_err(|error| {
        LabError::Machine(format!("{} cannot be run ({error}); it is part of Debian's package iproute2", shown()))
    })?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        let hint = if rustix::process::geteuid().is_root() { "" } else { " (root is needed)" };
        return Err(LabError::Machine(format!("{} failed: {}{hint}", shown(), said.trim())));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Sets a sysctl of the calling thread's network namespace; `key` with slashes.
pub(super) fn write_sysctl(key: &str, value: &str) -> Result<(), LabError> {
    std::fs::write(format!("/proc/sys/{key}"), value).map_err(LabError::io(format!("cannot set {key} to {value}")))
}
