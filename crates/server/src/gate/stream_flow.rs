//! HTTP/2: streams share a connection, and each stream is ranked by itself.
//!
//! The framing cuts responses into frames before the gate sees them, and one frame held back at the transport would
//! hold back all frames behind it. So a stream asks leave above the framing, before its body hands over a chunk. The
//! connection has one credit: the bytes that have leave and that the transport has not taken. A stream waits while the
//! credit is used up.
//!
//! The streams of a connection are a group of the scheduler, which keeps the order that their client asks for. Where
//! nothing is paced, the scheduler gives leave at once. Then a stream also waits until the transport has taken the
//! bytes of more urgent streams.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use heads::PriorityField;
use scheduler::{
    JobId,
    priority::{GroupId, Priority},
};

use super::{
    connection_flow::ConnectionFlow,
    response::{ActiveResponse, BodyEnd, ResponseId, Responses, TransportProgress},
    stream_priority::EarlyWords,
    told::Words,
};
use crate::uplink::{Teller, driver::Driver};

/// After so many bytes the kernel is told again which response is the best.
const TELL_EVERY_BYTES: u64 = 8 * 1024;

/// The most credit of a connection where nothing is paced.
pub(super) const CREDIT_LIMIT_BYTES: u64 = 64 * 1024;

/// The same in kernel mode, where a stream that becomes the best one waits for these bytes.
pub(super) const KERNEL_CREDIT_LIMIT_BYTES: u64 = 16 * 1024;

/// The numbers of urgency.
const URGENCIES: usize = Priority::LEAST_URGENT as usize + 1;

/// The responses of a connection whose streams are ranked one by one.
#[derive(Default)]
pub(super) struct StreamFlow {
    pub responses: Responses,
    pub progress: TransportProgress,
    /// Bytes with leave that the gate has not seen yet.
    credit_bytes: u64,
    /// The same by urgency. The more urgent bytes are taken to leave first.
    credit_by_urgency: [u64; URGENCIES],
    /// Priorities that the client has sent for streams whose responses have not begun.
    pub early: EarlyWords,
    /// The group of its streams; `None`: there was none yet.
    group: Option<GroupId>,
    /// Bytes with leave that the framing still held when the gate was flushed. It sends them when the client opens a
    /// window.
    held_bytes: u64,
    /// Streams that wait for the connection, not for the uplink.
    waiting: Vec<WaitingStream>,
    /// In kernel mode: [`TransportProgress::bytes`] when the kernel was told; `None`: something has changed since.
    told_at_bytes: Option<u64>,
    /// The words that the kernel was given last; `None`: none yet.
    words: Option<Box<Words>>,
}

/// A stream that waits until the transport has taken the bytes that have leave.
pub(super) struct WaitingStream {
    job: JobId,
    urgency: u8,
    waker: Waker,
    /// [`TransportProgress::writes`] when it began to wait.
    since_write: u64,
}

impl WaitingStream {
    /// Wakes streams. The caller holds no lock.
    pub fn wake(streams: Vec<Self>) {
        streams.into_iter().for_each(|stream| stream.waker.wake());
    }
}

impl From<ConnectionFlow> for StreamFlow {
    /// Every connection begins as [`ConnectionFlow`]. Its first response tells that it has streams.
    fn from(flow: ConnectionFlow) -> Self {
        Self { responses: flow.responses, progress: flow.progress, ..Self::default() }
    }
}

impl StreamFlow {
    /// The group of its streams.
    pub fn group(&mut self, driver: &Driver) -> GroupId {
        *self.group.get_or_insert_with(|| driver.new_group())
    }

    /// The job that stands for the connection: the best one by share and order. `None`: all responses go first.
    pub fn best_job(&self, driver: &Driver) -> Option<JobId> {
        self.responses.jobs().min_by_key(|&job| driver.place(job))
    }

    /// In kernel mode: what to tell the kernel before the next bytes. The best response stands for the connection.
    /// `unacked_bytes`: that the transport took and the client does not have yet.
    pub fn poll_told(&mut self, driver: &Driver, unacked_bytes: impl FnOnce() -> u64) -> Option<(Arc<Teller>, Words)> {
        let offset = self.progress.bytes;
        if self.told_at_bytes.is_some_and(|at| offset - at < TELL_EVERY_BYTES) {
            return None;
        }
        let best = self.best_job(driver)?;
        self.told_at_bytes = Some(offset);
        let ahead_bytes = self.credit_bytes + self.held_bytes;
        let (teller, told) = self.responses.of_job_mut(best)?.told_of_stream(offset, ahead_bytes, driver)?;
        let words = match &mut self.words {
            Some(words) => words.push(told, unacked_bytes).then_some(&**words),
            none => Some(&**none.insert(Box::new(told.into()))),
        };
        Some((teller, *words?))
    }

    /// The best response may be another one now, or its length is known.
    pub fn handle_change(&mut self) {
        self.told_at_bytes = None;
    }

    /// The client says anew how urgent a response is. Returns its job, and how urgent that is now; `None`: there is no such
    /// response, or it goes first.
    pub fn handle_priority(&mut self, stream: u32, client: PriorityField) -> Option<(JobId, Priority)> {
        let (job, priority) = self.responses.handle_priority(stream, client)?;
        self.waiting.iter_mut().filter(|it| it.job == job).for_each(|it| it.urgency = priority.urgency);
        self.handle_change();
        Some((job, priority))
    }

