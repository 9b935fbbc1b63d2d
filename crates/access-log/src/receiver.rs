//! Receivers of lines on sockets: syslog (RFC 3164 and RFC 5424), and the journal of systemd by its native protocol.
//!
//! Nothing here waits for a receiver. Messages that it does not take at once are kept, up to a bound.

use std::{
    collections::VecDeque,
    io::{self, Write as _},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket},
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process,
    time::SystemTime,
};

use time::{OffsetDateTime, format_description::BorrowedFormatItem, macros::format_description};

use super::config::{Severity, Syslog, SyslogFormat, SyslogServer};

/// Most bytes that wait for a receiver.
const WAITING_BYTES: usize = 1024 * 1024;
/// Most bytes of a message. A datagram of UDP has less than 64 KiB.
const MESSAGE_BYTES: usize = 60 * 1024;

const RFC3164_TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[month repr:short] [day padding:space] [hour]:[minute]:[second]");
const RFC5424_TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// A receiver with the messages that wait for it.
pub(super) struct Receiver {
    socket: Socket,
    form: Form,
    waiting: VecDeque<Box<[u8]>>,
    waiting_bytes: usize,
    /// The receiver was not there at the last attempt. The next one is made at a flush, not for every line.
    failing: bool,
    /// Messages that were taken and are lost, since the caller asked last.
    lost: u64,
}

enum Socket {
    Unix(UnixDatagram, PathBuf),
    Udp(UdpSocket, SocketAddr),
}

enum Form {
    Journal,
    Syslog { settings: Syslog, host: String },
}

impl Receiver {
    /// # Errors
    /// There is no socket to send from, or the name of the server cannot be looked up. That a receiver is missing is none.
    pub(super) fn syslog(settings: &Syslog) -> io::Result<Self> {
        let socket = match &settings.server {
            SyslogServer::Socket(path) => Socket::unix(path)?,
            SyslogServer::Udp { host, port } => Socket::udp(host, *port)?,
        };
        Ok(Self::new(socket, Form::Syslog { settings: settings.clone(), host: host_name() }))
    }

    /// # Errors
    /// There is no socket to send from.
    pub(super) fn journal(path: &Path) -> io::Result<Self> {
        Ok(Self::new(Socket::unix(path)?, Form::Journal))
    }

    fn new(socket: Socket, form: Form) -> Self {
        Self { socket, form, waiting: VecDeque::new(), waiting_bytes: 0, failing: false, lost: 0 }
    }

    /// Takes a text of one or more lines.
    ///
    /// # Errors
    /// It is lost: too much waits already.
    pub(super) fn take(&mut self, severity: Option<Severity>, text: &[u8]) -> io::Result<()> {
        if self.waiting_bytes + text.len() > WAITING_BYTES {
            let kind = if self.failing { io::ErrorKind::NotConnected } else { io::ErrorKind::WouldBlock };
            return Err(io::Error::new(kind, "too many messages wait for the receiver"));
        }
        let now = SystemTime::now();
        match &self.form {
            Form::Journal => {
                let text = text.strip_suffix(b"\n").unwrap_or(text);
                self.wait(journal_entry(severity.unwrap_or(Severity::Info), text));
            }
            // One message is one line.
            Form::Syslog { settings, host } => {
                let messages: Vec<_> = text
                    .split(|byte| *byte == b'\n')
                    .filter(|line| !line.is_empty())
                    .map(|line| syslog_message(settings, host, severity, now, line))
                    .collect();
                messages.into_iter().for_each(|message| self.wait(message));
            }
        }
        // A message that could not be sent is sent later, or counted as lost then.
        if !self.failing {
            let _ = self.send();
        }
        Ok(())
    }

    fn wait(&mut self, message: Vec<u8>) {
        self.waiting_bytes += message.len();
        self.waiting.push_back(message.into_boxed_slice());
    }

