//! A running subject: from its start until it answers, and to its end.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read},
    net::SocketAddr,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use kernel::netns::kill_with_spawning_thread;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::{Environment, Protocols, answer::answers};
use crate::{LabError, bed::SERVER};

/// A running subject; dropping it stops it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// The command as a shell line.
    command_line: String,
    work: TempDir,
}

/// Time limit for a server to be ready.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// Time limit for a server to end after SIGTERM.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

impl Running {
    /// Starts the command in the server's namespace and waits until it answers.
    pub(super) fn spawn(
        command: Command,
        command_line: String,
        work: TempDir,
        environment: &Environment,
        protocols: Protocols,
        promises_a_line: bool,
    ) -> Result<Self, LabError> {
        let inside = || environment.bed.server().enter().map_err(LabError::io("cannot enter a namespace"));
        let address = SocketAddr::from((SERVER, environment.port));
        let begin = |command: &mut Command| {
            let _inside = inside()?;
            Ok(command.spawn())
        };
        let ask = || {
            let _inside = inside()?;
            Ok(answers(address, protocols, environment.certificate))
        };
        Self::start(command, command_line, work, promises_a_line, address, &begin, &ask)
    }

    /// The same without a bed, on this machine's own network. `ask` checks whether it answers.
    pub(crate) fn spawn_here(
        command: Command,
        command_line: String,
        work: TempDir,
        promises_a_line: bool,
        address: SocketAddr,
        ask: &dyn Fn() -> io::Result<()>,
    ) -> Result<Self, LabError> {
        Self::start(
            command,
            command_line,
            work,
            promises_a_line,
            address,
            &|command| Ok(command.spawn()),
            &|| Ok(ask()),
        )
    }

    fn start(
        mut command: Command,
        command_line: String,
        work: TempDir,
        promises_a_line: bool,
        address: SocketAddr,
        begin: &dyn Fn(&mut Command) -> Result<io::Result<Child>, LabError>,
        ask: &dyn Fn() -> Result<io::Result<()>, LabError>,
    ) -> Result<Self, LabError> {
        // Append mode, as the server's own log may be the same file.
        let errors = fs::OpenOptions::new().create(true).append(true).open(work.path().join("stderr"));
        let errors = errors.map_err(LabError::io("cannot make a log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        // Ctrl-C is for this program, which stops the server after its cleanup. If this program is killed, so
        // is the server.
        command.process_group(0);
        kill_with_spawning_thread(&mut command);
        let child =
            begin(&mut command)?.map_err(|error| LabError::Subject(format!("cannot run `{command_line}`: {error}")))?;
        let mut running = Self { child, command_line, work };
        let deadline = Instant::now() + READY_WITHIN;
        running.read_output(promises_a_line, deadline)?;
        running.wait_for_answer(address, ask, deadline)?;
        Ok(running)
    }

    /// The command as a shell line.
    pub fn command_line(&self) -> &str {
        &self.command_line
    }

    /// Reads the server's standard output as long as it runs; waits for the first line if the server
    /// announces one.
    fn read_output(&mut self, promises_a_line: bool, deadline: Instant) -> Result<(), LabError> {
        let Some(stdout) = self.child.stdout.take() else { return Ok(()) };
        let (first_line, ready) = mpsc::channel();
        thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            // The line is not awaited, or the pipe is broken: either way there is no one to report to.
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

    /// Polls until it answers. Listening is not enough: nginx listens before its workers accept.
    fn wait_for_answer(
        &mut self,
        address: SocketAddr,
        ask: &dyn Fn() -> Result<io::Result<()>, LabError>,
        deadline: Instant,
    ) -> Result<(), LabError> {
        loop {
            let answered = ask()?;
            let Err(error) = answered else { return Ok(()) };
            if self.has_ended() || Instant::now() > deadline {
                return Err(self.not_ready(&format!("does not answer on {address} ({error})")));
            }
            // A foreign server gives no signal when it is ready.
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

    /// The end of the server's standard error.
    pub fn last_words(&self) -> String {
        let mut text = String::new();
        if let Ok(mut file) = fs::File::open(self.work.path().join("stderr")) {
            // Text that is not UTF-8 is omitted: it is a hint, not a result.
            let _ = file.read_to_string(&mut text);
        }
        let text = text.trim();
        let from = text.char_indices().rev().nth(2000).map_or(0, |(at, _)| at);
        if text.is_empty() { "nothing".to_owned() } else { text[from..].to_owned() }
    }

    /// Asks the server to end, and kills it if it does not. Returns its status if it ended by itself.
    pub fn stop(mut self) -> Option<ExitStatus> {
        self.terminate()
    }

    fn terminate(&mut self) -> Option<ExitStatus> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(status);
        }
        let group = Pid::from_child(&self.child);
        // The group may already be gone; then there is nothing to stop.
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
