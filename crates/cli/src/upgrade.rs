//! A new program in place of the running one, without a refused or reset connection (SIGUSR2).
//!
//! The running process starts the program anew, under the name and with the arguments that it was started with itself,
//! and passes its listening sockets on. Both accept connections from the same queues. When the new process serves, the old
//! one stops after its last response. If the new one fails, the old one goes on.

use std::{
    env,
    io::{self, Read as _},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command},
    time::Duration,
};

use command_fds::{CommandFdExt as _, FdMapping};
use server::Handle;

use crate::inherited::{NAMES, PREDECESSOR, READY};

/// The first descriptor that is passed on (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;
/// How long a new process may take until it serves. It may have to start workers and read large files.
const PATIENCE: Duration = Duration::from_secs(120);

/// Starts the program anew, and returns when the new process serves. On an error there is no new process.
pub fn start_successor(handle: &Handle) -> Result<Child, String> {
    let (mut stream, its) = UnixStream::pair().map_err(unready)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(unready)?;
    let mut command = command(handle, its).map_err(unready)?;
    let mut child = command.spawn().map_err(unready)?;
    // The command has the other end of the stream. It is closed, so that the end of the new process is seen.
    drop(command);
    let mut said = [0; READY.len()];
    match stream.read_exact(&mut said) {
        Ok(()) if said == READY => return Ok(child),
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        Err(_) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("the new process did not serve within {} s, and was killed", PATIENCE.as_secs()));
        }
    }
    let ended = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    Err(format!("the new process ended before it served ({ended}); its messages say why"))
}

fn command(handle: &Handle, stream: UnixStream) -> io::Result<Command> {
    let mut arguments = env::args_os();
    let program = arguments.next().ok_or_else(|| io::Error::other("the name of the program is not known"))?;
    let mut passed: Vec<OwnedFd> = handle.sockets()?.into_iter().map(OwnedFd::from).collect();
    let names = "serpent:".repeat(passed.len()) + PREDECESSOR;
    passed.push(stream.into());
    let mut command = Command::new(program);
    // A process knows its identifier only after it has started, so LISTEN_PID is not given.
    command.args(arguments).env_remove("LISTEN_PID").env("LISTEN_FDS", passed.len().to_string()).env(NAMES, names);
    let mappings = (FIRST..).zip(passed).map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd }).collect();
    command.fd_mappings(mappings).map_err(io::Error::other)?;
    Ok(command)
}

fn unready(error: io::Error) -> String {
    format!("the new process cannot be started: {error}")
}
