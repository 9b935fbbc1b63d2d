//! Runs `ip`, `tc` and sysctl, with errors that name the attempted action.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use crate::LabError;

/// Runs a program to its end.
pub(super) fn run(program: &str, args: &[&str]) -> Result<(), LabError> {
    output(program, args).map(drop)
}

/// Runs `tc` in the namespace `ns`.
pub(super) fn tc(ns: &str, args: &[&str]) -> Result<(), LabError> {
    run("tc", &[&["-n", ns], args].concat())
}

/// Runs the lines of `commands` in one `ip` process in the namespace `ns`.
pub(super) fn ip_batch(ns: &str, commands: &str) -> Result<(), LabError> {
    batch("ip", ns, commands)
}

/// Runs the lines of `commands` in one `tc` process in the namespace `ns`.
pub(super) fn tc_batch(ns: &str, commands: &str) -> Result<(), LabError> {
    batch("tc", ns, commands)
}

fn batch(program: &str, ns: &str, commands: &str) -> Result<(), LabError> {
    let mut command = Command::new(program);
    command.args(["-n", ns, "-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot_run(program, &error))?;
    let mut stdin = child.stdin.take().expect("it was asked for");
    let written = stdin.write_all(commands.as_bytes());
    drop(stdin);
    let out = child.wait_with_output().map_err(|error| cannot_run(program, &error))?;
    // A program that stops at a line does not read the rest, and reports the line.
    if !out.status.success() || written.is_err() {
        let said = String::from_utf8_lossy(&out.stderr);
        let line = failed_line(&said).and_then(|number| commands.lines().nth(number - 1)).unwrap_or("-batch -");
        return Err(refused(&format!("{program} -n {ns} {line}"), &out.stderr));
    }
    Ok(())
}

/// Number of the line of a batch at which `ip` or `tc` stopped, from its message: `Command failed -:2`.
fn failed_line(said: &str) -> Option<usize> {
    let (_, after) = said.split_once("Command failed -:")?;
    after.lines().next()?.trim().parse().ok().filter(|&number| number > 0)
}

/// Runs a program to its end and returns its output.
pub(super) fn output(program: &str, args: &[&str]) -> Result<String, LabError> {
    let shown = || format!("{program} {}", args.join(" "));
    let out = Command::new(program).args(args).output().map_err(|error| cannot_run(&shown(), &error))?;
    if !out.status.success() {
        return Err(refused(&shown(), &out.stderr));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn cannot_run(shown: &str, error: &std::io::Error) -> LabError {
    LabError::Machine(format!("`{shown}` cannot be run ({error}); it is part of Debian's package iproute2"))
}

fn refused(shown: &str, said: &[u8]) -> LabError {
    let said = String::from_utf8_lossy(said);
    let hint = if rustix::process::geteuid().is_root() { "" } else { " (root is needed)" };
    LabError::Machine(format!("`{shown}` failed: {}{hint}", said.trim()))
}

/// Sets a sysctl of the calling thread's network namespace; `key` with slashes.
pub(super) fn write_sysctl(key: &str, value: &str) -> Result<(), LabError> {
    std::fs::write(format!("/proc/sys/{key}"), value).map_err(LabError::io(format!("cannot set {key} to {value}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_failed_is_found() {
        assert_eq!(failed_line("Error: Unknown tcp congestion algorithm.\nCommand failed -:12\n"), Some(12));
        assert_eq!(failed_line("Cannot open network namespace"), None);
    }
}
