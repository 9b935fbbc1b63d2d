//! The side of a server: finds the map of an attached device, and writes what its connections send.

use std::{fmt, io, os::fd::AsFd};

use aya::maps::Map;
use kernel::bpf::SocketStorage;

use crate::{
    attach::{Root, root},
    error::AttachError,
    netlink::Netlink,
    pins,
    plan::MAJOR,
    program::Running,
    response_rank::{RANKS_BYTES, ResponseRank},
};

/// Tells the classifier of an attached device what connections send.
#[derive(Debug)]
pub struct Teller {
    storage: SocketStorage<RANKS_BYTES>,
    device: String,
}

impl Teller {
    /// Finds the classifier of the named device, or of the only attached one in this network namespace. Opens its map by
    /// the file that [`attach`](crate::attach) made for the user of this process, or else by its number.
    pub fn find(device: Option<&str>) -> Result<Self, TellError> {
        let netlink = Netlink::open()?;
        let mut found = Vec::new();
        for index in netlink.devices_with(MAJOR << 16)? {
            let name = netlink.name(index)?;
            if device.is_some_and(|device| device != name) {
                continue;
            }
            let Root::Ours(Some(program)) = root(&netlink, &netlink.device(&name)?)? else { continue };
            found.push((name, index, program));
        }
        if found.len() > 1 {
            return Err(TellError::Several { devices: found.into_iter().map(|(name, ..)| name).collect() });
        }
        let Some((name, index, program)) = found.pop() else {
            return Err(TellError::NotAttached { device: device.map(str::to_owned) });
        };
        let storage = match SocketStorage::open(&pins::path(index)) {
            Ok(storage) => storage,
            Err(refusal) => match by_number(program) {
                Ok(storage) => storage,
                Err(AttachError::NotPermitted { .. }) => return Err(TellError::refused(name, &refusal)),
                Err(error) => return Err(TellError::Unusable { device: name, problem: error.to_string() }),
            },
        };
        Ok(Self { storage, device: name })
    }

    /// The device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Tells what a connection sends: the last words, in the order of the places from which they hold. It is one call into
    /// the kernel, which does not wait.
    pub fn tell(&self, socket: impl AsFd, words: &[ResponseRank]) -> io::Result<()> {
        self.storage.set(socket, &ResponseRank::to_value(words))
    }
}

/// Opens the map by the number of its program, which takes CAP_SYS_ADMIN.
fn by_number(program: u32) -> Result<SocketStorage<RANKS_BYTES>, AttachError> {
    let unusable = |problem: String| AttachError::Program { problem };
    let Map::SkStorage(map) = Running::find(program)?.told()? else {
        return Err(unusable("its map is of another type".into()));
    };
    let map = map.fd().as_fd().try_clone_to_owned()?;
    SocketStorage::new(map).map_err(|error| unusable(error.to_string()))
}

/// Why a server cannot tell the classifier of its responses.
#[derive(Debug)]
pub enum TellError {
    /// No device is attached, or not the one that was named.
    NotAttached {
        /// The device, if one was named.
        device: Option<String>,
    },
    /// Several devices are attached, and none was named.
    Several {
        /// Their names.
        devices: Vec<String>,
    },
    /// There is no file for the user of this process, and it may not open the map by its number.
    NoFile {
        /// The device.
        device: String,
    },
    /// The file is of another user.
    OtherUser {
        /// The device.
        device: String,
    },
    /// The kernel closes bpf(2) to users without privileges.
    Closed {
        /// The device.
        device: String,
    },
    /// The map is of another version of Serpent.
    Unusable {
        /// The device.
        device: String,
        /// The error when the map was opened.
        problem: String,
    },
    /// The kernel's traffic control does not answer.
    Netlink(io::Error),
}

impl TellError {
    /// The file could not be opened, nor the map without it.
    fn refused(device: String, refusal: &io::Error) -> Self {
        const EPERM: i32 = 1;
        const EACCES: i32 = 13;
        match refusal.raw_os_error() {
            Some(EACCES) => Self::OtherUser { device },
            Some(EPERM) => Self::Closed { device },
            _ if refusal.kind() == io::ErrorKind::NotFound => Self::NoFile { device },
            _ => Self::Unusable { device, problem: refusal.to_string() },
        }
    }
}

impl From<io::Error> for TellError {
    fn from(error: io::Error) -> Self {
        Self::Netlink(error)
    }
}

impl fmt::Display for TellError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAttached { device } => {
                match device {
                    Some(device) => write!(f, "{device} is not attached")?,
                    None => f.write_str("no device is attached")?,
                }
                let device = device.as_deref().unwrap_or("DEV");
                write!(f, "; once, as root: serpent attach {device} --rate RATE --ports PORTS --server-user USER")
            }
            Self::Several { devices } => {
                write!(f, "several devices are attached ({}); say which one with `device`", devices.join(", "))
            }
            Self::NoFile { device } => write!(
                f,
                "{device} is attached, but not for the user of this server; as root: serpent attach {device} --rate RATE \
                 --ports PORTS --server-user USER, or give the server CAP_SYS_ADMIN"
            ),
            Self::OtherUser { device } => write!(
                f,
                "{device} is attached for another user than that of this server; as root: serpent attach {device} --rate \
                 RATE --ports PORTS --server-user USER"
            ),
            Self::Closed { device } => write!(
                f,
                "{device} is attached for this user, but the kernel closes bpf(2) to users without privileges; give the \
                 server CAP_BPF, or use Linux 5.19 or later, or as root: sysctl kernel.unprivileged_bpf_disabled=0"
            ),
            Self::Unusable { device, problem } => write!(
                f,
                "{device} is attached by another version of Serpent, or in a way that this one cannot use ({problem}); as \
                 root: serpent detach {device}, and serpent attach {device} again"
            ),
            Self::Netlink(error) => write!(f, "the kernel's traffic control does not answer: {error}"),
        }
    }
}

impl std::error::Error for TellError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Netlink(error) = self { Some(error) } else { None }
    }
}
