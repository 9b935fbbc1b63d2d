//! `serpent serve`: the server, and the signals that reload and stop it.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
    sync::mpsc,
    thread,
};

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
    open_files, values,
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
    open_files::allow(&config);
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
        match &warning.help {
            Some(help) => tracing::warn!("{}: {help}", warning.message),
            None => tracing::warn!("{}", warning.message),
        }
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
    open_files::allow(&config);
    handle.reload(config).map_err(Failure::Start)
}
