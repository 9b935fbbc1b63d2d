//! Tests of the file origin from a client's side.

mod wire;

use std::{
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use http::{HeaderName, HeaderValue, header::*};
use http_body::Body;
use http_body_util::BodyExt;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::config::{CacheConfig, CacheControlRule, FilesConfig, SymlinkPolicy};

/// Sunday, 09 September 2001, 01:46:40: long enough ago that files are kept in memory at once.
const LONG_AGO_S: u64 = 1_000_000_000;
const LONG_AGO: &str = "Sun, 09 Sep 2001 01:46:40 GMT";

/// A site in a temporary directory.
struct Fixture {
    top: TempDir,
    root: PathBuf,
    config: FilesConfig,
    cache: Cache,
    files: Files,
}

impl Fixture {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut FilesConfig)) -> Self {
        Self::with_cache(CacheConfig { revalidate_after: Duration::MAX, ..CacheConfig::default() }, change)
    }

    fn with_cache(cache: CacheConfig, change: impl FnOnce(&mut FilesConfig)) -> Self {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().join("root");
        fs::create_dir(&root).unwrap();
        let mut config = FilesConfig {
            index: vec!["index.html".into(), "index.htm".into()],
            listing: false,
            dot_files: false,
            symlinks: SymlinkPolicy::WithinRoot,
            precompressed: true,
            cache_control: Vec::new(),
            mime_types: Vec::new(),
            ..FilesConfig::default()
        };
        change(&mut config);
        let cache = Cache::new(cache);
        let files = Files::open(&root, &config, cache.clone()).unwrap();
        Self { top, root, config, cache, files }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Writes a file that was last modified long ago, or `later_s` after that.
    fn write_later(&self, name: &str, content: impl AsRef<[u8]>, later_s: u64) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(LONG_AGO_S + later_s);
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        self.write_later(name, content, 0);
    }

    async fn ask(&self, method: &str, target: &str, headers: &[(HeaderName, &str)]) -> Answer {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let served = self.files.serve(&method, &target.parse().unwrap(), &map);
        let from_memory = matches!(served, Served::Ready(_));
        let (head, body) = served.response().await.into_parts();
        let announced = body.size_hint().exact().unwrap();
        let body = body.collect().await.map(|body| body.to_bytes());
        if let Ok(body) = &body {
            assert_eq!(body.len() as u64, announced, "the size hint is exact");
            if method != Method::HEAD
                && let Some(length) = head.headers.get(CONTENT_LENGTH)
            {
                assert_eq!(length, &body.len().to_string());
            }
        }
        Answer { status: head.status.as_u16(), headers: head.headers, body: body.unwrap_or_default(), from_memory }
    }

    async fn get(&self, target: &str) -> Answer {
        self.ask("GET", target, &[]).await
    }

    async fn get_with(&self, target: &str, name: HeaderName, value: &str) -> Answer {
        self.ask("GET", target, &[(name, value)]).await
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: bytes::Bytes,
    from_memory: bool,
}

