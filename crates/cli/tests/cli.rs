//! What the binary says: help, completions, manual pages, and `check` with files that are broken.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

fn serpent(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_serpent")).args(args).env_remove("SERPENT_LOG").output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn help_lists_what_can_be_given() {
    let help = stdout(&serpent(&["serve", "--help"]));
    for order in scheduler::Order::ALL {
        assert!(help.contains(&format!("- {order}:")), "the help of --order does not explain `{order}`");
    }
    for part in [
        "--config",
        "--listen",
        "--uplink <auto|RATE|off>",
        "--enforce <server|kernel|off>",
        "--workers",
        "--tls-cert",
        "--tls-key",
        "--access-log <FILE|->",
        "SIGHUP",
        "Examples:",
    ] {
        assert!(help.contains(part), "{part} is missing from:\n{help}");
    }
    let help = stdout(&serpent(&["--help"]));
    for part in ["serve", "check", "uplink", "completions", "man", "Exit codes:"] {
        assert!(help.contains(part), "{part} is missing from:\n{help}");
    }
    let widest = help.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 100), "lines are wrapped: {widest:?}");
}

#[test]
fn a_wrong_command_line_exits_with_2_and_says_what_is_right() {
    for (args, part) in [
        (&[][..], "Usage: serpent"),
        (&["server"], "serve"),
        (&["serve", "--order", "shortest"], "[possible values: fair, fifo, srpt"),
        (&["serve", "--uplink", "10 parsecs"], "unknown unit of rate"),
        (&["serve", "--listen", "here"], "give an IP address and a port"),
        (&["serve", "--tls-cert", "a.pem"], "--tls-key"),
        (&["serve", "--workers", "0"], "1 to 1024"),
        (&["uplink", "install", "eth0"], "--rate"),
        (&["uplink", "install", "eth0", "--rate", "10mbit", "--qdisc", "fq"], "[possible values: auto, htb, prio]"),
        (&["check"], "FILE"),
        (&["--log", "=,=", "check", "x"], "--log"),
    ] {
        let output = serpent(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = serpent(&["completions", shell]).stdout;
        let text = String::from_utf8(script.clone()).unwrap();
        assert!(text.contains("uplink") && text.contains("access-log"), "{shell}: {text}");
        if ["bash", "fish", "zsh"].contains(&shell) {
            assert!(text.contains("quick-fix"), "{shell} completes values: {text}");
        }
        if shell == "bash" {
            let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
            bash.stdin.take().unwrap().write_all(&script).unwrap();
            assert!(bash.wait().unwrap().success(), "bash reads its completions");
        }
    }
}

#[test]
fn manual_pages_for_every_command() {
    let page = stdout(&serpent(&["man"]));
    assert!(page.contains(".TH serpent 1"), "{page}");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/man1");
    assert!(serpent(&["man", "--out", out.to_str().unwrap()]).status.success());
    for name in ["serpent.1", "serpent-serve.1", "serpent-check.1", "serpent-uplink-install.1"] {
        assert!(fs::read_to_string(out.join(name)).unwrap().contains(".TH"), "{name}");
    }
    let output = serpent(&["man", "--out", "/proc/nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/proc/nowhere"));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_serpent"))
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
}

/// A folder with a directory `www`, a certificate `a` with its key, and the key of another, `b`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("www")).unwrap();
    for name in ["a", "b"] {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(folder.path().join(format!("{name}.crt")), made.cert.pem()).unwrap();
        fs::write(folder.path().join(format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
    }
    fs::write(folder.path().join("empty.pem"), "").unwrap();
    fs::write(
        folder.path().join("garbage.pem"),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nAAAA\n\
         -----END PRIVATE KEY-----\n",
    )
    .unwrap();
    folder
}

fn check(folder: &Path, text: &str) -> Output {
    let file = folder.join("serpent.toml");
    fs::write(&file, text).unwrap();
    Command::new(env!("CARGO_BIN_EXE_serpent")).args(["check", "serpent.toml"]).current_dir(folder).output().unwrap()
}

#[test]
fn check_says_ok_and_what_would_be_served() {
    let folder = folder();
    let output = check(
        folder.path(),
        "listen = [\":443\", \"http://:80\"]\nadmin = \"127.0.0.1:9090\"\n[uplink]\nrate = \"12.5 Mbit/s\"\n\
         [[site]]\nnames = [\"example.org\", \"*.example.org\"]\nroot = \"www\"\ntls-cert = \"a.crt\"\ntls-key = \"a.key\"\n",
    );
    assert_eq!(
        stdout(&output),
        "serpent.toml: ok\n  listen  https://[::]:443\n  listen  http://[::]:80\n  \
         site    example.org, *.example.org from www\n  uplink  12.500mbit, order srpt, enforced by the server\n  \
         admin   http://127.0.0.1:9090\n",
        "{}",
        stderr(&output)
    );
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn check_finds_certificates_that_cannot_work() {
    let folder = folder();
    for (chain, key, place, part) in [
        ("none.crt", "a.key", ":3:12", "`none.crt` does not exist"),
        ("a.crt", "none.key", ":4:11", "`none.key` does not exist"),
        ("empty.pem", "a.key", ":3:12", "no certificate in `empty.pem`"),
        ("a.crt", "empty.pem", ":4:11", "no private key in `empty.pem`"),
        ("a.key", "a.crt", ":3:12", "no certificate in `a.key`"),
        ("garbage.pem", "a.key", ":3:12", "garbage.pem"),
        ("a.crt", "garbage.pem", ":4:11", "garbage.pem"),
        ("a.crt", "b.key", ":4:11", "do not belong together"),
    ] {
        let text = format!("[[site]]\nroot = \"www\"\ntls-cert = \"{chain}\"\ntls-key = \"{key}\"\n");
        let output = check(folder.path(), &text);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{chain} {key}: {said}");
        assert!(said.contains(part), "{chain} {key}: {said}");
        assert!(said.contains(&format!("--> serpent.toml{place}")), "{chain} {key}: {said}");
    }
}

#[test]
fn check_shows_every_mistake_and_exits_with_2() {
    let folder = folder();
    let output = check(folder.path(), "listen = [\":x\"]\n[uplink]\norder = \"best\"\n[[site]]\nroot = \"ww\"\n");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for place in ["--> serpent.toml:1:11", "--> serpent.toml:3:9", "--> serpent.toml:5:8"] {
        assert!(said.contains(place), "{said}");
    }
    assert!(output.stdout.is_empty());
    let output = serpent(&["check", "/no/such/file.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/no/such/file.toml"));
}
