//! The tables as texts, for terminal and page.

use std::collections::BTreeSet;

use chart::Table;

use super::{
    report::{BACK, Kind, Report, Row, Sums},
    stats::Settled,
};

/// The parameters of the experiment, in lines.
pub(super) fn asked(report: &Report) -> Vec<String> {
    let given = &report.given;
    let each: Vec<String> =
        given.classes.iter().zip(&given.users_each).map(|(class, users)| format!("{users} {class}")).collect();
    let silence = given.silence.map_or_else(
        || "nobody is silent".to_owned(),
        |(from, until)| format!("{} silent from {from} to {until} s", given.classes[0]),
    );
    let alone: Vec<String> = given
        .pages
        .iter()
        .filter_map(|page| {
            let alone = report.site_alone.get(page)?;
            let says =
                alone.page_s.map_or_else(|| "does not say what it took".to_owned(), |s| format!("page {}", ms(s)));
            Some(format!("{page} {} ({says})", ms(alone.took_s)))
        })
        .collect();
    let mut lines = vec![
        format!(
            "{} users, for each page {}; mean time to think {} s, patience {} s; seed {}",
            given.users,
            each.join(", "),
            given.think_s,
            given.timeout_s,
            given.seed
        ),
        format!(
            "each run {} s, the first {} s do not count; {silence}; ratios of the last {} s",
            given.seconds, given.warm_up_s, given.last_s
        ),
        format!("site {}; alone, in ms: {}", given.site, alone.join(", ")),
        "System time: from a request to its whole answer. Service time: what the page says that it took; queueing: the rest, \
         in the gateway and in the web server."
            .to_owned(),
    ];
    let since = if given.silence.is_some() { "the end of the silence" } else { "the warm-up" };
    lines.push(format!(
        "Settled: seconds from {since} to the beginning of the first window from which on each window of {} s, one beginning in \
         each second to the end of the run, holds. A window holds if requests of all classes ended in it and their mean system \
         times, each divided by the page's mean of the last {} s, are within {:.0} % of {} to each other.",
        given.window_s,
        given.last_s,
        given.tolerance * 100.0,
        ratio(&given.targets.iter().map(|&target| Some(target)).collect::<Vec<_>>())
    ));
    if given.cut.is_some() {
        lines.push(format!(
            "Back: seconds from the start of the database to the beginning of the first window of {} s with {:.0} % of the \
             answers a second from before the stop.",
            given.window_s,
            BACK * 100.0
        ));
    }
    lines
}

/// All tables in order.
pub(super) fn all(report: &Report) -> Vec<Table> {
    vec![throughput(report), times(report), pages(report), ratios(report), ends(report), cut(report), cut_ends(report)]
}

fn throughput(report: &Report) -> Table {
    let names = report.given.pages.iter().chain(&report.given.classes);
    let head =
        ["subject", "all", "over uncontrolled", "over single"].into_iter().map(str::to_owned).chain(names.cloned());
    let row = |row: &Row| {
        let over = |kind| {
            let base = report.baseline(kind).filter(|base| base.all.throughput > 0.0);
            base.map_or_else(dash, |base| format!("{:.2}×", row.all.throughput / base.all.throughput))
        };
        let rest =
            row.pages.iter().map(|page| &page.sums).chain(&row.classes).map(|sums| format!("{:.2}", sums.throughput));
        [row.label.clone(), format!("{:.2}", row.all.throughput), over(Kind::Uncontrolled), over(Kind::Single)]
            .into_iter()
            .chain(rest)
            .collect()
    };
    table(
        format!(
            "Throughput, answers a second (the paper's figure 10; published: multi 1.78× over uncontrolled, 1.58× over single){}",
            best_single(report)
        ),
        head.collect(),
        report.rows.iter().map(row).collect(),
    )
}

fn best_single(report: &Report) -> String {
    let singles = report.rows.iter().filter(|row| row.kind == Kind::Single).count();
    match report.baseline(Kind::Single) {
        Some(best) if singles > 1 => format!("; single is the best of {singles}, {}", best.label),
        _ => String::new(),
    }
}

fn times(report: &Report) -> Table {
    let classes = report.given.classes.iter().cloned();
    let head = ["subject", "system", "to uncontrolled", "to single", "queueing", "service", "running"];
    let row = |row: &Row| {
        let to = |kind| {
            let base = report.baseline(kind).and_then(|base| base.all.system_s);
            let change = base.and_then(|base| Some(row.all.system_s? / base - 1.0));
            change.map_or_else(dash, |change| format!("{:+.0} %", change * 100.0))
        };
        let Sums { service_s, queueing_s, running, .. } = &row.all;
        [
            row.label.clone(),
            system(&row.all),
            to(Kind::Uncontrolled),
            to(Kind::Single),
            optional(*queueing_s, ms),
            optional(*service_s, ms),
            optional(*running, |running| format!("{running:.1}")),
        ]
        .into_iter()
        .chain(row.classes.iter().map(system))
        .collect()
    };
    table(
        format!(
            "Mean times in ms and mean number running at the site (the paper's figures 12 and 13; published: -25 % in system time to the \
             site without control){}",
            best_single(report)
        ),
        head.into_iter().map(str::to_owned).chain(classes).collect(),
        report.rows.iter().map(row).collect(),
    )
}