impl Answer {
    fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

#[tokio::test]
async fn a_file_is_served_with_all_its_headers() {
    let fixture = Fixture::new();
    fixture.write("hello.txt", "hello");
    for _ in 0..2 {
        let answer = fixture.get("/hello.txt").await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
        assert_eq!(answer.header(CONTENT_TYPE), Some("text/plain; charset=utf-8"));
        assert_eq!(answer.header(CONTENT_LENGTH), Some("5"));
        assert_eq!(answer.header(LAST_MODIFIED), Some(LONG_AGO));
        assert_eq!(answer.header(ACCEPT_RANGES), Some("bytes"));
        assert!(answer.header(ETAG).unwrap().starts_with('"'));
        assert_eq!(answer.header(VARY), None);
        assert_eq!(answer.header(CACHE_CONTROL), None);
        assert_eq!(answer.header(CONTENT_ENCODING), None);
    }
}

#[tokio::test]
async fn empty_small_and_large_files_arrive_whole() {
    let fixture = Fixture::with_cache(CacheConfig { max_file_bytes: 100_000, ..CacheConfig::default() }, |_| {});
    for size in [0, 1, 65_535, 65_536, 65_537, 100_000, 100_001, 1_000_000] {
        let content: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
        fixture.write("file", &content);
        let answer = fixture.get("/file").await;
        assert_eq!(answer.status, 200);
        assert!(answer.body == content, "{size} bytes");
        fs::remove_file(fixture.path("file")).unwrap();
        fixture.cache.remove_site(0);
    }
}

#[tokio::test]
async fn head_has_the_headers_of_get_and_no_body() {
    let fixture = Fixture::with(|files| files.listing = true);
    fixture.write("a.txt", "some text");
    fixture.write("large", vec![1; 3_000_000]);
    fixture.write("listed/file", "");
    for target in ["/a.txt", "/a.txt", "/large", "/listed/", "/listed", "/missing", "/%", "/.hidden"] {
        let get = fixture.get(target).await;
        let head = fixture.ask("HEAD", target, &[]).await;
        assert_eq!(head.status, get.status, "{target}");
        assert_eq!(head.headers, get.headers, "{target}");
        assert!(head.body.is_empty());
        assert_eq!(head.header(CONTENT_LENGTH), Some(get.body.len().to_string().as_str()));
    }
    let etag = fixture.get("/a.txt").await.header(ETAG).unwrap().to_owned();
    assert_eq!(fixture.ask("HEAD", "/a.txt", &[(IF_NONE_MATCH, &etag)]).await.status, 304);
    assert_eq!(fixture.ask("HEAD", "/a.txt", &[(RANGE, "bytes=0-1")]).await.status, 200);
}

#[tokio::test]
async fn methods() {
    let fixture = Fixture::new();
    fixture.write("a", "x");
    for (method, status) in
        [("OPTIONS", 204), ("POST", 405), ("PUT", 405), ("DELETE", 405), ("PATCH", 405), ("TRACE", 405), ("BREW", 501)]
    {
        let answer = fixture.ask(method, "/a", &[]).await;
        assert_eq!(answer.status, status, "{method}");
        assert_eq!(answer.header(ALLOW), (status != 501).then_some("GET, HEAD, OPTIONS"), "{method}");
    }
    assert_eq!(fixture.ask("OPTIONS", "*", &[]).await.status, 204);
    assert_eq!(fixture.ask("CONNECT", "host:443", &[]).await.status, 405);
    assert_eq!(fixture.ask("GET", "*", &[]).await.status, 400);
    assert_eq!(fixture.get("http://other.example/a").await.text(), "x");
    assert_eq!(fixture.get("http://other.example").await.status, 403);
}

#[tokio::test]
async fn directories_redirect_to_their_slash_and_serve_their_index() {
    let fixture = Fixture::new();
    fixture.write("sub/index.htm", "second choice");
    fixture.write("both/index.html", "first choice");
    fixture.write("both/index.htm", "second choice");
    fixture.write("odd \\name/index.html", "odd");
    fs::create_dir_all(fixture.path("trap/index.html")).unwrap();
    fixture.write("trap/index.htm", "not the directory");

    let redirect = fixture.get("/sub?a=b&c=%2f").await;
    assert_eq!((redirect.status, redirect.header(LOCATION)), (301, Some("/sub/?a=b&c=%2f")));
    assert_eq!(redirect.header(X_CONTENT_TYPE_OPTIONS), Some("nosniff"));
    assert_eq!(fixture.get("//sub").await.header(LOCATION), Some("/sub/"));
    assert_eq!(fixture.get("/x/../sub?").await.header(LOCATION), Some("/sub/?"));
    assert_eq!(fixture.get("/odd%20%5cname").await.header(LOCATION), Some("/odd%20%5Cname/"));

    let index = fixture.get("/sub/").await;
    assert_eq!((index.status, index.text().as_str()), (200, "second choice"));
    assert_eq!(index.header(CONTENT_TYPE), Some("text/html; charset=utf-8"));
    assert_eq!(fixture.get("/both/").await.text(), "first choice");
    assert_eq!(fixture.get("/both/.").await.text(), "first choice");
    assert_eq!(fixture.get("/trap/").await.text(), "not the directory");
    assert_eq!(fixture.get("/sub/index.htm/").await.status, 404);
    assert_eq!(fixture.get("/").await.status, 403, "no index, and listings are off");
    assert_eq!(fixture.get("/missing/").await.status, 404);
}

#[tokio::test]
async fn a_redirect_never_leaves_the_host() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("evil.example")).unwrap();
    fs::create_dir_all(fixture.path("\\evil.example")).unwrap();
    for target in ["//evil.example", "///evil.example", "/\\evil.example", "/%5cevil.example", "/./%2e//evil.example"] {
        let answer = fixture.get(target).await;
        let location = answer.header(LOCATION).unwrap();
        assert!(location == "/evil.example/" || location == "/%5Cevil.example/", "{target}: {location}");
    }
}

