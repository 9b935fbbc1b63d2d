//! Compression while a response is sent, with real clients.

use std::time::{Duration, SystemTime};

use super::*;

/// Writes a file that was modified so long ago that it is kept in memory.
fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
}

/// The head in lower case, and the body, of the answer to a request.
fn ask(serpent: &Serpent, method: &str, path: &str, more: &str) -> (String, Vec<u8>) {
    let head = format!("{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{more}\r\n");
    let answer = serpent.exchange_bytes(head.as_bytes());
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n").expect("a head") + 4;
    (String::from_utf8(answer[..end].to_ascii_lowercase()).unwrap(), answer[end..].to_vec())
}

/// A site whose files and program are compressed, but not below `/secret`.
fn start(folder: &TempDir) -> (Serpent, String) {
    let www = folder.path().join("www");
    fs::create_dir_all(www.join("secret")).unwrap();
    let text = "the connection, the scheduler, the request\n".repeat(4000);
    for file in ["a.txt", "secret/a.txt", "a.png"] {
        write(&www.join(file), &text);
    }
    fs::write(www.join("short.txt"), "short").unwrap();
    program(&folder.path().join("text.sh"), "printf 'Content-Type: text/plain\\n\\n'; yes serpent | head -n 20000");
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\n[uplink]\nrate = \"1gbit\"\n[compression]\ncodings = [\"zstd\", \"br\", \"gzip\"]\n\
         [[site]]\nroot = \"{www}\"\n[[site.route]]\npath = \"/cgi\"\ncgi = \"{folder}\"\n\
         [[site.route]]\npath = \"/secret\"\nfiles = true\ncompression = false\n",
        www = www.display(),
        folder = folder.path().display(),
    );
    let file = folder.path().join("serpent.toml");
    fs::write(&file, config).unwrap();
    (Serpent::start(&["serve", "--config", file.to_str().unwrap()]), text)
}

#[test]
fn curl_gets_compressed_text_of_files_and_programs_in_both_versions_of_http() {
    if tool("curl").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (serpent, text) = start(&folder);
    let programs_text = "serpent\n".repeat(20_000);
    // Some builds of curl read gzip alone.
    let known = curl(&["--version"]).unwrap();
    let has = |feature: &str| known.split_whitespace().any(|it| it.eq_ignore_ascii_case(feature));
    let codings: Vec<_> = [("br", "brotli"), ("gzip", "libz"), ("zstd", "zstd")]
        .into_iter()
        .filter_map(|(coding, feature)| has(feature).then_some(coding))
        .collect();
    assert!(codings.contains(&"gzip"), "{known}");
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let paths = [("/a.txt", &text), ("/cgi/text.sh", &programs_text)];
        for ((path, plain), coding) in paths.into_iter().flat_map(|path| codings.iter().map(move |it| (path, it))) {
            let accepts = format!("accept-encoding: {coding}");
            let accepts = accepts.as_str();
            let size = ["--write-out", "%{size_download}", "--output", "/dev/null"];
            let url = serpent.url(path);
            let bytes: usize =
                curl(&[&[version, "--header", accepts], &size[..], &[&url]].concat()).unwrap().parse().unwrap();
            assert!((20..plain.len() / 20).contains(&bytes), "{version} {path} {coding}: {bytes}");
            let said = curl(&[version, "--compressed", "--header", accepts, &url]).unwrap();
            assert!(said == *plain, "{version} {path} {coding}: {} bytes", said.len());
        }
    }
}

#[test]
fn the_head_says_what_is_sent_and_what_may_not_be_compressed_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (serpent, text) = start(&folder);
    let ask = |method: &str, path: &str, more: &str| ask(&serpent, method, path, more);
    let all = "accept-encoding: gzip, br, zstd\r\n";
    let (head, body) = ask("HEAD", "/a.txt", all);
    assert!(head.contains("content-encoding: zstd") && !head.contains("content-length"), "{head}");
    assert!(body.is_empty());
    let (get, compressed) = ask("GET", "/a.txt", all);
    assert!(get.contains("content-encoding: zstd") && get.contains("etag: w/\""), "{get}");
    assert!(get.contains("vary: accept-encoding") && !get.contains("accept-ranges"), "{get}");
    assert!(get.contains(&format!("content-length: {}\r\n", compressed.len())), "{get}");
    assert!(compressed.len() < text.len() / 20);
    let (head, body) = ask("HEAD", "/a.txt", all);
    let without_date = |head: &str| head.lines().filter(|it| !it.starts_with("date:")).collect::<Vec<_>>().join("\n");
    assert_eq!((without_date(&head), body.len()), (without_date(&get), 0), "the copy is known");
    let (streamed, body) = ask("GET", "/cgi/text.sh", all);
    assert!(streamed.contains("transfer-encoding: chunked") && !streamed.contains("content-length"), "{streamed}");
    assert!(body.len() < 8 * 20_000 / 20);
    let etag = get.lines().find_map(|line| line.strip_prefix("etag: w/")).unwrap();
    let (unchanged, _) = ask("GET", "/a.txt", &format!("{all}if-none-match: W/{etag}\r\n"));
    assert!(unchanged.starts_with("http/1.1 304"), "{unchanged}");
    for (path, more) in [
        ("/a.txt", ""),
        ("/a.txt", "accept-encoding: deflate\r\n"),
        ("/a.txt", "accept-encoding: gzip\r\ncache-control: no-transform\r\n"),
        ("/a.txt", "accept-encoding: gzip\r\nrange: bytes=0-9\r\n"),
        ("/a.png", all),
        ("/short.txt", all),
        ("/secret/a.txt", all),
        ("/nothing", all),
    ] {
        let (head, _) = ask("GET", path, more);
        assert!(!head.contains("content-encoding") && head.contains("content-length"), "{path} {more}{head}");
    }
}

