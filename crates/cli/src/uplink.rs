//! `serpent uplink`: the kernel's priority bands on a device.

use clap::Subcommand;
use kernel::bands::{self, BandsError, InstallOptions, Qdisc, Shown};
use scheduler::Rate;

use crate::values::{self, named};

/// The commands on the bands.
#[derive(Debug, Subcommand)]
pub enum UplinkCommand {
    /// Shape a device to a rate, with eight strict priority bands
    ///
    /// Band 0 is for packets that no response may delay: SYN-ACKs, ARP, and all traffic that is not
    /// Serpent's. A foreign queueing discipline is never replaced without --replace. The bands need no
    /// running server: if the server crashes, the network keeps working.
    #[command(after_long_help = "\
Examples:
  serpent uplink install eth0 --rate 97mbit     # in front of a modem or router of 100 Mbit/s
  serpent uplink show eth0
  serpent uplink remove eth0

Give a rate a little below that of the bottleneck: where the queue stands is where the order is made.")]
    Install {
        /// The device
        #[arg(value_name = "DEV")]
        device: String,
        /// The rate to shape to, as in 97mbit
        #[arg(long, value_name = "RATE", value_parser = values::rate)]
        rate: Rate,
        /// Replace a queueing discipline that another program or person has set up
        #[arg(long)]
        replace: bool,
        /// The queueing discipline; `auto` takes the first that this kernel has
        #[arg(long, value_name = "auto|htb|prio", value_parser = named::<Qdisc>(), default_value = "auto")]
        qdisc: Qdisc,
    },
    /// Show the bands and their traffic
    Show {
        /// The device; all devices with bands if left out
        #[arg(value_name = "DEV")]
        device: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove the bands
    Remove {
        /// The device
        #[arg(value_name = "DEV")]
        device: String,
    },
}

/// Runs the command, and returns the text to print.
pub fn uplink(command: UplinkCommand) -> Result<String, BandsError> {
    match command {
        UplinkCommand::Install { device, rate, replace, qdisc } => {
            let options = InstallOptions { qdisc, replace, ..InstallOptions::new(device, rate.bits_per_second()) };
            bands::install(&options).map(|installed| format!("{installed}\n"))
        }
        UplinkCommand::Show { device, json } => {
            let shown = bands::show(device.as_deref())?;
            Ok(if json { as_json(&shown) } else { as_text(&shown) })
        }
        UplinkCommand::Remove { device } => bands::remove(&device).map(|removed| format!("{removed}\n")),
    }
}

fn as_json(shown: &[Shown]) -> String {
    // Serializing plain numbers and texts under fixed names cannot fail.
    serde_json::to_string_pretty(shown).map(|text| text + "\n").unwrap_or_default()
}

fn as_text(shown: &[Shown]) -> String {
    if shown.is_empty() {
        return "No device has bands. `serpent uplink install DEV --rate RATE` sets them up.\n".to_owned();
    }
    shown.iter().map(|device| format!("{device}\n")).collect()
}
