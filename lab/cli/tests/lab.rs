//! Tests of `serpent-lab run` as a program: the folder of measurements, stopping and resuming, and impossible
//! requests.

mod programs;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use instrument::{
    record::{CellRecord, RunRecord},
    store::Run,
};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;

use programs::{LAB, serpent};

/// Two servers for two seconds. Measurements may be late here, because the machine is busy with tests.
const TINY: &str = "
name = 'tiny'
title = 'Two servers for two seconds'
subjects = ['nginx', 'serpent:srpt']
seeds = [5]
[setting]
link.rate = '10mbit'
demand = { files = 40, load = 0.5 }
time = { seconds = 2, drain-s = 5 }
count.max-lateness-ms = 2000
";

/// The requests of a measurement: time, file and size of each. They do not depend on the server.
fn asked(run: &Run, number: usize) -> Vec<(u64, u32, u64)> {
    let outcomes = run.outcomes(number).unwrap().map(Result::unwrap);
    let mut asked: Vec<_> = outcomes.map(|outcome| (outcome.at_ns, outcome.file, outcome.size_bytes)).collect();
    asked.sort_unstable();
    assert!(asked.len() > 20, "{}", asked.len());
    asked
}

fn lab(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(LAB);
    command.args(args).current_dir(folder).env_remove("SERPENT_LOG");
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether a test bed can be made here. If not, the test is skipped with a message, or fails in CI.
fn can_measure(test: &str) -> bool {
    let found = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
    };
    let missing = match ["ip", "tc", "nginx"].iter().find(|program| !found(program)) {
        _ if !geteuid().is_root() => "root".to_owned(),
        Some(program) => format!("the program {program}"),
        None => {
            serpent();
            return true;
        }
    };
    assert!(std::env::var_os("CI").is_none(), "in CI {test} must run: it needs {missing}");
    eprintln!("SKIPPED: {test}: it needs {missing}");
    false
}

