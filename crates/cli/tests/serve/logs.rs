//! Logs: of sites and routes, renamed, added and removed while the server runs.

use std::{
    fs,
    net::UdpSocket,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
};

use rustix::process::Signal;

use super::support::{PATIENCE, Serpent, site};

/// The targets of the requests in a log.
fn targets(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().filter_map(|line| Some(line.split('"').nth(1)?.split(' ').nth(1)?.to_owned())).collect()
}

fn ask(serpent: &Serpent, host: &str, path: &str) {
    serpent.exchange(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes());
}

#[test]
fn sites_and_routes_have_logs_of_their_own_and_a_signal_opens_all_anew() {
    let folder = site();
    let file = |name: &str| folder.path().join(name);
    let config = |more: &str| {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\nuplink = {{ rate = \"off\" }}\naccess-log = {{ target = \"all.log\" }}\n\
             [[site]]\nroot = \"www\"\n\
             [[site]]\nnames = [\"a.example\"]\nroot = \"www\"\naccess-log = \"a.log\"\n\
             [[site.route]]\npath = \"/health\"\nrespond = 200\naccess-log = \"off\"\n\
             [[site.route]]\npath = \"/sub/\"\nfiles = true\naccess-log = \"shared.log\"\n\
             [[site]]\nnames = [\"b.example\"]\nroot = \"www\"\naccess-log = \"shared.log\"\n{more}"
        );
        fs::write(file("serpent.toml"), text).unwrap();
    };
    config("");
    let path = file("serpent.toml");
    let serpent = Serpent::start(&["serve", "-c", path.to_str().unwrap(), "--log", "info"]);
    ask(&serpent, "x.example", "/hello.txt");
    ask(&serpent, "a.example", "/style.css");
    ask(&serpent, "a.example", "/health");
    ask(&serpent, "a.example", "/sub/inner.txt");
    ask(&serpent, "b.example", "/page.html");
    for name in ["all.log", "a.log", "shared.log"] {
        fs::rename(file(name), file(&format!("{name}.1"))).unwrap();
    }
    config("[[site]]\nnames = [\"c.example\"]\nroot = \"www\"\naccess-log = \"c.log\"\n");
    serpent.signal(Signal::HUP);
    serpent.wait_for_stderr("configuration reloaded");
    ask(&serpent, "x.example", "/after");
    ask(&serpent, "b.example", "/after");
    ask(&serpent, "c.example", "/after");
    serpent.signal(Signal::TERM);
    assert_eq!(serpent.wait().0.code(), Some(0));
    assert_eq!(targets(&file("all.log.1")), ["/hello.txt"]);
    assert_eq!(targets(&file("a.log.1")), ["/style.css"], "not what a route leaves out");
    assert_eq!(targets(&file("shared.log.1")), ["/sub/inner.txt", "/page.html"]);
    assert_eq!(targets(&file("all.log")), ["/after"]);
    assert_eq!(targets(&file("a.log")), [""; 0]);
    assert_eq!(targets(&file("shared.log")), ["/after"]);
    assert_eq!(targets(&file("c.log")), ["/after"]);
}

/// A receiver of messages at a socket in a folder.
fn receiver(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn next(socket: &UnixDatagram) -> String {
    let mut message = [0; 4096];
    let bytes = socket.recv(&mut message).expect("a message");
    String::from_utf8_lossy(&message[..bytes]).into_owned()
}

fn start(folder: &Path, logs: &str) -> (Serpent, PathBuf) {
    let path = folder.join("serpent.toml");
    let text = format!("listen = [\"127.0.0.1:0\"]\nuplink = {{ rate = \"off\" }}\n{logs}[[site]]\nroot = \"www\"\n");
    fs::write(&path, text).unwrap();
    (Serpent::start(&["serve", "-c", path.to_str().unwrap(), "--log", "info"]), path)
}

#[test]
fn lines_and_messages_reach_syslog_by_both_ways() {
    let folder = site();
    let (udp, messages) = (UdpSocket::bind("127.0.0.1:0").unwrap(), receiver(&folder.path().join("log")));
    udp.set_read_timeout(Some(PATIENCE)).unwrap();
    let (serpent, _) = start(
        folder.path(),
        &format!(
            "access-log.target = \"syslog:server={},facility=local1,severity=notice,tag=web\"\n\
             error-log.target = \"syslog:server=unix:{}/log,facility=daemon\"\n",
            udp.local_addr().unwrap(),
            folder.path().display()
        ),
    );
    ask(&serpent, "a.example", "/hello.txt");
    let mut message = [0; 4096];
    let bytes = udp.recv(&mut message).expect("a line of the access log");
    let line = String::from_utf8_lossy(&message[..bytes]).into_owned();
    assert!(line.starts_with("<141>1 20") && line.contains(" web "), "{line}");
    assert!(line.contains("\"GET /hello.txt HTTP/1.1\" 200 13 "), "{line}");
    serpent.signal(Signal::HUP);
    let said = next(&messages);
    assert!(said.starts_with("<30>") && said.ends_with("configuration reloaded"), "{said}");
    assert!(said.contains(" serpent[") && !said.contains("INFO") && !said.contains('\x1b'), "{said}");
    serpent.signal(Signal::TERM);
    assert!(next(&messages).ends_with("stopping after the last response"));
    assert_eq!(serpent.wait().1, "", "nothing on standard error");
}

#[test]
fn lines_and_messages_reach_the_journal() {
    let folder = site();
    let journal = receiver(&folder.path().join("journal"));
    let target = format!("journal:{}/journal", folder.path().display());
    let (serpent, _) =
        start(folder.path(), &format!("access-log.target = \"{target}\"\nerror-log.target = \"{target}\"\n"));
    ask(&serpent, "a.example", "/hello.txt");
    let entry = next(&journal);
    assert!(entry.starts_with("PRIORITY=6\nSYSLOG_IDENTIFIER=serpent\nMESSAGE\n"), "{entry}");
    assert!(entry.contains("\"GET /hello.txt HTTP/1.1\" 200 13 "), "{entry}");
    fs::write(folder.path().join("serpent.toml"), "workers = 0\n").unwrap();
    serpent.signal(Signal::HUP);
    let entry = next(&journal);
    assert!(entry.starts_with("PRIORITY=3\n") && entry.contains("`0` is not a number of workers"), "{entry}");
}

#[test]
fn a_receiver_that_is_missing_delays_nothing_and_gets_its_lines_when_it_comes() {
    let folder = site();
    let target = format!("syslog:server=unix:{}/log", folder.path().display());
    let (serpent, _) = start(folder.path(), &format!("access-log.target = \"{target}\"\n"));
    for _ in 0..20 {
        serpent.assert_alive();
    }
    let said = serpent.wait_for_stderr("cannot be written as a log");
    assert!(said.contains("/log") && said.contains("No such file"), "{said}");
    let late = receiver(&folder.path().join("log"));
    for _ in 0..20 {
        assert!(next(&late).contains("GET /hello.txt"));
    }
    drop(late);
    fs::remove_file(folder.path().join("log")).unwrap();
    serpent.assert_alive();
    serpent.signal(Signal::TERM);
    assert_eq!(serpent.wait().0.code(), Some(0));
}

#[test]
fn messages_go_to_a_file_that_is_opened_anew() {
    let folder = site();
    let file = folder.path().join("error.log");
    let (serpent, _) = start(folder.path(), "error-log.target = \"error.log\"\n");
    fs::rename(&file, folder.path().join("error.log.1")).unwrap();
    serpent.signal(Signal::HUP);
    let start = std::time::Instant::now();
    while !fs::read_to_string(&file).is_ok_and(|text| text.contains("configuration reloaded")) {
        assert!(start.elapsed() < PATIENCE, "the file is not opened anew");
        std::thread::yield_now();
    }
    serpent.signal(Signal::TERM);
    assert_eq!(serpent.wait().1, "", "nothing on standard error");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("INFO") && text.contains("stopping after the last response"), "{text}");
}

#[test]
fn messages_are_objects_at_every_target() {
    let folder = site();
    let syslog = receiver(&folder.path().join("log"));
    let read = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("{line}"));
    for target in ["-", "error.log", "syslog:server=unix:LOG"] {
        let target = target.replace("LOG", folder.path().join("log").to_str().unwrap());
        let (serpent, path) =
            start(folder.path(), &format!("error-log = {{ target = \"{target}\", format = \"json\" }}\n"));
        fs::write(path, "workers = 0\n").unwrap();
        serpent.signal(Signal::HUP);
        let line = match target.split(':').next() {
            Some("-") => serpent.wait_for_stderr("is not a number of workers"),
            Some("syslog") => next(&syslog).split_once("]: ").unwrap().1.to_owned(),
            _ => {
                let file = folder.path().join("error.log");
                while !fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')) {
                    std::thread::yield_now();
                }
                fs::read_to_string(file).unwrap()
            }
        };
        let message = read(line.lines().last().unwrap());
        assert_eq!((&message["level"], &message["target"]), (&"error".into(), &"serpent::serve".into()), "{message}");
        assert!(message["message"].as_str().unwrap().contains("`0` is not a number of workers"), "{message}");
        assert!(message["time"].as_str().unwrap().ends_with('Z') && message["fields"].is_object(), "{message}");
    }
}
