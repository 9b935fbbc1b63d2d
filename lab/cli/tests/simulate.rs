//! Tests of `serpent-lab simulate` as a program: a folder like that of a measurement, equal results from
//! equal seeds, stopping and resuming, and impossible requests.

mod programs;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use instrument::{
    experiment::{Experiment, SHIPPED},
    plan::{Inputs, Plan},
    store::Run,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use workload::outcome::{End, Outcome};

use programs::{LAB, serpent};

const TINY: &str = "
name = 'tiny'
title = 'Two servers for half a minute'
subjects = ['nginx', 'serpent:srpt']
seeds = [5, 6]
[setting]
link.rate = '10mbit'
demand = { files = 40, load = 0.8 }
time = { seconds = 30, drain-s = 30 }
[sweep]
'demand.load' = [0.6, 0.8]
[[figures]]
title = 'Over load'
kind = 'over-sweep'
[[published]]
subject = 'serpent:srpt'
measure = 'gain'
value = 3.0
place = 'nowhere'
";

fn lab(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(LAB);
    command.args(args).current_dir(folder).env_remove("SERPENT_LOG");
    command
}

fn run(folder: &Path, args: &[&str]) -> String {
    let output = lab(folder, args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A folder with the tiny experiment in it.
fn tiny() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    folder
}

fn outcomes(run: &Run, number: usize) -> Vec<Outcome> {
    run.outcomes(number).unwrap().map(Result::unwrap).collect()
}

fn report(folder: &Path, dir: &str) -> Value {
    run(folder, &["report", dir, "--json", "report.json", "--html", "report.html", "--svg", "plots"]);
    serde_json::from_str(&fs::read_to_string(folder.join("report.json")).unwrap()).unwrap()
}

#[test]
fn a_simulation_is_reported_as_a_measurement_is_and_says_what_it_is() {
    let folder = tiny();
    let table = run(folder.path(), &["simulate", "./tiny.toml", "--model", "bare", "--out", "bare"]);
    for part in ["SIMULATED: bare link", "load 0.6: ", "load 0.8: ", "serpent:srpt", "Published beside simulated"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(!table.contains("CPU") && !table.contains("NOT VALID"), "{table}");

    // A measured server gets these requests from the same seeds.
    let dir = Run::open(&folder.path().join("bare")).unwrap();
    assert_eq!(dir.cells().unwrap().len(), 8);
    let experiment = Experiment::find(folder.path().join("tiny.toml").to_str().unwrap()).unwrap();
    let plan = Plan::new(&experiment.points().unwrap()[1].setting, &mut Inputs::default()).unwrap();
    let asked: Vec<_> = plan.requests(6).unwrap().unwrap().iter().map(|r| (r.at_ns, r.file, r.size_bytes)).collect();
    for number in [7, 8] {
        let cell = dir.cell(number).unwrap();
        assert_eq!((cell.point, cell.seed, cell.subject), (1, 6, number - 7));
        assert!(cell.facts.simulated.is_some() && cell.facts.invalid.is_empty() && !cell.facts.alone.is_empty());
        let outcomes = outcomes(&dir, number);
        assert_eq!(outcomes.iter().map(|o| (o.at_ns, o.file, o.size_bytes)).collect::<Vec<_>>(), asked);
        assert!(outcomes.iter().all(|outcome| outcome.end == End::Done && outcome.first_byte_ns.is_some()));
    }

    // A bare link is the ideal of the reports.
    let report = report(folder.path(), "bare");
    assert_eq!(report["simulated"]["model"], "bare");
    for point in report["points"].as_array().unwrap() {
        for (row, ideal) in [(1, 0), (0, 1)] {
            let mean = |of: &Value| of["measures"]["mean-ms"]["value"].as_f64().unwrap();
            let (ours, ideal) = (mean(&point["rows"][row]), mean(&point["ideal"][ideal]));
            assert!((ours / ideal - 1.0).abs() < 1e-3, "{ours} {ideal}");
        }
        let load = point["load"].as_f64().unwrap();
        let link_use = point["rows"][0]["measures"]["link-use"]["value"].as_f64().unwrap();
        assert!((0.9 * load..=load).contains(&link_use), "{link_use} of {load}");
    }
    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("Simulated: bare link") && page.contains("nginx, simulated"));
    assert!(fs::read_dir(folder.path().join("plots")).unwrap().count() >= 1);

    // Two models beside each other.
    run(folder.path(), &["simulate", "./tiny.toml", "--model", "paced", "--seeds", "5-6", "--out", "paced"]);
    let compared = run(folder.path(), &["compare", "bare", "paced"]);
    for part in ["1: bare", "SIMULATED: bare link", "SIMULATED: pacer", "load 0.8, serpent:srpt", "run 2, simulated"] {
        assert!(compared.contains(part), "{part}: {compared}");
    }
}

#[test]
fn the_same_command_gives_the_same_to_the_last_byte() {
    let folder = tiny();
    for model in ["packets", "bare", "bands", "paced=1.05"] {
        let read = |out: &str, jobs: &str| {
            run(
                folder.path(),
                &[
                    "simulate",
                    "./tiny.toml",
                    "--model",
                    model,
                    "--set",
                    "time.seconds=20",
                    "--jobs",
                    jobs,
                    "--out",
                    out,
                ],
            );
            let run = Run::open(&folder.path().join(out)).unwrap();
            let facts = |cell: &instrument::record::CellRecord| serde_json::to_value(&cell.facts).unwrap();
            (1..=8).map(|number| (outcomes(&run, number), facts(&run.cell(number).unwrap()))).collect::<Vec<_>>()
        };
        let (first, second) = (read(&format!("{model}-1"), "1"), read(&format!("{model}-2"), "4"));
        assert_eq!(first, second, "{model}");
    }
}

#[test]
fn flags_alone_describe_an_experiment() {
    let folder = tempfile::tempdir().unwrap();
    let flags = "simulate --sizes world-cup --load 0.5,0.9 --orders fair,srpt,fsp --rate 10mbit --seconds 30 --seeds 1-2 --model bare";
    let args: Vec<&str> = flags.split(' ').chain(["--out", "out"]).collect();
    let output = lab(folder.path(), &args).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("12 simulations, seeds 1, 2, bare link") && said.contains("12 of 12 done"), "{said}");
    let report = report(folder.path(), "out");
    let gain =
        |point: usize, row: usize| report["points"][point]["rows"][row]["measures"]["gain"]["value"].as_f64().unwrap();
    assert!(gain(1, 1) > gain(0, 1) && gain(0, 1) > 1.0 && gain(0, 2) > 1.0);
    assert_eq!(report["points"][1]["label"], "load 0.9");
    assert_eq!(report["figures"].as_array().unwrap().len(), 5, "three over the load, and one by size for each load");
}

#[test]
fn users_sessions_patience_and_changing_rates_are_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, setting: &str| {
        let text = format!(
            "name = '{name}'\ntitle = 'x'\nsubjects = ['nginx', 'serpent:srpt', 'serpent:las,guard=5']\nseeds = [1]\n[setting]\n{setting}"
        );
        fs::write(folder.path().join(format!("{name}.toml")), text).unwrap();
        run(folder.path(), &["simulate", &format!("./{name}.toml"), "--model", "bare", "--out", name]);
        let run = Run::open(&folder.path().join(name)).unwrap();
        [1, 2].map(|number| outcomes(&run, number))
    };
    let [fair, srpt] = of(
        "users",
        "demand = { kind = 'users', users = 60, files = 100 }\ntime = { seconds = 60, drain-s = 20 }\n\
         groups = [{ name = 'a' }, { name = 'b', share = 2 }]",
    );
    let moments = |outcomes: &[Outcome]| outcomes.iter().map(|outcome| outcome.at_ns).collect::<Vec<_>>();
    assert!(fair.len() > 200 && moments(&fair) != moments(&srpt), "whoever is answered sooner asks sooner");
    assert!(fair.iter().all(|outcome| outcome.at_ns <= 60_000_000_000), "nobody asks after the end");
    assert!([0, 1].iter().all(|&group| srpt.iter().any(|outcome| outcome.group == group)));
    let [sessions, _] = of(
        "sessions",
        "demand = { kind = 'sessions', files = 100, requests-per-session = 5, think-s = 0.5, load = 0.6 }\ntime.seconds = 60",
    );
    assert!(sessions.len() > 200);
    // A load of twice the link's capacity, and clients who give up.
    let [fair, srpt] = of(
        "patience",
        "demand = { files = 100, load = 2.0 }\nclients = { abort-after-s = 2, retries = 1 }\ntime = { seconds = 30, drain-s = 10 }",
    );
    let count = |outcomes: &[Outcome], end: End| outcomes.iter().filter(|outcome| outcome.end == end).count();
    assert!(count(&fair, End::Aborted) > count(&srpt, End::Aborted) && count(&srpt, End::Aborted) > 0);
    let aborted = fair.iter().find(|outcome| outcome.end == End::Aborted).unwrap();
    assert_eq!((aborted.attempts, aborted.end_ns - aborted.at_ns), (2, 4_000_000_000));
    // The requests stay the same when the link becomes slow.
    let [changing, _] = of(
        "changing",
        "demand = { files = 100, requests-per-second = 100 }\nlink.rate-changes = [[20, '1mbit']]\ntime = { seconds = 40, drain-s = 1 }",
    );
    let late = |from_s: u64, to_s: u64| {
        let of: Vec<u64> = changing
            .iter()
            .filter(|o| (from_s..to_s).contains(&(o.at_ns / 1_000_000_000)))
            .map(Outcome::response_ns)
            .collect();
        of.iter().sum::<u64>() / of.len() as u64
    };
    assert!(late(25, 35) > 20 * late(5, 15), "{} {}", late(25, 35), late(5, 15));
    assert!(count(&changing, End::Unfinished) > 100);
}

