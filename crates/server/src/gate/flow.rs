//! What a connection has under way, shared by its gate and its HTTP side.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::{Response, Version};
use http_body::Body;
use kernel::socket::TcpState;
use parking_lot::Mutex;
use scheduler::{Instant, JobId, Path, Size, class::ClassId};
use tokio::net::TcpStream;

use super::{body::GatedBody, measure};
use crate::uplink::{ClassAt, Mode, Shared};

/// The HTTP side's handle on its connection's gate; cheap to clone.
#[derive(Clone)]
pub struct Flow {
    inner: Arc<Inner>,
}

/// How urgent a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Ranked by the order: it has a body that somebody asked for.
    Ranked,
    /// Goes first: heads without a body, redirects, error pages.
    First,
}

/// How a response ended.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Body bytes handed over to the connection.
    pub body_bytes: u64,
    /// Whether the socket took the whole response; false when the client went away or the origin failed.
    pub complete: bool,
    /// From the moment the response was ready to the moment its last byte was taken by the socket.
    pub send_time: Duration,
    /// When that was.
    pub ended: tokio::time::Instant,
    /// `send_time` over the time the bytes need alone at the uplink's rate; `None` where the rate is not known, for a
    /// response without a body, and for one that did not end.
    pub slowdown: Option<f64>,
}

/// A client as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientSide {
    /// It may send more.
    Open,
    /// It sends nothing more; whether it still reads, only a write would tell.
    Closed,
    /// It has reset the connection, or the connection has ended.
    Gone,
}

struct Inner {
    shared: Arc<Shared>,
    stream: Arc<TcpStream>,
    /// The client is on this machine.
    is_local: bool,
    write_timeout_ms: AtomicU64,
    /// In bytes a second; 0: none.
    least_rate: AtomicU64,
    /// The last response under way was given up, because its client took nothing of it.
    given_up: AtomicBool,
    /// Some response was ranked. To be seen without the lock, because where nothing is limited none ever is.
    has_ranked: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Responses under way. In HTTP/1 they are sent in this order, and the first one is being sent.
    responses: VecDeque<Sending>,
    next_ticket: u64,
    /// HTTP/2: responses ask leave one by one, above the framing.
    multiplexed: bool,
    /// Bytes that were given leave above and have not been seen at the gate.
    credit_bytes: u64,
    /// HTTP/2: the socket takes nothing at the moment.
    stalled: bool,
    /// Of such bytes, those that the framing still had when the gate was flushed: it will send them later, when its client
    /// opens a window.
    held_bytes: u64,
    /// The connection is gone; nothing may begin any more.
    closed: bool,
    /// Writes that the socket took, and their bytes.
    writes: u64,
    sent_bytes: u64,
    /// HTTP/2: bodies that wait for the connection, not for the uplink.
    waiting: Vec<Waiting>,
}

/// HTTP/2: a body that waits until the connection has passed on what it was given.
struct Waiting {
    job: JobId,
    waker: Waker,
    /// [`State::writes`] when it began to wait.
    since_write: u64,
}

/// For whom the gate is about to write.
pub(super) struct Writer {
    /// Who has to ask leave.
    pub asks: Option<JobId>,
    /// Who stands for the connection: in HTTP/1 the response being sent, in HTTP/2 the best by share and order. `None`
    /// where only such responses are under way as go first.
    pub best: Option<JobId>,
}

/// A response under way.
struct Sending {
    ticket: u64,
    /// `None`: it goes first, or nothing is ranked.
    job: Option<JobId>,
    /// It would be ranked, had anything been ranked when it began.
    rankable: Option<Size>,
    class: ClassAt,
    began: Instant,
    /// Bytes seen at the gate while it was the first.
    sent_bytes: u64,
    /// Body bytes, once the body came to its end, and whether that was its proper end.
    ended: Option<(u64, bool)>,
    /// It was counted as stalled.
    is_slow: bool,
    done: Option<Box<dyn FnOnce(Outcome) + Send>>,
}

/// See [`Flow::burst`]; it is over at the flush that follows its end.
#[derive(Debug)]
pub(crate) struct Burst {
    flow: Flow,
    ticket: u64,
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.flow.ended(self.ticket, 0, true);
    }
}

