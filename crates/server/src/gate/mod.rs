//! The gate: every byte of every connection passes here, under TLS and HTTP.
//!
//! HTTP/1 sends one response at a time, so the gate itself asks leave for whatever is written while a response is being
//! sent. HTTP/2 mixes responses above the gate, so there every response's body asks leave for itself before a chunk goes
//! into the framing ([`GatedBody`]); the gate lets that chunk pass. Either way, bytes that belong to no ranked response
//! (handshakes, control frames, heads without a body, error pages) pass at once and are only counted.

mod body;
mod credit;
mod flow;
mod stream;
mod turn;

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use scheduler::{JobId, Path, estimate::Exactness};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
    time::Instant,
};

pub use self::{
    body::GatedBody,
    flow::{Flow, Outcome, Urgency},
    stream::StreamExecutor,
};
use self::{
    credit::{Credit, Look},
    turn::Ticket,
};
pub(crate) use self::{
    flow::{Burst, ClientSide},
    turn::Turns,
};
use crate::{
    timer::Timer,
    uplink::{Mode, Shared},
};

/// A connection behind the gate.
#[derive(Debug)]
pub struct Gate {
    stream: Arc<TcpStream>,
    flow: Flow,
    shared: Arc<Shared>,
    /// What is known to be set on the socket.
    unsent_limit_bytes: Option<u32>,
    priority: u32,
    /// Bytes sent since the path was measured.
    unmeasured_bytes: u64,
    /// A name for the path to the client, its neighbours' too.
    path: u64,
    /// Bytes acknowledged when a round trip was last measured.
    acked_bytes: Option<u64>,
    /// Made when the socket is full for the first time.
    stall: Option<Box<Stall>>,
    /// Whose turn it is to be read from; `None`: everybody's.
    turns: Option<Arc<Turns>>,
    ticket: Option<Ticket>,
    /// The runtime takes the socket for readable, and it may be empty: it is new, or the last read filled its buffer.
    may_be_empty: bool,
}

/// The path is measured again after so many bytes ("Implementation of a New Scheduling Policy in Web Servers", 3.3.5),
/// and in kernel mode the band is chosen again.
const REVISIT_BYTES: u64 = 8 * 1024;

/// What a connection costs on the wire in segments without payload that we send: the SYN-ACK, our FIN, and the
/// acknowledgement of the client's.
const SEGMENTS_AT_OPEN: u64 = 1;
const SEGMENTS_AT_CLOSE: u64 = 2;

impl Gate {
    pub(crate) fn new(stream: TcpStream, shared: Arc<Shared>) -> Self {
        let peer = stream.peer_addr().map(|address| address.ip().to_canonical());
        let is_local = matches!(peer, Ok(address) if address.is_loopback());
        let stream = Arc::new(stream);
        let flow = Flow::new(shared.clone(), stream.clone(), is_local);
        flow.bare_segments(SEGMENTS_AT_OPEN);
        let mut gate = Self {
            stream,
            flow,
            shared,
            unsent_limit_bytes: None,
            priority: 0,
            unmeasured_bytes: 0,
            path: peer.map_or(0, path_name),
            acked_bytes: None,
            stall: None,
            turns: None,
            ticket: None,
            may_be_empty: true,
        };
        gate.tell_round_trip();
        gate
    }

    /// As it is, but read from only when it has its turn among the clients of the same worker.
    pub(crate) fn in_turn(mut self, turns: Arc<Turns>) -> Self {
        self.turns = Some(turns);
        self
    }

    /// The handle by which the HTTP side speaks of this connection.
    pub fn flow(&self) -> Flow {
        self.flow.clone()
    }

