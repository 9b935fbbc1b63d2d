//! A new program in place of the running one, without a refused or reset connection (SIGUSR2).
//!
//! The running process starts the program anew, under the name and with the arguments that it was started with itself,
//! and passes its listening sockets on. Both accept connections from the same queues. When the new process serves, the old
//! one stops after its last response. If the new one fails, the old one goes on.
//!
//! systemd lets a main process end in its own time only if it is a child of systemd's. So the new process is started by one
//! in between ([`start_in_between`]), which ends when the new one serves: then that is a child of process 1.

use std::{
    env,
    io::{self, BufRead as _, BufReader, Read as _},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{self, Command},
    time::Duration,
};

use command_fds::{CommandFdExt as _, FdMapping};
use rustix::process::{Pid, Signal, kill_process};
use server::Handle;

use crate::inherited::{NAMES, PREDECESSOR, READY};

/// Set for a process that only starts the new one.
const IN_BETWEEN: &str = "SERPENT_IN_BETWEEN";

/// The first descriptor that is passed on (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;
/// How long a new process may take until it serves. It may have to start workers and read large files.
const PATIENCE: Duration = Duration::from_secs(120);

/// Starts the program anew, and returns when the new process serves. On an error there is no new process.
pub fn start_successor(handle: &Handle) -> Result<Pid, String> {
    let (stream, its) = UnixStream::pair().map_err(unready)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(unready)?;
    let mut command = command(handle, its).map_err(unready)?;
    let mut between = command.spawn().map_err(unready)?;
    // The command has the other end of the stream. It is closed, so that the end of the new process is seen.
    drop(command);
    let (mut stream, mut line, mut successor) = (BufReader::new(stream).take(64), String::new(), None);
    let mut said = [0; READY.len()];
    let told = stream.read_line(&mut line).and_then(|_| {
        successor = line.trim_end().parse().ok().and_then(Pid::from_raw);
        stream.read_exact(&mut said)
    });
    match (told, successor) {
        (Ok(()), Some(successor)) if said == READY => {
            // With it gone, the new process is a child of process 1.
            let _ = between.kill();
            let _ = between.wait();
            return Ok(successor);
        }
        (Err(error), successor) if error.kind() != io::ErrorKind::UnexpectedEof => {
            let _ = between.kill();
            let _ = between.wait();
            successor.map(|successor| kill_process(successor, Signal::KILL));
            return Err(format!("the new process did not serve within {} s, and was killed", PATIENCE.as_secs()));
        }
        _ => {}
    }
    // It ends with the status of the new process.
    let ended = between.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    Err(format!("the new process ended before it served ({ended}); its messages say why"))
}

/// Starts the new process and ends as it does, if this process is there only for that. Descriptors are passed on as
/// they are.
pub fn start_in_between() -> io::Result<()> {
    if env::var_os(IN_BETWEEN).is_none() {
        return Ok(());
    }
    let mut arguments = env::args_os();
    let program = arguments.next().ok_or_else(|| io::Error::other("the name of the program is not known"))?;
    let status = Command::new(program).args(arguments).env_remove(IN_BETWEEN).status()?;
    process::exit(status.code().unwrap_or(1))
}

fn command(handle: &Handle, stream: UnixStream) -> io::Result<Command> {
    let mut arguments = env::args_os();
    let program = arguments.next().ok_or_else(|| io::Error::other("the name of the program is not known"))?;
    let mut passed: Vec<OwnedFd> = handle.sockets()?.into_iter().map(OwnedFd::from).collect();
    let names = "serpent:".repeat(passed.len()) + PREDECESSOR;
    passed.push(stream.into());
    let mut command = Command::new(program);
    // A process knows its identifier only after it has started, so LISTEN_PID is not given.
    command
        .args(arguments)
        .env(IN_BETWEEN, "1")
        .env_remove("LISTEN_PID")
        .env("LISTEN_FDS", passed.len().to_string())
        .env(NAMES, names);
    let mappings = (FIRST..).zip(passed).map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd }).collect();
    command.fd_mappings(mappings).map_err(io::Error::other)?;
    Ok(command)
}

fn unready(error: io::Error) -> String {
    format!("the new process cannot be started: {error}")
}
