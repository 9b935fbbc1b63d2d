//! Tests of reports on runs with known outcomes: those of exact PS and SRPT on a bare link, as a perfect
//! server would give.

use std::{fs, path::Path};

use chart::Kind;
use serde_json::json;
use workload::{
    ideal,
    outcome::{End, Outcome},
    pattern::Pattern,
    rate::Link,
    sequence::{LoadMatch, Recipe, Request},
    sizes::{FileSet, HeavyTail},
    stats::{interval::Bound, stretch::Matching},
    wire::WireModel,
};

mod paths;
mod simulated;
mod trust;

use super::{Comparison, Report, ReportArgs, html, run, terminal};
use crate::{
    experiment::{Changes, Experiment, Measure},
    record::{CellRecord, Facts, PacketCounts, Point, RunRecord, Simulated, SimulatedFacts},
    setting::Setting,
    store::Writer,
};

const SECONDS: f64 = 10.0;

const EXPERIMENT: &str = r#"
name = "perfect"
title = "PS against <SRPT> & the like"
source = "a paper, figure 3"
notes = "Both are exact, as `order` & others say."
subjects = ["ps", "srpt"]
seeds = [1, 2, 3]

[setting]
time.seconds = 10

[sweep]
"demand.load" = [0.5, 0.8]

[[figures]]
title = "Mean response time over load"
kind = "over-sweep"
log = true

[[figures]]
title = "Gain"
kind = "bars"
measure = "gain"

[[figures]]
title = "By size"
kind = "by-size"
log = true
points = ["load 0.8"]

[[figures]]
title = "By percentile"
kind = "by-size-percentile"
measure = "variance-ms2"
log = true
points = ["load 0.8"]

[[figures]]
title = "Over time"
kind = "over-time"
points = ["load 0.8"]

[[figures]]
title = "The server"
kind = "server-over-time"
points = ["load 0.8"]

[[figures]]
title = "Distribution"
kind = "distribution"
points = ["load 0.8"]

[[figures]]
title = "By group"
kind = "by-group"
points = ["load 0.8"]

[[figures]]
title = "Starved"
kind = "stretch"

[[figures]]
title = "First byte over time"
kind = "over-time"
measure = "first-byte-ms"
points = ["load 0.8"]

[[figures]]
title = "Of what cannot be had"
kind = "by-size"
measure = "cpu-us"

[[published]]
point = "load 0.8"
subject = "srpt"
measure = "gain"
value = [1.5, 8.0]
place = "figure 3"

[[published]]
subject = "srpt"
measure = "mean-ms"
relative-to = "ps"
value = 0.5
place = "section 5: about half of it for whatever is asked for, which is said at such length here that no line of a terminal would hold it"

[[published]]
point = "load 0.9"
subject = "ps"
measure = "mean-ms"
value = 100.0
place = "figure 4"
"#;

fn link() -> Link {
    Link::constant("10mbit".parse().unwrap())
}

fn point(load: f64) -> Point {
    let setting = format!("time.seconds = {SECONDS}\n[demand]\nkind = 'open'\nload = {load}");
    Point {
        label: format!("load {load}"),
        values: [("demand.load".to_owned(), load.to_string())].into(),
        setting: toml::from_str::<Setting>(&setting).unwrap(),
    }
}

fn record() -> RunRecord {
    let experiment: Experiment = toml::from_str(EXPERIMENT).unwrap();
    RunRecord {
        quick: true,
        flags: Vec::new(),
        command: "serpent-lab run perfect --quick".to_owned(),
        versions: vec!["Linux 6.1".to_owned(), "4 x Processor & Co".to_owned()],
        began_unix_s: 1_000_000_000,
        points: vec![point(0.5), point(0.8)],
        subjects: experiment.subjects.clone(),
        seeds: experiment.seeds.clone(),
        experiment,
        simulated: None,
        shard: None,
    }
}

