//! `serpent uplink`: the kernel's priority bands on a device.

use kernel::bands::{self, BandsError, InstallOptions, Shown};

use crate::args::UplinkCommand;

/// Does it, and returns what to print.
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
    // Plain numbers and texts under fixed names cannot fail to be written.
    serde_json::to_string_pretty(shown).map(|text| text + "\n").unwrap_or_default()
}

fn as_text(shown: &[Shown]) -> String {
    if shown.is_empty() {
        return "No device has bands. `serpent uplink install DEV --rate RATE` sets them up.\n".to_owned();
    }
    shown.iter().map(|device| format!("{device}\n")).collect()
}
