//! Starts a subject: its bottleneck, its command, its configuration.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    net::SocketAddr,
    path::Path,
    process::Command,
};

use super::{
    APACHE, CADDY, Environment, NGINX, Protocols, Running, Subject,
    config::{self, Filling},
    find,
};
use crate::{LabError, bed::SERVER, temporary};

impl Subject {
    /// Sets up the bottleneck of the bed: the plain one, or the one that Serpent makes, for its kernel mode and for the
    /// servers that it is attached to.
    pub fn prepare(&self, environment: &Environment) -> Result<(), LabError> {
        if !self.shapes_the_uplink() {
            return environment.bed.shape();
        }
        let (_, device) = environment.bed.server_device();
        let rate = match self {
            Self::Serpent { uplink: Some(rate), .. } => rate.clone(),
            _ => environment.bed.config().rate.to_string(),
        };
        let mut install = Command::new(environment.serpent);
        install.args(["attach", device, "--rate", &rate, "--ports", &environment.port.to_string(), "--replace"]);
        let shown = show(&install);
        let out = {
            let _inside = environment.bed.server().enter().map_err(LabError::io("cannot enter a namespace"))?;
            install.output().map_err(LabError::io(format!("cannot run `{shown}`")))?
        };
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr);
            return Err(LabError::Subject(format!("`{shown}` failed: {}", said.trim())));
        }
        Ok(())
    }

    /// Starts the server and waits until it answers in every protocol of its clients.
    pub fn start(&self, environment: &Environment) -> Result<Running, LabError> {
        self.can(environment.setting)?;
        let protocols = Protocols::of(environment.setting)?;
        let work =
            temporary::directory(0o755).map_err(LabError::io("cannot make a directory for the server's own files"))?;
        let command = self.command(environment, protocols, work.path())?;
        let shown = show(&command);
        Running::spawn(command, shown, work, environment, protocols, matches!(self, Self::Serpent { .. }))
    }

    /// The identity of the program's build: its reported version, and size and checksum of its file. `None`
    /// if neither is available.
    pub fn version(&self, serpent: &Path) -> Option<String> {
        let (program, flag) = match self.server() {
            Self::Nginx { .. } => (Path::new(NGINX), Some("-v")),
            Self::Apache { .. } => (Path::new(APACHE), Some("-v")),
            Self::Caddy => (Path::new(CADDY), Some("version")),
            Self::Serpent { .. } => (serpent, Some("--version")),
            // The command's first word; if it is a shell builtin, there is no version.
            Self::Command(line) => (Path::new(line.split_whitespace().next()?), None),
            Self::Attached(_) => return None,
        };
        version_of(program, flag)
    }

    fn command(&self, environment: &Environment, protocols: Protocols, work: &Path) -> Result<Command, LabError> {
        let listen = SocketAddr::from((SERVER, environment.port));
        let accept_queue = environment.setting.server.accept_queue;
        let filling = Filling {
            listen,
            accept_queue,
            root: environment.root,
            work,
            protocols,
            certificate: environment.certificate,
        };
        let write = |name: &str, text: &str| {
            let file = work.join(name);
            fs::write(&file, text).map_err(LabError::io(format!("cannot write {}", file.display()))).map(|()| file)
        };
        match self {
            Self::Attached(server) => server.command(environment, protocols, work),
            Self::Nginx { workers } => {
                let file = write("nginx.conf", &config::nginx(&filling, workers))?;
                let mut command = Command::new(NGINX);
                command.arg("-e").arg("stderr").arg("-p").arg(work).arg("-c").arg(file);
                Ok(command)
            }
            Self::Apache { workers, processes } => {
                let file = write("apache.conf", &config::apache(&filling, *workers, *processes))?;
                let mut command = Command::new(APACHE);
                command.arg("-D").arg("FOREGROUND").arg("-f").arg(file);
                Ok(command)
            }
            Self::Caddy => {
                let file = write("Caddyfile", &config::caddy(&filling))?;
                let mut command = Command::new(CADDY);
                command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
                // Its own files stay in this directory.
                command.env("HOME", work).env_remove("XDG_DATA_HOME").env_remove("XDG_CONFIG_HOME");
                Ok(command)
            }
            Self::Serpent { order, enforce, uplink, workers, guard, config } => {
                let uplink = uplink.clone().unwrap_or_else(|| environment.bed.config().rate.to_string());
                let config = match config {
                    Some(file) => file.clone(),
                    None => write("serpent.toml", config::serpent())?,
                };
                let mut command = Command::new(environment.serpent);
                command.arg("serve").arg(environment.root).arg("--config").arg(config);
                command.args(["--listen", &listen.to_string(), "--uplink", &uplink]);
                command.args(["--order", order, "--enforce", enforce]);
                for (flag, value) in [("--workers", workers), ("--guard", guard)] {
                    if let Some(value) = value {
                        command.args([flag, value]);
                    }
                }
                if protocols.tls {
                    command.arg("--tls-cert").arg(environment.certificate.certificate_file());
                    command.arg("--tls-key").arg(environment.certificate.key_file());
                }
                Ok(command)
            }
            Self::Command(line) => {
                let mut command = Command::new("/bin/sh");
                command
                    .arg("-c")
                    .arg(format!("exec {}", fill_in(line, &filling, &environment.bed.config().rate.to_string())));
                Ok(command)
            }
        }
    }
}