fn requests(load: f64, seed: u64) -> Vec<Request> {
    let (files, pattern) = (FileSet::new(&HeavyTail::WORLD_CUP, 400), Pattern::constant(load).unwrap());
    let recipe = Recipe {
        files: &files,
        link: &link(),
        pattern: &pattern,
        duration_ns: (SECONDS * 1e9) as u64,
        wire: WireModel::PER_CONNECTION,
        load_match: LoadMatch::Sequence,
    };
    recipe.draw(seed)
}

fn outcomes(requests: &[Request], response_ns: &[f64]) -> Vec<Outcome> {
    let outcome = |(request, &response_ns): (&Request, &f64)| {
        let end_ns = request.at_ns + response_ns.round() as u64;
        Outcome {
            at_ns: request.at_ns,
            file: request.file,
            size_bytes: request.size_bytes,
            group: 0,
            attempts: 1,
            sent_ns: request.at_ns + 1000,
            first_byte_ns: Some(end_ns),
            end_ns,
            body_bytes: request.size_bytes,
            head_bytes: 250,
            end: End::Done,
        }
    };
    requests.iter().zip(response_ns).map(outcome).collect()
}

/// The outcomes of a run of subject 0 (PS) or 1 (SRPT).
fn seen(load: f64, seed: u64, subject: usize) -> Vec<Outcome> {
    let (requests, wire) = (requests(load, seed), WireModel::PER_CONNECTION);
    let ideal = if subject == 0 { ideal::ps } else { ideal::srpt };
    outcomes(&requests, &ideal(&requests, &link(), &wire))
}

fn cell(number: usize, point: usize, seed: u64, subject: usize) -> CellRecord {
    let sample = |at_s: u32| {
        json!({
            "at_s": at_s, "established": 5 + at_s, "syn_queue": 0, "accept_queue": at_s, "syn_drops": at_s,
            "listen_overflows": 0, "queue_packets": 9, "queue_drops": 0, "queue_bytes": 0, "cpu_us": 0,
            "resident_bytes": 1000,
        })
    };
    let qdisc = json!({ "bytes": 6_250_000, "packets": 9, "drops": 2, "waiting_packets": 0 });
    let facts = json!({
        "command": "the server",
        "calibration": {
            "rate_bits_per_second": 1e7, "rate_ratio": 0.99, "mean_frame_bytes": 1500.0, "congestion": "cubic",
        },
        "alone": [{ "size_bytes": 41, "measured_ms": 0.6, "least_ms": 0.5032, "wire_ms": 0.5032 }],
        "server_tcp": { "RetransSegs": 3 },
        "client_tcp": { "TCPSynRetrans": 1 },
        "qdisc": qdisc,
        "qdisc_while_sending": qdisc,
        "cpu": { "server_us": 1000, "machine_us": 1000, "stolen_us": 0 },
        "samples": [sample(0), sample(1), sample(2)],
        "connections": 10,
        "most_concurrent": 4,
        "took_s": 11.0,
        "notes": [],
    });
    CellRecord { number, point, subject, seed, facts: serde_json::from_value(facts).unwrap() }
}

/// Writes a run's folder with the cells for which `change` returns true.
fn write(dir: &Path, change: impl Fn(&mut CellRecord, &mut Vec<Outcome>) -> bool) {
    write_run(dir, record(), change);
}

fn write_run(dir: &Path, run: RunRecord, change: impl Fn(&mut CellRecord, &mut Vec<Outcome>) -> bool) {
    let writer = Writer::create(dir, run).unwrap();
    let expected: Vec<_> = writer.run().record().cells().collect();
    for of in expected {
        let mut record = cell(of.number, of.point, of.seed, of.subject);
        let mut outcomes = seen([0.5, 0.8][of.point], of.seed, of.subject);
        if change(&mut record, &mut outcomes) {
            writer.keep(&record, &outcomes).unwrap();
        }
    }
}