#[tokio::test]
async fn listings_are_pages_and_can_be_turned_off() {
    let fixture = Fixture::with(|files| {
        files.listing = true;
        files.cache_control = vec![rule("sub", "no-store")];
    });
    fixture.write("sub/<a>.txt", "x");
    fixture.write("sub/.hidden", "x");
    let page = fixture.get("/sub/").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header(CONTENT_TYPE), Some("text/html; charset=utf-8"));
    assert_eq!(page.header(X_CONTENT_TYPE_OPTIONS), Some("nosniff"));
    assert_eq!(page.header(CACHE_CONTROL), Some("no-store"));
    assert!(page.text().contains("<a href=\"%3Ca%3E.txt\">&lt;a&gt;.txt</a>"));
    assert!(!page.text().contains("hidden"));
    assert_eq!(fixture.get("/").await.status, 200);
}

#[tokio::test]
async fn what_is_refused_and_how() {
    let fixture = Fixture::new();
    fixture.write(".git/config", "secret");
    fixture.write("a/.htaccess", "secret");
    fixture.write(".well-known/acme-challenge/token", "token");
    fixture.write("file", "x");
    fs::write(fixture.top.path().join("secret"), "secret").unwrap();
    symlink("../secret", fixture.path("link_out")).unwrap();
    symlink("file", fixture.path("link_in")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.path("pipe"), rustix::fs::Mode::RUSR).unwrap();
    for (target, status) in [
        ("/missing", 404),
        ("/file/below", 404),
        ("/.git/config", 404),
        ("/%2egit/config", 404),
        ("/a/.htaccess", 404),
        ("/link_out", 404),
        ("/pipe", 404),
        ("/a%2f..%2ffile", 404),
        ("/%00", 400),
        ("/%zz", 400),
        ("/..", 400),
        ("/../secret", 400),
        ("/%2e%2e/secret", 400),
        ("/link_in", 200),
        ("/.well-known/acme-challenge/token", 200),
    ] {
        let answer = fixture.get(target).await;
        assert_eq!(answer.status, status, "{target}");
        assert_ne!(answer.text(), "secret");
        if status != 200 {
            assert_eq!(answer.header(X_CONTENT_TYPE_OPTIONS), Some("nosniff"));
            assert_eq!(answer.header(CONTENT_TYPE), Some("text/html; charset=utf-8"));
        }
    }
    let long = format!("/{}", "x".repeat(5000));
    assert_eq!(fixture.get(&long).await.status, 404);
    let open = Fixture::with(|files| files.dot_files = true);
    open.write(".git/config", "public");
    assert_eq!(open.get("/.git/config").await.text(), "public");
}

#[tokio::test]
async fn conditions_are_honoured_from_disk_and_from_memory() {
    let fixture = Fixture::with(|files| files.cache_control = vec![rule("*.css", "max-age=60")]);
    fixture.write("a.css", "body{}");
    let etag = fixture.get("/a.css").await.header(ETAG).unwrap().to_owned();
    for capacity_bytes in [0, 1 << 20] {
        let cache = Cache::new(CacheConfig { capacity_bytes, ..CacheConfig::default() });
        let fixture =
            Fixture { files: Files::open(&fixture.root, &fixture.config, cache).unwrap(), ..fixture_of(&fixture) };
        for _ in 0..2 {
            let answer = fixture.get_with("/a.css", IF_NONE_MATCH, &etag).await;
            assert_eq!(answer.status, 304);
            assert_eq!(answer.header(ETAG), Some(etag.as_str()));
            assert_eq!(answer.header(CACHE_CONTROL), Some("max-age=60"));
            assert_eq!(answer.header(CONTENT_TYPE), None);
            assert_eq!(answer.header(CONTENT_LENGTH), None);
            assert!(answer.body.is_empty());
            assert_eq!(fixture.get_with("/a.css", IF_MODIFIED_SINCE, LONG_AGO).await.status, 304);
            assert_eq!(fixture.get_with("/a.css", IF_MATCH, "\"other\"").await.status, 412);
            assert_eq!(fixture.get_with("/a.css", IF_MATCH, &etag).await.status, 200);
            let range = [(RANGE, "bytes=0-1"), (IF_RANGE, "\"other\"")];
            assert_eq!(fixture.ask("GET", "/a.css", &range).await.status, 200);
            let range = [(RANGE, "bytes=0-1"), (IF_RANGE, &etag)];
            assert_eq!(fixture.ask("GET", "/a.css", &range).await.status, 206);
            let both = [(RANGE, "bytes=9-"), (IF_NONE_MATCH, &etag)];
            assert_eq!(fixture.ask("GET", "/a.css", &both).await.status, 304, "conditions come before ranges");
        }
    }
}

