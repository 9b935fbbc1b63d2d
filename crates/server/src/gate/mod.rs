//! The gate: every byte of every connection passes here, under TLS and HTTP.
//!
//! HTTP/1 sends one response at a time, so the gate itself asks leave for the bytes that are written while a response
//! is being sent. HTTP/2 mixes responses above the gate. There the body of each response ([`GatedBody`]) asks leave
//! before it gives a chunk to the framing, and the gate lets that chunk pass. In both, bytes that belong to no ranked
//! response (handshakes, control frames, heads without a body, error pages) pass at once and are only counted.

mod body;
mod connection_flow;
mod flow;
mod limited;
mod looks;
mod read_fairness;
pub(crate) mod response;
mod rest;
mod round_trip;
mod stall_budget;
mod stream_flow;
mod stream_priority;
mod stream_watch;
mod tcp;
#[cfg(test)]
pub(crate) mod tests;
mod told;
mod transport;

use std::{
    fs::File,
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use files::CHUNK_BYTES;
use scheduler::{
    JobId,
    estimate::{RoundTrip, RttKind},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::Instant,
};

pub use self::{
    body::GatedBody,
    flow::Flow,
    response::{SendOutcome, Urgency},
    stream_watch::spawn_stream,
    tcp::TcpTransport,
    transport::{ClientSide, Measurements, Peer, Transport},
};
pub(crate) use self::{body::InBursts, flow::Burst, read_fairness::ReadFairness, stream_priority::StreamPriority};
use self::{
    limited::poll_share,
    looks::Looks,
    read_fairness::QueuePosition,
    rest::Rest,
    round_trip::{Look, Occasion},
    stall_budget::{Pace, StallBudget},
};
use crate::{
    body::Timer,
    uplink::{Enforcement, Uplink, driver::Driver},
};

/// A connection behind the gate.
#[derive(Debug)]
pub struct Gate<T: Transport = TcpTransport> {
    transport: T,
    flow: Flow,
    driver: Arc<Driver>,
    /// The limit that the transport has.
    unsent_limit_bytes: Option<u32>,
    /// Whether the kernel has refused what it was told.
    tells_in_vain: bool,
    /// Bytes sent since the path was measured.
    unmeasured_bytes: u64,
    /// The number of the path to the client, for the estimate of the rate.
    path: u64,
    /// What TCP told of the round trips when it was last asked.
    look: Option<Look>,
    looks: Looks,
    /// Made when the transport is full for the first time.
    stall: Option<Box<TransportStall>>,
    /// Made when a response waits for its share of its client's bytes for the first time.
    share_timer: Option<Box<Timer>>,
    /// `None`: the connection is read from whenever it likes.
    fairness: Option<Arc<ReadFairness>>,
    position: Option<QueuePosition>,
    rest: Rest,
    /// Whether the transport may be empty though it claims to be ready: it is new, or the last read filled its buffer.
    may_be_empty: bool,
}

/// How slow the client was, and when to look at that again.
#[derive(Debug)]
struct TransportStall {
    budget: StallBudget,
    timer: Timer,
}

/// After so many bytes the path is measured again ("Implementation of a New Scheduling Policy in Web Servers", 3.3.5).
const REVISIT_BYTES: u64 = 8 * 1024;

/// Bytes of a file that are sent at once where no order is kept: enough that the calls cost little beside them.
const UNORDERED_FILE_BYTES: u64 = 256 * 1024;

/// The limit of unsent bytes where no order is kept but that which the client of HTTP/2 asks for. Streams overtake only
/// what is behind it.
const STREAMS_UNSENT_LIMIT_BYTES: u32 = 16 * 1024;

/// Segments without payload that a connection sends: the SYN-ACK, and at its end a FIN and the acknowledgement of the
/// client's.
const SEGMENTS_AT_OPEN: u64 = 1;
const SEGMENTS_AT_CLOSE: u64 = 2;

impl Gate {
    /// Puts a TCP connection behind the gate, right after its accept.
    pub fn tcp(stream: TcpStream, uplink: &Uplink) -> Self {
        Self::new(TcpTransport::new(stream), uplink)
    }

    /// As [`Gate::tcp`], where the accept has told the client's address.
    pub(crate) fn tcp_of(client: SocketAddr, stream: TcpStream, uplink: &Uplink) -> Self {
        let transport = TcpTransport::new(stream);
        let peer = transport.peer();
        Self::of(transport, peer, Some(client.ip()), uplink)
    }

    /// The first byte that the client sends, which stays to be read; `None`: the connection has ended.
    pub(crate) async fn first_byte(&self) -> io::Result<Option<u8>> {
        poll_fn(|cx| self.transport.poll_first_byte(cx)).await
    }
}

impl<T: Transport> Gate<T> {
    /// Puts a connection behind the gate, before its first byte.
    pub fn new(transport: T, uplink: &Uplink) -> Self {
        let peer = transport.peer();
        let address = peer.address();
        Self::of(transport, peer, address, uplink)
    }

    fn of(transport: T, peer: Arc<dyn Peer>, address: Option<IpAddr>, uplink: &Uplink) -> Self {
        let driver = uplink.driver().clone();
        let address = address.map(|address| address.to_canonical());
        let is_local = address.is_some_and(|address| address.is_loopback());
        if let Some(address) = address.filter(|_| !is_local) {
            driver.handle_client(address);
        }
        let flow = Flow::new(driver.clone(), peer, is_local);
        flow.handle_bare_segments(SEGMENTS_AT_OPEN);
        let mut gate = Self {
            transport,
            flow,
            driver,
            unsent_limit_bytes: None,
            tells_in_vain: false,
            unmeasured_bytes: 0,
            path: address.map_or(0, path_number),
            look: None,
            looks: Looks::default(),
            stall: None,
            share_timer: None,
            fairness: None,
            position: None,
            rest: Rest::default(),
            may_be_empty: true,
        };
        gate.measure_round_trip(Occasion::Write);
        gate
    }

    /// The transport has this limit of unsent bytes already.
    pub(crate) fn with_unsent_limit(mut self, bytes: Option<u32>) -> Self {
        self.unsent_limit_bytes = bytes;
        self
    }

    /// From now on the connection is read from only when it has its turn among the connections of the same worker.
    pub(crate) fn in_turn(mut self, fairness: Arc<ReadFairness>) -> Self {
        self.fairness = Some(fairness);
        self
    }

    /// The handle by which the HTTP side announces responses on this connection.
    pub fn flow(&self) -> Flow {
        self.flow.clone()
    }

    /// How long the transport may take nothing; see [`Flow::set_write_timeout`].
    pub fn set_write_timeout(&self, timeout: Duration) {
        self.flow.set_write_timeout(timeout);
    }

    /// The least rate at which a client has to take bytes; see [`Flow::set_least_rate`].
    pub fn set_least_rate(&self, bytes_per_second: u64) {
        self.flow.set_least_rate(bytes_per_second);
    }

    /// Writes as many of `len` bytes as have leave; `send` is given that number.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        len: usize,
        send: impl FnOnce(Pin<&mut T>, &mut Context<'_>, usize) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if len == 0 {
            return Poll::Ready(Ok(0));
        }
        let enforcement = self.flow.enforcement();
        if self.transport.poll_write_ready(cx)?.is_pending() {
            if enforcement == Enforcement::Kernel && self.flow.has_streams() {
                // A better stream may have come. The bytes that wait in the transport go with it from now on.
                self.tell();
            }
            return self.poll_full(cx);
        }
        let revisits = enforcement == Enforcement::Paced && self.unmeasured_bytes >= REVISIT_BYTES;
        let next = self.flow.next_write(revisits);
        self.prepare(enforcement, revisits, next.best);
        let len = match &next.limited {
            None => len,
            Some((share, left_bytes)) => match poll_share(share, &mut self.share_timer, cx, *left_bytes, len as u64) {
                Poll::Ready(bytes) => bytes as usize,
                Poll::Pending => {
                    // The client is not to blame for the wait.
                    self.handle_room();
                    return Poll::Pending;
                }
            },
        };
        let may = match next.asks {
            None => len,
            Some(job) => match self.driver.ask(job, len as u64, cx.waker()) {
                Some(bytes) => bytes as usize,
                None => {
                    // The client is not to blame for the wait.
                    self.handle_room();
                    return Poll::Pending;
                }
            },
        };
        let sent = send(Pin::new(&mut self.transport), cx, may);
        let taken = if let Poll::Ready(Ok(taken)) = &sent { *taken } else { 0 };
        self.unmeasured_bytes += taken as u64;
        if let Some((share, _)) = &next.limited {
            share.take(taken as u64, Instant::now().into_std());
        }
        if let Some(job) = next.asks.filter(|_| taken < may) {
            self.driver.handle_unused(job, (may - taken) as u64);
        }
        match sent {
            Poll::Ready(Ok(taken)) => {
                self.handle_room();
                self.flow.handle_sent(taken as u64);
                Poll::Ready(Ok(taken))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.poll_full(cx),
        }
    }

    /// Writes as many of `ahead` and of a part of a file as have leave. The page cache has the part. Returns 0 where the
    /// transport cannot take bytes from the file.
    pub(crate) fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        ahead: &[u8],
        file: &File,
        part: Range<u64>,
    ) -> Poll<io::Result<usize>> {
        let len = ahead.len() + (part.end - part.start) as usize;
        self.poll_send(cx, len, |transport, cx, may| match may.saturating_sub(ahead.len()) {
            0 => transport.poll_write(cx, &ahead[..may]),
            bytes => transport.poll_send_file(cx, ahead, file, part.start..part.start + bytes as u64),
        })
    }

    /// The most bytes of a file to send at once.
    pub(crate) fn most_file_bytes(&self) -> u64 {
        // Where the order is kept, as many as are read from a file at once.
        if self.flow.enforcement() == Enforcement::Off { UNORDERED_FILE_BYTES } else { CHUNK_BYTES as u64 }
    }

    /// About as many bytes are sent at a time.
    pub(crate) fn grant_bytes(&self) -> u64 {
        if self.flow.enforcement() == Enforcement::Paced { self.driver.chunk_bytes() } else { u64::MAX }
    }

    /// The transport takes nothing: the client, or the path to it, is slow. Ends the connection when that lasts too
    /// long.
    fn poll_full(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.flow.handle_full();
        let Some(timeout) = self.flow.write_timeout() else { return Poll::Pending };
        // In a band of the kernel the order may starve a response. That looks like a slow client.
        let rate = if self.flow.enforcement() == Enforcement::Kernel { 0 } else { self.flow.least_rate() };
        let mut now = Instant::now();
        let flow = &self.flow;
        let acked = || flow.peer().measure().map(|measured| measured.acked_bytes);
        let TransportStall { budget, timer } = &mut **self.stall.get_or_insert_with(|| {
            let budget = StallBudget::new(timeout, now, acked());
            Box::new(TransportStall { timer: Timer::at(budget.poll_timeout(now)), budget })
        });
        budget.handle_full(now, rate, acked);
        loop {
            let due = budget.poll_timeout(now);
            if timer.due() > due {
                timer.set(due);
            }
            ready!(timer.poll(cx));
            now = Instant::now();
            if now < due {
                timer.set(due);
                continue;
            }
            match budget.handle_look(now, rate, acked()) {
                Pace::Enough => {}
                Pace::Slow => flow.handle_slow(None),
                Pace::TooSlow => {
                    flow.handle_too_slow(None);
                    let message = "the client took too little of the response in time";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)));
                }
            }
        }
    }

    /// The transport is not full, or the response waits for leave.
    fn handle_room(&mut self) {
        if let Some(stall) = &mut self.stall {
            stall.budget.handle_room(Instant::now);
        }
    }

    /// Tells the transport and the scheduler what they have to know before a write. `best` stands for the connection.
    fn prepare(&mut self, enforcement: Enforcement, revisits: bool, best: Option<JobId>) {
        let limit = match enforcement {
            Enforcement::Off if self.flow.has_priorities() => Some(STREAMS_UNSENT_LIMIT_BYTES),
            Enforcement::Off => None,
            // The order is kept behind the socket, which may hold all of a response. Only streams overtake each other.
            Enforcement::Kernel if !self.flow.has_streams() => None,
            Enforcement::Kernel | Enforcement::Paced => self.driver.unsent_limit_bytes(),
        };
        // One that is at most twice as large as it has to be is left as it is: grants of other sizes come and go.
        let is_near = match (self.unsent_limit_bytes, limit) {
            (Some(has), Some(new)) => (new..=new.saturating_mul(2)).contains(&has),
            (has, new) => has == new,
        };
        if !is_near {
            // Without a limit the order suffers a little. Nothing else does.
            let _ = self.transport.set_unsent_limit(limit);
            self.unsent_limit_bytes = limit;
        }
        if enforcement == Enforcement::Kernel {
            self.tell();
        }
        if revisits {
            self.unmeasured_bytes = 0;
            self.measure_round_trip(Occasion::Write);
            if let Some(job) = best
                && self.driver.needs_path()
                && let Some(path) = self.flow.peer().measure().and_then(|measured| measured.path)
            {
                self.driver.handle_path(job, path);
            }
        }
    }

    /// In kernel mode: tells the kernel what is left of the response that stands for the connection.
    fn tell(&mut self) {
        if let Some((teller, words)) = self.flow.poll_told()
            && let Err(error) = self.transport.tell(&teller, words.as_slice())
            && !std::mem::replace(&mut self.tells_in_vain, true)
        {
            tracing::warn!(%error, "the kernel cannot be told what is left of a response");
        }
    }

    /// Tells those who find or correct the rate about a round trip, if one was measured just now. Returns whether bytes are on
    /// their way.
    fn measure_round_trip(&mut self, occasion: Occasion) -> bool {
        if self.flow.is_local() || self.flow.enforcement() != Enforcement::Paced {
            return false;
        }
        let Some(measured) = self.flow.peer().measure() else { return false };
        let (Some(path), Some(look)) = (measured.path, Look::new(&measured)) else { return false };
        self.flow.set_segment_bytes(path.mss_bytes);
        match self.look.replace(look) {
            // Only the round trip of the handshake was measured yet.
            None => {
                let kind = RttKind::Handshake;
                self.driver.handle_round_trip(RoundTrip { path: self.path, ns: path.rtt_ns, kind, age_ns: 0 }, 0);
            }
            Some(before) => {
                if let Some(round_trip) = look.round_trip(self.path, &before, &measured, occasion) {
                    let idle_ns = if occasion == Occasion::Rest { 0 } else { look.idle_ns(&measured) };
                    self.driver.handle_round_trip(round_trip, idle_ns);
                }
            }
        }
        measured.unacked_segments > 0
    }

    /// Looks at the connection after its last bytes, where few round trips are measured otherwise.
    fn poll_look(&mut self, cx: &mut Context<'_>) {
        if self.flow.is_local() || self.flow.enforcement() != Enforcement::Paced {
            return;
        }
        let rtt = self.look.map_or(Duration::ZERO, |look| look.mean());
        while self.looks.poll_due(cx, &self.driver, rtt).is_ready() {
            let are_under_way = self.measure_round_trip(Occasion::Rest);
            if !are_under_way {
                self.unmeasured_bytes = 0;
            }
            if !self.looks.handle_look(&self.driver, are_under_way) {
                return;
            }
        }
    }
}