    /// Sends what waits, as far as the receiver takes it.
    ///
    /// # Errors
    /// The receiver is missing.
    pub(super) fn send(&mut self) -> io::Result<()> {
        self.failing = false;
        while let Some(message) = self.waiting.front() {
            match self.socket.send(message) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The receiver is there, and behind.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // No receiver of this kind could take it.
                Err(error) if error.raw_os_error() == Some(MESSAGE_TOO_LONG) => self.lost += 1,
                Err(error) => {
                    self.failing = true;
                    return Err(error);
                }
            }
            self.waiting_bytes -= message.len();
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// Whether messages wait.
    pub(super) fn has_more(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether messages wait for a receiver that is there.
    pub(super) fn is_behind(&self) -> bool {
        self.has_more() && !self.failing
    }

    /// Gives up what waits.
    pub(super) fn abandon(&mut self) {
        self.lost += self.waiting.len() as u64;
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Messages that were lost since the last call.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}

/// `EMSGSIZE` of Linux.
const MESSAGE_TOO_LONG: i32 = 90;

impl Socket {
    fn unix(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self::Unix(socket, path.to_owned()))
    }

    fn udp(host: &str, port: u16) -> io::Result<Self> {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("`{host}` has no address"));
        let address = (host, port).to_socket_addrs()?.next().ok_or_else(unknown)?;
        let any = match address {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any)?;
        socket.set_nonblocking(true)?;
        Ok(Self::Udp(socket, address))
    }

    /// The receiver is looked for anew each time, so that one that was started again is found.
    fn send(&self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(socket, path) => socket.send_to(message, path).map(drop),
            Self::Udp(socket, address) => socket.send_to(message, address).map(drop),
        }
    }
}

/// The name of this machine, as messages have it. A service may be kept from the file of that name in `/proc`.
fn host_name() -> String {
    let system = rustix::system::uname();
    let name: String = system.nodename().to_string_lossy().chars().filter(char::is_ascii_graphic).take(255).collect();
    if name.is_empty() { "-".to_owned() } else { name }
}

/// A message of syslog with one line.
fn syslog_message(settings: &Syslog, host: &str, severity: Option<Severity>, now: SystemTime, line: &[u8]) -> Vec<u8> {
    let severity = severity.or(settings.severity).unwrap_or(Severity::Info);
    let priority = u16::from(settings.facility.number()) * 8 + severity as u16;
    let (tag, process, now) = (&settings.tag, process::id(), OffsetDateTime::from(now));
    let host = if settings.names_host { host } else { "-" };
    let mut message = Vec::with_capacity(line.len() + 80);
    // Writing to a vector cannot fail, and the times have all parts.
    let _ = write!(message, "<{priority}>");
    match settings.format {
        SyslogFormat::Rfc3164 => {
            let _ = now.format_into(&mut message, RFC3164_TIME);
            if settings.names_host {
                let _ = write!(message, " {host}");
            }
            let _ = write!(message, " {tag}[{process}]: ");
        }
        SyslogFormat::Rfc5424 => {
            message.extend_from_slice(b"1 ");
            let _ = now.format_into(&mut message, RFC5424_TIME);
            let _ = write!(message, " {host} {tag} {process} - - ");
        }
    }
    // A control character would end the message at some receivers.
    message.extend(line.iter().take(MESSAGE_BYTES).map(|&byte| if byte < b' ' { b' ' } else { byte }));
    message
}

