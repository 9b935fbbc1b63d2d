//! The report for a terminal.

use std::fmt;

use chart::{Table, aligned, command};
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
        writeln!(f, "{}", command(&self.command))?;
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
        let times = |x: f64| format!("{x:.2}x");
        let row = |row: &Row| {
            // A mean over incomplete requests is a lower bound.
            let bound = if row.unfinished + row.errors > 0 { ">" } else { "" };
            vec![
                row.subject.clone(),
                format!("{bound}{:.2}", row.mean_ms),
                times(row.gain),
                times(row.over_ideal),
                format!("{:.2}", row.slowdown),
                times(row.slowdown_gain),
                format!("{:.2}", row.p50_ms),
                format!("{:.1}", row.p95_ms),
                format!("{:.1}", row.p99_ms),
                format!("{:.1}", row.largest_percent_ms),
                format!("{:.2}", row.largest_percent_ratio),
                format!("{:.0}", row.very_largest_ms),
                format!("{:.2}", row.very_largest_ratio),
                row.unfinished.to_string(),
                row.errors.to_string(),
            ]
        };
        let ideal = |name: &str, ideal: fn(&SequenceReport) -> &Summary| {
            let of = |value: fn(&Summary) -> f64| median(self.sequences.iter().map(|s| value(ideal(s))));
            vec![
                name.to_owned(),
                format!("{:.2}", of(|s| s.mean_ms)),
                String::new(),
                times(median(self.sequences.iter().map(|s| ideal(s).mean_ms / s.ideal_srpt.mean_ms))),
                format!("{:.2}", of(|s| s.mean_slowdown)),
                String::new(),
                format!("{:.2}", of(|s| s.p50_ms)),
                format!("{:.1}", of(|s| s.p95_ms)),
                format!("{:.1}", of(|s| s.p99_ms)),
                format!("{:.1}", of(|s| s.largest_percent_ms)),
                String::new(),
                format!("{:.0}", of(|s| s.very_largest_ms)),
            ]
        };
        let mut rows: Vec<_> = self.rows.iter().map(row).collect();
        rows.push(ideal(IDEAL, |s| &s.ideal_srpt));
        rows.push(ideal("ideal: even shares, bare link", |s| &s.ideal_ps));
        let head = [
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
        ];
        table(f, &head, rows)
    }

    fn write_costs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |row: &Row| {
            vec![
                row.subject.clone(),
                format!("{:.2}", row.wire_megabytes),
                format!("{:.1}%", row.link_use * 100.0),
                row.queue_drops.to_string(),
                row.segments_retransmitted.to_string(),
                row.syn_retransmitted.to_string(),
                row.listen_drops.to_string(),
                row.aborted_on_timeout.to_string(),
                format!("{:.0}", row.most_concurrent),
                format!("{:.0}", row.cpu_us_per_request),
            ]
        };
        let head = [
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
        ];
        table(f, &head, self.rows.iter().map(row).collect())
    }

    fn write_windows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.sequences.first().map_or(0, |s| s.windows_srpt_ms.len());
        if columns == 0 {
            return Ok(());
        }
        let changes = self.setting.rate_changes.iter().map(|(at, _)| format!("{at:.0}")).collect::<Vec<_>>().join(", ");
        writeln!(
            f,
            "mean response time in ms before, in the 10 s after, and from then on, for the change(s) at {changes} s:"
        )?;
        let head: Vec<String> = std::iter::once(String::new()).chain((1..=columns).map(|n| n.to_string())).collect();
        let line = |name: &str, windows: &[&[f64]]| {
            let value = |column| format!("{:.2}", median(windows.iter().map(|window| window[column])));
            std::iter::once(name.to_owned()).chain((0..columns).map(value)).collect::<Vec<_>>()
        };
        let of = |row: &Row| {
            let runs = self.runs.iter().filter(|run| run.subject == row.subject);
            line(&row.subject, &runs.map(|run| &run.windows_ms[..]).collect::<Vec<_>>())
        };
        let mut rows: Vec<_> = self.rows.iter().map(of).collect();
        rows.push(line(IDEAL, &self.sequences.iter().map(|s| &s.windows_srpt_ms[..]).collect::<Vec<_>>()));
        table(f, &head, rows)
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
}

const IDEAL: &str = "ideal: exact SRPT, bare link";

fn table(f: &mut fmt::Formatter<'_>, head: &[impl ToString], rows: Vec<Vec<String>>) -> fmt::Result {
    aligned(f, &Table { head: head.iter().map(ToString::to_string).collect(), rows, ..Table::default() })?;
    writeln!(f)
}

fn write_alone(f: &mut fmt::Formatter<'_>, run: &RunReport) -> fmt::Result {
    write!(f, "  alone, measured/wire ms:")?;
    for alone in &run.facts.alone {
        write!(f, "  {} B {:.2}/{:.2}", alone.size_bytes, alone.measured_ms, alone.wire_ms)?;
    }
    writeln!(f)
}
