//! Where logs go, as an operator writes it.

use std::path::{Path, PathBuf};

use server::{
    config::LogTarget,
    logs::{Facility, Severity, Syslog, SyslogFormat, SyslogServer},
};

/// The socket on which the journal of systemd listens.
const JOURNAL: &str = "/run/systemd/journal/socket";
/// The socket on which a receiver of syslog listens.
const SYSLOG: &str = "/dev/log";
const SYSLOG_PORT: u16 = 514;
/// Longest tag (RFC 5424, section 6).
const MOST_TAG_BYTES: usize = 48;

/// Reads the target of an access log: `off`, `-` for standard output, `syslog:…`, `journal`, or a file, which `file` finds.
pub fn log_target(text: &str, file: impl Fn(&str) -> PathBuf) -> Result<Option<LogTarget>, String> {
    Ok(match text {
        "off" => None,
        "-" => Some(LogTarget::Stdout),
        "stdout" | "stderr" | "console" => {
            return Err(format!(
                "`{text}` would be a file of that name: write `-` for standard output, or `./{text}` for the file"
            ));
        }
        _ => Some(place(text, file)?),
    })
}

/// Reads the target of the error log: `-` for standard error, `syslog:…`, `journal`, or a file, which `file` finds.
pub fn error_log_target(text: &str, file: impl Fn(&str) -> PathBuf) -> Result<Option<LogTarget>, String> {
    let target = match text {
        "-" => return Ok(None),
        "off" => return Err("messages are always written: `--log off` has none, `-` is standard error".to_owned()),
        _ => place(text, file)?,
    };
    match &target {
        LogTarget::Syslog(syslog) if syslog.severity.is_some() => {
            Err("each message of the error log has a severity of its own: leave `severity` out".to_owned())
        }
        _ => Ok(Some(target)),
    }
}

fn place(text: &str, file: impl Fn(&str) -> PathBuf) -> Result<LogTarget, String> {
    match text.split_once(':') {
        Some(("syslog", settings)) => syslog(settings).map(|syslog| LogTarget::Syslog(Box::new(syslog))),
        Some(("journal", socket)) if socket.starts_with('/') => Ok(LogTarget::Journal(socket.into())),
        Some(("journal", _)) => Err("`journal:` is followed by the whole path of a socket".to_owned()),
        None if text == "journal" => Ok(LogTarget::Journal(JOURNAL.into())),
        None if text == "syslog" => syslog("").map(|syslog| LogTarget::Syslog(Box::new(syslog))),
        _ if text.is_empty() => Err("a log has a file, `syslog:`, `journal` or `-`".to_owned()),
        _ => Ok(LogTarget::File(file(text))),
    }
}

fn syslog(settings: &str) -> Result<Syslog, String> {
    let mut server = SyslogServer::Socket(SYSLOG.into());
    let (mut facility, mut severity, mut tag) = (Facility::LOCAL7, None, "serpent".to_owned());
    let (mut format, mut names_host) = (None, None);
    for setting in settings.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
        match setting.split_once('=') {
            Some(("server", value)) => server = syslog_server(value)?,
            Some(("facility", value)) => {
                facility = Facility::named(value)
                    .ok_or_else(|| format!("`{value}` is not one of {}", Facility::NAMES.join(", ")))?;
            }
            Some(("severity", value)) => {
                let names = || Severity::NAMED.map(|(_, name)| name).join(", ");
                severity = Some(Severity::named(value).ok_or_else(|| format!("`{value}` is not one of {}", names()))?);
            }
            Some(("tag", value)) => {
                let sound = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
                if value.is_empty() || value.len() > MOST_TAG_BYTES || !value.chars().all(sound) {
                    return Err(format!(
                        "`{value}` is no tag: give 1 to {MOST_TAG_BYTES} letters, digits, `_`, `-`, `.`"
                    ));
                }
                tag = value.to_owned();
            }
            Some(("rfc", "3164")) => format = Some(SyslogFormat::Rfc3164),
            Some(("rfc", "5424")) => format = Some(SyslogFormat::Rfc5424),
            Some(("rfc", value)) => return Err(format!("`rfc={value}` is not one of 3164, 5424")),
            None if setting == "nohostname" => names_host = Some(false),
            _ => {
                return Err(format!(
                    "`{setting}` is no setting of syslog: those are `server=`, `facility=`, `severity=`, `tag=`, `rfc=` \
                     and `nohostname`"
                ));
            }
        }
    }
    // A receiver on the same machine expects no name of it, and one elsewhere the year and the zone of the time.
    let is_here = matches!(server, SyslogServer::Socket(_));
    let format = format.unwrap_or(if is_here { SyslogFormat::Rfc3164 } else { SyslogFormat::Rfc5424 });
    let names_host = names_host.unwrap_or(!(is_here && format == SyslogFormat::Rfc3164));
    Ok(Syslog { server, facility, severity, tag, format, names_host })
}

