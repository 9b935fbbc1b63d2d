//! The access log. Entries go through a bounded channel to a thread that formats and writes lines, so that a
//! slow disk never delays a response. Entries that find the channel full are counted and reported, here and
//! in the metrics.

#![forbid(unsafe_code)]

use std::{
    fs::{File, OpenOptions},
    io::{self, BufWriter, Write},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime},
};

use http::{StatusCode, header, request::Parts};

mod config;
mod line;
mod record;

use self::record::Record;
pub use self::{
    config::{AccessLog, LogFormat, LogTarget},
    record::{Sent, Told},
};

/// Most entries waiting for the writer: a burst of one second at 4,000 requests/s, and a megabyte of memory.
const QUEUE_ENTRIES: usize = 4096;
/// The writer's thread sleeps for so long after each entry that it found alone, so that a busy server need not wake it
/// for each. The queue holds what comes meanwhile, at up to 160,000 requests/s.
const PAUSE: Duration = Duration::from_millis(25);
/// Longest time until a line is in the file.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
const BUFFER_BYTES: usize = 64 * 1024;
/// Longest target or header field; longer ones are cut, as they are for people to read.
const MAX_FIELD_BYTES: usize = 2048;

/// The writer's thread, which lives as long as the process serves. Dropping this ends the thread after the
/// last line.
#[derive(Debug)]
pub struct Writer {
    log: Log,
    thread: Option<JoinHandle<()>>,
}

/// The sending side of the log; cheap to clone.
#[derive(Clone, Debug)]
pub struct Log {
    sender: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

/// An opened log, not written to yet.
pub struct Sink {
    writer: Box<dyn Write + Send>,
    format: LogFormat,
}

enum Message {
    Entry(Box<Record>),
    Sink(Sink),
    End,
}

impl Sink {
    /// Opens a log for appending.
    ///
    /// # Errors
    /// The file cannot be opened or made.
    pub fn open(config: &AccessLog) -> io::Result<Self> {
        let writer: Box<dyn Write + Send> = match &config.target {
            LogTarget::Stdout => Box::new(io::stdout()),
            LogTarget::File(path) => Box::new(append(path)?),
        };
        Ok(Self { writer, format: config.format })
    }

    /// A log that discards everything, until a reload replaces it.
    pub fn discard() -> Self {
        Self { writer: Box::new(io::sink()), format: LogFormat::Combined }
    }
}

impl Writer {
    /// Starts the thread. `dropped` counts the lines that found the channel full.
    pub fn start(sink: Sink, dropped: Arc<AtomicU64>) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(QUEUE_ENTRIES);
        let lines = Lines {
            sink: BufWriter::with_capacity(BUFFER_BYTES, sink.writer),
            format: sink.format,
            dropped: dropped.clone(),
            reported: dropped.load(Relaxed),
            failing: false,
            text: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("access-log".into()).spawn(move || lines.write_all(&receiver))?;
        Ok(Self { log: Log { sender, dropped }, thread: Some(thread) })
    }

    /// The sending side.
    pub fn log(&self) -> Log {
        self.log.clone()
    }

