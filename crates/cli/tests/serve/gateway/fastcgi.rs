//! Applications behind FastCGI: a made-up one, and PHP-FPM where it is installed.

use std::{
    os::unix::net::{UnixListener, UnixStream},
    process::{Child, Command, Stdio},
    time::Instant,
};

use super::*;

/// The program of PHP-FPM, whose name has its version; `None`: it is not installed.
fn php_fpm_program() -> Option<PathBuf> {
    let all = fs::read_dir("/usr/sbin").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"));
    let found = all.filter(is_it).max();
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "php-fpm is missing: run ./test as root to install it");
        eprintln!("SKIPPED: php-fpm is missing; ./test says how to install it");
    }
    found
}

/// PHP-FPM with so many processes; ended when dropped.
pub(crate) struct PhpFpm(Child);

impl PhpFpm {
    pub(crate) fn start(folder: &Path, processes: u32) -> Option<Self> {
        let program = php_fpm_program()?;
        let (config, socket) = (folder.join("fpm.conf"), folder.join("fpm.sock"));
        let _ = fs::remove_file(&socket);
        let user = if rustix::process::getuid().is_root() { "user = root\ngroup = root\n" } else { "" };
        let text = format!(
            "[global]\nerror_log = {0}/fpm.log\ndaemonize = no\n[www]\n{user}listen = {0}/fpm.sock\npm = static\n\
             pm.max_children = {processes}\ncatch_workers_output = yes\nclear_env = yes\n",
            folder.display()
        );
        fs::write(&config, text).unwrap();
        let args = ["--no-php-ini", "--nodaemonize", "--allow-to-run-as-root", "--fpm-config"];
        let child = Command::new(program).args(args).arg(&config).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let started = Self(child.unwrap());
        let start = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            let log = || fs::read_to_string(folder.join("fpm.log")).unwrap_or_default();
            assert!(start.elapsed() < PATIENCE, "PHP-FPM does not begin: {}", log());
            std::thread::yield_now();
        }
        Some(started)
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        // At SIGTERM it ends its processes, too.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// A site of these files, whose scripts go to `fpm.sock`. `table`: more of the table of `fastcgi`; `more` stands behind
/// the route.
fn site(files: &[(&str, &str)], table: &str, more: &str) -> (TempDir, Serpent, SocketAddr) {
    let folder = tempfile::tempdir().unwrap();
    let www = folder.path().join("www");
    fs::create_dir(&www).unwrap();
    for (name, text) in files {
        let path = www.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let file = folder.path().join("serpent.toml");
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\n[uplink]\nrate = \"off\"\n[limits]\nrequest-body = \"8MiB\"\n\
         [[site]]\nroot = \"www\"\n[[site.route]]\npath-regex = '\\.php(/|$)'\n[site.route.fastcgi]\n\
         address = \"unix:{}/fpm.sock\"\n{table}\n{more}",
        folder.path().display()
    );
    fs::write(&file, config).unwrap();
    let (serpent, admin) = start(&file);
    (folder, serpent, admin)
}

fn get(serpent: &Serpent, path: &str) -> String {
    ask(serpent, "GET", path, "", "")
}

fn ask(serpent: &Serpent, method: &str, path: &str, fields: &str, body: &str) -> String {
    let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: blog.example\r\n{fields}{length}connection: close\r\n\r\n");
    serpent.exchange(format!("{head}{body}").as_bytes())
}

const TELL: &str = "<?php header('Content-Type: text/plain'); foreach (['SCRIPT_FILENAME', 'SCRIPT_NAME', 'PATH_INFO', \
    'REQUEST_URI', 'QUERY_STRING', 'DOCUMENT_ROOT', 'PHP_SELF', 'SERVER_NAME', 'HTTP_PROXY', 'HTTP_X_A_B', 'APP', \
    'PHP_AUTH_USER', 'SERPENT_CLASS'] as $name) echo $name, '=<', $_SERVER[$name] ?? '', \">\\n\"; \
    echo 'body=<', file_get_contents('php://input'), \">\\n\";";

#[test]
fn php_fpm_answers_like_behind_any_other_server() {
    let files = [
        ("tell.php", TELL),
        (
            "post.php",
            "<?php setcookie('a', 'b'); setcookie('c', 'd'); header('X-Size: ' . strlen($_POST['x'])); http_response_code(201); echo md5($_POST['x']);",
        ),
        ("go.php", "<?php header('Location: /elsewhere');"),
        ("big.php", "<?php for ($i = 0; $i < 3000; $i++) { echo str_repeat(chr(71 + $i % 20), 1000); flush(); }"),
        (
            "warn.php",
            "<?php file_put_contents('php://stderr', \"from stderr\\n\"); error_log('a thing to note'); echo 'fine';",
        ),
        ("empty.php", "<?php http_response_code(204);"),
        ("uploads/cat.jpg", "<?php echo 'a picture was run';"),
        ("static.txt", "static"),
    ];
    let (folder, serpent, _) = site(&files, "environment = { APP = \"test\" }\n", "");
    let Some(_fpm) = PhpFpm::start(folder.path(), 2) else { return };
    let www = folder.path().join("www");
    let www = www.display();
    let fields =
        "proxy: http://evil.example\r\nx-a-b: right\r\nx_a_b: wrong\r\nauthorization: Basic YW5uOnNlY3JldA==\r\n";
    let answer = ask(&serpent, "POST", "/tell.php/a%20b/c?d=e", fields, "four");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for line in [
        format!("SCRIPT_FILENAME=<{www}/tell.php>"),
        "SCRIPT_NAME=</tell.php>".to_owned(),
        "PATH_INFO=</a b/c>".to_owned(),
        "REQUEST_URI=</tell.php/a%20b/c?d=e>".to_owned(),
        "QUERY_STRING=<d=e>".to_owned(),
        format!("DOCUMENT_ROOT=<{www}>"),
        "PHP_SELF=</tell.php/a b/c>".to_owned(),
        "SERVER_NAME=<blog.example>".to_owned(),
        "HTTP_PROXY=<>".to_owned(),
        "HTTP_X_A_B=<right>".to_owned(),
        "APP=<test>".to_owned(),
        "PHP_AUTH_USER=<ann>".to_owned(),
        "body=<four>".to_owned(),
    ] {
        assert!(answer.lines().any(|said| said == line), "{line} in {answer}");
    }
    let form = format!("x={}", "y".repeat(1_000_000));
    let answer = ask(&serpent, "POST", "/post.php", "content-type: application/x-www-form-urlencoded\r\n", &form);
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n") && answer.contains("x-size: 1000000\r\n"), "{answer}");
    assert_eq!(answer.matches("set-cookie: ").count(), 2, "{answer}");
    let answer = get(&serpent, "/go.php");
    assert!(answer.starts_with("HTTP/1.1 302 Found\r\n") && answer.contains("location: /elsewhere\r\n"), "{answer}");
    let answer = get(&serpent, "/big.php");
    // Sizes of chunks have no G.
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.matches('G').count(), 150_000);
    let answer = ask(&serpent, "HEAD", "/big.php", "", "");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    let answer = get(&serpent, "/empty.php");
    assert!(answer.starts_with("HTTP/1.1 204 No Content\r\n"), "{answer}");
    for path in ["/uploads/cat.jpg/x.php", "/none.php", "/uploads/cat.jpg%00.php", "/.php"] {
        let answer = get(&serpent, path);
        assert!(answer.starts_with("HTTP/1.1 40"), "{path}: {answer}");
    }
    let answer = get(&serpent, "/static.txt");
    assert!(answer.ends_with("\r\n\r\nstatic"), "{answer}");
    assert!(get(&serpent, "/warn.php").contains("fine"));
    serpent.wait_for_stderr("a thing to note");
}

