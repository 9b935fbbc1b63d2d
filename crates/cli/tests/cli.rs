//! The output of the binary: help, completions, manual pages, and `check` with broken files.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
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
    for part in ["serve", "check", "explain", "key", "probe", "uplink", "completions", "man", "Exit codes:"] {
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
        (&["attach"], "--rate"),
        (&["attach", "eth0", "--rate", "fast"], "--rate"),
        (&["check"], "FILE"),
        (&["serve", "www", "--upstream", "http://127.0.0.1:1"], "cannot be used with"),
        (&["serve", "--upstream", "127.0.0.1:1"], "write `http://127.0.0.1:1`"),
        (&["serve", "--slots", "0"], "from 1 to"),
        (&["explain", "/"], "--config"),
        (&["explain", "-c", "x", "-H", "X-Tier", "/"], "is not a header field"),
        (&["key"], "LEVEL"),
        (&["key", "a b"], "cannot be a name"),
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
    for name in ["serpent.1", "serpent-serve.1", "serpent-check.1", "serpent-attach.1"] {
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
    let locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    fs::write(folder.path().join("locked.pem"), locked).unwrap();
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
        "serpent.toml: ok\n  listen    https://[::]:443\n  listen    http://[::]:80\n  \
         site      example.org, *.example.org from www\n  \
         uplink    12.500mbit, order srpt, enforced by the server\n  admin     http://127.0.0.1:9090\n",
        "{}",
        stderr(&output)
    );
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn check_tells_programs_how_the_uplink_is_scheduled() {
    let folder = folder();
    fs::write(folder.path().join("serpent.toml"), "[uplink]\norder = \"fsp\"\ncutoffs = [\"1KiB\"]\nguard = 3\n")
        .unwrap();
    let check = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_serpent"));
        command.args(["check", "--json", "serpent.toml"]).args(args).current_dir(folder.path()).output().unwrap()
    };
    assert_eq!(check(&[]).status.code(), Some(2), "no site, and no directory");
    let output = check(&["www"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["listen"][0]["address"], "127.0.0.1:8080");
    assert_eq!(
        said["uplink"],
        serde_json::json!({
            "rate_bits_per_second": null,
            "paced": true,
            "order": "fsp",
            "enforce": "server",
            "cutoffs": [1024],
            "guard_stretch": 3.0,
            "utilisation": null,
            "segment_overhead_bytes": 66,
            "line": null,
        })
    );
}

/// A script stands for `serpent-lab`: it is found beside the program first, then in the folders of PATH.
#[test]
fn the_lab_is_run_where_it_is_installed() {
    let [own, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let serpent = own.path().join("serpent");
    fs::copy(env!("CARGO_BIN_EXE_serpent"), &serpent).unwrap();
    let run = |args: &[&str], path: &Path| Command::new(&serpent).args(args).env("PATH", path).output().unwrap();
    let install = |folder: &Path, name: &str| {
        let program = folder.join("serpent-lab");
        fs::write(&program, format!("#!/bin/sh\necho {name} \"$@\"\nexit 7\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    };

    let missing = run(&["lab", "run", "smoke"], other.path());
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("cargo install --path lab/cli"), "{}", stderr(&missing));
    install(other.path(), "in-path");
    let found = run(&["simulate", "--load", "0.5"], other.path());
    assert_eq!((found.status.code(), stdout(&found).trim()), (Some(7), "in-path simulate --load 0.5"));
    install(own.path(), "beside");
    for (args, told) in [
        (&["lab", "run", "smoke", "--quick"][..], "run smoke --quick"),
        (&["lab", "--help"], "--help"),
        (&["lab"], ""),
        (&["theory", "--help"], "theory --help"),
    ] {
        let found = run(args, other.path());
        assert_eq!(
            (found.status.code(), stdout(&found).trim()),
            (Some(7), format!("beside {told}").trim()),
            "{args:?}"
        );
    }
}

#[test]
fn check_finds_certificates_that_cannot_work() {
    let folder = folder();
    for (chain, key, place, part) in [
        ("none.crt", "a.key", ":3:12", "`none.crt` does not exist"),
        ("a.crt", "none.key", ":4:11", "`none.key` does not exist"),
        ("empty.pem", "a.key", ":3:12", "no certificate in `empty.pem`"),
        ("a.crt", "empty.pem", ":4:11", "no private key in `empty.pem`"),
        ("a.key", "a.crt", ":3:12", "no certificate in `a.key`: it has a private key"),
        ("a.key", "a.crt", ":4:11", "no private key in `a.crt`: it has a certificate"),
        ("a.crt", "a.crt", ":4:11", "give `tls-key` the key that the certificate was made for"),
        ("a.crt", "locked.pem", ":4:11", "its key is under a password"),
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

/// A gateway with two classes: buyers by their basket, their cookie or their key, and all others.
const GATEWAY: &str = r#"
listen = ["127.0.0.1:8080"]
trusted-proxies = ["10.0.0.0/8"]
[[site]]
names = ["shop.example"]
root = "www"
[[site.route]]
path = "/api/"
upstream = "app"
replace-prefix = "/"
[[site.route]]
path = "/events"
upstream = "app"
admitted = false
[[upstream]]
name = "app"
servers = ["http://127.0.0.1:3000", "unix:/run/app.sock"]
[[class]]
name = "buyers"
weight = 3
cpu-priority = "nice 1"
[[class]]
name = "plain"
queue = 10
max-wait = "off"
order = "fair"
refuse = { status = 429, retry-after = "off" }
[[rule]]
name = "basket"
class = "buyers"
path = "/api/basket"
method = ["POST", "PUT"]
[[rule]]
class = "buyers"
cookie = { customer = true }
[[rule]]
class = "buyers"
key = "gold"
[[rule]]
name = "office"
class = "buyers"
client = "192.0.2.0/24"
[keys]
file = "keys"
[admission]
share = "weighted"
slots = 20
"#;

fn gateway(folder: &Path, args: &[&str]) -> Output {
    fs::write(folder.join("serpent.toml"), GATEWAY).unwrap();
    Command::new(env!("CARGO_BIN_EXE_serpent")).args(args).current_dir(folder).output().unwrap()
}

/// A folder for it, and the key in its file of keys.
fn gateway_folder() -> (tempfile::TempDir, String) {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let made = serpent(&["key", "gold"]);
    assert!(made.status.success());
    fs::write(folder.path().join("keys"), &made.stdout).unwrap();
    fs::set_permissions(folder.path().join("keys"), fs::Permissions::from_mode(0o600)).unwrap();
    let said = stderr(&made);
    let key = said.trim().strip_prefix("the key, shown this once: ").unwrap().to_owned();
    (folder, key)
}

#[test]
fn check_shows_routes_upstreams_classes_rules_and_slots() {
    let (folder, _) = gateway_folder();
    let output = gateway(folder.path(), &["check", "serpent.toml"]);
    assert_eq!(
        stdout(&output),
        "serpent.toml: ok\n  listen    http://127.0.0.1:8080\n  site      shop.example from www\n    \
         route   /api/ to app as /\n    route   /events to app, waits for no slot\n  \
         upstream  app: http://127.0.0.1:3000, unix:/run/app.sock\n  \
         class     buyers: weight 3, 1000 wait, for 30s at most, processor nice 1\n  \
         class     plain: for all others, 10 wait, order fair\n  rules     4 for buyers\n  \
         slots     20 in all, shared by `weighted`\n  \
         uplink    rate found by itself, order srpt, enforced by the server\n",
        "{}",
        stderr(&output)
    );
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
}

#[test]
fn check_tells_what_hardly_was_meant_and_says_ok() {
    let folder = folder();
    let output = check(
        folder.path(),
        "[[site]]\nroot = \"www\"\n[[upstream]]\nname = \"app\"\nservers = [\"http://127.0.0.1:3000\"]\n",
    );
    assert!(output.status.success());
    assert!(stdout(&output).starts_with("serpent.toml: ok\n"));
    let said = stderr(&output);
    assert!(said.contains("warning: no route leads to the upstream `app`"), "{said}");
    assert!(said.contains("--> serpent.toml:4:8"), "{said}");
}

#[test]
fn a_request_is_explained_condition_by_condition() {
    let (folder, key) = gateway_folder();
    let explain = |args: &[&str]| {
        let output = gateway(folder.path(), &[&["explain", "-c", "serpent.toml"], args].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let said = explain(&["http://shop.example:8080/api/basket?item=7"]);
    for part in [
        "GET http://shop.example/api/basket?item=7",
        "site    shop.example\n",
        "route   /api/ to app as /\n",
        "basket (class buyers): does not match",
        "no   method: asked for POST, PUT; the request has GET",
        "yes  path: asked for /api/basket; the request has /api/basket",
        "rule 2 (class buyers): does not match",
        "cookie customer",
        "class plain: no rule matches",
        "slots   20 in all; share `weighted`: 1 of 4 parts",
        "queue   10 wait at most, order fair",
        "refused 429\n",
    ] {
        assert!(said.contains(part), "`{part}` is missing from:\n{said}");
    }
    let said = explain(&["-X", "POST", "http://shop.example/api/basket"]);
    assert!(said.contains("class buyers: by basket") && said.contains("3 of 4 parts"), "{said}");
    assert!(said.contains("queue   1000 wait at most, for 30s at most"), "{said}");
    assert!(!said.contains("rule 2"), "rules behind the one that matches are not looked at:\n{said}");

    let said = explain(&["-H", "Cookie: a=b; customer=1", "http://shop.example/events"]);
    assert!(said.contains("class buyers: by rule 2") && said.contains("slots   needs none"), "{said}");
    let said = explain(&["-H", &format!("X-Api-Key: {key}"), "/api/"]);
    assert!(said.contains("class buyers: by rule 3") && !said.contains(&key), "a key is not shown:\n{said}");

    // The word of a proxy counts if it is trusted.
    let said = explain(&["--client", "192.0.2.7", "--peer", "10.1.2.3", "/api/"]);
    assert!(said.contains("client  192.0.2.7 (behind 10.1.2.3, which is trusted)"), "{said}");
    assert!(said.contains("class buyers: by office"), "{said}");
    let said = explain(&["--client", "192.0.2.7", "--peer", "172.16.0.1", "/api/"]);
    assert!(said.contains("client  172.16.0.1\n") && said.contains("class plain"), "{said}");

    // Requests that are refused before a route is matched.
    let said = explain(&["http://shop.example/a/../../b"]);
    assert!(
        said.contains("route   none: 400 at once, because the path") && said.contains("slots   needs none"),
        "{said}"
    );
    let said = explain(&["-X", "TRACE", "http://shop.example/api/"]);
    assert!(said.contains("route   none: 405 at once"), "{said}");

    let said = explain(&["http://other.example/a.html"]);
    assert!(said.contains("site    shop.example (the first one: no site is called `other.example`)"), "{said}");
    assert!(said.contains("route   none matches, so it is for the files of www"), "{said}");
}

#[test]
fn an_explanation_for_programs() {
    let (folder, _) = gateway_folder();
    let output = gateway(
        folder.path(),
        &["explain", "-c", "serpent.toml", "--json", "-X", "PUT", "http://shop.example/api/basket"],
    );
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["site"]["names"][0], "shop.example");
    assert_eq!(said["route"]["name"], "/api/");
    assert_eq!(said["class"]["class"], "buyers");
    assert_eq!(said["class"]["rule"], "basket");
    assert_eq!(said["class"]["rules"][0]["conditions"][0]["holds"], true);
    assert_eq!(said["admission"]["slots"]["all"], 20);
    assert_eq!(said["admission"]["weight"], 3);
    assert_eq!(said["admission"]["max_wait_ms"], 30_000.0);
    assert_eq!(said["cpu_priority"], "nice 1");
}

#[test]
fn what_cannot_be_explained_is_an_error_of_usage() {
    let (folder, _) = gateway_folder();
    for (args, part) in [
        (&["-c", "serpent.toml", "shop.example/x"][..], "is not a URL"),
        (&["-c", "serpent.toml", "ftp://shop.example/x"], "neither http nor https"),
        (&["-c", "none.toml", "/"], "no such configuration file"),
    ] {
        let output = gateway(folder.path(), &[&["explain"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_key_is_shown_once_and_its_line_can_be_appended() {
    let made = serpent(&["key", "gold"]);
    let (line, said) = (stdout(&made), stderr(&made));
    let hash = line.strip_prefix("gold ").unwrap().trim_end();
    assert!(hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()), "{line}");
    let key = said.trim().strip_prefix("the key, shown this once: ").unwrap();
    assert!(!line.contains(key));

    let hashed = |key: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_serpent"))
            .args(["key", "gold", "--from-stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(key.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let again = hashed(&format!("{key}\n"));
    assert_eq!(stdout(&again), line, "the same key has the same line");
    assert!(again.stderr.is_empty(), "a key that was given is not shown");
    let short = hashed("secret\n");
    assert_eq!(short.status.code(), Some(2));
    assert!(stderr(&short).contains("6 characters") && !stderr(&short).contains("secret"), "{}", stderr(&short));
}

#[test]
fn a_caddyfile_is_known_by_its_name_and_its_translation_passes_the_check() {
    let folder = folder();
    let text = "import sites/*\n:8080 {\n  root * www\n  file_server\n  templates\n}\n";
    fs::write(folder.path().join("Caddyfile"), text).unwrap();
    fs::create_dir(folder.path().join("sites")).unwrap();
    fs::write(folder.path().join("sites/api"), "http://api.example {\n  reverse_proxy localhost:3000\n}\n").unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let imported = serpent(&["import", &at("Caddyfile")]);
    assert_eq!(imported.status.code(), Some(0), "{}", stderr(&imported));
    let said = stderr(&imported);
    assert!(said.contains("Caddyfile:5: `templates`: texts are not changed"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let checked = check(folder.path(), &stdout(&imported));
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    let refused = serpent(&["import", "--from", "nginx", &at("Caddyfile")]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    let missing = serpent(&["import", &at("no/Caddyfile")]);
    assert!(stderr(&missing).contains("no/Caddyfile cannot be read"), "{}", stderr(&missing));
}
