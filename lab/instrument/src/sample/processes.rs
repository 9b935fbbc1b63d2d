//! Processor time and memory of the server's processes, from `/proc`.

use std::{collections::BTreeMap, fs, io};

use kernel::netns::NetNs;
use rustix::param::page_size;

use crate::bed::{TICK_US, process_ticks};

/// The processes of one namespace.
#[derive(Debug)]
pub(super) struct Processes {
    ns: NetNs,
    /// Processor time by process. Ended processes keep theirs, so that the sum never falls.
    ticks: BTreeMap<u32, u64>,
}

/// Resources in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// Processor time in user and kernel mode, in microseconds, of all processes seen so far.
    pub(super) cpu_us: u64,
    /// Resident memory, in bytes. Shared memory counts for each process.
    pub(super) resident_bytes: u64,
}

impl Processes {
    /// The processes in `ns`.
    pub(super) fn of(ns: NetNs) -> Self {
        Self { ns, ticks: BTreeMap::new() }
    }

    /// The current use.
    pub(super) fn used(&mut self) -> io::Result<Used> {
        let mut resident_bytes = 0;
        for pid in self.pids()? {
            // A process may end during the listing; then it adds nothing.
            let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
            let Some(ticks) = read("stat").and_then(|stat| process_ticks(&stat)) else { continue };
            self.ticks.insert(pid, ticks);
            resident_bytes += read("statm").and_then(|statm| resident_pages(&statm)).unwrap_or(0) * page_size() as u64;
        }
        Ok(Used { cpu_us: self.ticks.values().sum::<u64>() * TICK_US, resident_bytes })
    }

    /// Ids of the processes. A thread of this process may be in the namespace for a moment; it is not the
    /// server.
    pub(super) fn pids(&self) -> io::Result<Vec<u32>> {
        let mut pids = self.ns.processes()?;
        pids.retain(|&pid| pid != std::process::id());
        Ok(pids)
    }
}

/// The second field of `/proc/PID/statm`.
fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_the_second_number() {
        assert_eq!(resident_pages("5303 1250 810 12 0 900 0\n"), Some(1250));
        assert_eq!((resident_pages("5303"), resident_pages("a b")), (None, None));
    }

    #[test]
    fn time_of_a_process_that_has_ended_is_kept() {
        let mut processes = Processes::of(NetNs::current().unwrap());
        // No process has this id: the limit is below it.
        processes.ticks.insert(u32::MAX, 7);
        let used = processes.used().unwrap();
        assert!(used.cpu_us >= 7 * TICK_US, "{used:?}");
        assert!(!processes.pids().unwrap().contains(&std::process::id()), "the instrument is not the server");
    }
}
