//! The server's driver, with real gates on real sockets, under a clock that stands still until the test moves
//! it.
//!
//! Everything runs on one thread, and only this file decides which job runs. A woken job joins a queue, and
//! jobs run one after the other until none can go on. Then the kernel is asked which sockets accept more.
//! After that the clock moves to the next event of the plan, or to the time of the alarm.

use std::{
    collections::VecDeque,
    io::{self, Read},
    net::TcpListener,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Response, Version};
use http_body::{Body, Frame, SizeHint};
use server::{
    config::{Classes, UplinkConfig},
    gate::{Gate, GatedBody, Urgency},
    uplink::Uplink,
};
use tokio::{
    io::AsyncWrite,
    net::TcpStream,
    time::{Instant, advance},
};

use crate::{
    log::{Line, Log},
    plan::{Job, Plan},
};

/// A decision. A job is its index in the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub at_ns: u64,
    pub job: usize,
    pub bytes: u64,
    pub reason: String,
}

/// An event that the scheduler does not decide.
#[derive(Clone, Copy, Debug)]
pub enum Happened {
    /// A response begins, with segments of this size.
    Arrived { job: usize, mss_bytes: u32 },
    /// A socket that was full accepts more.
    Writable { job: usize },
    /// A client leaves.
    GaveUp { job: usize },
    /// The configuration with this index in [`Plan::configs`] takes effect.
    Changed { config: usize },
}

/// The record of a played plan.
pub struct Played {
    pub decisions: Vec<Decision>,
    /// Events in the order in which they happened, by the clock of the driver.
    pub happened: Vec<(u64, Happened)>,
    /// By job: bytes that the socket accepted of each grant, 0 when it was full.
    pub takes: Vec<Vec<u64>>,
}

/// Plays a plan through the driver.
pub fn play(plan: &Plan) -> Played {
    let log = Log::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    // The test decides which job runs, so the runtime must not cut a turn short.
    runtime.block_on(tokio::task::unconstrained(async {
        let mut driver = Driver::new(plan, log).await;
        driver.run().await;
        driver.played
    }))
}

/// Measures how much earlier the alarm rings when a grant comes back. Two jobs wait behind a first one. The
/// next in line is granted what it offered, and comes back with one byte.
pub fn earlier_when_leave_comes_back(config: &UplinkConfig) -> Duration {
    let log = Log::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(tokio::task::unconstrained(async {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let uplink = Uplink::by_hand(config, &Classes::one()).expect("pacing needs no privilege");
        let mut cx = Context::from_waker(Waker::noop());
        let (mut clients, mut gates) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            clients.push(connect(&listener, false).expect("the loopback connects"));
            gates.push(Gate::tcp(accept(&listener).await, &uplink));
        }
        let mut responses = Vec::new();
        for (gate, waits) in gates.iter_mut().zip([false, true, true]) {
            let body = Zeros { left: 100_000, piece_bytes: 100_000, announced: true };
            responses.push(gate.flow().response(Version::HTTP_11, Response::new(body), Urgency::Ranked, drop));
            assert_eq!(Pin::new(gate).poll_write(&mut cx, &ZEROS[..10_000]).is_pending(), waits);
        }
        let due = uplink.alarm_at().expect("two wait");
        advance(due - Instant::now()).await;
        uplink.ring();
        let before = uplink.alarm_at().expect("one waits");
        log.take();
        assert!(matches!(Pin::new(&mut gates[1]).poll_write(&mut cx, &ZEROS[..1]), Poll::Ready(Ok(1))));
        assert!(log.take().iter().any(|line| line.what == "unused"));
        before - uplink.alarm_at().expect("one waits")
    }))
}

struct Driver<'a> {
    plan: &'a Plan,
    log: Log,
    uplink: Uplink,
    began: Instant,
    /// Real time of the last read byte.
    moved_at: std::time::Instant,
    connections: Vec<Connection>,
    woken: Woken,
    /// Jobs whose full sockets accept more.
    full: VecDeque<usize>,
    /// Present owner of each job number of the driver.
    names: Vec<usize>,
    played: Played,
}

struct Connection {
    client: std::net::TcpStream,
    /// The socket, until the response begins.
    accepted: Option<TcpStream>,
    sending: Option<Sending>,
    kept_alive: Option<Gate>,
    /// Time of the next read of a client that reads at intervals.
    next_read_ns: Option<u64>,
    waker: Arc<JobWaker>,
}