fn whole(dir: &Path) -> Report {
    write(dir, |_, _| true);
    Report::read(dir).unwrap()
}

#[test]
fn a_perfect_server_is_the_ideal() {
    let dir = tempfile::tempdir().unwrap();
    let report = whole(dir.path());
    assert_eq!((report.cells.len(), report.expected_cells, report.missing.len()), (12, 12, 0));
    for point in &report.points {
        let [ps, srpt] = [&point.rows[0], &point.rows[1]];
        let mean = |row: &super::Row| row.measures[&Measure::MeanMs].value;
        let ideal = |number: usize| point.ideal[number].measures[&Measure::MeanMs].value;
        assert!((mean(srpt) / ideal(0) - 1.0).abs() < 1e-6 && (mean(ps) / ideal(1) - 1.0).abs() < 1e-6);
        assert!((srpt.over_ideal.unwrap().value - 1.0).abs() < 1e-6);
        assert!(point.ideal_is_bound.is_empty());
        // Seed by seed, as logarithms.
        let of_seed = |seed: u64, subject: usize| {
            let times = seen(if point.label == "load 0.5" { 0.5 } else { 0.8 }, seed, subject);
            times.iter().map(|o| o.response_ns() as f64).sum::<f64>()
        };
        let by_hand: f64 = [1, 2, 3].map(|seed| (of_seed(seed, 0) / of_seed(seed, 1)).ln()).iter().sum::<f64>() / 3.0;
        let gain = srpt.measures[&Measure::Gain];
        assert!((gain.value / by_hand.exp() - 1.0).abs() < 1e-9, "{gain:?} {by_hand}");
        assert!(gain.interval.is_some_and(|(low, high)| low < gain.value && gain.value < high));
        assert!(!ps.measures.contains_key(&Measure::Gain), "the first subject gains nothing over itself");
        assert_eq!((gain.bound, srpt.matching), (Bound::Exact, Some(Matching::ByRequest)));
        assert!(srpt.measures[&Measure::Starved].value < 0.2 && srpt.measures[&Measure::WorstStretch].value > 1.0);
        assert!((srpt.measures[&Measure::LinkUse].value - 0.5).abs() < 1e-9);
    }
}

#[test]
fn published_values_stand_beside_ours() {
    let dir = tempfile::tempdir().unwrap();
    let report = whole(dir.path());
    let rows: Vec<(&str, bool)> = report.published.iter().map(|row| (row.point.as_str(), row.ours.is_some())).collect();
    let expected =
        [("load 0.8", true), (super::ALL_POINTS, true), ("load 0.5", true), ("load 0.8", true), ("load 0.9", false)];
    assert_eq!(rows, expected);
    let mean_of_both = (report.published[2].ours.unwrap().value * report.published[3].ours.unwrap().value).sqrt();
    let over_points = report.published[1].ours.unwrap();
    assert!((over_points.value / mean_of_both - 1.0).abs() < 1e-9, "{over_points:?}");
    // The ratio is the reciprocal of the gain, which is computed from the same pairs.
    let gain = report.points[1].rows[1].measures[&Measure::Gain].value;
    assert!((report.published[3].ours.unwrap().value * gain - 1.0).abs() < 1e-9);
}

