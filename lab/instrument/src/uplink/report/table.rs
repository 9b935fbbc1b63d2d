//! The report for a terminal.

use std::fmt;

use workload::stats::{Summary, median};

use super::{Report, Row, RunReport, SequenceReport};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_setting(f)?;
        self.write_times(f)?;
        self.write_costs(f)?;
        self.write_windows(f)?;
        self.write_runs(f)
    }
}

impl Report {
    fn write_setting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (setting, bed) = (&self.setting, &self.setting.bed);
        writeln!(f, "{}", self.command)?;
        writeln!(f, "{}", self.versions.join(", "))?;
        write!(
            f,
            "uplink {} at the {:?}, queue of {} packets, {}, {} segment(s) a packet; load {} for {:.0} s ({:?}, {:?}), {}",
            bed.rate,
            bed.bottleneck,
            bed.queue_packets,
            bed.congestion,
            bed.gso_segments,
            setting.pattern,
            setting.seconds,
            setting.accounting,
            setting.load_match,
            if setting.keep_alive { "connections kept" } else { "a connection for each request" },
        )?;
        for (at, bits) in &setting.rate_changes {
            write!(f, ", {} Mbit/s from {at} s", *bits as f64 / 1e6)?;
        }
        writeln!(f, "\nmedians over seeds {:?}; ratios are medians of the ratios seed by seed", setting.seeds)?;
        let mean = |value: fn(&SequenceReport) -> f64| median(self.sequences.iter().map(value));
        writeln!(
            f,
            "requests {:.0}, {:.1} MB of bodies, {:.1} MB on the wire = load {:.3}; slowdown is over wire time + {:.2} ms (what the smallest request took beyond it on the idle bed)\n",
            mean(|s| s.requests as f64),
            mean(|s| s.body_bytes as f64 / 1e6),
            mean(|s| s.wire_bytes as f64 / 1e6),
            mean(|s| s.load),
            self.idle_ms,
        )
    }

    fn write_times(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.subject_width();
        writeln!(
            f,
            "{:width$} {:>9} {:>7} {:>8} {:>9} {:>7} {:>8} {:>9} {:>9} {:>9} {:>7} {:>9} {:>7} {:>7} {:>6}",
            "response times, ms",
            "mean",
            "gain",
            "/ideal",
            "slowdown",
            "gain",
            "p50",
            "p95",
            "p99",
            "top 1 %",
            "/base",
            "largest",
            "/base",
            "unfin.",
            "errors",
        )?;
        for row in &self.rows {
            // A mean over incomplete requests is a lower bound.
            let bound = if row.unfinished + row.errors > 0 { ">" } else { "" };
            writeln!(
                f,
                "{:width$} {:>9} {:>6.2}x {:>7.2}x {:>9.2} {:>6.2}x {:>8.2} {:>9.1} {:>9.1} {:>9.1} {:>7.2} {:>9.0} {:>7.2} {:>7} {:>6}",
                row.subject,
                format!("{bound}{:.2}", row.mean_ms),
                row.gain,
                row.over_ideal,
                row.slowdown,
                row.slowdown_gain,
                row.p50_ms,
                row.p95_ms,
                row.p99_ms,
                row.largest_percent_ms,
                row.largest_percent_ratio,
                row.very_largest_ms,
                row.very_largest_ratio,
                row.unfinished,
                row.errors,
            )?;
        }
        for (name, ideal) in [
            ("ideal: exact SRPT, bare link", (|s| &s.ideal_srpt) as fn(&SequenceReport) -> &Summary),
            ("ideal: even shares, bare link", |s| &s.ideal_ps),
        ] {
            let of = |value: fn(&Summary) -> f64| median(self.sequences.iter().map(|s| value(ideal(s))));
            writeln!(
                f,
                "{name:width$} {:>9.2} {:>7} {:>7.2}x {:>9.2} {:>7} {:>8.2} {:>9.1} {:>9.1} {:>9.1} {:>7} {:>9.0}",
                of(|s| s.mean_ms),
                "",
                median(self.sequences.iter().map(|s| ideal(s).mean_ms / s.ideal_srpt.mean_ms)),
                of(|s| s.mean_slowdown),
                "",
                of(|s| s.p50_ms),
                of(|s| s.p95_ms),
                of(|s| s.p99_ms),
                of(|s| s.largest_percent_ms),
                "",
                of(|s| s.very_largest_ms),
            )?;
        }
        writeln!(f)
    }

    fn write_costs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.subject_width();
        writeln!(
            f,
            "{:width$} {:>9} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>12}",
            "link and costs",
            "wire MB",
            "link use",
            "queue drop",
            "retransm.",
            "SYN retr.",
            "listen dr.",
            "aborted",
            "concurrent",
            "CPU us/requ.",
        )?;
        for row in &self.rows {
            let Row {
                queue_drops, segments_retransmitted, syn_retransmitted, listen_drops, aborted_on_timeout, ..
            } = row;
            writeln!(
                f,
                "{:width$} {:>9.2} {:>7.1}% {queue_drops:>10} {segments_retransmitted:>10} {syn_retransmitted:>10} {listen_drops:>10} {aborted_on_timeout:>10} {:>10.0} {:>12.0}",
                row.subject,
                row.wire_megabytes,
                row.link_use * 100.0,
                row.most_concurrent,
                row.cpu_us_per_request,
            )?;
        }
        writeln!(f)
    }

    fn write_windows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.sequences.first().filter(|s| !s.windows_srpt_ms.is_empty()) else { return Ok(()) };
        let width = self.subject_width();
        let changes = self.setting.rate_changes.iter().map(|(at, _)| format!("{at:.0}")).collect::<Vec<_>>().join(", ");
        writeln!(
            f,
            "mean response time in ms before, in the 10 s after, and from then on, for the change(s) at {changes} s:"
        )?;
        let columns = first.windows_srpt_ms.len();
        let line = |f: &mut fmt::Formatter<'_>, name: &str, windows: &[&[f64]]| {
            write!(f, "{name:width$}")?;
            for column in 0..columns {
                write!(f, " {:>9.2}", median(windows.iter().map(|window| window[column])))?;
            }
            writeln!(f)
        };
        for row in &self.rows {
            let runs = self.runs.iter().filter(|run| run.subject == row.subject);
            line(f, &row.subject, &runs.map(|run| &run.windows_ms[..]).collect::<Vec<_>>())?;
        }
        let ideal = self.sequences.iter().map(|s| &s.windows_srpt_ms[..]);
        line(f, "ideal: exact SRPT, bare link", &ideal.collect::<Vec<_>>())?;
        writeln!(f)
    }

    fn write_runs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for run in &self.runs {
            let facts = &run.facts;
            writeln!(
                f,
                "seed {}, {}: mean {:.2} ms, first byte {:.2} ms, late p99 {:.3} ms max {:.2} ms, head {:.0} B, calibrated {:.1}% of the rate, frames {:.0} B, {}, machine busy {:.2} cores, stolen {:.2}",
                run.seed,
                run.subject,
                run.all.mean_ms,
                run.first_byte_mean_ms,
                run.lateness_p99_ms,
                run.lateness_max_ms,
                run.head_bytes,
                facts.calibration.rate_ratio * 100.0,
                facts.calibration.mean_frame_bytes,
                facts.calibration.congestion,
                facts.cpu.machine_us as f64 / 1e6 / facts.took_s.max(1e-9),
                facts.cpu.stolen_us as f64 / 1e6 / facts.took_s.max(1e-9),
            )?;
            write_alone(f, run)?;
            if run.unfinished > 0 || !run.errors.is_empty() {
                writeln!(
                    f,
                    "  {} unfinished, errors {:?}; the mean of those that came whole is {:.2} ms",
                    run.unfinished, run.errors, run.done_mean_ms
                )?;
            }
            for note in &facts.notes {
                writeln!(f, "  note: {note}")?;
            }
            for reason in &run.invalid {
                writeln!(f, "  NOT VALID: {reason}")?;
            }
        }
        Ok(())
    }

    fn subject_width(&self) -> usize {
        self.rows.iter().map(|row| row.subject.len()).max().unwrap_or(0).max(30)
    }
}

fn write_alone(f: &mut fmt::Formatter<'_>, run: &RunReport) -> fmt::Result {
    write!(f, "  alone, measured/wire ms:")?;
    for alone in &run.facts.alone {
        write!(f, "  {} B {:.2}/{:.2}", alone.size_bytes, alone.measured_ms, alone.wire_ms)?;
    }
    writeln!(f)
}
