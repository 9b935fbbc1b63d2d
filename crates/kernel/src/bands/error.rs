//! Errors of bands: the cause, the party at fault, and the remedy.

use std::{fmt, io, path::PathBuf};

/// Why bands could not be installed, shown or removed.
#[derive(Debug)]
pub enum BandsError {
    /// The operator's option is not possible.
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// The problem with it.
        problem: String,
    },
    /// This process may not change traffic control.
    NotPermitted {
        /// The refused action.
        what: String,
    },
    /// There is no such network device.
    NoDevice {
        /// The name asked for.
        device: String,
    },
    /// Another program or person configured a queueing discipline on the device.
    ForeignQdisc {
        /// The device.
        device: String,
        /// The discipline found, as `tc` prints it.
        found: String,
    },
    /// The device has no bands of Serpent.
    NotInstalled {
        /// The device.
        device: String,
        /// The discipline found, as `tc` prints it.
        found: String,
    },
    /// Several devices have bands of Serpent, and none was named.
    SeveralDevices {
        /// Their names.
        devices: Vec<String>,
    },
    /// A program of iproute2 is missing.
    ToolMissing {
        /// Its name.
        tool: &'static str,
    },
    /// The kernel, or its tool, refused a command.
    Kernel {
        /// The command.
        command: String,
        /// The tool's message.
        said: String,
    },
    /// The output of the kernel's tool could not be parsed: another version, or our bug.
    NotUnderstood {
        /// The command.
        command: String,
        /// The part that could not be parsed.
        problem: String,
    },
    /// The saved earlier state of the device cannot be read or written.
    Memory {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Undoing the changes failed as well.
    RollBack {
        /// Why the changes had to be undone.
        first: Box<BandsError>,
        /// Why undoing them failed.
        then: Box<BandsError>,
        /// The device.
        device: String,
    },
    /// This operating system has no such bands.
    UnsupportedSystem,
}

impl fmt::Display for BandsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidOption { option, problem } => write!(f, "{option}: {problem}"),
            Self::NotPermitted { what } => write!(
                f,
                "not permitted to {what}: run it as root or with CAP_NET_ADMIN (`sudo serpent uplink ...`); without \
                 privileges, use `--enforce server`"
            ),
            Self::NoDevice { device } => {
                write!(f, "there is no network device {device:?}: `ip link` lists the devices")
            }
            Self::ForeignQdisc { device, found } => write!(
                f,
                "{device} has a queueing discipline that Serpent did not install ({found}): remove it (`tc qdisc del dev \
                 {device} root`) or let it be replaced with `--replace`"
            ),
            Self::NotInstalled { device, found } => write!(
                f,
                "{device} has no bands of Serpent ({found}): nothing was changed; `serpent uplink install` installs them"
            ),
            Self::SeveralDevices { devices } => {
                write!(f, "several devices have bands of Serpent ({}): say which one", devices.join(", "))
            }
            Self::ToolMissing { tool } => write!(
                f,
                "the program `{tool}` is missing: install the package iproute2 (Debian, Ubuntu, Alpine, Arch), iproute-tc \
                 (Fedora, RHEL)"
            ),
            Self::Kernel { command, said } => {
                write!(f, "the kernel refused `{command}`: {said}")?;
                if said.contains("kind is unknown") {
                    f.write_str(
                        " (the kernel lacks the module for it, sch_htb or else sch_prio and sch_tbf: install the kernel's \
                         full set of modules, or use `--enforce server`)",
                    )?;
                }
                Ok(())
            }
            Self::NotUnderstood { command, problem } => {
                write!(f, "the answer of `{command}` is not understood: {problem}; please report it with `tc -V`")
            }
            Self::Memory { path, source } => write!(
                f,
                "cannot keep the note of the device's earlier settings in {}: {source}; nothing was changed",
                path.display()
            ),
            Self::RollBack { first, then, device } => write!(
                f,
                "{first}; and what was done before could not be undone: {then}; `tc qdisc del dev {device} root` restores \
                 the kernel's default"
            ),
            Self::UnsupportedSystem => f.write_str("priority bands need Linux: use `--enforce server` on this system"),
        }
    }
}

impl std::error::Error for BandsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Memory { source, .. } => Some(source),
            Self::RollBack { first, .. } => Some(first),
            _ => None,
        }
    }
}
