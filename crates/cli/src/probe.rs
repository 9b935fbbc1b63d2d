//! `serpent probe CONFIG`: measures how many requests of each kind a site can handle well at once, before the
//! site is in use.

mod args;
mod load;
mod progress;
mod report;
mod search;
mod targets;
#[cfg(test)]
mod tests;
mod write;

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use http::uri::Authority;
use server::{config::Config, upstream::probe::Probe};
use signal_hook::{consts::TERM_SIGNALS, flag};

pub use self::args::ProbeArgs;
use self::{
    load::{Halt, Limits, Page},
    progress::Progress,
    report::Probed,
    search::{End, Settings},
    targets::Target,
    write::Change,
};
use crate::{
    config::{self, Problems},
    failure::Failure,
    output::FAILURE,
    values,
};

/// Probes, shows the results, and writes them if that is wanted.
///
/// # Errors
/// If nothing was measured, or a result could not be written.
pub fn probe(args: &ProbeArgs) -> Result<ExitCode, Failure> {
    let text = config::read(&args.config).map_err(Failure::Configuration)?;
    let config = load_config(&args.config, &text).map_err(Failure::Configuration)?;
    let targets = targets::targets(&config, &args.resource).map_err(Failure::Usage)?;
    if !args.yes {
        agree(&targets, args)?;
    }
    let stop = stop_on_signals().map_err(|error| Failure::Run(format!("cannot watch for signals: {error}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Run(format!("the system gives no timers or sockets: {error}")))?;
    let (probed, failed) = runtime.block_on(async {
        let pages = |target: &Target| {
            let host = args.host.as_deref().or_else(|| target.host.as_ref().map(Authority::as_str));
            let probe = Probe::new(&target.upstream, target.page.clone(), host);
            probe.map(|probe| load::page(probe, args.timeout)).map_err(|error| error.to_string())
        };
        probe_all(args, &targets, &pages, &stop, &Progress::new()).await
    });
    drop(runtime);
    let interrupted = stop.load(Relaxed);
    // From here on nothing needs to be finished first, so the next signal ends the process.
    stop.store(true, Relaxed);

    for probed in &probed {
        say(&chart::wrapped(&report::text(probed)))?;
    }
    if let Some(folder) = &args.out {
        report::write(folder, &probed)
            .map_err(|error| Failure::Run(format!("cannot write into `{}`: {error}", folder.display())))?;
    }
    if let Some(why) = &failed {
        let _ = writeln!(io::stderr(), "{}", chart::wrapped(&format!("error: {why}")));
    }
    let changes = changes(&probed, &targets)?;
    if interrupted || changes.is_empty() {
        say("Nothing is written.\n")?;
    } else {
        write_back(args, &text, &changes)?;
    }
    let whole = failed.is_none() && probed.len() == targets.len() && probed.iter().all(|it| it.found().is_some());
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(FAILURE) })
}

/// Reads the configuration. A missing bound that is to be measured is no error here.
fn load_config(path: &Path, text: &str) -> Result<Config, Problems> {
    let read = |text: String| config::load_text(path, text).map(|(config, _)| config);
    read(text.to_owned()).or_else(|problems| {
        let with_bounds = write::with_bounds(text).filter(|with_bounds| with_bounds != text);
        with_bounds.and_then(|text| read(text).ok()).ok_or(problems)
    })
}

/// Probes one resource after the other, until the site must not be asked any more. Returns the results, and
/// the reason for stopping early.
async fn probe_all(
    args: &ProbeArgs,
    targets: &[Target],
    pages: &dyn Fn(&Target) -> Result<Page, String>,
    stop: &Arc<AtomicBool>,
    progress: &Progress,
) -> (Vec<Probed>, Option<String>) {
    let settings = Settings { ceiling: args.ceiling, seconds: args.seconds_per_rate, least: args.least_requests };
    let mut all = Vec::new();
    // Of each resource that is still to come.
    let knee_s = if args.knee { search::knee_s(settings) } else { 0.0 };
    let searches = args.search.searches();
    let target_s = searches.iter().map(|by| search::whole_s(*by, settings)).sum::<f64>() + knee_s;
    for (number, target) in targets.iter().enumerate() {
        let others_s = (targets.len() - number - 1) as f64 * target_s;
        let name = &target.resource;
        let page = match pages(target) {
            Ok(page) => page,
            Err(error) => return (all, Some(error)),
        };
        progress.begin(&format!("{name}: first request"), 0);
        // A single request finds any error of the page.
        let asked = tokio::select! {
            asked = page() => asked,
            () = load::stopped(stop) => {
                progress.end();
                return (all, Some(Halt::Interrupted.to_string()));
            }
        };
        let first = match asked {
            Ok(answer) if answer.is_page() => answer,
            Ok(answer) => {
                progress.end();
                let status = answer.status.as_u16();
                let why = "a page to be probed by answers with 200, and by itself";
                return (all, Some(format!("`{name}`: {} answers {status}: {why}", target.whereabouts())));
            }
            Err(error) => {
                progress.end();
                return (all, Some(format!("`{name}`: {}: {error}", target.whereabouts())));
            }
        };
        progress.end();
        let limits = Limits {
            outstanding: target.outstanding(args.outstanding),
            most_errors: 0.0,
            silence: args.timeout,
            stop: stop.clone(),
        };
        let limits = limits.after_first_answer(first.took);
        let mut probed = Probed {
            resource: name.clone(),
            whereabouts: target.whereabouts(),
            searches: Vec::new(),
            knee: Vec::new(),
        };
        for (at, &by) in searches.iter().enumerate() {
            let after_s: f64 = searches[at + 1..].iter().map(|by| search::whole_s(*by, settings)).sum();
            progress.later(others_s + knee_s + after_s);
            match search::search(&page, name, by, settings, &limits, progress).await {
                Ok(searched) => probed.searches.push(searched),
                Err(error) => return (all, Some(error.to_string())),
            }
            if let Some(End::Halted(halt, _)) = probed.searches.last().map(|searched| &searched.end) {
                let why = format!("`{name}`: {halt}");
                all.push(probed);
                return (all, Some(why));
            }
        }
        let mut halted = None;
        if let Some(found) = probed.found().filter(|_| args.knee) {
            progress.later(others_s);
            (probed.knee, halted) = search::knee(&page, name, found.window, settings, &limits, progress).await;
        }
        all.push(probed);
        if let Some(halt) = halted {
            return (all, Some(format!("`{name}`: {halt}")));
        }
    }
    (all, None)
}

/// Asks the operator whether a site on another machine may be probed.
fn agree(targets: &[Target], args: &ProbeArgs) -> Result<(), Failure> {
    let mut elsewhere: Vec<_> = targets.iter().filter(|target| !target.elsewhere.is_empty()).collect();
    elsewhere.dedup_by(|a, b| a.elsewhere == b.elsewhere);
    if elsewhere.is_empty() {
        return Ok(());
    }
    let servers: Vec<_> = elsewhere.iter().map(|target| target.elsewhere.join(", ")).collect();
    let servers = servers.join(", ");
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "not on this machine: {servers}. Probing asks for more than a site can do; if it is yours to be asked, add --yes"
        )));
    }
    let question = format!(
        "Not on this machine: {servers}.\nIt is going to be asked for up to {} requests a second, which is more than it can do. \
         Is it yours, and is that all right?",
        args.ceiling
    );
    if asked(&question)? { Ok(()) } else { Err(Failure::Usage("not probed".to_owned())) }
}