/// The configuration file of a subject is read by the program `serpent`.
#[test]
fn a_subject_with_a_file_is_simulated_as_serpent_reads_the_file() {
    let folder = tiny();
    fs::write(folder.path().join("half.toml"), "[uplink]\nutilisation = 0.5\n").unwrap();
    let simulate = |file: &str, out: &str| {
        let subjects = format!("serpent:srpt,serpent:srpt,config={file}");
        let args = ["simulate", "--load", "0.3", "--seconds", "60", "--model", "paced", "--seeds", "5", "--out", out];
        let mut command = lab(folder.path(), &args);
        command.args(["--subjects", &subjects, "--serpent"]).arg(serpent()).output().unwrap()
    };
    let output = simulate("half.toml", "out");
    assert!(output.status.success(), "{}", stderr(&output));
    let run = Run::open(&folder.path().join("out")).unwrap();
    let waited =
        |number| outcomes(&run, number).iter().map(|outcome| outcome.end_ns - outcome.at_ns).sum::<u64>() as f64;
    assert!(waited(2) > 1.5 * waited(1), "at half the rate: {} {}", waited(2), waited(1));

    fs::write(folder.path().join("half.toml"), "[uplink]\nutilisation = 50\n").unwrap();
    let output = simulate("half.toml", "wrong");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("half.toml:2:15") && stderr(&output).contains("is not a share"),
        "{}",
        stderr(&output)
    );
    assert!(!folder.path().join("wrong").exists());
}

