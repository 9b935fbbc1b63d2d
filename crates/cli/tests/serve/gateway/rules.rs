//! Header rules of routes.

use super::*;

/// A site with files, whose every route sets a field of its own.
fn start_with_rules(folder: &TempDir) -> Serpent {
    let www = folder.path().join("www");
    for place in ["folder", "plain"] {
        fs::create_dir_all(www.join(place)).unwrap();
    }
    for file in ["a.txt", "plain/a.txt"] {
        fs::write(www.join(file), "abcdef").unwrap();
    }
    program(&folder.path().join("to-file.sh"), "echo 'Location: /a.txt'; echo");
    let hsts = |value: &str| format!("response-headers = {{ set = {{ \"Strict-Transport-Security\" = \"{value}\" }}");
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\n[uplink]\nrate = \"off\"\n[limits]\nrequest-body = \"1KiB\"\n\
         [[upstream]]\nname = \"dead\"\nservers = [\"http://127.0.0.1:1\"]\n[[site]]\nroot = \"{www}\"\n\
         [[site.route]]\npath = \"/api\"\nupstream = \"dead\"\n{api}, remove = [\"Server\"] }}\n\
         [[site.route]]\npath = \"/cgi\"\ncgi = \"{folder}\"\n{cgi} }}\n\
         [[site.route]]\npath = \"/plain\"\nfiles = true\nrequest-headers = {{ remove = [\"Range\"] }}\n\
         [[site.route]]\npath = \"/\"\nfiles = true\n{files}, add = {{ Vary = \"Cookie\" }}, remove = [\"ETag\"] }}\n",
        www = www.display(),
        folder = folder.path().display(),
        api = hsts("api"),
        cgi = hsts("cgi"),
        files = hsts("files"),
    );
    let file = folder.path().join("serpent.toml");
    fs::write(&file, config).unwrap();
    Serpent::start(&["serve", "--config", file.to_str().unwrap()])
}

#[test]
fn the_header_rules_of_a_route_hold_for_files_and_for_pages_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let serpent = start_with_rules(&folder);
    let ask = |method: &str, path: &str, more: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{more}\r\n");
        serpent.exchange(head.as_bytes()).to_lowercase()
    };
    for (method, path, more, status, route) in [
        ("GET", "/a.txt", "", 200, "files"),
        ("HEAD", "/a.txt", "", 200, "files"),
        ("GET", "/a.txt", "range: bytes=1-2\r\n", 206, "files"),
        ("GET", "/a.txt", "range: bytes=9-\r\n", 416, "files"),
        ("GET", "/a.txt", "if-match: \"other\"\r\n", 412, "files"),
        ("GET", "/a.txt", "if-none-match: *\r\n", 304, "files"),
        ("GET", "/folder", "", 301, "files"),
        ("GET", "/folder/", "", 403, "files"),
        ("GET", "/none", "", 404, "files"),
        ("OPTIONS", "/a.txt", "", 204, "files"),
        ("POST", "/a.txt", "content-length: 0\r\n", 405, "files"),
        ("POST", "/a.txt", "content-length: 2000\r\n", 413, "files"),
        ("BREW", "/a.txt", "", 501, "files"),
        // Where a program redirects to, the rules of that place hold, and no others.
        ("GET", "/cgi/to-file.sh", "", 200, "files"),
        ("GET", "/cgi/none.sh", "", 404, "cgi"),
        ("GET", "/api", "", 502, "api"),
        ("POST", "/api", "content-length: 2000\r\n", 413, "api"),
    ] {
        let answer = ask(method, path, more);
        let called = format!("{method} {path} {more:?}: {answer}");
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{called}");
        assert_eq!(answer.matches("strict-transport-security: ").count(), 1, "{called}");
        assert!(answer.contains(&format!("strict-transport-security: {route}\r\n")), "{called}");
        assert_eq!(answer.contains("server: "), route != "api", "{called}");
        if route == "files" {
            assert!(answer.contains("vary: cookie\r\n") && !answer.contains("etag: "), "{called}");
        }
    }
    // The rules for a request decide what the files look at.
    let answer = ask("GET", "/plain/a.txt", "range: bytes=1-2\r\n");
    assert!(answer.starts_with("http/1.1 200 ") && answer.ends_with("abcdef"), "{answer}");
}

