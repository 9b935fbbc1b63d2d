//! `serpent serve`: the server, and the signals that reload and stop it.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process, thread,
};

use rustix::process::{Resource, getrlimit, setrlimit};
use server::{Handle, Server, StartError, config::Config};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{
    FAILURE, USAGE,
    args::ServeArgs,
    config::{self, Problems},
};

/// Why nothing is served.
pub enum Failure {
    /// What was asked for is wrong.
    Configuration(Problems),
    /// What was asked for cannot be done here.
    Start(StartError),
    /// The system gives no signals.
    Signals(io::Error),
}

impl Failure {
    /// The exit code and what to say.
    pub fn told(self) -> (u8, String) {
        match self {
            Self::Configuration(problems) => (USAGE, problems.to_string()),
            Self::Start(error) => (FAILURE, format!("error: {error}")),
            Self::Signals(error) => (FAILURE, format!("error: signals cannot be received: {error}")),
        }
    }
}

/// Serves until a signal to stop, and returns after the last response.
pub fn serve(args: &ServeArgs) -> Result<(), Failure> {
    // Signals first: none that comes while starting is lost.
    let signals = Signals::new([SIGHUP, SIGTERM, SIGINT]).map_err(Failure::Signals)?;
    let config = config::load(args).map_err(Failure::Configuration)?;
    allow_connections(config.limits.connections);
    let roots: Vec<_> = config.sites.iter().map(|site| site.root.clone()).collect();
    let server = Server::bind(config).map_err(Failure::Start)?;
    let ready = ready(&roots, &server);
    if let Err(error) = io::stdout().lock().write_all(ready.as_bytes()) {
        // Whoever started us does not listen; clients are served all the same.
        tracing::warn!(%error, "cannot write to standard output that the server is ready");
    }
    if let Some(admin) = server.admin_address() {
        tracing::info!("metrics on http://{admin}/metrics");
    }
    let (handle, args) = (server.handle(), args.clone());
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || obey(signals, &handle, &args))
        .map_err(Failure::Signals)?;
    server.run().map_err(Failure::Start)
}

/// The one line that tells where it serves.
fn ready(roots: &[PathBuf], server: &Server) -> String {
    let mut line = match roots {
        [root] => format!("serpent: serving {} on", absolute(root).display()),
        roots => format!("serpent: serving {} sites on", roots.len()),
    };
    for listen in server.addresses() {
        let _ = write!(line, " {}://{}", if listen.tls { "https" } else { "http" }, listen.address);
    }
    line.push('\n');
    line
}

fn absolute(path: &Path) -> PathBuf {
    if path.is_absolute() { path.to_owned() } else { path.canonicalize().unwrap_or_else(|_| path.to_owned()) }
}

fn obey(mut signals: Signals, handle: &Handle, args: &ServeArgs) {
    let mut stopping = false;
    for signal in signals.forever() {
        match signal {
            SIGHUP if !stopping => match reload(handle, args) {
                Ok(()) => tracing::info!("configuration reloaded"),
                Err(failure) => {
                    let (_, said) = failure.told();
                    tracing::error!("SIGHUP: not reloaded, the old configuration stays\n{said}");
                }
            },
            // Somebody at a terminal who asks again does not want to wait for the last response.
            SIGINT if stopping => {
                tracing::warn!("interrupted again: responses under way are cut off");
                process::exit(FAILURE.into());
            }
            SIGTERM | SIGINT => {
                stopping = true;
                tracing::info!("stopping after the last response");
                handle.shutdown();
            }
            _ => {}
        }
    }
}

fn reload(handle: &Handle, args: &ServeArgs) -> Result<(), Failure> {
    let config: Config = config::load(args).map_err(Failure::Configuration)?;
    handle.reload(config).map_err(Failure::Start)
}

/// Descriptors that are open beside those of connections.
const OTHER_DESCRIPTORS: u64 = 256;

/// Raises the soft limit on open files as far as it may be raised. A connection holds a socket and, while a large response
/// is sent, a file; a warning is due when not even the sockets fit.
fn allow_connections(connections: usize) {
    let sockets = (connections as u64).saturating_add(OTHER_DESCRIPTORS);
    let wanted = sockets.saturating_add(connections as u64);
    let mut limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|current| *current < wanted) else { return };
    let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)).max(current);
    limit.current = Some(raised);
    let allowed = if setrlimit(Resource::Nofile, limit).is_ok() { raised } else { current };
    if allowed < sockets {
        tracing::warn!(
            "{connections} connections need {sockets} open files, and only {allowed} are allowed: lower \
             `limits.connections`, or raise the limit (ulimit -n, LimitNOFILE=)"
        );
    }
}