#[test]
fn a_simulation_is_stopped_and_resumed() {
    let folder = tiny();
    let args = [
        "simulate",
        "./tiny.toml",
        "--model",
        "bare",
        "--seeds",
        "1-50",
        "--set",
        "time.seconds=8",
        "--jobs",
        "2",
        "--out",
        "out",
    ];
    let mut child = lab(folder.path(), &args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let (mut lines, mut said) = (BufReader::new(child.stderr.take().unwrap()), String::new());
    // The progress is printed after a simulation has been saved.
    while !said.contains(" of 200 done") {
        assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    lines.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("what was simulated is kept; `serpent-lab simulate --resume out` goes on"), "{said}");
    let cells = folder.path().join("out/cells");
    let kept = || -> Vec<PathBuf> {
        let entries = fs::read_dir(&cells).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "json")).collect()
    };
    let before = kept();
    assert!((1..200).contains(&before.len()), "{}", before.len());
    let first = fs::read(&before[0]).unwrap();

    let table = run(folder.path(), &["simulate", "--resume", "out"]);
    assert!(table.contains("SIMULATED") && !table.contains("INCOMPLETE"), "{table}");
    assert_eq!((kept().len(), fs::read(&before[0]).unwrap()), (200, first));
}

#[test]
fn what_cannot_be_simulated_is_refused_and_leaves_nothing() {
    let folder = tiny();
    run(
        folder.path(),
        &["simulate", "./tiny.toml", "--model", "bare", "--set", "time.seconds=1", "--out", "simulated"],
    );
    // A folder with the same content as a measured run.
    let measured = folder.path().join("measured");
    fs::create_dir_all(measured.join("cells")).unwrap();
    let text = fs::read_to_string(folder.path().join("simulated/run.json")).unwrap();
    let mut record: Value = serde_json::from_str(&text).unwrap();
    record.as_object_mut().unwrap().remove("simulated").unwrap();
    fs::write(measured.join("run.json"), record.to_string()).unwrap();
    let broken = TINY.replace("'nginx'", "'cmd:caddy {listen}'");
    fs::write(folder.path().join("command.toml"), broken).unwrap();
    for (args, part) in [
        (&["simulate", "nothing"][..], "serpent-lab list"),
        (&["simulate", "./command.toml"], "`cmd:caddy {listen}` cannot be simulated"),
        (&["simulate", "./tiny.toml", "--subjects", "nginx,serpent:best"], "the orders are fair"),
        (&["simulate", "./tiny.toml", "--subjects", "serpent:fsp", "--model", "bands"], "`fsp`"),
        (&["simulate", "./tiny.toml", "--model", "packet"], "use packets, bare, bands, paced"),
        (&["simulate", "./tiny.toml", "--set", "time.seconds=0"], "time.seconds"),
        (&["simulate", "./tiny.toml", "--load", "0.5"], "cannot be used with"),
        (&["simulate", "--load", "0"], "`demand.load` is 0"),
        (&["simulate", "--trace", "none.log"], "there is no log `none.log`"),
        (&["simulate", "--seeds", "9-1"], "a range goes up"),
        (&["simulate", "./tiny.toml", "--out", "simulated"], "`serpent-lab simulate --resume simulated`"),
        (&["simulate", "--resume", "."], "run.json"),
        (&["simulate", "--resume", "measured"], "`serpent-lab run --resume measured`"),
        (&["run", "--resume", "simulated"], "`serpent-lab simulate --resume simulated`"),
    ] {
        let output = lab(folder.path(), args).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
        assert!(!folder.path().join("serpent-lab").exists(), "{args:?} leaves a folder");
    }
}