/// The same directory, for another `Files`.
fn fixture_of(fixture: &Fixture) -> Fixture {
    Fixture {
        top: tempfile::tempdir().unwrap(),
        root: fixture.root.clone(),
        config: fixture.config.clone(),
        cache: fixture.cache.clone(),
        files: fixture.files.clone(),
    }
}

#[tokio::test]
async fn ranges_from_disk_and_from_memory() {
    for capacity_bytes in [0, 1 << 24] {
        let fixture = Fixture::with_cache(CacheConfig { capacity_bytes, ..CacheConfig::default() }, |_| {});
        let content: Vec<u8> = (0..200_000u32).map(|index| (index % 251) as u8).collect();
        fixture.write("file.bin", &content);
        for _ in 0..2 {
            let answer = fixture.get_with("/file.bin", RANGE, "bytes=100000-").await;
            assert_eq!(answer.status, 206);
            assert_eq!(answer.header(CONTENT_RANGE), Some("bytes 100000-199999/200000"));
            assert_eq!(answer.header(CONTENT_LENGTH), Some("100000"));
            assert!(answer.body == content[100_000..]);

            let answer = fixture.get_with("/file.bin", RANGE, "bytes=-1").await;
            assert_eq!(&answer.body[..], &content[199_999..]);

            let answer = fixture.get_with("/file.bin", RANGE, "bytes=200000-").await;
            assert_eq!(answer.status, 416);
            assert_eq!(answer.header(CONTENT_RANGE), Some("bytes */200000"));
            assert_eq!(fixture.get_with("/file.bin", RANGE, "bytes=x").await.status, 200);

            let answer = fixture.get_with("/file.bin", RANGE, "bytes=150000-150009, 0-4").await;
            assert_eq!(answer.status, 206);
            assert_eq!(answer.header(CONTENT_RANGE), None);
            let boundary = answer.header(CONTENT_TYPE).unwrap().strip_prefix("multipart/byteranges; boundary=");
            let boundary = boundary.unwrap().to_owned();
            let mut expected = Vec::new();
            for (name, part) in [("150000-150009", &content[150_000..150_010]), ("0-4", &content[..5])] {
                let kind = "application/octet-stream";
                let head =
                    format!("\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: bytes {name}/200000\r\n\r\n");
                expected.extend_from_slice(head.as_bytes());
                expected.extend_from_slice(part);
            }
            expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
            assert!(answer.body == expected);
        }
        fixture.write("empty", "");
        assert_eq!(fixture.get_with("/empty", RANGE, "bytes=0-").await.status, 416);
        assert_eq!(fixture.get_with("/empty", RANGE, "bytes=-1").await.status, 200);
    }
}

