//! Tests of `serpent probe` as a program, with a working site and with addresses that are no site.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than any step takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// The shortest search: one request a second, the first of which does not count.
const SHORT: [&str; 6] = ["--ceiling", "1", "--least-requests", "1", "--seconds-per-rate", "0.1"];

/// A site that answers with a status and reports every request.
struct Site {
    address: SocketAddr,
    asked: Receiver<String>,
    connections: Arc<AtomicUsize>,
}

impl Site {
    fn start(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, asked) = channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, SeqCst);
                let sender = sender.clone();
                std::thread::spawn(move || answer(stream, status, &sender));
            }
        });
        Self { address, asked, connections }
    }

    fn next(&self) -> String {
        self.asked.recv_timeout(PATIENCE).expect("a request")
    }
}

fn answer(mut stream: TcpStream, status: &str, asked: &Sender<String>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match reader.read_line(&mut head) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        let host = head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        let _ = asked.send(format!("{} of {host}", head.lines().next().unwrap_or_default()));
        if write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 4\r\n\r\npage").is_err() {
            return;
        }
    }
}

/// A configuration file in a folder of its own.
struct Shop {
    folder: tempfile::TempDir,
    text: String,
}

impl Shop {
    fn at(server: &str) -> Self {
        let text = format!(
            "# The shop.\n[[upstream]]\nname = \"shop\"   # one\nservers = [\"{server}\"]\n\n[admission.resources]\n\
             disk = {{ probe = \"/disk.php?cost=12\" }} # slow\ncpu = 3\n\n[[site]]\n[[site.route]]\npath = \"/\"\n\
             upstream = \"shop\"\nresource = \"disk\"\n"
        );
        let shop = Self { folder: tempfile::tempdir().unwrap(), text };
        fs::write(shop.file(), &shop.text).unwrap();
        shop
    }

    fn of(site: &Site) -> Self {
        Self::at(&format!("http://{}", site.address))
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("shop.toml")
    }

    fn now(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_serpent"));
        command.arg("probe").arg(self.file()).args(args).current_dir(self.folder.path());
        command.env_remove("SERPENT_LOG").stdin(Stdio::null());
        command
    }

