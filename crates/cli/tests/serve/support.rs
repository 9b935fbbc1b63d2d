//! Support for tests: the binary as a process, tools that talk to it, and a site to serve.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
#[cfg(target_os = "linux")]
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use tempfile::TempDir;

/// Ends a test that would otherwise wait for ever. No test waits for time to pass.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The size of `big.bin`.
pub const BIG: usize = 2_000_000;

/// Writes a shell script that can be run at once. Another process writes it, because a file that is open for
/// writing cannot be run. A program that another test starts at that time would hold a copy of this process's
/// descriptor for a moment.
pub fn program(path: &Path, script: &str) {
    let mut writer = Command::new("/bin/sh")
        .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
}

/// A folder with a site `www`, and beside it a file that must never be served.
pub fn site() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let www = folder.path().join("www");
    fs::create_dir_all(www.join("sub")).unwrap();
    fs::create_dir_all(www.join("listed")).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(www.join(name), bytes).unwrap();
    write("index.html", b"<!doctype html><title>Serpent</title><p>index\n");
    write("hello.txt", b"hello, world\n");
    write("style.css", b"body { color: black }\n");
    write("style.css.gz", GZIPPED_STYLE);
    write("sub/inner.txt", b"inner\n");
    write(".secret", b"SECRET\n");
    write("big.bin", &big());
    write("page.html", PAGE.as_bytes());
    fs::write(folder.path().join("outside.txt"), b"SECRET\n").unwrap();
    folder
}

/// Content in which a shift or a gap is visible.
pub fn big() -> Vec<u8> {
    (0..BIG as u32 / 4).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// A page that needs a style sheet and two fetches, so that a browser makes several requests at once.
const PAGE: &str = "<!doctype html><title>page</title><link rel=stylesheet href=style.css><p id=out>waiting</p>\
    <script>fetch('hello.txt').then(r => r.text()).then(async text => {\
    const big = await (await fetch('big.bin')).arrayBuffer();\
    document.getElementById('out').textContent = text.trim() + ' and ' + big.byteLength;});</script>";

/// `body { color: black }\n`, compressed by `gzip -9n`.
const GZIPPED_STYLE: &[u8] = &[
    0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0, 2, 3, 0x4b, 0xca, 0x4f, 0xa9, 0x54, 0xa8, 0x56, 0x48, 0xce, 0xcf, 0xc9, 0x2f,
    0xb2, 0x52, 0x48, 0xca, 0x49, 0x4c, 0xce, 0x56, 0xa8, 0xe5, 0x02, 0x00, 0x63, 0x67, 0x90, 0xc6, 0x16, 0, 0, 0,
];

/// A running `serpent serve`; killed when dropped.
pub struct Serpent {
    child: Child,
    /// The line printed when ready.
    pub ready: String,
    /// The addresses in that line.
    pub urls: Vec<String>,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Serpent {
    /// Serves the site over the loopback device, unpaced unless `args` say otherwise.
    pub fn serve(site: &Path, args: &[&str]) -> Self {
        let mut all = vec!["serve", site.to_str().unwrap(), "--listen", "127.0.0.1:0", "--uplink", "off"];
        if args.contains(&"--uplink") {
            all.truncate(4);
        }
        all.extend_from_slice(args);
        Self::start(&all)
    }

    /// Runs the binary and waits for the line that says that it is ready.
    pub fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_serpent"));
        command.args(args);
        Self::start_command(command)
    }

    /// As [`Serpent::start`], for a command that is more than arguments.
    pub fn start_command(mut command: Command) -> Self {
        let mut child = command
            .env_remove("SERPENT_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = lines(child.stdout.take().unwrap());
        let stderr = lines(child.stderr.take().unwrap());
        let mut serpent = Self { child, ready: String::new(), urls: Vec::new(), stdout, stderr };
        match serpent.stdout.recv_timeout(PATIENCE) {
            Ok(line) => serpent.ready = line,
            Err(_) => {
                let said: Vec<_> = serpent.stderr.try_iter().collect();
                panic!("{command:?} did not become ready: {said:#?}");
            }
        }
        // The served thing may have an address too: that of an upstream.
        let at = serpent.ready.rsplit_once(" on ").map_or("", |(_, at)| at);
        serpent.urls = at.split_whitespace().filter(|word| word.starts_with("http")).map(str::to_owned).collect();
        assert!(!serpent.urls.is_empty(), "{}", serpent.ready);
        serpent
    }

    /// The first address.
    pub fn address(&self) -> SocketAddr {
        self.urls[0].split_once("://").unwrap().1.parse().unwrap()
    }

    /// A path at the first address.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.urls[0])
    }

    /// A connection to the first address.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes as they are and reads all until the server closes.
    pub fn exchange(&self, bytes: &[u8]) -> String {
        String::from_utf8_lossy(&self.exchange_bytes(bytes)).into_owned()
    }

    /// As [`Serpent::exchange`], for an answer that need not be text.
    pub fn exchange_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    /// Checks that the server answers an ordinary request.
    pub fn assert_alive(&self) {
        let answer = self.exchange(b"GET /hello.txt HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello, world\n"), "{answer}");
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        signal_child(&self.child, signal);
    }

    /// Sets whether the server may open further files, by its limit on descriptors.
    #[cfg(target_os = "linux")]
    pub fn may_open_files(&self, may: bool) {
        let open = |fd: &u64| Path::new(&format!("/proc/{}/fd/{fd}", self.child.id())).exists();
        let first_free = (0..).find(|fd| !open(fd));
        // The server's hard limit is that of the test process.
        let maximum = getrlimit(Resource::Nofile).maximum;
        let current = if may { maximum } else { first_free };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Nofile, Rlimit { current, maximum }).unwrap();
    }

    /// The next line on standard output.
    pub fn stdout_line(&self) -> String {
        self.stdout.recv_timeout(PATIENCE).expect("a line on standard output")
    }

    /// Waits for a line on standard error that contains `part`, and returns it with what came before.
    pub fn wait_for_stderr(&self, part: &str) -> String {
        let mut said = String::new();
        loop {
            match self.stderr.recv_timeout(PATIENCE) {
                Ok(line) => {
                    said.push_str(&line);
                    said.push('\n');
                    if line.contains(part) {
                        return said;
                    }
                }
                Err(error) => panic!("no `{part}` on standard error ({error}), but:\n{said}"),
            }
        }
    }

    /// Waits for the end of the process. Its standard output closes then, so the wait is for an event.
    pub fn wait(mut self) -> (ExitStatus, String) {
        loop {
            match self.stdout.recv_timeout(PATIENCE) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the server does not stop"),
            }
        }
        let status = self.child.wait().unwrap();
        (status, self.stderr.iter().map(|line| line + "\n").collect())
    }
}

