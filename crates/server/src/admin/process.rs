//! The resources that the process uses, under the names that Prometheus has for every program.

use std::{
    fmt, fs,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

/// One reading. A value that the system does not tell is left out.
#[derive(Debug)]
pub(super) struct Process {
    start_time_s: f64,
    cpu_s: Option<f64>,
    resident_bytes: Option<u64>,
    virtual_bytes: Option<u64>,
    open_files: Option<u64>,
    most_files: Option<u64>,
}

impl Process {
    /// Reads it from the kernel (proc(5)); no disk is asked.
    pub(super) fn take(started: SystemTime) -> Self {
        let stat = fs::read_to_string("/proc/self/stat").ok();
        let statm = fs::read_to_string("/proc/self/statm").ok();
        let pages =
            |at: usize| Some(statm.as_ref()?.split(' ').nth(at)?.trim().parse::<u64>().ok()? * page_size() as u64);
        Self {
            start_time_s: started.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
            cpu_s: stat.as_deref().and_then(cpu_ticks).map(|ticks| ticks as f64 / clock_ticks_per_second() as f64),
            resident_bytes: pages(1),
            virtual_bytes: pages(0),
            // Without the one that lists them.
            open_files: fs::read_dir("/proc/self/fd").ok().map(|files| (files.count() as u64).saturating_sub(1)),
            most_files: getrlimit(Resource::Nofile).current,
        }
    }
}

/// The time in user and in kernel mode of a line of `/proc/PID/stat`. The name of the program may have spaces and brackets.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(") ")?;
    let mut fields = behind_name.split(' ').skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if let Some(cpu_s) = self.cpu_s {
            let help = "Time of processors used, in seconds";
            ConstCounter::new(cpu_s).encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                help,
                None,
                MetricType::Counter,
            )?)?;
        }
        let gauges = [
            ("process_resident_memory_bytes", "Memory in use, in bytes", self.resident_bytes),
            ("process_virtual_memory_bytes", "Addresses in use, in bytes", self.virtual_bytes),
            ("process_open_fds", "Open files and sockets", self.open_files),
            ("process_max_fds", "Open files and sockets that the system allows", self.most_files),
        ];
        for (name, help, value) in gauges {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let gauge = ConstGauge::new(self.start_time_s);
        let help = "When this process started, in seconds since 1970";
        gauge.encode(encoder.encode_descriptor("process_start_time_seconds", help, None, MetricType::Gauge)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_hides_no_time() {
        let behind = "S 1 2 3 4 5 6 7 8 9 10 700 30 0 0 20 0 4";
        assert_eq!(cpu_ticks(&format!("12 (serpent) {behind}")), Some(730));
        assert_eq!(cpu_ticks(&format!("12 (a) R (b) {behind}")), Some(730));
        assert_eq!(cpu_ticks("12 (serpent) S 1"), None);
    }
}