    /// Bytes that the connection has to pass on before any that are given to it now.
    pub fn ahead_bytes(&self) -> u64 {
        self.progress.bytes + self.credit_bytes
    }

    /// Whether the connection has room for a stream: its credit is less than `limit_bytes`, and the transport takes
    /// bytes. `urgent_first`: and no more urgent stream has bytes among the credit, or is about to.
    pub fn poll_room(&mut self, cx: &mut Context<'_>, job: JobId, limit_bytes: u64, urgent_first: bool) -> Poll<()> {
        if self.responses.is_closed() {
            return Poll::Pending;
        }
        let before = self.waiting.iter().position(|stream| stream.job == job);
        let before = before.map(|at| self.waiting.swap_remove(at));
        if !self.progress.is_full && before.as_ref().is_some_and(|before| before.since_write == self.progress.writes) {
            // The connection had its turn and wrote nothing: its client's window holds back the bytes that it has.
            self.hold_credit();
        }
        let urgency = self.responses.handle_asked(job).urgency;
        let yields = urgent_first && self.has_more_urgent(urgency, before.is_some());
        if !self.progress.is_full && self.credit_bytes < limit_bytes && !yields {
            return Poll::Ready(());
        }
        if !self.progress.is_full {
            cx.waker().wake_by_ref();
        }
        let since_write = self.progress.writes;
        self.waiting.push(WaitingStream { job, urgency, waker: cx.waker().clone(), since_write });
        Poll::Pending
    }

    /// Whether a stream of this urgency has to wait for more urgent ones. `asks_again`: it has waited already.
    fn has_more_urgent(&self, urgency: u8, asks_again: bool) -> bool {
        // Their bytes have not left, or they wait for room.
        let has_bytes = self.credit_by_urgency[..usize::from(urgency)].iter().any(|&bytes| bytes > 0);
        if has_bytes || self.waiting.iter().any(|stream| stream.urgency < urgency) {
            return true;
        }
        // A more urgent stream may have been woken with this one, and its task may run later. So this stream asks again,
        // once, behind it. Bytes that the client's window holds back are not waited for.
        !asks_again && self.held_bytes == 0 && self.responses.is_moving_before(urgency)
    }

    /// A stream was given leave.
    pub fn handle_leave(&mut self, job: JobId, bytes: u64) {
        self.credit_bytes += bytes;
        self.credit_by_urgency[usize::from(self.responses.priority_of(job).urgency)] += bytes;
    }

    /// The transport took bytes. Returns how many of them needed no leave, and the streams to wake.
    pub fn handle_sent(&mut self, bytes: u64, driver: &Driver) -> (u64, Vec<WaitingStream>) {
        self.progress.handle_sent(bytes);
        let from_credit = bytes.min(self.credit_bytes);
        self.credit_bytes -= from_credit;
        let mut left_bytes = from_credit;
        for credit_bytes in &mut self.credit_by_urgency {
            let taken_bytes = left_bytes.min(*credit_bytes);
            *credit_bytes -= taken_bytes;
            left_bytes -= taken_bytes;
        }
        let from_held = (bytes - from_credit).min(self.held_bytes);
        self.held_bytes -= from_held;
        (bytes - from_credit - from_held, self.take_waiting(driver))
    }

    /// The transport took all that was written. Returns a response whose body has ended, or the streams to wake.
    pub fn handle_flushed(&mut self, driver: &Driver) -> Result<ActiveResponse, Vec<WaitingStream>> {
        self.hold_credit();
        if self.responses.is_empty() {
            // A stream that was reset has taken its held bytes with it.
            self.held_bytes = 0;
        }
        let finished = self.responses.first_with_ended_body().and_then(|at| self.responses.remove(at));
        finished.ok_or_else(|| self.take_waiting(driver))
    }

    /// The body of a response has ended. Returns the response, if nothing of it has to be flushed, and the streams to
    /// wake.
    pub fn handle_body_end(
        &mut self,
        id: ResponseId,
        end: BodyEnd,
        driver: &Driver,
    ) -> (Option<ActiveResponse>, Vec<WaitingStream>) {
        let mut given_up = None;
        self.handle_change();
        if let Some(at) = self.responses.handle_body_end(id, end) {
            let job = self.responses.job_of(id);
            self.waiting.retain(|waiting| Some(waiting.job) != job);
            // A stream that was reset leaves nothing to be flushed. Nor does a connection that is gone.
            if self.responses.is_closed() || !end.whole {
                given_up = self.responses.remove(at);
            }
        }
        (given_up, self.take_waiting(driver))
    }

    pub fn handle_closed(&mut self) -> (VecDeque<ActiveResponse>, Vec<WaitingStream>) {
        (self.responses.close(), std::mem::take(&mut self.waiting))
    }

    /// Whether the framing holds bytes that it may not send yet.
    pub fn holds_back(&self) -> bool {
        self.held_bytes > 0
    }

    fn hold_credit(&mut self) {
        self.held_bytes += std::mem::take(&mut self.credit_bytes);
        self.credit_by_urgency = [0; URGENCIES];
    }

    /// The streams that wait, if the connection has room again, the best one first. All of them try again: the client
    /// may have closed the window of the best one, which would not ask then.
    fn take_waiting(&mut self, driver: &Driver) -> Vec<WaitingStream> {
        if self.waiting.is_empty() || self.progress.is_full || self.credit_bytes > 0 {
            return Vec::new();
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        if waiting.len() > 1 {
            waiting.sort_by_cached_key(|stream| driver.place(stream.job));
        }
        waiting
    }
}
