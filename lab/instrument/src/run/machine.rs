//! Access to the machine for the runner, and its description.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::{consts::TERM_SIGNALS, flag};

use crate::{LabError, subject::Subject};

/// The command that repeats this run.
pub(crate) fn command() -> String {
    let quote = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@+%".contains(c);
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    std::env::args().map(quote).collect::<Vec<_>>().join(" ")
}

/// Kernel and processors.
pub(crate) fn machine() -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, model)| model);
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    vec![
        format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        format!("{cores} x {}", model.unwrap_or("unknown processor").trim()),
    ]
}

/// Kernel, processors, and the identity of each measured program's build.
pub(super) fn versions(subjects: &[Subject], serpent: &Path) -> Vec<String> {
    let mut versions = machine();
    for subject in subjects {
        if let Some(version) = subject.version(serpent).filter(|version| !versions.contains(version)) {
            versions.push(version);
        }
    }
    versions
}

/// Room for tens of thousands of connections on each side. A refusal by the system shows as faults of the
/// client.
pub(crate) fn raise_descriptor_limit() {
    const WANTED: u64 = 262_144;
    let limit = getrlimit(Resource::Nofile);
    let raised = |maximum| Rlimit { current: Some(WANTED), maximum };
    if limit.current.is_some_and(|current| current < WANTED) {
        let enough = limit.maximum.is_none_or(|maximum| maximum >= WANTED);
        let _ = setrlimit(Resource::Nofile, raised(if enough { limit.maximum } else { Some(WANTED) }));
    }
}

/// Makes Ctrl-C and SIGTERM set the flag; a second one ends the program at once.
///
/// # Errors
/// The system does not allow signal handlers.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>, LabError> {
    let stop = Arc::new(AtomicBool::new(false));
    for &signal in TERM_SIGNALS {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(LabError::io("cannot watch for signals"))?;
    }
    Ok(stop)
}