/// The same for any program: its reported version, size and checksum.
pub(crate) fn version_of(program: &Path, flag: Option<&str>) -> Option<String> {
    let said = flag.and_then(|flag| said_of_version(program, flag));
    let said = said.unwrap_or_else(|| program.display().to_string());
    let file = find(program)?;
    let (bytes, checksum) = checksum(&file).ok()?;
    Some(format!("{said} ({} of {bytes} bytes, CRC-32 {checksum:08x})", file.display()))
}

fn said_of_version(program: &Path, flag: &str) -> Option<String> {
    let out = Command::new(program).arg(flag).output().ok()?;
    let text = String::from_utf8_lossy(if out.stdout.is_empty() { &out.stderr } else { &out.stdout }).into_owned();
    Some(text.lines().next()?.trim().to_owned())
}

/// Size and CRC-32 of a file: enough to distinguish builds, since forgery is no concern here.
fn checksum(file: &Path) -> io::Result<(u64, u32)> {
    let mut file = File::open(file)?;
    let (mut sum, mut bytes, mut piece) = (crc32fast::Hasher::new(), 0, vec![0; 1 << 16]);
    loop {
        let read = match file.read(&mut piece) {
            Ok(0) => return Ok((bytes, sum.finalize())),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        sum.update(&piece[..read]);
        bytes += read as u64;
    }
}

fn fill_in(line: &str, filling: &Filling, rate: &str) -> String {
    line.replace("{dir}", &filling.root.display().to_string())
        .replace("{listen}", &filling.listen.to_string())
        .replace("{ip}", &filling.listen.ip().to_string())
        .replace("{port}", &filling.listen.port().to_string())
        .replace("{rate}", rate)
        .replace("{cert}", &filling.certificate.certificate_file().display().to_string())
        .replace("{key}", &filling.certificate.key_file().display().to_string())
}

/// A command as a shell line.
pub(crate) fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        if word.contains(char::is_whitespace) { format!("'{word}'") } else { word.into_owned() }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Certificate;

    #[test]
    fn a_command_is_filled_in() {
        let certificate = Certificate::make().unwrap();
        let filling = Filling {
            listen: SocketAddr::from((SERVER, 80)),
            accept_queue: 5,
            root: Path::new("/d"),
            work: Path::new("/w"),
            protocols: Protocols::default(),
            certificate: &certificate,
        };
        assert_eq!(
            fill_in("x {dir} {listen} {ip} {port} {rate}", &filling, "10mbit"),
            "x /d 10.77.0.1:80 10.77.0.1 80 10mbit"
        );
        let key = certificate.key_file().display().to_string();
        assert_eq!(fill_in("{key}", &filling, "10mbit"), key);
    }

    #[test]
    fn builds_of_one_version_are_told_apart() {
        let dir = temporary::directory(0o700).unwrap();
        let program = dir.path().join("server");
        let version = |content: &str| {
            fs::write(&program, content).unwrap();
            Subject::Command(format!("{} {{dir}}", program.display())).version(Path::new("serpent")).unwrap()
        };
        // The check value of this CRC.
        assert!(version("123456789").ends_with("of 9 bytes, CRC-32 cbf43926)"));
        assert_ne!(version("123456780"), version("123456789"));
        assert_eq!(Subject::Command("/no/such/server {dir}".to_owned()).version(Path::new("serpent")), None);
    }

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec x y"]);
        assert_eq!(show(&command), "/bin/sh -c 'exec x y'");
    }
}