#[test]
fn one_process_serves_all_though_its_connection_is_kept() {
    let files = [("page.php", "<?php echo 'page ', $_SERVER['QUERY_STRING'], ' ', getmypid();")];
    // Were a process kept from a request that waits for one, that would wait until the test is over.
    let (folder, serpent, _) = site(&files, "keep-connections = 4\nkeep-for = \"10m\"\n", "");
    let Some(fpm) = PhpFpm::start(folder.path(), 1) else { return };
    let address = serpent.address();
    std::thread::scope(|scope| {
        for client in 0..8 {
            scope.spawn(move || {
                for number in 0..25 {
                    let mut stream = TcpStream::connect(address).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    let path = format!("/page.php?{client}-{number}");
                    write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
                    let answer = all(stream);
                    assert!(answer.contains(&format!("page {client}-{number} ")), "{answer}");
                }
            });
        }
    });
    // The application starts anew, and the connections that are kept are closed.
    drop(fpm);
    let answer = get(&serpent, "/page.php?none");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    let _fpm = PhpFpm::start(folder.path(), 1).unwrap();
    let answer = ask(&serpent, "POST", "/page.php?anew", "", "body");
    assert!(answer.contains("page anew "), "{answer}");
}

/// An application that reads the beginning of a request and then does as it is told.
fn made_up(folder: &Path) -> UnixListener {
    UnixListener::bind(folder.join("fpm.sock")).unwrap()
}

