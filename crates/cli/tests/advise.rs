//! Tests of `serpent advise`: files that are not logs, logs whose answer is known, and the written files.
//!
//! The NASA log is not part of this repository. Its test looks for `nasa-1995-08-01.log.gz` in the folder
//! that `SERPENT_TRACES` names, or in `../shared/traces` beside the workspace. If the log is missing, the
//! test is skipped with a message.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

fn serpent(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serpent"));
    command.args(args).current_dir(folder).env_remove("SERPENT_LOG").output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

/// A log of ten minutes from this hour on, 28 kB a second: four pages of 2 kB every second, and a file of 100
/// kB every fifth second.
fn busy(hour: u32) -> String {
    let mut log = String::new();
    for second in 0..600 {
        let stamp = format!("01/Aug/1995:{hour:02}:{:02}:{:02} +0000", second / 60, second % 60);
        for page in 0..4 {
            let _ = writeln!(log, "c{page} - - [{stamp}] \"GET /{page} HTTP/1.0\" 200 2000");
        }
        if second % 5 == 0 {
            let _ = writeln!(log, "c9 - - [{stamp}] \"GET /file HTTP/1.0\" 200 100000");
        }
    }
    log
}

fn json(folder: &Path, args: &[&str]) -> Value {
    let output = serpent(folder, &[&["advise"], args, &["--json", "-"]].concat());
    assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stdout(&output)))
}

/// Saves the configuration and checks it as `serpent check` does.
fn passes_check(folder: &Path, advice: &Value) -> String {
    let configuration = advice["recommendation"]["configuration"].as_str().unwrap();
    fs::write(folder.join("serpent.toml"), configuration).unwrap();
    let output = serpent(folder, &["check", "serpent.toml"]);
    assert!(output.status.success(), "{}\n{configuration}", stderr(&output));
    stdout(&output)
}