#[tokio::test]
async fn siblings_are_sent_to_those_who_accept_them() {
    let fixture = Fixture::new();
    fixture.write("app.js", "the original, long enough");
    fixture.write("app.js.br", "brotli");
    fixture.write("app.js.zst", "zstandard");
    fixture.write("app.js.gz", "gzip data");
    let mut tags = std::collections::HashSet::new();
    for _ in 0..2 {
        for (accept, coding, body) in [
            ("", None, "the original, long enough"),
            ("gzip, deflate, br, zstd", Some("br"), "brotli"),
            ("gzip;q=1, br;q=0.5", Some("gzip"), "gzip data"),
            ("zstd", Some("zstd"), "zstandard"),
            ("br;q=0", None, "the original, long enough"),
        ] {
            let answer = fixture.get_with("/app.js", ACCEPT_ENCODING, accept).await;
            assert_eq!(answer.text(), body, "{accept}");
            assert_eq!(answer.header(CONTENT_ENCODING), coding);
            assert_eq!(answer.header(VARY), Some("Accept-Encoding"));
            assert_eq!(answer.header(CONTENT_TYPE), Some("text/javascript; charset=utf-8"));
            let etag = answer.header(ETAG).unwrap().to_owned();
            let headers = [(ACCEPT_ENCODING, accept), (IF_NONE_MATCH, &etag)];
            let not_modified = fixture.ask("GET", "/app.js", &headers).await;
            assert_eq!((not_modified.status, not_modified.header(VARY)), (304, Some("Accept-Encoding")));
            tags.insert(etag);
        }
    }
    assert_eq!(tags.len(), 4, "each representation has a tag of its own");
    let range = [(ACCEPT_ENCODING, "br"), (RANGE, "bytes=1-2")];
    let answer = fixture.ask("GET", "/app.js", &range).await;
    assert_eq!((answer.text().as_str(), answer.header(CONTENT_RANGE)), ("ro", Some("bytes 1-2/6")));
    assert_eq!(answer.header(CONTENT_ENCODING), Some("br"));
    assert_eq!(fixture.get("/app.js.gz").await.header(CONTENT_TYPE), Some("application/gzip"));
}

#[tokio::test]
async fn siblings_that_should_not_be_used_are_not() {
    let fixture = Fixture::new();
    fixture.write_later("stale.js", "new", 1);
    fixture.write("stale.js.gz", "made from the old one");
    fixture.write("orphan.js.gz", "no original");
    fixture.write("directory.js", "original");
    fs::create_dir(fixture.path("directory.js.gz")).unwrap();
    let stale = fixture.get_with("/stale.js", ACCEPT_ENCODING, "gzip").await;
    assert_eq!((stale.text().as_str(), stale.header(VARY)), ("new", None));
    assert_eq!(fixture.get_with("/orphan.js", ACCEPT_ENCODING, "gzip").await.status, 404);
    assert_eq!(fixture.get_with("/directory.js", ACCEPT_ENCODING, "gzip").await.text(), "original");
    let off = Fixture::with(|files| files.precompressed = false);
    off.write("a.js", "original");
    off.write("a.js.gz", "gzip");
    let answer = off.get_with("/a.js", ACCEPT_ENCODING, "gzip").await;
    assert_eq!((answer.text().as_str(), answer.header(VARY)), ("original", None));
}

fn rule(pattern: &str, value: &'static str) -> CacheControlRule {
    CacheControlRule {
        pattern: globset::Glob::new(pattern).unwrap().compile_matcher(),
        value: HeaderValue::from_static(value),
    }
}

#[tokio::test]
async fn cache_control_follows_the_first_pattern_that_matches() {
    let fixture = Fixture::with(|files| {
        files.cache_control =
            vec![rule("assets/**", "immutable"), rule("*.html", "no-cache"), rule("assets/x.txt", "never reached")];
    });
    for name in ["assets/x.txt", "index.html", "other.txt"] {
        fixture.write(name, "");
    }
    assert_eq!(fixture.get("/assets/x.txt").await.header(CACHE_CONTROL), Some("immutable"));
    assert_eq!(fixture.get("/assets//%78.txt").await.header(CACHE_CONTROL), Some("immutable"));
    assert_eq!(fixture.get("/").await.header(CACHE_CONTROL), Some("no-cache"), "an index counts by its own name too");
    assert_eq!(fixture.get("/other.txt").await.header(CACHE_CONTROL), None);
    assert_eq!(fixture.get("/assets/missing").await.header(CACHE_CONTROL), None);
}