/// What a response's head takes, about; it is part of the remaining work.
const HEAD_BYTES: u64 = 250;

/// HTTP/2, where nothing is paced: bytes handed to the framing beyond those the socket took.
const CREDIT_LIMIT_BYTES: u64 = 64 * 1024;

/// HTTP/2: bytes handed to the framing at a time, which a client has to take within the write timeout.
const STREAM_CHUNK_BYTES: u64 = 16 * 1024;

impl Flow {
    pub(super) fn new(shared: Arc<Shared>, stream: Arc<TcpStream>, is_local: bool) -> Self {
        let state = Mutex::new(State::default());
        Self {
            inner: Arc::new(Inner {
                shared,
                stream,
                is_local,
                write_timeout_ms: AtomicU64::new(0),
                least_rate: AtomicU64::new(0),
                given_up: AtomicBool::new(false),
                has_ranked: AtomicBool::new(false),
                state,
            }),
        }
    }

    /// How this connection's responses are treated.
    pub(super) fn mode(&self) -> Mode {
        // A client on this machine is not behind the uplink whose rate is being found, and says nothing of it.
        if self.inner.is_local && self.inner.shared.estimates() { Mode::Pass } else { self.inner.shared.mode() }
    }

    /// What the kernel knows of the client.
    pub(crate) fn client_side(&self) -> ClientSide {
        match kernel::socket::tcp_info(&*self.inner.stream).map(|info| info.state) {
            Ok(TcpState::Established) | Err(_) => ClientSide::Open,
            Ok(TcpState::CloseWait) => ClientSide::Closed,
            Ok(_) => ClientSide::Gone,
        }
    }

    /// Segments without payload went out.
    pub(super) fn bare_segments(&self, segments: u64) {
        if self.mode() == Mode::Paced {
            self.inner.shared.bare_segments(segments);
        }
    }

    /// How long the socket may take nothing of what is offered before the connection is given up. Time spent waiting for
    /// the scheduler's leave does not count. Zero, as at the beginning: for ever.
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

    /// The least rate at which a client has to take what is offered, in bytes a second. Slower ones are given up a while after
    /// the write timeout, as `gate/credit.rs` has it. Zero, as at the beginning: none.
    pub fn set_least_rate(&self, bytes_per_second: u64) {
        self.inner.least_rate.store(bytes_per_second, Ordering::Relaxed);
    }

    pub(super) fn least_rate(&self) -> u64 {
        self.inner.least_rate.load(Ordering::Relaxed)
    }

    /// Bytes that the connection has to pass on before any that are given to it now.
    pub(super) fn ahead_bytes(&self) -> u64 {
        let state = self.inner.state.lock();
        state.sent_bytes + state.credit_bytes
    }

    /// Bytes that have arrived at the client's machine.
    pub(super) fn delivered_bytes(&self) -> u64 {
        let sent_bytes = self.inner.state.lock().sent_bytes;
        // Where the system does not tell, what the socket took counts.
        sent_bytes.saturating_sub(kernel::socket::unacked_bytes(&*self.inner.stream).unwrap_or(0))
    }

    /// A client takes too little of a response, or, without a ticket, of all that its connection sends.
    pub(super) fn slow(&self, ticket: Option<u64>) {
        let responses = {
            let mut state = self.inner.state.lock();
            let of = state.responses.iter_mut().filter(|it| ticket.is_none_or(|ticket| it.ticket == ticket));
            of.filter_map(|it| (!std::mem::replace(&mut it.is_slow, true)).then_some(())).count()
        };
        if responses > 0 {
            self.inner.shared.count_stalled(responses as u64);
            self.tell_tcp("a client takes too little of its response");
        }
    }

    /// As [`Flow::slow`], and for so long that it is given up.
    pub(super) fn too_slow(&self, ticket: Option<u64>) {
        self.slow(ticket);
        let (given_up, is_last) = {
            let state = self.inner.state.lock();
            let of = state.responses.iter().filter(|it| ticket.is_none_or(|ticket| it.ticket == ticket));
            let given_up = of.count();
            (given_up, given_up == state.responses.len())
        };
        self.inner.given_up.store(is_last, Ordering::Relaxed);
        self.inner.shared.count_given_up(given_up as u64);
        self.tell_tcp("a response is given up, because its client takes too little of it");
    }

