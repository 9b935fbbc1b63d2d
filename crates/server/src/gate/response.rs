//! The responses that a connection is sending.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use heads::PriorityField;
use limits::Share;
use scheduler::{Instant, JobId, Size, priority::Priority};

use super::stream_priority::StreamPriority;
use crate::uplink::{
    ClassAt, Measure, ResponseRank, Teller,
    driver::{Driver, Telling},
};

/// The kernel counts what was sent of a response in 32 bits, so it is told again in time.
const TELL_AGAIN_BYTES: u64 = 1 << 30;

/// How urgent a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The order ranks it: it has a body that the client asked for.
    Ranked,
    /// It goes first: heads without a body, redirects, error pages.
    First,
}

/// How a response ended.
#[derive(Clone, Copy, Debug)]
pub struct SendOutcome {
    /// Body bytes handed over to the connection.
    pub body_bytes: u64,
    /// Whether the transport took the whole response; false when the client went away or the origin failed.
    pub complete: bool,
    /// From the moment when the response was ready until the transport took its last byte.
    pub send_time: Duration,
    /// When the first bytes got leave and were taken; `None`: none were, or an HTTP/2 response had no body.
    pub first: Option<tokio::time::Instant>,
    /// When the response ended.
    pub ended: tokio::time::Instant,
    /// `send_time` over the time that the bytes need alone at the uplink's rate; `None` where the rate is not known,
    /// for a response without a body, and for an incomplete one.
    pub slowdown: Option<f64>,
}

/// About the bytes of a response's head, which are part of the remaining work.
const HEAD_BYTES: u64 = 250;

/// The size of a response whose body has so many bytes; `None`: the length is not known.
pub(super) fn size(body_bytes: Option<u64>) -> Size {
    body_bytes.map_or(Size::Unknown, |bytes| Size::Known(bytes.saturating_add(HEAD_BYTES)))
}

/// The number of a response on its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseId(u64);

/// A response between its announcement and its end.
pub(super) struct ActiveResponse {
    id: ResponseId,
    /// `None`: it goes first, or responses were not ranked when it began.
    pub job: Option<JobId>,
    /// HTTP/2: how urgent it is among the responses of its connection.
    pub priority: Priority,
    /// HTTP/2: the words that say so; `None`: its client has no say.
    words: Option<StreamPriority>,
    /// The size by which it is ranked as soon as responses are; `None`: it goes first.
    rankable: Option<Size>,
    class: ClassAt,
    /// HTTP/1: the share of its client's bytes; `None`: they are not limited.
    share: Option<Arc<Share>>,
    began: Instant,
    /// HTTP/1: bytes that the transport took while this response was the first of its connection.
    sent_bytes: u64,
    /// HTTP/1: when the transport took the first of them.
    first: Option<tokio::time::Instant>,
    /// HTTP/1 in kernel mode: after so many of them the kernel has to be told of it.
    tell_at_bytes: u64,
    /// Whether the kernel was told of it.
    is_told: bool,
    /// HTTP/2: whether its body has asked for room.
    has_asked: bool,
    body_end: Option<BodyEnd>,
    /// Whether it is counted as stalled.
    is_slow: bool,
    done: Box<dyn FnOnce(SendOutcome) + Send>,
}

/// How the body of a response ended.
#[derive(Clone, Copy)]
pub(super) struct BodyEnd {
    pub bytes: u64,
    /// Whether the body came to its proper end.
    pub whole: bool,
    /// HTTP/2: when its first bytes had leave.
    pub first: Option<tokio::time::Instant>,
}

/// A response that begins.
pub(super) struct NewResponse {
    pub class: ClassAt,
    pub job: Option<JobId>,
    /// HTTP/2: how urgent it is; `None`: its client has no say.
    pub words: Option<StreamPriority>,
    pub rankable: Option<Size>,
    pub share: Option<Arc<Share>>,
    pub began: Instant,
    pub done: Box<dyn FnOnce(SendOutcome) + Send>,
}

impl ActiveResponse {
    /// The response that the connection sends now is ranked from here on, if it was not before.
    pub fn rank(&mut self, driver: &Driver) {
        if let (None, Some(size)) = (self.job, self.rankable) {
            let left = match size {
                Size::Known(bytes) => Size::Known(bytes.saturating_sub(self.sent_bytes)),
                Size::Unknown => Size::Unknown,
            };
            self.job = Some(driver.handle_started(self.class, left, None));
        }
    }

    /// HTTP/1: the share of its client's bytes, and how much is left; `None`: they are not limited.
    pub fn limited(&self) -> Option<(Arc<Share>, u64)> {
        let left_bytes = match self.rankable {
            Some(Size::Known(bytes)) => bytes.saturating_sub(self.sent_bytes),
            _ => u64::MAX,
        };
        Some((self.share.clone()?, left_bytes))
    }