/// The number of the path to a client. Neighbours have the same /24 or /48. Their numbers differ in the lowest 16 bits.
/// In IPv6 a client is a /64.
fn path_number(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(v4) => {
            let [.., host] = v4.octets();
            u64::from(u32::from(v4) >> 8) << 16 | u64::from(host)
        }
        IpAddr::V6(v6) => (u128::from(v6) >> 64) as u64,
    }
}

impl<T: Transport> Gate<T> {
    fn poll_bytes(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.transport.poll_read_ready(cx))?;
        if let Some(fairness) = &self.fairness {
            if self.may_be_empty && self.position.is_none() && !fairness.is_free() && self.transport.is_empty() {
                // A connection without data does not wait for a turn.
                self.may_be_empty = false;
                ready!(self.transport.poll_read_ready(cx))?;
            }
            ready!(fairness.poll_turn(&mut self.position, cx));
        }
        let (room, before) = (buf.remaining(), buf.filled().len());
        match Pin::new(&mut self.transport).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => {
                self.may_be_empty = buf.filled().len() - before == room;
                // Data is acknowledged by a segment of its own, as a rule.
                self.flow.handle_bare_segments(1);
                if self.unmeasured_bytes > 0 {
                    // Since the last measurement there was something to acknowledge.
                    self.unmeasured_bytes = 0;
                    self.looks.handle_measured();
                    self.measure_round_trip(Occasion::Read);
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.may_be_empty = false;
                if let Some(fairness) = &self.fairness {
                    fairness.give_back();
                }
                Poll::Pending
            }
        }
    }
}