#[tokio::test]
async fn the_second_request_is_answered_from_memory_in_any_spelling() {
    let fixture = Fixture::new();
    fixture.write("a b.txt", "x");
    assert!(!fixture.get("/a%20b.txt").await.from_memory);
    for target in ["/a%20b.txt", "/a%20b.txt?query", "/%61%20b.txt", "//a%20b.txt", "/x/../a%20b.txt"] {
        let answer = fixture.get(target).await;
        assert!(answer.from_memory, "{target}");
        assert_eq!(answer.text(), "x");
    }
    let stats = fixture.cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries, stats.held_bytes), (5, 1, 1, 1));
    assert_eq!(fixture.get("/a%20b.txt/").await.status, 404);
}

#[tokio::test]
async fn two_sites_share_a_cache_without_mixing() {
    let one = Fixture::new();
    let mut two = Fixture::new();
    two.files = Files::open(&two.root, &two.config, one.cache.clone()).unwrap();
    one.write("a", "one");
    two.write("a", "two");
    for _ in 0..2 {
        assert_eq!(one.get("/a").await.text(), "one");
        assert_eq!(two.get("/a").await.text(), "two");
    }
    assert_eq!(one.cache.stats().entries, 2);
    drop(two);
    assert_eq!(one.cache.stats().entries, 1, "a site takes its entries along");
}

