//! Guards that answer early: limits, redirects, rewrites, fixed answers, largest bodies.

use std::{
    io::{Read as _, Write as _},
    time::Instant,
};

use super::{
    access::{folder, start},
    origin::Origin,
    support::{PATIENCE, Serpent, curl, program},
};

/// A request of HTTP/1.1, and its answer in lower case.
fn ask(serpent: &Serpent, path: &str, more: &str) -> String {
    let head = format!("GET {path} HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n{more}\r\n");
    serpent.exchange(head.as_bytes()).to_lowercase()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[test]
fn beyond_its_rate_a_client_gets_429_and_is_told_when_to_come_again() {
    let folder = folder();
    let serpent = start(
        folder.path(),
        "trusted-proxies = [\"127.0.0.1\"]\n[[site]]\nroot = \"www\"\nlimit = { rate = \"2/h\" }\n\
         [[site.route]]\npath = \"/sub/\"\nfiles = true\n\
         [[site.route]]\npath = \"/style.css\"\nfiles = true\nlimit = \"off\"\n\
         [[site.route]]\npath = \"/page.html\"\nfiles = true\nlimit = { rate = \"1/h\", by = \"key\" }\n\
         [[site.route]]\npath = \"/all\"\nrespond = 200\nlimit = { rate = \"1/h\", by = \"all\" }\n\
         [[site.route]]\npath = \"/of/\"\nrespond = 200\nlimit = { rate = \"1/h\", by = [\"path\", \"header X-Tenant\"] }\n",
    );
    let from = |client: &str, path: &str| ask(&serpent, path, &format!("x-forwarded-for: {client}\r\n"));
    assert_eq!(status(&from("192.0.2.1", "/hello.txt")), "200");
    assert_eq!(status(&from("192.0.2.1", "/sub/inner.txt")), "200");
    let answer = from("192.0.2.1", "/hello.txt");
    assert_eq!(status(&answer), "429", "routes of the site count together: {answer}");
    assert!(answer.contains("ratelimit-policy: \"rate\";q=2;w=3600\r\n"), "{answer}");
    let after: u32 = answer.split("retry-after: ").nth(1).unwrap().split('\r').next().unwrap().parse().unwrap();
    assert!((1..=1800).contains(&after), "{answer}");
    assert!(answer.contains(&format!("ratelimit: \"rate\";r=0;t={after}\r\n")), "{answer}");
    assert_eq!(status(&from("192.0.2.2", "/hello.txt")), "200", "another client has a limit of its own");
    assert_eq!(status(&from("192.0.2.1", "/style.css")), "200", "a route without a limit");

    // A network of IPv6 is one client.
    assert_eq!(status(&from("2001:db8::1", "/hello.txt")), "200");
    assert_eq!(status(&from("2001:db8::2", "/hello.txt")), "200");
    assert_eq!(status(&from("2001:db8::3", "/hello.txt")), "429");
    assert_eq!(status(&from("2001:db8:0:1::3", "/hello.txt")), "200");

    // Requests may be counted together by anything that they have in common.
    assert_eq!(status(&from("192.0.2.1", "/all")), "200");
    assert_eq!(status(&from("192.0.2.2", "/all")), "429");
    for (path, client, tenant, expected) in [
        ("/of/a", "192.0.2.1", "x-tenant: red\r\n", "200"),
        ("/of/a?query", "192.0.2.2", "x-tenant: red\r\n", "429"),
        ("/of/a", "192.0.2.2", "x-tenant: blue\r\n", "200"),
        ("/of/a", "192.0.2.2", "x-tenant: red\r\nx-tenant: blue\r\n", "200"),
        ("/of/b", "192.0.2.1", "x-tenant: red\r\n", "200"),
        ("/of/a", "192.0.2.1", "", "200"),
        ("/of/a", "192.0.2.1", "", "429"),
        ("/of/a", "192.0.2.2", "", "200"),
    ] {
        let answer = ask(&serpent, path, &format!("x-forwarded-for: {client}\r\n{tenant}"));
        assert_eq!(status(&answer), expected, "{path} {client} {tenant}");
    }

    // Each key is counted by itself, and requests without one by client.
    for (more, expected) in [
        ("x-api-key: golden\r\n", "200"),
        ("x-api-key: golden\r\nx-forwarded-for: 192.0.2.9\r\n", "429"),
        ("x-api-key: unknown\r\n", "200"),
        ("x-api-key: other\r\n", "429"),
    ] {
        assert_eq!(status(&ask(&serpent, "/page.html", more)), expected, "{more}");
    }
}

#[test]
fn a_client_has_so_many_requests_under_way_and_others_have_theirs() {
    let folder = folder();
    let origin = Origin::start();
    let serpent = start(
        folder.path(),
        &format!(
            "trusted-proxies = [\"127.0.0.1\"]\n[[upstream]]\nname = \"app\"\nservers = [\"http://{}\"]\n\
             [[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\nlimit = {{ at-once = 1 }}\n",
            origin.address
        ),
    );
    let begin = |client: &str| {
        let mut stream = serpent.connect();
        let head = format!(
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-forwarded-for: {client}\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let mut first = begin("192.0.2.1");
    let asked = origin.next();
    let second = ask(&serpent, "/", "x-forwarded-for: 192.0.2.1\r\n");
    assert_eq!(status(&second), "429");
    assert!(second.contains("retry-after: 1\r\n"), "{second}");
    let mut other = begin("192.0.2.2");
    let others = origin.next();
    others.answer(b"other");
    asked.answer(b"first");
    for (stream, body) in [(&mut first, "first"), (&mut other, "other")] {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with(body), "{answer}");
    }
    // The request is over when its last byte was sent, which the client may see a moment before.
    let start = Instant::now();
    loop {
        let mut stream = begin("192.0.2.1");
        if origin_is_asked(&origin, &mut stream) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "the request that is over still counts");
    }
}

/// Whether a request gets to the origin, which then answers it, rather than being refused.
pub(super) fn origin_is_asked(origin: &Origin, stream: &mut std::net::TcpStream) -> bool {
    let mut first = [0; 12];
    std::thread::scope(|scope| {
        let refused = scope.spawn(move || stream.read_exact(&mut first).is_ok() && &first[9..] == b"429");
        // The thread ends when the server refuses the request, or when the origin has answered it.
        while !refused.is_finished() {
            if let Some(asked) = origin.try_next() {
                asked.answer(b"again");
            }
            std::thread::yield_now();
        }
        !refused.join().unwrap()
    })
}

#[test]
fn a_client_gets_no_more_bytes_than_its_share_in_both_versions_of_http() {
    let folder = folder();
    let serpent = start(
        folder.path(),
        "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/big.bin\"\nfiles = true\n\
         limit = { bytes = \"2MB/s\", bytes-burst = \"200KB\" }\n",
    );
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let start = Instant::now();
        let format = ["-o", "/dev/null", "-w", "%{size_download}"];
        let Some(bytes) = curl(&[&[version][..], &format, &[&serpent.url("/big.bin")]].concat()) else { return };
        assert_eq!(bytes, super::support::BIG.to_string());
        // It cannot be quicker. How much slower it is depends on the machine.
        assert!(start.elapsed().as_millis() >= 850, "1.8 MB at 2 MB/s: {version} {:?}", start.elapsed());
    }
}