impl Drop for Serpent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            for line in self.stderr.try_iter() {
                eprintln!("serpent: {line}");
            }
        }
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Sends a signal to a child. After [`Signal::STOP`] it waits until the child stands still. On a busy machine threads of
/// the child run on for a while: a gateway could let in a request that goes on when the gateway does.
pub fn signal_child(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    kill_process(pid, signal).unwrap();
    if signal == Signal::STOP {
        let stopped = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        assert!(stopped.is_some_and(|(_, status)| status.stopped()), "it has ended");
    }
}

/// Runs the binary to its end.
pub fn serpent(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_serpent")).args(args).env_remove("SERPENT_LOG").output().unwrap()
}

/// A port that is free, below those that the system gives to connections. No other test of this process gets it.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let at = std::process::id().wrapping_mul(97).wrapping_add(NEXT.fetch_add(1, Relaxed));
        let port = 22_000 + (at % 10_000) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A program of the system. If it is missing, the test is skipped with a message, or fails in CI.
pub fn tool(name: &str) -> Option<Command> {
    let path = std::env::var("PATH").unwrap_or_default();
    let found = path.split(':').chain(["/usr/sbin", "/sbin"]).any(|folder| Path::new(folder).join(name).is_file());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "`{name}` is missing: run ./test as root to install it");
        eprintln!("SKIPPED: `{name}` is missing; ./test says how to install it");
    }
    found.then(|| Command::new(name))
}

/// Runs curl and returns its output, or `None` if curl is missing.
pub fn curl(args: &[&str]) -> Option<String> {
    let limit = PATIENCE.as_secs().to_string();
    let output = tool("curl")?.args(["--silent", "--show-error", "--max-time", &limit]).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {}: {said}", args.join(" "));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Makes a self-signed certificate for some names. Returns the paths of chain and key in the folder.
pub fn certificate(folder: &Path, file: &str, names: &[&str]) -> (PathBuf, PathBuf) {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let (chain, key) = (folder.join(format!("{file}.crt")), folder.join(format!("{file}.key")));
    fs::write(&chain, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (chain, key)
}
