//! Tests with input that is wrong by accident or on purpose: each gets a clear answer, and the server lives.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use rustix::process::Signal;

use super::support::{Serpent, certificate, site};

fn status(answer: &str) -> &str {
    answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).unwrap_or(answer)
}

#[test]
fn requests_that_cannot_be_meant() {
    let site = site();
    let serpent = Serpent::serve(&site.path().join("www"), &[]);
    let long = "a".repeat(100_000);
    for (request, expected) in [
        ("GET /%zz HTTP/1.1\r\nhost: a\r\n\r\n", &["400"][..]),
        ("GET /%2 HTTP/1.1\r\nhost: a\r\n\r\n", &["400"]),
        ("GET /a%00b HTTP/1.1\r\nhost: a\r\n\r\n", &["400", "404"]),
        ("GET hello.txt HTTP/1.1\r\nhost: a\r\n\r\n", &["400"]),
        ("GET / HTTP/1.1\r\n\r\n", &["400"]),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", &["400"]),
        ("GET / HTTP/1.1\r\nhost: a\r\nno colon\r\n\r\n", &["400"]),
        ("GET / HTTP/1.1\r\nhost : a\r\n\r\n", &["400"]),
        ("GET / HTTP/3.0\r\nhost: a\r\n\r\n", &["400", "505"]),
        ("\x16\x03\x01 not for this port\r\n\r\n", &["400"]),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx", &["400"]),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\nxx", &["400"]),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", &["400"]),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n", &["400", "501"]),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999\r\n\r\nx", &["413"]),
        (&format!("GET /{long} HTTP/1.1\r\nhost: a\r\n\r\n"), &["414"]),
        (&format!("GET / HTTP/1.1\r\nhost: a\r\nx: {long}\r\n\r\n"), &["431"]),
        (&format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(200)), &["431"]),
    ] {
        // An error of the target alone does not end a connection.
        let answer = serpent.exchange(request.replace("host: a\r\n", "host: a\r\nconnection: close\r\n").as_bytes());
        let shown: String = request.chars().take(80).collect();
        assert!(expected.contains(&status(&answer)), "{shown:?} was answered with {answer:?}");
        serpent.assert_alive();
    }
}

#[test]
fn no_way_leads_out_of_the_root() {
    let site = site();
    let serpent = Serpent::serve(&site.path().join("www"), &["--dot-files"]);
    std::os::unix::fs::symlink("../outside.txt", site.path().join("www/link.txt")).unwrap();
    for path in [
        "/../outside.txt",
        "/sub/../../outside.txt",
        "/%2e%2e/outside.txt",
        "/..%2foutside.txt",
        "/%2e%2e%2foutside.txt",
        "/.%2e/outside.txt",
        "/..\\outside.txt",
        "/..%5coutside.txt",
        "//../outside.txt",
        "/./../outside.txt",
        "/sub/..;/../../outside.txt",
        "/%252e%252e/outside.txt",
        "/%c0%ae%c0%ae/outside.txt",
        "/../../../../../../../../etc/passwd",
        "/link.txt",
        "http://a/../outside.txt",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let answer = serpent.exchange(request.as_bytes());
        assert!(!answer.contains("SECRET") && !answer.contains("root:"), "{path}: {answer}");
        assert!(["301", "400", "403", "404"].contains(&status(&answer)), "{path}: {answer}");
    }
    serpent.assert_alive();
}

#[test]
fn slow_and_endless_clients_are_let_go() {
    let site = site();
    let config = site.path().join("serpent.toml");
    let text = "listen = [\"127.0.0.1:0\"]\n[uplink]\nrate = \"off\"\n[limits]\nhead-timeout = \"200ms\"\n\
                idle-timeout = \"300ms\"\nwrite-timeout = \"300ms\"\nrequest-body = \"64KiB\"\n[[site]]\nroot = \"www\"\n";
    fs::write(&config, text).unwrap();
    let serpent = Serpent::start(&["serve", "--config", config.to_str().unwrap()]);

    // A head that never ends.
    let answer = serpent.exchange(b"GET / HTTP/1.1\r\nhost: a\r\nx: ");
    assert!(answer.is_empty() || status(&answer) == "408", "{answer}");

    // Silence between requests: the connection is closed without an answer.
    let answer = serpent.exchange(b"HEAD /hello.txt HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(status(&answer), "200");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");

    // A body that never ends.
    let mut stream = serpent.connect();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    let chunk = [b"1000\r\n".as_slice(), &[b'x'; 0x1000], b"\r\n"].concat();
    while stream.write_all(&chunk).is_ok() {}
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.is_empty() || ["405", "413"].contains(&status(&answer)), "{answer}");

    // A client that requests much and reads nothing: the server must close, otherwise the response would end
    // whole.
    let mut stream = serpent.connect();
    for _ in 0..20 {
        stream.write_all(b"GET /big.bin HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    }
    serpent.assert_alive();
}

#[test]
fn a_tls_hello_that_breaks_off() {
    let site = site();
    let (chain, key) = certificate(site.path(), "localhost", &["localhost"]);
    let arguments = ["--tls-cert", chain.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let serpent = Serpent::serve(&site.path().join("www"), &arguments);
    for bytes in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"\x16\x03\x01\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b""] {
        let mut stream = serpent.connect();
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        match bytes.starts_with(b"GET ") {
            true => assert!(text.starts_with("HTTP/1.1 400 "), "{text}"),
            // At most an alert (content type 21).
            false => assert!(answer.is_empty() || answer[0] == 21, "{text}"),
        }
    }
    let port = serpent.address().port();
    let arguments = ["--cacert", chain.to_str().unwrap(), "--resolve"];
    let resolve = format!("localhost:{port}:127.0.0.1");
    let url = format!("https://localhost:{port}/hello.txt");
    let body = super::support::curl(&[&arguments[..], &[&resolve, &url]].concat());
    assert!(body.is_none_or(|body| body == "hello, world\n"));
}

#[test]
fn what_may_not_be_read_is_named() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can become somebody who may not read");
        return;
    }
    let site = site();
    let folder = site.path();
    let set = |name: &str, mode| fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
    set("", 0o755);
    // Another process makes the copy. A file that is open for writing cannot be run, and a program that
    // another test starts at that time would hold this process's descriptors.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_serpent")).arg(folder.join("serpent")).status();
    assert!(copied.unwrap().success());
    certificate(folder, "a", &["localhost"]);
    let text = "[[site]]\nroot = \"www\"\ntls-cert = \"a.crt\"\ntls-key = \"a.key\"\n";
    fs::write(folder.join("serpent.toml"), text).unwrap();
    let check = || {
        let mut command = Command::new(folder.join("serpent"));
        let output =
            command.args(["check", "serpent.toml"]).current_dir(folder).uid(65534).gid(65534).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(check().0, Some(0), "{}", check().1);
    for (name, place, part) in [
        ("a.key", ":4:11", "the file `a.key` may not be read"),
        ("a.crt", ":3:12", "the file `a.crt` may not be read"),
        ("www", ":2:8", "the directory `www` may not be read"),
        ("serpent.toml", "", "the configuration file may not be read"),
    ] {
        set(name, 0);
        let (code, said) = check();
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(part) && said.contains(&format!("--> serpent.toml{place}")), "{said}");
        set(name, 0o755);
    }
}

