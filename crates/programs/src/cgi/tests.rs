//! Tests with real programs, mostly shell scripts.

use std::{
    collections::BTreeMap,
    fs, io,
    num::NonZeroU32,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use bodies::{ClientBody, IncomingBody, OriginBody, RequestBody};
use bytes::Bytes;
use heads::{ForwardedField, HeaderRules};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tempfile::TempDir;
use tokio::{io::AsyncWriteExt as _, sync::oneshot};

use super::*;
use crate::{
    config::{CgiConfig, Priority},
    context::Context,
    error::CgiError,
    may::may,
};

/// Longer than any step takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Site {
    folder: TempDir,
    config: CgiConfig,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = CgiConfig {
            program: folder.path().to_owned(),
            interpreter: None,
            environment: Vec::new(),
            pass_environment: Vec::new(),
            timeout: PATIENCE,
            head_bytes: 4096,
            most_running: NonZeroU32::new(8).unwrap(),
        };
        Self { folder, config }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A site with one shell script.
    fn with(script: &str) -> Self {
        let site = Self::new();
        site.add("run", script);
        site
    }

    /// Adds a script, written by another process. A program started by another test would briefly inherit our
    /// descriptor, and a file open for writing cannot be executed.
    fn add(&self, name: &str, script: &str) {
        let mut writer = Command::new("/bin/sh")
            .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
            .arg(self.at(name))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        io::Write::write_all(&mut writer.stdin.take().unwrap(), format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
    }

    fn open(&self) -> Cgi {
        Cgi::open(&self.config).unwrap()
    }

    /// Makes a named pipe for shell scripts.
    fn pipe(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        path
    }
}

fn context() -> Context<'static> {
    Context {
        prefix: "/cgi-bin",
        root: Some(Path::new("/srv/www")),
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

async fn post(body: impl Into<Bytes>) -> Request<RequestBody> {
    let body = whole(body).await;
    Request::post("/cgi-bin/run").header("content-type", "text/plain").body(body).unwrap()
}

/// The body of a request that a client sends in full, and one that breaks off.
async fn whole(body: impl Into<Bytes>) -> RequestBody {
    let body = body.into();
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    sent([head.as_bytes(), &body].concat(), true).await
}

async fn broken() -> RequestBody {
    sent(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nfour".to_vec(), false).await
}

async fn sent(bytes: Vec<u8>, stays: bool) -> RequestBody {
    let (client, server) = tokio::io::duplex(4096);
    let (sender, receiver) = oneshot::channel();
    let sender = std::sync::Mutex::new(Some(sender));
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let sender = sender.lock().unwrap().take();
        async move {
            let (gone, waits) = oneshot::channel::<()>();
            let _ = sender.unwrap().send((request.into_body(), gone));
            let _ = waits.await;
            Ok::<_, std::convert::Infallible>(Response::new(String::new()))
        }
    });
    tokio::spawn(async move {
        let mut client = client;
        let _ = client.write_all(&bytes).await;
        if stays {
            std::mem::forget(client);
        }
    });
    tokio::spawn(
        hyper::server::conn::http1::Builder::new().serve_connection(hyper_util::rt::TokioIo::new(server), service),
    );
    let (body, gone) = receiver.await.unwrap();
    std::mem::forget(gone);
    RequestBody::streamed(ClientBody::new(IncomingBody::new(body), None), u64::MAX)
}

fn response(answer: Result<CgiAnswer, CgiError>) -> Response<OriginBody> {
    match answer {
        Ok(CgiAnswer::Response(response)) => response,
        other => panic!("{other:?}"),
    }
}

async fn ask(cgi: &Cgi, request: Request<RequestBody>) -> Response<OriginBody> {
    response(cgi.run(request, context()).await)
}

async fn text(response: Response<OriginBody>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

async fn refused(cgi: &Cgi) -> CgiError {
    match cgi.run(get("/cgi-bin/run"), context()).await {
        Err(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Waits until all programs have ended and been reaped.
async fn idle(cgi: &Cgi) {
    until("no program runs", || cgi.running() == 0).await;
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
        tokio::task::yield_now().await;
    }
}

/// Reads a named pipe to its end, which comes when all writers are gone.
async fn read(path: PathBuf) -> String {
    tokio::task::spawn_blocking(|| fs::read_to_string(path).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_program_is_told_all_that_the_standard_asks_for() {
    let mut site = Site::with("echo 'Content-Type: text/plain'\necho\npwd\nenv");
    site.config.environment =
        vec![("SITE_MODE".to_owned(), "test".to_owned()), ("SERVER_ADMIN".to_owned(), "ann".to_owned())];
    site.config.pass_environment = vec!["CARGO_MANIFEST_DIR".to_owned(), "NOT_THERE_AT_ALL".to_owned()];
    let request = Request::post("/cgi-bin/run/a%20b?q=1&r").header("content-type", "a/b").header("x-one", "2");
    let request = request.header("proxy", "http://evil.example").body(whole("four").await).unwrap();
    let answer = site.open().run(request, Context { user: Some("ann"), tls: true, ..context() }).await;
    let told = text(response(answer)).await;
    let mut lines = told.lines();
    assert_eq!(lines.next(), Some(site.folder.path().canonicalize().unwrap().to_str().unwrap()));
    let told: BTreeMap<_, _> = lines.filter_map(|line| line.split_once('=')).collect();
    let program = site.at("run");
    let manifest = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    for (name, value) in [
        ("AUTH_TYPE", "Basic"),
        ("CONTENT_LENGTH", "4"),
        ("CONTENT_TYPE", "a/b"),
        ("DOCUMENT_ROOT", "/srv/www"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("HTTPS", "on"),
        ("HTTP_X_ONE", "2"),
        ("PATH_INFO", "/a b"),
        ("PATH_TRANSLATED", "/srv/www/a b"),
        ("QUERY_STRING", "q=1&r"),
        ("REMOTE_ADDR", "192.0.2.7"),
        ("REMOTE_HOST", "192.0.2.7"),
        ("REMOTE_PORT", "4711"),
        ("REMOTE_USER", "ann"),
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_SCHEME", "https"),
        ("REQUEST_URI", "/cgi-bin/run/a%20b?q=1&r"),
        ("SCRIPT_FILENAME", program.to_str().unwrap()),
        ("SCRIPT_NAME", "/cgi-bin/run"),
        ("SERVER_ADDR", "198.51.100.1"),
        ("SERVER_ADMIN", "ann"),
        ("SERVER_NAME", "example.org"),
        ("SERVER_PORT", "80"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_SOFTWARE", concat!("serpent/", env!("CARGO_PKG_VERSION"))),
        ("SERPENT_CLASS", "gold"),
        ("SITE_MODE", "test"),
        ("CARGO_MANIFEST_DIR", manifest.as_str()),
    ] {
        assert_eq!(told.get(name), Some(&value), "{name}");
    }
    let shell = ["PATH", "PWD", "OLDPWD", "SHLVL", "_"];
    let more: Vec<_> = told.keys().filter(|name| !shell.contains(name)).collect();
    assert_eq!(more.len(), 28, "nothing else of ours is passed on: {more:?}");
}

#[tokio::test]
async fn a_client_that_is_not_trusted_speaks_for_no_proxy_and_takes_out_no_field_of_a_rule() {
    const CLIENT: &str = "HTTP_X_CLIENT=192.0.2.7";
    let site = Site::with("echo 'Content-Type: text/plain'\necho\nenv | grep ^HTTP_ | sort");
    let cgi = site.open();
    let rules = HeaderRules {
        set: vec![("x-set".parse().unwrap(), HeaderValue::from_static("rule"))],
        client: vec!["x-client".parse().unwrap()],
        ..HeaderRules::default()
    };
    for (believed, told) in [
        (None, &["HTTP_ACCEPT=a", CLIENT, "HTTP_X_SET=rule"][..]),
        (
            Some(ForwardedField::XForwardedFor),
            &[
                "HTTP_ACCEPT=a",
                CLIENT,
                "HTTP_X_FORWARDED_FOR=6.6.6.6",
                "HTTP_X_FORWARDED_PROTO=https",
                "HTTP_X_SET=rule",
            ],
        ),
        (Some(ForwardedField::Forwarded), &["HTTP_ACCEPT=a", "HTTP_FORWARDED=for=6.6.6.6", CLIENT, "HTTP_X_SET=rule"]),
    ] {
        let mut request = get("/cgi-bin/run");
        for (name, value) in [
            ("accept", "a"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-proto", "https"),
            ("x_forwarded_for", "7.7.7.7"),
            ("forwarded", "for=6.6.6.6"),
            ("x-real-ip", "6.6.6.6"),
            ("proxy", "http://evil.example"),
            ("connection", "close, X-Set, x-hop"),
            ("x-hop", "1"),
        ] {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        let answer = cgi.run(request, Context { believed, rules: Some(&rules), ..context() }).await;
        let said = text(response(answer)).await;
        assert_eq!(said.lines().collect::<Vec<_>>(), told, "{believed:?}");
    }
}

#[tokio::test]
async fn a_body_goes_in_and_an_answer_comes_out() {
    let site = Site::with("echo 'Content-Type: text/plain'\necho 'Status: 201 Made'\necho\ncat");
    // More than all pipes hold, so that both directions must move at once.
    let body: String = "0123456789abcdef".repeat(40_000);
    let cgi = site.open();
    let answer = ask(&cgi, post(body.clone()).await).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    assert_eq!(answer.headers()["content-type"], "text/plain");
    assert!(text(answer).await == body, "what comes out went in");
    idle(&cgi).await;
}

#[tokio::test]
async fn who_does_not_read_the_body_may_answer_all_the_same() {
    let site = Site::with("exec <&-\necho 'Content-Type: text/plain'\necho\necho fine");
    assert_eq!(text(ask(&site.open(), post(vec![b'x'; 1 << 20]).await).await).await, "fine\n");
}

#[tokio::test]
async fn a_head_request_runs_the_program_and_has_no_body() {
    let site = Site::with(
        "echo 'Content-Type: text/plain'\necho 'Content-Length: 7'\necho\necho $REQUEST_METHOD; cat /dev/zero | head -c 200000; echo done >done",
    );
    let cgi = site.open();
    let answer = ask(&cgi, Request::head("/cgi-bin/run").body(RequestBody::Empty).unwrap()).await;
    assert_eq!(answer.headers()["content-length"], "7");
    assert_eq!(text(answer).await, "");
    idle(&cgi).await;
    assert!(site.at("done").exists(), "it could write all it wanted");
}

#[tokio::test]
async fn a_length_that_is_said_is_kept() {
    let script = |said: u32| {
        format!("echo 'Content-Type: text/plain'\necho 'Content-Length: {said}'\necho\nprintf 12345; echo >done")
    };
    for said in [3, 5] {
        let site = Site::with(&script(said));
        let cgi = site.open();
        let answer = ask(&cgi, get("/cgi-bin/run")).await;
        assert_eq!(answer.headers()["content-length"], said.to_string());
        assert_eq!(answer.body().size_hint().exact(), Some(said.into()));
        assert_eq!(text(answer).await, "12345"[..said as usize]);
        idle(&cgi).await;
        assert!(site.at("done").exists(), "what is too much does not harm it");
    }
    let site = Site::with(&script(6));
    let body = ask(&site.open(), get("/cgi-bin/run")).await.into_body();
    let error = body.collect().await.expect_err("a body too short is not taken for whole");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    let site = Site::with("echo 'Status: 204'\necho 'Content-Length: 5'\necho\necho more");
    let answer = ask(&site.open(), get("/cgi-bin/run")).await;
    assert!(answer.status() == StatusCode::NO_CONTENT && !answer.headers().contains_key("content-length"));
    assert!(answer.body().is_end_stream());
    let site = Site::with("echo 'Status: 205'\necho 'Content-Length: 5'\necho\necho more");
    let answer = ask(&site.open(), get("/cgi-bin/run")).await;
    assert!(answer.status() == StatusCode::RESET_CONTENT && !answer.headers().contains_key("content-length"));
    assert_eq!(answer.body().size_hint().exact(), Some(0));
}

#[tokio::test]
async fn redirects_are_the_clients_or_ours() {
    let site = Site::with("echo Location: $QUERY_STRING\necho");
    let cgi = site.open();
    let answer = ask(&cgi, get("/cgi-bin/run?https://example.org/")).await;
    assert_eq!(
        (answer.status(), &answer.headers()["location"]),
        (StatusCode::FOUND, &HeaderValue::from_static("https://example.org/"))
    );
    match cgi.run(get("/cgi-bin/run?/other?x=y"), context()).await {
        Ok(CgiAnswer::Local(target)) => assert_eq!(target, "/other?x=y"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_said_to_be_the_programs() {
    for (script, reason) in [
        ("exit 1", "without any"),
        ("printf 'Content-Type: a/b\\n'", "before the empty line"),
        ("echo '<html>'; echo", "no header field"),
        ("echo 'HTTP/1.1 200 OK'; echo", "not supported"),
        ("while :; do echo 'X-Long: 0123456789'; done", "longer than 4096 bytes"),
        ("head -c 5000 /dev/zero | tr '\\0' x; echo; echo; echo", "longer than 4096 bytes"),
        ("kill -9 $$", "without any"),
    ] {
        let cgi = Site::with(script);
        let cgi = (cgi.open(), cgi);
        let error = refused(&cgi.0).await;
        assert!(error.status() == StatusCode::BAD_GATEWAY && error.to_string().contains(reason), "{script}: {error}");
        idle(&cgi.0).await;
    }
}

#[tokio::test]
async fn what_cannot_be_run_says_whose_fault_it_is() {
    let site = Site::new();
    fs::write(site.at("data"), "x").unwrap();
    site.add("run", "");
    fs::write(site.at("run"), "#!/no/such/interpreter\n").unwrap();
    let cgi = site.open();
    for (path, status) in [("none", 404), ("../run", 404), ("data", 403), ("run", 500)] {
        let error = cgi.run(get(&format!("/cgi-bin/{path}")), context()).await.expect_err(path);
        assert_eq!(error.status().as_u16(), status, "{path}: {error}");
    }
    assert_eq!(cgi.running(), 0);
}

#[tokio::test]
async fn an_interpreter_is_given_the_program() {
    let mut site = Site::new();
    fs::write(site.at("page.txt"), "echo 'Content-Type: text/plain'\necho\necho \"$0 $REDIRECT_STATUS $#\"").unwrap();
    site.config.interpreter = Some("/bin/sh".into());
    let answer = text(ask(&site.open(), get("/cgi-bin/page.txt?-s")).await).await;
    assert_eq!(answer, format!("{} 200 0\n", site.at("page.txt").display()), "and nothing of the query");
}

#[tokio::test]
async fn only_so_many_run_at_once() {
    let mut site = Site::with("echo 'Content-Type: text/plain'\necho\nread line <go; echo $line");
    site.config.most_running = NonZeroU32::new(2).unwrap();
    let go = site.pipe("go");
    let cgi = site.open();
    let first = ask(&cgi, get("/cgi-bin/run")).await;
    let second = ask(&cgi, get("/cgi-bin/run")).await;
    assert!(matches!(refused(&cgi).await, CgiError::Busy));
    drop(second);
    until("its place is free again", || cgi.running() == 1).await;
    tokio::task::spawn_blocking(move || fs::write(go, "on\n").unwrap());
    assert_eq!(text(first).await, "on\n");
    idle(&cgi).await;
}

#[tokio::test]
async fn who_is_not_waited_for_any_more_is_killed_with_all_it_started() {
    // The pipe `alive` ends when no process can write to it.
    let site = Site::with(
        "exec 3>alive\n(trap '' TERM; sleep 1000) &\necho 'Content-Type: text/plain'\necho\necho begun\nwait",
    );
    let alive = site.pipe("alive");
    let cgi = site.open();
    let reading = tokio::spawn(read(alive.clone()));
    let mut answer = ask(&cgi, get("/cgi-bin/run")).await;
    assert_eq!(answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "begun\n");
    drop(answer);
    assert_eq!(reading.await.unwrap(), "");
    idle(&cgi).await;

    // The client leaves before there is an answer.
    let site = Site::with("exec 3>alive\necho begun >&3\nsleep 1000");
    let alive = site.pipe("alive");
    let cgi = site.open();
    let mut running = Box::pin(cgi.run(get("/cgi-bin/run"), context()));
    let mut begun = tokio::task::spawn_blocking(move || {
        let mut reader = io::BufReader::new(fs::File::open(alive).unwrap());
        let mut line = String::new();
        io::BufRead::read_line(&mut reader, &mut line).unwrap();
        (reader, line)
    });
    let (mut reader, line) = tokio::select! {
        begun = &mut begun => begun.unwrap(),
        answer = &mut running => panic!("{answer:?}"),
    };
    assert_eq!(line, "begun\n");
    drop(running);
    tokio::task::spawn_blocking(move || io::Read::read_to_string(&mut reader, &mut String::new()).unwrap())
        .await
        .unwrap();
    idle(&cgi).await;
}

#[tokio::test]
async fn who_takes_too_long_is_killed_though_it_will_not_end() {
    let mut site = Site::with("trap '' TERM\nexec 3>alive\nwhile :; do sleep 1000; done");
    site.config.timeout = Duration::from_millis(100);
    // Opened without waiting for a writer, because on a slow machine the program may be killed before it
    // opens the pipe.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut alive = fs::File::options().read(true).custom_flags(nonblocking).open(site.pipe("alive")).unwrap();
    let cgi = site.open();
    let error = refused(&cgi).await;
    assert!(matches!(error, CgiError::TimedOut), "{error}");
    assert_eq!(error.status(), StatusCode::GATEWAY_TIMEOUT);
    idle(&cgi).await;
    // Before the end, a read returns `WouldBlock`.
    until("nobody is left who could write", || matches!(io::Read::read(&mut alive, &mut [0]), Ok(0))).await;

    let mut site = Site::with("echo 'Content-Type: text/plain'\necho\necho begun\nsleep 1000");
    site.config.timeout = Duration::from_millis(500);
    let cgi = site.open();
    match cgi.run(get("/cgi-bin/run"), context()).await {
        Ok(answer) => {
            let error = response(Ok(answer)).into_body().collect().await.expect_err("it is cut off");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        // On a slow machine the program may not have begun.
        Err(error) => assert!(matches!(error, CgiError::TimedOut), "{error}"),
    }
    idle(&cgi).await;
}

#[tokio::test]
async fn an_answer_ends_with_its_program_though_others_hold_the_pipe() {
    // A process with a session of its own is neither killed nor waited for.
    let Some(setsid) = ["/usr/bin/setsid", "/bin/setsid"].into_iter().find(|path| Path::new(path).exists()) else {
        assert!(std::env::var_os("CI").is_none(), "in CI there must be a setsid (util-linux)");
        return eprintln!("SKIPPED: there is no setsid here");
    };
    let script = format!(
        "echo 'Content-Type: text/plain'\necho\n{setsid} sh -c 'echo $$ >daemon; read line <go' 2>/dev/null &\nread pid <daemon; echo whole"
    );
    let site = Site::with(&script);
    let (go, _) = (site.pipe("go"), site.pipe("daemon"));
    let cgi = site.open();
    assert_eq!(text(ask(&cgi, get("/cgi-bin/run")).await).await, "whole\n");
    idle(&cgi).await;
    // It still runs and reads.
    tokio::task::spawn_blocking(move || fs::write(go, "on\n").unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_program_may_go_on_after_its_answer() {
    let site =
        Site::with("echo 'Content-Type: text/plain'\necho\necho whole\nexec >&-\nread line <go; echo $line >done");
    let go = site.pipe("go");
    let cgi = site.open();
    assert_eq!(text(ask(&cgi, get("/cgi-bin/run")).await).await, "whole\n");
    assert_eq!(cgi.running(), 1, "it counts until it ends");
    tokio::task::spawn_blocking(move || fs::write(go, "on\n").unwrap()).await.unwrap();
    idle(&cgi).await;
    assert_eq!(fs::read_to_string(site.at("done")).unwrap(), "on\n");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_the_clients_fault() {
    let site = Site::with("cat >/dev/null; sleep 1000");
    let cgi = site.open();
    let request = Request::post("/cgi-bin/run").body(broken().await).unwrap();
    let Err(error) = cgi.run(request, context()).await else { panic!("there is no answer") };
    assert!(matches!(error, CgiError::Request(_)), "{error}");
    idle(&cgi).await;
}

#[tokio::test]
async fn a_program_runs_with_the_priority_of_its_class() {
    // Fields of proc(5): 19 nice, 40 rt_priority, 41 policy; of the shell and of its child.
    let site = Site::with(
        "echo 'Content-Type: text/plain'\necho\nread line </proc/self/stat; echo $line; cat /proc/self/stat",
    );
    let cgi = site.open();
    for (priority, expected) in [
        (Priority::Nice(6), ("6", "0", "0")),
        (Priority::Nice(-2), ("-2", "0", "0")),
        (Priority::RoundRobin(3), ("0", "3", "2")),
        (Priority::Fifo(5), ("0", "5", "1")),
    ] {
        if !may("a_program_runs_with_the_priority_of_its_class", priority) {
            continue;
        }
        let answer = cgi.run(get("/cgi-bin/run"), Context { priority, ..context() }).await;
        let seen = text(response(answer)).await;
        for line in seen.lines() {
            let fields: Vec<_> = line[line.rfind(')').unwrap() + 2..].split(' ').collect();
            // A real-time class keeps the previous nice value, which has no effect there.
            let nice = if expected.1 == "0" { fields[19 - 3] } else { "0" };
            assert_eq!((nice, fields[40 - 3], fields[41 - 3]), expected, "{priority:?}");
        }
        assert_eq!(seen.lines().count(), 2);
    }
}

/// Descriptors and children of this process, including those of other tests.
fn held() -> (usize, usize) {
    let children = fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    (fs::read_dir("/proc/self/fd").unwrap().count(), children.map(|list| list.split_whitespace().count()).sum())
}

#[tokio::test]
async fn a_thousand_programs_leave_nothing_behind() {
    let mut site = Site::with("echo 'Content-Type: text/plain'\necho\necho $QUERY_STRING");
    site.config.most_running = NonZeroU32::new(1000).unwrap();
    let cgi = Arc::new(site.open());
    let before = held();
    for round in 0..125 {
        let several = (0..8).map(|number| {
            let (cgi, query) = (cgi.clone(), format!("{round}-{number}"));
            tokio::spawn(async move {
                let answer = ask(&cgi, get(&format!("/cgi-bin/run?{query}"))).await;
                assert_eq!(text(answer).await, format!("{query}\n"));
            })
        });
        for one in several.collect::<Vec<_>>() {
            one.await.unwrap();
        }
    }
    idle(&cgi).await;
    // Other tests have descriptors and children too; a leak here would be a thousand or more.
    until("all descriptors and processes are given back", || {
        let (descriptors, children) = held();
        descriptors < before.0 + 200 && children < before.1 + 100
    })
    .await;
}

#[tokio::test]
async fn a_runtime_that_ends_takes_its_programs_with_it() {
    let site = Site::with("exec 3>alive\necho 'Content-Type: text/plain'\necho\necho; sleep 1000");
    let alive = site.pipe("alive");
    let reading = tokio::task::spawn_blocking(move || fs::read_to_string(alive).unwrap());
    let cgi = site.open();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(move || {
        runtime.block_on(async {
            std::mem::forget(ask(&cgi, get("/cgi-bin/run")).await);
        });
        drop(runtime);
    })
    .join()
    .unwrap();
    assert_eq!(reading.await.unwrap(), "");
}
