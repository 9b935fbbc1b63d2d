//! `serpent attach` and `serpent detach`: the order of responses for servers that are not changed themselves.

mod metrics_port;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use attach::{AttachError, AttachOptions, Others, Shown, TrafficClass};
use clap::Args;
use scheduler::Rate;
use signal_hook::{consts::TERM_SIGNALS, iterator::Signals};

use self::metrics_port::MetricsPort;
use crate::{config, failure::Failure, output, values};

/// The arguments of `serpent attach`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  serpent attach eth0 --rate 97mbit --ports 80,443    # the servers on these ports, whatever they are
  serpent attach eth0 --show                          # what it has done, and whether the queue is here
  serpent attach eth0 --relearn                       # cutoffs from the sizes of the responses sent so far
  serpent attach eth0 --rate 97mbit --ports 80,443 --class paying:source=203.0.113.0/24 --class others
  serpent attach eth0 --follow --metrics-listen 127.0.0.1:9101    # learn cutoffs, and answer Prometheus
  serpent attach -c /etc/serpent/eth0.toml            # device, rate and all else from a file
  serpent detach eth0

Give a rate a little below that of the narrowest link behind the device: where the queue stands is where the order is
made. Nothing stays running, and what was there before comes back at `serpent detach`.")]
pub struct AttachArgs {
    /// The network device [default: `device` of the file]
    #[arg(value_name = "DEV", required_unless_present = "config")]
    device: Option<String>,
    /// Configuration file (TOML), whose `[attach]` has the settings; flags go before it
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The rate at which packets leave, as in 97mbit
    #[arg(long, value_name = "RATE", value_parser = values::rate,
        required_unless_present_any = ["config", "show", "relearn", "follow"])]
    rate: Option<Rate>,
    /// The ports of the servers [default: 80,443]
    #[arg(long, value_name = "PORT,...", value_delimiter = ',')]
    ports: Vec<u16>,
    /// Replace a queueing discipline that another program or person has set up; it comes back at `serpent detach`
    #[arg(long)]
    replace: bool,
    /// Bytes of a packet on the wire that the kernel does not count: 24 on Ethernet [default: 0]
    #[arg(long, value_name = "BYTES")]
    overhead: Option<u16>,
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
    /// With --follow: answer Prometheus at http://ADDR:PORT/metrics
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::address, requires = "follow",
        conflicts_with_all = ["show", "relearn", "dry_run"])]
    metrics_listen: Option<SocketAddr>,
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
    let (device, options) = options(args)?;
    if args.show {
        let shown = attach::show(&device)?;
        write_metrics(args.metrics_file.as_deref(), &shown)?;
        return Ok(if args.json { as_json(&shown) } else { format!("{shown}\n") });
    }
    if args.relearn {
        return Ok(format!("{device}: {}\n", attach::relearn(&device)?));
    }
    // The address is bound first, so that nothing is changed if it is taken.
    let port = args.metrics_listen.map(MetricsPort::bind).transpose()?;
    let mut text = String::new();
    if let Some(options) = &options {
        if args.dry_run {
            return Ok(attach::commands(options)?.iter().map(|line| format!("{line}\n")).collect());
        }
        text = format!("{}\n", attach::attach(options)?);
    }
    if args.follow {
        if let Some(port) = port {
            text += &format!("{device}: metrics on http://{}/metrics\n", port.address());
            port.answer(device.clone())?;
        }
        output::print(text.as_bytes());
        follow(args, &device, options.is_some_and(|options| !options.cutoffs_bytes.is_empty()))?;
        return Ok(String::new());
    }
    Ok(text)
}

/// Runs `serpent detach`, and returns the text to print.
pub fn detach(args: &DetachArgs) -> Result<String, Failure> {
    Ok(format!("{}\n", attach::detach(&args.device)?))
}

/// The device, and how to attach it, from flags and file; `None` if neither has a rate.
fn options(args: &AttachArgs) -> Result<(String, Option<AttachOptions>), Failure> {
    let from_file = match &args.config {
        Some(file) => match config::load_attach(file).map_err(Failure::Configuration)? {
            Some(options) => Some(options),
            None => return Err(Failure::Usage(format!("{} has no `[attach]`", file.display()))),
        },
        None => None,
    };
    let device = args.device.clone().or_else(|| from_file.as_ref().map(|options| options.device.clone()));
    let Some(device) = device.filter(|device| !device.is_empty()) else {
        let problem =
            "no device is named: give one, as in `serpent attach eth0`, or `device` in `[attach]` of the file";
        return Err(Failure::Usage(problem.to_owned()));
    };
    let rate = args.rate.map(Rate::bits_per_second);
    let new = |rate| AttachOptions::new(&device, rate, AttachOptions::PORTS.to_vec());
    let Some(mut options) = from_file.or_else(|| rate.map(new)) else { return Ok((device, None)) };
    options.device.clone_from(&device);
    options.rate_bits_per_second = rate.unwrap_or(options.rate_bits_per_second);
    options.overhead_bytes = args.overhead.unwrap_or(options.overhead_bytes);
    options.replace |= args.replace;
    if args.others_last {
        options.others = Others::Last;
    }
    if !args.ports.is_empty() {
        options.ports.clone_from(&args.ports);
    }
    if !args.cutoffs.is_empty() {
        options.cutoffs_bytes.clone_from(&args.cutoffs);
    }
    if !args.classes.is_empty() {
        options.classes.clone_from(&args.classes);
    }
    if args.server_user.is_some() {
        options.server_user.clone_from(&args.server_user);
    }
    Ok((device, Some(options)))
}

/// Learns until a signal comes. Given cutoffs stay.
fn follow(args: &AttachArgs, device: &str, has_cutoffs: bool) -> Result<(), Failure> {
    let mut signals = Signals::new(TERM_SIGNALS).map_err(|error| Failure::Run(format!("signals: {error}")))?;
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = tell.send(());
        }
    });
    loop {
        if !has_cutoffs {
            let learned = attach::relearn(device)?;
            if learned.changed {
                output::print(format!("{device}: {learned}\n").as_bytes());
            }
        }
        if args.metrics_file.is_some() {
            write_metrics(args.metrics_file.as_deref(), &attach::show(device)?)?;
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