#[tokio::test]
async fn a_changed_file_is_seen_when_the_entry_is_looked_at_again() {
    let always = CacheConfig { revalidate_after: Duration::ZERO, ..CacheConfig::default() };
    let fixture = Fixture::with_cache(always, |_| {});
    fixture.write("a", "first");
    let first = fixture.get("/a").await;
    let same = fixture.get("/a").await;
    assert_eq!(same.header(ETAG), first.header(ETAG));
    assert_eq!(same.body.as_ptr(), first.body.as_ptr(), "not read again while it is the same");

    fixture.write_later("a", "again", 1);
    let changed = fixture.get("/a").await;
    assert_eq!(changed.text(), "again");
    assert_ne!(changed.header(ETAG), first.header(ETAG));

    fixture.write("a.gz", "too old");
    assert_eq!(fixture.get("/a").await.header(VARY), None);
    fixture.write_later("a.gz", "new", 2);
    assert_eq!(fixture.get("/a").await.header(VARY), Some("Accept-Encoding"), "a sibling that came later is seen");
    assert_eq!(fixture.get_with("/a", ACCEPT_ENCODING, "gzip").await.text(), "new");

    fs::remove_file(fixture.path("a")).unwrap();
    assert_eq!(fixture.get("/a").await.status, 404);
    assert_eq!(fixture.cache.stats().entries, 0);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_unchanged_file_that_the_kernel_knows_is_looked_at_without_another_thread() {
    let always = CacheConfig { revalidate_after: Duration::ZERO, ..CacheConfig::default() };
    let fixture = Fixture::with_cache(always, |files| files.precompressed = false);
    if !Root::open(&fixture.root, SymlinkPolicy::WithinRoot).unwrap().is_current_in_memory() {
        return println!("SKIPPED: the temporary folder is on a file system that is asked on another thread");
    }
    fixture.write("a", "first");
    fixture.write("sub/index.html", "index");
    for path in ["/a", "/sub/"] {
        assert!(fixture.get(path).await.from_memory, "{path} was written just now");
        let hits = fixture.cache.stats().hits;
        assert!(fixture.get(path).await.from_memory, "{path} has not changed");
        assert_eq!(fixture.cache.stats().hits, hits + 1);
    }
    fixture.write_later("a", "again", 1);
    let changed = fixture.get("/a").await;
    assert_eq!((changed.from_memory, changed.text().as_str()), (false, "again"));
    fs::rename(fixture.path("sub"), fixture.path("moved")).unwrap();
    assert_eq!(fixture.get("/sub/").await.status, 404);

    assert!(fixture.get("/a").await.from_memory);
    let old = fixture.top.path().join("old");
    fs::rename(&fixture.root, &old).unwrap();
    fs::create_dir(&fixture.root).unwrap();
    assert_eq!(fixture.get("/a").await.status, 404, "the root is another directory now");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_beside_others_without_siblings_is_read_without_another_thread() {
    let fixture = Fixture::new();
    if !Root::open(&fixture.root, SymlinkPolicy::WithinRoot).unwrap().is_current_in_memory() {
        return println!("SKIPPED: the temporary folder is on a file system that is asked on another thread");
    }
    fixture.write("sub/first", "1");
    fixture.write("sub/other", "2");
    fixture.write("sub/large", vec![b'x'; 300 * 1024]);
    // A directory is known when it has not changed for a moment.
    let mut first = fixture.get("/sub/first").await;
    while !fixture.files.knows_siblings_in_tests("sub") {
        assert!(!first.from_memory);
        fixture.cache.remove_site(fixture.files.0.site.id);
        first = fixture.get("/sub/first").await;
    }
    let misses = fixture.cache.stats().misses;
    let other = fixture.get("/sub/other").await;
    assert_eq!((other.from_memory, other.text().as_str(), other.header(VARY)), (true, "2", None));
    assert_eq!(fixture.cache.stats().misses, misses + 1);
    assert!(fixture.get("/sub/large").await.from_memory, "only opened");
    assert!(!fixture.get("/sub/large").await.from_memory, "to read it would hold up others");

    fixture.write("sub/new.js", "original");
    fixture.write("sub/new.js.gz", "gzip");
    let new = fixture.get_with("/sub/new.js", ACCEPT_ENCODING, "gzip").await;
    assert_eq!((new.from_memory, new.text().as_str()), (false, "gzip"));
    assert_eq!(fixture.get("/sub/missing").await.status, 404);
}

#[tokio::test]
async fn an_entry_is_trusted_for_as_long_as_it_is_told() {
    let fixture = Fixture::new();
    fixture.write("a", "first");
    fixture.get("/a").await;
    fixture.write_later("a", "second", 1);
    assert_eq!(fixture.get("/a").await.text(), "first");
}

#[tokio::test]
async fn concurrent_misses_look_once() {
    let fixture = Fixture::new();
    fixture.write("a", "x");
    let uri: Uri = "/a".parse().unwrap();
    let headers = HeaderMap::new();
    let waiting: Vec<_> = (0..50).map(|_| fixture.files.serve(&Method::GET, &uri, &headers)).collect();
    let tasks: Vec<_> = waiting.into_iter().map(|served| tokio::spawn(served.response())).collect();
    let mut bodies = Vec::new();
    for task in tasks {
        bodies.push(task.await.unwrap().into_body().collect().await.unwrap().to_bytes());
    }
    // Not all tasks need to join before the first blocking thread finishes. A late task found the entry of
    // the first one, so the file was read once and all share its bytes.
    assert!(bodies.iter().all(|body| body.as_ptr() == bodies[0].as_ptr()));
}

#[tokio::test]
async fn a_request_that_is_given_up_does_no_harm() {
    let fixture = Fixture::new();
    fixture.write("a", "x");
    let uri: Uri = "/a".parse().unwrap();
    drop(fixture.files.serve(&Method::GET, &uri, &HeaderMap::new()));
    assert_eq!(fixture.get("/a").await.text(), "x");
}

#[tokio::test]
async fn responses_that_hold_too_much_memory_make_others_read_from_disk() {
    let config = CacheConfig {
        capacity_bytes: 1 << 20,
        max_file_bytes: 1 << 19,
        revalidate_after: Duration::MAX,
        ..CacheConfig::default()
    };
    let fixture = Fixture::with_cache(config, |_| {});
    let mut held = Vec::new();
    for number in 0..10 {
        fixture.write(&number.to_string(), vec![number; 1 << 19]);
        let uri = format!("/{number}").parse().unwrap();
        for _ in 0..2 {
            held.push(fixture.files.serve(&Method::GET, &uri, &HeaderMap::new()).response().await);
        }
        assert!(fixture.cache.stats().held_bytes <= 2 << 20);
    }
    assert!(fixture.cache.stats().held_bytes > 1 << 20);
    for (at, response) in held.into_iter().enumerate() {
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body.len() == 1 << 19 && body.iter().all(|byte| usize::from(*byte) == at / 2));
    }
}

#[tokio::test]
async fn a_large_file_is_kept_in_memory_from_its_second_request_on() {
    let fixture = Fixture::new();
    fixture.write("small", vec![b's'; 32 * 1024 - 1]);
    fixture.write("large", vec![b'l'; 32 * 1024]);
    let held_bytes = || fixture.cache.stats().held_bytes;
    fixture.get("/small").await;
    assert_eq!(held_bytes(), 32 * 1024 - 1);
    let first = fixture.get("/large").await;
    assert_eq!(held_bytes(), 32 * 1024 - 1, "it is sent as it lies on the disk");
    let second = fixture.get("/large").await;
    assert_eq!(held_bytes(), 64 * 1024 - 1);
    let hits = fixture.cache.stats().hits;
    let third = fixture.get("/large").await;
    assert_eq!(fixture.cache.stats().hits, hits + 1);
    assert_eq!(first.header(ETAG), third.header(ETAG));
    assert_eq!((first.text(), second.text()), (third.text(), third.text()));

    // A change is seen at the second request as well.
    fixture.write("other", vec![b'1'; 40_000]);
    fixture.get("/other").await;
    fixture.write_later("other", vec![b'2'; 50_000], 1);
    assert_eq!(fixture.get("/other").await.text(), "2".repeat(50_000));
    assert_eq!(fixture.get("/other").await.text(), "2".repeat(50_000));
    // A file that is removed leaves no entry.
    fixture.write("gone", vec![b'1'; 40_000]);
    fixture.get("/gone").await;
    let entries = fixture.cache.stats().entries;
    fs::remove_file(fixture.path("gone")).unwrap();
    assert_eq!(fixture.get("/gone").await.status, 404);
    assert_eq!(fixture.cache.stats().entries, entries - 1);
}

#[tokio::test]
async fn a_large_file_that_shrinks_while_sent_ends_in_an_error() {
    let fixture = Fixture::with_cache(CacheConfig { capacity_bytes: 0, ..CacheConfig::default() }, |_| {});
    fixture.write("large", vec![7; 1 << 20]);
    let uri: Uri = "/large".parse().unwrap();
    let mut body = fixture.files.serve(&Method::GET, &uri, &HeaderMap::new()).response().await.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    fs::File::options().write(true).open(fixture.path("large")).unwrap().set_len(100).unwrap();
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        rest.push(frame.is_ok());
    }
    assert_eq!(rest.last(), Some(&false));
}

