//! Tests with real servers in Perl, which every Debian has; `perl-base` is enough.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    num::NonZeroU32,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::*;
use crate::{
    config::{Priority, ProgramClass, WorkersConfig},
    may::may,
};

/// Longer than any step takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers every connection with its id, its arguments, an environment variable and its priority. It ends on
/// `end`, and ignores SIGTERM after `stay`.
const SERVER: &str = r#"
use Socket;
$| = 1;
my ($where, @more) = @ARGV;
if ($where =~ m{/}) {
    socket(S, PF_UNIX, SOCK_STREAM, 0) or die $!;
    bind(S, sockaddr_un($where)) or die "bind $where: $!";
} else {
    socket(S, PF_INET, SOCK_STREAM, 0) or die $!;
    setsockopt(S, SOL_SOCKET, SO_REUSEADDR, 1);
    bind(S, sockaddr_in($where, inet_aton("127.0.0.1"))) or die "bind $where: $!";
}
listen(S, 16) or die $!;
print "listening\n";
open(STAT, "/proc/self/stat"); my @stat = split(/ /, <STAT>); close STAT;
while (1) {
    next unless accept(C, S);
    my $word = <C>;
    next unless defined $word;
    if ($word =~ /end/) { exit 3 }
    if ($word =~ /stay/) { $SIG{TERM} = "IGNORE" }
    print C "$$ @more $ENV{MODE} $stat[18] $stat[39] $stat[40]\n";
    close C;
}
"#;

struct Site {
    folder: tempfile::TempDir,
    configs: Vec<WorkersConfig>,
    classes: Vec<ProgramClass>,
}

impl Site {
    /// A site with the server above; `None` if there is no Perl.
    fn new(test: &str, command: &[&str]) -> Option<Self> {
        if !Path::new("/usr/bin/perl").exists() {
            assert!(std::env::var_os("CI").is_none(), "in CI {test} must run: it needs perl");
            eprintln!("SKIPPED: {test}: it needs perl");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("server.pl"), SERVER).unwrap();
        let words = command.iter().map(|word| (*word).to_owned());
        let workers = WorkersConfig {
            upstream: "app".to_owned(),
            command: ["perl".to_owned(), "server.pl".to_owned()].into_iter().chain(words).collect(),
            directory: Some(folder.path().to_owned()),
            environment: vec![("MODE".to_owned(), "test".to_owned())],
            processes: NonZeroU32::new(2).unwrap(),
            start_timeout: PATIENCE,
            stop_timeout: PATIENCE,
        };
        let class = |name: &str| ProgramClass { name: name.to_owned(), priority: Priority::Inherited };
        let classes = vec![class("gold"), class("tin")];
        Some(Self { folder, configs: vec![workers], classes })
    }

    fn sockets(&self) -> PathBuf {
        self.folder.path().join("sockets")
    }

    fn start(&self) -> Workers {
        let workers = Workers::start(&self.configs, &self.classes, &self.sockets()).unwrap();
        workers.wait_until_ready().unwrap();
        workers
    }

    fn config(&mut self) -> &mut WorkersConfig {
        &mut self.configs[0]
    }

    /// Addresses by class and process.
    fn addresses(&self, workers: &Workers) -> Vec<Vec<WorkerAddress>> {
        workers.addresses(&self.configs[0].upstream)
    }
}