/// A response in progress.
struct Sending {
    gate: Gate,
    body: GatedBody<Zeros>,
    sent_bytes: u64,
    /// Bytes taken from the body so far.
    pulled_bytes: u64,
    /// Whether its socket is full. Otherwise it waits for a grant.
    is_full: bool,
    /// Whether it waited for a grant and now has one.
    came_back: bool,
    /// Number of times that it came back so.
    turns: u32,
}

/// Jobs that were woken, in order.
type Woken = Arc<Mutex<VecDeque<usize>>>;

struct JobWaker {
    job: usize,
    is_queued: AtomicBool,
    woken: Woken,
}

impl Wake for JobWaker {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            self.woken.lock().unwrap().push_back(self.job);
        }
    }
}

impl<'a> Driver<'a> {
    async fn new(plan: &'a Plan, log: Log) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let woken = Woken::default();
        let mut connections = Vec::new();
        for (job, it) in plan.jobs.iter().enumerate() {
            let client = connect(&listener, it.reads_every_ns.is_some()).expect("the loopback connects");
            let accepted = accept(&listener).await;
            let waker = Arc::new(JobWaker { job, is_queued: AtomicBool::new(false), woken: woken.clone() });
            connections.push(Connection {
                client,
                accepted: Some(accepted),
                sending: None,
                kept_alive: None,
                next_read_ns: None,
                waker,
            });
        }
        let uplink = Uplink::by_hand(&plan.configs()[0], &Classes::one()).expect("pacing needs no privilege");
        let takes = vec![Vec::new(); plan.jobs.len()];
        let played = Played { decisions: Vec::new(), happened: Vec::new(), takes };
        Self {
            plan,
            log,
            uplink,
            began: Instant::now(),
            moved_at: std::time::Instant::now(),
            connections,
            woken,
            full: VecDeque::new(),
            names: Vec::new(),
            played,
        }
    }

    async fn run(&mut self) {
        let mut planned: VecDeque<(u64, Happened)> = planned(self.plan).into();
        loop {
            self.settle();
            let read_bytes = self.clients_read();
            // The kernel gets a turn and wakes the jobs that can write again.
            tokio::task::yield_now().await;
            if !self.woken.lock().unwrap().is_empty() {
                continue;
            }
            let planned_ns = planned.front().map(|&(at_ns, _)| at_ns);
            let alarm_ns = self.uplink.alarm_at().map(|at| ns(at - self.began));
            let read_ns = self.connections.iter().filter_map(|it| it.next_read_ns).min();
            let Some(next_ns) = planned_ns.into_iter().chain(alarm_ns).chain(read_ns).min() else {
                if self.connections.iter().all(|it| it.sending.as_ref().is_none_or(|sending| !sending.is_full)) {
                    return;
                }
                self.wait_for_the_kernel(read_bytes);
                continue;
            };
            if planned_ns.is_none() && alarm_ns.is_none() {
                // Only reads by clients are left.
                self.wait_for_the_kernel(read_bytes);
            }
            advance(Duration::from_nanos(next_ns.saturating_sub(self.now_ns()))).await;
            // Jobs that became writable while the clock moved continue from the new time. The alarm goes
            // before everything else.
            self.settle();
            if planned_ns == Some(next_ns) {
                let (_, happened) = planned.pop_front().expect("it is the next");
                self.happens(happened);
            }
        }
    }

    /// Waits until the kernel has noticed the room that clients made by reading, which takes a moment of real
    /// time.
    fn wait_for_the_kernel(&mut self, read_bytes: usize) {
        if read_bytes > 0 {
            self.moved_at = std::time::Instant::now();
        }
        assert!(self.moved_at.elapsed() < STUCK, "a client reads, and the socket it reads from stays full");
        std::thread::yield_now();
    }

    fn now_ns(&self) -> u64 {
        ns(self.began.elapsed())
    }

    /// Runs jobs, rings the alarm when it is due, and lets full sockets accept more, until no job can go on.
    fn settle(&mut self) {
        for turn in 0.. {
            assert!(turn < 1_000_000, "this comes to no end");
            let woken = self.woken.lock().unwrap().pop_front();
            if let Some(job) = woken {
                let it = &self.connections[job];
                it.waker.is_queued.store(false, Ordering::Relaxed);
                match &it.sending {
                    Some(sending) if sending.is_full => self.full.push_back(job),
                    Some(_) => self.runs(job),
                    None => {}
                }
            } else if self.uplink.alarm_at().is_some_and(|at| at <= Instant::now()) {
                self.uplink.ring();
                self.read_log();
            } else if let Some(job) = self.full.pop_front() {
                self.happens(Happened::Writable { job });
            } else {
                return;
            }
        }
    }

