//! `serpent lab run` as people use it: a folder with all that was measured, stopped and resumed, and asked for the impossible.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use lab::{record::CellRecord, store::Run};
use rustix::process::{Pid, Signal, geteuid, kill_process};

/// Two servers for two seconds. What is measured may be late here: the machine that tests is busy.
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

/// What was asked for in a measurement, whoever was asked: moment, file and size of each request.
fn asked(run: &Run, number: usize) -> Vec<(u64, u32, u64)> {
    let outcomes = run.outcomes(number).unwrap().map(Result::unwrap);
    let mut asked: Vec<_> = outcomes.map(|outcome| (outcome.at_ns, outcome.file, outcome.size_bytes)).collect();
    asked.sort_unstable();
    assert!(asked.len() > 20, "{}", asked.len());
    asked
}

fn serpent(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serpent"));
    command.args(args).current_dir(folder).env_remove("SERPENT_LOG");
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether a bed can be made here; if not it is said loudly, and in CI that is a failure.
fn can_measure(test: &str) -> bool {
    let found = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
    };
    let missing = match ["ip", "tc", "nginx"].iter().find(|program| !found(program)) {
        _ if !geteuid().is_root() => "root".to_owned(),
        Some(program) => format!("the program {program}"),
        None => return true,
    };
    assert!(std::env::var_os("CI").is_none(), "in CI {test} must run: it needs {missing}");
    eprintln!("SKIPPED: {test}: it needs {missing}");
    false
}

/// One measures at a time: two would disturb each other.
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

    // Stopped in the middle of the second measurement.
    let mut child = serpent(folder.path(), &["lab", "run", "./tiny.toml", "--out", "first", "--port", "8091"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let second = lines.find(|line| line.starts_with("2 of 2"));
    assert!(second.is_some_and(|line| line.contains("left: all, seed 5, serpent:srpt")));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let said: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said:?}");
    assert!(said.iter().any(|line| line.contains("serpent lab run --resume first")), "{said:?}");
    assert!(said.iter().any(|line| line.contains("cleaned up")), "{said:?}");
    let namespace = format!("/run/netns/serpent-lab-{}-server", child.id());
    assert!(!Path::new(&namespace).exists());

    let dir = folder.path().join("first");
    let first_kept = fs::read(dir.join("cells/0001.json")).unwrap();
    assert!(!dir.join("cells/0002.json").exists());

    // Resumed: the first measurement stays as it is.
    let output = serpent(folder.path(), &["lab", "run", "--resume", "first", "--port", "8091"]).output().unwrap();
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
    assert!(run.record().command.contains("lab run ./tiny.toml --out first"), "{}", run.record().command);

    // Once more from the file: the same requests, of both servers.
    let args = ["lab", "run", "./tiny.toml", "--subjects", "serpent:srpt", "--out", "second", "--port", "8091"];
    let output = serpent(folder.path(), &args).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let again = asked(&Run::open(&folder.path().join("second")).unwrap(), 1);
    assert_eq!(again, asked(&run, 1));
    assert_eq!(again, asked(&run, 2));

    // A folder holds one run.
    let output = serpent(folder.path(), &args).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--resume second"), "{}", stderr(&output));
}

/// One experiment of each paper in its short form, from the requests to the page. What is measured beside a compiler and by a
/// debug build is no figure: whether all of it is there is what this holds.
#[test]
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
    for name in ["srpt-nasa-trace", "overload-workloads-nasa", "wans-10mbit", "rates-one-client"] {
        if name == "srpt-nasa-trace" && !with_log {
            continue;
        }
        let output = serpent(folder.path(), &["lab", "run", name, "--quick", "--out", name])
            .env("SERPENT_TRACES", &traces)
            .output()
            .unwrap();
        let said = stderr(&output);
        let run = Run::open(&folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}: {said}"));
        let cells = run.cells().unwrap();
        assert_eq!(cells.len(), run.record().cells_count(), "{name}: {said}");
        // What a busy machine makes of it is marked, and the only reason to fail.
        let invalid: Vec<&String> = cells.iter().flat_map(|cell| &cell.facts.invalid).collect();
        assert_eq!(output.status.success(), invalid.is_empty(), "{name}: {said}");
        for reason in &invalid {
            eprintln!("{name}: not valid: {reason}");
        }
        for cell in &cells {
            let outcomes: Vec<_> = run.outcomes(cell.number).unwrap().map(Result::unwrap).collect();
            let whole = outcomes.iter().filter(|outcome| outcome.body_bytes == outcome.size_bytes).count();
            assert!(whole > 100 && whole * 2 > outcomes.len(), "{name}: {whole} of {}", outcomes.len());
        }
        let table = String::from_utf8(output.stdout).unwrap();
        let page = fs::read_to_string(folder.path().join(name).join("report.html")).unwrap();
        for subject in &run.record().subjects {
            assert!(table.contains(subject.as_str()) && page.contains(subject.as_str()), "{name}: {subject}");
        }
        assert!(page.contains("<svg") && page.contains("ublished"), "{name} has its plots and the paper's figures");
    }

    // The page can be made again, and its plots as files.
    let name = "overload-workloads-nasa";
    let output = serpent(folder.path(), &["lab", "report", name, "--png", "plots"]).output().unwrap();
    assert!(fs::read_dir(folder.path().join("plots")).unwrap().count() > 0, "{}", stderr(&output));
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
        let output = serpent(folder.path(), &[&["lab", "run", &format!("./{name}")], quick].concat()).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{name}: {said}");
        assert!(!folder.path().join("serpent-lab").exists(), "{name} leaves a folder");
    }
    for (args, part) in [
        (&["lab", "run", "nothing"][..], "serpent lab list"),
        (&["lab", "run"], "NAME|FILE"),
        (&["lab", "run", "smoke", "--set", "time"], "KEY=VALUE"),
        (&["lab", "run", "smoke", "--set", "time.colour=red"], "`seconds`"),
        (&["lab", "run", "smoke", "--subjects", "iis"], "not a subject"),
        (&["lab", "run", "--resume", "."], "run.json"),
        (&["lab", "run", "--resume", ".", "--quick"], "--quick"),
    ] {
        let output = serpent(folder.path(), args).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
    }
}

#[test]
fn shipped_experiments_are_listed_and_can_be_copied() {
    let folder = tempfile::tempdir().unwrap();
    let list = serpent(folder.path(), &["lab", "list"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.lines().any(|line| line.starts_with("smoke ")), "{list}");
    let shown = serpent(folder.path(), &["lab", "show", "smoke"]).output().unwrap();
    assert!(shown.status.success());
    let copy = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(lab::experiment::Experiment::parse("copy", &copy).unwrap().name, "smoke");
    let shown = serpent(folder.path(), &["lab", "show", "smok"]).output().unwrap();
    assert_eq!(shown.status.code(), Some(2));
    assert!(stderr(&shown).contains("smoke"), "{}", stderr(&shown));
}
