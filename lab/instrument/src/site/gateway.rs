//! Starts and stops a gateway.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{config, plan::Plan, subject::Subject};
use crate::{
    LabError,
    subject::{BUILD_SERPENT, Running, find, show, version_of},
    temporary,
};

/// A running gateway, or none.
#[derive(Debug)]
pub(super) struct Gateway {
    /// The address for users' requests.
    pub(super) address: SocketAddr,
    /// The address that reports its windows, if it adjusts them.
    pub(super) admin: Option<SocketAddr>,
    running: Option<Running>,
}

/// The programs of gateways.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) serpent: PathBuf,
    /// The port of the gateway; any free one if not given.
    pub(super) port: Option<u16>,
}

const HAPROXY: &str = "haproxy";
/// Debian installs it where only root's PATH leads.
const HAPROXY_FILE: &str = "/usr/sbin/haproxy";
const PATIENCE: Duration = Duration::from_secs(1);

impl Programs {
    /// Checks that a subject's program exists.
    pub(super) fn have(&self, subject: &Subject) -> Result<(), LabError> {
        match subject {
            Subject::HaProxy { .. } if find(&haproxy()).is_none() => {
                Err(LabError::Machine("`haproxy` is not there; it is in Debian's package haproxy".to_owned()))
            }
            Subject::Uncontrolled | Subject::Single { .. } | Subject::Multi { .. } if find(&self.serpent).is_none() => {
                Err(LabError::Machine(format!("`{}` is not there{BUILD_SERPENT}", self.serpent.display())))
            }
            _ => Ok(()),
        }
    }

    /// The identity of the subject's build.
    pub(super) fn version(&self, subject: &Subject) -> Option<String> {
        match subject {
            Subject::Direct => None,
            Subject::HaProxy { .. } => version_of(&haproxy(), Some("-v")),
            _ => version_of(&self.serpent, Some("--version")),
        }
    }

    fn address(&self) -> Result<SocketAddr, LabError> {
        free(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.unwrap_or(0))))
    }
}

/// A free address.
fn free(asked: SocketAddr) -> Result<SocketAddr, LabError> {
    let free = TcpListener::bind(asked).and_then(|listener| listener.local_addr());
    free.map_err(|error| LabError::Request(format!("the gateway cannot have {asked}: {error}; another port: --port")))
}

impl Gateway {
    /// Starts it and waits until it listens. Its configuration is stored as `kept`, with the file's
    /// extension.
    pub(super) fn start(plan: &Plan, subject: &Subject, programs: &Programs, kept: &Path) -> Result<Self, LabError> {
        if *subject == Subject::Direct {
            return Ok(Self { address: plan.site.address, admin: None, running: None });
        }
        let address = programs.address()?;
        let work = temporary::directory(0o700).map_err(LabError::io("cannot make a folder for the gateway"))?;
        let admin = if subject.adjusts() { Some(free(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?) } else { None };
        let Some((file, command)) = write(plan, subject, address, admin, work.path(), programs)? else {
            return Ok(Self { address: plan.site.address, admin: None, running: None });
        };
        keep(&file, kept)?;
        let shown = show(&command);
        let promises_a_line = !matches!(subject, Subject::HaProxy { .. });
        let ask = || TcpStream::connect_timeout(&address, PATIENCE).map(drop);
        let running = Running::spawn_here(command, shown, work, promises_a_line, address, &ask)?;
        Ok(Self { address, admin, running: Some(running) })
    }

    /// The reason if it has ended by itself; then it is no longer valid.
    pub(super) fn has_ended(&mut self) -> Option<String> {
        let running = self.running.as_mut()?;
        running.has_ended().then(|| format!("the gateway has ended; it said: {}", running.last_words()))
    }

    pub(super) fn stop(self) {
        if let Some(running) = self.running {
            running.stop();
        }
    }
}

/// Writes only the configuration, for inspection.
pub(super) fn write_only(
    plan: &Plan,
    subject: &Subject,
    programs: &Programs,
    kept: &Path,
) -> Result<Option<PathBuf>, LabError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, programs.port.unwrap_or(8090)));
    let Some((name, text)) = config::of(plan, subject, address, None) else { return Ok(None) };
    let file = kept_as(Path::new(name), kept);
    fs::write(&file, text).map_err(LabError::io(format!("cannot write {}", file.display())))?;
    Ok(Some(file))
}

fn write(
    plan: &Plan,
    subject: &Subject,
    address: SocketAddr,
    admin: Option<SocketAddr>,
    work: &Path,
    programs: &Programs,
) -> Result<Option<(PathBuf, Command)>, LabError> {
    let Some((name, text)) = config::of(plan, subject, address, admin) else { return Ok(None) };
    let file = work.join(name);
    fs::write(&file, text).map_err(LabError::io(format!("cannot write {}", file.display())))?;
    let mut command;
    if let Subject::HaProxy { .. } = subject {
        command = Command::new(haproxy());
        command.arg("-db").arg("-f").arg(&file);
    } else {
        command = Command::new(&programs.serpent);
        command.arg("serve").arg("--config").arg(&file);
    }
    Ok(Some((file, command)))
}

fn keep(file: &Path, kept: &Path) -> Result<(), LabError> {
    let kept = kept_as(file, kept);
    fs::copy(file, &kept).map(drop).map_err(LabError::io(format!("cannot write {}", kept.display())))
}

fn kept_as(file: &Path, kept: &Path) -> PathBuf {
    let mut name = kept.as_os_str().to_owned();
    name.push(".");
    name.push(file.extension().unwrap_or_default());
    name.into()
}

fn haproxy() -> PathBuf {
    let named = PathBuf::from(HAPROXY);
    if find(&named).is_some() { named } else { PathBuf::from(HAPROXY_FILE) }
}