#[test]
fn a_compressed_file_is_kept_until_the_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    let www = folder.path().join("www");
    fs::create_dir(&www).unwrap();
    let file = www.join("a.txt");
    write(&file, &"the first state of a text\n".repeat(3000));
    let started = |cache: &str| {
        let config = folder.path().join("serpent.toml");
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\n[cache]\nrevalidate-after = \"0s\"\n{cache}\n\
             [compression]\ncodings = [\"gzip\", \"zstd\"]\n[[site]]\nroot = \"{}\"\n",
            www.display()
        );
        fs::write(&config, text).unwrap();
        super::start(&config)
    };
    let counts = |admin| {
        let metrics = metrics(admin);
        let of = |name: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("serpent_compressed_{name} ")));
            line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse::<u64>().unwrap()
        };
        (of("hits_total"), of("misses_total"), of("entries"), of("bytes"))
    };
    let (serpent, admin) = started("");
    let gzip = || ask(&serpent, "GET", "/a.txt", "accept-encoding: gzip\r\n");
    // A file of this size is read into memory by its second request, which makes the copy.
    let (streamed, _) = gzip();
    assert!(streamed.contains("transfer-encoding: chunked") && counts(admin) == (0, 0, 0, 0), "{streamed}");
    let (first, of_first) = gzip();
    let length = format!("content-length: {}\r\n", of_first.len());
    assert!(first.contains("content-encoding: gzip") && first.contains(&length), "{first}");
    let (again, of_again) = gzip();
    assert!(again.contains(&length) && of_again == of_first, "{again}");
    let (hits, misses, entries, bytes) = counts(admin);
    assert_eq!((hits, misses, entries), (1, 1, 1));
    assert!(bytes > of_first.len() as u64);
    let (other, _) = ask(&serpent, "GET", "/a.txt", "accept-encoding: zstd\r\n");
    assert!(other.contains("content-encoding: zstd"), "{other}");
    assert_eq!(counts(admin).1, 2, "another coding is another copy");
    let (part, of_part) = ask(&serpent, "GET", "/a.txt", "accept-encoding: gzip\r\nrange: bytes=0-2\r\n");
    assert!(part.starts_with("http/1.1 206") && of_part == b"the", "{part}");

    write(&file, &"the second state of a text\n".repeat(3000));
    let (changed, of_changed) = gzip();
    assert!(changed.contains(&format!("content-length: {}\r\n", of_changed.len())), "{changed}");
    assert!(of_changed != of_first && counts(admin).1 == 3);
    drop(serpent);

    let (serpent, admin) = started("compressed = \"off\"");
    for _ in 0..2 {
        let (streamed, _) = ask(&serpent, "GET", "/a.txt", "accept-encoding: gzip\r\n");
        assert!(streamed.contains("transfer-encoding: chunked"), "{streamed}");
    }
    assert_eq!(counts(admin), (0, 0, 0, 0));
}

#[test]
fn the_answers_of_an_upstream_are_compressed_however_they_are_passed_on() {
    let text = "the connection, the scheduler, the request\n".repeat(4000);
    for passed in ["buffer-response = false\nadmitted = false\n", "buffer-response = true\n"] {
        let more = format!("{passed}[compression]\ncodings = [\"zstd\", \"br\", \"gzip\"]\n");
        let gateway = Gateway::start(&more);
        for (accepts, coding) in
            [("gzip", Some("gzip")), ("zstd, gzip", Some("zstd")), ("gzip, br", Some("br")), ("deflate", None)]
        {
            let mut client = gateway.ask("/", &format!("accept-encoding: {accepts}\r\n"));
            let asked = gateway.origin.next();
            assert_eq!(
                asked.field("accept-encoding").as_deref(),
                Some(accepts),
                "the upstream sees what the client sends"
            );
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", text.len());
            asked.send(&[head.as_bytes(), text.as_bytes()].concat());
            asked.done();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            let end = answer.windows(4).position(|it| it == b"\r\n\r\n").expect("a head") + 4;
            let head = String::from_utf8(answer[..end].to_ascii_lowercase()).unwrap();
            assert!(head.contains("vary: accept-encoding"), "{passed} {head}");
            match coding {
                Some(coding) => {
                    assert!(head.contains(&format!("content-encoding: {coding}\r\n")), "{passed} {head}");
                    assert!(answer.len() - end < text.len() / 20, "{passed} {accepts}: {}", answer.len());
                }
                None => {
                    assert!(!head.contains("content-encoding") && answer[end..] == *text.as_bytes(), "{passed} {head}");
                }
            }
        }
    }
}

#[test]
fn what_a_trusted_proxy_says_of_tls_holds_for_the_answers_of_an_upstream() {
    let gateway = Gateway::start_as(|origin| {
        let text = text(origin, "").replace("[[site]]\n", "[[site]]\nhsts = \"on\"\n");
        format!("trusted-proxies = [\"127.0.0.1\"]\n{text}")
    });
    for (said, expected) in [("https", true), ("http", false)] {
        let mut client = gateway.ask("/", &format!("x-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: {said}\r\n"));
        gateway.origin.answer("hello");
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer.to_lowercase().contains("strict-transport-security: "), expected, "{said}: {answer}");
    }
}