#[test]
fn a_redirect_puts_in_groups_and_lets_no_client_choose_the_host() {
    let folder = folder();
    let serpent = start(
        folder.path(),
        "[[site]]\nroot = \"www\"\n\
         [[site.route]]\npath-regex = \"^/blog/([0-9]+)/(?<title>.*)$\"\nredirect = \"/posts/{title}?year={1}{query}\"\nredirect-status = 308\n\
         [[site.route]]\npath-regex = \"(?s)^/to/(.*)$\"\nredirect = \"/{1}\"\n\
         [[site.route]]\npath-regex = \"^/out/(.*)$\"\nredirect = \"https://other.example{1}\"\nredirect-status = 301\n",
    );
    for (path, status, location) in [
        ("/blog/2024/a%20b?c=d", "308", "/posts/a%20b?year=2024&c=d"),
        ("/to/x", "302", "/x"),
        ("/to//evil.example/", "302", "/evil.example/"),
        ("/to/%2F%2Fevil.example/", "302", "/%2f%2fevil.example/"),
        ("/to/%5C%5Cevil.example/", "302", "/%5c%5cevil.example/"),
        ("/to/%0d%0aset-cookie:%20a", "302", "/%0d%0aset-cookie:%20a"),
        ("/out/.evil.example", "301", "https://other.example/.evil.example"),
        ("/out/@evil.example", "301", "https://other.example/@evil.example"),
    ] {
        let answer = ask(&serpent, path, "");
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{path}: {answer}");
        assert!(answer.contains(&format!("location: {location}\r\n")), "{path}: {answer}");
        assert!(!answer.contains("\r\nset-cookie"), "{path}: {answer}");
    }
}