#[test]
fn the_rules_of_a_site_come_before_those_of_its_routes() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("www")).unwrap();
    fs::write(folder.path().join("www/a.txt"), "abcdef").unwrap();
    let file = folder.path().join("serpent.toml");
    let config = "listen = [\"127.0.0.1:0\"]\n[uplink]\nrate = \"off\"\n\
         [[upstream]]\nname = \"dead\"\nservers = [\"http://127.0.0.1:1\"]\n[[site]]\nroot = \"www\"\n\
         response-headers = { remove = [\"Server\"], set = { X-A = \"site\", X-B = \"site\" }, add = { X-C = \"site\" } }\n\
         [[site.route]]\npath = \"/own\"\nupstream = \"dead\"\n\
         response-headers = { remove = [\"X-A\"], set = { X-B = \"route\" }, add = { X-C = \"route\" } }\n\
         [[site.route]]\npath = \"/api\"\nupstream = \"dead\"\n";
    fs::write(&file, config).unwrap();
    let serpent = Serpent::start(&["serve", "--config", file.to_str().unwrap()]);
    let of_site = ["x-a: site", "x-b: site", "x-c: site"];
    for (target, status, expected) in [
        ("/a.txt", 200, &of_site[..]),
        ("/none", 404, &of_site),
        ("/api", 502, &of_site),
        ("/own", 502, &["x-c: site", "x-c: route", "x-b: route"]),
        // Malformed.
        ("a", 400, &of_site),
    ] {
        let head = format!("GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let answer = serpent.exchange(head.as_bytes()).to_lowercase();
        assert!(answer.starts_with(&format!("http/1.1 {status} ")) && !answer.contains("server: "), "{answer}");
        let found: Vec<_> = answer.lines().filter(|line| line.starts_with("x-") && !line.contains("nosniff")).collect();
        assert_eq!(found, expected, "{target}");
    }
}

#[test]
fn a_refused_request_gets_the_response_rules_of_its_route() {
    let rules = "response-headers = { set = { \"Strict-Transport-Security\" = \"max-age=1\" } }\n";
    let gateway = Gateway::start(&format!("{rules}{}", CLASSES.replace("queue = 3", "queue = 1")));
    let first = gateway.ask("/plain/0", "");
    let asked = gateway.origin.next();
    let waits = gateway.ask("/plain/1", "");
    gateway.wait_for_waiting("plain", 1);
    let refused = all(gateway.ask("/plain/2", ""));
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("\r\nstrict-transport-security: max-age=1\r\n"), "{refused}");
    asked.answer(b"0");
    gateway.origin.answer("1");
    for client in [first, waits] {
        let answer = all(client);
        assert!(answer.contains("\r\nstrict-transport-security: max-age=1\r\n"), "{answer}");
    }
}

#[test]
fn a_redirect_answers_before_anything_else_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\n[uplink]\nrate = \"off\"\n[[site]]\nroot = \"{www}\"\n\
         [[site.route]]\npath = \"/old\"\nredirect = \"/new{{rest}}{{query}}\"\nredirect-status = 308\n\
         [[site.route]]\npath = \"/secure/\"\nredirect = \"https://{{host}}{{uri}}\"\n\
         response-headers = {{ set = {{ \"Cache-Control\" = \"max-age=60\" }} }}\n",
        www = folder.path().display(),
    );
    let file = folder.path().join("serpent.toml");
    fs::write(&file, config).unwrap();
    let serpent = Serpent::start(&["serve", "--config", file.to_str().unwrap()]);
    let ask =
        |head: &str| serpent.exchange(format!("{head}host: A.example:81\r\nconnection: close\r\n\r\n").as_bytes());
    for (head, status, location) in [
        ("GET /old HTTP/1.1\r\n", 308, "/new"),
        ("GET /old/x%20y?a=b HTTP/1.1\r\n", 308, "/new/x%20y?a=b"),
        ("DELETE /old/x HTTP/1.1\r\n", 308, "/new/x"),
        ("HEAD /secure/../secure/x HTTP/1.1\r\n", 302, "https://A.example/secure/../secure/x"),
        ("GET http://b.example/secure/?q HTTP/1.1\r\n", 302, "https://b.example/secure/?q"),
        ("POST /old HTTP/1.1\r\ncontent-length: 5\r\n", 308, "/new"),
    ] {
        let answer = ask(head);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head}{answer}");
        assert!(answer.contains(&format!("location: {location}\r\n")), "{head}{answer}");
        assert_eq!(answer.contains("cache-control: max-age=60\r\n"), status == 302, "{head}{answer}");
        assert_eq!(answer.ends_with("\r\n\r\n"), head.starts_with("HEAD"), "{head}{answer}");
    }
    assert!(ask("GET /old%2e%2e%2f%00 HTTP/1.1\r\n").starts_with("HTTP/1.1 400 "));
    assert!(ask("GET /other HTTP/1.1\r\n").starts_with("HTTP/1.1 404 "));
}
