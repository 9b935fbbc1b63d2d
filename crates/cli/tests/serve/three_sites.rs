//! The three sites of the guide: the files on the page, run by this program and by nginx, which are asked the same.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{
    gateway::fastcgi::PhpFpm,
    support::{PATIENCE, Serpent, certificate, serpent, tool},
};

const NAMES: [&str; 3] = ["mirror.example.org", "blog.example.org", "api.example.org"];

/// `bea:secret`, as `htpasswd -B -C 4` writes it.
const USERS: &str = "bea:$2y$04$4gsMHaPbnPkk0iw7NgkkUehgNIJEVOHnzxpLLWX3LSoD9A3lOeHrm\n";

/// `golden` and `silver`.
const KEYS: &str = "gold dd56de4137951d9c92681b03416ec15f886b4482a27e3a517d32f085244cbe5d\n\
                    plain 78cde64c3e47f2cbfd9da721f54aacde33779916683c79de86962898feefac21\n";

/// The code block in a language that the guide has for one of the sites.
fn documented(language: &str, site: usize) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/three-sites.md");
    let guide = fs::read_to_string(guide).unwrap();
    let opening = format!("```{language}\n");
    let block = guide.split(&opening).nth(site + 1).unwrap_or_else(|| panic!("{language} {site}"));
    block.split_once("```").unwrap().0.to_owned()
}

/// Replaces what stands there for certain.
fn replaced(mut text: String, pairs: &[(&str, &str)]) -> String {
    for (old, new) in pairs {
        assert!(text.contains(old), "the guide has no {old}:\n{text}");
        text = text.replace(old, new);
    }
    text
}

/// A folder with everything that the files of the guide name.
struct Bed {
    folder: TempDir,
    site: usize,
}