/// The folder of the logs that experiments replay. The logs are not part of the source.
fn traces() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    std::env::var_os("SERPENT_TRACES").map_or_else(beside, PathBuf::from)
}

#[test]
fn every_shipped_experiment_is_simulated_in_its_short_form() {
    let folder = tempfile::tempdir().unwrap();
    let with_log = traces().join("nasa-1995-08-01.log.gz").exists();
    for &(name, _) in SHIPPED {
        if name == "srpt-nasa-trace" && !with_log {
            eprintln!("SKIPPED: {name}: the log of NASA is not in {}", traces().display());
            continue;
        }
        let output = lab(folder.path(), &["simulate", name, "--quick", "--out", name])
            .env("SERPENT_TRACES", traces())
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {}", stderr(&output));
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains("SIMULATED: packet model") && !table.contains("NaN"), "{name}: {table}");
        let run = Run::open(&folder.path().join(name)).unwrap();
        assert_eq!(run.cells().unwrap().len(), run.record().cells_count(), "{name}");
    }
}

#[test]
fn parts_of_four_processes_are_one_run_again() {
    let folder = tiny();
    let whole = ["simulate", "./tiny.toml", "--model", "bare", "--seeds", "5-7", "--out"];
    run(folder.path(), &[&whole[..], &["whole"]].concat());
    let names: Vec<String> = (0..4).map(|part| format!("part-{part}")).collect();
    let start = |part: usize| {
        let shard = format!("{part}/4");
        let args = [&whole[..], &[&names[part], "--shard", &shard]].concat();
        lab(folder.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let processes: Vec<_> = (0..4).map(start).collect();
    for (part, process) in processes.into_iter().enumerate() {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let said = String::from_utf8(output.stdout).unwrap();
        // Two points and three seeds: six pairs for four parts, each with both subjects.
        let count = [4, 4, 2, 2][part];
        assert!(said.contains(&format!("part {part}/4: {count} of 12 measurements, 0 not valid")), "{said}");
        assert_eq!(Run::open(&folder.path().join(&names[part])).unwrap().cells().unwrap().len(), count);
    }

    let report = |of: &[&str]| lab(folder.path(), &[&["report"], of].concat()).output().unwrap();
    let parts: Vec<&str> = names.iter().map(String::as_str).collect();
    let (joined, whole) = (report(&[parts[2], parts[0], parts[3], parts[1]]), report(&["whole"]));
    assert!(joined.status.success() && stderr(&joined).is_empty(), "{}", stderr(&joined));
    let table = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split_once("\nload 0.6").map(|(_, rest)| rest.to_owned()).unwrap()
    };
    assert_eq!(table(&joined), table(&whole), "the tables of the parts are those of the whole run");

    let some = report(&parts[..3]);
    assert!(stderr(&some).contains("part 3/4 is missing"), "{}", stderr(&some));
    assert!(String::from_utf8_lossy(&some.stdout).contains("INCOMPLETE: 2 of 12"));
    let doubled = report(&[parts[0], parts[1], parts[0]]);
    assert_eq!(doubled.status.code(), Some(2));
    assert!(
        stderr(&doubled).contains("both have the measurement of `load 0.6`, seed 5, nginx"),
        "{}",
        stderr(&doubled)
    );
    run(
        folder.path(),
        &["simulate", "./tiny.toml", "--model", "bare", "--seeds", "5-8", "--shard", "3/4", "--out", "other"],
    );
    let different = report(&[parts[0], "other"]);
    assert_eq!(different.status.code(), Some(2));
    assert!(stderr(&different).contains("are not of one run: their experiments differ"), "{}", stderr(&different));

    // A part that was stopped goes on as that part.
    let cells = folder.path().join("part-1/cells");
    fs::remove_file(cells.join("0003.json")).unwrap();
    let again = run(folder.path(), &["simulate", "--resume", "part-1"]);
    assert!(again.contains("part 1/4: 4 of 12"), "{again}");
    assert_eq!(Run::open(&folder.path().join("part-1")).unwrap().cells().unwrap().len(), 4);
    let wrong = lab(folder.path(), &["simulate", "./tiny.toml", "--shard", "4/4"]).output().unwrap();
    assert!(wrong.status.code() == Some(2) && stderr(&wrong).contains("write I/N"), "{}", stderr(&wrong));
}

#[test]
fn parts_of_a_simulation_of_gateways_are_together_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let gateways = |args: &[&str]| {
        let output = lab(folder.path(), &[&["simulate", "gateways"], args].concat()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output))
    };
    let args = ["--gateways", "1,3", "--load", "0.8,full", "--seconds", "2", "--seeds", "1,2,3"];
    let whole = gateways(&args).1;
    let names = ["part-0", "part-1", "part-2", "part-3"];
    for (part, name) in names.iter().enumerate() {
        let (code, _, said) = gateways(&[&args[..], &["--shard", &format!("{part}/4"), "--out", name]].concat());
        assert_eq!(code, Some(0), "{said}");
    }
    assert_eq!(gateways(&[&["--join"], &names[..]].concat()).1, whole);
    assert_eq!(gateways(&["--join", "part-2", "part-0", "part-3", "part-1"]).1, whole, "in any order");
    let (code, table, said) = gateways(&["--join", "part-0", "part-2", "part-3"]);
    assert!(code == Some(0) && said.contains("part 1/4 is missing") && table.contains("load full"), "{said}{table}");
    assert_ne!(table, whole);

    gateways(&["--load", "0.8", "--gateways", "1", "--seconds", "2", "--shard", "1/4", "--out", "other"]);
    fs::write(folder.path().join("text"), "no part").unwrap();
    for (wrong, says) in [
        (&["--join", "part-0", "part-0"][..], "leave one of them out"),
        (&["--join", "part-0", "other"], "their flags differ"),
        (&["--join", "part-0", "text"], "text is no part"),
        (&["--join", "part-0", "--load", "0.5"], "cannot be used with"),
        (&["--shard", "4/4", "--out", "new"], "I/N"),
        (&["--shard", "0/4"], "--out"),
    ] {
        let (code, _, said) = gateways(wrong);
        assert!(code == Some(2) && said.contains(says), "{wrong:?}: {said}");
    }
}