impl<T: Transport> AsyncRead for Gate<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let read = this.poll_bytes(cx, buf);
        if read.is_ready() {
            if this.rest.handle_bytes() {
                this.flow.set_resting(false);
            }
        } else {
            if this.unmeasured_bytes > 0 {
                this.poll_look(cx);
            } else {
                this.looks.handle_measured();
            }
            if this.flow.keeps_buffer() && this.rest.poll_begin(cx).is_ready() {
                this.flow.set_resting(true);
                kernel::memory::give_back(buf.initialize_unfilled());
            }
        }
        read
    }
}

impl<T: Transport> AsyncWrite for Gate<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, buf.len(), |transport, cx, may| transport.poll_write(cx, &buf[..may]))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.poll_send(cx, len, |transport, cx, may| {
            if may == len {
                return transport.poll_write_vectored(cx, bufs);
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
            transport.poll_write_vectored(cx, &cut[..slices])
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.transport).poll_flush(cx))?;
        self.flow.handle_flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}

/// Slices of a write that is cut short. The slices behind them wait for the next write.
const MAX_SLICES: usize = 16;

impl<T: Transport> Drop for Gate<T> {
    fn drop(&mut self) {
        self.flow.handle_closed();
        self.flow.handle_bare_segments(SEGMENTS_AT_CLOSE);
    }
}
