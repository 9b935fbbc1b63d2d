//! A program's output as lines of the log.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{net::unix::pipe, time::Instant};

/// Longest logged line of a program; longer ones are cut off.
const LINE_BYTES: usize = 1024;

/// Most lines of a program logged at once, and per second after that. The others are only counted.
const LINES_AT_ONCE: f64 = 50.0;
const LINES_PER_SECOND: f64 = 10.0;

/// How many lines may still be logged. Several outputs may share it.
#[derive(Debug)]
pub(crate) struct Budget {
    leave: f64,
    at: Instant,
    dropped: u64,
}

impl Budget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { leave: LINES_AT_ONCE, at: now, dropped: 0 }
    }

    /// Whether another line may be logged. If so, lines that were left out before are told of first.
    pub(crate) fn grants(&mut self, now: Instant, mut log: impl FnMut(&str)) -> bool {
        let more = now.saturating_duration_since(self.at).as_secs_f64() * LINES_PER_SECOND;
        (self.leave, self.at) = ((self.leave + more).min(LINES_AT_ONCE), now);
        if self.leave < 1.0 {
            self.dropped += 1;
            return false;
        }
        self.tell_dropped(&mut log);
        self.leave -= 1.0;
        true
    }

    fn tell_dropped(&mut self, log: &mut impl FnMut(&str)) {
        if self.dropped > 0 {
            log(&format!("({} lines were left out)", std::mem::take(&mut self.dropped)));
        }
    }
}

/// Splits a program's output into lines, and limits their length and number.
#[derive(Debug)]
pub(crate) struct Lines {
    line: Vec<u8>,
    budget: Arc<Mutex<Budget>>,
}

impl Lines {
    pub(crate) fn new(now: Instant) -> Self {
        Self::with(Arc::new(Mutex::new(Budget::new(now))))
    }

    /// Lines of one of several outputs.
    pub(crate) fn with(budget: Arc<Mutex<Budget>>) -> Self {
        Self { line: Vec::new(), budget }
    }

    /// Takes more bytes and logs the complete lines.
    pub(crate) fn take(&mut self, now: Instant, bytes: &[u8], mut log: impl FnMut(&str)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, whole) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            // One byte more than is shown reveals that the line is cut off.
            let room = (LINE_BYTES + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if whole {
                self.end_of_line(now, &mut log);
            }
        }
    }

    /// Logs an unfinished last line.
    pub(crate) fn finish(&mut self, now: Instant, mut log: impl FnMut(&str)) {
        if !self.line.is_empty() {
            self.end_of_line(now, &mut log);
        }
        self.budget.lock().tell_dropped(&mut log);
    }

    fn end_of_line(&mut self, now: Instant, log: &mut impl FnMut(&str)) {
        if !self.budget.lock().grants(now, &mut *log) {
            self.line.clear();
            return;
        }
        let cut = self.line.len() > LINE_BYTES;
        self.line.truncate(LINE_BYTES);
        let text = String::from_utf8_lossy(self.line.trim_ascii_end());
        // A program's output must not look like log lines of the server, nor move a terminal's cursor.
        let clean = |letter: char| if letter.is_control() && letter != '\t' { '\u{fffd}' } else { letter };
        let mut text: String = text.chars().map(clean).collect();
        if cut {
            text.push_str(" ...");
        }
        if !text.is_empty() {
            log(&text);
        }
        self.line.clear();
    }
}

/// Logs a program's output until the last writer has closed the pipe.
pub(crate) async fn log_lines(mut from: pipe::Receiver, log: impl Fn(&str)) {
    use tokio::io::AsyncReadExt as _;
    let mut lines = Lines::new(Instant::now());
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        lines.take(Instant::now(), &buffer[..read], &log);
    }
    lines.finish(Instant::now(), &log);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn said(lines: &mut Lines, now: Instant, bytes: &[u8]) -> Vec<String> {
        let mut said = Vec::new();
        lines.take(now, bytes, |line| said.push(line.to_owned()));
        said
    }

    #[test]
    fn lines_are_whole_bounded_and_clean() {
        let now = Instant::now();
        let mut lines = Lines::new(now);
        assert_eq!(said(&mut lines, now, b"one\r\ntw"), ["one"]);
        assert_eq!(said(&mut lines, now, b"o\n\nthree\x1b[2J \xff\n"), ["two", "three\u{fffd}[2J \u{fffd}"]);
        let long = said(&mut lines, now, &[&[b'x'; 5 * LINE_BYTES][..], b"\n"].concat());
        assert_eq!(long, [format!("{} ...", "x".repeat(LINE_BYTES))]);
        let exact = said(&mut lines, now, &[&[b'x'; LINE_BYTES][..], b"\n"].concat());
        assert_eq!(exact, ["x".repeat(LINE_BYTES)]);
        assert!(said(&mut lines, now, b"no end").is_empty());
        let mut rest = Vec::new();
        lines.finish(now, |line| rest.push(line.to_owned()));
        assert_eq!(rest, ["no end"]);
    }

    #[test]
    fn who_says_too_much_is_cut_short_for_a_while() {
        let now = Instant::now();
        let mut lines = Lines::new(now);
        assert_eq!(said(&mut lines, now, &b"x\n".repeat(80)).len(), 50);
        let now = now + Duration::from_millis(250);
        assert_eq!(said(&mut lines, now, &b"y\n".repeat(5)), ["(30 lines were left out)", "y", "y"]);
        let mut rest = Vec::new();
        lines.finish(now, |line| rest.push(line.to_owned()));
        assert_eq!(rest, ["(3 lines were left out)"]);
    }
}
