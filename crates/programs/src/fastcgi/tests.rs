//! Tests with made-up applications, which read requests and answer as they are told.

use std::{
    collections::BTreeMap,
    fs,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bodies::{OriginBody, RequestBody, Store, StoreLimits};
use files::SymlinkPolicy;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
};

use super::{
    FastCgi,
    records::tests::{end, read_request, record},
};
use crate::{
    cgi::CgiAnswer,
    config::{FastCgiAddress, FastCgiConfig, Priority},
    context::Context,
    error::CgiError,
};

/// Longer than any step takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

pub(super) fn config() -> FastCgiConfig {
    FastCgiConfig {
        address: FastCgiAddress::Unix("/nowhere".into()),
        resolvers: Vec::new(),
        root: None,
        remote_root: None,
        extensions: vec!["php".to_owned()],
        index: Some("index.php".to_owned()),
        environment: Vec::new(),
        connect_timeout: PATIENCE,
        idle_timeout: PATIENCE,
        head_bytes: 4096,
        most_running: NonZeroU32::new(8).unwrap(),
        keep_connections: 4,
        keep_for: PATIENCE,
    }
}

struct Site {
    folder: TempDir,
    config: FastCgiConfig,
    listener: UnixListener,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("www")).unwrap();
        fs::write(folder.path().join("www/index.php"), "").unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let config = FastCgiConfig { address: FastCgiAddress::Unix(socket), ..config() };
        Self { folder, config, listener }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("www")
    }

    fn open(&self) -> Arc<FastCgi> {
        Arc::new(FastCgi::open(&self.config, Some(&self.root()), SymlinkPolicy::WithinRoot).unwrap())
    }

    async fn accept(&self) -> Application {
        let (stream, _) = tokio::time::timeout(PATIENCE, self.listener.accept()).await.expect("a connection").unwrap();
        Application { stream, unread: Vec::new() }
    }

    /// Whether a connection is waiting to be accepted.
    async fn has_more(&self) -> bool {
        tokio::time::timeout(Duration::from_millis(20), self.listener.accept()).await.is_ok()
    }
}

/// The application's end of a connection.
struct Application {
    stream: UnixStream,
    unread: Vec<u8>,
}

struct Asked {
    keep: bool,
    params: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Application {
    /// Reads a whole request: up to the empty records that end its parameters and its body.
    async fn request(&mut self) -> Asked {
        let mut at = 0;
        let mut ended = 0;
        while ended < 2 {
            while self.unread.len() < at + 8 {
                self.read().await;
            }
            let len = usize::from(u16::from_be_bytes([self.unread[at + 4], self.unread[at + 5]]));
            ended += usize::from(len == 0);
            at += 8 + len + usize::from(self.unread[at + 6]);
            while self.unread.len() < at {
                self.read().await;
            }
        }
        let (keep, params, body) = read_request(&self.unread[..at]);
        self.unread.drain(..at);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Asked { keep, params: params.into_iter().map(|(name, value)| (text(name), text(value))).collect(), body }
    }

    async fn read(&mut self) {
        let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.unread)).await;
        assert!(read.expect("more of the request").unwrap() > 0, "the server has closed the connection");
    }

    async fn send(&mut self, records: &[&[u8]]) {
        self.stream.write_all(&records.concat()).await.unwrap();
    }

    async fn answer(&mut self, text: &str) {
        self.send(&[&record(STDOUT, text.as_bytes(), 3), &record(STDOUT, b"", 0), &end(0, 0)]).await;
    }

    /// Waits until the server has closed the connection.
    async fn closed(&mut self) {
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut [0])).await.expect("the end");
        assert!(matches!(read, Ok(0) | Err(_)), "nothing more is asked on this connection");
    }
}

fn context() -> Context<'static> {
    Context {
        prefix: "",
        root: None,
        client: "192.0.2.7:4711".parse().unwrap(),
        local: "198.51.100.1:80".parse().unwrap(),
        host: "example.org",
        tls: false,
        user: None,
        believed: None,
        rules: None,
        class: "gold",
        priority: Priority::Inherited,
        asked: None,
    }
}

fn get(path: &str) -> Request<RequestBody> {
    Request::get(path).body(RequestBody::Empty).unwrap()
}

fn store() -> Store {
    Store::new(StoreLimits { memory_bytes: 1 << 24, file_bytes: 1 << 24, files_bytes: 1 << 24, directory: None })
}

fn post(body: impl Into<bytes::Bytes>) -> Request<RequestBody> {
    let body = RequestBody::from_bytes(body, &store());
    Request::post("/index.php").header("content-type", "text/plain").body(body).unwrap()
}

