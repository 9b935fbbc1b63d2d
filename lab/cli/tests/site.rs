//! Tests of `serpent-lab site` as a program: the gateways that it configures, starts and stops, in front of a
//! small site.

mod programs;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Command, Output},
    thread,
};

use serde_json::Value;

use programs::{LAB, serpent};

fn lab(args: &[&str]) -> Output {
    serpent();
    Command::new(LAB).args(args).env_remove("SERPENT_LOG").output().unwrap()
}

/// Runs `serpent check` on a configuration.
fn check(file: &str) -> Output {
    Command::new(serpent()).args(["check", file]).env_remove("SERPENT_LOG").output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `serpent check` has no complaint about the configuration of any gateway.
#[test]
fn written_configurations_are_sound() {
    let dir = tempfile::tempdir().unwrap();
    let mut subjects = vec!["uncontrolled".to_owned()];
    for share in ["wtp", "pwad", "mdp", "ratio", "weighted", "strict"] {
        subjects.push(format!("single:slots=12,share={share}"));
    }
    for (share, method) in [
        ("mdp,delay-window=60s", "fixed"),
        ("strict", "knee"),
        ("ratio", "gradient"),
        ("wtp", "probe,probe-every=2s,probe-after=10s,shrink-above=3,grow-below=-5"),
    ] {
        subjects.push(format!("multi:cpu=2/1-64@205ms,disk=4@0.5s,db=8@1s,share={share},windows={method}"));
    }
    let out = dir.path().join("all");
    let mut args = vec!["site", "--dry-run", "--classes", "a,b-2,c_3", "--ratios", "2,3,6"];
    args.extend(["--out", out.to_str().unwrap()]);
    args.extend(subjects.iter().flat_map(|subject| ["--subject", subject]));
    let written = lab(&args);
    assert!(written.status.success(), "{}", stderr(&written));
    let files: Vec<String> = String::from_utf8(written.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(files.len(), subjects.len());
    for (file, subject) in files.iter().zip(&subjects) {
        let checked = check(file);
        let said = stderr(&checked);
        // A gateway that admits everything gets a warning that its classes only count.
        let unexpected = said.lines().filter(|line| line.starts_with("warning") && !line.contains("only count"));
        assert!(checked.status.success() && unexpected.count() == 0, "{subject}: {said}");
    }
    // The subjects that are measured by default.
    let out = dir.path().join("default");
    let written = lab(&["site", "--dry-run", "--out", out.to_str().unwrap()]);
    let files = String::from_utf8(written.stdout).unwrap();
    for file in files.lines().filter(|file| file.ends_with(".toml")) {
        let checked = check(file);
        assert!(checked.status.success(), "{file}: {}", stderr(&checked));
    }
    assert!(files.lines().any(|file| file.ends_with(".cfg")));
}

/// A site that answers each request at once with a line that says it took 2 ms.
fn site() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = |mut stream: TcpStream| {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        for _ in lines.filter(String::is_empty) {
            let body = "{\"ms\":2.0}\n";
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn users_ask_through_each_gateway_in_turn() {
    let dir = tempfile::tempdir().unwrap();
    let (out, state) = (dir.path().join("out"), dir.path().join("state"));
    let url = format!("http://{}", site());
    let [stop, start] = ["stopped", "started"].map(|what| format!("echo {what} >> {}", state.display()));
    let args = ["site", "--site", &url, "--out", out.to_str().unwrap(), "--seed", "7"];
    let page = ["--page", "a=/a", "--page", "b=/b?cost=1", "--database", "b"];
    let short = ["--users", "2", "--think", "0.05", "--seconds", "3", "--warm-up", "0"];
    let cut = ["--stop-database", "1..2", "--stop-command", &stop, "--start-command", &start];
    let subjects = ["--subject", "uncontrolled", "--subject", "multi:a=1,b=3,share=ratio,windows=knee"];
    let measured = lab(&[&args[..], &page, &short, &cut, &subjects].concat());
    assert!(measured.status.success(), "{}", stderr(&measured));
    assert_eq!(fs::read_to_string(&state).unwrap(), "stopped\nstarted\n".repeat(2));

    for stem in ["1-uncontrolled", "2-multi-ratio-knee"] {
        let requests = lines(&out.join(format!("{stem}.ndjson")));
        // All users made requests, and every request is valid. Only the end of the run may cut requests off.
        let users: BTreeSet<u64> = requests.iter().map(|request| request["user"].as_u64().unwrap()).collect();
        assert_eq!(users.len(), 12);
        for request in &requests {
            let ended = request["end"].as_str().unwrap();
            assert!((ended == "answered" && request["page_ms"] == 2.0) || ended == "unfinished", "{request}");
        }
        assert!(out.join(format!("{stem}.toml")).is_file());
    }
    let report: Value = serde_json::from_str(&fs::read_to_string(out.join("report.json")).unwrap()).unwrap();
    assert_eq!(report["given"]["seed"], 7);
    assert_eq!(report["rows"].as_array().unwrap().len(), 2);
    // The report has the readings of windows that are adjusted.
    assert!(report["rows"][0]["pages"][0]["adjusted"].is_null());
    assert!(report["rows"][1]["pages"][1]["adjusted"]["least"].as_u64() >= Some(1), "{}", report["rows"][1]);
    let shown = String::from_utf8_lossy(&measured.stdout).into_owned();
    assert!(shown.contains("seed 7") && shown.contains("multi:a=1,b=3,share=ratio,windows=knee"), "{shown}");
    assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("figure 13)"));

    // A folder holds one run.
    let again = lab(&[&args[..], &page, &short, &subjects].concat());
    assert!(again.status.code() == Some(2) && stderr(&again).contains("--out"), "{}", stderr(&again));
}

#[test]
fn a_site_that_is_not_there_is_told_with_what_to_do() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let args = ["site", "--subject", "direct", "--out", out.to_str().unwrap(), "--site", &format!("http://{nobody}")];
    let refused = lab(&args);
    let said = stderr(&refused);
    assert!(refused.status.code() == Some(2) && said.contains("site start") && said.contains("--site"), "{said}");
    assert!(!out.exists());
}
