//! An opened log: whole lines are collected, and written together.

use std::{
    fs::OpenOptions,
    io::{self, Write},
};

use super::{
    config::{AccessLog, LogFormat, LogTarget, Severity},
    receiver::Receiver,
};

/// Most bytes that wait to be written.
const BUFFER_BYTES: usize = 64 * 1024;

/// An opened log.
pub struct Sink {
    pub(super) format: LogFormat,
    /// Its name in messages.
    pub(super) name: String,
    output: Output,
}

enum Output {
    Bytes(Bytes),
    Receiver(Receiver),
}

impl Sink {
    /// Opens a log for appending.
    ///
    /// # Errors
    /// The file cannot be opened or made, or the name of a receiver cannot be looked up.
    pub fn open(log: &AccessLog) -> io::Result<Self> {
        let output = match &log.target {
            LogTarget::Stdout => Output::bytes(Box::new(io::stdout())),
            LogTarget::File(path) => Output::bytes(Box::new(OpenOptions::new().append(true).create(true).open(path)?)),
            LogTarget::Syslog(syslog) => Output::Receiver(Receiver::syslog(syslog)?),
            LogTarget::Journal(path) => Output::Receiver(Receiver::journal(path)?),
        };
        Ok(Self { output, format: log.format, name: log.target.to_string() })
    }

    #[cfg(test)]
    pub(super) fn to(writer: Box<dyn Write + Send>, format: LogFormat, name: String) -> Self {
        Self { format, name, output: Output::bytes(writer) }
    }

    /// Takes a line with its end. The severity is for receivers of messages.
    ///
    /// # Errors
    /// The line is lost.
    pub(super) fn take(&mut self, severity: Option<Severity>, line: &[u8]) -> io::Result<()> {
        match &mut self.output {
            Output::Bytes(bytes) => bytes.take(line),
            Output::Receiver(receiver) => receiver.take(severity, line),
        }
    }

    /// Writes all lines that were taken.
    ///
    /// # Errors
    /// Lines wait for the next time.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.output {
            Output::Bytes(bytes) => bytes.flush(),
            Output::Receiver(receiver) => receiver.send(),
        }
    }

    /// Whether it would take lines soon that it does not take now.
    pub(super) fn is_behind(&self) -> bool {
        matches!(&self.output, Output::Receiver(receiver) if receiver.is_behind())
    }

    /// Whether lines wait that could not be written.
    pub(super) fn has_more(&self) -> bool {
        match &self.output {
            Output::Bytes(bytes) => !bytes.buffer.is_empty(),
            Output::Receiver(receiver) => receiver.has_more(),
        }
    }

    /// Lines that were taken and are lost, since the last call. `at_the_end`: none is written any more.
    pub(super) fn take_lost(&mut self, at_the_end: bool) -> u64 {
        let Output::Receiver(receiver) = &mut self.output else { return 0 };
        if at_the_end {
            receiver.abandon();
        }
        receiver.take_lost()
    }
}

impl Output {
    fn bytes(writer: Box<dyn Write + Send>) -> Self {
        Self::Bytes(Bytes { writer, buffer: Vec::new(), failing: false })
    }
}

/// Lines on their way to a file. Only whole lines are handed over together, so that several writers that append to one
/// file do not cut each other's lines.
struct Bytes {
    writer: Box<dyn Write + Send>,
    buffer: Vec<u8>,
    /// The last attempt to write has failed. The next one is made at a flush, not for every line.
    failing: bool,
}

impl Bytes {
    fn take(&mut self, line: &[u8]) -> io::Result<()> {
        let line = &line[..line.len().min(BUFFER_BYTES)];
        if self.buffer.len() + line.len() > BUFFER_BYTES {
            if self.failing {
                return Err(io::Error::other("earlier lines could not be written"));
            }
            // Bytes that could not be written stay in the buffer, so there may be no room for this line.
            if let Err(error) = self.write()
                && self.buffer.len() + line.len() > BUFFER_BYTES
            {
                return Err(error);
            }
        }
        self.buffer.extend_from_slice(line);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write()?;
        self.writer.flush()
    }

    fn write(&mut self) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            match self.buffer.get(written..) {
                None | Some([]) => break Ok(()),
                Some(rest) => match self.writer.write(rest) {
                    Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                    Ok(bytes) => written += bytes,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => break Err(error),
                },
            }
        };
        self.buffer.drain(..written);
        self.failing = result.is_err();
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    /// A disk with room for so many bytes.
    struct Full {
        text: Arc<Mutex<Vec<u8>>>,
        room: Arc<Mutex<usize>>,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut room = self.room.lock();
            let bytes = &bytes[..bytes.len().min(*room)];
            *room -= bytes.len();
            self.text.lock().extend_from_slice(bytes);
            match bytes.is_empty() {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => Ok(bytes.len()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_costs_lines_but_cuts_none() {
        let (text, room) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::new(Mutex::new(100_003)));
        let disk = Full { text: text.clone(), room: room.clone() };
        let mut sink = Sink::to(Box::new(disk), LogFormat::Combined, "disk".into());
        let line = [[b'a'; 99].as_slice(), b"\n"].concat();
        let lost = (0..5_000).filter(|_| sink.take(None, &line).is_err()).count();
        assert!(sink.flush().is_err());
        *room.lock() = usize::MAX;
        sink.flush().expect("there is room now");
        let text = text.lock().clone();
        assert!(text.chunks(100).all(|written| written == line), "only whole lines");
        assert_eq!(text.len() / 100 + lost, 5_000, "a line is written or reported as lost");
        assert!((3_000..4_000).contains(&lost), "{lost}");
    }
}