fn pages(report: &Report) -> Table {
    let head = [
        "subject",
        "page",
        "window",
        "adjusted",
        "bound",
        "answers/s",
        "system",
        "queueing",
        "service",
        "running",
        "alone",
    ];
    let of_row = |row: &Row| -> Vec<Vec<String>> {
        let line = |(name, page): (&String, &super::report::PageRow)| {
            vec![
                row.label.clone(),
                name.clone(),
                page.window.map_or_else(dash, |window| window.to_string()),
                page.adjusted.map_or_else(dash, |it| format!("{:.1} ({}-{})", it.mean, it.least, it.most)),
                page.bound.clone().unwrap_or_else(dash),
                format!("{:.2}", page.sums.throughput),
                system(&page.sums),
                optional(page.sums.queueing_s, ms),
                optional(page.sums.service_s, ms),
                optional(page.sums.running, |running| format!("{running:.1}")),
                optional(page.alone.map(|alone| alone.took_s), ms),
            ]
        };
        report.given.pages.iter().zip(&row.pages).map(line).collect()
    };
    Table {
        words: &[1, 3, 4],
        ..table(
            "By page: windows and bounds as given (table 4), means as above; a single window is one for all pages"
                .to_owned(),
            head.map(str::to_owned).to_vec(),
            report.rows.iter().flat_map(of_row).collect(),
        )
    }
}

fn ratios(report: &Report) -> Table {
    let pages = report.given.pages.iter().cloned();
    let head = ["subject", "all", "published", "pages alike"].into_iter().map(str::to_owned).chain(pages);
    let head = head.chain(["settled".to_owned(), "windows that hold".to_owned()]);
    let row = |row: &Row| {
        let Settled { after_s, windows, hold } = row.settled;
        let settled =
            if windows == 0 { dash() } else { after_s.map_or_else(|| "never".to_owned(), |s| format!("{s} s")) };
        let held = if windows == 0 { dash() } else { format!("{:.1} %", 100.0 * hold as f64 / windows as f64) };
        [row.label.clone(), ratio(&row.ratios.plain), published(row).unwrap_or_else(dash), ratio(&row.ratios.alike)]
            .into_iter()
            .chain(row.ratios.pages.iter().map(|page| ratio(page)))
            .chain([settled, held])
            .collect()
    };
    table(
        format!(
            "Mean system times of the classes to each other in the last {} s (the paper's figures 7 to 9)",
            report.given.last_s
        ),
        head.collect(),
        report.rows.iter().map(row).collect(),
    )
}

/// The paper's result for a policy, for a gateway with a window for each resource.
pub(super) fn published(row: &Row) -> Option<String> {
    let value = match (row.kind, row.share.as_deref()?) {
        (Kind::Multi, "wtp") => "1:1.92:3.81",
        (Kind::Multi, "pwad") => "1:1.63:3.23",
        (Kind::Multi, "mdp") => "1:2.03:4.19",
        _ => return None,
    };
    Some(value.to_owned())
}

fn ends(report: &Report) -> Table {
    let kinds: BTreeSet<&String> = report.rows.iter().flat_map(|row| &row.ends).flat_map(|ends| ends.keys()).collect();
    let head =
        ["subject", "class", "requests"].into_iter().map(str::to_owned).chain(kinds.iter().map(|&kind| kind.clone()));
    let of_row = |row: &Row| -> Vec<Vec<String>> {
        let line = |(class, ends): (&String, &std::collections::BTreeMap<String, usize>)| {
            let count = |kind: &&String| ends.get(*kind).copied().unwrap_or(0).to_string();
            [row.label.clone(), class.clone(), ends.values().sum::<usize>().to_string()]
                .into_iter()
                .chain(kinds.iter().map(count))
                .collect()
        };
        report.given.classes.iter().zip(&row.ends).map(line).collect()
    };
    Table {
        words: &[1],
        ..table(
            "What became of the requests of the whole run; unfinished: under way at its end".to_owned(),
            head.collect(),
            report.rows.iter().flat_map(of_row).collect(),
        )
    }
}

fn cut(report: &Report) -> Table {
    let (from, until) = report.given.cut.unwrap_or_default();
    let head = ["subject", "page", "before", "during", "after", "back"].map(str::to_owned).to_vec();
    let of_row = |row: &Row| -> Vec<Vec<String>> {
        let Some(cut) = &row.cut else { return Vec::new() };
        let line = |(name, (throughput, back)): (&String, (&[f64; 3], &Option<u32>))| {
            let [before, during, after] = throughput.map(|throughput| format!("{throughput:.2}"));
            let back = back.map_or_else(|| "never".to_owned(), |back| format!("{back} s"));
            vec![row.label.clone(), name.clone(), before, during, after, back]
        };
        report.given.pages.iter().zip(cut.throughput.iter().zip(&cut.back_after_s)).map(line).collect()
    };
    Table {
        words: &[1],
        ..table(
            format!("The database stopped from {from} to {until} s: answers a second before, during and after"),
            head,
            report.rows.iter().flat_map(of_row).collect(),
        )
    }
}