/// An entry of the journal, as `sd_journal_sendv` writes it. A field whose value may have a line end comes with its length.
fn journal_entry(severity: Severity, text: &[u8]) -> Vec<u8> {
    let text = &text[..text.len().min(MESSAGE_BYTES)];
    let mut entry = Vec::with_capacity(text.len() + 80);
    // Writing to a vector cannot fail.
    let _ = write!(entry, "PRIORITY={}\nSYSLOG_IDENTIFIER=serpent\nMESSAGE\n", severity as u8);
    entry.extend_from_slice(&(text.len() as u64).to_le_bytes());
    entry.extend_from_slice(text);
    entry.push(b'\n');
    entry
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Facility;

    fn syslog(server: SyslogServer, format: SyslogFormat, names_host: bool) -> Syslog {
        let facility = Facility::named("local3").unwrap();
        Syslog { server, facility, severity: None, tag: "web".into(), format, names_host }
    }

    fn at(path: &Path) -> SyslogServer {
        SyslogServer::Socket(path.to_owned())
    }

    #[test]
    fn messages_are_written_as_the_two_standards_want_them() {
        let server = SyslogServer::Udp { host: "a".into(), port: 514 };
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_312_000_250);
        let said = |format, names_host, severity| {
            let settings = syslog(server.clone(), format, names_host);
            let message = syslog_message(&settings, "host", severity, time, b"GET /\x1b");
            String::from_utf8(message).unwrap().replace(&process::id().to_string(), "PID")
        };
        assert_eq!(said(SyslogFormat::Rfc3164, true, None), "<158>Jan  2 00:00:00 host web[PID]: GET / ");
        assert_eq!(said(SyslogFormat::Rfc3164, false, Some(Severity::Error)), "<155>Jan  2 00:00:00 web[PID]: GET / ");
        assert_eq!(said(SyslogFormat::Rfc5424, true, None), "<158>1 2026-01-02T00:00:00.250Z host web PID - - GET / ");
        assert_eq!(said(SyslogFormat::Rfc5424, false, None), "<158>1 2026-01-02T00:00:00.250Z - web PID - - GET / ");
    }

    #[test]
    fn an_entry_of_the_journal_cannot_be_forged() {
        let entry = journal_entry(Severity::Warning, b"one\nPRIORITY=0");
        let expected = b"PRIORITY=4\nSYSLOG_IDENTIFIER=serpent\nMESSAGE\n\x0e\0\0\0\0\0\0\0one\nPRIORITY=0\n";
        assert_eq!(entry, expected);
    }

    #[test]
    fn a_receiver_that_is_missing_or_full_costs_lines_and_no_time_and_gets_what_waits_when_it_is_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut receiver = Receiver::syslog(&syslog(at(&path), SyslogFormat::Rfc3164, false)).unwrap();
        receiver.take(None, b"first\n").unwrap();
        assert!(receiver.send().is_err(), "it is missing");
        assert!(!receiver.is_behind());
        let there = UnixDatagram::bind(&path).unwrap();
        there.set_nonblocking(true).unwrap();
        receiver.send().unwrap();
        let mut message = [0; 2048];
        let bytes = there.recv(&mut message).unwrap();
        assert!(message[..bytes].ends_with(b"]: first"));
        // It reads nothing from now on.
        let line = [[b'a'; 999].as_slice(), b"\n"].concat();
        let taken = (0..5_000).filter(|_| receiver.take(None, &line).is_ok()).count();
        assert!((1_000..3_000).contains(&taken), "about a megabyte waits: {taken}");
        assert!(receiver.is_behind());
        let mut came = 0;
        while receiver.is_behind() || came < taken {
            receiver.send().unwrap();
            while there.recv(&mut message).is_ok() {
                came += 1;
            }
        }
        assert_eq!(came, taken, "all that was taken");
        receiver.take(None, b"one\ntwo\n").unwrap();
        for line in ["one", "two"] {
            let bytes = there.recv(&mut message).unwrap();
            assert!(message[..bytes].ends_with(line.as_bytes()));
        }
        std::fs::remove_file(&path).unwrap();
        receiver.take(None, b"late\n").unwrap();
        receiver.abandon();
        assert_eq!(receiver.take_lost(), 1);
    }

    #[test]
    fn udp_has_one_message_a_line() {
        let there = UdpSocket::bind("127.0.0.1:0").unwrap();
        there.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let server = SyslogServer::Udp { host: "127.0.0.1".into(), port: there.local_addr().unwrap().port() };
        let mut receiver = Receiver::syslog(&syslog(server, SyslogFormat::Rfc5424, true)).unwrap();
        receiver.take(Some(Severity::Error), b"one\ntwo\n").unwrap();
        let mut message = [0; 2048];
        for end in ["one", "two"] {
            let bytes = there.recv(&mut message).unwrap();
            let text = std::str::from_utf8(&message[..bytes]).unwrap();
            assert!(text.starts_with("<155>1 2") && text.ends_with(end), "{text}");
        }
    }
}