#[test]
fn a_silent_application_is_left_with_its_client_and_slots_come_first() {
    let files = [("page.php", "")];
    let (folder, serpent, admin) = site(&files, "", CLASSES);
    let application = made_up(folder.path());
    let ask = |path: &str| {
        let mut client = serpent.connect();
        client.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
        client
    };
    let silent = ask("/page.php?first");
    let (mut first, _) = application.accept().unwrap();
    // There is one slot.
    let second = ask("/page.php?second");
    wait_for_metric(admin, "serpent_class_waiting{class=\"plain\"} 1");
    reset(silent);
    wait_for_metric(admin, "serpent_class_abandoned_total{class=\"plain\",state=\"running\"} 1");
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = Vec::new();
    first.read_to_end(&mut request).expect("the connection is closed");
    assert!(request.windows(5).any(|part| part == b"first"));
    let (mut other, _) = application.accept().unwrap();
    let mut start = [0; 8];
    other.read_exact(&mut start).unwrap();
    assert_eq!(start, [1, 1, 0, 1, 0, 8, 0, 0], "the beginning of a request");
    let text = b"Status: 203 Maybe\r\n\r\nhello";
    other.write_all(&[&[1, 6, 0, 1, 0, text.len() as u8, 0, 0][..], text].concat()).unwrap();
    other.write_all(&[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    let answer = all(second);
    assert!(answer.starts_with("HTTP/1.1 203 ") && answer.ends_with("hello\r\n0\r\n\r\n"), "{answer}");
    wait_for_metric(admin, "serpent_class_running{class=\"plain\"} 0");
}

#[test]
fn an_application_that_is_gone_or_speaks_otherwise_is_named_and_no_client_fills_the_log() {
    let (folder, serpent, _) = site(&[("page.php", "")], "timeout = \"100ms\"\n", "");
    let answer = get(&serpent, "/page.php");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    serpent.wait_for_stderr("the application cannot be reached");
    for _ in 0..100 {
        get(&serpent, "/page.php");
    }
    let application = made_up(folder.path());
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = application.accept().unwrap();
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        // Nothing is ever accepted again, and this one is silent.
        let (stream, _) = application.accept().unwrap();
        (application, stream)
    });
    let answer = get(&serpent, "/page.php");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    let answer = get(&serpent, "/page.php");
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    drop(asked.join().unwrap());
    serpent.signal(Signal::TERM);
    let (_, said) = serpent.wait();
    let lines = said.lines().filter(|line| line.contains("no answer from a FastCGI application")).count();
    assert!((1..80).contains(&lines), "{lines} lines");
}

/// The counterpart of nginx's `try_files $uri $uri/ /index.php?$args`.
const FRONT: &str = "[[site.route]]\npath = \"/closed\"\nfiles = true\ndeny = \"0.0.0.0/0\"\nfallback = \"/index.php\"\n\
    [[site.route]]\npath = \"/listed\"\nfiles = true\nlisting = true\nfallback = \"/index.php\"\n\
    [[site.route]]\npath = \"/fixed\"\nfiles = true\nfallback = \"/index.php?fixed={rest}\"\n\
    [[site.route]]\npath = \"/lost\"\nfiles = true\nfallback = \"/lost/none.html\"\n\
    [[site.route]]\npath = \"/\"\nfiles = true\nfallback = \"/index.php\"\n\
    [site.files]\nindex = [\"index.html\", \"index.php\"]\n";