#[test]
fn the_length_is_that_of_the_run_that_was_made() {
    let dir = tempfile::tempdir().unwrap();
    let said = |quick: bool, set: &str| {
        let set = if set.is_empty() { Vec::new() } else { vec![set.to_owned()] };
        let flags = Changes { quick, set, seeds: None, subjects: None }.flags();
        let dir = tempfile::tempdir_in(dir.path()).unwrap();
        write_run(dir.path(), RunRecord { quick, flags, ..record() }, |_, _| true);
        let report = Report::read(dir.path()).unwrap();
        let shown = terminal::Shown(&report).to_string();
        let described = report.length().contains("describes the full length");
        (report.length().split(':').next().unwrap().to_owned(), described, shown.lines().next().unwrap().to_owned())
    };
    let title = "PS against <SRPT> & the like";
    assert_eq!(said(false, ""), ("This is the full length".to_owned(), false, title.to_owned()));
    assert_eq!(said(true, ""), ("This is the short form".to_owned(), true, format!("{title} (short form)")));
    let (length, described, first) = said(false, "time.seconds=2");
    assert_eq!((&length[..], described), ("This is the full form, changed by `--set time.seconds=2`", true));
    assert!(first.contains("changed by"), "{first}");
    assert!(said(true, "time.seconds=2").0.contains("short form, changed by"));
}

#[test]
fn the_page_is_well_formed_and_has_everything() {
    let dir = tempfile::tempdir().unwrap();
    let report = whole(dir.path());
    let page = html::page(&report).unwrap();
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&page, options).unwrap();
    let all = |name: &'static str| document.descendants().filter(move |node| node.tag_name().name() == name);
    assert_eq!(all("h1").filter_map(|node| node.text()).collect::<Vec<_>>(), ["PS against <SRPT> & the like"]);
    assert_eq!(all("svg").count(), report.figures.len());
    for svg in all("svg") {
        let title = svg.children().find(|node| node.tag_name().name() == "title").unwrap();
        assert_eq!(svg.attribute("aria-labelledby"), title.attribute("id"));
        assert!(title.text().unwrap().contains("over"), "{title:?}");
    }
    for table in all("table") {
        let head = table.descendants().filter(|node| node.attribute("scope") == Some("col")).count();
        for row in table.descendants().filter(|node| node.tag_name().name() == "tr") {
            assert_eq!(row.children().filter(roxmltree::Node::is_element).count(), head, "{:?}", table.text());
        }
        assert!(table.children().any(|node| node.tag_name().name() == "caption"));
    }
    // The page is one file: it has nothing for a browser to fetch or run.
    assert!(all("script").chain(all("link")).chain(all("img")).next().is_none());
    assert!(document.descendants().all(|node| node.attribute("src").or(node.attribute("href")).is_none()));
    assert!(!page.contains("@import") && !page.contains("url("));
    let text: String = document.descendants().filter_map(|node| node.text()).collect();
    assert!(page.contains("<p>Both are exact, as <code>order</code> &amp; others say.</p>"));
    for wanted in [
        "This is the short form: 2 points and 3 seeds, ",
        "The following describes the full length.",
        "Figure 1: mean response time (ms) over load.",
        "size of the response",
        "percentile of the response's size",
        "serpent-lab run perfect --quick",
        "4 x Processor & Co",
        "1, 2, 3",
        "exact SRPT, bare link",
        "even shares (PS), bare link",
        "load 0.8",
        "published for srpt",
        "kind = \"open\"",
        "2001-09-09 01:46:40 UTC",
        "a paper, figure 3",
        "Not plotted: “Of what cannot be had”",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in the page");
    }
    assert!(!text.contains("must not be trusted") && !text.contains("NaN") && !text.contains("inf "), "{text}");
}

