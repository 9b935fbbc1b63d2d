//! Runs `tc`.

use std::{
    io,
    process::{Command, Output, Stdio},
};

use super::error::BandsError;

/// Runs a program of iproute2 and returns its output.
pub(super) fn run(tool: &'static str, arguments: &[&str]) -> Result<String, BandsError> {
    let command = || format!("{tool} {}", arguments.join(" "));
    let output = spawn(tool, arguments)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(refusal(command(), &output))
}

fn spawn(tool: &'static str, arguments: &[&str]) -> Result<Output, BandsError> {
    if cfg!(not(target_os = "linux")) {
        return Err(BandsError::UnsupportedSystem);
    }
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => BandsError::ToolMissing { tool },
        _ => BandsError::Kernel { command: format!("{tool} {}", arguments.join(" ")), said: error.to_string() },
    };
    // On Debian tc is in a directory that only root's PATH contains.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin:/usr/bin:/bin";
    Command::new(tool)
        .args(arguments)
        .env("PATH", path)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(failed)
}

/// The error that names the party at fault when a tool fails.
fn refusal(command: String, output: &Output) -> BandsError {
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("Operation not permitted") || said.contains("Permission denied") {
        return BandsError::NotPermitted { what: format!("run `{command}`") };
    }
    if said.contains("Cannot find device") || said.contains("does not exist") {
        let device = said.split('"').nth(1).unwrap_or_default().to_owned();
        return BandsError::NoDevice { device };
    }
    let words: Vec<&str> =
        said.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("Command failed")).collect();
    let said = if words.is_empty() { output.status.to_string() } else { words.join("; ") };
    BandsError::Kernel { command, said }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn failed(said: &str) -> BandsError {
        let status = std::process::ExitStatus::from_raw(2 << 8);
        refusal("tc x".into(), &Output { status, stdout: vec![], stderr: said.into() })
    }

    #[test]
    fn a_missing_tool_names_its_package() {
        let error = run("serpent-no-such-tool", &[]).expect_err("missing");
        assert!(matches!(error, BandsError::ToolMissing { tool: "serpent-no-such-tool" }));
        assert!(error.to_string().contains("install the package iproute2"));
    }

    #[test]
    fn who_is_at_fault_is_read_from_what_the_tool_said() {
        let error = failed("RTNETLINK answers: Operation not permitted\n");
        assert!(matches!(error, BandsError::NotPermitted { .. }), "{error}");
        for said in ["Cannot find device \"eth9\"\n", "Device \"eth9\" does not exist.\n"] {
            let error = failed(said);
            assert!(matches!(&error, BandsError::NoDevice { device } if device == "eth9"), "{error}");
        }
    }

    #[test]
    fn what_else_was_said_is_passed_on_and_silence_gives_the_status() {
        let error = failed("Error: Specified class not found.\nCommand failed -:3\n");
        assert_eq!(error.to_string(), "the kernel refused `tc x`: Error: Specified class not found.");
        assert!(failed("").to_string().contains("exit status: 2"));
    }
}
