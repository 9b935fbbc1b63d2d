//! `serpent serve`: the server, and the signals that reload, replace and stop it.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use rustix::{
    process::{Signal, getpgrp, kill_process},
    termios::tcgetpgrp,
};
use sd_notify::NotifyState;
use server::{
    Handle, Server, StartError,
    config::{Config, Origin, Route, Site},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2},
    iterator::Signals,
};

use crate::{
    config::{self, Overrides},
    failure::Failure,
    greeting::Greeting,
    inherited::Inherited,
    kept_rate::KeptRate,
    log::{self, OpenedLog},
    open_files, orders,
    output::FAILURE,
    upgrade, values,
};

/// A change that a signal asks for and that takes long.
enum Change {
    Reload,
    Upgrade,
}

/// Serves until a signal to stop, and returns after the last response.
pub fn serve(args: &Overrides) -> Result<(), Failure> {
    upgrade::start_in_between().map_err(|error| Failure::Run(format!("the new process cannot be started: {error}")))?;
    // Signals are caught first, so that none is lost while the server starts.
    let signals = Signals::new([SIGHUP, SIGTERM, SIGINT, SIGUSR2]).map_err(no_signals)?;
    let inherited = Inherited::from_environment()?;
    let args = Overrides { inherited: inherited.addresses().map_err(no_signals)?, ..args.clone() };
    let config = load(&args)?;
    log::follow(open_error_log(&config)?).map_err(no_signals)?;
    let served = serve_as(config, &args, inherited, signals);
    log::close();
    served
}

/// Serves as this configuration says, and as the next ones do.
fn serve_as(config: Config, args: &Overrides, mut inherited: Inherited, signals: Signals) -> Result<(), Failure> {
    inherited.are_served_by(&config)?;
    // The terminal may be closed as soon as the server has said that it is ready.
    let was_foreground = is_foreground();
    open_files::allow(&config);
    let serving = served(&config);
    let keep = config.uplink.clone();
    let greeting = Greeting::new(&config, args);
    let server = Server::bind_inheriting(config, std::mem::take(&mut inherited.sockets)).map_err(not_started)?;
    let server = server.comparing(orders::times);
    let kept = KeptRate::new(server.handle());
    kept.follow(&keep);
    kept.begin();
    let mut ready = ready_line(&serving, &server);
    if io::stdout().is_terminal() && !inherited.takes_over() {
        ready += &greeting.lines(&server.addresses(), server.admin_address());
    }
    if let Err(error) = io::stdout().lock().write_all(ready.as_bytes()) {
        // The parent process has closed the pipe. Clients are served all the same.
        tracing::warn!(%error, "cannot write to standard output that the server is ready");
    }
    if let Some(admin) = server.admin_address() {
        tracing::info!("metrics on http://{admin}/metrics");
    }
    if !inherited.takes_over() {
        notify(&[NotifyState::Ready]);
    }
    inherited.tell_predecessor();
    // A reload may take long, as it waits for new workers. It has a thread of its own, so that signals to stop are handled.
    let (change, changes) = mpsc::channel();
    let stopping = Arc::new(AtomicBool::new(false));
    let (handle, stops, followed, args) = (server.handle(), stopping.clone(), kept.clone(), args.clone());
    thread::Builder::new()
        .name("reload".into())
        .spawn(move || make_changes(&changes, &handle, &followed, &args, &stops))
        .map_err(no_signals)?;
    let handle = server.handle();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || handle_signals(signals, &handle, &change, &stopping, was_foreground))
        .map_err(no_signals)?;
    thread::Builder::new()
        .name("kept-rate".into())
        .spawn({
            let kept = kept.clone();
            move || kept.write_often()
        })
        .map_err(no_signals)?;
    let served = server.run().map_err(not_started);
    kept.write();
    served
}

fn not_started(error: StartError) -> Failure {
    Failure::Run(match mend(&error) {
        Some(help) => format!("{error}\n |\n = help: {help}"),
        None => error.to_string(),
    })
}

/// The help for an address that cannot be bound.
fn mend(error: &StartError) -> Option<String> {
    let (flag, address, error) = match error {
        StartError::Listen { address, error } => ("--listen", address, error),
        StartError::Admin { address, error } => ("--admin", address, error),
        _ => return None,
    };
    let port = address.port();
    let other = |port: u16| SocketAddr::new(address.ip(), port);
    match error.kind() {
        io::ErrorKind::AddrInUse => Some(format!(
            "another program has this port: `ss -ltnp 'sport = :{port}'` names it; `{flag} {}` takes another port",
            other(port.checked_add(1).unwrap_or(8080))
        )),
        io::ErrorKind::PermissionDenied => {
            let program = std::env::current_exe().map_or_else(|_| "serpent".into(), |path| path.display().to_string());
            Some(format!(
                "ports below 1024 need a privilege: `sudo setcap cap_net_bind_service=+ep {program}` gives it \
                 (systemd: AmbientCapabilities=CAP_NET_BIND_SERVICE); `{flag} {}` needs none",
                other(port.saturating_add(8000))
            ))
        }
        io::ErrorKind::AddrNotAvailable => Some(format!(
            "no device of this machine has this address: `ip -br address` lists all; `{flag} :{port}` takes every address"
        )),
        _ => None,
    }
}

