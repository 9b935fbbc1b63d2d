//! Guards that refuse requests: passwords, keys, certificates, addresses.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{
    origin::Origin,
    support::{PATIENCE, Serpent, certificate, curl, program, site},
};

/// `htpasswd -B -C 4`; the password is `secret`.
const USERS: &str = "bea:$2y$04$4gsMHaPbnPkk0iw7NgkkUehgNIJEVOHnzxpLLWX3LSoD9A3lOeHrm\n\
                     sue:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";

/// A folder with a site, users, and a key `golden` of the level `gold`.
pub(super) fn folder() -> TempDir {
    let folder = site();
    // `printf golden | sha256sum`
    let keys = "gold dd56de4137951d9c92681b03416ec15f886b4482a27e3a517d32f085244cbe5d\n";
    for (name, text) in [("users", USERS), ("keys", keys)] {
        fs::write(folder.path().join(name), text).unwrap();
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    folder
}

/// A server with users and keys, and `text` behind that.
pub(super) fn start(folder: &Path, text: &str) -> Serpent {
    let file = folder.join("serpent.toml");
    let head = "listen = [\"127.0.0.1:0\"]\n";
    let tables = "[uplink]\nrate = \"off\"\n[users]\nfile = \"users\"\n[keys]\nfile = \"keys\"\n";
    let (top, rest) = text.split_once("[[").unwrap_or((text, ""));
    fs::write(&file, format!("{head}{top}{tables}[[{rest}")).unwrap();
    Serpent::start(&["serve", "--config", file.to_str().unwrap()])
}

#[test]
fn a_private_path_is_served_to_users_only_whatever_answers_it() {
    let folder = folder();
    let origin = Origin::start();
    program(&folder.path().join("tell.sh"), "echo 'Content-Type: text/plain'; echo; echo \"user $REMOTE_USER\"");
    let serpent = start(
        folder.path(),
        &format!(
            "[access-log]\ntarget = \"-\"\n[[upstream]]\nname = \"app\"\nservers = [\"http://{origin}\"]\n[[site]]\nroot = \"www\"\n\
             [[site.route]]\npath = \"/sub/\"\nfiles = true\nrequire = {{ user = true, realm = \"the sub\" }}\n\
             [[site.route]]\npath = \"/app/\"\nupstream = \"app\"\nrequire = {{ user = \"sue\" }}\n\
             [[site.route]]\npath = \"/cgi/\"\ncgi = \"{cgi}\"\nrequire = {{ user = true }}\n\
             [[site.route]]\npath = \"/old/\"\nredirect = \"/sub{{rest}}\"\nrequire = {{ user = true }}\n",
            origin = origin.address,
            cgi = folder.path().display(),
        ),
    );
    let ask = |more: &[&str], path: &str| curl(&[&["-i", "--path-as-is"], more, &[&serpent.url(path)]].concat());
    let Some(answer) = ask(&[], "/sub/inner.txt") else { return };
    assert!(answer.starts_with("HTTP/1.1 401 ") && !answer.contains("inner"), "{answer}");
    let answer = answer.to_lowercase();
    assert!(answer.contains("www-authenticate: basic realm=\"the sub\", charset=\"utf-8\"\r\n"), "{answer}");
    for (user, path, status) in [
        ("bea:secret", "/sub/inner.txt", 200),
        ("sue:secret", "/sub/inner.txt", 200),
        ("bea:wrong", "/sub/inner.txt", 401),
        ("bob:secret", "/sub/inner.txt", 401),
        ("bea:secret", "/app/", 401),
        ("sue:wrong", "/app/", 401),
        ("bea:secret", "/cgi/tell.sh", 200),
        ("bea:wrong", "/cgi/tell.sh", 401),
        ("bea:secret", "/old/x", 302),
        ("bea:wrong", "/old/x", 401),
    ] {
        let answer = ask(&["-u", user], path).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{user} {path}: {answer}");
        assert!(status != 200 || answer.ends_with("inner\n") || answer.ends_with("user bea\n"), "{answer}");
    }
    // However a client writes the path.
    for path in [
        "//sub/inner.txt",
        "/./sub/inner.txt",
        "/%73ub/inner.txt",
        "/listed/../sub/inner.txt",
        "/x/%2e%2e/sub//inner.txt",
    ] {
        let answer = ask(&[], path).unwrap();
        assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
    }
    assert!(ask(&["--head"], "/sub/inner.txt").unwrap().starts_with("HTTP/1.1 401 "));
    assert!(ask(&["-d", "a=b"], "/app/").unwrap().starts_with("HTTP/1.1 401 "));
    assert!(origin.is_idle(), "what is refused does not get to the upstream");
    assert!(ask(&[], "/hello.txt").unwrap().starts_with("HTTP/1.1 200 "), "the rest of the site is open");

    let mut client = serpent.connect();
    // `sue:secret`
    let head = b"GET /app/x HTTP/1.1\r\nhost: a\r\nauthorization: Basic c3VlOnNlY3JldA==\r\nconnection: close\r\n\r\n";
    client.write_all(head).unwrap();
    assert_eq!(origin.answer("from the app"), "/app/x");
    let logged = std::iter::repeat_with(|| serpent.stdout_line()).find(|line| line.contains("GET /app/x")).unwrap();
    assert!(logged.contains(" sue "), "{logged}");
}

#[test]
fn the_body_of_a_refused_request_is_not_read() {
    let folder = folder();
    let serpent = start(folder.path(), "[[site]]\nroot = \"www\"\nrequire = { user = true }\n");
    let head = "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\nexpect: 100-continue\r\n\r\n";
    let answer = serpent.exchange(head.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(answer.to_lowercase().contains("connection: close\r\n"), "{answer}");
}

#[test]
fn what_a_site_requires_holds_for_routes_that_do_not_say_otherwise() {
    let folder = folder();
    let serpent = start(
        folder.path(),
        "[[site]]\nroot = \"www\"\nrequire = { user = true, key = true, satisfy = \"any\" }\n\
         [[site.route]]\npath = \"/style.css\"\nfiles = true\nrequire = \"off\"\n\
         [[site.route]]\npath = \"/sub/\"\nfiles = true\nrequire = { key = \"gold\" }\n\
         [[site.route]]\npath = \"/listed/\"\nfiles = true\n",
    );
    let status = |more: &[&str], path: &str| {
        curl(&[&["-o", "/dev/null", "-w", "%{http_code}"], more, &[&serpent.url(path)]].concat())
    };
    let Some(open) = status(&[], "/style.css") else { return };
    assert_eq!(open, "200");
    for (more, path, expected) in [
        (&[][..], "/hello.txt", "401"),
        (&[], "/listed/", "401"),
        (&["-u", "sue:secret"], "/hello.txt", "200"),
        (&["-H", "X-Api-Key: golden"], "/hello.txt", "200"),
        (&["-H", "X-Api-Key: leaden"], "/hello.txt", "401"),
        (&["-u", "sue:secret"], "/sub/inner.txt", "403"),
        (&["-H", "X-Api-Key: golden"], "/sub/inner.txt", "200"),
    ] {
        assert_eq!(status(more, path).unwrap(), expected, "{more:?} {path}");
    }
}

#[test]
fn a_certificate_that_is_required_is_one_of_the_authorities_of_the_site() {
    let folder = folder();
    let (chain, key) = certificate(folder.path(), "server", &["localhost"]);
    let (partner, partner_key) = certificate(folder.path(), "partner", &["partner.example"]);
    let serpent = start(
        folder.path(),
        &format!(
            "[[site]]\nroot = \"www\"\ntls-cert = \"{}\"\ntls-key = \"{}\"\nclient-ca = \"{}\"\n\
             [[site.route]]\npath = \"/sub/\"\nfiles = true\nrequire = {{ certificate = \"partner.example\" }}\n",
            chain.display(),
            key.display(),
            partner.display(),
        ),
    );
    let ask = |more: &[&str], path: &str| {
        curl(&[&["-k", "-o", "/dev/null", "-w", "%{http_code}"], more, &[&serpent.url(path)]].concat())
    };
    let Some(open) = ask(&[], "/hello.txt") else { return };
    assert_eq!(open, "200");
    assert_eq!(ask(&[], "/sub/inner.txt").unwrap(), "403");
    let shown = ["--cert", partner.to_str().unwrap(), "--key", partner_key.to_str().unwrap()];
    assert_eq!(ask(&shown, "/sub/inner.txt").unwrap(), "200");
}

#[test]
fn clients_are_let_in_by_the_address_that_a_trusted_proxy_names() {
    let folder = folder();
    let serpent = start(
        folder.path(),
        "trusted-proxies = [\"127.0.0.1\"]\n[[site]]\nroot = \"www\"\ndeny = [\"192.0.2.0/24\"]\n\
         [[site.route]]\npath = \"/sub/\"\nfiles = true\nallow = [\"10.0.0.0/8\"]\ndeny = [\"10.0.0.13\"]\n",
    );
    let status = |client: &str, path: &str| {
        let field = format!("X-Forwarded-For: {client}");
        curl(&["-o", "/dev/null", "-w", "%{http_code}", "-H", &field, &serpent.url(path)])
    };
    let Some(open) = status("198.51.100.1", "/hello.txt") else { return };
    assert_eq!(open, "200");
    for (client, path, expected) in [
        ("192.0.2.1", "/hello.txt", "403"),
        ("10.0.0.13", "/hello.txt", "200"),
        ("10.1.2.3", "/sub/inner.txt", "200"),
        ("10.0.0.13", "/sub/inner.txt", "403"),
        ("198.51.100.1", "/sub/inner.txt", "403"),
        // The client's own text comes before the address that the proxy has seen.
        ("10.1.2.3, 198.51.100.1", "/sub/inner.txt", "403"),
    ] {
        assert_eq!(status(client, path).unwrap(), expected, "{client} {path}");
    }
}

#[test]
fn a_site_is_closed_while_a_file_exists() {
    let folder = folder();
    let switch = folder.path().join("closed");
    fs::write(folder.path().join("www/closed.html"), "back soon").unwrap();
    let serpent = start(
        folder.path(),
        "[[site]]\nroot = \"www\"\nerror-pages = { 503 = \"/closed.html\" }\n\
         maintenance = { file = \"closed\", exempt = [\"127.0.0.2\"], retry-after = \"10m\" }\n\
         [[site.route]]\npath = \"/fixed\"\nrespond = 204\n\
         [[site.route]]\npath = \"/health\"\nrespond = 204\nmaintenance = false\n",
    );
    let ask = |from: &str, path: &str| curl(&["-i", "--interface", from, &serpent.url(path)]);
    // The file is looked for every second.
    let wait_for = |status: &str| {
        let start = Instant::now();
        loop {
            let answer = ask("127.0.0.1", "/hello.txt")?;
            if answer.starts_with(status) {
                return Some(answer);
            }
            assert!(start.elapsed() < PATIENCE, "not {status} but {answer}");
            thread::sleep(Duration::from_millis(50));
        }
    };
    if wait_for("HTTP/1.1 200 ").is_none() {
        return;
    }
    fs::write(&switch, "").unwrap();
    let answer = wait_for("HTTP/1.1 503 ").unwrap();
    assert!(answer.to_lowercase().contains("\r\nretry-after: 600\r\n") && answer.ends_with("back soon"), "{answer}");
    assert!(ask("127.0.0.1", "/fixed").unwrap().starts_with("HTTP/1.1 503 "), "whatever the route");
    assert!(ask("127.0.0.1", "/health").unwrap().starts_with("HTTP/1.1 204 "), "but one that stays open");
    assert!(ask("127.0.0.2", "/hello.txt").unwrap().ends_with("hello, world\n"));
    fs::remove_file(&switch).unwrap();
    wait_for("HTTP/1.1 200 ").unwrap();
}