    /// HTTP/1 in kernel mode: what to tell the kernel before the next bytes, which begin at `offset` of the connection.
    pub fn poll_told(&mut self, offset: u64, driver: &Driver) -> Option<(Arc<Teller>, ResponseRank)> {
        let size = self.rankable?;
        if self.sent_bytes < self.tell_at_bytes {
            return None;
        }
        let Telling { teller, class, classes, by_sent } = driver.telling(self.class)?;
        self.tell_at_bytes = self.sent_bytes.saturating_add(TELL_AGAIN_BYTES);
        let measure = match size {
            Size::Known(bytes) if !by_sent => Measure::Left(bytes.saturating_sub(self.sent_bytes)),
            _ => Measure::Sent(self.sent_bytes),
        };
        Some((teller, ResponseRank { measure, offset, class, classes, is_new: self.is_first_word() }))
    }

    /// HTTP/2 in kernel mode: as [`ActiveResponse::poll_told`], for the best response of its connection.
    /// `ahead_bytes` have leave and were not sent.
    pub fn told_of_stream(
        &mut self,
        offset: u64,
        ahead_bytes: u64,
        driver: &Driver,
    ) -> Option<(Arc<Teller>, ResponseRank)> {
        let Telling { teller, class, classes, .. } = driver.telling(self.class)?;
        let measure = driver.kernel_measure(self.job?, ahead_bytes);
        Some((teller, ResponseRank { measure, offset, class, classes, is_new: self.is_first_word() }))
    }

    fn is_first_word(&mut self) -> bool {
        !std::mem::replace(&mut self.is_told, true)
    }

    /// HTTP/1: the transport took bytes of this response.
    pub fn handle_sent(&mut self, bytes: u64) {
        self.first.get_or_insert_with(tokio::time::Instant::now);
        self.sent_bytes += bytes;
    }

    /// HTTP/1: whether the transport has taken the whole response, as far as the size of its head is known.
    pub fn is_out(&self) -> bool {
        self.body_end.is_some_and(|end| self.sent_bytes >= end.bytes + HEAD_BYTES / 2)
    }

    pub fn body_has_ended(&self) -> bool {
        self.body_end.is_some()
    }

    /// Reports the end of the response. `flushed`: the transport took all bytes that were given to it.
    pub fn finish(self, driver: &Driver, flushed: bool) {
        let end = self.body_end.unwrap_or(BodyEnd { bytes: 0, whole: false, first: None });
        let BodyEnd { bytes: body_bytes, whole, first } = end;
        let complete = flushed && whole;
        let ended = tokio::time::Instant::now();
        let send_time = driver.at(ended) - self.began;
        if let Some(job) = self.job {
            driver.handle_finished(job, complete);
        }
        let alone =
            if complete && body_bytes > 0 { driver.time_alone(body_bytes.saturating_add(HEAD_BYTES)) } else { None };
        let slowdown = alone.map(|alone| (send_time.as_secs_f64() / alone.as_secs_f64()).max(1.0));
        (self.done)(SendOutcome { body_bytes, complete, send_time, first: self.first.or(first), ended, slowdown });
    }
}

/// The active responses of a connection, in the order in which they began.
#[derive(Default)]
pub(super) struct Responses {
    active: VecDeque<ActiveResponse>,
    next: u64,
    /// Whether the connection is gone. No response ends later than that.
    is_closed: bool,
}

impl Responses {
    pub fn len(&self) -> usize {
        self.active.len()
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    pub fn first(&self) -> Option<&ActiveResponse> {
        self.active.front()
    }

    pub fn first_mut(&mut self) -> Option<&mut ActiveResponse> {
        self.active.front_mut()
    }

    /// How urgent the response of a job is.
    pub fn priority_of(&self, job: JobId) -> Priority {
        let of_job = self.active.iter().find(|response| response.job == Some(job));
        of_job.map(|response| response.priority).unwrap_or_default()
    }

    /// HTTP/2: the client says anew how urgent a response is. Returns its job, and how urgent that is now.
    pub fn handle_priority(&mut self, stream: u32, client: PriorityField) -> Option<(JobId, Priority)> {
        let mut of_streams =
            self.active.iter_mut().filter_map(|it| Some((it.words.as_mut()?, &mut it.priority, it.job)));
        let (words, priority, job) = of_streams.find(|(words, ..)| words.stream == stream)?;
        words.client = client;
        *priority = words.whole();
        Some((job?, *priority))
    }

    /// HTTP/2: whether a response of this stream is active.
    pub fn has_stream(&self, stream: u32) -> bool {
        self.active.iter().any(|it| it.words.is_some_and(|words| words.stream == stream))
    }

    /// HTTP/2: the body of a job's response asks for room. Returns how urgent it is.
    pub fn handle_asked(&mut self, job: JobId) -> Priority {
        self.of_job_mut(job)
            .map(|response| {
                response.has_asked = true;
                response.priority
            })
            .unwrap_or_default()
    }

    /// HTTP/2: whether a more urgent response has asked for room and has not ended.
    pub fn is_moving_before(&self, urgency: u8) -> bool {
        self.active.iter().any(|it| it.priority.urgency < urgency && it.has_asked && !it.body_has_ended())
    }

    /// The response of a job.
    pub fn of_job_mut(&mut self, job: JobId) -> Option<&mut ActiveResponse> {
        self.active.iter_mut().find(|response| response.job == Some(job))
    }

    pub fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.active.iter().filter_map(|response| response.job)
    }