#[test]
fn every_kind_of_figure_is_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let report = whole(dir.path());
    let titles: Vec<&str> = report.figures.iter().map(|plot| plot.title.as_str()).collect();
    let expected = [
        "Mean response time over load",
        "Gain",
        "By size",
        "By percentile",
        "Over time",
        "The server: connections",
        "The server: queues",
        "The server: drops",
        "Distribution",
        "By group",
        "Starved",
        "Starved",
        "First byte over time",
        // No figure has the ratio of the means.
        "Published beside measured",
    ];
    assert_eq!(titles, expected);
    assert_eq!(report.not_plotted.len(), 1, "{:?}", report.not_plotted);
    let over_load = &report.figures[0];
    let kinds: Vec<Kind> = over_load.series.iter().map(|series| series.kind).collect();
    assert_eq!(kinds, [Kind::Measured(0), Kind::Measured(1), Kind::Ideal(0), Kind::Ideal(1)]);
    assert_eq!(over_load.series[0].points.iter().map(|point| point.x).collect::<Vec<_>>(), [0.5, 0.8]);
    assert!(over_load.series[0].points.iter().all(|point| point.interval.is_some()));
    let gain = &report.figures[1];
    let published = gain.series.iter().find(|series| series.kind == Kind::Published(1)).unwrap();
    assert_eq!((published.points[0].x, published.points[0].interval), (1.0, Some((1.5, 8.0))));
    let beside = &report.figures[13];
    assert_eq!(beside.y.label, "mean response time (ms) over ps's");
    let kinds: Vec<Kind> = beside.series.iter().map(|series| series.kind).collect();
    assert_eq!(kinds, [Kind::Measured(1), Kind::Published(1)]);
    assert!(beside.series[1].points.iter().all(|point| point.y == 0.5));
    assert_eq!(beside.series[0].points.len(), beside.x.categories.len());
    assert_eq!(report.figures[3].series[0].points.len(), 200);
    // Responses arrive at once here, so the first byte is the last byte. The first byte of an ideal is not
    // known.
    let (last, first) = (&report.figures[4].series, &report.figures[12].series);
    assert_eq!(first.iter().map(|series| series.kind).collect::<Vec<_>>(), [Kind::Measured(0), Kind::Measured(1)]);
    assert!(first.iter().zip(last).all(|(first, last)| first.points.len() > 5 && first.points == last.points));
    let tail = &report.figures[8].series[0].points;
    assert!(tail[0].y == 1.0 && tail.windows(2).all(|pair| pair[0].x <= pair[1].x && pair[0].y > pair[1].y));
}

#[test]
fn what_is_missing_is_said_and_the_rest_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    // The run was interrupted in the second point, after its first cell.
    write(dir.path(), |record, _| record.number <= 7);
    let report = Report::read(dir.path()).unwrap();
    assert_eq!((report.cells.len(), report.missing.len(), report.unusable.len()), (7, 5, 0));
    assert_eq!(report.missing[0].subject, "srpt");
    let text = terminal::Shown(&report).to_string();
    assert!(text.contains("INCOMPLETE: 5 of 12 measurements are missing"), "{text}");
    assert!(html::page(&report).unwrap().contains("5 of 12 measurements are missing"));
    assert_eq!(report.points[1].rows.len(), 1);
    assert!(report.points[1].rows[0].measures[&Measure::MeanMs].interval.is_none(), "one seed has no interval");

    // A run without any measurement.
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), |_, _| false);
    let report = Report::read(dir.path()).unwrap();
    assert!(terminal::Shown(&report).to_string().contains("load 0.5: not measured"));
    assert!(html::page(&report).unwrap().contains("load 0.5: not measured"));
    assert!(report.figures.is_empty() && report.not_plotted[0].contains("nothing was measured yet"));
}

#[test]
fn a_missing_first_subject_costs_the_comparison_of_its_seed_alone() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), |record, _| (record.point, record.seed, record.subject) != (0, 2, 0));
    let report = Report::read(dir.path()).unwrap();
    let srpt = &report.points[0].rows[1];
    assert_eq!((srpt.measures[&Measure::MeanMs].seeds, srpt.measures[&Measure::Gain].seeds), (3, 2));
    assert_eq!(srpt.measures[&Measure::Starved].seeds, 2);
}