    fn happens(&mut self, happened: Happened) {
        let now_ns = self.now_ns();
        let mut happened = happened;
        match &mut happened {
            Happened::Arrived { job, mss_bytes } => {
                let (job, plan) = (*job, &self.plan.jobs[*job]);
                let it = &mut self.connections[job];
                let stream = it.accepted.take().expect("it arrives once");
                *mss_bytes = socket2::SockRef::from(&stream).tcp_mss().expect("TCP knows its segments");
                let gate = Gate::tcp(stream, &self.uplink);
                let body = Zeros { left: plan.body_bytes, piece_bytes: plan.piece_bytes, announced: plan.announced };
                let response = gate.flow().response(Version::HTTP_11, Response::new(body), Urgency::Ranked, drop);
                let body = response.into_body();
                it.sending = Some(Sending {
                    gate,
                    body,
                    sent_bytes: 0,
                    pulled_bytes: 0,
                    is_full: false,
                    came_back: false,
                    turns: 0,
                });
                it.next_read_ns = plan.reads_every_ns.map(|every_ns| now_ns + every_ns);
                for line in self.log.take() {
                    assert_eq!(line.what, "begins", "nobody asks yet");
                    self.names.resize(self.names.len().max(line.job + 1), usize::MAX);
                    self.names[line.job] = job;
                }
                self.played.happened.push((now_ns, happened));
                self.runs(job);
            }
            Happened::Writable { job } => {
                let job = *job;
                let Some(sending) = &mut self.connections[job].sending else { return };
                sending.is_full = false;
                self.played.happened.push((now_ns, happened));
                self.runs(job);
            }
            Happened::GaveUp { job } => {
                let job = *job;
                if self.connections[job].sending.is_some() {
                    self.played.happened.push((now_ns, happened));
                    self.leaves(job);
                }
            }
            Happened::Changed { config } => {
                let config = &self.plan.configs()[*config];
                self.played.happened.push((now_ns, happened));
                self.uplink.reconfigure(config, &Classes::one()).expect("pacing needs no privilege");
                self.read_log();
            }
        }
    }

    /// Closes a client and its connection, with the response in progress.
    fn leaves(&mut self, job: usize) {
        let it = &mut self.connections[job];
        it.next_read_ns = None;
        let Sending { gate, body, .. } = it.sending.take().expect("it is under way");
        drop(gate);
        drop(body);
        self.read_log();
    }

    /// Lets a job write until it has to wait or is done.
    fn runs(&mut self, job: usize) {
        let plan = &self.plan.jobs[job];
        let sending = self.connections[job].sending.as_mut().expect("it is under way");
        if sending.came_back {
            sending.turns += 1;
            if Some(sending.turns) == plan.gives_up_at_turn {
                return self.leaves(job);
            }
        }
        let waker = Waker::from(self.connections[job].waker.clone());
        let mut cx = Context::from_waker(&waker);
        loop {
            let sending = self.connections[job].sending.as_mut().expect("it is under way");
            if sending.sent_bytes == plan.all_bytes() {
                break;
            }
            let offered = plan.offered_bytes(sending.sent_bytes, sending.came_back);
            sending.pull(&mut cx, plan, offered);
            let written = Pin::new(&mut sending.gate).poll_write(&mut cx, &ZEROS[..offered as usize]);
            let lines = self.read_log();
            let sending = self.connections[job].sending.as_mut().expect("it is under way");
            match written {
                Poll::Ready(taken) => {
                    let taken = taken.expect("the client is there") as u64;
                    self.played.takes[job].push(taken);
                    sending.sent_bytes += taken;
                    sending.came_back = false;
                }
                Poll::Pending => {
                    sending.is_full = lines.iter().any(|it| it.what == "unused" && self.names[it.job] == job);
                    sending.came_back = !sending.is_full;
                    if sending.is_full {
                        self.played.takes[job].push(0);
                    }
                    return;
                }
            }
        }
        let it = &mut self.connections[job];
        it.next_read_ns = None;
        let Sending { mut gate, mut body, .. } = it.sending.take().expect("it is under way");
        assert!(matches!(Pin::new(&mut body).poll_frame(&mut cx), Poll::Ready(None)), "all was pulled");
        drop(body);
        assert!(matches!(Pin::new(&mut gate).poll_flush(&mut cx), Poll::Ready(Ok(()))));
        if plan.is_kept_alive {
            it.kept_alive = Some(gate);
        } else {
            drop(gate);
        }
        self.read_log();
    }

