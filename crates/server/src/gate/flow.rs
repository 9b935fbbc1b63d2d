//! The handle on what a connection sends, shared by its gate and its HTTP side.
//!
//! The HTTP side announces responses and tells when their bodies end. The gate asks which job needs leave for the next
//! write, and tells what the transport took. One of two flows joins the two sides: [`ConnectionFlow`] ranks an HTTP/1
//! connection as a whole, [`StreamFlow`] ranks each stream of an HTTP/2 connection.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use heads::PriorityField;
use limits::Share;
use parking_lot::Mutex;
use scheduler::{JobId, Path, Size, priority::Priority};

use super::{
    connection_flow::ConnectionFlow,
    response::{BodyEnd, NewResponse, ResponseId, Responses, SendOutcome, TransportProgress, Urgency, size},
    stream_flow::{CREDIT_LIMIT_BYTES, KERNEL_CREDIT_LIMIT_BYTES, StreamFlow, WaitingStream},
    stream_priority::{StreamPriority, TooMany},
    told::Words,
    transport::{ClientSide, Peer},
};
use crate::uplink::{ClassAt, Enforcement, Teller, driver::Driver};

/// A full record of TLS 1.3, and the bytes that it adds: its head, the kind of its content, and the tag.
const RECORD_BYTES: u64 = 16 * 1024;
const RECORD_OVERHEAD_BYTES: u64 = 22;

/// A handle on what a connection sends; cheap to clone.
#[derive(Clone)]
pub struct Flow {
    inner: Arc<Inner>,
}

struct Inner {
    driver: Arc<Driver>,
    peer: Arc<dyn Peer>,
    /// Whether the client runs on this machine.
    is_local: bool,
    write_timeout_ms: AtomicU64,
    /// In bytes a second; 0: none.
    least_rate: AtomicU64,
    /// HTTP/2: the window in bytes with which the client lets each stream begin; 0: not known.
    stream_window_bytes: AtomicU32,
    /// Payload of a full segment, where it was measured; 0: not known.
    segment_bytes: AtomicU32,
    /// Whether TLS adds to what is sent.
    is_encrypted: AtomicBool,
    /// Whether the buffer into which the connection is read is its own: that of TLS, or of the framing of HTTP/2.
    keeps_buffer: AtomicBool,
    /// Whether nothing has come for a while on such a connection.
    is_resting: AtomicBool,
    /// Whether the last active response was given up, because its client took too little of it.
    given_up: AtomicBool,
    /// HTTP/2: whether the client has said of a response how urgent it is.
    has_priorities: AtomicBool,
    /// Whether a response was ever ranked, or limited. Kept outside of the lock: where no uplink is limited, no response is.
    has_ranked: AtomicBool,
    kind: Mutex<FlowKind>,
}

enum FlowKind {
    /// The connection is ranked as a whole. Every connection begins so, because its first response tells the protocol.
    Connection(ConnectionFlow),
    /// Its streams are ranked one by one. In a box, which most idle connections do not have.
    Streams(Box<StreamFlow>),
}

/// The jobs that the next write of a connection concerns.
#[derive(Default)]
pub(super) struct NextWrite {
    /// The job that asks leave for the write.
    pub asks: Option<JobId>,
    /// The job that stands for the connection: in HTTP/1 the response being sent, in HTTP/2 the best by share and
    /// order. `None` where all active responses go first.
    pub best: Option<JobId>,
    /// HTTP/1: the share of the response that is being sent of its client's bytes, and how much is left of it. `None`: they
    /// are not limited.
    pub limited: Option<(Arc<Share>, u64)>,
}

/// Marks bytes of another protocol than HTTP, which come without a pause. They are ranked like the body of an HTTP/1
/// response of unknown length. The burst is over at the flush that follows its drop.
#[derive(Debug)]
pub(crate) struct Burst {
    flow: Flow,
    id: ResponseId,
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.flow.handle_body_end(self.id, BodyEnd { bytes: 0, whole: true, first: None });
    }
}

impl Flow {
    pub(super) fn new(driver: Arc<Driver>, peer: Arc<dyn Peer>, is_local: bool) -> Self {
        Self {
            inner: Arc::new(Inner {
                driver,
                peer,
                is_local,
                write_timeout_ms: AtomicU64::new(0),
                least_rate: AtomicU64::new(0),
                stream_window_bytes: AtomicU32::new(0),
                segment_bytes: AtomicU32::new(0),
                is_encrypted: AtomicBool::new(false),
                keeps_buffer: AtomicBool::new(false),
                is_resting: AtomicBool::new(false),
                given_up: AtomicBool::new(false),
                has_priorities: AtomicBool::new(false),
                has_ranked: AtomicBool::new(false),
                kind: Mutex::new(FlowKind::Connection(ConnectionFlow::default())),
            }),
        }
    }