    /// Whether the last response under way was given up because its client took nothing of it.
    pub(crate) fn gave_up(&self) -> bool {
        self.inner.given_up.load(Ordering::Relaxed)
    }

    /// Below the levels that are on by default, because clients decide how often.
    fn tell_tcp(&self, what: &'static str) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let peer = self.inner.stream.peer_addr().ok();
        let tcp = kernel::socket::tcp_info(&*self.inner.stream).ok();
        tracing::debug!(
            client = ?peer,
            state = ?tcp.map(|it| it.state),
            unacked_segments = tcp.map(|it| it.unacked_segments),
            notsent_bytes = tcp.map(|it| it.notsent_bytes),
            retransmitted_segments = tcp.map(|it| it.total_retrans_segments),
            rwnd_limited_us = tcp.map(|it| it.rwnd_limited_us),
            rtt_us = tcp.map(|it| it.rtt_us),
            acked_bytes = tcp.map(|it| it.bytes_acked),
            last_ack_ms = tcp.map(|it| it.last_ack_received_ms),
            "{what}"
        );
    }

    /// Announces a response to the scheduler and puts its body behind the gate. The body's `size_hint` tells its length;
    /// without an exact one it is ranked by attained service. `done` is called exactly once, when the last byte was taken
    /// by the socket or the response was given up; it must not block.
    ///
    /// `version` is the request's: in HTTP/2 responses are ranked one by one, in HTTP/1 their connection is.
    ///
    /// The response is of the first class; where the uplink is shared between classes, see [`Flow::response_of`].
    pub fn response<B>(
        &self,
        version: Version,
        response: Response<B>,
        urgency: Urgency,
        done: impl FnOnce(Outcome) + Send + 'static,
    ) -> Response<GatedBody<B>>
    where
        B: Body,
    {
        self.clone().response_of(ClassAt { class: ClassId(0), generation: 0 }, version, response, urgency, done)
    }

    /// As [`Flow::response`], for a response of a class.
    pub fn response_of<B>(
        self,
        class: ClassAt,
        version: Version,
        response: Response<B>,
        urgency: Urgency,
        done: impl FnOnce(Outcome) + Send + 'static,
    ) -> Response<GatedBody<B>>
    where
        B: Body,
    {
        let multiplexed = version == Version::HTTP_2;
        let exact = response.body().size_hint().exact();
        let (ticket, job) = self.begin(class, multiplexed, exact, urgency, Box::new(done));
        let asks = job.filter(|_| multiplexed);
        response.map(|body| GatedBody::new(body, self, ticket, asks, multiplexed, exact))
    }

    /// Ranks what is written from here on like the body of an HTTP/1 response whose length is not known, until that is dropped:
    /// bytes of another protocol that come without a pause.
    pub(crate) fn burst(&self, class: ClassAt) -> Burst {
        let (ticket, _) = self.begin(class, false, None, Urgency::Ranked, Box::new(|_| ()));
        Burst { flow: self.clone(), ticket }
    }

    fn begin(
        &self,
        class: ClassAt,
        multiplexed: bool,
        exact: Option<u64>,
        urgency: Urgency,
        done: Box<dyn FnOnce(Outcome) + Send>,
    ) -> (u64, Option<JobId>) {
        let shared = &self.inner.shared;
        // In HTTP/1 a job is of use only where leave is asked or a band chosen; in HTTP/2 it orders the streams as well.
        let ranked = urgency == Urgency::Ranked && (multiplexed || self.mode() != Mode::Pass);
        let size = exact.map_or(Size::Unknown, |bytes| Size::Known(bytes.saturating_add(HEAD_BYTES)));
        let rankable = (urgency == Urgency::Ranked).then_some(size);
        let job = ranked.then(|| shared.started(class, size, self.path()));
        if ranked {
            self.inner.has_ranked.store(true, Ordering::Relaxed);
        }
        let mut state = self.inner.state.lock();
        state.multiplexed = multiplexed;
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let began = shared.now();
        let sending = Sending {
            ticket,
            job,
            rankable,
            class,
            began,
            sent_bytes: 0,
            ended: None,
            is_slow: false,
            done: Some(done),
        };
        state.responses.push_back(sending);
        (ticket, job)
    }