fn no_signals(error: io::Error) -> Failure {
    Failure::Run(format!("signals cannot be received: {error}"))
}

/// The configuration. Warnings are logged.
fn load(args: &Overrides) -> Result<Config, Failure> {
    let (config, warnings) = config::load_and_warn(args).map_err(Failure::Configuration)?;
    for (all, warning) in warnings.iter().flat_map(|all| all.list.iter().map(move |warning| (all, warning))) {
        let place = all.place(warning).map(|place| format!("{place}: ")).unwrap_or_default();
        let help = warning.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        tracing::warn!("{place}{}{help}", warning.message);
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

/// Tells systemd, where it waits for that (`Type=notify`).
fn notify(states: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd (NOTIFY_SOCKET) cannot be told about the state of the server");
    }
}

/// Whether the server runs in the foreground of a terminal.
fn is_foreground() -> bool {
    tcgetpgrp(io::stdout()).is_ok_and(|group| group == getpgrp())
}

/// Handles signals until the process ends. `was_foreground` says that the server was started in the foreground of a
/// terminal.
fn handle_signals(
    mut signals: Signals,
    handle: &Handle,
    change: &mpsc::Sender<Change>,
    stopping: &AtomicBool,
    was_foreground: bool,
) {
    for signal in signals.forever() {
        // The terminal was closed. A server without it would keep its port, and only `kill` would stop it.
        let is_abandoned = signal == SIGHUP && was_foreground && !io::stdout().is_terminal();
        match if is_abandoned { SIGTERM } else { signal } {
            // Sending fails only if that thread has panicked, which was reported.
            SIGHUP if !stopping.load(SeqCst) => drop(change.send(Change::Reload)),
            SIGUSR2 if !stopping.load(SeqCst) => drop(change.send(Change::Upgrade)),
            // A second Ctrl-C means that the operator does not wait for the last response.
            SIGINT if stopping.load(SeqCst) => {
                tracing::warn!("interrupted again: responses under way are cut off");
                log::close();
                process::exit(FAILURE.into());
            }
            SIGTERM | SIGINT => {
                stopping.store(true, SeqCst);
                tracing::info!("stopping after the last response");
                notify(&[NotifyState::Stopping]);
                handle.shutdown();
            }
            _ => {}
        }
    }
}

/// Makes changes, one after the other, until the server has handed over.
fn make_changes(
    changes: &mpsc::Receiver<Change>,
    handle: &Handle,
    kept: &KeptRate,
    args: &Overrides,
    stopping: &AtomicBool,
) {
    while let Ok(change) = changes.recv() {
        // One change serves all signals that came before it begins. A new process reads the configuration anyway.
        let upgrade = [change].into_iter().chain(changes.try_iter()).any(|change| matches!(change, Change::Upgrade));
        if upgrade {
            // The new process begins with it.
            kept.write();
        }
        match upgrade {
            true if hand_over(handle, stopping) => return,
            true => {}
            false => {
                notify(&reloading());
                match reload(handle, kept, args) {
                    Ok(()) => tracing::info!("configuration reloaded"),
                    Err(failure) => {
                        // Others are counted where they are found.
                        if matches!(failure, Failure::Configuration(_)) {
                            handle.refuse_reload();
                        }
                        tracing::error!("SIGHUP: not reloaded, the old configuration stays\n{failure}");
                    }
                }
                notify(&[NotifyState::Ready]);
            }
        }
    }
}

/// `Type=notify-reload` wants the time, too.
fn reloading() -> Vec<NotifyState<'static>> {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now());
    states
}

/// Starts a new process that takes over, and begins to stop. Returns whether it did.
fn hand_over(handle: &Handle, stopping: &AtomicBool) -> bool {
    match upgrade::start_successor(handle) {
        // A signal to stop that came meanwhile is meant for the process that serves. The new process may have connections already.
        Ok(successor) if stopping.load(SeqCst) => {
            let _ = kill_process(successor, Signal::TERM);
            false
        }
        Ok(successor) => {
            stopping.store(true, SeqCst);
            let successor = successor.as_raw_nonzero().get();
            tracing::info!("process {successor} has taken over; stopping after the last response");
            notify(&[NotifyState::MainPid(successor.unsigned_abs())]);
            handle.hand_over();
            true
        }
        Err(reason) => {
            tracing::error!("SIGUSR2: not replaced, this process goes on: {reason}");
            false
        }
    }
}

fn open_error_log(config: &Config) -> Result<OpenedLog, Failure> {
    log::open(&config.error_log).map_err(Failure::Run)
}

fn reload(handle: &Handle, kept: &KeptRate, args: &Overrides) -> Result<(), Failure> {
    let config = load(args)?;
    open_files::allow(&config);
    let error_log = open_error_log(&config)?;
    let uplink = config.uplink.clone();
    handle.reload(config).map_err(not_started)?;
    log::follow(error_log).map_err(no_signals)?;
    kept.follow(&uplink);
    Ok(())
}