    /// The length of a response became known: so many bytes are left. Returns its job.
    pub fn handle_length(&mut self, id: ResponseId, left_bytes: u64) -> Option<JobId> {
        let it = self.active.iter_mut().find(|response| response.id == id)?;
        if it.rankable.is_some() {
            it.rankable = Some(Size::Known(it.sent_bytes.saturating_add(left_bytes)));
            it.tell_at_bytes = 0;
        }
        it.job
    }

    pub fn job_of(&self, id: ResponseId) -> Option<JobId> {
        self.active.iter().find(|response| response.id == id)?.job
    }

    /// The class and the priority of a response that is ranked.
    pub fn ranked(&self, id: ResponseId) -> Option<(ClassAt, Priority)> {
        let it = self.active.iter().find(|response| response.id == id && response.job.is_some())?;
        Some((it.class, it.priority))
    }

    /// A response that is ranked has another job from now on. Returns the old one.
    pub fn replace_job(&mut self, id: ResponseId, job: JobId) -> Option<JobId> {
        let it = self.active.iter_mut().find(|response| response.id == id && response.job.is_some())?;
        it.job.replace(job)
    }

    pub fn push(&mut self, response: NewResponse) -> ResponseId {
        let NewResponse { class, job, words, rankable, share, began, done } = response;
        let id = ResponseId(self.next);
        self.next += 1;
        if self.active.is_empty() {
            // In HTTP/1 there is seldom a second one.
            self.active.reserve_exact(1);
        }
        self.active.push_back(ActiveResponse {
            id,
            job,
            priority: words.map(|words| words.whole()).unwrap_or_default(),
            words,
            rankable,
            class,
            share,
            began,
            sent_bytes: 0,
            first: None,
            tell_at_bytes: 0,
            is_told: false,
            has_asked: false,
            body_end: None,
            is_slow: false,
            done,
        });
        id
    }

    /// Notes how the body of a response ended; returns the position of the response.
    pub fn handle_body_end(&mut self, id: ResponseId, end: BodyEnd) -> Option<usize> {
        let at = self.active.iter().position(|response| response.id == id)?;
        self.active[at].body_end = Some(end);
        Some(at)
    }

    pub fn pop_first(&mut self) -> Option<ActiveResponse> {
        self.remove(0)
    }

    pub fn remove(&mut self, at: usize) -> Option<ActiveResponse> {
        let removed = self.active.remove(at);
        if self.active.is_empty() {
            // An idle connection holds no memory for responses.
            self.active = VecDeque::new();
        }
        removed
    }

    /// The position of the first response whose body has ended.
    pub fn first_with_ended_body(&self) -> Option<usize> {
        self.active.iter().position(ActiveResponse::body_has_ended)
    }

    /// The connection is gone, and its responses with it.
    pub fn close(&mut self) -> VecDeque<ActiveResponse> {
        self.is_closed = true;
        std::mem::take(&mut self.active)
    }

    /// Marks a response, or all of them, as slow; returns how many were not slow before.
    pub fn mark_slow(&mut self, only: Option<ResponseId>) -> usize {
        let affected = self.active.iter_mut().filter(|response| only.is_none_or(|id| response.id == id));
        affected.map(|response| usize::from(!std::mem::replace(&mut response.is_slow, true))).sum()
    }

    /// Counts a response, or all of them.
    pub fn count(&self, only: Option<ResponseId>) -> usize {
        self.active.iter().filter(|response| only.is_none_or(|id| response.id == id)).count()
    }
}

/// Bytes of a connection that the transport has taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TransportProgress {
    pub bytes: u64,
    pub writes: u64,
    /// Whether it takes nothing at the moment.
    pub is_full: bool,
}

impl TransportProgress {
    pub fn handle_full(&mut self) {
        self.is_full = true;
    }

    pub fn handle_sent(&mut self, bytes: u64) {
        self.is_full = false;
        self.writes += 1;
        self.bytes += bytes;
    }
}
