//! Tests of sockets that outlive a process: from systemd, and from one process to the next (SIGUSR2).

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Command, Output},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
};

use command_fds::{CommandFdExt as _, FdMapping};
use rustix::process::{Pid, Signal, kill_process};

use super::support::{BIG, PATIENCE, Serpent, site};

/// A configuration file that serves `www` beside it.
fn configured(folder: &Path, listen: &str) -> String {
    let file = folder.join("serpent.toml");
    let www = folder.join("www");
    fs::write(&file, format!("listen = [{listen}]\n[uplink]\nrate = \"50mbit\"\n[[site]]\nroot = {www:?}\n")).unwrap();
    file.to_str().unwrap().to_owned()
}

/// An address that was free a moment ago. It is not one of those that the system gives for port 0 to other tests.
fn free_address() -> String {
    let socket = TcpListener::bind("127.83.17.5:0").unwrap();
    socket.local_addr().unwrap().to_string()
}

/// The name of the process that a process is a child of.
fn name_of_parent(process: Pid) -> String {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let parent = rest.split_whitespace().nth(1).unwrap();
    fs::read_to_string(format!("/proc/{parent}/comm")).unwrap().trim().to_owned()
}

/// The process that took over.
fn successor(said: &str) -> Pid {
    let id = said.rsplit_once("process ").unwrap().1.split_once(' ').unwrap().0;
    Pid::from_raw(id.parse().unwrap()).unwrap()
}

fn get(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /hello.txt HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_new_process_takes_over_and_no_client_notices() {
    let site = site();
    let (address, admin) = (free_address(), free_address());
    let config = configured(site.path(), &format!("{address:?}"));
    let args = ["serve", "--config", &config, "--admin", &admin, "--log", "info", "--workers", "2"];
    let serpent = Serpent::start(&args);

    let mut download = serpent.connect();
    download.write_all(b"GET /big.bin HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut whole = vec![0; 100_000];
    download.read_exact(&mut whole).unwrap();

    // Three processes, one after the other, while clients come all the time.
    let (ended, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let last = thread::scope(|scope| {
        let clients = [(); 3].map(|()| {
            scope.spawn(|| {
                while !ended.load(SeqCst) {
                    let answer = get(&address).expect("a connection that is answered");
                    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello, world\n"), "{answer}");
                    answers.fetch_add(1, SeqCst);
                }
            })
        });
        serpent.signal(Signal::USR2);
        let second = successor(&serpent.wait_for_stderr("has taken over"));
        // systemd gives its time to stop only to a main process that no other process has started.
        assert_ne!(name_of_parent(second), "serpent");
        kill_process(second, Signal::USR2).unwrap();
        let third = successor(&serpent.wait_for_stderr("has taken over"));
        let before = answers.load(SeqCst);
        while answers.load(SeqCst) < before + 20 && clients.iter().all(|client| !client.is_finished()) {
            thread::yield_now();
        }
        ended.store(true, SeqCst);
        third
    });
    let metrics = {
        let mut stream = TcpStream::connect(&admin).expect("the address of metrics is passed on, too");
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");

    download.read_to_end(&mut whole).unwrap();
    let head = whole.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    assert_eq!(whole.len() - head - 4, BIG, "the response of the first process came whole");

    kill_process(last, Signal::TERM).unwrap();
    // Standard output closes when the last of the processes has ended.
    let (status, said) = serpent.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(TcpStream::connect(&address).is_err(), "nobody listens");
}

#[test]
fn a_new_process_that_cannot_serve_leaves_the_old_one_alone() {
    let site = site();
    let config = configured(site.path(), &format!("{:?}", free_address()));
    let serpent = Serpent::start(&["serve", "--config", &config, "--log", "info"]);
    let good = fs::read(&config).unwrap();
    fs::write(&config, "listen = nonsense\n").unwrap();
    serpent.signal(Signal::USR2);
    let said = serpent.wait_for_stderr("not replaced, this process goes on");
    assert!(said.contains("ended before it served (exit status: 2)"), "{said}");
    assert!(said.contains("serpent.toml:1:10"), "the new process says what is wrong: {said}");
    serpent.assert_alive();
    fs::write(&config, good).unwrap();
    serpent.signal(Signal::HUP);
    serpent.wait_for_stderr("configuration reloaded");
    serpent.signal(Signal::TERM);
    let (status, said) = serpent.wait();
    assert_eq!(status.code(), Some(0), "{said}");
}

/// The server with a socket, as systemd starts it: the shell knows the process identifier, which stays at `exec`.
fn activated(socket: &TcpListener, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"", "sh", env!("CARGO_BIN_EXE_serpent")]).args(args);
    let parent_fd = socket.try_clone().unwrap().into();
    command.fd_mappings(vec![FdMapping { parent_fd, child_fd: 3 }]).unwrap();
    command
}

#[test]
fn a_socket_of_systemd_is_served_and_systemd_is_told() {
    let site = site();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let notices = site.path().join("notify");
    let systemd = UnixDatagram::bind(&notices).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let notice = || {
        let mut bytes = [0; 500];
        let read = systemd.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    };
    // A client that comes before the server.
    thread::scope(|scope| {
        let early = scope.spawn(|| get(&address).unwrap());
        let www = site.path().join("www");
        let mut command = activated(&socket, &["serve", www.to_str().unwrap(), "--log", "info"]);
        command.env("NOTIFY_SOCKET", &notices);
        let serpent = Serpent::start_command(command);
        assert_eq!(serpent.urls, [format!("http://{address}")], "neither a flag nor a file names an address");
        assert!(early.join().unwrap().ends_with("hello, world\n"));
        assert_eq!(notice().trim(), "READY=1");
        serpent.signal(Signal::HUP);
        let reloading = notice();
        assert!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="), "{reloading}");
        assert_eq!(notice().trim(), "READY=1");
        serpent.signal(Signal::USR2);
        let main = notice();
        let last = successor(&serpent.wait_for_stderr("has taken over"));
        assert_eq!(main.trim(), format!("MAINPID={}", last.as_raw_nonzero()));
        kill_process(last, Signal::TERM).unwrap();
        assert_eq!(notice().trim(), "STOPPING=1");
        assert_eq!(serpent.wait().0.code(), Some(0));
    });
}

#[test]
fn a_socket_that_nobody_would_serve_is_an_error() {
    let site = site();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let config = configured(site.path(), "\"127.0.0.1:1\"");
    let Output { status, stderr, .. } = activated(&socket, &["serve", "--config", &config]).output().unwrap();
    let said = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("a socket on {address} was passed")), "{said}");
    assert!(said.contains(&format!("listen = [\"{address}\"]")), "{said}");
}