/// Parts of paths that try to leave the root.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "/", "//", ".", "..", "%2e", "%2E%2e", "%2f", "%5c", "\\", "..%2f", "..\\", "%00", "%", "sub", "file",
            "secret", "out", "up", "abs", "loop", "self", "outside", "root", "beside", ";", ":", "~", "%252e", "etc",
            "passwd",
        ])
        .prop_map(str::to_owned),
        "[a-z.%/]{1,4}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_request_path_ever_escapes_the_root(
        targets in prop::collection::vec(prop::collection::vec(piece(), 1..10), 20),
        policy in prop::sample::select(vec![SymlinkPolicy::Never, SymlinkPolicy::WithinRoot]),
    ) {
        let fixture = Fixture::with(|files| {
            files.symlinks = policy;
            files.dot_files = true;
            files.listing = true;
        });
        fixture.write("sub/file", "public");
        fs::create_dir(fixture.top.path().join("beside")).unwrap();
        for secret in ["secret", "beside/secret", "beside/file", "beside/index.html"] {
            fs::write(fixture.top.path().join(secret), "SECRET").unwrap();
        }
        for (target, link) in
            [("..", "up"), ("../..", "sub/up"), ("../beside", "out"), ("../secret", "sub/out"), ("loop", "loop"), (".", "self")]
        {
            symlink(target, fixture.path(link)).unwrap();
        }
        symlink(fixture.top.path().join("beside"), fixture.path("abs")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for pieces in targets {
            let target = format!("/{}", pieces.concat());
            let Ok(uri) = target.parse::<Uri>() else { continue };
            let answer = runtime.block_on(async {
                let response = fixture.files.serve(&Method::GET, &uri, &HeaderMap::new()).response().await;
                let (head, body) = response.into_parts();
                (head, body.collect().await.unwrap().to_bytes())
            });
            let (head, body) = answer;
            let text = String::from_utf8_lossy(&body);
            prop_assert!(!text.contains("SECRET"), "{target}");
            prop_assert!(!text.contains("root:"), "{target}");
            prop_assert!(!text.contains(">beside/<"), "the parent is listed at {target}");
            if let Some(location) = head.headers.get(LOCATION) {
                let location = location.to_str().unwrap();
                prop_assert!(location.starts_with('/') && !location.starts_with("//") && !location.contains('\\'));
            }
        }
    }
}
