//! Tests of the server's start, reload and stop.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read, Write},
    net::TcpListener,
    process::{Command, Stdio},
    sync::mpsc::channel,
};

use rustix::process::{Pid, Signal, kill_process};

use super::support::{BIG, PATIENCE, Serpent, certificate, curl, serpent, site};

#[test]
fn one_line_tells_where_it_serves() {
    let site = site();
    let www = site.path().join("www");
    let serpent = Serpent::start(&[
        "serve",
        www.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--listen",
        "[::1]:0",
        "--uplink",
        "off",
    ]);
    assert!(serpent.ready.starts_with(&format!("serpent: serving {} on http://127.0.0.1:", www.display())));
    assert_eq!(serpent.urls.len(), 2, "{}", serpent.ready);
    assert!(serpent.urls[1].starts_with("http://[::1]:"), "{}", serpent.ready);
    assert!(!serpent.ready.contains(":0"), "the port that was found is named: {}", serpent.ready);
    serpent.assert_alive();
}

/// The first line on standard error of a gateway that may open so many files.
fn first_word_with_open_files(most: u32, more: &[&str]) -> String {
    let gateway = "serve --upstream http://127.0.0.1:1 --listen 127.0.0.1:0 --uplink off --log info";
    let script = format!("ulimit -n {most}; exec \"$@\"");
    let mut child = Command::new("sh")
        .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_serpent")])
        .args(gateway.split(' '))
        .args(more)
        .env_remove("SERPENT_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    child.kill().unwrap();
    let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(ready.starts_with("serpent: serving "), "{ready}{said}");
    said.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn as_many_connections_as_open_files_allow_are_no_reason_for_a_warning() {
    let said = first_word_with_open_files(1000, &[]);
    assert!(said.contains("INFO") && said.contains("372 connections, with those to upstreams, fit"), "{said}");
    let said = first_word_with_open_files(1000, &["--connections", "300"]);
    assert!(!said.contains("WARN"), "{said}");
    let said = first_word_with_open_files(1000, &["--connections", "16384"]);
    assert!(said.contains("WARN") && said.contains("need 33024 open files, and only 1000 are allowed"), "{said}");
}

#[test]
fn a_start_on_the_port_of_https_without_a_certificate_warns_and_says_what_to_do() {
    let site = site();
    let www = site.path().join("www");
    let mut child = Command::new(env!("CARGO_BIN_EXE_serpent"))
        .args(["serve", www.to_str().unwrap(), "--listen", "127.83.17.4:443", "--uplink", "off"])
        .env_remove("SERPENT_LOG")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The warning comes before the address is bound, for which the privilege may be missing.
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let _ = child.kill();
    child.wait().unwrap();
    assert!(said.contains("WARN") && said.contains("127.83.17.4:443 speaks HTTP without TLS"), "{said}");
    assert!(said.contains("--tls-cert and --tls-key"), "{said}");
}

#[test]
fn sigterm_lets_a_download_finish_and_then_stops_with_0() {
    let site = site();
    for signal in [Signal::TERM, Signal::INT] {
        let serpent = Serpent::serve(&site.path().join("www"), &["--uplink", "20mbit"]);
        let idle = serpent.connect();
        let mut stream = serpent.connect();
        stream.write_all(b"GET /big.bin HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let mut answer = vec![0; 100_000];
        stream.read_exact(&mut answer).unwrap();
        serpent.signal(signal);
        // The idle connection is closed, which also shows that the signal was handled.
        assert_eq!((&idle).read(&mut [0; 1]).unwrap_or(0), 0);
        assert!(std::net::TcpStream::connect(serpent.address()).is_err(), "no new connections while stopping");
        stream.read_to_end(&mut answer).unwrap();
        let head = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        assert_eq!(answer.len() - head - 4, BIG, "the response that was under way came whole");
        let (status, said) = serpent.wait();
        assert_eq!(status.code(), Some(0), "{said}");
        assert_eq!(said, "", "nothing to complain about");
    }
}

#[test]
fn a_limit_on_stopping_holds() {
    let site = site();
    let serpent = Serpent::serve(&site.path().join("www"), &["--uplink", "100kbit", "--shutdown-timeout", "100ms"]);
    let mut stream = serpent.connect();
    stream.write_all(b"GET /big.bin HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 100]).unwrap();
    serpent.signal(Signal::TERM);
    assert_eq!(serpent.wait().0.code(), Some(0));
}

#[test]
fn a_second_interrupt_does_not_wait() {
    let site = site();
    let serpent = Serpent::serve(&site.path().join("www"), &["--uplink", "100kbit", "--log", "info"]);
    let mut stream = serpent.connect();
    stream.write_all(b"GET /big.bin HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 100]).unwrap();
    serpent.signal(Signal::INT);
    serpent.wait_for_stderr("stopping after the last response");
    serpent.signal(Signal::INT);
    let (status, said) = serpent.wait();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("responses under way are cut off"), "{said}");
}

#[test]
fn sighup_reads_the_file_again_and_keeps_the_old_one_if_it_is_bad() {
    let site = site();
    let config = site.path().join("serpent.toml");
    let write = |files: &str| {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\n[uplink]\nrate = \"off\"\n[files]\n{files}\n[[site]]\nroot = \"www\"\n"
        );
        fs::write(&config, text).unwrap();
    };
    write("listing = false");
    let serpent = Serpent::start(&["serve", "--config", config.to_str().unwrap(), "--log", "info"]);
    let status = || serpent.exchange(b"GET /sub/ HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")[9..12].to_owned();
    assert_eq!(status(), "403");

    let mut download = serpent.connect();
    download.write_all(b"GET /big.bin HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    write("listing = true");
    serpent.signal(Signal::HUP);
    serpent.wait_for_stderr("configuration reloaded");
    assert_eq!(status(), "200");

    write("listing = \"perhaps\"");
    serpent.signal(Signal::HUP);
    let said = serpent.wait_for_stderr("serpent.toml:5:11");
    assert!(said.contains("the old configuration stays") && said.contains("expected `true` or `false`"), "{said}");
    assert_eq!(status(), "200");

    fs::remove_file(&config).unwrap();
    serpent.signal(Signal::HUP);
    let said = serpent.wait_for_stderr("no such configuration file");
    assert!(said.contains("the old configuration stays"), "{said}");
    assert_eq!(status(), "200");

    let mut answer = Vec::new();
    download.read_to_end(&mut answer).unwrap();
    assert!(answer.len() > BIG, "a response under way is not touched by a reload");
}

#[test]
fn who_stops_does_not_wait_for_a_reload() {
    let site = site();
    let folder = site.path();
    let config = folder.join("serpent.toml");
    let text = format!("listen = [\"127.0.0.1:0\"]\n[[site]]\nroot = \"{}\"\n", folder.join("www").display());
    fs::write(&config, &text).unwrap();
    let serpent = Serpent::start(&["serve", "--config", config.to_str().unwrap(), "--log", "info"]);
    // A worker that never listens. It ends when the folder is removed.
    let begun = folder.join("begun");
    let script = format!("touch {}; while [ -d {} ]; do sleep 0.1; done", begun.display(), folder.display());
    let workers = format!(
        "{text}[[site.route]]\npath = \"/app\"\nupstream = \"app\"\n[[upstream]]\nname = \"app\"\n[upstream.workers]\n\
         command = [\"sh\", \"-c\", \"{script}\", \"{{socket}}\"]\nstart-timeout = \"1h\"\n"
    );
    fs::write(&config, workers).unwrap();
    serpent.signal(Signal::HUP);
    let start = std::time::Instant::now();
    while !begun.exists() {
        assert!(start.elapsed() < PATIENCE, "the reload does not begin");
        std::thread::yield_now();
    }
    let idle = serpent.connect();
    serpent.signal(Signal::TERM);
    serpent.wait_for_stderr("stopping after the last response");
    assert_eq!((&idle).read(&mut [0; 1]).unwrap_or(0), 0, "connections are asked to end at once");
    serpent.signal(Signal::INT);
    let (status, said) = serpent.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted again"), "{said}");
}

#[test]
fn sighup_reads_certificates_again_and_opens_the_log_again() {
    let site = site();
    let folder = site.path();
    let (chain, key) = certificate(folder, "site", &["localhost"]);
    let log = folder.join("access.log");
    let serpent = Serpent::serve(
        &folder.join("www"),
        &[
            "--tls-cert",
            chain.to_str().unwrap(),
            "--tls-key",
            key.to_str().unwrap(),
            "--access-log",
            log.to_str().unwrap(),
            "--log",
            "info",
        ],
    );
    let port = serpent.address().port();
    let url = format!("https://localhost:{port}/hello.txt");
    let get =
        || curl(&["--resolve", &format!("localhost:{port}:127.0.0.1"), "--cacert", chain.to_str().unwrap(), &url]);
    let Some(body) = get() else { return };
    assert_eq!(body, "hello, world\n");

    // A request is logged a moment after its client has the last byte.
    let start = std::time::Instant::now();
    while !fs::read_to_string(&log).unwrap().contains("GET /hello.txt") {
        assert!(start.elapsed() < PATIENCE, "no line in the log");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // A new self-signed certificate: curl trusts only the one that is in the file now.
    certificate(folder, "site", &["localhost"]);
    fs::rename(&log, folder.join("access.log.1")).unwrap();
    serpent.signal(Signal::HUP);
    serpent.wait_for_stderr("configuration reloaded");
    assert_eq!(get().unwrap(), "hello, world\n");

    serpent.signal(Signal::TERM);
    assert_eq!(serpent.wait().0.code(), Some(0));
    for name in ["access.log.1", "access.log"] {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(text.matches("GET /hello.txt").count(), 1, "{name}: {text}");
    }
}

#[test]
fn what_keeps_it_from_starting_is_said() {
    let site = site();
    let www = site.path().join("www");
    let www = www.to_str().unwrap();
    let said = |args: &[&str]| {
        let output = serpent(args);
        assert!(output.stdout.is_empty(), "not ready: {}", String::from_utf8_lossy(&output.stdout));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, text) = said(&["serve", www, "--listen", &address]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&address) && text.contains("in use"), "{text}");

    let (code, text) = said(&["serve", "/no/such/directory"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("the directory `/no/such/directory` does not exist"), "{text}");

    let (code, text) = said(&["serve", www, "--listen", "https://127.0.0.1:0"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("needs a certificate"), "{text}");

    let (chain, _) = certificate(site.path(), "a", &["localhost"]);
    let (_, key) = certificate(site.path(), "b", &["localhost"]);
    let (code, text) = said(&["serve", www, "--tls-cert", chain.to_str().unwrap(), "--tls-key", key.to_str().unwrap()]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("do not belong together"), "{text}");
}

#[test]
fn a_rate_of_the_uplink_that_was_found_is_kept_over_a_restart() {
    let site = site();
    let (file, kept) = (site.path().join("kept.toml"), site.path().join("rate"));
    fs::write(&file, "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\n[uplink]\nkeep = \"rate\"\n").unwrap();
    let start = || {
        let www = site.path().join("www");
        let args = ["serve", www.to_str().unwrap(), "--config", file.to_str().unwrap(), "--log", "info"];
        let serpent = Serpent::start(&args);
        let said = serpent.wait_for_stderr("metrics on ");
        (serpent, said)
    };
    fs::write(&kept, "7.5mbit\n").unwrap();
    let (serpent, said) = start();
    assert!(said.contains("rate=7.500mbit") && said.contains("before the restart"), "{said}");
    let address = said.rsplit_once("http://").unwrap().1.split('/').next().unwrap();
    let mut admin = std::net::TcpStream::connect(address).unwrap();
    admin.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut metrics = String::new();
    admin.read_to_string(&mut metrics).unwrap();
    // It is doubted at first: 97 % of it are used.
    assert!(metrics.contains("serpent_uplink_rate_bits_per_second 7275000\n"), "{metrics}");
    serpent.signal(Signal::TERM);
    let (status, said) = serpent.wait();
    assert!(status.success(), "{said}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), "7.5mbit\n", "nothing was learned, so nothing is written");

    fs::write(&kept, "fast\n").unwrap();
    let (serpent, said) = start();
    assert!(said.contains("WARN") && said.contains("it holds no rate"), "{said}");
    serpent.assert_alive();
}

#[test]
fn a_server_whose_standard_error_is_gone_reloads_and_stops() {
    let site = site();
    let mut child = Command::new(env!("CARGO_BIN_EXE_serpent"))
        .args(["serve", "www", "--listen", "127.0.0.1:0", "--uplink", "off", "--log", "info"])
        .current_dir(site.path())
        .env_remove("SERPENT_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut ready = String::new();
    output.read_line(&mut ready).unwrap();
    // Each signal is logged. A thread that fails at that handles no further one.
    let process = Pid::from_child(&child);
    for signal in [Signal::HUP, Signal::TERM] {
        kill_process(process, signal).unwrap();
    }
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(child.wait().unwrap()));
    let status = ended.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        kill_process(process, Signal::KILL).unwrap();
        panic!("the server does not stop: {ready}");
    });
    assert!(status.success(), "{status}");
}

#[test]
fn balancers_are_told_that_the_server_stops_while_it_still_takes_connections() {
    let site = site();
    let file = site.path().join("serpent.toml");
    let text = "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[limits]\nshutdown-delay = \"10m\"\n[[site]]\nroot = \"www\"\n";
    fs::write(&file, text).unwrap();
    let (serpent, admin) = crate::gateway::start(&file);
    let ask = |path: &str| {
        let mut stream = std::net::TcpStream::connect(admin).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("/health").starts_with("HTTP/1.1 200 "));
    let page = ask("/metrics");
    for metric in [
        concat!("serpent_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1\n"),
        "serpent_config_last_reload_successful 1\n",
        "serpent_config_last_reload_success_timestamp_seconds ",
        "\nprocess_cpu_seconds_total ",
        "\nprocess_resident_memory_bytes ",
        "\nprocess_open_fds ",
        "\nprocess_start_time_seconds ",
    ] {
        assert!(page.contains(metric), "no {metric} in {page}");
    }
    let value = |name: &str| -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}"));
        line.trim().parse().unwrap()
    };
    assert!(value("process_resident_memory_bytes ") > 1e6 && value("process_open_fds ") > 5.0, "{page}");

    // A file with a mistake counts as a reload that failed.
    fs::write(&file, text.replace("root", "rot")).unwrap();
    serpent.signal(Signal::HUP);
    serpent.wait_for_stderr("not reloaded");
    let page = ask("/metrics");
    assert!(page.contains("serpent_config_last_reload_successful 0\n"), "{page}");
    assert!(page.contains("serpent_config_reloads_failed_total 1\n"), "{page}");

    serpent.signal(Signal::TERM);
    serpent.wait_for_stderr("connections are still taken");
    assert!(ask("/health").starts_with("HTTP/1.1 503 "));
    let answer = serpent.exchange(b"GET /hello.txt HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // Asked again, it does not wait.
    serpent.signal(Signal::TERM);
    serpent.wait();
}
