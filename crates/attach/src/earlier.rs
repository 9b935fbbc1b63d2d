//! The state of a device before it was attached, kept in `/run/serpent/attach-DEVICE@NAMESPACE.json` until it is
//! detached. NAMESPACE is the inode of the network namespace. A device of the same name that was made anew has another
//! number, and its file does not count.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    error::AttachError,
    netlink::Found,
    plan::{Step, Subject},
};

const DIRECTORY: &str = "/run/serpent";

/// The state of a device before it was attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Earlier {
    pub device_index: i32,
    pub gso_max_segs: u32,
    /// The length of the device's queues; `None`: an earlier version of Serpent attached it, and left the queues as they were.
    #[serde(default)]
    pub queue_packets: Option<u32>,
    /// The disciplines and classes that another program or person configured, from the root on.
    pub queues: Vec<Queue>,
}

/// A discipline or class as the kernel described it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Queue {
    is_class: bool,
    parent: u32,
    handle: u32,
    kind: String,
    options: Vec<u8>,
}

impl Queue {
    pub fn new(is_class: bool, found: Found) -> Self {
        let mut found = found;
        if !is_class && found.kind == "htb" {
            // The kernel tells its version in full, and takes it back only in short: TCA_HTB_INIT begins with it.
            if let Some(version) = found.options.get_mut(4..8) {
                version.copy_from_slice(&3u32.to_ne_bytes());
            }
        }
        Self { is_class, parent: found.parent, handle: found.handle, kind: found.kind, options: found.options }
    }

    /// The message that makes it.
    pub fn step(&self) -> Step {
        Step {
            subject: if self.is_class { Subject::Class } else { Subject::Qdisc },
            is_deletion: false,
            parent: self.parent,
            handle: self.handle,
            info: 0,
            kind: self.kind.clone(),
            options: self.options.clone(),
            words: String::new(),
        }
    }

    /// The name and handle, as `tc` prints them.
    pub fn words(&self) -> String {
        format!("{} {:x}:", self.kind, self.handle >> 16)
    }
}

impl Earlier {
    /// That of a device; `None` if there is none, or it is of another device.
    pub fn load(device: &str, index: i32) -> Option<Self> {
        let text = fs::read(path(device)).ok()?;
        serde_json::from_slice::<Self>(&text).ok().filter(|earlier| earlier.device_index == index)
    }

    /// Keeps it, so that a crash leaves the old version or the new one.
    pub fn save(&self, device: &str) -> Result<(), AttachError> {
        let path = path(device);
        let write = || -> io::Result<()> {
            fs::create_dir_all(DIRECTORY)?;
            let unfinished = path.with_extension(format!("json.{}", std::process::id()));
            fs::write(&unfinished, serde_json::to_vec(self)?)?;
            fs::rename(&unfinished, &path)
        };
        write().map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => AttachError::NotPermitted { what: format!("write {}", path.display()) },
            _ => AttachError::Earlier { path: path.clone(), source },
        })
    }

    /// Forgets that of a device.
    pub fn forget(device: &str) {
        // A file that stays behind does no harm: a later attach writes it anew, and detach needs the queues to be there.
        let _ = fs::remove_file(path(device));
    }
}

fn path(device: &str) -> PathBuf {
    let namespace = fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino());
    PathBuf::from(DIRECTORY).join(format!("attach-{device}@{namespace}.json"))
}