#[test]
fn damaged_files_are_named_and_cost_only_themselves() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), |_, _| true);
    let cells = dir.path().join("cells");
    let cut = |name: &str, share: f64| {
        let bytes = fs::read(cells.join(name)).unwrap();
        fs::write(cells.join(name), &bytes[..(bytes.len() as f64 * share) as usize]).unwrap();
    };
    cut("0001.ndjson.zst", 0.6);
    cut("0002.json", 0.5);
    fs::remove_file(cells.join("0003.ndjson.zst")).unwrap();
    fs::write(cells.join("0004.json"), "{\"number\": 4, \"point\": \"none\"}").unwrap();
    fs::copy(cells.join("0006.json"), cells.join("0005.json")).unwrap();
    fs::write(cells.join("0006.ndjson.zst"), zstd::encode_all(&b"{\"at_ns\": true}\n"[..], 1).unwrap()).unwrap();
    let report = Report::read(dir.path()).unwrap();
    let reason = |cell: usize| {
        let found = report.unusable.iter().find(|unusable| unusable.cell == cell);
        found.map(|unusable| unusable.reason.clone()).unwrap_or_default()
    };
    for (cell, words) in [
        (1, "0001.ndjson.zst, line"),
        (2, "0002.json is cut short"),
        (3, "0003.ndjson.zst"),
        (4, "not what this version of serpent reads"),
        (5, "which is another cell of this run"),
        (6, "0006.ndjson.zst, line 1"),
    ] {
        assert!(reason(cell).contains(words), "cell {cell}: {}", reason(cell));
    }
    assert_eq!((report.cells.len(), report.missing.len()), (6, 6));
    assert!(report.points[0].rows.is_empty() && report.points[1].rows.len() == 2);
    assert!(terminal::Shown(&report).to_string().contains("NOT READ: cell 2:"));
}

#[test]
fn a_folder_that_is_no_run_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let error = || Report::read(dir.path()).unwrap_err().to_string();
    assert!(error().contains("run.json"), "{}", error());
    for (text, words) in [
        ("{\"experiment\": ", "is cut short"),
        ("{\"experiment\": 5}", "another one may have written it"),
        ("<html>", "is no JSON"),
    ] {
        fs::write(dir.path().join("run.json"), text).unwrap();
        assert!(error().contains(words), "{text}: {}", error());
    }
    assert!(Report::read(&dir.path().join("nowhere")).is_err());
}

#[test]
fn what_must_not_be_trusted_is_at_the_top() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), |record, outcomes| {
        match record.number {
            2 => record.facts.invalid.push("the bed <lost> its rate".to_owned()),
            // The requests of a saved cell were judged when the cell was made, not when it is read.
            3 => outcomes.iter_mut().for_each(|outcome| outcome.sent_ns = outcome.at_ns + 5_000_000),
            // The cell failed before a request was sent.
            4 => outcomes.clear(),
            _ => {}
        }
        true
    });
    let report = Report::read(dir.path()).unwrap();
    let invalid: Vec<String> = report.invalid().collect();
    assert_eq!(invalid.len(), 2);
    for (line, words) in invalid.iter().zip(["<lost>", "no request counts"]) {
        assert!(line.contains(words), "{line}");
    }
    let page = html::page(&report).unwrap();
    assert!(page.find("must not be trusted").unwrap() < page.find("What was asked").unwrap());
    assert!(terminal::Shown(&report).to_string().contains("srpt (1 of 3 VALID)"));
    let failed = run(args(dir.path())).unwrap();
    assert_eq!(format!("{failed:?}"), format!("{:?}", std::process::ExitCode::FAILURE));
}

