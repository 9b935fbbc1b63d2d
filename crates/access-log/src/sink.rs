//! An opened log: whole lines are collected, and written together.

use std::{
    fs::OpenOptions,
    io::{self, Write},
};

use super::config::{AccessLog, LogFormat, LogTarget};

/// Most bytes that wait to be written.
const BUFFER_BYTES: usize = 64 * 1024;

/// An opened log.
pub struct Sink {
    pub(super) format: LogFormat,
    /// What it is, for messages.
    pub(super) name: String,
    bytes: Bytes,
}

impl Sink {
    /// Opens a log for appending.
    ///
    /// # Errors
    /// The file cannot be opened or made.
    pub fn open(log: &AccessLog) -> io::Result<Self> {
        let writer: Box<dyn Write + Send> = match &log.target {
            LogTarget::Stdout => Box::new(io::stdout()),
            LogTarget::File(path) => Box::new(OpenOptions::new().append(true).create(true).open(path)?),
        };
        Ok(Self::to(writer, log.format, log.target.to_string()))
    }

    pub(super) fn to(writer: Box<dyn Write + Send>, format: LogFormat, name: String) -> Self {
        Self { format, name, bytes: Bytes { writer, buffer: Vec::new(), failing: false } }
    }

    /// Takes a line with its end.
    ///
    /// # Errors
    /// The line is lost.
    pub(super) fn take(&mut self, line: &[u8]) -> io::Result<()> {
        self.bytes.take(line)
    }

    /// Writes all lines that were taken.
    ///
    /// # Errors
    /// Lines wait for the next time.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.bytes.flush()
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
        if self.buffer.len() + line.len() > BUFFER_BYTES {
            if self.failing {
                return Err(io::Error::other("earlier lines could not be written"));
            }
            // What could not be written stays in the buffer, in which there may be no room for this line.
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
        let lost = (0..5_000).filter(|_| sink.take(&line).is_err()).count();
        assert!(sink.flush().is_err());
        *room.lock() = usize::MAX;
        sink.flush().expect("there is room now");
        let text = text.lock().clone();
        assert!(text.chunks(100).all(|written| written == line), "only whole lines");
        assert_eq!(text.len() / 100 + lost, 5_000, "a line is written or reported as lost");
        assert!((3_000..4_000).contains(&lost), "{lost}");
    }
}