    /// It turned out how long a response is: so many bytes are still to be sent.
    pub(super) fn length_known(&self, ticket: u64, left_bytes: u64) {
        let job = {
            let state = self.inner.state.lock();
            state.responses.iter().find(|it| it.ticket == ticket).and_then(|it| it.job)
        };
        if let Some(job) = job {
            self.inner.shared.length_known(job, left_bytes);
        }
    }

    /// The path as far as it has to be known: all of it where the order looks at it, the size of the segments where bytes are
    /// counted.
    fn path(&self) -> Option<Path> {
        let (shared, stream) = (&self.inner.shared, &self.inner.stream);
        if shared.needs_path() {
            return measure(stream);
        }
        let counts = self.mode() == Mode::Paced;
        let mss_bytes = counts.then(|| socket2::SockRef::from(&**stream).tcp_mss().ok()).flatten()?;
        (mss_bytes > 0).then_some(Path { mss_bytes, ..Path::UNKNOWN })
    }

    /// For whom the gate is about to write. `with_best`: in HTTP/2, look for the best response too.
    pub(super) fn sending(&self, with_best: bool) -> Writer {
        if self.mode() == Mode::Pass && !self.inner.has_ranked.load(Ordering::Relaxed) {
            return Writer { asks: None, best: None };
        }
        let mut state = self.inner.state.lock();
        if state.multiplexed {
            let jobs = state.responses.iter().filter_map(|it| it.job);
            let best = if with_best { jobs.min_by_key(|&job| self.inner.shared.place(job)) } else { None };
            return Writer { asks: None, best };
        }
        let Some(first) = state.responses.front_mut() else { return Writer { asks: None, best: None } };
        if let (None, Some(size)) = (first.job, first.rankable)
            && self.mode() != Mode::Pass
        {
            // Nothing was ranked when it began, and now everything is.
            let left = match size {
                Size::Known(bytes) => Size::Known(bytes.saturating_sub(first.sent_bytes)),
                Size::Unknown => Size::Unknown,
            };
            first.job = Some(self.inner.shared.started(first.class, left, None));
            self.inner.has_ranked.store(true, Ordering::Relaxed);
        }
        Writer { asks: first.job, best: first.job }
    }

    /// The socket took bytes.
    pub(super) fn sent(&self, bytes: u64) {
        let mut state = self.inner.state.lock();
        state.stalled = false;
        state.writes += 1;
        state.sent_bytes += bytes;
        let (mut unranked, mut ended, mut waiting) = (bytes, None, Vec::new());
        if state.multiplexed {
            let covered = bytes.min(state.credit_bytes);
            state.credit_bytes -= covered;
            let late = (bytes - covered).min(state.held_bytes);
            state.held_bytes -= late;
            unranked -= covered + late;
            waiting = self.inner.wake_waiting(&mut state);
        } else if let Some(first) = state.responses.front_mut() {
            first.sent_bytes += bytes;
            if first.job.is_some() {
                unranked = 0;
            }
            // Pipelining: the next response follows in the same breath, without a flush between.
            let is_out =
                matches!(first.ended, Some((body_bytes, _)) if first.sent_bytes >= body_bytes + HEAD_BYTES / 2);
            if is_out && state.responses.len() > 1 {
                ended = state.responses.pop_front();
            }
        }
        drop(state);
        if unranked > 0 && self.mode() == Mode::Paced {
            self.inner.shared.unranked(unranked);
        }
        if let Some(sending) = ended {
            self.inner.finish(sending, true);
        }
        wake(waiting);
    }

    /// The socket takes nothing.
    pub(super) fn stalled(&self) {
        self.inner.state.lock().stalled = true;
    }

