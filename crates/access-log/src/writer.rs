//! The thread that writes all logs.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    config::{AccessLog, LogChoice, LogChoices},
    line,
    record::Record,
    sink::Sink,
};
use crate::config::Severity;

/// Most entries waiting for the writer: a burst of one second at 4,000 requests/s, and a megabyte of memory.
pub(super) const QUEUE_ENTRIES: usize = 4096;
/// Longest text; longer ones are cut.
const MAX_TEXT_BYTES: usize = 16 * 1024;
/// The writer's thread sleeps for so long after each entry that it found alone, so that a busy server need not wake it
/// for each. The queue holds what comes meanwhile, at up to 160,000 requests/s.
const PAUSE: Duration = Duration::from_millis(25);
/// Longest time until a line is in the file.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// How often a receiver that is behind is asked whether it takes more, and how often before its lines are given up at
/// the end.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
const LAST_RETRIES: u32 = 50;
/// A log that cannot be written is reported once in so long.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The writer's thread, which lives as long as the process serves, and the logs that it has. Dropping this ends the thread
/// after the last line.
#[derive(Debug)]
pub struct Writer {
    sender: SyncSender<Message>,
    /// Lines of all logs that are missing.
    dropped: Arc<AtomicU64>,
    logs: HashMap<AccessLog, Log>,
    /// How many logs there were.
    numbers: u32,
    thread: Option<JoinHandle<()>>,
}

/// The sending side of a log; cheap to clone.
#[derive(Clone, Debug)]
pub struct Log {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    number: u32,
    sender: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
    /// Lines of this log that are missing. The thread has the other copy, and closes the log when that is the last one.
    dropped_here: Arc<AtomicU64>,
}

/// The log of each site and route.
#[derive(Clone, Debug)]
pub struct Logs {
    server: Option<Log>,
    sites: Vec<(Option<Log>, Vec<Option<Log>>)>,
    are_none: bool,
}

/// Opened logs, not written to yet.
pub struct Opened {
    choices: LogChoices,
    sinks: Vec<(AccessLog, Sink)>,
}

/// Why logs cannot be opened.
#[derive(Debug)]
pub struct OpenError {
    /// The log.
    pub log: AccessLog,
    /// The error of the system.
    pub error: io::Error,
}

#[derive(Debug)]
enum Message {
    Entry(Log, Box<Record>),
    Text(Log, Severity, Box<[u8]>),
    Slots(Vec<(u32, Slot)>),
    End,
}

impl Opened {
    /// Opens all logs of a server.
    ///
    /// # Errors
    /// A file cannot be opened or made.
    pub fn open(choices: LogChoices) -> Result<Self, OpenError> {
        let open = |log: &AccessLog| match Sink::open(log) {
            Ok(sink) => Ok((log.clone(), sink)),
            Err(error) => Err(OpenError { log: log.clone(), error }),
        };
        let sinks = choices.distinct().into_iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { choices, sinks })
    }

    /// Whether nothing is to be written anywhere.
    pub fn are_none(&self) -> bool {
        self.sinks.is_empty()
    }
}