    /// Writes to another sink from now on; earlier entries still go to the old one.
    pub fn replace(&self, sink: Sink) {
        let _ = self.log.sender.send(Message::Sink(sink));
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // If the channel is full, this waits for the thread.
        let _ = self.log.sender.send(Message::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn append(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// An entry that waits for its response's outcome.
#[derive(Debug)]
pub struct Entry {
    record: Box<Record>,
}

impl Entry {
    /// Copies the needed parts of the head. A reference would keep the connection's buffer alive. `refused`
    /// is the line of a request that could not be parsed.
    pub fn new(peer: SocketAddr, parts: &Parts, refused: Option<Box<[u8]>>) -> Self {
        let field = |name| parts.headers.get(name).map_or(b"".as_slice(), http::HeaderValue::as_bytes);
        let host = parts.uri.authority().map_or_else(|| field(header::HOST), |authority| authority.as_str().as_bytes());
        let target = parts.uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str).as_bytes();
        let mut text = Vec::with_capacity(256);
        let ends = [host, target, field(header::REFERER), field(header::USER_AGENT)].map(|part| {
            text.extend_from_slice(&part[..part.len().min(MAX_FIELD_BYTES)]);
            u32::try_from(text.len()).unwrap_or(u32::MAX)
        });
        let record = Record {
            peer: peer.ip().to_canonical(),
            time: SystemTime::now(),
            method: parts.method.clone(),
            version: parts.version,
            status: StatusCode::OK,
            body_bytes: 0,
            complete: false,
            response_time: Duration::ZERO,
            slowdown: None,
            told: Told { class: "-".into(), user: None, waited: Duration::ZERO, upstream: None },
            text: text.into_boxed_slice(),
            ends,
            refused,
        };
        Self { record: Box::new(record) }
    }

    /// Sends the entry to the writer; never blocks.
    pub fn write(self, log: &Log, status: StatusCode, sent: Sent, response_time: Duration, told: Told) {
        let Self { mut record } = self;
        record.told = told;
        record.status = status;
        record.body_bytes = sent.body_bytes;
        record.complete = sent.complete;
        record.slowdown = sent.slowdown;
        record.response_time = response_time;
        if log.sender.try_send(Message::Entry(record)).is_err() {
            log.dropped.fetch_add(1, Relaxed);
        }
    }
}

struct Lines {
    sink: BufWriter<Box<dyn Write + Send>>,
    format: LogFormat,
    dropped: Arc<AtomicU64>,
    /// Dropped lines that were already reported in the log.
    reported: u64,
    failing: bool,
    text: Vec<u8>,
}

impl Lines {
    fn write_all(mut self, receiver: &Receiver<Message>) {
        let mut flush_due: Option<Instant> = None;
        loop {
            let message = match flush_due {
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => receiver.try_recv().or_else(|_| {
                    std::thread::sleep(PAUSE);
                    receiver.recv_timeout(due.saturating_duration_since(Instant::now()))
                }),
            };
            match message {
                Ok(Message::Entry(record)) => {
                    self.line(&record);
                    let due = *flush_due.get_or_insert_with(|| Instant::now() + FLUSH_INTERVAL);
                    if due > Instant::now() {
                        continue;
                    }
                }
                Ok(Message::Sink(sink)) => {
                    self.flush();
                    self.format = sink.format;
                    self.sink = BufWriter::with_capacity(BUFFER_BYTES, sink.writer);
                }
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => {
                    return self.flush();
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.flush();
            flush_due = None;
        }
    }

    fn line(&mut self, record: &Record) {
        self.text.clear();
        line::write(&mut self.text, self.format, record);
        let result = self.sink.write_all(&self.text);
        self.check(&result);
    }

    fn flush(&mut self) {
        let dropped = self.dropped.load(Relaxed);
        if dropped > self.reported {
            self.text.clear();
            line::write_dropped(&mut self.text, self.format, dropped - self.reported);
            self.reported = dropped;
            let result = self.sink.write_all(&self.text);
            self.check(&result);
        }
        let result = self.sink.flush();
        self.check(&result);
    }

    /// Reports a failing disk once, rather than for every line.
    fn check(&mut self, result: &io::Result<()>) {
        match result {
            Err(error) if !self.failing => {
                tracing::error!(%error, "the access log cannot be written: free space or permissions?");
                self.failing = true;
            }
            Err(_) => {}
            Ok(()) => self.failing = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use parking_lot::Mutex;

    use super::*;

    /// A disk that hangs until it is released.
    struct Disk {
        text: Arc<Mutex<Vec<u8>>>,
        go_on: Option<Receiver<()>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(go_on) = self.go_on.take() {
                let _ = go_on.recv();
            }
            self.text.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn disk() -> (Sink, Arc<Mutex<Vec<u8>>>, std::sync::mpsc::Sender<()>) {
        let (go_on, waiting) = channel();
        let text = Arc::new(Mutex::default());
        let disk = Disk { text: Arc::clone(&text), go_on: Some(waiting) };
        (Sink { writer: Box::new(disk), format: LogFormat::Combined }, text, go_on)
    }

    fn send(log: &Log, target: &str) {
        let (parts, ()) = http::Request::get(target).body(()).expect("a request").into_parts();
        let sent = Sent { body_bytes: 1, complete: true, slowdown: Some(1.5) };
        let peer = SocketAddr::from(([192, 0, 2, 1], 1));
        let told = Told { class: "default".into(), user: None, waited: Duration::ZERO, upstream: None };
        Entry::new(peer, &parts, None).write(log, StatusCode::OK, sent, Duration::from_millis(2), told);
    }

    #[test]
    fn a_disk_that_hangs_holds_nobody_up_and_the_log_tells_what_is_missing() {
        let (sink, text, go_on) = disk();
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = Writer::start(sink, dropped.clone()).expect("a thread");
        let sent = 3 * QUEUE_ENTRIES;
        for _ in 0..sent {
            send(&writer.log(), "/a");
        }
        let missing = dropped.load(Relaxed) as usize;
        assert!(missing > 0, "the queue is bounded");
        drop(go_on);
        drop(writer);
        let text = String::from_utf8(text.lock().clone()).expect("ASCII");
        assert_eq!(text.lines().filter(|line| line.contains("GET /a")).count(), sent - missing);
        assert!(text.contains(&format!("# {missing} lines dropped")), "what is missing is told once, in all");
    }

    #[test]
    fn a_line_has_class_response_time_and_slowdown_at_its_end() {
        let (sink, text, go_on) = disk();
        drop(go_on);
        let writer = Writer::start(sink, Arc::default()).expect("a thread");
        send(&writer.log(), "/a");
        drop(writer);
        let text = String::from_utf8(text.lock().clone()).expect("ASCII");
        assert!(text.ends_with("\"GET /a HTTP/1.1\" 200 1 \"-\" \"-\" default 0.002000 1.50\n"), "{text}");
    }

    #[test]
    fn after_a_replacement_lines_go_to_the_new_sink() {
        let (old, old_text, go_on) = disk();
        drop(go_on);
        let (new, new_text, go_on) = disk();
        drop(go_on);
        let writer = Writer::start(old, Arc::default()).expect("a thread");
        send(&writer.log(), "/before");
        writer.replace(new);
        send(&writer.log(), "/after");
        drop(writer);
        let text = |text: &Mutex<Vec<u8>>| String::from_utf8(text.lock().clone()).expect("ASCII");
        assert!(text(&old_text).contains("/before") && !text(&old_text).contains("/after"));
        assert!(text(&new_text).contains("/after") && !text(&new_text).contains("/before"));
    }
}