    /// All that HTTP and TLS had to write was taken by the socket.
    pub(super) fn flushed(&self) {
        loop {
            let (finished, waiting, was_last) = {
                let mut state = self.inner.state.lock();
                state.held_bytes += std::mem::take(&mut state.credit_bytes);
                if state.responses.is_empty() {
                    // Streams that were reset took with them what was held.
                    state.held_bytes = 0;
                }
                let at = state.responses.iter().position(|it| it.ended.is_some());
                // In HTTP/1 the first must end first.
                let finished = at.filter(|&at| state.multiplexed || at == 0).and_then(|at| state.responses.remove(at));
                let waiting = if finished.is_none() { self.inner.wake_waiting(&mut state) } else { Vec::new() };
                (finished, waiting, !state.multiplexed && state.responses.is_empty())
            };
            wake(waiting);
            let Some(sending) = finished else { return };
            self.inner.finish(sending, true);
            if was_last {
                return;
            }
        }
    }

    /// The connection is gone.
    pub(super) fn closed(&self) {
        let (responses, waiting) = {
            let mut state = self.inner.state.lock();
            state.closed = true;
            (std::mem::take(&mut state.responses), std::mem::take(&mut state.waiting))
        };
        for sending in responses {
            self.inner.finish(sending, false);
        }
        wake(waiting);
    }

    /// A response's body came to its end, properly or not.
    pub(super) fn ended(&self, ticket: u64, body_bytes: u64, complete: bool) {
        let (given_up, waiting) = {
            let mut state = self.inner.state.lock();
            let at = state.responses.iter().position(|it| it.ticket == ticket);
            let mut given_up = None;
            if let Some(at) = at {
                state.responses[at].ended = Some((body_bytes, complete));
                let job = state.responses[at].job;
                state.waiting.retain(|waiting| Some(waiting.job) != job);
                // A stream that was reset leaves nothing to be flushed, nor does a connection that is gone.
                if state.closed || (state.multiplexed && !complete) {
                    given_up = state.responses.remove(at);
                }
            }
            (given_up, self.inner.wake_waiting(&mut state))
        };
        if let Some(sending) = given_up {
            self.inner.finish(sending, false);
        }
        wake(waiting);
    }

    /// HTTP/2: leave for a body to hand up to `bytes` to the framing.
    pub(super) fn poll_leave(&self, cx: &mut Context<'_>, job: JobId, bytes: u64) -> Poll<u64> {
        let shared = &self.inner.shared;
        let limit = match self.mode() {
            Mode::Paced => shared.chunk_bytes().min(CREDIT_LIMIT_BYTES),
            Mode::Pass | Mode::Bands => CREDIT_LIMIT_BYTES,
        };
        {
            let mut state = self.inner.state.lock();
            if state.closed {
                return Poll::Pending;
            }
            let before = state.waiting.iter().position(|waiting| waiting.job == job);
            let before = before.map(|at| state.waiting.swap_remove(at));
            if !state.stalled && before.is_some_and(|before| before.since_write == state.writes) {
                // The connection had its turn and wrote nothing: what it holds is held back by its client's window.
                state.held_bytes += std::mem::take(&mut state.credit_bytes);
            }
            if state.stalled || state.credit_bytes >= limit {
                if !state.stalled {
                    cx.waker().wake_by_ref();
                }
                let since_write = state.writes;
                state.waiting.push(Waiting { job, waker: cx.waker().clone(), since_write });
                return Poll::Pending;
            }
        }
        let bytes = bytes.min(limit).min(STREAM_CHUNK_BYTES);
        let leave = if self.mode() == Mode::Pass && self.inner.is_local {
            Some(bytes)
        } else {
            shared.ask(job, bytes, cx.waker())
        };
        match leave {
            Some(leave) => {
                self.inner.state.lock().credit_bytes += leave;
                Poll::Ready(leave)
            }
            None => Poll::Pending,
        }
    }
}

impl Inner {
    /// HTTP/2: when the connection has room again, whoever waits for it tries again, the best first. Not the best alone:
    /// its client may have closed the stream's window in the meantime, and then it would not come for its turn.
    fn wake_waiting(&self, state: &mut State) -> Vec<Waiting> {
        if state.waiting.is_empty() || state.stalled || state.credit_bytes > 0 {
            return Vec::new();
        }
        let mut waiting = std::mem::take(&mut state.waiting);
        if waiting.len() > 1 {
            waiting.sort_by_cached_key(|waiting| self.shared.place(waiting.job));
        }
        waiting
    }