    /// The stream itself, for address look-ups.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Writes what may be written of `len` bytes; `send` is given how many that are.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        len: usize,
        mut send: impl FnMut(&TcpStream, usize) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if len == 0 {
            return Poll::Ready(Ok(0));
        }
        loop {
            if self.stream.poll_write_ready(cx)?.is_pending() {
                return self.poll_full(cx);
            }
            let mode = self.flow.mode();
            let revisits = self.unmeasured_bytes >= REVISIT_BYTES;
            let sending = self.flow.sending(mode == Mode::Bands || revisits);
            self.prepare(mode, revisits, sending.best);
            let job = sending.asks;
            let may = match job {
                None => len,
                Some(job) => match self.shared.ask(job, len as u64, cx.waker()) {
                    Some(bytes) => bytes as usize,
                    None => {
                        // Waiting for our own leave is no fault of the client's.
                        self.has_room();
                        return Poll::Pending;
                    }
                },
            };
            let sent = send(&self.stream, may);
            let taken = *sent.as_ref().unwrap_or(&0);
            self.unmeasured_bytes += taken as u64;
            if let Some(job) = job.filter(|_| taken < may) {
                self.shared.unused(job, (may - taken) as u64);
            }
            match sent {
                Ok(taken) => {
                    self.has_room();
                    self.flow.sent(taken as u64);
                    return Poll::Ready(Ok(taken));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// The socket takes nothing: the client, or the path to it, is slow. That has an end.
    fn poll_full(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.flow.stalled();
        let Some(timeout) = self.flow.write_timeout() else { return Poll::Pending };
        // In a band of the kernel a response may be starved by the order, and nothing tells that apart from a slow client.
        let rate = if self.flow.mode() == Mode::Bands { 0 } else { self.flow.least_rate() };
        let mut now = Instant::now();
        let (stream, acked) = (&self.stream, || acked_bytes(&self.stream));
        let Stall { credit, timer } = &mut **self.stall.get_or_insert_with(|| {
            let credit = Credit::new(timeout, now, acked_bytes(stream));
            Box::new(Stall { timer: Timer::at(credit.poll_timeout(now)), credit })
        });
        credit.handle_full(now, rate, acked);
        loop {
            let due = credit.poll_timeout(now);
            if timer.due() > due {
                timer.set(due);
            }
            ready!(timer.poll(cx));
            now = Instant::now();
            if now < due {
                timer.set(due);
                continue;
            }
            match credit.handle_look(now, rate, acked()) {
                Look::Goes => {}
                Look::Slow => self.flow.slow(None),
                Look::Over => {
                    self.flow.too_slow(None);
                    let said = "the client took too little of the response in time";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, said)));
                }
            }
        }
    }

    /// The socket is not full, or the response waits for our own leave.
    fn has_room(&mut self) {
        if let Some(stall) = &mut self.stall {
            stall.credit.handle_room(Instant::now);
        }
    }

    /// What the socket and the scheduler have to know before anything is written. `best` stands for the connection.
    fn prepare(&mut self, mode: Mode, revisits: bool, best: Option<JobId>) {
        let limit = if mode == Mode::Pass { None } else { self.shared.unsent_limit_bytes() };
        if limit != self.unsent_limit_bytes {
            // Where the kernel has no such limit, order suffers a little; nothing else does.
            let _ = kernel::socket::set_notsent_lowat(&*self.stream, limit.unwrap_or(u32::MAX));
            self.unsent_limit_bytes = limit;
        }
        // What goes first is in band 0, where sockets without a priority are as well.
        let priority = if mode == Mode::Bands { self.shared.priority(best) } else { Some(0) };
        if let Some(priority) = priority.filter(|priority| *priority != self.priority) {
            self.priority = priority;
            if let Err(error) = kernel::socket::set_priority(&*self.stream, priority) {
                tracing::warn!(%error, "a response cannot be put into its band");
            }
        }
        if revisits && mode != Mode::Pass {
            self.unmeasured_bytes = 0;
            self.tell_round_trip();
            if let Some(job) = best
                && self.shared.needs_path()
                && let Some(path) = measure(&self.stream)
            {
                self.shared.path(job, path);
            }
        }
    }
}

/// How slow the client was, and when to look at that again.
#[derive(Debug)]
struct Stall {
    credit: Credit,
    timer: Timer,
}

fn acked_bytes(stream: &TcpStream) -> Option<u64> {
    kernel::socket::tcp_info(stream).ok().map(|info| info.bytes_acked)
}