fn syslog_server(text: &str) -> Result<SyslogServer, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return match Path::new(path).is_absolute() {
            true => Ok(SyslogServer::Socket(path.into())),
            false => Err(format!("`{text}`: give the whole path of the socket, as in `unix:/dev/log`")),
        };
    }
    let wrong = || format!("`{text}` is no receiver of syslog: write HOST, HOST:PORT or unix:PATH");
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
        None => match text.rsplit_once(':') {
            // An address of IPv6 without brackets.
            Some((host, _)) if host.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map_or(Ok(SYSLOG_PORT), |port| port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong))?;
    let sound = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if host.is_empty() || !host.chars().all(sound) {
        return Err(wrong());
    }
    Ok(SyslogServer::Udp { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<LogTarget>, String> {
        log_target(text, |path| Path::new("/folder").join(path))
    }

    #[test]
    fn targets_are_read_as_nginx_writes_them() {
        let syslog = |text: &str| match read(text).unwrap() {
            Some(LogTarget::Syslog(syslog)) => *syslog,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(read("off"), Ok(None));
        assert_eq!(read("-"), Ok(Some(LogTarget::Stdout)));
        assert_eq!(read("a.log"), Ok(Some(LogTarget::File("/folder/a.log".into()))));
        assert_eq!(read("journal"), Ok(Some(LogTarget::Journal(JOURNAL.into()))));
        assert_eq!(read("journal:/run/j"), Ok(Some(LogTarget::Journal("/run/j".into()))));
        let local = syslog("syslog:");
        assert_eq!(local.server, SyslogServer::Socket("/dev/log".into()));
        assert_eq!((local.format, local.names_host, &*local.tag), (SyslogFormat::Rfc3164, false, "serpent"));
        let far = syslog("syslog:server=192.168.1.1:5514,facility=local3,tag=web,severity=notice");
        assert_eq!(far.server, SyslogServer::Udp { host: "192.168.1.1".into(), port: 5514 });
        assert_eq!((far.format, far.names_host, far.severity), (SyslogFormat::Rfc5424, true, Some(Severity::Notice)));
        assert_eq!(far.facility, Facility::named("local3").unwrap());
        let old = syslog("syslog:server=[2001:db8::1]:12345,rfc=3164,nohostname");
        assert_eq!(old.server, SyslogServer::Udp { host: "2001:db8::1".into(), port: 12345 });
        assert_eq!((old.format, old.names_host), (SyslogFormat::Rfc3164, false));
        let named = |host: &str| SyslogServer::Udp { host: host.into(), port: 514 };
        assert_eq!(syslog("syslog:server=log.example").server, named("log.example"));
        assert_eq!(syslog("syslog:server=::1").server, named("::1"));
        assert_eq!(error_log_target("-", |path| path.into()), Ok(None));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, part) in [
            ("", "a log has a file"),
            ("journal:here", "whole path"),
            ("syslog:server=unix:log", "whole path"),
            ("syslog:server=a:0", "no receiver"),
            ("syslog:server=a:70000", "no receiver"),
            ("syslog:server=", "no receiver"),
            ("syslog:server=a b", "no receiver"),
            ("syslog:server=[::1]514", "no receiver"),
            ("syslog:facility=local8", "`local8` is not one of kern"),
            ("syslog:severity=loud", "`loud` is not one of emerg"),
            ("syslog:tag=a b", "no tag"),
            ("syslog:rfc=1", "not one of 3164"),
            ("syslog:color=red", "no setting of syslog"),
            ("syslog:/dev/log", "no setting of syslog"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(error_log_target("off", |path| path.into()).unwrap_err().contains("--log off"));
        assert!(error_log_target("syslog:severity=info", |path| path.into()).unwrap_err().contains("of its own"));
    }
}