    fn finish(&self, mut sending: Sending, flushed: bool) {
        let (body_bytes, ended_well) = sending.ended.unwrap_or((0, false));
        let complete = flushed && ended_well;
        let ended = tokio::time::Instant::now();
        let send_time = self.shared.at(ended) - sending.began;
        if let Some(job) = sending.job {
            self.shared.finished(job, complete);
        }
        if let Some(done) = sending.done.take() {
            let alone = (complete && body_bytes > 0)
                .then(|| self.shared.time_alone(body_bytes.saturating_add(HEAD_BYTES)))
                .flatten();
            let slowdown = alone.map(|alone| (send_time.as_secs_f64() / alone.as_secs_f64()).max(1.0));
            done(Outcome { body_bytes, complete, send_time, ended, slowdown });
        }
    }
}

fn wake(waiting: Vec<Waiting>) {
    waiting.into_iter().for_each(|waiting| waiting.waker.wake());
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.state.lock();
        f.debug_struct("Flow")
            .field("responses", &state.responses.len())
            .field("multiplexed", &state.multiplexed)
            .field("credit_bytes", &state.credit_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use scheduler::Order;
    use tokio::{net::TcpListener, task::JoinHandle, time::timeout};

    use super::*;
    use crate::{
        config::{Classes, Cutoffs, Enforce, UplinkConfig, UplinkRate},
        gate::Gate,
        uplink::Uplink,
    };

    const LONG: Duration = Duration::from_secs(3600);

    /// A connection of which another task wants to hand a stream's body to the framing, which holds all that it may.
    async fn waits_for_its_connection() -> (Gate, JoinHandle<u64>, TcpStream) {
        let config = UplinkConfig {
            rate: UplinkRate::Off,
            order: Order::Srpt,
            enforce: Enforce::Off,
            cutoffs: Cutoffs::Learned,
            guard_stretch: None,
            utilisation: 1.0,
            segment_overhead_bytes: 66,
            device: None,
        };
        let uplink = Uplink::new(&config, &Classes::one()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let gate = uplink.gate(listener.accept().await.unwrap().0);
        let flow = gate.flow();
        let class = ClassAt { class: ClassId(0), generation: 0 };
        let (_, job) = flow.begin(class, true, Some(1 << 20), Urgency::Ranked, Box::new(|_| ()));
        let job = job.expect("streams are ranked");
        for _ in 0..CREDIT_LIMIT_BYTES / STREAM_CHUNK_BYTES {
            assert_eq!(std::future::poll_fn(|cx| flow.poll_leave(cx, job, 1 << 20)).await, STREAM_CHUNK_BYTES);
        }
        flow.stalled();
        let waiting = tokio::spawn({
            let flow = flow.clone();
            async move { std::future::poll_fn(|cx| flow.poll_leave(cx, job, 1 << 20)).await }
        });
        // The clock moves when the task is parked.
        tokio::time::pause();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!waiting.is_finished());
        (gate, waiting, client)
    }

    #[tokio::test]
    async fn a_stream_that_waits_in_its_task_is_woken_by_the_connections() {
        // The socket took all that the framing held.
        let (gate, waiting, _client) = waits_for_its_connection().await;
        let flow = gate.flow();
        tokio::spawn(async move { flow.sent(CREDIT_LIMIT_BYTES) });
        assert_eq!(timeout(LONG, waiting).await.expect("it is woken").unwrap(), STREAM_CHUNK_BYTES);
        tokio::time::resume();
        // The socket took a part, and the rest is held back by the client's window.
        let (gate, waiting, _client) = waits_for_its_connection().await;
        let flow = gate.flow();
        tokio::spawn(async move {
            flow.sent(CREDIT_LIMIT_BYTES / 2);
            flow.flushed();
        });
        assert_eq!(timeout(LONG, waiting).await.expect("it is woken").unwrap(), STREAM_CHUNK_BYTES);
    }
}
