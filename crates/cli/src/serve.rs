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
    config::{self, Overrides},
    failure::Failure,
    open_files,
    output::FAILURE,
    values,
};

/// Serves until a signal to stop, and returns after the last response.
pub fn serve(args: &Overrides) -> Result<(), Failure> {
    // Signals are caught first, so that none is lost while the server starts.
    let signals = Signals::new([SIGHUP, SIGTERM, SIGINT]).map_err(no_signals)?;
    let config = load(args)?;
    open_files::allow(&config);
    let serving = served(&config);
    let server = Server::bind(config).map_err(not_started)?;
    let ready = ready_line(&serving, &server);
    if let Err(error) = io::stdout().lock().write_all(ready.as_bytes()) {
        // The parent process has closed the pipe. Clients are served all the same.
        tracing::warn!(%error, "cannot write to standard output that the server is ready");
    }
    if let Some(admin) = server.admin_address() {
        tracing::info!("metrics on http://{admin}/metrics");
    }
    // A reload may take long, as it waits for new workers. It has a thread of its own, so that signals to stop are handled.
    let (reload, requests) = mpsc::channel();
    let (handle, args) = (server.handle(), args.clone());
    thread::Builder::new()
        .name("reload".into())
        .spawn(move || run_reloads(&requests, &handle, &args))
        .map_err(no_signals)?;
    let handle = server.handle();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || handle_signals(signals, &handle, &reload))
        .map_err(no_signals)?;
    server.run().map_err(not_started)
}

fn not_started(error: StartError) -> Failure {
    Failure::Run(error.to_string())
}

fn no_signals(error: io::Error) -> Failure {
    Failure::Run(format!("signals cannot be received: {error}"))
}

/// The configuration. Warnings are logged.
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

/// The sites in a few words, for the ready line.
fn served(config: &Config) -> String {
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

/// The ready line: one line with the addresses.
fn ready_line(serving: &str, server: &Server) -> String {
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

/// Handles signals until the process ends.
fn handle_signals(mut signals: Signals, handle: &Handle, reload: &mpsc::Sender<()>) {
    let mut stopping = false;
    for signal in signals.forever() {
        match signal {
            SIGHUP if !stopping => {
                // Fails only if that thread has panicked, which was reported.
                let _ = reload.send(());
            }
            // A second Ctrl-C means that the operator does not wait for the last response.
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

/// Reloads at each request, one after the other.
fn run_reloads(requests: &mpsc::Receiver<()>, handle: &Handle, args: &Overrides) {
    while let Ok(()) = requests.recv() {
        // One reload serves all requests that came before it begins.
        while requests.try_recv().is_ok() {}
        match reload(handle, args) {
            Ok(()) => tracing::info!("configuration reloaded"),
            Err(failure) => {
                tracing::error!("SIGHUP: not reloaded, the old configuration stays\n{failure}");
            }
        }
    }
}

fn reload(handle: &Handle, args: &Overrides) -> Result<(), Failure> {
    let config = load(args)?;
    open_files::allow(&config);
    handle.reload(config).map_err(not_started)
}
