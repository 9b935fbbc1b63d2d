//! The resolved configuration of programs.

use std::{fmt, net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

/// Servers to start: for each class a pool of processes, with the class's processor priority.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkersConfig {
    /// The upstream that the processes serve, by name.
    pub upstream: String,
    /// The program and its arguments. `{socket}` is replaced by the path of the Unix socket to listen on,
    /// `{port}` by a loopback port, and `{class}` by the class's name.
    pub command: Vec<String>,
    /// The working directory.
    pub directory: Option<PathBuf>,
    /// Environment variables, beside those that are always set.
    pub environment: Vec<(String, String)>,
    /// Processes for each class.
    pub processes: NonZeroU32,
    /// Time until a process must accept connections.
    pub start_timeout: Duration,
    /// Time between SIGTERM and SIGKILL.
    pub stop_timeout: Duration,
}

/// Programs run for each request (RFC 3875).
#[derive(Clone, Debug, PartialEq)]
pub struct CgiConfig {
    /// The directory of the programs, or a single program.
    pub program: PathBuf,
    /// The interpreter that runs the programs, such as `/usr/bin/php-cgi`; `None`: they are executed
    /// directly.
    pub interpreter: Option<PathBuf>,
    /// Variables beside those of the standard.
    pub environment: Vec<(String, String)>,
    /// Variables of this server's environment that are passed on.
    pub pass_environment: Vec<String>,
    /// Longest run time of a program; then it is killed.
    pub timeout: Duration,
    /// Largest head of the answer.
    pub head_bytes: usize,
    /// Most programs at once, in addition to the limit of slots; beyond it 503.
    pub most_running: NonZeroU32,
}

/// An application that runs already, and answers requests by FastCGI.
#[derive(Clone, Debug, PartialEq)]
pub struct FastCgiConfig {
    /// Where it listens.
    pub address: FastCgiAddress,
    /// The name servers that are asked for its name; none: those of the system.
    pub resolvers: Vec<SocketAddr>,
    /// The directory of the scripts on this machine, where they are looked for; `None`: the root of the site, or nothing is
    /// looked for if `remote_root` is given.
    pub root: Option<PathBuf>,
    /// The same directory as the application sees it; `None`: as here.
    pub remote_root: Option<PathBuf>,
    /// The extensions of scripts, without dot. No other file is ever handed on.
    pub extensions: Vec<String>,
    /// The script of a directory.
    pub index: Option<String>,
    /// Parameters beside those of the standard.
    pub environment: Vec<(String, String)>,
    /// Time to connect.
    pub connect_timeout: Duration,
    /// Longest silence of the application while its answer is waited for, and longest time in which it takes nothing of
    /// a request.
    pub idle_timeout: Duration,
    /// Largest head of the answer.
    pub head_bytes: usize,
    /// Most requests at once, in addition to the limit of slots; beyond it 503.
    pub most_running: NonZeroU32,
    /// Most idle connections kept. They are those of all routes with the same address.
    pub keep_connections: usize,
    /// How long an idle connection is kept.
    pub keep_for: Duration,
}

/// An application that runs already, and answers requests by uwsgi.
#[derive(Clone, Debug, PartialEq)]
pub struct UwsgiConfig {
    /// Where it listens.
    pub address: FastCgiAddress,
    /// The name servers that are asked for its name; none: those of the system.
    pub resolvers: Vec<SocketAddr>,
    /// The number of the application's plugin that is asked (`modifier1`); 0 is that of Python, and of most applications.
    pub modifier: u8,
    /// Parameters beside those of the standard.
    pub environment: Vec<(String, String)>,
    /// Time to connect.
    pub connect_timeout: Duration,
    /// Longest silence of the application while its answer is waited for, and longest time in which it takes nothing of
    /// a request.
    pub idle_timeout: Duration,
    /// Largest head of the answer.
    pub head_bytes: usize,
    /// Most requests at once, in addition to the limit of slots; beyond it 503.
    pub most_running: NonZeroU32,
}

/// Where an application listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FastCgiAddress {
    /// A host, by its name or address, and a port.
    Tcp(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for FastCgiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The priority of the processes that do a class's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// The priority of this server.
    #[default]
    Inherited,
    /// Ordinary scheduling with a nice value: -20 (first) to 19.
    Nice(i8),
    /// Above all ordinary processes, in turns with equals (SCHED_RR), from 1 to 99 (highest).
    RoundRobin(u8),
    /// Above all ordinary processes, until it waits (SCHED_FIFO), from 1 to 99 (highest).
    Fifo(u8),
    /// A control group of its own with this weight, 1 to 10000; 100 is ordinary.
    CgroupWeight(u16),
}

/// A class of requests, as far as programs are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramClass {
    /// Its name.
    pub name: String,
    /// The processor priority of the programs that do its work.
    pub priority: Priority,
}