impl Writer {
    /// Starts the thread of access logs. `dropped` counts the lines that are missing, of all logs.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start(dropped: Arc<AtomicU64>) -> io::Result<Self> {
        Self::start_reporting("access-log", dropped, |message| tracing::error!("{message}"))
    }

    /// The same for another purpose. `report` gets a message once in a while when a log cannot be written; it must not send
    /// it to a log of this writer.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start_reporting(name: &str, dropped: Arc<AtomicU64>, report: fn(&str)) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(QUEUE_ENTRIES);
        let lines = Lines { slots: HashMap::new(), dropped: dropped.clone(), report, text: Vec::new() };
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || lines.write_all(&receiver))?;
        Ok(Self { sender, dropped, logs: HashMap::new(), numbers: 0, thread: Some(thread) })
    }

    /// Writes to these logs from now on. Earlier entries still go to the sinks of before. A log that is not among the new
    /// ones is closed when its last entry is written.
    pub fn replace(&mut self, Opened { choices, sinks }: Opened) -> Logs {
        let mut slots = Vec::new();
        let mut logs = HashMap::new();
        for (config, sink) in sinks {
            let log = self.logs.get(&config).cloned().unwrap_or_else(|| self.add());
            let dropped_here = log.inner.dropped_here.clone();
            slots.push((log.inner.number, Slot::new(sink, dropped_here)));
            logs.insert(config, log);
        }
        // If the channel is full, this waits for the thread.
        let _ = self.sender.send(Message::Slots(slots));
        self.logs = logs;
        let of = |choice: &LogChoice, outer: &Option<Log>| match choice {
            LogChoice::Outer => outer.clone(),
            LogChoice::Own(config) => self.logs.get(config).cloned(),
            LogChoice::Off => None,
        };
        let server = choices.server.as_ref().and_then(|config| self.logs.get(config).cloned());
        let of_site = |(site, routes): &(LogChoice, Vec<LogChoice>)| {
            let site = of(site, &server);
            let routes = routes.iter().map(|route| of(route, &site)).collect();
            (site, routes)
        };
        let sites = choices.sites.iter().map(of_site).collect();
        Logs { are_none: self.logs.is_empty(), server, sites }
    }

    fn add(&mut self) -> Log {
        self.numbers += 1;
        let (sender, dropped) = (self.sender.clone(), self.dropped.clone());
        Log { inner: Arc::new(Inner { number: self.numbers, sender, dropped, dropped_here: Arc::default() }) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // If the channel is full, this waits for the thread.
        let _ = self.sender.send(Message::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Default for Logs {
    fn default() -> Self {
        Self { server: None, sites: Vec::new(), are_none: true }
    }
}

impl Logs {
    /// Whether nothing is written anywhere.
    pub fn are_none(&self) -> bool {
        self.are_none
    }

    /// The log of requests that are for no site.
    pub fn server(&self) -> Option<&Log> {
        self.server.as_ref()
    }

    /// The log of a site, or of one of its routes.
    pub fn of(&self, site: usize, route: Option<usize>) -> Option<&Log> {
        let (site, routes) = self.sites.get(site)?;
        route.map_or(Some(site), |route| routes.get(route))?.as_ref()
    }
}

impl Log {
    /// Never blocks.
    pub(super) fn send(&self, record: Box<Record>) {
        self.try_send(Message::Entry(self.clone(), record));
    }

    /// Writes a text as it is, with its line end, cut at 16 KiB; never blocks.
    pub fn write(&self, severity: Severity, text: &[u8]) {
        let text = &text[..text.len().min(MAX_TEXT_BYTES)];
        self.try_send(Message::Text(self.clone(), severity, text.into()));
    }

    fn try_send(&self, message: Message) {
        if self.inner.sender.try_send(message).is_err() {
            self.inner.dropped.fetch_add(1, Relaxed);
            self.inner.dropped_here.fetch_add(1, Relaxed);
        }
    }
}

/// A log as the thread has it.
struct Slot {
    sink: Sink,
    dropped_here: Arc<AtomicU64>,
    /// Missing lines that the log itself has told of.
    told: u64,
    /// When a failure was reported last.
    reported_at: Option<Instant>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("name", &self.sink.name).finish_non_exhaustive()
    }
}

impl Slot {
    fn new(sink: Sink, dropped_here: Arc<AtomicU64>) -> Self {
        Self { sink, dropped_here, told: 0, reported_at: None }
    }

    /// Takes over what is known of the log from before it was opened anew.
    fn succeed(&mut self, before: &Self) {
        (self.told, self.reported_at) = (before.told, before.reported_at);
    }

    /// Whether the line is lost.
    fn take(&mut self, severity: Option<Severity>, line: &[u8], report: fn(&str)) -> bool {
        let result = self.sink.take(severity, line);
        let is_lost = result.is_err();
        if is_lost {
            self.check(result, report);
        }
        is_lost
    }

    fn flush(&mut self, text: &mut Vec<u8>, report: fn(&str)) {
        let dropped = self.dropped_here.load(Relaxed);
        if dropped > self.told {
            text.clear();
            line::write_dropped(text, self.sink.format, dropped - self.told);
            if self.sink.take(None, text).is_ok() {
                self.told = dropped;
            }
        }
        let result = self.sink.flush();
        self.check(result, report);
    }

    /// Reports a log that cannot be written once in a while, rather than for every line.
    fn check(&mut self, result: io::Result<()>, report: fn(&str)) {
        let Err(error) = result else { return };
        let now = Instant::now();
        if self.reported_at.is_none_or(|at| now - at >= REPORT_INTERVAL) {
            let dropped = match self.dropped_here.load(Relaxed) {
                0 => String::new(),
                lines => format!("; {lines} lines of it are lost so far"),
            };
            report(&format!("{} cannot be written as a log: {error}{dropped}", self.sink.name));
            self.reported_at = Some(now);
        }
    }
}

struct Lines {
    slots: HashMap<u32, Slot>,
    dropped: Arc<AtomicU64>,
    report: fn(&str),
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
                Ok(message @ (Message::Entry(..) | Message::Text(..))) => {
                    self.line(&message);
                    let due = *flush_due.get_or_insert_with(|| Instant::now() + FLUSH_INTERVAL);
                    if due > Instant::now() {
                        continue;
                    }
                }
                Ok(Message::Slots(slots)) => {
                    self.flush();
                    for (number, mut slot) in slots {
                        if let Some(mut before) = self.slots.remove(&number) {
                            self.end(&mut before);
                            slot.succeed(&before);
                        }
                        self.slots.insert(number, slot);
                    }
                }
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => {
                    self.flush();
                    for mut slot in std::mem::take(&mut self.slots).into_values() {
                        self.end(&mut slot);
                    }
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.flush();
            flush_due = self.retry_after().map(|time| Instant::now() + time);
        }
    }

    /// When to write again, if not all could be written.
    fn retry_after(&self) -> Option<Duration> {
        let sinks = || self.slots.values().map(|slot| &slot.sink);
        match sinks().any(Sink::is_behind) {
            true => Some(RETRY_INTERVAL),
            false => sinks().any(Sink::has_more).then_some(FLUSH_INTERVAL),
        }
    }

    fn line(&mut self, message: &Message) {
        let (log, severity) = match message {
            Message::Entry(log, _) => (log, None),
            Message::Text(log, severity, _) => (log, Some(*severity)),
            Message::Slots(_) | Message::End => return,
        };
        let Some(slot) = self.slots.get_mut(&log.inner.number) else { return };
        let line = match message {
            Message::Text(_, _, text) => text,
            Message::Entry(_, record) => {
                self.text.clear();
                line::write(&mut self.text, slot.sink.format, record);
                &*self.text
            }
            Message::Slots(_) | Message::End => return,
        };
        if slot.take(severity, line, self.report) {
            self.dropped.fetch_add(1, Relaxed);
            slot.dropped_here.fetch_add(1, Relaxed);
        }
    }

    fn flush(&mut self) {
        for slot in self.slots.values_mut() {
            slot.flush(&mut self.text, self.report);
            let lost = slot.sink.take_lost(false);
            self.dropped.fetch_add(lost, Relaxed);
            slot.dropped_here.fetch_add(lost, Relaxed);
        }
        // Where this is the last copy, no entry is under way, and none can come.
        let is_over = |slot: &Slot| Arc::strong_count(&slot.dropped_here) == 1;
        let over: Vec<u32> = self.slots.iter().filter(|(_, slot)| is_over(slot)).map(|(number, _)| *number).collect();
        for number in over {
            if let Some(mut slot) = self.slots.remove(&number) {
                self.end(&mut slot);
            }
        }
    }

    /// Gives a receiver a last chance before its log is closed.
    fn end(&self, slot: &mut Slot) {
        for _ in 0..LAST_RETRIES {
            if !slot.sink.is_behind() {
                break;
            }
            std::thread::sleep(RETRY_INTERVAL);
            let _ = slot.sink.flush();
        }
        let lost = slot.sink.take_lost(true);
        self.dropped.fetch_add(lost, Relaxed);
        slot.dropped_here.fetch_add(lost, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, net::SocketAddr, sync::mpsc::channel};

    use http::StatusCode;
    use parking_lot::Mutex;

    use super::*;
    use crate::{Entry, LogFormat, LogTarget, Processed, Sent};

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

    impl Drop for Disk {
        fn drop(&mut self) {
            self.text.lock().extend_from_slice(b"(closed)");
        }
    }

    type Text = Arc<Mutex<Vec<u8>>>;

    fn log(name: &str) -> AccessLog {
        AccessLog { target: LogTarget::File(name.into()), format: LogFormat::Combined }
    }

    /// Sinks for all logs that are chosen, in their order.
    fn opened(choices: LogChoices) -> (Opened, Vec<Text>, Vec<std::sync::mpsc::Sender<()>>) {
        let (mut sinks, mut texts, mut releases) = (Vec::new(), Vec::new(), Vec::new());
        for log in choices.distinct() {
            let (go_on, waiting) = channel();
            let text = Text::default();
            let disk = Disk { text: Arc::clone(&text), go_on: Some(waiting) };
            sinks.push((log.clone(), Sink::to(Box::new(disk), log.format, log.target.to_string())));
            texts.push(text);
            releases.push(go_on);
        }
        (Opened { choices, sinks }, texts, releases)
    }

    fn one(name: &str) -> LogChoices {
        LogChoices { server: Some(log(name)), sites: Vec::new() }
    }

    fn writer() -> (Writer, Arc<AtomicU64>) {
        let dropped = Arc::new(AtomicU64::new(0));
        (Writer::start(dropped.clone()).expect("a thread"), dropped)
    }

    fn send(log: &Log, target: &str) {
        let (parts, ()) = http::Request::get(target).body(()).expect("a request").into_parts();
        let sent = Sent { body_bytes: 1, complete: true, slowdown: Some(1.5) };
        let peer = SocketAddr::from(([192, 0, 2, 1], 1));
        let processed = Processed {
            class: "default".into(),
            user: None,
            waited: Duration::ZERO,
            upstream: None,
            attempts: None,
            cache: None,
            trace: None,
            grpc_status: None,
        };
        Entry::new(peer, &parts, None).write(log, StatusCode::OK, sent, Duration::from_millis(2), processed);
    }

    fn said(text: &Text) -> String {
        String::from_utf8(text.lock().clone()).expect("ASCII")
    }

    #[test]
    fn a_disk_that_hangs_holds_nobody_up_and_the_log_tells_what_is_missing() {
        let (opened, texts, go_on) = opened(one("a"));
        let (mut writer, dropped) = writer();
        let logs = writer.replace(opened);
        let sent = 3 * QUEUE_ENTRIES;
        for _ in 0..sent {
            send(logs.server().expect("a log"), "/a");
        }
        let missing = dropped.load(Relaxed) as usize;
        assert!(missing > 0, "the queue is bounded");
        drop(go_on);
        drop(writer);
        let text = said(&texts[0]);
        assert_eq!(text.lines().filter(|line| line.contains("GET /a")).count(), sent - missing);
        assert!(text.contains(&format!("# {missing} lines dropped")), "what is missing is told once, in all");
    }

    #[test]
    fn a_line_has_class_response_time_and_slowdown_at_its_end() {
        let (opened, texts, go_on) = opened(one("a"));
        drop(go_on);
        let (mut writer, _) = writer();
        let logs = writer.replace(opened);
        send(logs.server().expect("a log"), "/a");
        drop((writer, logs));
        let text = said(&texts[0]);
        assert!(text.ends_with("\"GET /a HTTP/1.1\" 200 1 \"-\" \"-\" default 0.002000 1.50\n(closed)"), "{text}");
    }

    #[test]
    fn a_log_that_stays_is_opened_anew_for_entries_under_way_and_one_that_goes_is_closed_after_them() {
        let (mut writer, _) = writer();
        let (first, old, go_on) = opened(one("stays"));
        drop(go_on);
        let before = writer.replace(first);
        send(before.server().unwrap(), "/before");
        let (second, new, go_on) = opened(one("stays"));
        drop(go_on);
        writer.replace(second);
        send(before.server().unwrap(), "/after");
        let (third, other, go_on) = opened(one("other"));
        drop(go_on);
        let now = writer.replace(third);
        send(before.server().unwrap(), "/late");
        drop(before);
        send(now.server().unwrap(), "/other");
        // Reopening writes what there is.
        let (fourth, _, go_on) = opened(one("other"));
        drop(go_on);
        writer.replace(fourth);
        drop(writer);
        assert!(said(&old[0]).contains("/before") && !said(&old[0]).contains("/after"), "{}", said(&old[0]));
        let stays = said(&new[0]);
        assert!(stays.contains("/after") && stays.contains("/late") && !stays.contains("/before"), "{stays}");
        assert!(stays.ends_with("(closed)"), "{stays}");
        assert!(said(&other[0]).contains("/other") && !said(&other[0]).contains("/late"));
    }

    #[test]
    fn sites_and_routes_write_where_they_choose_and_one_file_has_one_sink() {
        use LogChoice::{Off, Outer, Own};
        let choices = LogChoices {
            server: Some(log("server")),
            sites: vec![
                (Outer, vec![Outer, Off, Own(log("shared"))]),
                (Own(log("shared")), vec![Outer]),
                (Off, vec![Outer, Own(log("server"))]),
            ],
        };
        let (opened, texts, go_on) = opened(choices);
        drop(go_on);
        let (mut writer, _) = writer();
        let logs = writer.replace(opened);
        assert_eq!(texts.len(), 2);
        for (site, route) in [0, 1, 2]
            .into_iter()
            .flat_map(|site| [None, Some(0), Some(1), Some(2)].into_iter().map(move |route| (site, route)))
        {
            if let Some(log) = logs.of(site, route) {
                send(log, &format!("/{site}{}", route.map_or(String::new(), |route| format!("-{route}"))));
            }
        }
        drop(writer);
        let targets = |text: &Text| -> Vec<String> {
            let text = said(text);
            text.lines().filter_map(|line| Some(line.split("GET /").nth(1)?.split(' ').next()?.to_owned())).collect()
        };
        assert_eq!(targets(&texts[0]), ["0", "0-0", "2-1"]);
        assert_eq!(targets(&texts[1]), ["0-2", "1", "1-0"]);
        assert!(!logs.are_none());
        assert!(logs.of(7, None).is_none());
    }
}
