//! Tests of kernel mode: where it cannot work, the server refuses at once; where it can, the server sends
//! through the bands.

use std::{
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    process::{Command, Output},
};

use super::support::{BIG, serpent, site, tool};

/// A user that owns nothing.
const NOBODY: u32 = 65534;

#[test]
fn without_bands_it_says_how_to_get_them() {
    let site = site();
    let www = site.path().join("www");
    let arguments = ["--listen", "127.0.0.1:0", "--enforce", "kernel", "--device", "lo"];
    let output = serpent(&[&["serve", www.to_str().unwrap()], &arguments[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("serpent uplink install"), "{said}");
}

#[test]
fn without_privilege_it_says_which() {
    if !root() {
        return;
    }
    let site = site();
    std::fs::set_permissions(site.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // A copy, because other users may have no access to the build folder.
    let binary = site.path().join("serpent");
    std::fs::copy(env!("CARGO_BIN_EXE_serpent"), &binary).unwrap();
    let www = site.path().join("www");
    for arguments in [
        &["uplink", "install", "lo", "--rate", "10mbit"][..],
        &["serve", www.to_str().unwrap(), "--listen", "127.0.0.1:0", "--enforce", "kernel", "--device", "lo"],
    ] {
        let output = Command::new(&binary).args(arguments).uid(NOBODY).gid(NOBODY).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("CAP_NET_ADMIN") || said.contains("serpent uplink install"), "{said}");
    }
}

#[test]
fn responses_leave_by_the_bands_and_the_bands_go_without_a_trace() {
    if !root() || tool("ip").is_none() || tool("tc").is_none() {
        return;
    }
    let site = site();
    let www = site.path().join("www");
    let bed = Bed::new();
    let before = bed.server(&["tc", "qdisc", "show", "dev", "uplink"]);

    let binary = env!("CARGO_BIN_EXE_serpent");
    let said = bed.server(&[binary, "uplink", "install", "uplink", "--rate", "50mbit"]);
    assert!(said.contains("8 strict priority bands"), "{said}");
    let mut server = tool("ip").unwrap();
    server.args(["netns", "exec", &bed.server, binary, "serve", www.to_str().unwrap()]);
    server.args(["--listen", "10.0.0.1:80", "--enforce", "kernel"]);
    let mut server = Running::start(server);

    // A big and several small responses at once: all of them arrive whole.
    let small = "http://10.0.0.1/hello.txt";
    let Some(mut curl) = bed.client("curl") else { return };
    let sizes = curl
        .args(["--silent", "--show-error", "--parallel", "--parallel-immediate", "--max-time", "60"])
        .args(["--write-out", "%{http_code}:%{size_download} "])
        .args(["-o", "/dev/null", "-o", "/dev/null", "-o", "/dev/null", "http://10.0.0.1/big.bin", small, small])
        .output()
        .unwrap();
    let mut sizes: Vec<_> = text(&sizes).split_whitespace().map(str::to_owned).collect();
    sizes.sort();
    assert_eq!(sizes, ["200:13".to_owned(), "200:13".to_owned(), format!("200:{BIG}")]);

    let shown = bed.server(&[binary, "uplink", "show", "uplink", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let bands = shown[0]["bands"].as_array().unwrap();
    assert_eq!(bands.len(), 8);
    let bytes = |band: usize| bands[band]["bytes"].as_u64().unwrap();
    assert!((1..8).map(bytes).sum::<u64>() > BIG as u64, "responses left by the bands for responses: {shown}");
    assert!(bytes(0) < BIG as u64 / 10, "and not by the one for what must never wait: {shown}");
    assert!(bands.iter().all(|band| band["dropped_packets"] == 0), "{shown}");

    server.stop();
    bed.server(&[binary, "uplink", "remove", "uplink"]);
    assert_eq!(bed.server(&["tc", "qdisc", "show", "dev", "uplink"]), before, "as it was before");
}

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        assert!(std::env::var_os("CI").is_none(), "in CI the tests run as root");
        eprintln!("SKIPPED: needs root");
    }
    root
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Two network namespaces joined by a pair of devices. Dropping it removes them.
struct Bed {
    server: String,
    client: String,
}

impl Bed {
    fn new() -> Self {
        let unique = std::process::id();
        let bed = Self { server: format!("serpent-s{unique}"), client: format!("serpent-c{unique}") };
        let ip = |args: &[&str]| text(&tool("ip").unwrap().args(args).output().unwrap());
        let (server, client) = (bed.server.as_str(), bed.client.as_str());
        ip(&["netns", "add", server]);
        ip(&["netns", "add", client]);
        ip(&["-n", server, "link", "add", "uplink", "type", "veth", "peer", "name", "eth0", "netns", client]);
        for (netns, device, address) in [(server, "uplink", "10.0.0.1/24"), (client, "eth0", "10.0.0.2/24")] {
            ip(&["-n", netns, "address", "add", address, "dev", device]);
            ip(&["-n", netns, "link", "set", device, "up"]);
        }
        bed
    }

    /// Runs a program on the server's side.
    fn server(&self, args: &[&str]) -> String {
        text(&tool("ip").unwrap().args(["netns", "exec", &self.server]).args(args).output().unwrap())
    }

    /// Makes a command for a program on the client's side.
    fn client(&self, program: &str) -> Option<Command> {
        tool(program)?;
        let mut command = tool("ip")?;
        command.args(["netns", "exec", &self.client, program]);
        Some(command)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for netns in [&self.server, &self.client] {
            let _ = Command::new("ip").args(["netns", "delete", netns]).status();
        }
    }
}

/// A server that has become ready. `ip netns exec` turns into the server, so the child's id is the server's.
struct Running(std::process::Child);

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        assert!(line.starts_with("serpent: serving"), "{line}");
        Self(child)
    }

    fn stop(&mut self) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::TERM)
            .unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
