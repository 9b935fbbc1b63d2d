//! The tables of the advice as texts, shared by the terminal and the page.

use chart::Table;
use simulator::advise::{
    Advice, Policy,
    report::{PolicyPrediction, Prediction, SizeClass},
    words,
};

/// The description of a policy, where there is room for it.
pub fn described(policy: &str) -> String {
    let text = match policy {
        "fair" => "as other servers do",
        "srpt" => "fewest bytes left first",
        "srpt-guard-3" => "nobody beyond 3 x fair",
        "fsp" => "who fair would finish first",
        "las" => "least sent first",
        "srpt-bands" => "by the kernel's bands",
        _ => return policy.to_owned(),
    };
    format!("{policy}: {text}")
}

/// Response times of a prediction, policy by policy.
pub fn times(prediction: &Prediction) -> Table {
    let row = |of: &PolicyPrediction| {
        let (times, slowdown, ratio) = (of.response_ms, of.slowdown, of.mean_over_fair);
        let interval = if of.policy == Policy::Fair.name() {
            String::new()
        } else {
            format!("{} [{}, {}]", words::digits(ratio.value), words::digits(ratio.low), words::digits(ratio.high))
        };
        let mut cells = vec![of.policy.to_owned()];
        cells.extend([times.mean, times.p50, times.p95, times.p99].map(words::time));
        cells.push(interval);
        cells.extend([slowdown.mean, slowdown.p50, slowdown.p95, slowdown.p99].map(words::digits));
        cells
    };
    let head = [
        "",
        "mean",
        "p50",
        "p95",
        "p99",
        "mean/fair [95 %]",
        "slowdown",
        "slowdown p50",
        "slowdown p95",
        "slowdown p99",
    ];
    Table {
        caption: format!("Response times {}", at(prediction)),
        head: head.map(str::to_owned).to_vec(),
        rows: prediction.policies.iter().map(row).collect(),
        words: &[],
    }
}

/// Mean response times over growing load.
pub fn growth(advice: &Advice) -> Table {
    let row = |prediction: &Prediction| {
        let mut cells = vec![growth_of(prediction), format!("{:.2}", prediction.peak_load)];
        let means = prediction.policies.iter().map(|of| words::time(of.response_ms.mean));
        cells.extend(means);
        if prediction.overloaded {
            cells.push("overloaded".to_owned());
        }
        cells.resize(2 + Policy::ALL.len(), String::new());
        cells
    };
    let head = ["traffic", "peak load"].into_iter().chain(Policy::ALL.iter().map(|policy| policy.name()));
    Table {
        caption: "Mean response time, if traffic grows".to_owned(),
        head: head.map(str::to_owned).collect(),
        rows: advice.predictions.iter().map(row).collect(),
        words: &[],
    }
}

/// Gains and losses by size.
pub fn sizes(prediction: &Prediction) -> Table {
    let mut rows = Vec::new();
    if let Some(fair) = prediction.policies.first() {
        let others = &prediction.policies[1..];
        let classes = |of: &PolicyPrediction| of.by_size.iter().chain(&of.largest).copied().collect::<Vec<_>>();
        let columns: Vec<Vec<SizeClass>> = others.iter().map(classes).collect();
        let named = fair.by_size.iter().map(range).chain(fair.largest.iter().enumerate().map(largest));
        for (number, (class, name)) in classes(fair).iter().zip(named).enumerate() {
            let mut row =
                vec![name, words::percent(class.share), words::percent(class.bytes), words::time(class.fair_ms)];
            row.extend(
                columns.iter().filter_map(|column| column.get(number)).map(|class| words::digits(class.over_fair)),
            );
            rows.push(row);
        }
    }
    let head =
        ["body", "requests", "bytes", "fair"].into_iter().chain(Policy::ALL[1..].iter().map(|policy| policy.name()));
    Table {
        caption: format!("By size {}: mean under fair sharing, and as multiples of it", at(prediction)),
        head: head.map(str::to_owned).collect(),
        rows,
        words: &[],
    }
}

/// Requests that take longer than under fair sharing.
pub fn losers(prediction: &Prediction) -> Table {
    let row = |of: &PolicyPrediction| {
        let losers = of.losers;
        let worst = losers
            .worst
            .map(|worst| format!("{} x ({})", words::digits(worst.stretch()), words::bytes(worst.size_bytes as f64)));
        let latest = losers.latest.map(|latest| {
            let [response, fair] = words::times(latest.response_ms, latest.fair_ms);
            format!("{response}, not {fair} ({})", words::bytes(latest.size_bytes as f64))
        });
        let none = || "-".to_owned();
        vec![
            of.policy.to_owned(),
            words::percent(losers.share),
            if losers.share > 0.0 { words::time(losers.mean_longer_ms) } else { none() },
            worst.unwrap_or_else(none),
            latest.unwrap_or_else(none),
        ]
    };
    let head = ["", "responses that lose", "by, on average", "worst stretch", "latest"];
    Table {
        caption: format!("More than a tenth and 1 ms slower than under fair sharing {}", at(prediction)),
        head: head.map(str::to_owned).to_vec(),
        rows: prediction.policies.iter().skip(1).map(row).collect(),
        words: &[],
    }
}

/// The prediction whose sizes are shown: the highest load at which the uplink is not yet full, or today's.
pub fn shown(advice: &Advice) -> Option<&Prediction> {
    let known = || advice.predictions.iter().filter(|prediction| !prediction.overloaded);
    known().rfind(|prediction| prediction.is_not_yet_full()).or_else(|| known().next())
}

fn at(prediction: &Prediction) -> String {
    match prediction.growth {
        1.0 => format!("today (peak load {:.2})", prediction.peak_load),
        _ => format!("at {} today's traffic (peak load {:.2})", growth_of(prediction), prediction.peak_load),
    }
}

fn growth_of(prediction: &Prediction) -> String {
    if prediction.growth == 1.0 { "today".to_owned() } else { format!("x {}", words::digits(prediction.growth)) }
}

fn range(class: &SizeClass) -> String {
    match (class.from_bytes, class.below_bytes) {
        (0, _) => "none".to_owned(),
        (1, Some(below)) => format!("under {}", size(below)),
        (from, Some(below)) => format!("{} to {}", size(from), size(below)),
        (from, None) => format!("from {}", size(from)),
    }
}

fn largest((number, class): (usize, &SizeClass)) -> String {
    let name = ["largest 1 %", "largest 0.1 %", "very largest"].get(number).copied().unwrap_or_default();
    format!("{name} ({})", words::bytes(class.from_bytes as f64))
}

/// Formats a round size.
fn size(bytes: u64) -> String {
    let units = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    let unit = units.into_iter().find(|(unit, _)| bytes >= *unit);
    unit.map_or_else(|| format!("{bytes} B"), |(unit, name)| format!("{} {name}", bytes / unit))
}
