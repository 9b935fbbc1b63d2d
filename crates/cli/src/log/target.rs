//! Where messages go: to standard error, or to the log that the configuration names.

use std::{
    io::{self, Write},
    sync::{Mutex, PoisonError, RwLock},
};

use server::{
    config::{AccessLog, ErrorLog, LogFormat, LogTarget, MessageFormat},
    logs::{Log, LogChoices, Opened, Severity, Writer, messages_dropped},
};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// The log in force (`None`: standard error), and how messages are written there.
static LOG: RwLock<(Option<Log>, Form)> = RwLock::new((None, Form::Terminal));
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
    /// JSON objects.
    Json,
}

/// How messages are written now.
pub fn form() -> Form {
    LOG.read().unwrap_or_else(PoisonError::into_inner).1
}

/// An opened log, not written to yet (`None`: standard error), and how messages are written there.
pub type OpenedLog = (Option<Opened>, Form);

/// Opens the log of a configuration.
pub fn open(ErrorLog { target, format }: &ErrorLog) -> Result<OpenedLog, String> {
    let form = match (format, target) {
        (MessageFormat::Json, _) => Form::Json,
        (MessageFormat::Text, None) => Form::Terminal,
        (MessageFormat::Text, Some(LogTarget::Syslog(_) | LogTarget::Journal(_))) => Form::Messages,
        (MessageFormat::Text, Some(LogTarget::File(_) | LogTarget::Stdout)) => Form::Lines,
    };
    let Some(target) = target else { return Ok((None, form)) };
    // That of the line which says how many are missing.
    let lines = if form == Form::Json { LogFormat::Json } else { LogFormat::Combined };
    let log = AccessLog { target: target.clone(), format: lines };
    let opened = Opened::open(LogChoices { server: Some(log), sites: Vec::new() });
    let opened = opened.map_err(|failed| format!("error_log: cannot open {target}: {}", failed.error))?;
    Ok((Some(opened), form))
}

/// Writes messages to this log from now on.
pub fn follow((opened, form): OpenedLog) -> io::Result<()> {
    let mut writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    let log = match opened {
        None => None,
        Some(opened) => {
            if writer.is_none() {
                // A log that cannot be written cannot have that message.
                let report = |message: &str| _ = writeln!(io::stderr(), "serpent: {message}");
                *writer = Some(Writer::start_reporting("error-log", messages_dropped(), report)?);
            }
            let logs = writer.as_mut().map(|writer| writer.replace(opened));
            logs.and_then(|logs| logs.server().cloned())
        }
    };
    *LOG.write().unwrap_or_else(PoisonError::into_inner) = (log, form);
    Ok(())
}

/// Writes what is left. Further messages go to standard error.
pub fn close() {
    {
        let mut log = LOG.write().unwrap_or_else(PoisonError::into_inner);
        let is_json = log.1 == Form::Json;
        *log = (None, if is_json { Form::Json } else { Form::Terminal });
    }
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
            (Some(log), _) => log.write(self.0, text),
            (None, _) => io::stderr().write_all(text)?,
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