fn ask(address: &WorkerAddress, word: &str) -> String {
    let mut answer = String::new();
    match address {
        WorkerAddress::Unix(path) => {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(format!("{word}\n").as_bytes()).unwrap();
            stream.read_to_string(&mut answer).unwrap();
        }
        WorkerAddress::Socket(address) => {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(format!("{word}\n").as_bytes()).unwrap();
            stream.read_to_string(&mut answer).unwrap();
        }
    }
    answer.trim().to_owned()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[test]
fn every_class_has_its_processes_and_they_end_with_us() {
    let Some(site) = Site::new("every_class_has_its_processes_and_they_end_with_us", &["{socket}", "{class}"]) else {
        return;
    };
    let workers = site.start();
    let mode = fs::metadata(site.sockets()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "nobody else connects");
    let stats = workers.stats();
    let seen: Vec<_> = stats.iter().map(|one| (one.class.as_str(), one.process, one.state, one.restarts)).collect();
    let expected = [("gold", 0), ("gold", 1), ("tin", 0), ("tin", 1)];
    assert_eq!(seen, expected.map(|(class, process)| (class, process, WorkerState::Ready, 0)));
    for (class, addresses) in ["gold", "tin"].iter().zip(site.addresses(&workers)) {
        assert_eq!(addresses.len(), 2);
        for (process, address) in addresses.iter().enumerate() {
            let pid =
                stats.iter().find(|one| one.class == *class && one.process == process as u32).unwrap().pid.unwrap();
            assert!(ask(address, "hello").starts_with(&format!("{pid} {class} test ")));
        }
    }
    // Dropping asks the processes to end; stopping waits for their ends.
    workers.stop();
    for one in &stats {
        assert!(!alive(one.pid.unwrap()));
    }
    assert_eq!(fs::read_dir(site.sockets()).unwrap().count(), 0, "no socket is left");

    let workers = site.start();
    let pids: Vec<_> = workers.stats().iter().map(|one| one.pid.unwrap()).collect();
    drop(workers);
    until("all end", || !pids.iter().any(|pid| alive(*pid)));
}

#[test]
fn ports_do_as_well() {
    let Some(site) = Site::new("ports_do_as_well", &["{port}"]) else { return };
    let workers = site.start();
    let addresses = site.addresses(&workers).concat();
    let distinct: std::collections::HashSet<_> = addresses.iter().map(|address| ask(address, "hello")).collect();
    assert_eq!(distinct.len(), 4, "every process has its own");
    workers.stop();
}

#[test]
fn who_ends_is_started_again_where_it_was() {
    let Some(mut site) = Site::new("who_ends_is_started_again_where_it_was", &["{socket}"]) else { return };
    site.config().processes = NonZeroU32::MIN;
    site.classes.truncate(1);
    let workers = site.start();
    let address = site.addresses(&workers).concat().remove(0);
    let first = workers.stats()[0].pid;
    for restarts in 1..3 {
        assert_eq!(ask(&address, "end"), "");
        until("it is there again", || {
            let now = &workers.stats()[0];
            now.restarts == restarts && now.state == WorkerState::Ready
        });
        assert!(!ask(&address, "hello").is_empty());
    }
    assert_ne!(workers.stats()[0].pid, first);
    workers.stop();
}

#[test]
fn who_will_not_end_is_killed() {
    let Some(mut site) = Site::new("who_will_not_end_is_killed", &["{socket}"]) else { return };
    site.config().stop_timeout = Duration::from_millis(50);
    let workers = site.start();
    for address in site.addresses(&workers).concat() {
        ask(&address, "stay");
    }
    let pids: Vec<_> = workers.stats().iter().map(|one| one.pid.unwrap()).collect();
    workers.stop();
    assert!(!pids.iter().any(|pid| alive(*pid)));
}

#[test]
fn who_never_listens_is_stopped_and_tried_again() {
    let Some(mut site) = Site::new("who_never_listens_is_stopped_and_tried_again", &["{socket}"]) else { return };
    site.classes.truncate(1);
    site.config().processes = NonZeroU32::MIN;
    site.config().command = ["sh", "-c", "exec sleep 1000", "{socket}"].map(str::to_owned).to_vec();
    site.config().start_timeout = Duration::from_millis(50);
    let workers = Workers::start(&site.configs, &site.classes, &site.sockets()).unwrap();
    let error = workers.wait_until_ready().unwrap_err().to_string();
    assert!(error.contains("sh for the class gold of the upstream app") && !error.contains("1000"), "{error}");
    until("it is tried again", || workers.stats()[0].restarts >= 2);
    assert!(workers.stats()[0].since.is_none());
    workers.stop();

    // A process that ends immediately.
    site.config().command = ["sh", "-c", "exit 1", "{socket}"].map(str::to_owned).to_vec();
    site.config().start_timeout = PATIENCE;
    let workers = Workers::start(&site.configs, &site.classes, &site.sockets()).unwrap();
    until("it is tried again", || workers.stats()[0].restarts >= 2);
    workers.stop();
}

#[test]
fn a_reload_leaves_alone_what_has_not_changed() {
    let Some(mut site) = Site::new("a_reload_leaves_alone_what_has_not_changed", &["{socket}", "{class}"]) else {
        return;
    };
    let before = site.start();
    let pids = |workers: &Workers| workers.stats().iter().map(|one| one.pid.unwrap()).collect::<Vec<_>>();
    let (old, old_addresses) = (pids(&before), site.addresses(&before));
    site.classes[1].name = "lead".to_owned();
    let after = before.reload(&site.configs, &site.classes).unwrap();
    after.wait_until_ready().unwrap();
    let (new, new_addresses) = (pids(&after), site.addresses(&after));
    assert_eq!((&old[..2], &old_addresses[0]), (&new[..2], &new_addresses[0]));
    assert!(ask(&new_addresses[1][0], "hello").contains("lead"));
    assert!(ask(&old_addresses[1][0], "hello").contains("tin"), "old ones serve until nobody needs them");
    drop(before);
    until("those replaced end", || !old[2..].iter().any(|pid| alive(*pid)));
    assert_eq!(pids(&after), new);

    site.config().command = vec!["/no/such/program".to_owned(), "{socket}".to_owned()];
    let error = after.reload(&site.configs, &site.classes).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("app") && error.contains("/no/such/program"), "{error}");
    assert_eq!(pids(&after), new, "nothing has changed");
    after.stop();
}