impl Bed {
    fn new(site: usize, files: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            path
        };
        for name in ["log", "run", "tmp"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        for (name, bytes) in files {
            write(&format!("www/{name}"), bytes);
        }
        for (name, text) in [
            ("www/404.html", "not here\n"),
            ("www/sorry.html", "sorry\n"),
            ("www/503.json", "{\"error\": \"closed\"}\n"),
            ("outside.txt", "SECRET\n"),
            ("htpasswd", USERS),
            ("keys", KEYS),
        ] {
            let path = write(name, text.as_bytes());
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        certificate(folder.path(), "site", &NAMES);
        Self { folder, site }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Paths and networks of the guide are those of this machine. Tests come from 127.0.0.1.
    fn here(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (documented, here) in [
            ("/etc/serpent/fullchain.pem", "site.crt"),
            ("/etc/serpent/privkey.pem", "site.key"),
            ("/etc/serpent/htpasswd", "htpasswd"),
            ("/etc/serpent/keys", "keys"),
            ("/srv/www", "www"),
            ("/var/log/serpent/", "log/"),
            ("/run/serpent/maintenance", "run/maintenance"),
            ("/run/php/php-fpm.sock", "fpm.sock"),
        ] {
            let slash = if documented.ends_with('/') { "/" } else { "" };
            text = text.replace(documented, &format!("{}{slash}", self.path(here.trim_end_matches('/'))));
        }
        text.replace("192.0.2.0/24", "127.0.0.2/32").replace("include fastcgi.conf", "include /etc/nginx/fastcgi.conf")
    }

    /// This program with its file of the guide, but for the pairs.
    fn serpent(&self, pairs: &[(&str, &str)]) -> (Serpent, Server) {
        let text = replaced(documented("toml", self.site), pairs);
        let (clear, tls) = (free(), free());
        let listen = [("\"http://:80\"", &*format!("\"http://{clear}\"")), ("\":443\"", &*format!("\"{tls}\""))];
        let text = self.here(&replaced(text, &listen));
        let file = self.path("serpent.toml");
        let table = "[uplink]\nrate = \"off\"\n";
        let (first, rest) = text.split_once('\n').unwrap();
        fs::write(&file, format!("{first}\n{table}{rest}")).unwrap();
        let running = Serpent::start(&["serve", "--config", &file]);
        let server = Server { name: "serpent", host: NAMES[self.site], clear, tls };
        (running, server)
    }

    /// nginx with its file of the guide, but for the pairs; `None`: it is not installed.
    fn nginx(&self, pairs: &[(&str, &str)]) -> Option<(Nginx, Server)> {
        let mut command = tool("nginx")?;
        let (clear, tls) = (free(), free());
        let text = replaced(documented("nginx", self.site), pairs);
        let text = replaced(
            text,
            &[
                ("listen 80;", &format!("listen {clear};")),
                ("listen 443 ssl http2;", &format!("listen {tls} ssl http2;")),
            ],
        );
        let user = if rustix::process::getuid().is_root() { "user root;\n" } else { "" };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {};\n", self.path(&format!("tmp/{name}"))))
            .concat();
        let whole = format!(
            "{user}daemon off;\nmaster_process on;\nworker_processes 1;\npid {pid};\nerror_log {log};\n\
             events {{}}\nhttp {{\ninclude /etc/nginx/mime.types;\naccess_log off;\n{temporary}{text}}}\n",
            pid = self.path("nginx.pid"),
            log = self.path("nginx-error.log"),
            text = self.here(&text)
        );
        let file = self.path("nginx.conf");
        fs::write(&file, whole).unwrap();
        let tested = tool("nginx")?.args(["-t", "-c", &file]).output().unwrap();
        assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
        let child = command.args(["-c", &file]).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let running = Nginx(child);
        let start = Instant::now();
        while TcpStream::connect(clear).is_err() {
            assert!(start.elapsed() < PATIENCE, "nginx does not begin");
            thread::yield_now();
        }
        Some((running, Server { name: "nginx", host: NAMES[self.site], clear, tls }))
    }

    /// Waits until a log has this, and returns it.
    fn logged(&self, name: &str, part: &str) -> String {
        let start = Instant::now();
        loop {
            let log = fs::read_to_string(self.path(name)).unwrap();
            if log.contains(part) {
                return log;
            }
            assert!(start.elapsed() < PATIENCE, "no `{part}` in:\n{log}");
            thread::yield_now();
        }
    }

    /// Checks that `serpent import` turns nginx's file into a sound one, and names on standard error what is left out.
    fn imported(&self, left_out: &[&str]) {
        let text = format!("http {{\n{}\n}}\n", documented("nginx", self.site));
        let (file, ours) = (self.path("import.conf"), self.path("imported.toml"));
        fs::write(&file, self.here(&text)).unwrap();
        let output = serpent(&["import", &file]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        fs::write(&ours, &output.stdout).unwrap();
        let checked = serpent(&["check", &ours]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(checked.status.success(), "{}\n{text}", String::from_utf8_lossy(&checked.stderr));
        for name in left_out {
            assert!(said.contains(name), "`{name}` is not named:\n{said}");
        }
    }
}

/// An address that was free a moment ago, for programs that cannot be asked which one they took.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// nginx; ended when dropped, with its worker.
struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

struct Server {
    name: &'static str,
    host: &'static str,
    clear: SocketAddr,
    tls: SocketAddr,
}

struct Answer {
    status: u16,
    /// In small letters.
    head: String,
    body: Vec<u8>,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n\n{}", self.head, self.text().chars().take(300).collect::<String>())
    }
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

impl Server {
    /// curl, whose URL has the name of the site and no port.
    fn curl(&self, args: &[&str], url: &str) -> Command {
        let mut command = Command::new("curl");
        command.args(["-sS", "-k", "-i", "--path-as-is", "--max-time", "60"]);
        command.args(["--connect-to", &format!("{}:443:{}", self.host, self.tls)]);
        command.args(["--connect-to", &format!("{}:80:{}", self.host, self.clear)]);
        command.args(args);
        command.arg(if url.starts_with("http") { url.to_owned() } else { format!("https://{}{url}", self.host) });
        command
    }

    fn ask(&self, args: &[&str], url: &str) -> Answer {
        let output = self.curl(args, url).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // A server that has refused a body need not read it (55, 92).
        let sound = output.status.success() || matches!(output.status.code(), Some(55 | 92));
        assert!(sound, "{}: curl {args:?} {url}: {said}", self.name);
        parsed(&output.stdout)
    }

    fn status(&self, args: &[&str], url: &str) -> u16 {
        self.ask(args, url).status
    }
}

fn parsed(mut bytes: &[u8]) -> Answer {
    loop {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("the head of an answer");
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        bytes = &bytes[end + 4..];
        let status = head.split(' ').nth(1).unwrap().trim().parse().unwrap();
        if status >= 200 {
            return Answer { status, head, body: bytes.to_vec() };
        }
    }
}

/// A request that both servers answer alike: its options, its path, the status, parts of the head, a part of the body.
type Alike<'a> = (&'a [&'a str], &'a str, u16, &'a [&'a str], &'a str);

fn alike(servers: &[&Server], rows: &[Alike<'_>]) {
    let mut wrong = Vec::new();
    for server in servers {
        for (args, path, status, fields, body) in rows {
            let answer = server.ask(args, path);
            let sound = answer.status == *status
                && fields.iter().all(|field| answer.head.contains(field))
                && answer.text().contains(body)
                && !answer.text().contains("SECRET");
            if !sound {
                let body: String = answer.text().chars().take(300).collect();
                wrong.push(format!(
                    "{} {args:?} {path}: expected {status} {fields:?}\n{}\n{body}",
                    server.name, answer.head
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Writings of paths that lead out of the root, to hidden files, or to no path.
const OUTSIDE: [&str; 10] = [
    "/../outside.txt",
    "/%2e%2e/outside.txt",
    "/pool/../../outside.txt",
    "/pool/%2e%2e/%2E%2E/outside.txt",
    "/pool/..%2f..%2foutside.txt",
    "/pool/..\\..\\outside.txt",
    "/..;/outside.txt",
    "/.hidden",
    "/%2ehidden",
    "/pool/%00",
];

fn nothing_outside(servers: &[&Server]) {
    for server in servers {
        for path in OUTSIDE {
            let answer = server.ask(&[], path);
            assert!(
                matches!(answer.status, 400 | 403 | 404) && !answer.text().contains("SECRET"),
                "{} {path}: {answer:?}",
                server.name
            );
        }
    }
}

/// Heads that are no requests, as bytes without TLS.
fn malformed(servers: &[&Server]) {
    for server in servers {
        let host = server.host;
        for request in [
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            format!("GET / HTTP/1.1\r\nhost: {host}\r\nhost: {host}\r\n\r\n"),
            format!("GET / HTTP/1.1\r\nhost: {host}\r\nbad field: 1\r\nno colon\r\n\r\n"),
            format!(
                "GET / HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            format!("GET / HTTP/1.1\r\nhost: {host}\r\ncontent-length: -1\r\n\r\n"),
            "\x16\x03\x01 nothing\r\n\r\n".to_owned(),
        ] {
            let mut stream = TcpStream::connect(server.clear).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let _ = stream.write_all(request.as_bytes());
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            let answer = String::from_utf8_lossy(&answer);
            // nginx redirects some of them.
            let sound =
                answer.starts_with("HTTP/1.1 400") || (server.name == "nginx" && answer.starts_with("HTTP/1.1 308"));
            assert!(sound, "{} {request:?}: {answer}", server.name);
        }
    }
}

#[test]
fn the_mirror_of_the_guide() {
    if tool("curl").is_none() {
        return;
    }
    let style = "body { color: black }\n".repeat(400);
    let archive: Vec<u8> = (0..600_000_u32).map(|n| (n % 251) as u8).collect();
    let bed = Bed::new(
        0,
        &[
            ("index.html", b"<p>mirror".as_slice()),
            ("style.css", style.as_bytes()),
            ("ready.css", b"p { margin: 0 }\n"),
            ("ready.css.gz", b"\x1f\x8b made before"),
            ("dot.png", b"png"),
            ("numbers.txt", b"0123456789"),
            (".hidden", b"SECRET"),
            ("pool/a.deb", &archive),
            ("pool/b.deb", b"b"),
            ("internal/plan.txt", b"the plan"),
        ],
    );
    let (ours, us) = bed.serpent(&[]);
    let theirs = bed.nginx(&[]);
    let servers: Vec<&Server> = [&us].into_iter().chain(theirs.as_ref().map(|(_, server)| server)).collect();
    let hsts = "strict-transport-security: max-age=31536000";
    alike(
        &servers,
        &[
            (&[], "/", 200, &["content-type: text/html", "cache-control: no-cache", hsts], "<p>mirror"),
            (&[], "/style.css", 200, &["cache-control: max-age=2592000"], "color: black"),
            (&[], "/dot.png", 200, &["cache-control: max-age=2592000", "content-type: image/png"], "png"),
            (&[], "/numbers.txt", 200, &["cache-control: max-age=3600", "accept-ranges: bytes"], "0123456789"),
            (
                &["-H", "accept-encoding: gzip"],
                "/ready.css",
                200,
                &["content-encoding: gzip", "vary: accept-encoding"],
                "made before",
            ),
            (&["-H", "accept-encoding: gzip"], "/style.css", 200, &["content-encoding: gzip"], ""),
            (&["-H", "accept-encoding: gzip;q=0"], "/ready.css", 200, &[], "margin: 0"),
            (&["-H", "range: bytes=2-4"], "/numbers.txt", 206, &["content-range: bytes 2-4/10"], "234"),
            (&["-H", "range: bytes=-3"], "/numbers.txt", 206, &["content-range: bytes 7-9/10"], "789"),
            (&["-H", "range: bytes=50-60"], "/numbers.txt", 416, &["content-range: bytes */10"], ""),
            (&["-H", "if-none-match: *"], "/missing.txt", 404, &[], "not here"),
            (&["-I"], "/pool/a.deb", 200, &["content-length: 600000"], ""),
            (&[], "/pool/", 200, &["content-type: text/html"], "a.deb"),
            (&[], "/pool", 301, &["/pool/"], ""),
            (&[], "/releases/b.deb?x=1", 301, &["/pool/b.deb?x=1"], ""),
            (&[], "/missing", 404, &[hsts], "not here"),
            (&[], "/internal/plan.txt", 403, &[], ""),
            (&[], "//internal/plan.txt", 403, &[], ""),
            (&[], "/pool/../%69nternal/plan.txt", 403, &[], ""),
            (&["-H", "x-forwarded-for: 127.0.0.2"], "/internal/plan.txt", 403, &[], ""),
            (&["--interface", "127.0.0.2"], "/internal/plan.txt", 200, &[], "the plan"),
            (&["--http1.1"], "/", 200, &["http/1.1 200"], "<p>mirror"),
            (&["--http2"], "/", 200, &["http/2 200"], "<p>mirror"),
            (&["-X", "DELETE"], "/numbers.txt", 405, &[], ""),
        ],
    );
    nothing_outside(&servers);
    malformed(&servers);
    for server in &servers {
        let answer = server.ask(&[], &format!("http://{}/pool/?x", server.host));
        assert_eq!(answer.status, 308, "{}: {answer:?}", server.name);
        assert!(answer.field("location").unwrap().starts_with("https://mirror.example.org"), "{answer:?}");
    }
    // Broken ranges are no ranges.
    for range in ["bytes=x-y", "bytes=4-2", "lines=1-2", "bytes=99999999999999999999999-"] {
        let answer = us.ask(&["-H", &format!("range: {range}")], "/numbers.txt");
        assert!(matches!(answer.status, 200 | 416), "{range}: {answer:?}");
    }
    let listed = us.ask(&["-H", "accept: application/json"], "/pool/?sort=size&order=desc");
    assert!(listed.text().find("a.deb").unwrap() < listed.text().find("b.deb").unwrap(), "{}", listed.text());
    assert!(listed.field("content-type").unwrap().starts_with("application/json"), "{listed:?}");
    let odd = us.ask(&[], "/pool/?sort=%22%3E%3Cscript%3E");
    assert!(odd.status == 200 && !odd.text().contains("<script>"), "{}", odd.text());
    assert_eq!(us.status(&["-H", "accept-encoding: zstd"], "/style.css"), 200);
    bed.logged("log/mirror.log", "\"GET /numbers.txt HTTP/2.0\" 206");
    // Connections of one client.
    let open: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(us.tls).unwrap()).collect();
    let refused = us.curl(&[], "/").output().unwrap();
    assert!(!refused.status.success(), "{}", String::from_utf8_lossy(&refused.stdout));
    assert_eq!(us.status(&["--interface", "127.0.0.3"], "/"), 200);
    drop((open, ours));
    // Bytes of one client, in two responses at once.
    let (_ours, us) =
        bed.serpent(&[("bytes = \"5MB/s\", bytes-burst = \"20MB\"", "bytes = \"600KB/s\", bytes-burst = \"100KB\"")]);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(us.ask(&[], "/pool/a.deb").body, archive));
        }
    });
    assert!(start.elapsed() > Duration::from_millis(1500), "{:?}", start.elapsed());
    bed.imported(&["limit_rate"]);
}

#[test]
fn the_php_application_of_the_guide() {
    if tool("curl").is_none() {
        return;
    }
    let front = b"<?php header('Content-Type: text/plain'); echo 'front ', $_SERVER['REQUEST_URI'], ' ', strlen(file_get_contents('php://input'));";
    let style = "body { color: black }\n".repeat(400);
    let bed = Bed::new(
        1,
        &[
            ("index.php", front.as_slice()),
            ("wp-config.php", b"<?php echo 'SECRET';"),
            ("wp-login.php", b"<?php echo 'log in';"),
            ("wp-admin/index.php", b"<?php echo 'admin';"),
            ("wp-admin/plan.txt", b"plan"),
            ("wp-admin/admin-ajax.php", b"<?php echo 'ajax';"),
            ("wp-content/uploads/evil.php", b"<?php echo 'SEC' . 'RET';"),
            ("wp-content/uploads/evil.PHP", b"<?php echo 'SEC' . 'RET';"),
            ("wp-content/uploads/cat.jpg", b"<?php echo 'SEC' . 'RET';"),
            ("wp-content/style.css", style.as_bytes()),
            (".hidden", b"SECRET"),
            (".git/config", b"SECRET"),
        ],
    );
    let Some(_fpm) = PhpFpm::start(bed.folder.path(), 2) else { return };
    let (_ours, us) = bed.serpent(&[]);
    let theirs = bed.nginx(&[]);
    let servers: Vec<&Server> = [&us].into_iter().chain(theirs.as_ref().map(|(_, server)| server)).collect();
    let large = bed.path("large");
    fs::write(&large, vec![b'x'; 16 * 1024 * 1024 + 1]).unwrap();
    let upload = format!("@{large}");
    let nosniff = "x-content-type-options: nosniff";
    alike(
        &servers,
        &[
            (&[], "/", 200, &["text/plain", nosniff], "front / 0"),
            (&[], "/2026/11/a-post/?a=b", 200, &[], "front /2026/11/a-post/?a=b 0"),
            (&["-d", "four"], "/comments/", 200, &[], "front /comments/ 4"),
            (&[], "/index.php/info", 200, &[], "front /index.php/info"),
            (&[], "/none.php", 404, &[], ""),
            (&[], "/wp-content/style.css", 200, &["cache-control: max-age=2592000", nosniff], "color: black"),
            (&["-H", "accept-encoding: gzip"], "/wp-content/style.css", 200, &["content-encoding: gzip"], ""),
            (&[], "/wp-content/none.css", 404, &[], ""),
            (&[], "/wp-config.php", 403, &[], ""),
            (&[], "/wp%2dconfig.php", 403, &[], ""),
            (&[], "//wp-config.php", 403, &[], ""),
            (&[], "/x/../wp-config.php/y", 403, &[], ""),
            (&[], "/WP-CONFIG.PHP", 403, &[], ""),
            (&[], "/wp-content/uploads/evil.php", 403, &[], ""),
            (&[], "/wp-content/uploads/evil.PHP", 403, &[], ""),
            (&[], "/wp-content/uploads/cat.jpg/x.php", 403, &[], ""),
            (&[], "/wp-content//uploads/./evil%2ephp", 403, &[], ""),
            (&[], "/.git/config", 404, &[], ""),
            (&[], "/x/../.git/config", 404, &[], ""),
            (&[], "/wp-admin/", 401, &["www-authenticate: basic realm=\"blog\""], ""),
            (&[], "/wp-admin/index.php", 401, &[], ""),
            (&[], "/wp-admin/plan.txt", 401, &[], ""),
            (&[], "//wp-admin/%69ndex.php", 401, &[], ""),
            (&["-u", "bea:wrong"], "/wp-admin/index.php", 401, &[], ""),
            (&["-u", "bob:secret"], "/wp-admin/index.php", 401, &[], ""),
            (&["-H", "authorization: Basic %%%"], "/wp-admin/index.php", 401, &[], ""),
            (&["-H", "authorization: Bearer x"], "/wp-admin/plan.txt", 401, &[], ""),
            (&["-u", "bea:secret"], "/wp-admin/index.php", 200, &[], "admin"),
            (&["-u", "bea:secret"], "/wp-admin/", 200, &[], "admin"),
            (&[], "/wp-admin/admin-ajax.php", 200, &[], "ajax"),
            (&["--data-binary", &upload], "/", 413, &[], ""),
            (&["--http2", "-H", "expect:", "--data-binary", &upload], "/x", 413, &[], ""),
        ],
    );
    nothing_outside(&servers);
    malformed(&servers);
    for server in &servers {
        assert_eq!(server.ask(&[], "/").field("x-powered-by"), None, "{}", server.name);
        // Five at once; more get 429, elsewhere as before.
        let statuses: Vec<u16> = (0..7).map(|_| server.status(&["-d", "pwd=guess"], "/wp-login.php")).collect();
        assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429], "{}", server.name);
        assert_eq!(server.status(&["-H", "x-forwarded-for: 203.0.113.1"], "//wp-login.php"), 429, "{}", server.name);
        assert_eq!(server.status(&[], "/"), 200, "{}", server.name);
        assert_eq!(server.status(&[], &format!("http://{}/", server.host)), 308);
    }
    let refused = us.ask(&[], "/wp-login.php");
    assert!(refused.field("retry-after").is_some(), "{refused:?}");
    let log = bed.logged("log/blog.log", "GET /wp-admin/ ");
    assert!(!log.contains("style.css"), "{log}");
    // Closed and opened again.
    fs::write(bed.path("run/maintenance"), "").unwrap();
    for server in &servers {
        let start = Instant::now();
        while server.status(&[], "/") != 503 {
            assert!(start.elapsed() < PATIENCE, "{} stays open", server.name);
        }
        for path in ["/wp-content/style.css", "/index.php", "/wp-admin/admin-ajax.php"] {
            let answer = server.ask(&[], path);
            assert!(answer.status == 503 && answer.text() == "sorry\n", "{} {path}: {answer:?}", server.name);
        }
    }
    assert_eq!(us.ask(&[], "/").field("retry-after"), Some("600"));
    assert_eq!(us.status(&["--interface", "127.0.0.2"], "/"), 200);
    fs::remove_file(bed.path("run/maintenance")).unwrap();
    for server in &servers {
        let start = Instant::now();
        while server.status(&[], "/") != 200 {
            assert!(start.elapsed() < PATIENCE, "{} stays closed", server.name);
        }
    }
    bed.imported(&["limit_req_status"]);
}

/// An application with a name, which is well or not.
fn application(name: &'static str, well: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(stream, name, well));
        }
    });
    address
}

fn answer(mut stream: TcpStream, name: &str, well: bool) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let field = |name: &str| {
            let found = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}: ")));
            found.map_or("", |line| line.split_once(": ").unwrap().1).to_owned()
        };
        let length: u64 = field("content-length").parse().unwrap_or(0);
        std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink())?;
        let (mut status, mut more) = ("200 OK", String::new());
        match path.as_str() {
            "/health" if !well => status = "503 Service Unavailable",
            "/verify" if field("authorization") == "Bearer good" => more = "remote-user: ann\r\n".to_owned(),
            "/verify" => status = "401 Unauthorized",
            "/events" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n")?;
                // The second event comes when the client has gone, which is never seen.
                let _ = reader.read_line(&mut String::new());
                return Ok(());
            }
            "/slow" => {
                let _ = reader.read_line(&mut String::new());
                return Ok(());
            }
            "/ws" if field("upgrade") == "websocket" => {
                stream.write_all(
                    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
                )?;
                std::io::copy(&mut reader, &mut stream)?;
                return Ok(());
            }
            _ => {}
        }
        let body = format!("{name} {path} body={length} user=<{}>", field("remote-user"));
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{more}\r\n{body}", body.len())?;
    }
}

