//! Listening sockets that were open before the start: from systemd (`sd_listen_fds(3)`), or from the process that this
//! one takes over from ([`crate::upgrade`]).

use std::{
    env,
    io::{self, Write as _},
    net::{SocketAddr, TcpListener},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process,
};

use listenfd::ListenFd;
use server::config::Config;

use crate::{failure::Failure, values::ListenAt};

/// Names what is passed with `LISTEN_FDS`: names with colons between them (`sd_listen_fds_with_names(3)`).
pub const NAMES: &str = "LISTEN_FDNAMES";
/// The last name, if a process passes its sockets on. That descriptor is a stream to it.
pub const PREDECESSOR: &str = "predecessor";
/// The message by which a process tells its predecessor that it serves. At its start it sends its process identifier,
/// in a line.
pub const READY: &[u8] = b"ready";

/// Sockets that were open before the start of this process.
#[derive(Default)]
pub struct Inherited {
    /// The listening sockets.
    pub sockets: Vec<TcpListener>,
    /// To the process that this one takes over from.
    predecessor: Option<UnixStream>,
}

impl Inherited {
    /// Takes what the environment names. It takes variables out of the environment, so call it before threads start.
    pub fn from_environment() -> Result<Self, Failure> {
        let takes_over = env::var(NAMES).is_ok_and(|names| names.rsplit(':').next() == Some(PREDECESSOR));
        let mut given = ListenFd::from_env();
        let predecessor = match given.len().checked_sub(1) {
            Some(last) if takes_over => given.take_unix_listener(last).map_err(|error| unusable(&error))?,
            _ => None,
        };
        let mut sockets = Vec::new();
        for number in 0..given.len() - usize::from(predecessor.is_some()) {
            sockets.extend(given.take_tcp_listener(number).map_err(|error| unusable(&error))?);
        }
        // The library knows only listening sockets. This one is connected.
        let mut predecessor = predecessor.map(|stream| UnixStream::from(OwnedFd::from(stream)));
        if let Some(predecessor) = &mut predecessor {
            // If it has gone, it does not wait for this process.
            let _ = writeln!(predecessor, "{}", process::id());
        }
        Ok(Self { sockets, predecessor })
    }

    /// The addresses of the sockets.
    pub fn addresses(&self) -> io::Result<Vec<ListenAt>> {
        self.sockets.iter().map(|socket| Ok(ListenAt { address: socket.local_addr()?, tls: None })).collect()
    }

    /// Clients of a socket without a server would wait for ever. A process that takes over may have fewer addresses
    /// than the one before, which still serves who has connected to it.
    pub fn are_served_by(&self, config: &Config) -> Result<(), Failure> {
        let served = |address: SocketAddr| {
            config.listen.iter().map(|listen| listen.address).chain(config.admin).any(|other| other == address)
        };
        let addresses = self.addresses().map_err(|error| unusable(&error))?;
        match addresses.iter().find(|at| !served(at.address)) {
            Some(at) if self.predecessor.is_none() => Err(Failure::Run(format!(
                "a socket on {0} was passed to the server (LISTEN_FDS), and neither `listen` nor `admin` has that \
                 address\nhelp: write `listen = [\"{0}\"]`, or take it out of the socket unit",
                at.address
            ))),
            _ => Ok(()),
        }
    }

    /// Whether another process waits for this one.
    pub fn takes_over(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Tells the process that this one takes over from that clients are served.
    pub fn tell_predecessor(&mut self) {
        if let Some(mut predecessor) = self.predecessor.take()
            && let Err(error) = predecessor.write_all(READY)
        {
            tracing::warn!(%error, "the process that this one takes over from has gone");
        }
    }
}

fn unusable(error: &io::Error) -> Failure {
    Failure::Run(format!(
        "a descriptor that was passed to the server (LISTEN_FDS) is of no use: {error}\nhelp: pass listening TCP sockets"
    ))
}
