//! Why a device could not be attached or detached: who is at fault, and what to do.

use std::{fmt, io, path::PathBuf};

/// Why a device could not be attached, detached or shown.
#[derive(Debug)]
pub enum AttachError {
    /// The operator's option is not possible.
    Option {
        /// Its name.
        option: &'static str,
        /// The problem with it.
        problem: String,
    },
    /// There is no such network device in this network namespace.
    NoDevice {
        /// The name asked for.
        device: String,
    },
    /// The device has a queueing discipline of another program or person.
    Foreign {
        /// The device.
        device: String,
        /// The discipline found.
        found: String,
    },
    /// The device has bands of Serpent's without a classifier, which an earlier version made.
    Bands {
        /// The device.
        device: String,
    },
    /// The device's disciplines have filters and could not be put back later, so they are not replaced.
    NotRestorable {
        /// The device.
        device: String,
        /// The discipline found.
        found: String,
    },
    /// The device is not attached.
    NotAttached {
        /// The device.
        device: String,
        /// The discipline found.
        found: String,
    },
    /// Not enough privileges.
    NotPermitted {
        /// The refused action.
        what: String,
    },
    /// The kernel lacks something.
    Kernel {
        /// The missing part, and the remedy.
        lacks: String,
    },
    /// The kernel refused a step.
    Refused {
        /// The step, as `tc` would say it.
        step: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The classifier could not be loaded.
    Program {
        /// The answer of the loader or the kernel.
        problem: String,
    },
    /// The earlier state of the device cannot be kept.
    Earlier {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The kernel's traffic control does not answer.
    Netlink(io::Error),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option { option, problem } => write!(f, "--{option}: {problem}"),
            Self::NoDevice { device } => write!(
                f,
                "there is no network device {device:?} here; `ip -br link` lists them (in a namespace: `ip netns exec NAME \
                 ip -br link`)"
            ),
            Self::Foreign { device, found } => write!(
                f,
                "{device} has {found}, which another program or person configured; --replace replaces it, and `serpent \
                 detach {device}` puts it back"
            ),
            Self::Bands { device } => write!(
                f,
                "{device} has bands that an earlier version of Serpent made with `serpent uplink install`; --replace \
                 replaces them"
            ),
            Self::NotRestorable { device, found } => write!(
                f,
                "{device} has {found} with filters, which could not be put back later; remove it first with `tc qdisc del \
                 dev {device} root`, if nobody needs it"
            ),
            Self::NotAttached { device, found } => {
                write!(f, "{device} is not attached; its queueing discipline is {found}")
            }
            Self::NotPermitted { what } => {
                write!(f, "not permitted to {what}: run it as root, or with CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON")
            }
            Self::Kernel { lacks } => write!(f, "this kernel cannot do it, and nothing was changed: {lacks}"),
            Self::Refused { step, source } => write!(f, "the kernel refused `{step}`: {source}"),
            Self::Program { problem } => {
                write!(f, "the classifier could not be loaded, and nothing was changed: {problem}")
            }
            Self::Earlier { path, source } => {
                write!(f, "the earlier state of the device cannot be kept in {}: {source}", path.display())
            }
            Self::Netlink(error) => write!(f, "the kernel's traffic control does not answer: {error}"),
        }
    }
}

impl std::error::Error for AttachError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused { source, .. } | Self::Earlier { source, .. } | Self::Netlink(source) => Some(source),
            _ => None,
        }
    }
}

impl From<io::Error> for AttachError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted { what: "change the traffic control".into() },
            _ => Self::Netlink(error),
        }
    }
}
