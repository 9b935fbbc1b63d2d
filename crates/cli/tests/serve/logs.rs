//! Logs: of sites and routes, renamed, added and removed while the server runs.

use std::{fs, path::Path};

use rustix::process::Signal;

use super::support::{Serpent, site};

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
