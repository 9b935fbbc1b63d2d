//! The shared cache on a disk that is full, and on one that does not answer: nothing wrong is ever served.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use super::*;

const BODY_BYTES: usize = 60 * 1024;

/// The body of a path.
fn body(path: &str) -> String {
    let mut body = path.repeat(BODY_BYTES / path.len() + 1);
    body.truncate(BODY_BYTES);
    body
}

/// The number in a path such as `/page-3/`, which says what the site works on it.
fn number(path: &str) -> usize {
    path.trim_start_matches("/page-").trim_end_matches('/').parse().unwrap()
}

/// A site whose bodies tell their path, and which works long on the first `dear` paths. Returns how many requests it
/// has had.
fn site(dear: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let counted = counted.clone();
            std::thread::spawn(move || {
                let mut path = String::new();
                for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
                    if let Some(rest) = line.strip_prefix("GET ") {
                        path = rest.split(' ').next().unwrap().to_owned();
                    }
                    if !line.is_empty() {
                        continue;
                    }
                    counted.fetch_add(1, SeqCst);
                    if number(&path) < dear {
                        std::thread::sleep(Duration::from_millis(300));
                    }
                    let head = format!(
                        "HTTP/1.1 200 OK\r\ncache-control: max-age=600\r\ncontent-length: {BODY_BYTES}\r\n\r\n"
                    );
                    if stream.write_all((head + &body(&path)).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, asked)
}

/// The configuration of a cache whose memory has room for eight of these bodies.
fn config(folder: &Path, site: SocketAddr, directory: &Path) -> PathBuf {
    let file = folder.join("serpent.toml");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nworkers = 1\n[uplink]\nrate = \"off\"\n\
         [shared-cache]\nmemory = \"500KiB\"\nmax-object = \"100KiB\"\ndirectory = {directory:?}\n\
         [[upstream]]\nname = \"app\"\nservers = [\"http://{site}\"]\n\
         [[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\ncache = true\n"
    );
    fs::write(&file, text).unwrap();
    file
}

/// Asks for a path, checks the answer, and returns what the cache says.
fn ask(serpent: &Serpent, path: &str) -> String {
    let mut stream = serpent.connect();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: site.example\r\nconnection: close\r\n\r\n").unwrap();
    let answer = all(stream);
    let (head, sent) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 ") && sent == body(path), "{path}: {head}, {} bytes", sent.len());
    let said = head.lines().find_map(|line| line.strip_prefix("cache-status: ")).unwrap();
    said.to_owned()
}

fn metric(admin: SocketAddr, name: &str) -> u64 {
    let said = metrics(admin);
    let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {said}")).parse().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_costs_hits_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mount = format!("mount -t tmpfs -o size=256k none {}", disk.display());
    let can_mount = Command::new("unshare").args(["-rm", "sh", "-c", &mount]).stderr(Stdio::null()).status();
    if !can_mount.is_ok_and(|status| status.success()) {
        eprintln!("left out: no file system can be mounted here");
        return;
    }
    let (site, asked) = site(0);
    let file = config(folder.path(), site, &disk);
    let mut command = Command::new("unshare");
    let run = format!("{mount} && exec {} serve --log info --config {}", env!("CARGO_BIN_EXE_serpent"), file.display());
    command.args(["-rm", "sh", "-c", &run]);
    let serpent = Serpent::start_command(command);
    let said = serpent.wait_for_stderr("metrics on http://");
    let admin = said.split("metrics on http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    let admin: SocketAddr = admin.parse().unwrap();
    let paths: Vec<_> = (0..30).map(|number| format!("/page-{number}/")).collect();
    for path in &paths {
        ask(&serpent, path);
    }
    serpent.wait_for_stderr("No space left");
    assert!(metric(admin, "serpent_shared_cache_disk_failures_total") > 0);
    // Responses that are in memory or got onto the disk are answered from there, again and again.
    let before = asked.load(SeqCst);
    let hits: usize =
        (0..3).flat_map(|_| &paths).map(|path| usize::from(ask(&serpent, path).starts_with("serpent; hit"))).sum();
    assert_eq!(asked.load(SeqCst) - before, 3 * paths.len() - hits);
    assert!(hits > 0 && hits < 3 * paths.len(), "{hits} hits");
}

#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_does_not_answer_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    // The memory keeps what the site worked on longest: six responses, whatever the machine does in between.
    let (site, asked) = site(6);
    let (serpent, admin) = start(&config(folder.path(), site, &disk));
    let paths: Vec<_> = (0..12).map(|number| format!("/page-{number}/")).collect();
    let files = || {
        let folders = fs::read_dir(&disk).unwrap().map(|it| it.unwrap().path()).filter(|path| path.is_dir());
        folders.flat_map(|folder| fs::read_dir(folder).unwrap().map(|it| it.unwrap().path())).collect::<Vec<_>>()
    };
    for (stored, path) in (1..).zip(&paths) {
        // Each is on the disk before it is pushed out of the memory. One that is worth least may go at once, and is
        // asked for again: seldom, because every use makes it worth more.
        let start = std::time::Instant::now();
        let is_on_disk = || metric(admin, "serpent_shared_cache_disk_bytes") >= stored * BODY_BYTES as u64;
        while !is_on_disk() {
            ask(&serpent, path);
            for _ in 0..100 {
                if is_on_disk() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(start.elapsed() < PATIENCE, "{path} is not on the disk");
        }
    }
    assert!(paths.iter().all(|path| ask(&serpent, path).starts_with("serpent; hit")), "read from memory and disk");
    // Opening a pipe that nothing writes to waits for ever, as a network disk does whose server is gone.
    for file in files() {
        fs::remove_file(&file).unwrap();
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    }
    let before = asked.load(SeqCst);
    let hits = paths.iter().rev().filter(|path| ask(&serpent, path).starts_with("serpent; hit")).count();
    assert_eq!(asked.load(SeqCst) - before, paths.len() - hits);
    assert!(hits >= 4 && hits < paths.len(), "{hits} hits, which are those in memory");
    // And the server stops.
    serpent.signal(Signal::TERM);
    let (status, said) = serpent.wait();
    assert!(status.success(), "{said}");
}
