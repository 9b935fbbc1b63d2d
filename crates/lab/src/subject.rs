//! What is measured: Serpent, nginx, or any command; each a separate process in the server's namespace.

use std::{
    fmt, fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    str::FromStr,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use kernel::netns::kill_with_spawning_thread;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use workload::rate::Rate;

use crate::{
    LabError,
    bed::{Bed, SERVER},
};

/// A server to measure, as `--subjects` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Debian's nginx: `nginx`, `nginx,workers=auto`.
    Nginx {
        /// As `worker_processes` takes it.
        workers: String,
    },
    /// Serpent: `serpent:srpt`, `serpent:srpt,enforce=kernel,uplink=auto,workers=2`.
    Serpent {
        /// The order.
        order: String,
        /// `server`, `kernel` or `off`.
        enforce: String,
        /// `auto`, `off` or a rate; the bed's rate if not given.
        uplink: Option<String>,
        /// Number of workers, if given.
        workers: Option<String>,
    },
    /// Any command: `cmd:CADDY file-server --root {dir} --listen {listen}`, with `{dir}`, `{listen}`, `{ip}`, `{port}` and
    /// `{rate}` filled in.
    Command(String),
}

impl Subject {
    /// Reads a list: subjects are separated by commas, and so are their settings, which have a `=`.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, SubjectError> {
        let mut items: Vec<String> = Vec::new();
        for part in text.split(',') {
            let is_setting = part.split_once('=').is_some_and(|(key, _)| key.bytes().all(|b| b.is_ascii_lowercase()));
            match items.last_mut() {
                Some(last) if is_setting || last.starts_with("cmd:") => {
                    last.push(',');
                    last.push_str(part);
                }
                _ => items.push(part.to_owned()),
            }
        }
        items.iter().map(|item| item.parse()).collect()
    }

    /// Whether Serpent itself sets up the bottleneck's bands.
    pub fn shapes_the_uplink(&self) -> bool {
        matches!(self, Self::Serpent { enforce, .. } if enforce == "kernel")
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nginx { workers } if workers == "1" => f.write_str("nginx"),
            Self::Nginx { workers } => write!(f, "nginx,workers={workers}"),
            Self::Serpent { order, enforce, uplink, workers } => {
                write!(f, "serpent:{order},enforce={enforce}")?;
                for (key, value) in [("uplink", uplink), ("workers", workers)] {
                    if let Some(value) = value {
                        write!(f, ",{key}={value}")?;
                    }
                }
                Ok(())
            }
            Self::Command(line) => write!(f, "cmd:{line}"),
        }
    }
}

impl FromStr for Subject {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Self, SubjectError> {
        let error = || SubjectError(text.to_owned());
        if let Some(line) = text.strip_prefix("cmd:") {
            return if line.trim().is_empty() { Err(error()) } else { Ok(Self::Command(line.to_owned())) };
        }
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let settings = parts.map(|part| part.split_once('=')).collect::<Option<Vec<_>>>().ok_or_else(error)?;
        let mut subject = match name.split_once(':') {
            None if name == "nginx" => Self::Nginx { workers: "1".to_owned() },
            Some(("serpent", order)) if !order.is_empty() => {
                Self::Serpent { order: order.to_owned(), enforce: "server".to_owned(), uplink: None, workers: None }
            }
            _ => return Err(error()),
        };
        for (key, value) in settings {
            match (&mut subject, key) {
                (Self::Nginx { workers }, "workers") => *workers = value.to_owned(),
                (Self::Serpent { enforce, .. }, "enforce") => *enforce = value.to_owned(),
                (Self::Serpent { uplink, .. }, "uplink") => *uplink = Some(value.to_owned()),
                (Self::Serpent { workers, .. }, "workers") => *workers = Some(value.to_owned()),
                _ => return Err(error()),
            }
        }
        Ok(subject)
    }
}

/// A text that names no subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectError(String);

impl fmt::Display for SubjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a subject: use nginx[,workers=N], serpent:ORDER[,enforce=server|kernel|off][,uplink=RATE|auto|off][,workers=N], or cmd:COMMAND with {{dir}} and {{listen}}",
            self.0
        )
    }
}

impl std::error::Error for SubjectError {}

/// Where a subject is to be started.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The bed; the subject runs in its server's namespace.
    pub bed: &'a Bed,
    /// The directory to serve.
    pub root: &'a Path,
    /// The port to listen on.
    pub port: u16,
    /// The binary of Serpent.
    pub serpent: &'a Path,
}

/// A subject that runs; stopped when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// The command, as one would type it.
    command_line: String,
    work: TempDir,
}

/// Time that a server is given to be ready.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// Time that a server is given to end after SIGTERM.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

