//! Tests of kernel mode in network namespaces: the server tells the classifier of `serpent attach` what is left of each
//! response, whatever the protocol; where it cannot, it says at once what is missing.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
};

use tempfile::TempDir;

use super::support::{certificate, serpent, site, tool};

/// A user that owns nothing.
const NOBODY: &str = "65534";
/// A size whose responses begin in the fourth rank.
const LARGE: usize = 300_000;
/// With less left it has the third rank.
const LAST_CUTOFF: usize = 100_000;
/// With less left it has the second rank.
const SECOND_CUTOFF: usize = 10_000;
/// With less left it has the first rank.
const FIRST_CUTOFF: usize = 1_000;
/// Most bytes that go before a small response on the connection of a large one, and with it. They are the credit of a
/// connection (16 KiB), the chunk that exceeds it, and the write in which the small response ends. If the machine is
/// busy, the bytes in the framing's buffer and the frame behind them are added.
const FRAMED: usize = (16 + 16 + 16 + 16 + 16) << 10;
/// One of the first rank.
const SMALL: usize = 300;

#[test]
fn without_an_attached_device_it_says_how_to_get_one() {
    let site = site();
    let www = site.path().join("www");
    let arguments = ["--listen", "127.0.0.1:0", "--enforce", "kernel", "--device", "lo"];
    let output = serpent(&[&["serve", www.to_str().unwrap()], &arguments[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("lo is not attached") && said.contains("serpent attach lo --rate"), "{said}");
}

#[test]
fn packets_have_the_rank_of_what_is_left_in_every_protocol() {
    let Some(bed) = Bed::new() else { return };
    bed.attach(&[]);
    let _server = bed.serve(&[]);
    for (program, arguments, origin) in [
        ("curl", &["--http1.1"][..], "http://10.0.0.1"),
        // Both requests at once.
        ("nghttp", &["--null-out"], "http://10.0.0.1"),
        ("nghttp", &["--null-out"], "https://10.0.0.1"),
        ("curl", &["--http1.1", "--insecure"], "https://10.0.0.1"),
        ("curl", &["--http2", "--insecure"], "https://10.0.0.1"),
    ] {
        // A request alone, and two on one connection: the second one is not ranked as the first one.
        for sizes in [&[LARGE][..], &[LARGE, SMALL], &[SMALL, LARGE]] {
            let before = bed.shown();
            let urls: Vec<String> = sizes.iter().map(|size| format!("{origin}/{size}")).collect();
            match program {
                "curl" => {
                    let to_nothing = urls.iter().flat_map(|url| ["-o", "/dev/null", url]);
                    bed.curl(&arguments.iter().copied().chain(to_nothing).collect::<Vec<_>>());
                }
                _ => drop(text(&bed.on_client(program).args(arguments).args(&urls).output().unwrap())),
            }
            let after = bed.shown();
            let grown = |rank: usize| bytes(&after, rank) - bytes(&before, rank);
            let ranks: Vec<u64> = (1..=5).map(grown).collect();
            let what = format!("{program} {arguments:?} {origin} {sizes:?}: bytes by rank {ranks:?}");
            // No rank is better than that of the packets that wait, so a large response stays in its rank as a rule. If none
            // waits, its last bytes have the first rank.
            assert!((2..=4).map(grown).sum::<u64>() >= (LARGE - FIRST_CUTOFF) as u64, "{what}");
            // While there is a small response on the same connection, its rank holds. That counts what goes before it, which
            // is what the framing has of the large one. If no packet waits, so little has the third rank already.
            let mixed = program == "nghttp" && sizes.len() > 1;
            let least = if mixed { LARGE - LAST_CUTOFF - FRAMED } else { LARGE / 2 };
            assert!(grown(4) >= least as u64, "it begins in its rank: {what}");
            assert_eq!(grown(5), 0, "{what}");
            // Beside it: what belongs to the handshake, and the end of a response. The small one ends with what goes before it.
            let ends = if mixed { 2 } else { 1 };
            assert!(grown(1) < 8_000 && grown(2) < ends * SECOND_CUTOFF as u64 + 2_000, "{what}");
            let responses = |shown: &serde_json::Value| shown["responses_with_length"].as_u64().unwrap();
            let told = responses(&after) - responses(&before);
            // Of responses in one packet only one is counted.
            let least = if program == "nghttp" { 1 } else { sizes.len() as u64 };
            assert!((least..=sizes.len() as u64).contains(&told), "{told} responses, {what}");
        }
    }
}

#[test]
fn las_ranks_by_what_was_sent_though_the_length_is_known() {
    let Some(bed) = Bed::new() else { return };
    bed.attach(&[]);
    let _server = bed.serve(&["--order", "las"]);
    bed.curl(&["-o", "/dev/null", &format!("http://10.0.0.1/{LARGE}")]);
    let shown = bed.shown();
    let ranks: Vec<u64> = (1..=4).map(|rank| bytes(&shown, rank)).collect();
    assert!(ranks[0] > 0 && ranks[0] < 10_000 && ranks[1] > 0 && ranks[1] < 30_000, "{ranks:?}");
    assert!(ranks[2] > 80_000 && ranks[3] > 150_000, "{ranks:?}");
    assert_eq!(
        (shown["responses_with_length"].as_u64(), shown["responses_without_length"].as_u64()),
        (Some(0), Some(1))
    );
}

#[test]
fn classes_are_in_strict_order() {
    let Some(bed) = Bed::new() else { return };
    bed.attach(&[]);
    let file = bed.folder.path().join("classes.toml");
    let text = "[uplink]\nshare = \"strict\"\n[[site]]\nroot = \"www\"\nhttps-redirect = false\n[[class]]\nname = \"first\"\n[[class]]\nname = \
                \"last\"\n[[rule]]\nclass = \"first\"\npath = \"/300\"\n";
    fs::write(&file, text).unwrap();
    let server = bed.serve_with(&["--config", file.to_str().unwrap()]);
    bed.curl(&["-o", "/dev/null", "http://10.0.0.1/300"]);
    bed.curl(&["-o", "/dev/null", "http://10.0.0.1/2000"]);
    let shown = bed.shown();
    let of = |ranks: std::ops::RangeInclusive<usize>| ranks.map(|rank| bytes(&shown, rank)).sum::<u64>();
    assert!((300..1_000).contains(&of(1..=11)), "{shown}");
    assert!((2_000..3_000).contains(&of(12..=21)), "{shown}");
    drop(server);
    fs::write(&file, text.replace("strict", "weighted")).unwrap();
    let said = bed.refused(&["serve", "--config", file.to_str().unwrap(), "--enforce", "kernel"]);
    assert!(said.contains("keep a strict order of classes"), "{said}");
}

#[test]
fn a_server_without_privileges_needs_the_file_of_its_user() {
    let Some(bed) = Bed::new() else { return };
    let serve = ["serve", "www", "--listen", "http://10.0.0.1:80", "--enforce", "kernel"];
    assert!(bed.refused_to_nobody(&serve).contains("no device is attached"));
    bed.attach(&[]);
    let said = bed.refused_to_nobody(&serve);
    assert!(said.contains("uplink is attached, but not for the user") && said.contains("--server-user"), "{said}");
    bed.attach(&["--server-user", "1"]);
    assert!(bed.refused_to_nobody(&serve).contains("attached for another user"));
    let said = bed.refused(&["attach", "uplink", "--rate", "1mbit", "--server-user", "no-such-user"]);
    assert!(said.contains("there is no user"), "{said}");

    bed.attach(&["--server-user", NOBODY]);
    let start = || Running::start(bed.nobody(&[&serve[..], &bed.certificate()].concat()));
    for _ in 0..2 {
        let mut server = start();
        let before = bed.shown();
        bed.curl(&["--insecure", "-o", "/dev/null", &format!("https://10.0.0.1/{LARGE}")]);
        assert!(bytes(&bed.shown(), 4) - bytes(&before, 4) > LARGE as u64 / 2, "it is told of the length");
        server.stop();
    }
    // Attached again without the option, the file stays: it is of the same classifier.
    bed.attach(&[]);
    drop(start());
    bed.serpent(&["detach", "uplink"]);
    assert!(bed.refused_to_nobody(&serve).contains("no device is attached"));
    bed.attach(&[]);
    assert!(bed.refused_to_nobody(&serve).contains("not for the user"), "the file goes at detach");
}

#[test]
fn a_reload_finds_a_device_that_was_attached_anew() {
    let Some(bed) = Bed::new() else { return };
    bed.attach(&[]);
    let file = bed.folder.path().join("serpent.toml");
    fs::write(&file, "[[site]]\nroot = \"www\"\n").unwrap();
    let server = bed.serve_with(&["--config", file.to_str().unwrap()]);
    bed.serpent(&["detach", "uplink"]);
    bed.attach(&[]);
    let large = format!("https://10.0.0.1/{LARGE}");
    let lengths = || bed.shown()["responses_with_length"].as_u64().unwrap();
    bed.curl(&["--insecure", "-o", "/dev/null", &large]);
    assert_eq!(lengths(), 0, "the new classifier hears nothing yet");
    let _server = server.reload();
    bed.curl(&["--insecure", "-o", "/dev/null", &large]);
    assert_eq!(lengths(), 1);
}

/// Bytes of responses that had a rank.
fn bytes(shown: &serde_json::Value, rank: usize) -> u64 {
    shown["ranks"][rank - 1]["bytes"].as_u64().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Two network namespaces joined by a pair of devices, a site, and a copy of the binary that any user may run. Dropping
/// it removes them.
struct Bed {
    server: String,
    client: String,
    folder: TempDir,
    binary: PathBuf,
}

impl Bed {
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() || !Path::new("/sys/kernel/btf/vmlinux").exists() {
            assert!(std::env::var_os("CI").is_none(), "in CI the tests run as root, on a kernel with BTF");
            eprintln!("SKIPPED: needs root, and a kernel with BTF");
            return None;
        }
        for program in ["ip", "tc", "nsenter", "setpriv", "curl", "nghttp"] {
            tool(program)?;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join("www")).unwrap();
        for size in [SMALL, 2_000, LARGE] {
            fs::write(folder.path().join("www").join(size.to_string()), vec![b'.'; size]).unwrap();
        }
        // A copy, because other users may have no access to the build folder.
        let binary = folder.path().join("serpent");
        fs::copy(env!("CARGO_BIN_EXE_serpent"), &binary).unwrap();
        let unique = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let bed = Self { server: format!("serpent-s{unique}"), client: format!("serpent-c{unique}"), folder, binary };
        let (_, key) = certificate(bed.folder.path(), "bed", &["10.0.0.1"]);
        fs::set_permissions(key, fs::Permissions::from_mode(0o644)).unwrap();
        let ip = |args: &[&str]| text(&tool("ip").unwrap().args(args).output().unwrap());
        let (server, client) = (bed.server.as_str(), bed.client.as_str());
        ip(&["netns", "add", server]);
        ip(&["netns", "add", client]);
        ip(&["-n", server, "link", "add", "uplink", "type", "veth", "peer", "name", "eth0", "netns", client]);
        for (netns, device, address) in [(server, "uplink", "10.0.0.1/24"), (client, "eth0", "10.0.0.2/24")] {
            ip(&["-n", netns, "address", "add", address, "dev", device]);
            ip(&["-n", netns, "link", "set", device, "up"]);
        }
        Some(bed)
    }

    /// Attaches the device with few cutoffs.
    fn attach(&self, more: &[&str]) {
        let cutoffs = format!("{FIRST_CUTOFF},{SECOND_CUTOFF},{LAST_CUTOFF},1000000");
        let arguments = ["attach", "uplink", "--rate", "200mbit", "--cutoffs", &cutoffs];
        self.serpent(&[&arguments[..], more].concat());
    }

    fn shown(&self) -> serde_json::Value {
        serde_json::from_str(&self.serpent(&["attach", "uplink", "--show", "--json"])).unwrap()
    }

    /// A server of the folder `www`, with and without TLS.
    fn serve(&self, more: &[&str]) -> Running {
        // Both kinds of clients are answered here.
        let file = self.folder.path().join("both.toml");
        fs::write(&file, "[[site]]\nroot = \"www\"\nhttps-redirect = false\n").unwrap();
        self.serve_with(&[&["--config", file.to_str().unwrap()], more].concat())
    }

    fn serve_with(&self, more: &[&str]) -> Running {
        let mut command = self.on_server(&self.binary);
        command.args(["serve", "--listen", "http://10.0.0.1:80", "--enforce", "kernel"]).args(self.certificate());
        Running::start({
            command.args(more);
            command
        })
    }

    fn certificate(&self) -> [&str; 6] {
        ["--listen", "https://10.0.0.1:443", "--tls-cert", "bed.crt", "--tls-key", "bed.key"]
    }

    /// Runs `serpent` on the server's side.
    fn serpent(&self, arguments: &[&str]) -> String {
        text(&self.on_server(&self.binary).args(arguments).output().unwrap())
    }

    fn refused(&self, arguments: &[&str]) -> String {
        said(self.on_server(&self.binary).args(arguments))
    }

    fn refused_to_nobody(&self, arguments: &[&str]) -> String {
        said(&mut self.nobody(arguments))
    }

    /// `serpent` on the server's side, without any privilege but to listen on low ports.
    fn nobody(&self, arguments: &[&str]) -> Command {
        let mut command = self.on_server(Path::new("setpriv"));
        let low_ports = ["--inh-caps=+net_bind_service", "--ambient-caps=+net_bind_service"];
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]).args(low_ports);
        command.arg(&self.binary).args(arguments);
        command
    }

    /// A program in the server's network namespace. Its mounts are those of all others.
    fn on_server(&self, program: &Path) -> Command {
        inside(&self.server, program, self.folder.path())
    }

    fn on_client(&self, program: &str) -> Command {
        inside(&self.client, Path::new(program), self.folder.path())
    }

    /// Requests on the client's side, which must succeed.
    fn curl(&self, arguments: &[&str]) {
        let mut command = inside(&self.client, Path::new("curl"), self.folder.path());
        text(
            &command.args(["--silent", "--show-error", "--fail", "--max-time", "60"]).args(arguments).output().unwrap(),
        );
    }
}