#[test]
fn a_file_that_shrinks_or_vanishes_while_it_is_sent() {
    let site = site();
    let www = site.path().join("www");
    let serpent = Serpent::serve(&www, &["--uplink", "8mbit", "--cache", "off"]);
    for shrink in [true, false] {
        fs::write(www.join("moving.bin"), vec![b'x'; 1_000_000]).unwrap();
        let mut stream = serpent.connect();
        stream.write_all(b"GET /moving.bin HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = vec![0; 10_000];
        stream.read_exact(&mut answer).unwrap();
        if shrink {
            fs::File::options().write(true).open(www.join("moving.bin")).unwrap().set_len(20_000).unwrap();
        } else {
            fs::remove_file(www.join("moving.bin")).unwrap();
        }
        let _ = stream.read_to_end(&mut answer);
        let head = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let body = answer.len() - head - 4;
        if shrink {
            assert!(body < 1_000_000, "bytes that were gone were made up");
        } else {
            assert_eq!(body, 1_000_000, "a file that was opened is sent whole");
        }
        assert!(answer[head + 4..].iter().all(|byte| *byte == b'x'));
        serpent.assert_alive();
    }
}

/// A TLS record with a ClientHello that names the server by its IP address.
fn hello_by_address() -> Vec<u8> {
    let name = b"127.0.0.1";
    let extension = [&[0, 0, 0, 14, 0, 12, 0, 0, 9], &name[..]].concat();
    let head = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0xc0, 0x2f, 1, 0, 0, 18], &extension].concat();
    let len = u8::try_from(head.len()).unwrap();
    [&[22, 3, 1, 0, len + 4, 1, 0, 0, len], &head[..]].concat()
}

#[test]
fn what_clients_do_wrong_is_not_in_the_log() {
    let site = site();
    let (chain, key) = certificate(site.path(), "localhost", &["localhost"]);
    let www = site.path().join("www");
    let (www, chain, key) = (www.to_str().unwrap(), chain.to_str().unwrap(), key.to_str().unwrap());
    let listen = ["--listen", "http://127.0.0.1:0", "--listen", "https://127.0.0.1:0"];
    let args = [&["serve", www, "--uplink", "off", "--tls-cert", chain, "--tls-key", key][..], &listen].concat();
    let serpent = Serpent::start(&args);
    let unasked = b"\0\0\x08\x06\x01\0\0\0\0unasked!".repeat(100_000);
    let flood = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", &unasked[..]].concat();
    for _ in 0..3 {
        serpent.exchange(&flood);
    }
    for _ in 0..50 {
        let mut stream = TcpStream::connect(serpent.urls[1].split_once("://").unwrap().1).unwrap();
        stream.write_all(&hello_by_address()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer.first(), Some(&21), "an alert, which comes after the name was read: {answer:?}");
    }
    serpent.assert_alive();
    serpent.signal(Signal::TERM);
    let (_, said) = serpent.wait();
    let said: String = said.lines().filter(|line| !line.contains("open files")).collect();
    assert_eq!(said, "");
}

#[test]
fn lines_that_clients_can_cause_are_bounded_and_say_how_many_were_left_out() {
    // Nothing listens at this address any more.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{address}");
    let serpent = Serpent::start(&["serve", "--upstream", &url, "--listen", "127.0.0.1:0", "--uplink", "off"]);
    let gateway = serpent.address();
    let ask = || {
        let mut stream = TcpStream::connect(gateway).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
    };
    let asking = AtomicBool::new(true);
    let said = std::thread::scope(|scope| {
        scope.spawn(|| {
            while asking.load(Relaxed) {
                ask();
            }
        });
        let said = serpent.wait_for_stderr("lines like the next were left out)");
        asking.store(false, Relaxed);
        said
    });
    assert!(said.matches("no answer from an upstream").count() >= 100, "{said}");
}
