//! `expires`: how long caches may keep responses.

use std::fs;

use super::{
    access::start,
    origin::Origin,
    support::{curl, serpent, site},
};

/// The value of a field in an answer of `curl -i`; all values, where there are several.
fn field(answer: &str, name: &str) -> String {
    let head = answer.split("\r\n\r\n").next().unwrap_or_default();
    let values = head.lines().filter_map(|line| line.split_once(": ")).filter(|(it, _)| it.eq_ignore_ascii_case(name));
    values.map(|(_, value)| value.trim()).collect::<Vec<_>>().join(" | ")
}

#[test]
fn responses_of_every_origin_say_how_long_they_may_be_kept_by_their_type() {
    let folder = super::access::folder();
    let origin = Origin::start();
    let serpent = start(
        folder.path(),
        &format!(
            "[[upstream]]\nname = \"app\"\nservers = [\"http://{}\"]\n\
             [[site]]\nroot = \"www\"\n\
             expires = {{ \"text/css\" = \"1y, immutable\", \"text/*\" = \"1h\", \"text/html\" = \"no-cache\", default = \"30d\" }}\n\
             [[site.route]]\npath = \"/app/\"\nupstream = \"app\"\n\
             [[site.route]]\npath = \"/over/\"\nupstream = \"app\"\nexpires-override = true\nexpires-field = true\n\
             [[site.route]]\npath = \"/none/\"\nrespond = 200\nrespond-body = \"x\"\nexpires = \"off\"\n\
             [[site.route]]\npath = \"/rule/\"\nrespond = 200\nrespond-body = \"x\"\n\
             response-headers.set = {{ \"Cache-Control\" = \"private\" }}\n\
             [[site.route]]\npath = \"/old/\"\nredirect = \"/new\"\n",
            origin.address
        ),
    );
    let ask = |more: &[&str], path: &str| curl(&[&["-i"], more, &[&serpent.url(path)]].concat());
    let Some(style) = ask(&[], "/style.css") else { return };
    assert_eq!(field(&style, "cache-control"), "max-age=31536000, immutable", "{style}");
    assert_eq!(field(&style, "expires"), "");
    for (more, path, value) in [
        (&[][..], "/", "no-cache"),
        (&[], "/hello.txt", "max-age=3600"),
        (&["--http2-prior-knowledge"], "/hello.txt", "max-age=3600"),
        (&["--range", "1-3"], "/hello.txt", "max-age=3600"),
        (&["--head"], "/hello.txt", "max-age=3600"),
        (&[], "/big.bin", "max-age=2592000"),
        (&[], "/missing.css", ""),
        (&["--range", "999-"], "/hello.txt", ""),
        (&["-X", "DELETE"], "/hello.txt", ""),
        (&[], "/none/", ""),
        (&[], "/rule/", "private"),
    ] {
        let answer = ask(more, path).unwrap();
        assert_eq!(field(&answer, "cache-control"), value, "{more:?} {path}: {answer}");
    }
    let etag = format!("If-None-Match: {}", field(&style, "etag"));
    let confirmed = ask(&["-H", &etag], "/style.css").unwrap();
    assert!(confirmed.starts_with("HTTP/1.1 304 "), "{confirmed}");
    assert_eq!(field(&confirmed, "cache-control"), "max-age=31536000, immutable", "{confirmed}");
    assert_eq!(field(&confirmed, "content-type"), "", "{confirmed}");

    let said = "HTTP/1.1 200 OK\r\ncontent-type: text/css\r\ncontent-length: 0\r\ncache-control: no-store\r\nexpires: 0\r\n\r\n";
    let unsaid = "HTTP/1.1 200 OK\r\ncontent-type: text/css\r\ncontent-length: 0\r\n\r\n";
    for (path, answer, value, date) in [
        ("/app/", said, "no-store", "0"),
        ("/app/", unsaid, "max-age=31536000, immutable", ""),
        ("/over/", said, "max-age=31536000, immutable", " GMT"),
        ("/over/", "HTTP/1.1 500 no\r\ncontent-length: 0\r\ncache-control: no-store\r\n\r\n", "no-store", ""),
    ] {
        let got = std::thread::scope(|scope| {
            let url = serpent.url(path);
            let asking = scope.spawn(move || curl(&["-i", &url]).unwrap());
            let asked = origin.next();
            asked.send(answer.as_bytes());
            asked.done();
            asking.join().unwrap()
        });
        assert_eq!(field(&got, "cache-control"), value, "{path}: {got}");
        assert!(
            field(&got, "expires").ends_with(date) && (date.is_empty() == field(&got, "expires").is_empty()),
            "{got}"
        );
    }
}

#[test]
fn a_word_that_no_cache_knows_is_shown_at_its_place() {
    let folder = site();
    let file = folder.path().join("serpent.toml");
    for (line, part) in [
        ("expires = { \"text/css\" = \"soon\" }", "`soon` does not say how long a response may be kept"),
        ("expires = { css = \"1h\" }", "`css` is no media type"),
        ("expires = \"1h, no-store\"", "`no-store` and a time"),
        ("expires-override = true", "`expires` says nothing here"),
        ("expires = 30", "expected a text in quotes"),
        ("expires = { \"text/css\" = \"1h\", \"TEXT/css\" = \"2h\" }", "is given twice"),
    ] {
        fs::write(&file, format!("[[site]]\nroot = \"www\"\n{line}\n")).unwrap();
        let output = serpent(&["check", file.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(part) && said.contains("serpent.toml:3:"), "{line}: {said}");
    }
}