impl Subject {
    /// Puts the bottleneck on the bed: the plain one, or for Serpent's kernel mode the one that Serpent installs.
    pub fn prepare(&self, place: &Place) -> Result<(), LabError> {
        let Self::Serpent { uplink, .. } = self else { return place.bed.shape() };
        if !self.shapes_the_uplink() {
            return place.bed.shape();
        }
        let (_, device) = place.bed.server_device();
        let rate = match uplink {
            Some(text) => text.clone(),
            None => place.bed.config().rate.to_string(),
        };
        let mut install = Command::new(place.serpent);
        install.args(["uplink", "install", device, "--rate", &rate]);
        let shown = show(&install);
        let out = {
            let _inside = place.bed.server().enter().map_err(LabError::io("cannot enter a namespace"))?;
            install.output().map_err(LabError::io(format!("cannot run `{shown}`")))?
        };
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr);
            return Err(LabError::Subject(format!("`{shown}` failed: {}", said.trim())));
        }
        Ok(())
    }

    /// Starts the server and waits until it answers.
    pub fn start(&self, place: &Place) -> Result<Running, LabError> {
        let work = tempfile::tempdir().map_err(LabError::io("cannot make a directory for the server's own files"))?;
        let errors = fs::File::create(work.path().join("stderr")).map_err(LabError::io("cannot make a log"))?;
        let mut command = self.command(place, work.path())?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        // Ctrl-C is for us: we stop the server when we have cleaned up. And if we are killed, so is it.
        command.process_group(0);
        kill_with_spawning_thread(&mut command);
        let command_line = show(&command);
        let child = {
            let _inside = place.bed.server().enter().map_err(LabError::io("cannot enter a namespace"))?;
            command.spawn().map_err(|error| LabError::Subject(format!("cannot run `{command_line}`: {error}")))?
        };
        let mut running = Running { child, command_line, work };
        let deadline = Instant::now() + READY_WITHIN;
        running.read_output(matches!(self, Self::Serpent { .. }), deadline)?;
        running.wait_for_answer(place, deadline)?;
        Ok(running)
    }

    /// What the program says of its version. `None` if it does not say.
    pub fn version(&self, serpent: &Path) -> Option<String> {
        let (program, flag) = match self {
            Self::Nginx { .. } => (Path::new("nginx"), "-v"),
            Self::Serpent { .. } => (serpent, "--version"),
            Self::Command(_) => return None,
        };
        let out = Command::new(program).arg(flag).output().ok()?;
        let text = String::from_utf8_lossy(if out.stdout.is_empty() { &out.stderr } else { &out.stdout }).into_owned();
        Some(text.lines().next()?.trim().to_owned())
    }

    fn command(&self, place: &Place, work: &Path) -> Result<Command, LabError> {
        let listen = SocketAddr::from((SERVER, place.port)).to_string();
        let rate = place.bed.config().rate;
        match self {
            Self::Nginx { workers } => {
                let file = work.join("nginx.conf");
                fs::write(&file, nginx_config(&listen, place.root, work, workers))
                    .map_err(LabError::io("cannot write nginx's configuration"))?;
                let mut command = Command::new("nginx");
                command.arg("-e").arg("stderr").arg("-p").arg(work).arg("-c").arg(file);
                Ok(command)
            }
            Self::Serpent { order, enforce, uplink, workers } => {
                let uplink = uplink.clone().unwrap_or_else(|| rate.to_string());
                let mut command = Command::new(place.serpent);
                command.arg("serve").arg(place.root).args(["--listen", &listen, "--uplink", &uplink]);
                command.args(["--order", order, "--enforce", enforce]);
                if let Some(workers) = workers {
                    command.args(["--workers", workers]);
                }
                Ok(command)
            }
            Self::Command(line) => {
                let line = fill_in(line, place.root, place.port, rate);
                let mut command = Command::new("/bin/sh");
                command.arg("-c").arg(format!("exec {line}"));
                Ok(command)
            }
        }
    }
}