#[test]
fn a_rewritten_request_is_answered_by_the_route_of_its_new_path_with_its_guards() {
    let folder = folder();
    let origin = Origin::start();
    program(
        &folder.path().join("tell.sh"),
        "echo 'Content-Type: text/plain'; echo; echo \"$REQUEST_METHOD <$QUERY_STRING> $(cat)\"",
    );
    let serpent = start(
        folder.path(),
        &format!(
            "[[upstream]]\nname = \"app\"\nservers = [\"http://{origin}\"]\n[[site]]\nroot = \"www\"\n\
             [[site.route]]\npath-regex = \"^/v[0-9]+/(.*)$\"\nrewrite = \"/{{1}}{{query}}\"\n\
             [[site.route]]\npath = \"/run\"\nrewrite = \"/cgi/tell.sh?path={{rest}}{{query}}\"\n\
             [[site.route]]\npath = \"/round\"\nrewrite = \"/round/x{{rest}}\"\n\
             [[site.route]]\npath = \"/cgi/\"\ncgi = \"{cgi}\"\n\
             [[site.route]]\npath = \"/app/\"\nupstream = \"app\"\n\
             [[site.route]]\npath = \"/sub/\"\nfiles = true\nrequire = {{ user = true }}\n",
            origin = origin.address,
            cgi = folder.path().display(),
        ),
    );
    let url = |path: &str| serpent.url(path);
    let Some(answer) = curl(&[&url("/v2/hello.txt")]) else { return };
    assert_eq!(answer, "hello, world\n");
    assert_eq!(status(&ask(&serpent, "/v2/sub/inner.txt", "")), "401", "a rewrite opens no guarded path");
    assert_eq!(status(&ask(&serpent, "/v2/v3//sub/inner.txt", "")), "401");
    assert_eq!(curl(&["-u", "sue:secret", &url("/v2/sub/inner.txt")]).unwrap(), "inner\n");
    assert_eq!(status(&ask(&serpent, "/v2/none", "")), "404");
    // The method, the body and the query stay.
    let answer = curl(&["-d", "body", &url("/run/a%26b=c?d=e")]).unwrap();
    assert_eq!(answer, "POST <path=/a%26b%3Dc&d=e> body\n");
    let mut client = serpent.connect();
    client
        .write_all(b"PUT /v1/app/x?y HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        .unwrap();
    let asked = origin.next();
    assert!(asked.head.starts_with("PUT /app/x?y ") && asked.body == b"hi", "{}", asked.head);
    asked.answer(b"ok");
    assert_eq!(status(&ask(&serpent, "/round", "")), "502");
    serpent.wait_for_stderr("lead to each other without end");
    serpent.assert_alive();
}

#[test]
fn a_fixed_answer_has_its_status_type_and_fields() {
    let folder = folder();
    let serpent = start(
        folder.path(),
        "[[site]]\nroot = \"www\"\n\
         [[site.route]]\npath = \"/health\"\nrespond = 200\nrespond-body = \"{}\"\nrespond-type = \"application/json\"\n\
         response-headers = { set = { \"Cache-Control\" = \"no-store\" } }\n\
         [[site.route]]\npath = \"/gone\"\nrespond = 410\n\
         [[site.route]]\npath = \"/nothing\"\nrespond = 204\n",
    );
    let answer = ask(&serpent, "/health", "");
    assert!(answer.starts_with("http/1.1 200 ") && answer.ends_with("\r\n\r\n{}"), "{answer}");
    for field in ["content-type: application/json", "content-length: 2", "cache-control: no-store"] {
        assert!(answer.contains(&format!("\r\n{field}\r\n")), "{field}: {answer}");
    }
    let answer = ask(&serpent, "/gone", "");
    assert!(answer.starts_with("http/1.1 410 ") && answer.contains("<h1>410 gone</h1>"), "{answer}");
    let answer = ask(&serpent, "/nothing", "");
    assert!(answer.starts_with("http/1.1 204 ") && answer.ends_with("\r\n\r\n"), "{answer}");
    assert!(!answer.contains("content-length"), "{answer}");
    // For HEAD the same without the body, and the connection can be used on.
    let answer = serpent.exchange(
        b"HEAD /health HTTP/1.1\r\nhost: a\r\n\r\nGET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    );
    assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 2, "{answer}");
    assert_eq!(answer.matches("{}").count(), 1, "{answer}");
}

#[test]
fn a_route_has_a_largest_body_of_its_own() {
    let folder = folder();
    let origin = Origin::start();
    let serpent = start(
        folder.path(),
        &format!(
            "[limits]\nrequest-body = \"1KiB\"\n[[upstream]]\nname = \"app\"\nservers = [\"http://{}\"]\n[[site]]\n\
             [[site.route]]\npath = \"/upload\"\nupstream = \"app\"\nrequest-body = \"4KiB\"\n\
             [[site.route]]\npath = \"/tiny\"\nupstream = \"app\"\nrequest-body = \"10B\"\n\
             [[site.route]]\npath = \"/\"\nupstream = \"app\"\n",
            origin.address
        ),
    );
    let post = |path: &str, bytes: usize| {
        let body = "x".repeat(bytes);
        let mut stream = serpent.connect();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {bytes}\r\n\r\n{body}");
        let _ = stream.write_all(head.as_bytes());
        stream
    };
    let answer = |mut stream: std::net::TcpStream| {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    for (path, bytes) in [("/", 1025), ("/upload", 4097), ("/tiny", 11)] {
        assert_eq!(status(&answer(post(path, bytes))), "413", "{path}");
    }
    assert!(origin.is_idle());
    for (path, bytes) in [("/", 1024), ("/upload", 4096), ("/tiny", 10)] {
        let stream = post(path, bytes);
        let asked = origin.next();
        assert_eq!(asked.body.len(), bytes);
        asked.answer(b"ok");
        assert_eq!(status(&answer(stream)), "200", "{path}");
    }
}

#[test]
fn a_missing_file_goes_to_a_route_that_no_client_asks_for() {
    let folder = folder();
    let origin = Origin::start();
    let serpent = start(
        folder.path(),
        &format!(
            "[[upstream]]\nname = \"app\"\nservers = [\"http://{}\"]\n[[site]]\nroot = \"www\"\n\
             [[site.route]]\npath = \"/@app/\"\nupstream = \"app\"\ninternal = true\nreplace-prefix = \"/\"\n\
             [[site.route]]\npath = \"/\"\nfiles = true\nfallback = \"/@app{{path}}\"\n",
            origin.address,
        ),
    );
    assert_eq!(status(&ask(&serpent, "/hello.txt", "")), "200");
    for path in ["/@app/hello.txt", "/%40app/hello.txt"] {
        let answer = ask(&serpent, path, "");
        assert!(status(&answer) == "404" && origin.is_idle(), "{path}: {answer}");
    }
    let mut client = serpent.connect();
    client
        .write_all(b"POST /a%2Fb%20c?d=%26 HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi")
        .unwrap();
    let asked = origin.next();
    assert_eq!((asked.path(), &*asked.body), ("/a%2Fb%20c?d=%26", &b"hi"[..]));
    asked.answer(b"ok");
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(status(&answer), "200");
}

#[test]
fn a_site_without_a_root_has_error_pages_and_a_route_keeps_the_errors_of_its_origin() {
    let folder = folder();
    let origin = Origin::start();
    std::fs::write(folder.path().join("sorry.json"), "{}").unwrap();
    // As HAProxy has them: a whole response.
    let whole =
        "HTTP/1.0 410 Gone\r\nCache-Control: no-cache\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>closed</p>";
    std::fs::write(folder.path().join("403.http"), whole).unwrap();
    let serpent = start(
        folder.path(),
        &format!(
            "[[upstream]]\nname = \"app\"\nservers = [\"http://{}\"]\n[[upstream]]\nname = \"dead\"\nservers = [\"http://127.0.0.1:1\"]\n\
             [[site]]\nerror-pages = {{ 5xx = \"file:sorry.json\", 404 = \"text:Nothing here\", 403 = \"file:403.http\" }}\n\
             [[site.route]]\npath = \"/closed/\"\nrespond = 403\n\
             [[site.route]]\npath = \"/api/\"\nupstream = \"app\"\nerror-pages = false\n\
             [[site.route]]\npath = \"/app/\"\nupstream = \"app\"\n\
             [[site.route]]\npath = \"/dead/\"\nupstream = \"dead\"\nerror-pages = false\n",
            origin.address,
        ),
    );
    let of_origin = |path: &str| {
        let mut client = serpent.connect();
        client.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
        let asked = origin.next();
        asked.send(b"HTTP/1.1 500 Failed\r\ncontent-type: a/b\r\ncontent-length: 3\r\n\r\nown");
        asked.done();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    for (answer, status, content_type, body) in [
        (ask(&serpent, "/none", ""), "404", "text/plain; charset=utf-8", "nothing here"),
        (ask(&serpent, "/closed/", ""), "403", "text/html; charset=utf-8", "<p>closed</p>"),
        (ask(&serpent, "/dead/", ""), "502", "application/json", "{}"),
        (of_origin("/app/"), "500", "application/json", "{}"),
        (of_origin("/api/"), "500", "a/b", "own"),
    ] {
        let answer = answer.to_lowercase();
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{answer}");
        assert!(answer.ends_with(&format!("\r\n\r\n{body}")), "{answer}");
        assert!(answer.contains(&format!("content-type: {content_type}\r\n")), "{answer}");
    }
}

#[test]
fn an_error_page_of_the_site_keeps_the_status_whatever_answers() {
    let folder = folder();
    let origin = Origin::start();
    for (name, text) in [("404.html", "no such page"), ("sorry.html", "sorry"), ("who.html", "who are you")] {
        std::fs::write(folder.path().join("www").join(name), text).unwrap();
    }
    program(&folder.path().join("fail.sh"), "echo 'Status: 500 Failed'; echo 'X-Own: 1'; echo; echo details");
    let serpent = start(
        folder.path(),
        &format!(
            "[[upstream]]\nname = \"app\"\nservers = [\"http://{origin}\"]\n[[upstream]]\nname = \"dead\"\nservers = [\"http://127.0.0.1:1\"]\n\
             [[site]]\nroot = \"www\"\nerror-pages = {{ 5xx = \"/sorry.html\", 404 = \"/404.html\", 401 = \"/who.html\", 410 = \"/404.html\" }}\n\
             [[site.route]]\npath = \"/app/\"\nupstream = \"app\"\n\
             [[site.route]]\npath = \"/dead/\"\nupstream = \"dead\"\n\
             [[site.route]]\npath = \"/cgi/\"\ncgi = \"{cgi}\"\n\
             [[site.route]]\npath = \"/gone\"\nrespond = 410\n\
             [[site.route]]\npath = \"/sub/\"\nfiles = true\nrequire = {{ user = true }}\n",
            origin = origin.address,
            cgi = folder.path().display(),
        ),
    );
    for (path, status, body) in [
        ("/none", "404", "no such page"),
        ("/gone", "410", "no such page"),
        ("/dead/", "502", "sorry"),
        ("/cgi/fail.sh", "500", "sorry"),
        ("/sub/inner.txt", "401", "who are you"),
        ("/listed/", "403", "<h1>403 forbidden</h1>\n</body>\n</html>\n"),
    ] {
        let answer = ask(&serpent, path, "");
        assert!(answer.starts_with(&format!("http/1.1 {status} ")) && answer.ends_with(body), "{path}: {answer}");
        let length = format!("content-length: {}\r\n", body.len());
        assert!(status == "403" || answer.contains(&length), "{path}: {answer}");
        assert!(status == "403" || !answer.contains("content-security-policy"), "a policy of another page: {answer}");
        assert_eq!(answer.contains("www-authenticate: "), status == "401", "{answer}");
        assert_eq!(answer.contains("x-own: 1"), path == "/cgi/fail.sh", "{answer}");
    }
    let mut client = serpent.connect();
    client.write_all(b"GET /app/x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let asked = origin.next();
    asked.send(b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\nretry-after: 7\r\netag: \"a\"\r\n\r\nbusy");
    asked.done();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("\r\n\r\nsorry"), "{answer}");
    assert!(answer.contains("retry-after: 7\r\n") && !answer.contains("etag"), "{answer}");
    // For HEAD there is no body, and the connection can be used on.
    let answer = serpent.exchange(
        b"HEAD /none HTTP/1.1\r\nhost: a\r\n\r\nGET /hello.txt HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.ends_with("hello, world\n"), "{answer}");
    assert!(!answer.contains("no such page"), "{answer}");
    // A page that is gone leaves the built-in one.
    std::fs::remove_file(folder.path().join("www/who.html")).unwrap();
    let answer = ask(&serpent, "/sub/x", "");
    assert!(answer.starts_with("http/1.1 401 "), "{answer}");
}

#[test]
fn where_there_is_no_file_the_next_one_that_is_tried_answers() {
    let folder = folder();
    std::fs::write(folder.path().join("www/about.html"), "about us").unwrap();
    let serpent = start(
        folder.path(),
        "[[site]]\nroot = \"www\"\n\
         [[site.route]]\npath = \"/sub/\"\nfiles = true\n\
         [[site.route]]\npath = \"/\"\nfiles = true\ntry-files = [\"/{rest}.html\", \"/index.html\"]\n",
    );
    for (path, status, part) in [
        ("/hello.txt", "200", "hello, world"),
        ("/about", "200", "about us"),
        ("/about?a=b", "200", "about us"),
        ("/some/view/7", "200", "<p>index"),
        ("/listed/", "403", "403 forbidden"),
        ("/sub/none", "404", "404 not found"),
        ("/../etc/passwd", "400", "400 bad request"),
    ] {
        let answer = ask(&serpent, path, "");
        assert!(answer.starts_with(&format!("http/1.1 {status} ")) && answer.contains(part), "{path}: {answer}");
    }
}

#[test]
fn a_client_has_so_many_connections_open_and_trusted_proxies_have_any_number() {
    let folder = folder();
    let serpent = start(
        folder.path(),
        "trusted-proxies = [\"127.0.0.3\"]\n[limits]\nconnections-per-client = 2\n[[site]]\nroot = \"www\"\n",
    );
    // Whether a request on a new connection from this address is answered; and the connection, which stays open.
    let ask = |from: &str| {
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
        let from: std::net::SocketAddrV4 = format!("{from}:0").parse().unwrap();
        rustix::net::bind(&socket, &from).unwrap();
        let std::net::SocketAddr::V4(address) = serpent.address() else { panic!() };
        rustix::net::connect(&socket, &address).unwrap();
        let mut stream = std::net::TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(b"HEAD /hello.txt HTTP/1.1\r\nhost: a\r\n\r\n");
        let mut start = [0; 12];
        let is_answered = stream.read_exact(&mut start).is_ok();
        assert!(!is_answered || start == *b"HTTP/1.1 200", "{start:?}");
        (is_answered, stream)
    };
    let (first, second) = (ask("127.0.0.1"), ask("127.0.0.1"));
    assert!(first.0 && second.0);
    assert!(!ask("127.0.0.1").0, "one too many");
    let _others =
        [ask("127.0.0.2"), ask("127.0.0.2"), ask("127.0.0.3"), ask("127.0.0.3"), ask("127.0.0.3")].map(|asked| {
            assert!(asked.0);
            asked
        });
    drop(first);
    // The end of a connection is seen a moment later.
    let start = Instant::now();
    while !ask("127.0.0.1").0 {
        assert!(start.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
}

#[test]
fn a_route_takes_only_the_requests_that_meet_its_conditions() {
    let folder = folder();
    let serpent = start(
        folder.path(),
        "trusted-proxies = [\"127.0.0.1\"]\n[[site]]\nroot = \"www\"\n\
         [[site.route]]\npath = \"/\"\nunless = { method = [\"GET\", \"HEAD\"] }\nrespond = 405\nrespond-body = \"read only\"\n\
         [[site.route]]\npath = \"/\"\nheader = { User-Agent = { regex = \"(?i)scraper\" } }\n\
         unless = { client = \"192.0.2.7\", query = { key = \"1\" } }\nrespond = 403\n\
         [[site.route]]\npath = \"/\"\ncookie = { beta = true }\nredirect = \"https://beta.example{uri}\"\n",
    );
    let ask = |method: &str, path: &str, more: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n{more}\r\n");
        serpent.exchange(head.as_bytes()).to_lowercase()
    };
    let of = |method: &str, path: &str, more: &str| status(&ask(method, path, more)).to_owned();
    assert_eq!(of("GET", "/hello.txt", ""), "200", "no route takes it, so it is for the files");
    assert_eq!(of("HEAD", "/hello.txt", ""), "200");
    let refused = ask("PROPFIND", "/hello.txt", "");
    assert!(status(&refused) == "405" && refused.ends_with("read only"), "{refused}");
    let agent = "user-agent: Scraper/2\r\n";
    assert_eq!(of("GET", "/hello.txt", agent), "403");
    assert_eq!(of("GET", "/hello.txt?key=1", agent), "200");
    assert_eq!(of("GET", "/hello.txt?key=2", agent), "403");
    assert_eq!(of("GET", "/hello.txt", &format!("{agent}x-forwarded-for: 192.0.2.7\r\n")), "200");
    assert_eq!(of("GET", "/hello.txt", &format!("{agent}x-forwarded-for: 192.0.2.8\r\n")), "403");
    assert_eq!(of("GET", "/hello.txt", "user-agent: curl\r\n"), "200");
    let sent = ask("GET", "/hello.txt", "cookie: a=1; beta=\r\n");
    assert!(sent.contains("location: https://beta.example/hello.txt"), "{sent}");
}
