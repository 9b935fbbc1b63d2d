//! Why bands could not be shown: the cause, and the remedy.

use std::fmt;

/// Why bands could not be shown.
#[derive(Debug)]
pub enum BandsError {
    /// This process may not ask the kernel's traffic control.
    NotPermitted {
        /// The refused action.
        what: String,
    },
    /// There is no such network device.
    NoDevice {
        /// The name asked for.
        device: String,
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
    /// The system is not Linux.
    UnsupportedSystem,
}

impl fmt::Display for BandsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted { what } => write!(f, "not permitted to {what}"),
            Self::NoDevice { device } => write!(f, "there is no network device {device:?} here"),
            Self::ToolMissing { tool } => write!(
                f,
                "the program `{tool}` is missing: install the package iproute2 (Debian, Ubuntu, Alpine, Arch), iproute-tc \
                 (Fedora, RHEL)"
            ),
            Self::Kernel { command, said } => write!(f, "the kernel refused `{command}`: {said}"),
            Self::NotUnderstood { command, problem } => {
                write!(f, "the answer of `{command}` is not understood: {problem}; please report it with `tc -V`")
            }
            Self::UnsupportedSystem => f.write_str("priority bands need Linux"),
        }
    }
}

impl std::error::Error for BandsError {}