type Answering = tokio::task::JoinHandle<Result<CgiAnswer, CgiError>>;

/// Has a request answered by a task of its own.
fn ask(fastcgi: &Arc<FastCgi>, request: Request<RequestBody>) -> Answering {
    let fastcgi = fastcgi.clone();
    tokio::spawn(async move { fastcgi.run(request, context()).await })
}

async fn response(answering: Answering) -> Response<OriginBody> {
    match answering.await.unwrap() {
        Ok(CgiAnswer::Response(response)) => response,
        other => panic!("{other:?}"),
    }
}

async fn text(response: Response<OriginBody>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

async fn failed(answering: Answering) -> CgiError {
    match answering.await.unwrap() {
        Err(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Waits until no request is under way.
async fn idle(fastcgi: &FastCgi) {
    let waiting = async {
        while fastcgi.running() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("no request is under way");
}

#[tokio::test]
async fn an_application_is_told_what_php_needs() {
    let mut site = Site::new();
    site.config.environment = vec![("APP_ENV".to_owned(), "test".to_owned())];
    let fastcgi = site.open();
    let asked = "/the/page?q=1".parse().unwrap();
    let request = Request::post("/index.php/a%20b?q=1").header("content-type", "a/b").header("x-one", "2");
    let request =
        request.header("proxy", "http://evil.example").header("x_one", "3").header("authorization", "Bearer x");
    let request = request.body(RequestBody::from_bytes("four", &store())).unwrap();
    let answering = {
        let (fastcgi, context) = (fastcgi.clone(), Context { asked: None, tls: true, ..context() });
        tokio::spawn(async move { fastcgi.run(request, Context { asked: Some(&asked), ..context }).await })
    };
    let mut application = site.accept().await;
    let Asked { keep, params, body } = application.request().await;
    assert!(keep && body == b"four");
    let root = site.root();
    let root = root.to_str().unwrap();
    let expected: BTreeMap<String, String> = [
        ("APP_ENV", "test"),
        ("CONTENT_LENGTH", "4"),
        ("CONTENT_TYPE", "a/b"),
        ("DOCUMENT_ROOT", root),
        ("DOCUMENT_URI", "/index.php/a b"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("HTTPS", "on"),
        ("HTTP_AUTHORIZATION", "Bearer x"),
        ("HTTP_X_ONE", "2"),
        ("PATH_INFO", "/a b"),
        ("PATH_TRANSLATED", &format!("{root}/a b")),
        ("QUERY_STRING", "q=1"),
        ("REDIRECT_STATUS", "200"),
        ("REMOTE_ADDR", "192.0.2.7"),
        ("REMOTE_HOST", "192.0.2.7"),
        ("REMOTE_PORT", "4711"),
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_SCHEME", "https"),
        ("REQUEST_URI", "/the/page?q=1"),
        ("SCRIPT_FILENAME", &format!("{root}/index.php")),
        ("SCRIPT_NAME", "/index.php"),
        ("SERPENT_CLASS", "gold"),
        ("SERVER_ADDR", "198.51.100.1"),
        ("SERVER_NAME", "example.org"),
        ("SERVER_PORT", "80"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_SOFTWARE", concat!("serpent/", env!("CARGO_PKG_VERSION"))),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    assert_eq!(params, expected);
    application.answer("Content-Type: text/plain\r\nStatus: 201 Made\r\n\r\nhello").await;
    let answer = response(answering).await;
    assert_eq!(
        (answer.status(), &answer.headers()["content-type"]),
        (StatusCode::CREATED, &"text/plain".parse().unwrap())
    );
    assert_eq!(text(answer).await, "hello");
    idle(&fastcgi).await;
}

#[tokio::test]
async fn both_directions_move_at_once() {
    let site = Site::new();
    let fastcgi = site.open();
    // More than all buffers hold: the application answers while it reads.
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| n.wrapping_mul(7) as u8).collect();
    let answering = ask(&fastcgi, post(sent.clone()));
    let Application { stream, .. } = site.accept().await;
    let (mut from, mut to) = stream.into_split();
    let expected = sent.len();
    tokio::spawn(async move {
        to.write_all(&record(STDOUT, b"Content-Type: a/b\n\n", 0)).await.unwrap();
        let (mut unread, mut echoed) = (Vec::new(), 0);
        while echoed < expected {
            assert!(from.read_buf(&mut unread).await.unwrap() > 0);
            while unread.len() >= 8 {
                let len = usize::from(u16::from_be_bytes([unread[4], unread[5]]));
                if unread.len() < 8 + len {
                    break;
                }
                if unread[1] == 5 && len > 0 {
                    echoed += len;
                    to.write_all(&record(STDOUT, &unread[8..8 + len], 0)).await.unwrap();
                }
                unread.drain(..8 + len);
            }
        }
        to.write_all(&end(0, 0)).await.unwrap();
        // The end of the body may still come.
        while from.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
    });
    let answer = response(answering).await.into_body().collect().await.unwrap().to_bytes();
    assert!(answer == sent, "what comes out went in");
    idle(&fastcgi).await;
}

#[tokio::test]
async fn a_connection_is_used_again_and_a_closed_one_is_not() {
    let site = Site::new();
    let fastcgi = site.open();
    let mut application = {
        let answering = ask(&fastcgi, get("/index.php"));
        let mut application = site.accept().await;
        application.request().await;
        application.answer("Content-Type: a/b\n\none").await;
        assert_eq!(text(response(answering).await).await, "one");
        application
    };
    let answering = ask(&fastcgi, post("again"));
    assert_eq!(application.request().await.body, b"again");
    application.answer("Content-Type: a/b\n\ntwo").await;
    assert_eq!(text(response(answering).await).await, "two");
    assert!(!site.has_more().await, "there was one connection");
    // It closes while it is idle.
    drop(application);
    let answering = ask(&fastcgi, post("third"));
    let mut application = site.accept().await;
    assert_eq!(application.request().await.body, b"third");
    application.answer("Content-Type: a/b\n\nthree").await;
    assert_eq!(text(response(answering).await).await, "three");
}

/// A request whose kept connection ends while it is asked: `reads` says whether the application has read it by then.
async fn lost(request: Request<RequestBody>, reads: bool) -> (Site, Answering) {
    let site = Site::new();
    let fastcgi = site.open();
    let answering = ask(&fastcgi, get("/index.php"));
    let mut application = site.accept().await;
    application.request().await;
    application.answer("Content-Type: a/b\n\none").await;
    assert_eq!(text(response(answering).await).await, "one");
    let answering = ask(&fastcgi, request);
    if reads {
        application.request().await;
    } else {
        application.stream.readable().await.unwrap();
    }
    drop(application);
    (site, answering)
}

#[tokio::test]
async fn a_request_that_the_application_has_not_read_is_repeated() {
    for (request, body) in [(get("/index.php"), &b""[..]), (post("data"), b"data")] {
        let (site, answering) = lost(request, false).await;
        let mut application = site.accept().await;
        assert_eq!(application.request().await.body, body);
        application.answer("Content-Type: a/b\n\nagain").await;
        assert_eq!(text(response(answering).await).await, "again");
    }
}

#[tokio::test]
async fn a_request_that_it_may_have_acted_on_is_repeated_only_if_that_does_no_harm() {
    let (site, answering) = lost(get("/index.php"), true).await;
    let mut application = site.accept().await;
    application.request().await;
    application.answer("Content-Type: a/b\n\nagain").await;
    assert_eq!(text(response(answering).await).await, "again");
    let (site, answering) = lost(post("order"), true).await;
    let error = failed(answering).await;
    assert_eq!(error.status(), StatusCode::BAD_GATEWAY, "{error}");
    assert!(!site.has_more().await, "nothing is ordered twice");
}

#[tokio::test]
async fn a_connection_that_is_not_ready_for_another_request_is_closed() {
    let site = Site::new();
    let fastcgi = site.open();
    // Bytes behind the end.
    let answering = ask(&fastcgi, get("/index.php"));
    let mut application = site.accept().await;
    application.request().await;
    application.send(&[&record(STDOUT, b"Content-Type: a/b\n\nx", 0), &end(0, 0), b"\x01\x06"]).await;
    assert_eq!(text(response(answering).await).await, "x");
    application.closed().await;
    // A body that was not read.
    let answering = ask(&fastcgi, post(vec![0; 1 << 22]));
    let mut application = site.accept().await;
    application.answer("Content-Type: a/b\n\ny").await;
    assert_eq!(text(response(answering).await).await, "y");
    while application.stream.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {}
    // No connection is to be kept.
    let mut site = Site::new();
    site.config.keep_connections = 0;
    let answering = ask(&site.open(), get("/index.php"));
    let mut application = site.accept().await;
    assert!(!application.request().await.keep);
    application.answer("Content-Type: a/b\n\nz").await;
    assert_eq!(text(response(answering).await).await, "z");
    application.closed().await;
}

#[tokio::test]
async fn a_process_that_ends_its_answer_goes_to_the_request_that_waits_for_one() {
    let site = Site::new();
    let fastcgi = site.open();
    let first = ask(&fastcgi, get("/index.php"));
    let mut process = site.accept().await;
    process.request().await;
    let second = ask(&fastcgi, get("/index.php"));
    while fastcgi.terms_for_tests().pool.counts().1 < 2 {
        tokio::task::yield_now().await;
    }
    process.answer("Content-Type: a/b\n\none").await;
    assert_eq!(text(response(first).await).await, "one");
    // Only now the process accepts again.
    process.closed().await;
    let mut process = site.accept().await;
    process.request().await;
    process.answer("Content-Type: a/b\n\ntwo").await;
    assert_eq!(text(response(second).await).await, "two");
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_request() {
    let site = Site::new();
    let fastcgi = site.open();
    let answering = ask(&fastcgi, get("/index.php"));
    let mut application = site.accept().await;
    application.request().await;
    answering.abort();
    application.closed().await;
    idle(&fastcgi).await;
    // In the middle of an answer.
    let answering = ask(&fastcgi, get("/index.php"));
    let mut application = site.accept().await;
    application.request().await;
    application.send(&[&record(STDOUT, b"Content-Type: a/b\n\nbegun", 0)]).await;
    let mut answer = response(answering).await;
    assert_eq!(answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "begun");
    drop(answer);
    application.closed().await;
    idle(&fastcgi).await;
}

#[tokio::test]
async fn who_is_silent_for_too_long_is_given_up_and_who_waits_for_its_reader_is_not() {
    let mut site = Site::new();
    site.config.idle_timeout = Duration::from_millis(100);
    let fastcgi = site.open();
    let answering = ask(&fastcgi, get("/index.php"));
    let mut application = site.accept().await;
    application.request().await;
    let error = failed(answering).await;
    assert_eq!(error.status(), StatusCode::GATEWAY_TIMEOUT, "{error}");
    application.closed().await;
    // The reader pauses, and the application has sent something before.
    let answering = ask(&fastcgi, get("/index.php"));
    let mut application = site.accept().await;
    application.request().await;
    application.send(&[&record(STDOUT, b"Content-Type: a/b\n\nbegun", 0)]).await;
    let mut answer = response(answering).await;
    assert_eq!(answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "begun");
    tokio::time::sleep(Duration::from_millis(300)).await;
    application.send(&[&record(STDOUT, b" and ended", 0), &end(0, 0)]).await;
    assert_eq!(text(answer).await, " and ended");
    // It is silent in the middle of its answer.
    let answering = ask(&fastcgi, get("/index.php"));
    application.request().await;
    application.send(&[&record(STDOUT, b"Content-Type: a/b\n\nbegun", 0)]).await;
    let error = response(answering).await.into_body().collect().await.expect_err("it is cut off");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_said_to_be_the_applications() {
    let site = Site::new();
    let fastcgi = site.open();
    let long = [b"X: ", &[b'x'; 5000][..]].concat();
    for (records, status, reason) in [
        (&[&b"HTTP/1.1 200 OK\r\n\r\n"[..]][..], 502, "does not speak FastCGI"),
        (&[&end(0, 0)], 502, "without any"),
        (&[&record(STDOUT, b"Content-Type: a/b\n", 0), &end(0, 0)], 502, "before the empty line"),
        (&[&record(STDOUT, b"<html>\n\n", 0), &end(0, 0)], 502, "no header field"),
        (&[&record(STDOUT, &long, 0)], 502, "longer than 4096 bytes"),
        (&[&record(STDOUT, b"", 0), &record(STDOUT, b"x", 0)], 502, "behind the end"),
        (&[&end(0, 3)], 502, "refuses the request: UnknownRole"),
        (&[&end(0, 2)], 503, "too many"),
        (&[], 502, "closed the connection"),
    ] {
        let answering = ask(&fastcgi, get("/index.php"));
        let mut application = site.accept().await;
        application.request().await;
        application.send(records).await;
        if records.is_empty() {
            drop(application);
        }
        let error = failed(answering).await;
        assert!(error.status().as_u16() == status && error.to_string().contains(reason), "{reason}: {error}");
        idle(&fastcgi).await;
    }
    // A connection that ends within the body cuts it off, even without a length.
    let answering = ask(&fastcgi, get("/index.php"));
    let mut application = site.accept().await;
    application.request().await;
    application
        .send(&[&record(STDERR, b"PHP message: x\n", 0), &record(STDOUT, b"Content-Type: a/b\n\nhalf", 0)])
        .await;
    drop(application);
    response(answering).await.into_body().collect().await.expect_err("half is not taken for whole");
    // One that ends behind the end of the output does not.
    let answering = ask(&fastcgi, get("/index.php"));
    let mut application = site.accept().await;
    application.request().await;
    application.send(&[&record(STDOUT, b"Content-Type: a/b\n\nwhole", 0), &record(STDOUT, b"", 0)]).await;
    drop(application);
    assert_eq!(text(response(answering).await).await, "whole");
}

#[tokio::test]
async fn a_head_request_lets_the_application_end_and_a_redirect_may_be_ours() {
    let site = Site::new();
    let fastcgi = site.open();
    let answering = ask(&fastcgi, Request::head("/index.php").body(RequestBody::Empty).unwrap());
    let mut application = site.accept().await;
    assert_eq!(application.request().await.params["REQUEST_METHOD"], "HEAD");
    application.send(&[&record(STDOUT, b"Content-Type: a/b\nContent-Length: 7\n\n", 0)]).await;
    let answer = response(answering).await;
    assert_eq!(answer.headers()["content-length"], "7");
    assert_eq!(text(answer).await, "");
    application.send(&[&record(STDOUT, b"ignored", 0), &end(0, 0)]).await;
    idle(&fastcgi).await;
    let answering = ask(&fastcgi, get("/index.php"));
    application.request().await;
    application.answer("Location: /other?x=y\n\n").await;
    match answering.await.unwrap() {
        Ok(CgiAnswer::Local(target)) => assert_eq!(target, "/other?x=y"),
        other => panic!("{other:?}"),
    }
    idle(&fastcgi).await;
    let answering = ask(&fastcgi, get("/index.php"));
    application.request().await;
    application.answer("Status: 302 Found\nLocation: /other\n\n").await;
    let answer = response(answering).await;
    assert_eq!((answer.status(), &answer.headers()["location"]), (StatusCode::FOUND, &"/other".parse().unwrap()));
}

#[tokio::test]
async fn only_so_many_run_at_once_and_an_application_that_is_gone_is_named() {
    let mut site = Site::new();
    site.config.most_running = NonZeroU32::MIN;
    let fastcgi = site.open();
    let answering = ask(&fastcgi, get("/index.php"));
    let mut application = site.accept().await;
    assert!(matches!(failed(ask(&fastcgi, get("/index.php"))).await, CgiError::Busy));
    application.request().await;
    application.answer("Content-Type: a/b\n\nx").await;
    assert_eq!(text(response(answering).await).await, "x");
    idle(&fastcgi).await;
    for (path, status) in [("/none.php", 404), ("/../index.php", 404), ("/index.txt", 404)] {
        assert_eq!(failed(ask(&fastcgi, get(path))).await.status().as_u16(), status, "{path}");
    }
    let Site { folder, listener, .. } = site;
    drop((listener, application));
    fs::remove_file(folder.path().join("socket")).unwrap();
    let error = failed(ask(&fastcgi, get("/index.php"))).await;
    assert!(matches!(&error, CgiError::Connect(_)) && error.status() == StatusCode::BAD_GATEWAY, "{error}");
}

#[tokio::test]
async fn a_full_backlog_is_waited_for_until_the_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let address = FastCgiAddress::Unix(path.clone());
    let first = crate::endpoint::Endpoint::of(&address, &[]).connect(PATIENCE).await.unwrap();
    let error = crate::endpoint::Endpoint::of(&address, &[]).connect(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    let waiting = tokio::spawn(async move { crate::endpoint::Endpoint::of(&address, &[]).connect(PATIENCE).await });
    let accepted = tokio::task::spawn_blocking(move || {
        let one = rustix::net::accept(&socket).unwrap();
        (one, socket)
    });
    let _accepted = accepted.await.unwrap();
    waiting.await.unwrap().unwrap();
    drop(first);
    assert!(Path::new(&path).exists());
}

#[tokio::test]
async fn an_application_is_reached_by_its_name_over_tcp() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut site = Site::new();
    site.config.address = FastCgiAddress::Tcp("localhost".to_owned(), listener.local_addr().unwrap().port());
    let fastcgi = site.open();
    let application = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for number in 0..2_u8 {
            let mut request = Vec::new();
            // The end of the body.
            while !request.ends_with(&[1, 5, 0, 1, 0, 0, 0, 0]) {
                assert!(stream.read_buf(&mut request).await.unwrap() > 0);
            }
            let text = [b"Content-Type: a/b\n\n", &[b'0' + number][..]].concat();
            stream.write_all(&[record(STDOUT, &text, 0), end(0, 0)].concat()).await.unwrap();
        }
    });
    for number in ["0", "1"] {
        assert_eq!(text(response(ask(&fastcgi, get("/index.php"))).await).await, number);
    }
    application.await.unwrap();
}
