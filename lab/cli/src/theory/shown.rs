//! Formats the results for people and for programs.

use std::fmt::{self, Write as _};

use chart::{Table, aligned, wrapped};

use super::question::{Cell, Demand, Question};

pub(super) fn as_json(cells: &[Cell]) -> String {
    // Serializing numbers and texts under fixed names cannot fail.
    serde_json::to_string_pretty(cells).map(|text| text + "\n").unwrap_or_default()
}

pub(super) fn as_text(question: &Question, cells: &[Cell], checked: bool) -> String {
    let mut out = String::new();
    let rate = question.link.first_rate();
    for (law, sizes) in question.laws.iter().enumerate() {
        let mean = sizes.sizes.mean();
        let alone = time(mean / question.bytes_per_second());
        let _ = writeln!(out, "{}: mean {}, which alone takes {alone} at {rate}", sizes.name, bytes(mean));
        if !checked {
            out +=
                "A column with a size has the mean of responses of that size; so many of the requests are smaller.\n";
        }
        for (demand, asked) in question.demands.iter().enumerate() {
            let rows = || cells.iter().filter(move |cell| cell.index.law == law && cell.index.demand == demand);
            let _ = match asked {
                Demand::Load(load) => writeln!(out, "\nload {load}"),
                Demand::Overload(pattern) => {
                    writeln!(out, "\nload {}, on average {:.3}: an approximation", pattern.name(), pattern.mean())
                }
            };
            let table = if checked { beside_simulations(rows()) } else { by_size(rows()) };
            let _ = write!(out, "{}", Aligned(&table));
        }
        out.push('\n');
    }
    if checked {
        out += &verdict(cells);
    }
    wrapped(&out)
}

/// Means of all requests, and of those of some sizes.
fn by_size<'a>(rows: impl Iterator<Item = &'a Cell> + Clone) -> Table {
    let sizes = rows.clone().next().map(|cell| &cell.by_size[..]).unwrap_or_default();
    let mut head = texts(["policy", "mean", "slowdown"]);
    head.extend(sizes.iter().map(|at| format!("{} %: {}", at.share * 100.0, bytes(at.bytes))));
    let row = |cell: &Cell| {
        let mut row = vec![cell.policy.to_owned(), time(cell.mean_s), plain(cell.slowdown)];
        row.extend(cell.by_size.iter().map(|at| time(at.response_s)));
        row
    };
    Table { head, rows: rows.map(row).collect(), ..Table::default() }
}

/// Means by theory and by simulation.
fn beside_simulations<'a>(rows: impl Iterator<Item = &'a Cell>) -> Table {
    let row = |cell: &Cell| {
        let mut row = vec![cell.policy.to_owned(), time(cell.mean_s), plain(cell.slowdown)];
        if let Some(simulated) = &cell.simulated {
            let half_width = percent(simulated.half_width_s / simulated.mean_s);
            row.push(format!("{} ± {half_width}", time(simulated.mean_s)));
            row.push(signed_percent(simulated.deviation));
            let is_outside = !simulated.within && cell.load.is_some();
            row.push(if is_outside { "outside the interval".to_owned() } else { String::new() });
        }
        row
    };
    let head = texts(["policy", "mean", "slowdown", "simulated", "deviation", ""]);
    Table { head, rows: rows.map(row).collect(), words: &[5], ..Table::default() }
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).into()
}

struct Aligned<'a>(&'a Table);

impl fmt::Display for Aligned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        aligned(f, self.0)
    }
}

/// A sentence with the largest difference, and the number of intervals that cover their closed form.
fn verdict(cells: &[Cell]) -> String {
    let checked: Vec<_> =
        cells.iter().filter_map(|cell| cell.simulated.as_ref().map(|beside| (cell, beside))).collect();
    let worst = checked.iter().max_by(|a, b| a.1.deviation.abs().total_cmp(&b.1.deviation.abs()));
    let Some((cell, beside)) = worst else { return String::new() };
    let under = match (&cell.load, &cell.overload) {
        (Some(load), _) => format!("load {load}"),
        (None, pattern) => pattern.clone().unwrap_or_default(),
    };
    let mut said = format!(
        "Largest deviation: {} ({}, {}, {under}), where the interval is ± {}.\n",
        signed_percent(beside.deviation),
        cell.policy,
        cell.sizes,
        percent(beside.half_width_s / beside.mean_s),
    );
    // An approximation differs in itself, and more seeds would not change that.
    if cell.load.is_some() {
        let within = checked.iter().filter(|(_, beside)| beside.within).count();
        let farthest = checked.iter().map(|(_, beside)| beside.deviation.abs() * beside.mean_s / beside.half_width_s);
        let _ = writeln!(
            said,
            "{within} of {} closed forms lie in the simulation's 95 % interval; {:.0} are expected to. Farthest off for its \
             interval: {:.1} times its half width.",
            checked.len(),
            0.95 * checked.len() as f64,
            farthest.fold(0.0, f64::max),
        );
    }
    said
}

/// Formats a number with three significant digits.
fn plain(value: f64) -> String {
    if !value.is_finite() {
        return "none".to_owned();
    }
    let digits = (2 - value.abs().max(1e-12).log10().floor() as i32).clamp(0, 6) as usize;
    format!("{value:.digits$}")
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{} s", plain(s)),
        s if s >= 1e-3 => format!("{} ms", plain(s * 1e3)),
        s => format!("{} us", plain(s * 1e6)),
    }
}

fn bytes(size: f64) -> String {
    match size {
        b if b >= 999_500_000.0 => format!("{} GB", plain(b / 1e9)),
        b if b >= 999_500.0 => format!("{} MB", plain(b / 1e6)),
        b if b >= 999.5 => format!("{} kB", plain(b / 1e3)),
        b => format!("{} B", plain(b)),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn signed_percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}