#[test]
fn what_cannot_be_advised_on_exits_with_2_and_says_why() {
    let line = b"c - - [01/Aug/1995:00:00:01 +0000] \"GET /a HTTP/1.0\" 200 0\n";
    let folder = folder(&[
        ("empty.log", b""),
        ("page.html", b"<!DOCTYPE html><html><title>x</title></html>"),
        ("noise", b"\x00\x01\x02\x03\xfe\xff\x80\x81 no log at all"),
        ("prose.txt", b"Once upon a time there was a server.\n"),
        ("bodies.log", line),
        ("a.log", busy(10).as_bytes()),
        ("b.log", busy(10).as_bytes()),
        ("days.log", (busy(20) + &busy(3)).as_bytes()),
    ]);
    fs::create_dir(folder.path().join("logs")).unwrap();
    for (args, part) in [
        (&["empty.log", "--uplink", "1mbit"][..], "the log `empty.log`: there is nothing in it"),
        (&["page.html", "--uplink", "1mbit"], "looks like an HTML page"),
        (&["noise", "--uplink", "1mbit"], "the log `noise`"),
        (&["prose.txt", "--uplink", "1mbit"], "the log `prose.txt`"),
        (&["none.log", "--uplink", "1mbit"], "there is no log `none.log`"),
        (&["logs", "--uplink", "1mbit"], "`logs` is a directory"),
        (&["bodies.log", "--uplink", "1mbit"], "nothing to order"),
        (&["a.log", "b.log", "--uplink", "1mbit"], "merged into one first"),
        (&["days.log", "--uplink", "1mbit"], "hours earlier than line"),
        (&["a.log", "--uplink", "1mbit", "--window", "5h..6h"], "no request lies in the window"),
        (&["a.log", "--uplink", "1mbit", "--window", "6h..5h"], "as in `8h..20h`"),
        (&["a.log", "--uplink", "1mbit", "--format", "apache"], "`apache` is no format of a log"),
        (&["a.log", "--uplink", "1mbit", "--format", "json"], "none of its lines is a record"),
        (&["a.log", "--uplink", "10 parsecs"], "unknown unit of rate"),
        (&["a.log", "--uplink", "0mbit"], "between 8kbit and 1000gbit"),
        (&["a.log", "--uplink", "auto"], "a rate starts with a number"),
        (&["a.log"], "--uplink"),
        (&["--uplink", "1mbit"], "ACCESS_LOG"),
    ] {
        let output = serpent(folder.path(), &[&["advise"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    let output = serpent(folder.path(), &["advise", "a.log", "--uplink", "1mbit", "--html", "no/such/folder.html"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("no/such/folder.html"));
}

#[test]
fn a_busy_site_gets_numbers_and_a_configuration_that_passes_check() {
    let folder = folder(&[("a.log", busy(10).as_bytes())]);
    // 31 kB a second with heads and headers, of the uplink's 40 kB.
    let advice = json(folder.path(), &["a.log", "--uplink", "320kbit"]);
    assert_eq!(advice["format"], 1);
    assert_eq!(advice["log"]["requests"], 2520);
    assert_eq!(advice["log"]["tick_s"], 1.0);
    let peak = advice["load"]["peak"].as_f64().unwrap();
    assert!((0.7..0.8).contains(&peak), "{peak}");
    let today = &advice["predictions"][0];
    let names: Vec<&str> =
        today["policies"].as_array().unwrap().iter().map(|of| of["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["fair", "srpt", "srpt-guard-3", "fsp", "las", "srpt-bands"]);
    let mean = |policy: usize| today["policies"][policy]["response_ms"]["mean"].as_f64().unwrap();
    assert!(mean(1) < 0.9 * mean(0), "{} and {}", mean(1), mean(0));
    assert_eq!(advice["recommendation"]["verdict"], "little");
    assert_eq!(advice["spreading"]["tried"].as_array().unwrap().len(), 4);
    let said = passes_check(folder.path(), &advice);
    assert!(said.contains("320kbit, order srpt, enforced by the server") || said.contains("order fsp"), "{said}");
    assert_eq!(advice, json(folder.path(), &["a.log", "--uplink", "320kbit"]), "a seed decides everything");

    // At 1 Gbit/s nothing waits at any growth, so there is nothing to configure.
    let idle = json(folder.path(), &["a.log", "--uplink", "1gbit"]);
    assert_eq!(idle["recommendation"]["verdict"], "nothing");
    assert_eq!(idle["recommendation"]["configuration"], Value::Null);
    let text = stdout(&serpent(folder.path(), &["advise", "a.log", "--uplink", "1gbit"]));
    assert!(text.contains("Recommended: nothing to change\n"), "{text}");
    assert!(!text.contains("order =") && !text.contains("srpt without a guard"), "{text}");
    let overloaded = json(folder.path(), &["a.log", "--uplink", "64kbit"]);
    assert_eq!(
        (&overloaded["recommendation"]["verdict"], &overloaded["certainty"]["level"]),
        (&"overloaded".into(), &"low".into())
    );
    passes_check(folder.path(), &overloaded);
}

#[test]
fn the_text_keeps_within_80_columns_and_the_page_stands_alone() {
    let folder = folder(&[("a.log", busy(10).as_bytes())]);
    let output =
        serpent(folder.path(), &["advise", "a.log", "--uplink", "320kbit", "--html", "a.html", "--json", "a.json"]);
    let text = stdout(&output);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
    // But for the configuration, which is to be copied.
    let prose = text.lines().filter(|line| !line.starts_with("    "));
    let widest = prose.max_by_key(|line| line.chars().count()).unwrap();
    assert!(widest.chars().count() <= 80, "{widest}");
    for part in [
        "Scheduling would do a little today",
        "srpt-bands",
        "very largest",
        "Recommended",
        "order = ",
        "How sure",
        "leaves out",
    ] {
        assert!(text.contains(part), "{part} is missing from:\n{text}");
    }
    let page = fs::read_to_string(folder.path().join("a.html")).unwrap();
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&page, options).unwrap();
    assert_eq!(
        document.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "svg"))).count(),
        5
    );
    for from_elsewhere in ["<script", "src=", "@import", "href=\"http"] {
        assert!(!page.contains(from_elsewhere), "{from_elsewhere}");
    }
    assert!(page.contains("serpent advise a.log --uplink 320kbit --seed 1"), "how to do it again");
    serde_json::from_slice::<Value>(&fs::read(folder.path().join("a.json")).unwrap()).unwrap();
}

#[test]
fn several_logs_are_one_in_the_order_of_their_times_and_standard_input_is_a_log() {
    let (ten, eleven) = (busy(10), busy(11));
    let folder = folder(&[
        ("z.log", ten.as_bytes()),
        ("a.log", eleven.as_bytes()),
        ("both", (ten.clone() + &eleven).as_bytes()),
    ]);
    let mut several = json(folder.path(), &["a.log", "z.log", "--uplink", "320kbit"]);
    let mut both = json(folder.path(), &["both", "--uplink", "320kbit"]);
    assert_eq!(several["log"]["files"], serde_json::json!(["z.log", "a.log"]));
    for advice in [&mut several, &mut both] {
        advice["log"]["files"].take();
    }
    assert_eq!(several, both);

    // A pipe with a name can also be read only once.
    for (input, name) in [("-", "standard input"), ("/dev/stdin", "/dev/stdin")] {
        let kept = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_serpent"))
            .args(["advise", input, "--uplink", "320kbit", "--json", "-"])
            .env("TMPDIR", kept.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(ten.as_bytes()).unwrap();
        let names = fs::read_dir(kept.path()).unwrap().count();
        assert_eq!(names, 0, "{name}: whoever stops it now leaves nothing behind");
        stdin.write_all(eleven.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let mut piped: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(piped["log"]["files"].take(), serde_json::json!([name]));
        assert_eq!(piped, both);
    }
}

#[test]
fn logs_without_sizes_and_broken_lines_cost_certainty() {
    let without = "time,path,status\n".to_owned()
        + &(0..2000).map(|i| format!("{},/{},200\n", 800_000_000.0 + f64::from(i) * 0.3, i % 50)).collect::<String>();
    let broken: String = busy(10)
        .lines()
        .enumerate()
        .map(|(i, line)| if i % 5 == 0 { "garbage\n".to_owned() } else { format!("{line}\n") })
        .collect();
    let folder = folder(&[("without.csv", without.as_bytes()), ("broken.log", broken.as_bytes())]);
    let advice = json(folder.path(), &["without.csv", "--uplink", "320kbit"]);
    assert_eq!((&advice["log"]["has_sizes"], &advice["certainty"]["level"]), (&false.into(), &"low".into()));
    assert!(advice["certainty"]["reasons"][0].as_str().unwrap().contains("tells no sizes"), "{}", advice["certainty"]);
    let text = stdout(&serpent(folder.path(), &["advise", "without.csv", "--uplink", "320kbit"]));
    assert!(text.contains("ASSUMED"), "{text}");

    let advice = json(folder.path(), &["broken.log", "--uplink", "320kbit"]);
    assert_eq!(advice["log"]["broken_lines"], 504);
    assert!(advice["log"]["notes"][0].as_str().unwrap().contains("504 (20.00 %)"), "{}", advice["log"]);
}

fn nasa(test: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let path = std::env::var_os("SERPENT_TRACES").map_or(beside, PathBuf::from).join("nasa-1995-08-01.log.gz");
    if path.exists() {
        return Some(path);
    }
    assert!(std::env::var_os("CI").is_none(), "in CI {test} must run: there is no {}", path.display());
    eprintln!("SKIPPED {test}: there is no {}; name the folder that holds it in SERPENT_TRACES", path.display());
    None
}

#[test]
fn the_nasa_log_is_advised_on_and_half_of_it_too() {
    let Some(path) = nasa("the_nasa_log_is_advised_on_and_half_of_it_too") else { return };
    let whole = fs::read(path).unwrap();
    let folder = folder(&[("nasa.log.gz", &whole), ("half.log.gz", &whole[..whole.len() / 2])]);
    // Two hours are enough for this test; the whole log has fifteen.
    let args = ["nasa.log.gz", "--uplink", "1mbit", "--window", "8h..10h"];
    let advice = json(folder.path(), &args);
    assert_eq!(advice["log"]["outside_window"].as_u64().unwrap() + advice["log"]["requests"].as_u64().unwrap(), 33_996);
    assert_eq!(advice["log"]["formats"], serde_json::json!(["Common Log Format, gzip"]));
    passes_check(folder.path(), &advice);

    let half = json(folder.path(), &["half.log.gz", "--uplink", "1mbit", "--window", "0h..1h"]);
    let note = half["log"]["notes"][0].as_str().unwrap();
    assert!(note.contains("ends too early or is damaged"), "{note}");
}