impl Gate {
    /// Tells the estimator what TCP measured, if it measured anything just now.
    fn tell_round_trip(&mut self) {
        if !self.shared.estimates() || self.flow.mode() == Mode::Pass {
            return;
        }
        let Ok(info) = kernel::socket::tcp_info(&*self.stream) else { return };
        let before = self.acked_bytes.replace(info.bytes_acked);
        let exactness = match before {
            // The handshake's round trip is the only one yet.
            None => Exactness::Exact,
            Some(before) if info.bytes_acked > before && info.last_ack_received_ms <= FRESH_MS => Exactness::Smoothed,
            Some(_) => return,
        };
        if info.rtt_us > 0 {
            self.shared.round_trip(self.path, u64::from(info.rtt_us) * 1000, exactness);
        }
    }
}

/// An older acknowledgement says nothing of the queue as it is now.
const FRESH_MS: u32 = 10;

/// Clients with the same prefix (/24, /48) are taken to be on the same path.
fn path_name(address: std::net::IpAddr) -> u64 {
    match address {
        std::net::IpAddr::V4(v4) => u64::from(u32::from(v4) >> 8),
        std::net::IpAddr::V6(v6) => (u128::from(v6) >> 80) as u64 | 1 << 63,
    }
}

/// What TCP knows of the path, where the system tells.
fn measure(stream: &TcpStream) -> Option<Path> {
    let info = kernel::socket::tcp_info(stream).ok()?;
    (info.rtt_us > 0).then(|| Path {
        rtt_ns: u64::from(info.rtt_us) * 1000,
        window_segments: info.snd_cwnd_segments,
        mss_bytes: info.snd_mss_bytes,
        delivery_bytes_per_second: info.delivery_rate_bytes_per_second,
    })
}

impl AsyncRead for Gate {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            ready!(this.stream.poll_read_ready(cx))?;
            if let Some(turns) = &this.turns {
                if this.may_be_empty && this.ticket.is_none() && !turns.is_free() && is_empty(&this.stream) {
                    // A connection without data does not wait for a turn.
                    this.may_be_empty = false;
                    continue;
                }
                ready!(turns.poll_turn(&mut this.ticket, cx));
            }
            let room = buf.remaining();
            match this.stream.try_read_buf(buf) {
                Ok(read) => {
                    this.may_be_empty = read == room;
                    if 0 < read && read < room {
                        // The socket is empty now. Saying so to the runtime spares the read that would find that out.
                        let empty = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                        let _ = this.stream.try_io(Interest::READABLE, empty);
                    }
                    // Data is acknowledged by a segment of its own, as a rule.
                    this.flow.bare_segments(1);
                    this.tell_round_trip();
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    this.may_be_empty = false;
                    if let Some(turns) = &this.turns {
                        turns.give_back();
                    }
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// Whether nothing is to be read, not even an end. The runtime hears of that.
fn is_empty(stream: &TcpStream) -> bool {
    let peek = || socket2::SockRef::from(stream).peek(&mut [std::mem::MaybeUninit::uninit()]);
    matches!(stream.try_io(Interest::READABLE, peek), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl AsyncWrite for Gate {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, buf.len(), |stream, may| stream.try_write(&buf[..may]))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.poll_send(cx, len, |stream, may| {
            if may == len {
                return stream.try_write_vectored(bufs);
            }
            let mut left = may;
            let mut cut = [io::IoSlice::new(&[]); MAX_SLICES];
            let mut slices = 0;
            for (to, from) in cut.iter_mut().zip(bufs) {
                if left == 0 {
                    break;
                }
                *to = io::IoSlice::new(&from[..from.len().min(left)]);
                left -= to.len();
                slices += 1;
            }
            stream.try_write_vectored(&cut[..slices])
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flow.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match socket2::SockRef::from(&*self.stream).shutdown(std::net::Shutdown::Write) {
            // The client was faster.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            other => other,
        })
    }
}

/// Slices of a write that is cut short; what lies beyond waits for the next one.
const MAX_SLICES: usize = 16;

impl Drop for Gate {
    fn drop(&mut self) {
        self.flow.closed();
        self.flow.bare_segments(SEGMENTS_AT_CLOSE);
    }
}

impl Gate {
    /// How long the socket may take nothing of what is offered; see [`Flow::set_write_timeout`].
    pub fn set_write_timeout(&self, timeout: Duration) {
        self.flow.set_write_timeout(timeout);
    }

    /// The least rate at which a client has to take what is offered; see [`Flow::set_least_rate`].
    pub fn set_least_rate(&self, bytes_per_second: u64) {
        self.flow.set_least_rate(bytes_per_second);
    }
}