    pub(super) fn peer(&self) -> &dyn Peer {
        &*self.inner.peer
    }

    /// Whether the client runs on this machine, so that its round trips tell nothing of the uplink.
    pub(super) fn is_local(&self) -> bool {
        self.inner.is_local
    }

    /// How the order of this connection's responses is kept.
    pub(super) fn enforcement(&self) -> Enforcement {
        // The uplink whose rate is estimated does not lie before a client on this machine.
        if self.inner.is_local && self.inner.driver.estimates_rate() {
            Enforcement::Off
        } else {
            self.inner.driver.enforcement()
        }
    }

    /// Whether the client is still there.
    pub(crate) fn client_side(&self) -> ClientSide {
        self.inner.peer.side()
    }

    /// How long the transport may take nothing of the bytes offered to it before the connection is given up. Time spent
    /// waiting for leave does not count. Zero, the initial value, means for ever.
    pub fn set_write_timeout(&self, timeout: Duration) {
        let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.inner.write_timeout_ms.store(ms, Ordering::Relaxed);
    }

    pub(super) fn write_timeout(&self) -> Option<Duration> {
        match self.inner.write_timeout_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(Duration::from_millis(ms)),
        }
    }

    /// The least rate at which a client has to take the bytes offered to it, in bytes a second. A slower client is
    /// given up a while after the write timeout, as `gate/stall_budget.rs` describes. Zero, the initial value, means
    /// none.
    pub fn set_least_rate(&self, bytes_per_second: u64) {
        self.inner.least_rate.store(bytes_per_second, Ordering::Relaxed);
    }

    pub(super) fn least_rate(&self) -> u64 {
        self.inner.least_rate.load(Ordering::Relaxed)
    }

    /// Whether the last active response was given up because its client took too little of it.
    pub(crate) fn gave_up(&self) -> bool {
        self.inner.given_up.load(Ordering::Relaxed)
    }

    /// Announces a response to the scheduler. `stream` is how urgent it is among the others of its connection, `None`
    /// there if its client has no say, and `None` in HTTP/1. `body_bytes` is `None` where the length is not known.
    /// `share`: HTTP/1, where the bytes of the client are limited.
    pub(super) fn begin(
        &self,
        class: ClassAt,
        stream: Option<Option<StreamPriority>>,
        body_bytes: Option<u64>,
        urgency: Urgency,
        share: Option<Arc<Share>>,
        done: Box<dyn FnOnce(SendOutcome) + Send>,
    ) -> (ResponseId, Option<JobId>) {
        let driver = &self.inner.driver;
        // HTTP/1 needs a job only where leave is asked. HTTP/2 orders its streams by it as well.
        let ranked = urgency == Urgency::Ranked && (stream.is_some() || self.enforcement() == Enforcement::Paced);
        let size = size(body_bytes);
        let rankable = (urgency == Urgency::Ranked).then_some(size);
        // A word on the stream that has come before its response is newer than its request.
        let words = stream.flatten().map(|words| match self.with_streams(|flow| flow.early.take(words.stream)) {
            Some(client) => StreamPriority { client, ..words },
            None => words,
        });
        let priority = words.map(|words| words.whole()).unwrap_or_default();
        let group = stream.filter(|_| ranked).map(|_| (self.with_streams(|flow| flow.group(driver)), priority));
        let job = ranked.then(|| driver.handle_started_in(group, class, size, self.path()));
        if ranked || share.is_some() {
            self.inner.has_ranked.store(true, Ordering::Relaxed);
        }
        if priority != Priority::default() {
            self.inner.has_priorities.store(true, Ordering::Relaxed);
        }
        let mut flow = self.inner.kind.lock();
        if stream.is_some() {
            flow.begin_streams().handle_change();
        }
        let id = flow.responses().push(NewResponse { class, job, words, rankable, share, began: driver.now(), done });
        (id, job)
    }

    /// HTTP/2: the client says anew how urgent the response of a stream is. Streams up to `last_opened` are open or over.
    ///
    /// # Errors
    /// It has said so of more than `most` streams that it has not opened.
    pub(crate) fn handle_priority(
        &self,
        stream: u32,
        client: PriorityField,
        last_opened: u32,
        most: usize,
    ) -> Result<(), TooMany> {
        let changed = self.with_streams(|flow| match flow.responses.has_stream(stream) {
            true => Ok(flow.handle_priority(stream, client)),
            false => flow.early.keep(stream, client, last_opened, most).map(|()| None),
        })?;
        if let Some((job, priority)) = changed {
            self.inner.has_priorities.store(true, Ordering::Relaxed);
            self.inner.driver.handle_priority(job, priority);
        }
        Ok(())
    }

    /// HTTP/2: a response of unknown length that has paused goes on, and is ranked as if it began now. Returns its job;
    /// `None`: it goes first, or its connection is gone.
    pub(super) fn begin_again(&self, id: ResponseId) -> Option<JobId> {
        let driver = &self.inner.driver;
        let (class, priority) = self.with_streams(|flow| flow.responses.ranked(id))?;
        let group = self.with_streams(|flow| flow.group(driver));
        let job = driver.handle_started_in(Some((group, priority)), class, Size::Unknown, self.path());
        let old = self.with_streams(|flow| {
            flow.handle_change();
            flow.responses.replace_job(id, job)
        });
        driver.handle_finished(old.unwrap_or(job), old.is_some());
        old.map(|_| job)
    }

    /// Begins a burst of another protocol's bytes.
    pub(crate) fn burst(&self, class: ClassAt) -> Burst {
        let (id, _) = self.begin(class, None, None, Urgency::Ranked, None, Box::new(|_| ()));
        Burst { flow: self.clone(), id }
    }

    /// The path as far as the scheduler needs it: all of it where the order uses it, the size of the segments where
    /// bytes are counted.
    fn path(&self) -> Option<Path> {
        let Inner { driver, peer, .. } = &*self.inner;
        if driver.needs_path() {
            return peer.measure()?.path;
        }
        if self.enforcement() != Enforcement::Paced {
            return None;
        }
        let mss_bytes = match self.inner.segment_bytes.load(Ordering::Relaxed) {
            0 => peer.segment_bytes()?,
            bytes => bytes,
        };
        Some(Path { mss_bytes, ..Path::UNKNOWN })
    }

    /// The length of a response became known: so many bytes are still to be sent.
    pub(super) fn handle_length(&self, id: ResponseId, left_bytes: u64) {
        let job = {
            let mut flow = self.inner.kind.lock();
            if let FlowKind::Streams(flow) = &mut *flow {
                flow.handle_change();
            }
            flow.responses().handle_length(id, left_bytes)
        };
        if let Some(job) = job {
            self.inner.driver.handle_length(job, left_bytes);
        }
    }

    /// The body of a response has ended.
    pub(super) fn handle_body_end(&self, id: ResponseId, end: BodyEnd) {
        let driver = &*self.inner.driver;
        let (given_up, waiting) = match &mut *self.inner.kind.lock() {
            FlowKind::Connection(flow) => (flow.handle_body_end(id, end), Vec::new()),
            FlowKind::Streams(flow) => flow.handle_body_end(id, end, driver),
        };
        if let Some(response) = given_up {
            response.finish(driver, false);
        }
        WaitingStream::wake(waiting);
    }

    /// HTTP/2: waits for leave for a body to hand up to `bytes` to the framing.
    pub(super) fn poll_leave(&self, cx: &mut Context<'_>, job: JobId, bytes: u64) -> Poll<u64> {
        let driver = &self.inner.driver;
        let enforcement = self.enforcement();
        let limit = match enforcement {
            Enforcement::Paced => driver.chunk_bytes().min(CREDIT_LIMIT_BYTES),
            Enforcement::Off => CREDIT_LIMIT_BYTES,
            Enforcement::Kernel => KERNEL_CREDIT_LIMIT_BYTES,
        };
        let urgent_first = enforcement != Enforcement::Paced;
        ready!(self.with_streams(|flow| flow.poll_room(cx, job, limit, urgent_first)));
        let bytes = bytes.min(limit);
        let leave = if enforcement == Enforcement::Off && self.inner.is_local {
            Some(bytes)
        } else {
            driver.ask(job, bytes, cx.waker())
        };
        match leave {
            Some(leave) => {
                self.with_streams(|flow| flow.handle_leave(job, leave));
                Poll::Ready(leave)
            }
            None => Poll::Pending,
        }
    }

    /// The payload of a full segment was measured.
    pub(super) fn set_segment_bytes(&self, bytes: u32) {
        self.inner.segment_bytes.store(bytes, Ordering::Relaxed);
    }

    /// HTTP/2: the window in bytes with which the client lets each stream begin. `None`: not known, which is the initial
    /// value.
    pub(crate) fn set_stream_window(&self, bytes: Option<u32>) {
        self.inner.stream_window_bytes.store(bytes.unwrap_or(0), Ordering::Relaxed);
    }

    /// HTTP/2: how many bytes a stream can surely send before the client opens a window, `passed_bytes` after its
    /// beginning. Zero while the framing holds back bytes, because the window of the whole connection may be closed then.
    pub(crate) fn open_window_bytes(&self, passed_bytes: u64) -> u64 {
        let window_bytes = u64::from(self.inner.stream_window_bytes.load(Ordering::Relaxed));
        match window_bytes.saturating_sub(passed_bytes) {
            0 => 0,
            _ if self.with_streams(|flow| flow.holds_back()) => 0,
            left_bytes => left_bytes,
        }
    }

    /// HTTP/2: bytes that the connection has to pass on before any that are given to it now.
    pub(super) fn ahead_bytes(&self) -> u64 {
        self.with_streams(|flow| flow.ahead_bytes())
    }

    /// HTTP/2: bytes that have arrived at the client's machine.
    pub(super) fn delivered_bytes(&self) -> u64 {
        let taken_bytes = self.with_streams(|flow| flow.progress.bytes);
        // Where the transport does not tell, the bytes that it took count.
        taken_bytes.saturating_sub(self.inner.peer.unacked_bytes().unwrap_or(0))
    }

    fn with_streams<R>(&self, f: impl FnOnce(&mut StreamFlow) -> R) -> R {
        f(self.inner.kind.lock().begin_streams())
    }

    /// A client takes too little of a response, or, without a number, of all that its connection sends.
    pub(super) fn handle_slow(&self, only: Option<ResponseId>) {
        let responses = self.inner.kind.lock().responses().mark_slow(only);
        if responses > 0 {
            self.inner.driver.count_stalled(responses as u64);
            self.inner.peer.log("a client takes too little of its response");
        }
    }

    /// As [`Flow::handle_slow`], and the response is given up.
    pub(super) fn handle_too_slow(&self, only: Option<ResponseId>) {
        self.handle_slow(only);
        let (given_up, is_last) = {
            let mut flow = self.inner.kind.lock();
            let responses = flow.responses();
            let given_up = responses.count(only);
            (given_up, given_up == responses.len())
        };
        self.inner.given_up.store(is_last, Ordering::Relaxed);
        self.inner.driver.count_given_up(given_up as u64);
        self.inner.peer.log("a response is given up, because its client takes too little of it");
    }

    /// In kernel mode: what to tell the kernel before the next write.
    pub(super) fn poll_told(&self) -> Option<(Arc<Teller>, Words)> {
        let driver = &*self.inner.driver;
        let (teller, mut words) = match &mut *self.inner.kind.lock() {
            FlowKind::Connection(flow) => flow.poll_told(driver).map(|(teller, told)| (teller, told.into())),
            FlowKind::Streams(flow) => flow.poll_told(driver, || self.inner.peer.unacked_bytes().unwrap_or(0)),
        }?;
        if self.inner.is_encrypted.load(Ordering::Relaxed) {
            words.lengthen(|bytes| bytes / RECORD_BYTES * RECORD_OVERHEAD_BYTES + RECORD_OVERHEAD_BYTES);
        }
        Some((teller, words))
    }

    /// HTTP/2: whether the client has said of a response how urgent it is.
    pub(super) fn has_priorities(&self) -> bool {
        self.inner.has_priorities.load(Ordering::Relaxed)
    }

    /// Whether the streams of the connection are ranked one by one.
    pub(super) fn has_streams(&self) -> bool {
        matches!(*self.inner.kind.lock(), FlowKind::Streams(_))
    }

    /// The connection is encrypted, so that more bytes leave than its responses have.
    pub(crate) fn set_encrypted(&self) {
        self.inner.is_encrypted.store(true, Ordering::Relaxed);
        self.set_keeps_buffer();
    }

    /// The reader has a buffer for this connection alone, whose memory is given back while the connection rests.
    pub(crate) fn set_keeps_buffer(&self) {
        self.inner.keeps_buffer.store(true, Ordering::Relaxed);
    }

    pub(super) fn keeps_buffer(&self) -> bool {
        self.inner.keeps_buffer.load(Ordering::Relaxed)
    }

    pub(super) fn set_resting(&self, is_resting: bool) {
        self.inner.is_resting.store(is_resting, Ordering::Relaxed);
    }

    /// Whether nothing has come for a while. Only for connections whose buffer is their own.
    pub(crate) fn is_resting(&self) -> bool {
        self.inner.is_resting.load(Ordering::Relaxed)
    }

    /// The jobs that the next write concerns. `with_best`: in HTTP/2, look for the best job too.
    pub(super) fn next_write(&self, with_best: bool) -> NextWrite {
        let Inner { driver, has_ranked, .. } = &*self.inner;
        let is_off = self.enforcement() != Enforcement::Paced;
        if is_off && !has_ranked.load(Ordering::Relaxed) {
            return NextWrite::default();
        }
        match &mut *self.inner.kind.lock() {
            FlowKind::Connection(flow) => {
                let job = if is_off { flow.job() } else { flow.ranked_job(driver) };
                if job.is_some() {
                    has_ranked.store(true, Ordering::Relaxed);
                }
                NextWrite { asks: job, best: job, limited: flow.limited() }
            }
            FlowKind::Streams(flow) => {
                let best = if with_best { flow.best_job(driver) } else { None };
                NextWrite { asks: None, best, limited: None }
            }
        }
    }

    /// The transport took bytes.
    pub(super) fn handle_sent(&self, bytes: u64) {
        let driver = &*self.inner.driver;
        let (mut finished, mut waiting) = (None, Vec::new());
        let unranked_bytes;
        match &mut *self.inner.kind.lock() {
            FlowKind::Connection(flow) => (unranked_bytes, finished) = flow.handle_sent(bytes),
            FlowKind::Streams(flow) => (unranked_bytes, waiting) = flow.handle_sent(bytes, driver),
        }
        if unranked_bytes > 0 && self.enforcement() == Enforcement::Paced {
            driver.handle_ungranted(unranked_bytes);
        }
        if let Some(response) = finished {
            response.finish(driver, true);
        }
        WaitingStream::wake(waiting);
    }

    /// Segments without payload were sent.
    pub(super) fn handle_bare_segments(&self, segments: u64) {
        if self.enforcement() == Enforcement::Paced {
            self.inner.driver.handle_bare_segments(segments);
        }
    }

    /// The transport takes nothing.
    pub(super) fn handle_full(&self) {
        self.inner.kind.lock().progress().handle_full();
    }

    /// The transport took all that HTTP and TLS had to write.
    pub(super) fn handle_flushed(&self) {
        let driver = &*self.inner.driver;
        loop {
            let mut waiting = Vec::new();
            let (finished, more) = match &mut *self.inner.kind.lock() {
                FlowKind::Connection(flow) => (flow.handle_flushed(), !flow.responses.is_empty()),
                FlowKind::Streams(flow) => match flow.handle_flushed(driver) {
                    Ok(response) => (Some(response), true),
                    Err(streams) => {
                        waiting = streams;
                        (None, false)
                    }
                },
            };
            WaitingStream::wake(waiting);
            let Some(response) = finished else { return };
            response.finish(driver, true);
            if !more {
                return;
            }
        }
    }

    /// The connection is gone.
    pub(super) fn handle_closed(&self) {
        let (responses, waiting) = match &mut *self.inner.kind.lock() {
            FlowKind::Connection(flow) => (flow.responses.close(), Vec::new()),
            FlowKind::Streams(flow) => flow.handle_closed(),
        };
        for response in responses {
            response.finish(&self.inner.driver, false);
        }
        WaitingStream::wake(waiting);
    }
}

impl FlowKind {
    /// From now on streams are ranked. A connection never goes back.
    fn begin_streams(&mut self) -> &mut StreamFlow {
        if let Self::Connection(flow) = self {
            *self = Self::Streams(Box::new(std::mem::take(flow).into()));
        }
        match self {
            Self::Streams(flow) => flow,
            Self::Connection(_) => unreachable!("it was replaced just now"),
        }
    }

    fn responses(&mut self) -> &mut Responses {
        match self {
            Self::Connection(flow) => &mut flow.responses,
            Self::Streams(flow) => &mut flow.responses,
        }
    }

    fn progress(&mut self) -> &mut TransportProgress {
        match self {
            Self::Connection(flow) => &mut flow.progress,
            Self::Streams(flow) => &mut flow.progress,
        }
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut flow = self.inner.kind.lock();
        let has_streams = matches!(*flow, FlowKind::Streams(_));
        f.debug_struct("Flow")
            .field("responses", &flow.responses().len())
            .field("has_streams", &has_streams)
            .finish_non_exhaustive()
    }
}