fn cut_ends(report: &Report) -> Table {
    let ends = || report.rows.iter().filter_map(|row| row.cut.as_ref()).flat_map(|cut| &cut.ends);
    let kinds: BTreeSet<&String> = ends().flat_map(|ends| ends.keys()).collect();
    let head = ["subject", "part", "stopped, started"].into_iter().map(str::to_owned);
    let head = head.chain(kinds.iter().map(|&kind| kind.clone())).collect();
    let of_row = |row: &Row| -> Vec<Vec<String>> {
        let Some(cut) = &row.cut else { return Vec::new() };
        let line = |(part, ends): (&str, &std::collections::BTreeMap<String, usize>)| {
            let count = |kind: &&String| ends.get(*kind).copied().unwrap_or(0).to_string();
            let done = format!("{:.1} s, {:.1} s", cut.done.stopped_s, cut.done.started_s);
            [row.label.clone(), part.to_owned(), done].into_iter().chain(kinds.iter().map(count)).collect()
        };
        ["before", "during", "after"].into_iter().zip(&cut.ends).map(line).collect()
    };
    Table {
        words: &[1],
        ..table(
            "What became of the requests that need the database; when the commands had done".to_owned(),
            head,
            report.rows.iter().flat_map(of_row).collect(),
        )
    }
}

/// Further notes.
pub(super) fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    let silent: Vec<&str> =
        report.site_alone.iter().filter(|(_, alone)| alone.page_s.is_none()).map(|(page, _)| page.as_str()).collect();
    if !silent.is_empty() {
        notes.push(format!(
            "note: {} do not say what they took (`ms` in a line of JSON): no service time, no queueing time, and no number \
             running of them",
            silent.join(", ")
        ));
    }
    for row in &report.rows {
        if row.all.is_bound {
            notes.push(format!(
                "note: {}: ≥: users lost patience after {} s, and entered the means with these",
                row.label, report.given.timeout_s
            ));
        }
        if row.never_answered > 0 {
            notes.push(format!(
                "note: {}: {} requests were not answered within {} s after the end; the next subject may have found the site busy",
                row.label, row.never_answered, report.given.drain_s
            ));
        }
        for (reason, count) in &row.reasons {
            notes.push(format!("note: {}: {count} times: {reason}", row.label));
        }
    }
    notes
}

/// A table of the subjects' full names, where labels are shorter.
pub(super) fn subjects(report: &Report) -> Table {
    let rows = report.rows.iter().map(|row| vec![row.label.clone(), row.subject.clone()]);
    Table {
        words: &[1],
        ..table("Subjects".to_owned(), vec!["label".to_owned(), "subject".to_owned()], rows.collect())
    }
}

/// By class and page: the nine groups.
pub(super) fn groups(report: &Report) -> Table {
    let head = ["subject", "class", "page", "answers/s", "system", "queueing", "service", "running"];
    let of_row = |row: &Row| -> Vec<Vec<String>> {
        let mut lines = Vec::new();
        for (class, pages) in report.given.classes.iter().zip(&row.groups) {
            for (page, sums) in report.given.pages.iter().zip(pages) {
                lines.push(vec![
                    row.label.clone(),
                    class.clone(),
                    page.clone(),
                    format!("{:.2}", sums.throughput),
                    system(sums),
                    optional(sums.queueing_s, ms),
                    optional(sums.service_s, ms),
                    optional(sums.running, |running| format!("{running:.1}")),
                ]);
            }
        }
        lines
    };
    Table {
        words: &[1, 2],
        ..table(
            "By class and page, times in ms".to_owned(),
            head.map(str::to_owned).to_vec(),
            report.rows.iter().flat_map(of_row).collect(),
        )
    }
}

fn table(caption: String, head: Vec<String>, rows: Vec<Vec<String>>) -> Table {
    Table { caption, head, rows, words: &[] }
}

fn system(sums: &Sums) -> String {
    let sign = if sums.is_bound { "≥" } else { "" };
    optional(sums.system_s, |system_s| format!("{sign}{}", ms(system_s)))
}

/// Formatted as in the paper.
pub(super) fn ratio(classes: &[Option<f64>]) -> String {
    let written = |ratio: &Option<f64>| match ratio {
        Some(ratio) if *ratio == 1.0 => "1".to_owned(),
        Some(ratio) => format!("{ratio:.2}"),
        None => dash(),
    };
    classes.iter().map(written).collect::<Vec<_>>().join(":")
}

fn ms(seconds: f64) -> String {
    format!("{:.0}", seconds * 1e3)
}

fn optional(value: Option<f64>, written: impl Fn(f64) -> String) -> String {
    value.map_or_else(dash, written)
}

fn dash() -> String {
    "-".to_owned()
}