#[test]
fn what_is_no_file_goes_to_the_front_controller() {
    let files = [
        ("index.php", TELL),
        ("admin/index.php", TELL),
        ("static/index.html", "static index"),
        ("static/index.php", "<?php echo 'not me';"),
        ("style.css", "body {}"),
        ("listed/a.txt", "a"),
        ("empty/deep/a.txt", "a"),
    ];
    let (folder, serpent, _) = site(&files, "", FRONT);
    let Some(_fpm) = PhpFpm::start(folder.path(), 1) else { return };
    let script = |name: &str| format!("SCRIPT_NAME=<{name}>");
    for (method, path, expected) in [
        ("GET", "/", &[&*script("/index.php"), "REQUEST_URI=</>", "body=<>"][..]),
        (
            "GET",
            "/2026/11/hello?a=b",
            &[&script("/index.php"), "REQUEST_URI=</2026/11/hello?a=b>", "QUERY_STRING=<a=b>"],
        ),
        (
            "POST",
            "/api/order?x",
            &[&script("/index.php"), "REQUEST_URI=</api/order?x>", "QUERY_STRING=<x>", "body=<four>"],
        ),
        ("POST", "/?ajax=1", &[&script("/index.php"), "REQUEST_URI=</?ajax=1>", "body=<four>"]),
        ("GET", "/admin/?p=1", &[&script("/admin/index.php"), "REQUEST_URI=</admin/?p=1>", "QUERY_STRING=<p=1>"]),
        ("POST", "/admin/", &[&script("/admin/index.php"), "body=<four>"]),
        ("GET", "/a%20b%2Fc", &[&script("/index.php"), "REQUEST_URI=</a%20b%2Fc>", "PATH_INFO=<>"]),
        ("GET", "/empty/deep/", &[&script("/index.php"), "REQUEST_URI=</empty/deep/>"]),
        ("GET", "/style.css/x", &[&script("/index.php")]),
        ("GET", "/fixed/a?b=c", &[&script("/index.php"), "QUERY_STRING=<fixed=/a>", "REQUEST_URI=</fixed/a?b=c>"]),
        ("GET", "/index.php", &[&script("/index.php"), "REQUEST_URI=</index.php>"]),
    ] {
        let body = if method == "POST" { "four" } else { "" };
        let answer = ask(&serpent, method, path, "", body);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{method} {path}: {answer}");
        for line in expected {
            assert!(answer.lines().any(|said| said == *line), "{method} {path}: {line} in {answer}");
        }
    }
    for (path, status, end) in [
        ("/style.css", 200, "body {}"),
        ("/static/", 200, "static index"),
        ("/admin", 301, ""),
        ("/listed/", 200, ""),
        ("/closed/x", 403, ""),
        ("/none.php", 404, ""),
        ("/admin/none.php/x", 404, ""),
        ("/lost/x", 404, ""),
        ("/lost/none.html", 404, ""),
        ("/%zz", 400, ""),
    ] {
        let answer = get(&serpent, path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.ends_with(end), "{path}: {answer}");
    }
    assert!(get(&serpent, "/listed/").contains("a.txt"));
}

#[test]
fn no_script_is_ever_sent_as_a_file() {
    let files = [("index.php", "<?php secret"), ("sub/x.php", "<?php secret")];
    // The route of scripts is for one folder only, and nothing answers there.
    let more = "[[site.route]]\npath = \"/\"\nfiles = true\n[site.files]\nindex = [\"index.php\"]\n";
    let (folder, serpent, _) = site(&files, "", more);
    let file = folder.path().join("serpent.toml");
    let text = fs::read_to_string(&file).unwrap().replace("path-regex = '\\.php(/|$)'", "path = \"/app\"");
    fs::write(&file, text).unwrap();
    serpent.signal(Signal::HUP);
    serpent.wait_for_stderr("configuration reloaded");
    for path in ["/", "/index.php", "/sub/x.php", "/sub/x%2ephp", "/sub/../index.php", "/sub/x.php/", "/none"] {
        for method in ["GET", "HEAD"] {
            let answer = ask(&serpent, method, path, "", "");
            assert!(answer.starts_with("HTTP/1.1 404 ") && !answer.contains("secret"), "{path}: {answer}");
        }
    }
}

#[test]
fn a_script_that_goes_on_behind_its_answer_holds_up_no_other() {
    let files = [
        (
            "on.php",
            "<?php echo 'first'; fastcgi_finish_request(); while (!file_exists('go')) { usleep(1000); clearstatcache(); } touch('went');",
        ),
        ("page.php", "<?php echo 'second';"),
    ];
    let (folder, serpent, _) = site(&files, "", "");
    let Some(_fpm) = PhpFpm::start(folder.path(), 2) else { return };
    assert!(get(&serpent, "/on.php").contains("first"));
    for _ in 0..5 {
        assert!(get(&serpent, "/page.php").contains("second"));
    }
    assert!(!folder.path().join("www/went").exists(), "it still runs");
    fs::write(folder.path().join("www/go"), "").unwrap();
    let start = Instant::now();
    while !folder.path().join("www/went").exists() {
        assert!(start.elapsed() < PATIENCE, "it was ended");
        std::thread::yield_now();
    }
}