#[test]
fn the_api_of_the_guide() {
    if tool("curl").is_none() {
        return;
    }
    let bed = Bed::new(2, &[(".hidden", b"SECRET".as_slice())]);
    let (well, ill) = (application("well", true).to_string(), application("ill", false).to_string());
    let servers_are = [("10.0.0.1:3000", well.as_str()), ("10.0.0.2:3000", &ill), ("10.0.0.3:9091", &well)];
    let many =
        [("every = \"5s\"", "every = \"100ms\""), ("rate = \"20/s\", burst = 40", "rate = \"1000/s\", burst = 1000")];
    let (ours, us) = bed.serpent(&[servers_are.as_slice(), &many].concat());
    let theirs =
        bed.nginx(&[servers_are.as_slice(), &[("rate=20r/s", "rate=1000r/s"), ("burst=39", "burst=999")]].concat());
    let servers: Vec<&Server> = [&us].into_iter().chain(theirs.as_ref().map(|(_, server)| server)).collect();
    let large = bed.path("large");
    fs::write(&large, vec![b'x'; 64 * 1024 + 1]).unwrap();
    let upload = format!("@{large}");
    let gold = "x-api-key: golden";
    let app = "access-control-allow-origin: https://app.example.org";
    alike(
        &servers,
        &[
            (&[], "/health", 200, &["content-type: application/json"], "{\"status\": \"ok\"}"),
            (&["-H", gold], "/v1/items?a=b", 200, &[], " /items?a=b body=0"),
            (&["-H", "x-api-key: silver"], "/v1/items", 200, &[], " /items "),
            (&["-H", gold, "-d", "four"], "/v1/items", 200, &[], "body=4"),
            (&[], "/v1/items", 403, &[], ""),
            (&["-H", "x-api-key: wrong"], "/v1/items", 403, &[], ""),
            (&["-H", "x-api-key;"], "/v1/items", 403, &[], ""),
            (&["-H", "x-api-key: Golden"], "/v1/events", 403, &[], ""),
            (&[], "/v1/ws", 403, &[], ""),
            (&[], "/v1//items", 403, &[], ""),
            (&["-H", gold, "--data-binary", &upload], "/v1/items", 413, &[], ""),
            (&["-H", "authorization: Bearer good"], "/v1/account/me", 200, &[], " /account/me body=0 user=<ann>"),
            (
                &["-H", "authorization: Bearer good", "-H", "remote-user: root"],
                "/v1/account/me",
                200,
                &[],
                "user=<ann>",
            ),
            (&["-H", "authorization: Bearer bad"], "/v1/account/me", 401, &[], ""),
            (&["-H", "remote-user: root"], "/v1/account/me", 401, &[], ""),
            (&["-H", gold], "/v1/x/../account/me", 401, &[], ""),
            (&["-H", gold, "-H", "origin: https://app.example.org"], "/v1/items", 200, &[app, "vary: origin"], ""),
            (&["-H", gold, "-H", "origin: https://evil.example"], "/v1/items", 200, &["vary: origin"], ""),
            (
                &[
                    "-X",
                    "OPTIONS",
                    "-H",
                    "origin: https://app.example.org",
                    "-H",
                    "access-control-request-method: DELETE",
                ],
                "/v1/items",
                204,
                &[app, "access-control-allow-methods: get, post, delete", "access-control-max-age: 3600"],
                "",
            ),
            (&[], "/v2/items", 404, &[], ""),
        ],
    );
    nothing_outside(&servers);
    malformed(&servers);
    for server in &servers {
        for origin in ["https://evil.example", "null", "https://app.example.org.evil.example", "HTTPS://APP", "\"'"] {
            let answer = server.ask(&["-H", gold, "-H", &format!("origin: {origin}")], "/v1/items");
            assert_eq!(answer.field("access-control-allow-origin"), None, "{} {origin}", server.name);
        }
        // An event comes while the response goes on.
        let mut curl = server.curl(&["-N", "-H", gold], "/v1/events").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(curl.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "data: 1"), "{}", server.name);
        curl.kill().unwrap();
        curl.wait().unwrap();
    }
    // The server that is not well gets no requests.
    let start = Instant::now();
    while !(0..8).all(|_| us.ask(&["-H", gold], "/v1/items").text().starts_with("well ")) {
        assert!(start.elapsed() < PATIENCE, "the server that is ill is still asked");
    }
    for server in &servers {
        let upgrade = ["--http1.1", "-H", gold, "-H", "connection: Upgrade", "-H", "upgrade: websocket"];
        // curl writes out the data behind an upgrade at its end only. It tells of the head at once.
        let mut curl = server.curl(&[&["-v"], &upgrade[..]].concat(), "/v1/ws").stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(curl.stderr.take().unwrap()).lines().map(Result::unwrap);
        let status = said.find(|line| line.starts_with("< HTTP/")).expect("an answer");
        assert!(status.starts_with("< HTTP/1.1 101 "), "{}: {status}", server.name);
        // curl does not end it by itself.
        curl.kill().unwrap();
        curl.wait().unwrap();
    }
    fs::write(bed.path("run/maintenance"), "").unwrap();
    for server in &servers {
        let start = Instant::now();
        while server.status(&[], "/health") != 503 {
            assert!(start.elapsed() < PATIENCE, "{} stays open", server.name);
        }
        let answer = server.ask(&["-H", gold], "/v1/items");
        assert!(answer.status == 503 && answer.text() == "{\"error\": \"closed\"}\n", "{}: {answer:?}", server.name);
        assert_eq!(answer.field("content-type"), Some("application/json"), "{}", server.name);
    }
    fs::remove_file(bed.path("run/maintenance")).unwrap();
    drop(ours);

    // Limits by key, and refusals under overload.
    let few = [
        ("rate = \"20/s\", burst = 40", "rate = \"1/h\", burst = 3"),
        ("slots = 16", "slots = 1"),
        ("queue = 200", "queue = 1"),
    ];
    let (_ours, us) = bed.serpent(&[servers_are.as_slice(), &few].concat());
    let asked = |key: &str| us.status(&["-H", &format!("x-api-key: {key}")], "/v1/items");
    assert_eq!([(); 4].map(|()| asked("silver")), [200, 200, 200, 429]);
    assert_eq!(asked("wrong"), 403);
    assert_eq!(asked("golden"), 200);
    // Two that stay: one has the slot, the other waits. The last finds no place in the queue of its class.
    let mut staying: Vec<Child> = ["/v1/slow", "/v1/slow"]
        .map(|path| us.curl(&["-H", gold], path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
        .into();
    let start = Instant::now();
    loop {
        let answer = us.ask(&["-H", "authorization: Bearer good", "-H", gold], "/v1/account/me");
        if answer.status == 503 {
            assert!(answer.field("retry-after").is_some(), "{answer:?}");
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{answer:?}");
    }
    assert_eq!(us.status(&[], "/health"), 200);
    for child in &mut staying {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    bed.imported(&["map", "if"]);
}
