//! An application behind uWSGI, where that is installed.

use std::{
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
    time::Instant,
};

use super::*;

const PLUGINS: &str = "/usr/lib/uwsgi/plugins";

const APPLICATION: &str = "def application(environ, answer):\n\
    \u{20}   body = environ['wsgi.input'].read()\n\
    \u{20}   status = '404 Not Found' if environ['PATH_INFO'] == '/none' else '200 OK'\n\
    \u{20}   answer(status, [('Content-Type', 'text/plain'), ('X-Size', str(len(body)))])\n\
    \u{20}   names = ['REQUEST_METHOD', 'PATH_INFO', 'QUERY_STRING', 'REMOTE_ADDR', 'HTTP_X_A', 'SHOP', 'wsgi.url_scheme']\n\
    \u{20}   yield ' '.join(str(environ.get(name)) for name in names).encode()\n\
    \u{20}   yield b'!' * 100000 if environ['PATH_INFO'] == '/large' else b''\n";

/// uWSGI with this application; ended when dropped.
struct Running(Child);

impl Running {
    fn start(folder: &Path) -> Option<Self> {
        let mut uwsgi = tool("uwsgi")?;
        if !Path::new(PLUGINS).join("python3_plugin.so").is_file() {
            assert!(std::env::var_os("CI").is_none(), "the Python plugin of uWSGI is missing: run ./test as root");
            eprintln!("SKIPPED: the Python plugin of uWSGI is missing; ./test says how to install it");
            return None;
        }
        let (application, socket) = (folder.join("app.py"), folder.join("app.sock"));
        fs::write(&application, APPLICATION).unwrap();
        uwsgi.args(["--plugins-dir", PLUGINS, "--plugin", "python3", "--processes", "2", "--master", "--die-on-term"]);
        uwsgi.args(["--buffer-size", "32768", "--socket"]).arg(&socket).arg("--wsgi-file").arg(&application);
        let log = fs::File::create(folder.join("uwsgi.log")).unwrap();
        let child = started(&mut uwsgi, log);
        let start = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            let log = || fs::read_to_string(folder.join("uwsgi.log")).unwrap_or_default();
            assert!(start.elapsed() < PATIENCE, "uWSGI does not begin: {}", log());
            std::thread::yield_now();
        }
        Some(child)
    }
}

fn started(command: &mut Command, log: fs::File) -> Running {
    Running(command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn an_application_behind_uwsgi_answers() {
    let folder = tempfile::tempdir().unwrap();
    let Some(running) = Running::start(folder.path()) else { return };
    let file = folder.path().join("serpent.toml");
    let text = "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nworkers = 1\n[uplink]\nrate = \"off\"\n[admission]\nslots = 2\n\
                [[site]]\n[[site.route]]\npath = \"/\"\n[site.route.uwsgi]\naddress = \"unix:SOCKET\"\n\
                environment = { SHOP = \"shop\" }\n"
        .replace("SOCKET", &folder.path().join("app.sock").display().to_string());
    fs::write(&file, text).unwrap();
    let (serpent, _) = start(&file);
    let ask = |method: &str, path: &str, body: &str| {
        let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let head = format!("{method} {path} HTTP/1.1\r\nhost: a\r\nx-a: 1\r\n{length}connection: close\r\n\r\n");
        serpent.exchange(format!("{head}{body}").as_bytes())
    };
    let page = ask("GET", "/a%20b/?c=d", "");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("GET /a b/ c=d 127.0.0.1 1 shop http"), "{page}");
    let posted = ask("POST", "/form", &"x".repeat(300_000));
    assert!(posted.contains("x-size: 300000") && posted.contains("POST /form  127.0.0.1"), "{posted}");
    assert!(ask("GET", "/none", "").starts_with("HTTP/1.1 404 "));
    let head = ask("HEAD", "/", "");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert_eq!(ask("GET", "/large", "").matches('!').count(), 100_000);
    drop(running);
    assert!(ask("GET", "/", "").starts_with("HTTP/1.1 502 "));
    serpent.wait_for_stderr("no answer from a uwsgi application");
}
