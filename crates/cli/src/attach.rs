//! `serpent attach` and `serpent detach`: the order of responses for servers that nobody changes.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use attach::{AttachError, AttachOptions, Others, Shown, TrafficClass};
use clap::Args;
use scheduler::Rate;
use signal_hook::{consts::TERM_SIGNALS, iterator::Signals};

use crate::{failure::Failure, output, values};

/// The arguments of `serpent attach`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  serpent attach eth0 --rate 97mbit --ports 80,443    # the servers on these ports, whatever they are
  serpent attach eth0 --show                          # what it has done, and whether the queue is here
  serpent attach eth0 --relearn                       # cutoffs from the sizes of the responses sent so far
  serpent attach eth0 --rate 97mbit --ports 80,443 --class paying:source=203.0.113.0/24 --class others
  serpent detach eth0

Give a rate a little below that of the narrowest link behind the device: where the queue stands is where the order is
made. Nothing stays running, and what was there before comes back at `serpent detach`.")]
pub struct AttachArgs {
    /// The network device
    #[arg(value_name = "DEV")]
    device: String,
    /// The rate at which packets leave, as in 97mbit
    #[arg(long, value_name = "RATE", value_parser = values::rate, required_unless_present_any = ["show", "relearn", "follow"])]
    rate: Option<Rate>,
    /// The ports of the servers
    #[arg(long, value_name = "PORT,...", value_delimiter = ',', default_value = "80,443")]
    ports: Vec<u16>,
    /// Replace a queueing discipline that another program or person has set up; it comes back at `serpent detach`
    #[arg(long)]
    replace: bool,
    /// Bytes of a packet on the wire that the kernel does not count: 24 on Ethernet
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    overhead: u16,
    /// Cutoffs between ranks, in bytes left, increasing; learned with --relearn or --follow if not given
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',')]
    cutoffs: Vec<u32>,
    /// A class of responses, which goes before those named later: NAME:CONDITION,... with mark=N[/MASK], port=N,
    /// cgroup=DIR or source=CLIENTS; may be repeated, and what is in no class is in the last one
    #[arg(long = "class", value_name = "NAME:CONDITION,...")]
    classes: Vec<TrafficClass>,
    /// Let the packets of other programs wait behind all responses, in place of going before them
    #[arg(long)]
    others_last: bool,
    /// The user of a server of Serpent's with `enforce = "kernel"`, by name or number: it may then tell what is left of
    /// each response, without privileges. A server of root's needs none
    #[arg(long, value_name = "USER")]
    server_user: Option<String>,
    /// Print what would be done, and do nothing
    #[arg(long, conflicts_with_all = ["show", "relearn", "follow"])]
    dry_run: bool,
    /// Show what the device has done since it was attached
    #[arg(long, conflicts_with_all = ["relearn", "follow"])]
    show: bool,
    /// With --show: print JSON
    #[arg(long, requires = "show")]
    json: bool,
    /// Make the cutoffs anew from the sizes of the responses sent so far
    #[arg(long, conflicts_with = "follow")]
    relearn: bool,
    /// Stay, and make the cutoffs anew every 10 seconds; nothing breaks when this ends
    #[arg(long)]
    follow: bool,
    /// With --show or --follow: write the counters for Prometheus (its node exporter reads such files)
    #[arg(long, value_name = "FILE")]
    metrics_file: Option<PathBuf>,
}

/// The arguments of `serpent detach`.
#[derive(Debug, Args)]
pub struct DetachArgs {
    /// The network device
    #[arg(value_name = "DEV")]
    device: String,
}

/// How often `--follow` looks.
const FOLLOW_EVERY: Duration = Duration::from_secs(10);

/// Runs `serpent attach`, and returns the text to print.
pub fn attach(args: &AttachArgs) -> Result<String, Failure> {
    if args.show {
        let shown = attach::show(&args.device)?;
        write_metrics(args.metrics_file.as_deref(), &shown)?;
        return Ok(if args.json { as_json(&shown) } else { format!("{shown}\n") });
    }
    if args.relearn {
        return Ok(format!("{}: {}\n", args.device, attach::relearn(&args.device)?));
    }
    let mut text = String::new();
    if let Some(rate) = args.rate {
        let options = options(args, rate);
        if args.dry_run {
            return Ok(attach::commands(&options)?.iter().map(|line| format!("{line}\n")).collect());
        }
        text = format!("{}\n", attach::attach(&options)?);
    }
    if args.follow {
        output::print(text.as_bytes());
        follow(args)?;
        return Ok(String::new());
    }
    Ok(text)
}

/// Runs `serpent detach`, and returns the text to print.
pub fn detach(args: &DetachArgs) -> Result<String, Failure> {
    Ok(format!("{}\n", attach::detach(&args.device)?))
}

fn options(args: &AttachArgs, rate: Rate) -> AttachOptions {
    AttachOptions {
        replace: args.replace,
        overhead_bytes: args.overhead,
        cutoffs_bytes: args.cutoffs.clone(),
        classes: args.classes.clone(),
        others: if args.others_last { Others::Last } else { Others::First },
        server_user: args.server_user.clone(),
        ..AttachOptions::new(&args.device, rate.bits_per_second(), args.ports.clone())
    }
}

/// Learns until a signal comes.
fn follow(args: &AttachArgs) -> Result<(), Failure> {
    let mut signals = Signals::new(TERM_SIGNALS).map_err(|error| Failure::Run(format!("signals: {error}")))?;
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = tell.send(());
        }
    });
    loop {
        // Given cutoffs stay.
        if args.cutoffs.is_empty() {
            let learned = attach::relearn(&args.device)?;
            if learned.changed {
                output::print(format!("{}: {learned}\n", args.device).as_bytes());
            }
        }
        if args.metrics_file.is_some() {
            write_metrics(args.metrics_file.as_deref(), &attach::show(&args.device)?)?;
        }
        if told.recv_timeout(FOLLOW_EVERY) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            return Ok(());
        }
    }
}

/// Writes the counters, so that a reader finds the old file or the new one.
fn write_metrics(file: Option<&Path>, shown: &Shown) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    let unfinished = file.with_extension(format!("{}.new", std::process::id()));
    fs::write(&unfinished, shown.prometheus())
        .and_then(|()| fs::rename(&unfinished, file))
        .map_err(|error| Failure::Run(format!("the counters cannot be written to {}: {error}", file.display())))
}

fn as_json(shown: &Shown) -> String {
    // Serializing plain numbers and texts under fixed names cannot fail.
    serde_json::to_string_pretty(shown).map(|text| text + "\n").unwrap_or_default()
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::Option { .. } => Self::Usage(error.to_string()),
            error => Self::Run(error.to_string()),
        }
    }
}