#[test]
fn gateways_are_compared_with_one_that_has_all_slots() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["simulate", "gateways", "--gateways", "1,4", "--seconds", "10", "--seeds", "1", "--faults"];
    let table = run(folder.path(), &args);
    let row = |load: &str, gateways: &str| {
        let (_, rest) = table.split_once(&format!("load {load}\n")).unwrap();
        let line = rest.lines().find(|line| line.starts_with(&format!("{gateways} "))).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let (one, four) = (row("0.5", "1"), row("0.5", "4"));
    assert_eq!(one[2], four[2], "the same requests with one gateway: {table}");
    // With faults, that mean is exceeded.
    assert!(one[3].parse::<f64>().unwrap() >= 1.0 && four[3].parse::<f64>().unwrap() >= 1.0, "{table}");
    assert!(table.contains("most in faults") && table.contains("load full") && table.contains("followed"), "{table}");
    assert_eq!(run(folder.path(), &[&args[..], &["--jobs", "1"]].concat()), table, "a seed decides everything");
    for (wrong, says) in [
        (["--load", "0"], "above 0"),
        (["--share", "even"], "it is one of strict"),
        (["--loss", "1"], "--loss"),
        (["--service-ms", "0"], "--service-ms"),
    ] {
        let output = lab(folder.path(), &[&["simulate", "gateways"], &wrong[..]].concat()).output().unwrap();
        assert!(output.status.code() == Some(2) && stderr(&output).contains(says), "{wrong:?}: {}", stderr(&output));
    }
}