#[test]
fn requests_that_never_ended_mark_every_value_they_touch() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), |record, outcomes| {
        if record.subject == 0 {
            outcomes[0].end = End::Unfinished;
            outcomes[1].end = End::TimedOut;
        }
        true
    });
    let report = Report::read(dir.path()).unwrap();
    let [ps, srpt] = [&report.points[0].rows[0], &report.points[0].rows[1]];
    assert_eq!((ps.incomplete, ps.errors, srpt.incomplete), (3, 3, 0));
    let bound = |row: &super::Row, measure| row.measures[&measure].bound;
    assert_eq!(bound(ps, Measure::MeanMs), Bound::AtLeast);
    assert_eq!(bound(srpt, Measure::MeanMs), Bound::Exact);
    assert_eq!(bound(srpt, Measure::Gain), Bound::AtLeast, "the first subject's mean is larger still");
    assert_eq!(srpt.very_largest_ratio.unwrap().bound, Bound::AtMost);
    assert_eq!(ps.measures[&Measure::Incomplete].bound, Bound::Exact);
    let text = terminal::Shown(&report).to_string();
    assert!(text.contains("≥ ") && text.contains("3 Unfinished, 3 TimedOut; mean of those that came whole"), "{text}");
}

fn args(dir: &Path) -> ReportArgs {
    ReportArgs { dirs: vec![dir.to_owned()], html: None, json: None, png: None, svg: None }
}

#[test]
fn files_are_written_where_they_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let report = whole(dir.path());
    let out = tempfile::tempdir().unwrap();
    let args = ReportArgs {
        html: Some(out.path().join("a/page.html")),
        json: Some(out.path().join("all.json")),
        svg: Some(out.path().join("plots")),
        // Only one picture is drawn, in another test, because drawing takes most of the time.
        ..args(dir.path())
    };
    run(args).unwrap();
    assert!(fs::read_to_string(out.path().join("a/page.html")).unwrap().starts_with("<!DOCTYPE html>"));
    let json: serde_json::Value = serde_json::from_slice(&fs::read(out.path().join("all.json")).unwrap()).unwrap();
    assert_eq!((&json["format"], json["cells"].as_array().unwrap().len()), (&json!(1), 12));
    let gain = &json["points"][1]["rows"][1]["measures"]["gain"];
    assert!((gain["value"].as_f64().unwrap() - report.points[1].rows[1].measures[&Measure::Gain].value).abs() < 1e-9);
    assert_eq!(fs::read_dir(out.path().join("plots")).unwrap().count(), report.figures.len());
}

#[test]
fn a_run_against_itself_does_not_differ_and_a_slower_one_does() {
    let (dir, slow) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let same = whole(dir.path());
    let again = Report::read(dir.path()).unwrap();
    let comparison = Comparison::new(&[same, again]);
    assert!(comparison.judged() > 20 && comparison.beyond() == 0 && comparison.only_in_some.is_empty());
    let differences = comparison.rows.iter().filter_map(|row| row.differences[1]);
    assert!(differences.clone().all(|difference| difference.relative == 0.0));

    // SRPT takes ten times as long there, and load 0.5 was not measured with it.
    write(slow.path(), |record, outcomes| {
        for outcome in outcomes.iter_mut().filter(|_| record.subject == 1) {
            outcome.end_ns += 9 * outcome.response_ns();
        }
        (record.point, record.subject) != (0, 1)
    });
    let comparison = Comparison::new(&[Report::read(dir.path()).unwrap(), Report::read(slow.path()).unwrap()]);
    assert_eq!(comparison.only_in_some.len(), 1, "{:?}", comparison.only_in_some);
    let of = |subject: &str, measure: Measure| {
        let found = comparison
            .rows
            .iter()
            .find(|row| row.point == "load 0.8" && row.subject == subject && row.measure == measure);
        found.unwrap().differences[1].unwrap()
    };
    assert_eq!(of("ps", Measure::MeanMs).within_interval, Some(true));
    let srpt = of("srpt", Measure::MeanMs);
    assert_eq!(srpt.within_interval, Some(false));
    assert!((srpt.ratio.unwrap().value - 10.0).abs() < 1e-6 && (srpt.relative - 9.0).abs() < 1e-6);
    let page = html::comparison(&comparison).unwrap();
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    roxmltree::Document::parse_with_options(&page, options).unwrap();
    assert!(page.contains("BEYOND") && comparison.to_string().contains("only in some"));
}