#[test]
fn a_class_that_goes_leaves_the_processes_of_others_alone() {
    let Some(mut site) = Site::new("a_class_that_goes_leaves_the_processes_of_others_alone", &["{socket}", "{class}"])
    else {
        return;
    };
    let before = site.start();
    let (old, old_addresses) = (before.stats(), site.addresses(&before));
    site.classes.remove(0);
    let after = before.reload(&site.configs, &site.classes).unwrap();
    assert_eq!(site.addresses(&after), old_addresses[1..]);
    let pids = |stats: &[WorkerStats]| stats.iter().map(|one| one.pid).collect::<Vec<_>>();
    assert_eq!(pids(&after.stats()), pids(&old[2..]));
    after.stop();
}

#[test]
fn who_is_new_and_never_ready_is_named_and_who_was_there_is_not_waited_for() {
    const TEST: &str = "who_is_new_and_never_ready_is_named_and_who_was_there_is_not_waited_for";
    let Some(mut site) = Site::new(TEST, &["{socket}"]) else { return };
    // These processes never listen, and have a long start time.
    site.config().command = ["sh", "-c", "exec sleep 1000", "{socket}"].map(str::to_owned).to_vec();
    let before = Workers::start(&site.configs, &site.classes, &site.sockets()).unwrap();
    let mut broken = site.configs[0].clone();
    broken.upstream = "broken".to_owned();
    broken.command = ["sh", "-c", "exit 1", "{socket}"].map(str::to_owned).to_vec();
    site.configs.push(broken);
    let after = before.reload(&site.configs, &site.classes).unwrap();
    let error = after.wait_until_ready().unwrap_err().to_string();
    assert!(error.contains("class gold of the upstream broken"), "{error}");
    site.configs.pop();
    before.reload(&site.configs, &site.classes).unwrap().wait_until_ready().unwrap();
    after.stop();
}

#[test]
fn processes_run_with_the_priority_of_their_class() {
    const TEST: &str = "processes_run_with_the_priority_of_their_class";
    let Some(mut site) = Site::new(TEST, &["{socket}", "{class}"]) else { return };
    site.classes[0].priority = Priority::RoundRobin(2);
    site.classes[1].priority = Priority::Nice(5);
    if !may(TEST, Priority::RoundRobin(2)) {
        return;
    }
    let workers = site.start();
    let addresses = site.addresses(&workers);
    // nice, rt_priority, policy
    let gold = ask(&addresses[0][1], "hello");
    assert!(gold.contains("gold test") && gold.ends_with(" 2 2"), "{gold}");
    assert!(ask(&addresses[1][0], "hello").ends_with("tin test 5 0 0"));
    workers.stop();
}

#[test]
fn what_the_operator_has_to_mend_is_said_at_the_start() {
    let Some(mut site) = Site::new("what_the_operator_has_to_mend_is_said_at_the_start", &["{socket}"]) else { return };
    let folder = site.sockets();
    let mut error = |command: &[&str], folder: &Path| {
        site.config().command = command.iter().map(|word| (*word).to_owned()).collect();
        Workers::start(&site.configs, &site.classes, folder).map(|_| ()).unwrap_err().to_string()
    };
    assert!(error(&["perl"], &folder).contains("{socket} or {port}"));
    assert!(error(&["perl", "{port}", "{socket}"], &folder).contains("both"));
    assert!(error(&["no-such-program", "{socket}"], &folder).contains("no program no-such-program in PATH"));
    assert!(error(&["./server.pl", "{socket}"], &folder).contains("not executable"));
    let long = folder.join("x".repeat(100));
    assert!(error(&["perl", "{socket}"], &long).contains("too long"));
    let link = folder.with_file_name("link");
    std::os::unix::fs::symlink("/tmp", &link).unwrap();
    assert!(error(&["perl", "{socket}"], &link).contains("not ours"));
}