    /// Records the decisions since the last call.
    fn read_log(&mut self) -> Vec<Line> {
        let lines = self.log.take();
        for Line { at_ns, job, bytes, reason, .. } in lines.iter().filter(|it| it.what == "leave").cloned() {
            self.played.decisions.push(Decision { at_ns, job: self.names[job], bytes, reason });
        }
        lines
    }

    /// Lets clients read: those that read at once, and those whose time has come. Returns the number of
    /// bytes.
    fn clients_read(&mut self) -> usize {
        let now_ns = self.now_ns();
        let mut read_bytes = 0;
        for (it, plan) in self.connections.iter_mut().zip(&self.plan.jobs) {
            if let Some(every_ns) = plan.reads_every_ns {
                if it.next_read_ns.is_none_or(|at_ns| at_ns > now_ns) {
                    continue;
                }
                it.next_read_ns = Some(now_ns + every_ns);
            }
            read_bytes += read_all(&mut it.client).expect("the server is there");
        }
        read_bytes
    }
}

impl Sending {
    /// Takes the bytes to be offered from the body.
    fn pull(&mut self, cx: &mut Context<'_>, plan: &Job, offered: u64) {
        while plan.head_bytes + self.pulled_bytes < self.sent_bytes + offered {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => self.pulled_bytes += frame.data_ref().map_or(0, Bytes::len) as u64,
                _ => unreachable!("there is more, and a body in HTTP/1 waits for nothing"),
            }
        }
    }
}

/// The plan by time. Events of the same time are in the order of the plan.
fn planned(plan: &Plan) -> Vec<(u64, Happened)> {
    let arrivals = plan.jobs.iter().enumerate().map(|(job, it)| (it.at_ns, Happened::Arrived { job, mss_bytes: 0 }));
    let leaving =
        plan.jobs.iter().enumerate().filter_map(|(job, it)| {
            it.gives_up_after_ns.map(|after_ns| (it.at_ns + after_ns, Happened::GaveUp { job }))
        });
    let changes = plan.changes.iter().enumerate().map(|(i, it)| (it.at_ns, Happened::Changed { config: i + 1 }));
    let mut planned: Vec<_> = arrivals.chain(leaving).chain(changes).collect();
    planned.sort_by_key(|&(at_ns, _)| at_ns);
    planned
}

/// Connects a client. A client with a small buffer accepts little before it reads.
fn connect(listener: &TcpListener, has_small_buffer: bool) -> io::Result<std::net::TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    if has_small_buffer {
        socket.set_recv_buffer_size(4096)?;
    }
    socket.connect(&listener.local_addr()?.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Accepts the server's end of a connection and waits until it is writable.
async fn accept(listener: &TcpListener) -> TcpStream {
    let (accepted, _) = listener.accept().expect("who connected is accepted");
    accepted.set_nonblocking(true).unwrap();
    let accepted = TcpStream::from_std(accepted).unwrap();
    accepted.writable().await.expect("nothing was written yet");
    accepted
}

fn read_all(client: &mut std::net::TcpStream) -> io::Result<usize> {
    let (mut buffer, mut all) = ([0; 16 * 1024], 0);
    loop {
        match client.read(&mut buffer) {
            Ok(0) => return Ok(all),
            Ok(read) => all += read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(all),
            Err(error) => return Err(error),
        }
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a run is shorter than 584 years")
}

/// Ends a test that would otherwise wait for ever.
const STUCK: Duration = Duration::from_secs(60);

/// The largest number of bytes that a job offers at once.
static ZEROS: [u8; 1 << 17] = [0; 1 << 17];

/// A body of zeros in pieces, with or without an announced length.
struct Zeros {
    left: u64,
    piece_bytes: u64,
    announced: bool,
}

impl Body for Zeros {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let piece = self.left.min(self.piece_bytes);
        self.left -= piece;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&ZEROS[..piece as usize])))))
    }

    fn size_hint(&self) -> SizeHint {
        if self.announced { SizeHint::with_exact(self.left) } else { SizeHint::new() }
    }
}