/// Whether somebody speaks HTTP there.
fn answers(address: SocketAddr) -> std::io::Result<()> {
    let mut connection = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    connection.set_read_timeout(Some(Duration::from_secs(1)))?;
    let file = crate::docroot::name(0);
    write!(connection, "GET /{file} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut start = [0; 7];
    connection.read_exact(&mut start)?;
    if &start == b"HTTP/1." { Ok(()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
}

fn fill_in(line: &str, root: &Path, port: u16, rate: Rate) -> String {
    line.replace("{dir}", &root.display().to_string())
        .replace("{listen}", &format!("{SERVER}:{port}"))
        .replace("{ip}", &SERVER.to_string())
        .replace("{port}", &port.to_string())
        .replace("{rate}", &rate.to_string())
}

/// FAIR as people run it: Debian's defaults where they matter to the order of bytes (sendfile, no tcp_nopush, keep-alive), no
/// log, and room for an overload's connections, so that what is measured is the order and not a limit.
fn nginx_config(listen: &str, root: &Path, work: &Path, workers: &str) -> String {
    let (root, work) = (root.display(), work.display());
    format!(
        "daemon off;
worker_processes {workers};
worker_rlimit_nofile 262144;
pid {work}/nginx.pid;
events {{ worker_connections 65536; }}
http {{
    access_log off;
    default_type application/octet-stream;
    sendfile on;
    keepalive_timeout 65;
    open_file_cache max=10000 inactive=60s;
    open_file_cache_valid 60s;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    server {{
        listen {listen} backlog=65535;
        root {root};
    }}
}}
"
    )
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        if word.contains(char::is_whitespace) { format!("'{word}'") } else { word.into_owned() }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

impl Running {
    /// The command, as one would type it.
    pub fn command_line(&self) -> &str {
        &self.command_line
    }

    /// Drains the server's standard output for as long as it runs; waits for the first line if it promises one.
    fn read_output(&mut self, promises_a_line: bool, deadline: Instant) -> Result<(), LabError> {
        let Some(stdout) = self.child.stdout.take() else { return Ok(()) };
        let (first_line, ready) = mpsc::channel();
        thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            // Nobody waits for the line, or the pipe is broken: both mean that there is nothing left to tell.
            if stdout.read_line(&mut line).is_ok_and(|n| n > 0) {
                let _ = first_line.send(line);
            }
            drop(first_line);
            let _ = std::io::copy(&mut stdout, &mut std::io::sink());
        });
        if promises_a_line && ready.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_err() {
            return Err(self.not_ready("did not print its line of readiness"));
        }
        Ok(())
    }

    /// Asks until it answers. That it listens is not enough: nginx does so before its workers are there to accept.
    fn wait_for_answer(&mut self, place: &Place, deadline: Instant) -> Result<(), LabError> {
        let address = SocketAddr::from((SERVER, place.port));
        loop {
            let answered = {
                let _inside = place.bed.server().enter().map_err(LabError::io("cannot enter a namespace"))?;
                answers(address)
            };
            if answered.is_ok() {
                return Ok(());
            }
            if self.has_ended() || Instant::now() > deadline {
                return Err(self.not_ready(&format!("does not answer on {address}")));
            }
            // Nothing tells when a foreign server is ready.
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the process has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn not_ready(&mut self, what: &str) -> LabError {
        LabError::Subject(format!("`{}` {what}; it said: {}", self.command_line, self.last_words()))
    }

    /// The end of what the server wrote to its standard error.
    pub fn last_words(&self) -> String {
        let mut text = String::new();
        if let Ok(mut file) = fs::File::open(self.work.path().join("stderr")) {
            // What is not UTF-8 is not shown: it is a hint, not a result.
            let _ = file.read_to_string(&mut text);
        }
        let text = text.trim();
        let from = text.char_indices().rev().nth(2000).map_or(0, |(at, _)| at);
        if text.is_empty() { "nothing".to_owned() } else { text[from..].to_owned() }
    }

    /// Asks the server to end, and makes it if it does not. Gives its status if it ended by itself.
    pub fn stop(mut self) -> Option<ExitStatus> {
        self.terminate()
    }

    fn terminate(&mut self) -> Option<ExitStatus> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(status);
        }
        let group = Pid::from_child(&self.child);
        // The group may be gone by now; then there is nothing to stop.
        let _ = kill_process_group(group, Signal::TERM);
        let deadline = Instant::now() + ENDED_WITHIN;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        None
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.terminate();
    }
}

/// The binary to measure: as given, or the one that runs this.
pub fn serpent_binary(given: Option<&Path>) -> Result<PathBuf, LabError> {
    match given {
        Some(path) => fs::canonicalize(path).map_err(LabError::io(format!("cannot find {}", path.display()))),
        None => std::env::current_exe().map_err(LabError::io("cannot find the running program")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_people_write_it() {
        let list =
            Subject::parse_list("nginx,serpent:srpt,enforce=kernel,uplink=9.7mbit,nginx,workers=auto,serpent:fair")
                .unwrap();
        let shown: Vec<String> = list.iter().map(Subject::to_string).collect();
        assert_eq!(
            shown,
            [
                "nginx",
                "serpent:srpt,enforce=kernel,uplink=9.7mbit",
                "nginx,workers=auto",
                "serpent:fair,enforce=server"
            ]
        );
        assert!(list[1].shapes_the_uplink() && !list[3].shapes_the_uplink());
        for (text, subject) in shown.iter().zip(&list) {
            assert_eq!(text.parse::<Subject>().as_ref(), Ok(subject), "what is printed can be typed again");
        }
    }

    #[test]
    fn a_command_keeps_its_commas() {
        let list = Subject::parse_list("nginx,cmd:run --a=1,b {dir} {listen}").unwrap();
        assert_eq!(list[1], Subject::Command("run --a=1,b {dir} {listen}".to_owned()));
        let filled = fill_in("x {dir} {listen} {ip} {port} {rate}", Path::new("/d"), 80, "10mbit".parse().unwrap());
        assert_eq!(filled, "x /d 10.77.0.1:80 10.77.0.1 80 10mbit");
    }

    #[test]
    fn what_is_no_subject_is_refused() {
        for text in
            ["", "apache", "serpent", "serpent:", "nginx,uplink=auto", "serpent:srpt,color=red", "cmd:", "workers=1"]
        {
            assert!(Subject::parse_list(text).is_err(), "{text}");
        }
    }
}