fn inside(namespace: &str, program: &Path, folder: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{namespace}")).arg(program).current_dir(folder);
    command
}

/// The message of a command that fails.
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "it is not refused: {said}");
    said
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.on_server(&self.binary).args(["detach", "uplink"]).output();
        for netns in [&self.server, &self.client] {
            let _ = Command::new("ip").args(["netns", "delete", netns]).status();
        }
    }
}

/// A server that has become ready. The programs before it turn into it, so the child's id is the server's.
struct Running {
    child: std::process::Child,
    log: std::io::BufReader<std::process::ChildStderr>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        command.env("SERPENT_LOG", "info").stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        let mut log = std::io::BufReader::new(child.stderr.take().unwrap());
        if !line.starts_with("serpent: serving") {
            std::io::Read::read_to_string(&mut log, &mut line).unwrap();
            panic!("{line}");
        }
        Self { child, log }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Returns when the configuration was read again.
    fn reload(mut self) -> Self {
        self.signal(rustix::process::Signal::HUP);
        let mut line = String::new();
        while !line.contains("reload") {
            line.clear();
            assert!(std::io::BufRead::read_line(&mut self.log, &mut line).unwrap() > 0, "the server has ended");
        }
        self
    }

    fn stop(&mut self) {
        self.signal(rustix::process::Signal::TERM);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