    fn probe(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Probes until the machine did not interfere. If the machine stalls for half a second, the site seems
    /// not to keep up, and the probe is repeated.
    fn probe_in_peace(&self, args: &[&str]) -> Output {
        for _ in 0..20 {
            let output = self.probe(args);
            if !stdout(&output).contains("does not keep up with one request a second") {
                return output;
            }
        }
        panic!("the site does not keep up at any time");
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_fits_80_columns(output: &Output) {
    let said = stdout(output) + &stderr(output);
    let wide = |line: &&str| line.chars().count() > 80 && line.trim().contains(' ');
    assert_eq!(said.lines().find(wide), None, "{said}");
}

fn fails(output: &Output, code: i32, part: &str) {
    assert_eq!(output.status.code(), Some(code), "{}\n{}", stdout(output), stderr(output));
    assert!(stderr(output).contains(part), "{part} is missing from: {}", stderr(output));
}

#[test]
fn what_was_found_is_written_and_nothing_else_changes() {
    let site = Site::start("200 OK");
    let shop = Shop::of(&site);
    let flags = [&SHORT[..], &["--write", "--out", "probed"]].concat();
    let output = shop.probe_in_peace(&flags);
    assert!(output.status.success(), "{}\n{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains("disk, doubling: 1/s: 1 of 1 answered"), "{}", stderr(&output));
    assert_fits_80_columns(&output);
    assert_eq!(site.next(), format!("GET /disk.php?cost=12 HTTP/1.1 of {}", site.address));
    let (before, after) = (shop.text.lines().collect::<Vec<_>>(), shop.now());
    let after: Vec<_> = after.lines().collect();
    assert_eq!(before.len(), after.len());
    let changed: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
    let [(_, line)] = &*changed else { panic!("{changed:?}") };
    let start = "disk = { probe = \"/disk.php?cost=12\", window = 1, bound = \"";
    assert!(line.starts_with(start) && line.ends_with("\" } # slow"), "{line}");
    assert!(stdout(&output).contains(&format!("+{line}")), "{}", stdout(&output));
    let names = |folder: &Path| {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    assert_eq!(names(shop.folder.path()), ["probed", "shop.toml"]);
    let out = names(&shop.folder.path().join("probed"));
    assert_eq!(out, ["disk-service-time.svg", "disk-throughput.svg", "rates.tsv"]);
    // The written file is a valid configuration.
    let check = Command::new(env!("CARGO_BIN_EXE_serpent")).arg("check").arg(shop.file()).output().unwrap();
    assert!(check.status.success(), "{}", stderr(&check));
}

#[test]
fn without_a_word_nothing_is_written() {
    let site = Site::start("200 OK");
    let shop = Shop::of(&site);
    let named = shop.text.replace("cost=12\"", "cost=12\", host = \"shop.example\"");
    fs::write(shop.file(), &named).unwrap();
    let said = [
        (&[][..], "With --write it is.", "shop.example"),
        (&["--dry-run", "--host", "other.example"], "It is not written.\n", "other.example"),
    ];
    for (flags, said, host) in said {
        let output = shop.probe_in_peace(&[&SHORT[..], flags].concat());
        assert!(output.status.success() && stdout(&output).contains(said), "{}", stdout(&output));
        assert!(stdout(&output).contains("window = 1"), "{}", stdout(&output));
        assert_eq!(shop.now(), named);
        let asked = std::iter::from_fn(|| site.asked.try_recv().ok()).collect::<Vec<_>>();
        assert!(asked.iter().all(|asked| asked.ends_with(&format!(" of {host}"))), "{asked:?}");
        assert!(!asked.is_empty());
    }
}

#[test]
fn what_cannot_be_probed_is_refused_before_anything_is_asked() {
    let site = Site::start("200 OK");
    let elsewhere = Shop::at("http://192.0.2.1:8081");
    fails(&elsewhere.probe(&SHORT), 2, "add --yes");
    let shop = Shop::of(&site);
    fails(&shop.probe(&["--resource", "cpu"]), 2, "the resource `cpu` has no page");
    fails(&shop.probe(&["--resource", "tape"]), 2, "there is no resource `tape`");
    fails(&shop.probe(&["--write", "--dry-run"]), 2, "cannot be used with");
    fails(&shop.probe(&["--ceiling", "0"]), 2, "--ceiling");
    fails(&shop.probe(&["--search", "guess"]), 2, "[possible values: doubling, steps, both]");
    fs::write(shop.file(), shop.text.replace("cpu = 3", "cpu = \"many\"")).unwrap();
    fails(&shop.probe(&SHORT), 2, "shop.toml:8");
    fs::remove_file(shop.file()).unwrap();
    fails(&shop.probe(&SHORT), 2, "there is no such configuration file");
    assert_eq!(site.connections.load(SeqCst), 0);
}

#[test]
fn a_site_that_is_down_or_broken_is_not_asked_twice() {
    let shop = Shop::at("unix:nobody-listens-here");
    fails(&shop.probe(&["--write"]), 1, "took no connection");
    let site = Site::start("503 Service Unavailable");
    let broken = Shop::of(&site);
    fails(&broken.probe(&["--write"]), 1, "answers 503");
    site.next();
    assert!(site.asked.try_recv().is_err());
    assert_eq!((shop.now(), broken.now()), (shop.text.clone(), broken.text.clone()));
}

#[test]
fn who_interrupts_it_is_obeyed() {
    let site = Site::start("200 OK");
    let shop = Shop::of(&site);
    let mut command = shop.command(&["--write", "--seconds-per-rate", "3600"]);
    let child: Child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The first request, and the first one of the search.
    site.next();
    site.next();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    fails(&output, 1, "interrupted");
    assert!(stdout(&output).contains("Nothing is written."), "{}", stdout(&output));
    assert_eq!(shop.now(), shop.text);
}

#[test]
fn it_says_how_long_it_takes_on_a_terminal_and_elsewhere() {
    let site = Site::start("200 OK");
    let shop = Shop::of(&site);
    let flags = ["--ceiling", "4", "--least-requests", "1", "--seconds-per-rate", "0.1", "--dry-run"];
    let said = stderr(&shop.probe_in_peace(&flags));
    let first = said.lines().find(|line| line.contains("1/s:")).unwrap_or_default();
    assert!(first.contains("; at most ") && first.ends_with(" left"), "{said}");
    assert!(!said.contains('\r') && !said.contains('\x1b'), "no bar: {said:?}");

    let line = format!("{} probe {} {}", env!("CARGO_BIN_EXE_serpent"), shop.file().display(), flags.join(" "));
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &line, "/dev/null"]).stdin(Stdio::null()).env("TERM", "xterm");
    let output = match script.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            assert!(std::env::var_os("CI").is_none(), "`script` is missing: install bsdutils");
            return eprintln!("SKIPPED: `script` is missing");
        }
        output => output.unwrap(),
    };
    let said = stdout(&output);
    // The bar stands in one line of the terminal, and goes at the end.
    assert!(said.contains('\r') && said.contains("disk, doubling: 1/s "), "{said:?}");
    assert!(said.contains(" of 2, at most ") && said.contains("s left"), "{said:?}");
}
