//! Settings from a file, the unit of systemd, and the port for Prometheus.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    Bed, DEVICE, response,
    support::{connect, has},
};

#[test]
fn a_file_says_how_to_attach_and_flags_go_before_it() {
    let Some(bed) = Bed::new("a_file_says_how_to_attach_and_flags_go_before_it") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("va.toml");
    let text = "[attach]\ndevice = \"va\"\nrate = \"30mbit\"\nports = [8080]\nclasses = [\"gold:source=10.9.0.2\", \"rest\"]\n\
                cutoffs = [\"1KiB\"]\n";
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let checked = bed.does(&["check", file]);
    assert!(checked.contains("va at 30mbit, ports 8080, classes gold, rest; by `serpent attach`"), "{checked}");
    bed.does(&["attach", "-c", file]);
    let shown = bed.shown();
    assert_eq!(
        (shown["rate_bits_per_second"].as_u64(), &shown["ports"]),
        (Some(30_000_000), &serde_json::json!([8080]))
    );
    assert_eq!(shown["ranks"][0]["less_than_bytes"], 1024);
    bed.sends("10.9.0.1", 8080, &[response(10)]);
    assert_eq!(bed.shown()["ranks"][0]["packets"], 1);

    bed.does(&["attach", DEVICE, "-c", file, "--rate", "20mbit", "--ports", "80,8080", "--cutoffs", "3000"]);
    let shown = bed.shown();
    assert_eq!((shown["rate_bits_per_second"].as_u64(), shown["ports"][0].as_u64()), (Some(20_000_000), Some(80)));
    assert_eq!(shown["ranks"][0]["less_than_bytes"], 3000);
    assert_eq!(shown["ranks"].as_array().unwrap().last().unwrap()["class"], 1, "the classes are those of the file");

    fs::write(file, "[attach]\nrate = \"fast\"\n").unwrap();
    let said = bed.refuses(&["attach", DEVICE, "-c", file]);
    assert!(said.contains("va.toml:2:8") && said.contains("a rate starts with a number"), "{said}");
    fs::write(file, "[attach]\nrate = \"1mbit\"\n").unwrap();
    assert!(bed.refuses(&["attach", "-c", file]).contains("no device is named"));
    fs::write(file, "[[site]]\nroot = \"/\"\n").unwrap();
    assert!(bed.refuses(&["attach", DEVICE, "-c", file]).contains("has no `[attach]`"));
}

/// The unit as it is shipped, with the program and file of this test.
#[test]
fn the_unit_of_systemd_is_sound_and_its_commands_attach_and_detach() {
    let test = "the_unit_of_systemd_is_sound_and_its_commands_attach_and_detach";
    let Some(bed) = Bed::new(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let name = "serpent-attach@va.service";
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/systemd/serpent-attach@.service");
    let file = folder.path().join("va.toml");
    fs::write(&file, "[attach]\nrate = \"30mbit\"\n").unwrap();
    let text = fs::read_to_string(shipped).unwrap();
    assert!(text.contains("/usr/local/bin/serpent") && text.contains("/etc/serpent/%i.toml"));
    let text = text
        .replace("/usr/local/bin/serpent", env!("CARGO_BIN_EXE_serpent"))
        .replace("/etc/serpent/%i.toml", &file.display().to_string());
    for (command, is_attached) in [("ExecStart", true), ("ExecReload", true), ("ExecStop", false)] {
        let line = text.lines().find_map(|line| line.strip_prefix(command)?.strip_prefix('=')).expect(command);
        let line = line.replace("%i", DEVICE);
        let words: Vec<&str> = line.split(' ').collect();
        bed.does(&words[1..]);
        assert_eq!(bed.description().contains("htb 5e7: root"), is_attached, "{command}");
    }
    if !has(test, "systemd-analyze") {
        return;
    }
    fs::write(folder.path().join(name), &text).unwrap();
    let verify = |name: &str| {
        let output = Command::new("systemd-analyze").arg("verify").arg(folder.path().join(name)).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        said.lines().filter(|line| line.contains("serpent-attach@")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(verify(name), Vec::<String>::new());
    fs::write(folder.path().join("serpent-attach@vb.service"), text.replace("oneshot", "one-shot")).unwrap();
    assert!(verify("serpent-attach@vb.service")[0].contains("one-shot"), "a mistake is found");
}

#[test]
fn prometheus_is_answered_while_attach_follows() {
    let Some(bed) = Bed::new("prometheus_is_answered_while_attach_follows") else { return };
    let mut follow = Command::new("ip")
        .args(["netns", "exec", &bed.server, env!("CARGO_BIN_EXE_serpent"), "attach", DEVICE, "--rate", "100mbit"])
        .args(["--ports", "80", "--follow", "--metrics-listen", "10.9.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("metrics on http://")).unwrap();
    let address = line.split("http://").nth(1).unwrap().strip_suffix("/metrics").unwrap();
    bed.sends("10.9.0.1", 80, &[response(10)]);
    let ask = |request: &str| {
        let mut client = connect(&bed.client, address);
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // A client that is refused may find its connection reset.
        let _ = client.read_to_string(&mut answer);
        answer
    };
    let metrics = ask("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n") && metrics.contains("version=0.0.4"), "{metrics}");
    for line in [
        "serpent_attach_responses_total{device=\"va\",length=\"known\"} 1",
        "serpent_attach_band_dropped_packets_total{device=\"va\",band=\"7\"} 0",
        "serpent_attach_band_waiting_packets{device=\"va\",band=\"1\"} 0",
        "serpent_attach_band_waiting_bytes{device=\"va\",band=\"1\"} 0",
        "serpent_attach_verdict{device=\"va\",verdict=\"no-queue\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "no {line} in {metrics}");
    }
    assert!(ask("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask("POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 405 "));
    // More clients than there are places, which say nothing: they are cut off, and the next is answered.
    let silent: Vec<_> = (0..9).map(|_| connect(&bed.client, address)).collect();
    assert!(ask("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 200 "));
    drop(silent);
    let taken = bed.refuses(&["attach", DEVICE, "--follow", "--metrics-listen", address]);
    assert!(taken.contains("--metrics-listen"), "{taken}");
    assert!(bed.refuses(&["attach", DEVICE, "--show", "--metrics-listen", address]).contains("cannot be used with"));
    let pid = rustix::process::Pid::from_child(&follow);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(follow.wait().unwrap().success());
    assert!(bed.description().contains("htb 5e7: root"), "nothing breaks when it ends");
}
