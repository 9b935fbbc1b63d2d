//! `serpent serve`: the server, and the signals that reload and stop it.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
    sync::mpsc,
    thread,
};

use rustix::process::{Resource, getrlimit, setrlimit};
use server::{
    Handle, Server, StartError,
    config::{Config, Origin, Route, Site},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{
    config::{self, Overrides, Problems},
    exit::{FAILURE, USAGE},
    values,
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
pub fn serve(args: &Overrides) -> Result<(), Failure> {
    // Signals first: none that comes while starting is lost.
    let signals = Signals::new([SIGHUP, SIGTERM, SIGINT]).map_err(Failure::Signals)?;
    let config = load(args)?;
    allow_connections(&config);
    let serving = serving(&config);
    let server = Server::bind(config).map_err(Failure::Start)?;
    let ready = ready(&serving, &server);
    if let Err(error) = io::stdout().lock().write_all(ready.as_bytes()) {
        // Whoever started us does not listen; clients are served all the same.
        tracing::warn!(%error, "cannot write to standard output that the server is ready");
    }
    if let Some(admin) = server.admin_address() {
        tracing::info!("metrics on http://{admin}/metrics");
    }
    // A reload takes as long as what it starts; who wants to stop meanwhile is heard.
    let (reload, asked) = mpsc::channel();
    let (handle, args) = (server.handle(), args.clone());
    thread::Builder::new()
        .name("reload".into())
        .spawn(move || reloads(&asked, &handle, &args))
        .map_err(Failure::Signals)?;
    let handle = server.handle();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || obey(signals, &handle, &reload))
        .map_err(Failure::Signals)?;
    server.run().map_err(Failure::Start)
}

/// The configuration; what hardly was meant is said, and served.
fn load(args: &Overrides) -> Result<Config, Failure> {
    let (config, warnings) = config::load_and_warn(args).map_err(Failure::Configuration)?;
    for warning in warnings.iter().flat_map(|warnings| &warnings.list) {
        tracing::warn!("{}", warning.message);
    }
    Ok(config)
}

/// What is served.
fn serving(config: &Config) -> String {
    match &*config.sites {
        [Site { root: Some(root), .. }] => absolute(root).display().to_string(),
        [Site { root: None, routes, .. }] => match &**routes {
            [Route { origin: Origin::Upstream { upstream, .. }, .. }] => {
                let upstream = &config.upstreams[*upstream];
                let servers: Vec<_> = upstream.servers.iter().map(values::show_server).collect();
                if servers.is_empty() { upstream.name.clone() } else { servers.join(", ") }
            }
            routes => format!("{} routes", routes.len()),
        },
        sites => format!("{} sites", sites.len()),
    }
}

/// The one line that tells where it serves.
fn ready(serving: &str, server: &Server) -> String {
    let mut line = format!("serpent: serving {serving} on");
    for listen in server.addresses() {
        let _ = write!(line, " {}://{}", if listen.tls { "https" } else { "http" }, listen.address);
    }
    line.push('\n');
    line
}

fn absolute(path: &Path) -> PathBuf {
    if path.is_absolute() { path.to_owned() } else { path.canonicalize().unwrap_or_else(|_| path.to_owned()) }
}

fn obey(mut signals: Signals, handle: &Handle, reload: &mpsc::Sender<()>) {
    let mut stopping = false;
    for signal in signals.forever() {
        match signal {
            SIGHUP if !stopping => {
                // Fails only if that thread has panicked, which was reported.
                let _ = reload.send(());
            }
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

/// Reloads when asked, one after the other.
fn reloads(asked: &mpsc::Receiver<()>, handle: &Handle, args: &Overrides) {
    while let Ok(()) = asked.recv() {
        // One reload does for all who have asked before it begins.
        while asked.try_recv().is_ok() {}
        match reload(handle, args) {
            Ok(()) => tracing::info!("configuration reloaded"),
            Err(failure) => {
                let (_, said) = failure.told();
                tracing::error!("SIGHUP: not reloaded, the old configuration stays\n{said}");
            }
        }
    }
}

fn reload(handle: &Handle, args: &Overrides) -> Result<(), Failure> {
    let config = load(args)?;
    allow_connections(&config);
    handle.reload(config).map_err(Failure::Start)
}

/// Descriptors that are open beside those of connections.
const OTHER_DESCRIPTORS: u64 = 256;

/// What connections hold open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Descriptors {
    /// With their sockets alone.
    least: u64,
    /// With the files that they may have beside.
    most: u64,
}

impl Descriptors {
    /// A connection holds a socket and, while a large response is sent, a file. Where requests are passed on it is a socket more, to
    /// the upstream, and two files: for what is kept of a request, and of a response.
    fn of(connections: usize, passes_on: bool) -> Self {
        let (sockets, files) = if passes_on { (2, 2) } else { (1, 1) };
        let each = |count: u64| (connections as u64).saturating_mul(count).saturating_add(OTHER_DESCRIPTORS);
        Self { least: each(sockets), most: each(sockets + files) }
    }
}

/// Raises the soft limit on open files as far as it may be raised. A warning is due when not even the sockets fit.
fn allow_connections(config: &Config) {
    let connections = config.limits.connections;
    let passes_on = !config.upstreams.is_empty();
    let Descriptors { least: sockets, most: wanted } = Descriptors::of(connections, passes_on);
    let mut limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|current| *current < wanted) else { return };
    let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)).max(current);
    limit.current = Some(raised);
    let allowed = if setrlimit(Resource::Nofile, limit).is_ok() { raised } else { current };
    if allowed < sockets {
        let upstreams = if passes_on { ", with those to upstreams," } else { "" };
        tracing::warn!(
            "{connections} connections{upstreams} need {sockets} open files, and only {allowed} are allowed: lower \
             `limits.connections`, or raise the limit (ulimit -n, LimitNOFILE=)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_passed_on_needs_another_socket_and_two_files() {
        assert_eq!(Descriptors::of(1000, false), Descriptors { least: 1256, most: 2256 });
        assert_eq!(Descriptors::of(1000, true), Descriptors { least: 2256, most: 4256 });
        assert_eq!(Descriptors::of(usize::MAX, true).most, u64::MAX);
    }
}
