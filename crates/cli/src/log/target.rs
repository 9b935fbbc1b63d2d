//! Where messages go: to standard error, or to the log that the configuration names.

use std::{
    io::{self, Write},
    sync::{Mutex, PoisonError, RwLock},
};

use server::{
    config::{AccessLog, LogFormat, LogTarget},
    logs::{Log, LogChoices, Opened, Severity, Writer, messages_dropped},
};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// The log in force; `None`: standard error.
static LOG: RwLock<Option<(Log, Form)>> = RwLock::new(None);
/// The thread that writes it. The first log starts it.
static WRITER: Mutex<Option<Writer>> = Mutex::new(None);

/// How messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As standard error has them.
    Terminal,
    /// Lines with time and level.
    Lines,
    /// For a receiver that knows both.
    Messages,
}

/// How messages are written now.
pub fn form() -> Form {
    LOG.read().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(Form::Terminal, |(_, form)| *form)
}

/// An opened log, not written to yet; `None`: standard error.
pub type OpenedLog = Option<(Opened, Form)>;

/// Opens the log of a configuration.
pub fn open(target: Option<&LogTarget>) -> Result<OpenedLog, String> {
    let Some(target) = target else { return Ok(None) };
    let form = match target {
        LogTarget::Syslog(_) | LogTarget::Journal(_) => Form::Messages,
        LogTarget::File(_) | LogTarget::Stdout => Form::Lines,
    };
    let log = AccessLog { target: target.clone(), format: LogFormat::Combined };
    let opened = Opened::open(LogChoices { server: Some(log), sites: Vec::new() });
    let opened = opened.map_err(|failed| format!("error_log: cannot open {target}: {}", failed.error))?;
    Ok(Some((opened, form)))
}

/// Writes messages to this log from now on.
pub fn follow(opened: OpenedLog) -> io::Result<()> {
    let mut writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    let log = match opened {
        None => None,
        Some((opened, form)) => {
            if writer.is_none() {
                // A log that cannot be written cannot have that message.
                let report = |message: &str| _ = writeln!(io::stderr(), "serpent: {message}");
                *writer = Some(Writer::start_reporting("error-log", messages_dropped(), report)?);
            }
            let logs = writer.as_mut().map(|writer| writer.replace(opened));
            logs.and_then(|logs| logs.server().cloned()).map(|log| (log, form))
        }
    };
    *LOG.write().unwrap_or_else(PoisonError::into_inner) = log;
    Ok(())
}

/// Writes what is left. Further messages go to standard error.
pub fn close() {
    *LOG.write().unwrap_or_else(PoisonError::into_inner) = None;
    // Dropping the writer waits for its last line.
    *WRITER.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Makes writers for messages.
pub struct Target;

/// A message on its way.
pub struct Message(Severity);

impl MakeWriter<'_> for Target {
    type Writer = Message;

    fn make_writer(&self) -> Message {
        Message(Severity::Info)
    }

    fn make_writer_for(&self, metadata: &Metadata<'_>) -> Message {
        Message(match *metadata.level() {
            Level::ERROR => Severity::Error,
            Level::WARN => Severity::Warning,
            Level::INFO => Severity::Info,
            Level::DEBUG | Level::TRACE => Severity::Debug,
        })
    }
}

impl Write for Message {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match &*LOG.read().unwrap_or_else(PoisonError::into_inner) {
            Some((log, _)) => log.write(self.0, text),
            None => io::stderr().write_all(text)?,
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