/// Lets one test measure at a time, because two would disturb each other.
fn alone() -> MutexGuard<'static, ()> {
    static MEASURING: Mutex<()> = Mutex::new(());
    MEASURING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_run_is_stopped_resumed_and_repeated() {
    if !can_measure("a_run_is_stopped_resumed_and_repeated") {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tiny.toml"), TINY).unwrap();

    // The run is stopped in the middle of the second measurement.
    let mut child = lab(folder.path(), &["run", "./tiny.toml", "--out", "first", "--port", "8091"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let second = lines.find(|line| line.starts_with("2 of 2"));
    assert!(second.is_some_and(|line| line.contains("left: all, seed 5, serpent:srpt")));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let said: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said:?}");
    assert!(said.iter().any(|line| line.contains("serpent-lab run --resume first")), "{said:?}");
    assert!(said.iter().any(|line| line.contains("cleaned up")), "{said:?}");
    let namespace = format!("/run/netns/serpent-lab-{}-server", child.id());
    assert!(!Path::new(&namespace).exists());

    let dir = folder.path().join("first");
    let first_kept = fs::read(dir.join("cells/0001.json")).unwrap();
    assert!(!dir.join("cells/0002.json").exists());

    // The run is resumed, and the first measurement stays as it is.
    let output = lab(folder.path(), &["run", "--resume", "first", "--port", "8091"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read(dir.join("cells/0001.json")).unwrap(), first_kept);
    let run = Run::open(&dir).unwrap();
    let cells: Vec<CellRecord> = run.cells().unwrap();
    assert_eq!(
        cells.iter().map(|cell| (cell.number, cell.seed, cell.subject)).collect::<Vec<_>>(),
        [(1, 5, 0), (2, 5, 1)]
    );
    for (cell, server) in cells.iter().zip(["nginx", "serpent"]) {
        assert!(cell.facts.command.contains(server), "{}", cell.facts.command);
        assert!(!cell.facts.alone.is_empty() && !cell.facts.samples.is_empty() && cell.facts.invalid.is_empty());
        assert!((cell.facts.calibration.rate_ratio - 1.0).abs() < 0.05);
    }
    assert!(run.record().versions.iter().any(|version| version.starts_with("Linux ")));
    assert!(run.record().command.contains("serpent-lab run ./tiny.toml --out first"), "{}", run.record().command);

    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
    let wide = |line: &&str| line.chars().count() > 80 && line.trim().contains(' ');
    assert_eq!(said.lines().find(wide), None, "{said}");

    // A second run from the file sends both servers the same requests.
    let args = ["run", "./tiny.toml", "--subjects", "serpent:srpt", "--out", "second", "--port", "8091"];
    let output = lab(folder.path(), &args).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let again = asked(&Run::open(&folder.path().join("second")).unwrap(), 1);
    assert_eq!(again, asked(&run, 1));
    assert_eq!(again, asked(&run, 2));

    // A folder holds one run.
    let output = lab(folder.path(), &args).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--resume second"), "{}", stderr(&output));
}

/// A server that cannot start makes only its own measurement invalid. The other server is measured, and a
/// resumed run has nothing left to do.
#[test]
fn a_server_that_fails_spoils_nobody_elses_measurement() {
    if !can_measure("a_server_that_fails_spoils_nobody_elses_measurement") {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("tiny.toml"),
        TINY.replace("'nginx', 'serpent:srpt'", "'cmd:false {listen}', 'serpent:srpt'"),
    )
    .unwrap();
    let output = lab(folder.path(), &["run", "./tiny.toml", "--out", "out", "--port", "8092"]).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let run = Run::open(&folder.path().join("out")).unwrap();
    let [failed, other] = &run.cells().unwrap()[..] else { panic!("{said}") };
    assert!(failed.facts.invalid[0].contains("`/bin/sh -c 'exec false"), "{:?}", failed.facts.invalid);
    assert_eq!((run.outcomes(1).unwrap().count(), other.facts.invalid.len()), (0, 0), "{:?}", other.facts.invalid);
    assert!(asked(&run, 2).len() > 20);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("nothing was measured"), "{table}");

    let output = lab(folder.path(), &["run", "--resume", "out", "--port", "8092"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(!stderr(&output).contains("1 of 2"), "{}", stderr(&output));
}

/// Runs one experiment of each paper in its short form, from the requests to the page, and shorter still. A debug
/// build on a busy machine gives no useful figures. The test checks that requests complete, and that every
/// measurement is shown.
#[test]
#[ignore = "waits for minutes: ./test runs it beside all other tests (cargo test --test lab -- --ignored)"]
fn an_experiment_of_each_paper_runs_in_its_short_form() {
    let test = "an_experiment_of_each_paper_runs_in_its_short_form";
    if !can_measure(test) {
        return;
    }
    let _alone = alone();
    let traces = std::env::var_os("SERPENT_TRACES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"), std::path::PathBuf::from);
    let with_log = traces.join("nasa-1995-08-01.log.gz").exists();
    assert!(with_log || std::env::var_os("CI").is_none(), "in CI the log of NASA must be in {}", traces.display());
    if !with_log {
        eprintln!("SKIPPED in {test}: srpt-nasa-trace: the log of NASA is not in {}", traces.display());
    }
    let folder = tempfile::tempdir().unwrap();
    // Each experiment, with how long it sends requests, and with the label of a point at which the link is full and
    // responses are missing, if it has one.
    for (name, seconds, overload) in [
        ("srpt-nasa-trace", 8, None),
        ("overload-workloads-nasa", 8, Some("W2")),
        ("wans-10mbit", 8, Some("users 400")),
        ("rates-one-client", 4, Some("requests-per-second 1000")),
    ] {
        if name == "srpt-nasa-trace" && !with_log {
            continue;
        }
        let time = format!("time.seconds={seconds}");
        let output = lab(folder.path(), &["run", name, "--quick", "--set", &time, "--out", name])
            .env("SERPENT_TRACES", &traces)
            .output()
            .unwrap();
        let said = stderr(&output);
        let run = Run::open(&folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}: {said}"));
        let cells = run.cells().unwrap();
        assert_eq!(cells.len(), run.record().cells_count(), "{name}: {said}");
        // Effects of a busy machine are marked, and they are the only reason to fail.
        let invalid: Vec<&String> = cells.iter().flat_map(|cell| &cell.facts.invalid).collect();
        assert_eq!(output.status.success(), invalid.is_empty(), "{name}: {said}");
        for reason in &invalid {
            eprintln!("{name}: not valid: {reason}");
        }
        for cell in &cells {
            let outcomes: Vec<_> = run.outcomes(cell.number).unwrap().map(Result::unwrap).collect();
            let whole = outcomes.iter().filter(|outcome| outcome.body_bytes == outcome.size_bytes).count();
            let label = run.record().points[cell.point].label.as_str();
            // Where all requests can be answered, nearly all are. A cell on a machine that was too slow is marked
            // invalid, and says nothing about how many are.
            let least = match (&*cell.facts.invalid, overload == Some(label)) {
                ([], false) => 0.95,
                ([], true) => 0.5,
                _ => 0.0,
            };
            let place = format!("{name}, {label}, measurement {}: {} of {}", cell.number, whole, outcomes.len());
            assert!(whole > 100 && whole as f64 > least * outcomes.len() as f64, "{place}");
        }
        let table = String::from_utf8(output.stdout).unwrap();
        let page = fs::read_to_string(folder.path().join(name).join("report.html")).unwrap();
        for subject in &run.record().subjects {
            assert!(table.contains(subject.as_str()) && page.contains(subject.as_str()), "{name}: {subject}");
        }
        let output = lab(folder.path(), &["report", name, "--json", "report.json"]).output().unwrap();
        let report =
            fs::read(folder.path().join("report.json")).unwrap_or_else(|_| panic!("{name}: {}", stderr(&output)));
        let report: Value = serde_json::from_slice(&report).unwrap();
        // Cells that are not valid are not plotted.
        let plots = report["figures"].as_array().unwrap().len();
        assert!(plots > 0 || !invalid.is_empty(), "{name} has no plots: {said}");
        assert!(page.matches("<svg").count() >= plots, "{name}: {plots} plots are not all on the page");
        holds_all_that_was_asked_for(&report, run.record(), invalid.is_empty());
    }

    // The page can be made again, and its plots can be written as files.
    let name = "overload-workloads-nasa";
    let args = ["report", name, "--png", "plots", "--json", "again.json"];
    let output = lab(folder.path(), &args).output().unwrap();
    let again: Value = serde_json::from_slice(&fs::read(folder.path().join("again.json")).unwrap()).unwrap();
    let plots = again["figures"].as_array().unwrap().len();
    let files = fs::read_dir(folder.path().join("plots")).map_or(0, Iterator::count);
    assert_eq!(files, plots, "{}", stderr(&output));
}

/// Checks that each figure is drawn or refused with a reason. Each published value must have its row, with
/// this run's value if both its point and its servers are in the run.
fn holds_all_that_was_asked_for(report: &Value, run: &RunRecord, valid: bool) {
    let name = &run.experiment.name;
    let list = |key: &str| report[key].as_array().unwrap_or_else(|| panic!("{name}: no {key} in the report"));
    for figure in &run.experiment.figures {
        let drawn = list("figures").iter().any(|plot| plot["title"] == figure.title.as_str());
        let named = list("not_plotted").iter().any(|line| line.as_str().unwrap().contains(&figure.title));
        assert!(drawn != named, "{name}, `{}`: drawn is {drawn}, named is {named}", figure.title);
        // Points that the short form leaves out cannot be drawn.
        let measured = |label: &String| run.points.iter().any(|point| point.label == *label);
        let of_this_run = figure.points.is_empty() || figure.points.iter().any(measured);
        assert!(drawn || !of_this_run || !valid, "{name}: `{}` is not drawn", figure.title);
    }
    let rows = list("published");
    for published in &run.experiment.published {
        let place = published.place.as_str();
        assert!(
            rows.iter().any(|row| row["place"] == place && row["subject"] == published.subject.as_str()),
            "{name}: {place}"
        );
    }
    for row in rows {
        let takes_part =
            |key: &str| row[key].as_str().is_none_or(|subject| run.subjects.iter().any(|one| one == subject));
        let measured = run.points.iter().any(|point| row["point"] == point.label.as_str());
        if valid && measured && takes_part("subject") && takes_part("relative_to") {
            assert!(row["ours"]["value"].is_number() && row["ratio"].is_number(), "{name}: nothing of ours in {row}");
        }
    }
}

#[test]
fn a_broken_experiment_is_told_with_file_key_and_what_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text, parts) in [
        ("syntax.toml", "name = ", &["syntax.toml", "line 1"][..]),
        (
            "key.toml",
            &format!("{TINY}\n[sweep]\n'link.colour' = ['red']"),
            &["point `colour red`", "`setting.link", "`rate`"],
        ),
        ("value.toml", &TINY.replace("10mbit", "10 parsecs"), &["value.toml", "setting.link.rate", "parsecs"]),
        ("subject.toml", &TINY.replace("'nginx'", "'iis'"), &["`iis` is not a subject", "apache"]),
        ("load.toml", &TINY.replace("0.5", "-1"), &["point `all`", "demand.load", "-1"]),
        ("time.toml", &TINY.replace("seconds = 2", "seconds = 0"), &["time.seconds", "above 0"]),
        ("tls.toml", &format!("{TINY}\nclients.tls = true\n[quick]\nsubjects = ['cmd:x {{dir}}']"), &["{cert}"]),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
        let quick: &[&str] = if text.contains("[quick]") { &["--quick"] } else { &[] };
        let output = lab(folder.path(), &[&["run", &format!("./{name}")], quick].concat()).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{name}: {said}");
        assert!(!folder.path().join("serpent-lab").exists(), "{name} leaves a folder");
    }
    for (args, part) in [
        (&["run", "nothing"][..], "serpent-lab list"),
        (&["run"], "NAME|FILE"),
        (&["run", "smoke", "--set", "time"], "KEY=VALUE"),
        (&["run", "smoke", "--set", "time.colour=red"], "`seconds`"),
        (&["run", "smoke", "--subjects", "iis"], "not a subject"),
        (&["run", "--resume", "."], "run.json"),
        (&["run", "--resume", ".", "--quick"], "--quick"),
    ] {
        let output = lab(folder.path(), args).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
    }
}

#[test]
fn shipped_experiments_are_listed_and_can_be_copied() {
    let folder = tempfile::tempdir().unwrap();
    let list = lab(folder.path(), &["list"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.lines().any(|line| line.starts_with("smoke ")), "{list}");
    let shown = lab(folder.path(), &["show", "smoke"]).output().unwrap();
    assert!(shown.status.success());
    let copy = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(instrument::experiment::Experiment::parse("copy", &copy).unwrap().name, "smoke");
    let shown = lab(folder.path(), &["show", "smok"]).output().unwrap();
    assert_eq!(shown.status.code(), Some(2));
    assert!(stderr(&shown).contains("smoke"), "{}", stderr(&shown));
}