/// Asks a question. Any answer but yes counts as no.
fn asked(question: &str) -> Result<bool, Failure> {
    let mut answer = String::new();
    let mut ask = || -> io::Result<usize> {
        write!(io::stderr(), "{question} [y/N] ")?;
        io::stdin().read_line(&mut answer)
    };
    ask().map_err(|error| Failure::Run(format!("nobody can be asked: {error}")))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// The changes to write: one for every resource with a result.
fn changes(probed: &[Probed], targets: &[Target]) -> Result<Vec<Change>, Failure> {
    let mut changes = Vec::new();
    for probed in probed {
        let (Some(found), Some(target)) =
            (probed.found(), targets.iter().find(|target| target.resource == probed.resource))
        else {
            continue;
        };
        let (least, most) = (target.limits.0.get(), target.limits.1.get());
        let window = found.window.clamp(least, most.max(least));
        if window != found.window {
            say(&chart::wrapped(&format!(
                "`{}`: the window of {} is not from {least} to {most} (`least`, `most`): it becomes {window}\n",
                probed.resource, found.window
            )))?;
        }
        changes.push(Change { resource: probed.resource.clone(), window, bound: write::rounded(found.bound_ns) });
    }
    Ok(changes)
}

/// Shows the changes, and writes them if that is wanted.
fn write_back(args: &ProbeArgs, text: &str, changes: &[Change]) -> Result<(), Failure> {
    let file = args.config.display();
    let by_hand = || {
        let line = |change: &Change| {
            let bound = values::show_duration(change.bound);
            format!("  {}: window = {}, bound = \"{bound}\"\n", change.resource, change.window)
        };
        changes.iter().map(line).collect::<String>()
    };
    let new = write::edited(text, changes)
        .map_err(|error| Failure::Run(format!("`{file}` cannot be edited: {error}; by hand:\n{}", by_hand())))?;
    if new == text {
        return say(&format!("`{file}` says so already.\n"));
    }
    say(&format!("To be changed in `{file}`:\n{}", write::difference(text, &new)))?;
    let write = if args.write || args.dry_run {
        args.write
    } else if io::stdin().is_terminal() {
        asked("Write it?")?
    } else {
        false
    };
    if !write {
        let how = if args.dry_run { "" } else { " With --write it is." };
        return say(&format!("It is not written.{how}\n"));
    }
    write::save(&args.config, text, &new).map_err(Failure::Run)?;
    say("Written. A server that runs takes it with SIGHUP.\n")
}

/// Prints a text. It is no failure if the reader closes the pipe early.
fn say(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Returns a flag that the first Ctrl-C or SIGTERM sets. The second one ends the process.
fn stop_on_signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for &signal in TERM_SIGNALS {
        flag::register_conditional_shutdown(signal, FAILURE.into(), Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
