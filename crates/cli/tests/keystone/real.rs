//! The server's driver, with real gates on real sockets, under a clock that stands still until it is moved.
//!
//! All runs on one thread, and nobody but this file decides who runs: a job that is woken joins a queue, and jobs run one
//! after the other until nobody can go on. Then the kernel is asked for sockets that take more, and after that time moves:
//! to what comes next of the plan, or to the moment for which the alarm is set.

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

/// A decision. A job is its place in the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub at_ns: u64,
    pub job: usize,
    pub bytes: u64,
    pub reason: String,
}

/// Something that nobody decided.
#[derive(Clone, Copy, Debug)]
pub enum Happened {
    /// A response begins, in segments of so many bytes.
    Arrived { job: usize, mss_bytes: u32 },
    /// A socket that was full takes more.
    Writable { job: usize },
    /// A client leaves.
    GaveUp { job: usize },
    /// The configuration of this place in [`Plan::configs`] takes over.
    Changed { config: usize },
}

/// What was played.
pub struct Played {
    pub decisions: Vec<Decision>,
    /// In the order in which it happened, by the clock of the driver.
    pub happened: Vec<(u64, Happened)>,
    /// By job: bytes that the socket took of each leave, 0 when it was full.
    pub takes: Vec<Vec<u64>>,
}

/// Plays a plan through the driver.
pub fn play(plan: &Plan) -> Played {
    let log = Log::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    // Who runs is decided here, so the runtime must not cut anybody's turn short.
    runtime.block_on(tokio::task::unconstrained(async {
        let mut driver = Driver::new(plan, log).await;
        driver.run().await;
        driver.played
    }))
}

/// Two wait behind a first one. The next in line is given leave for what it offered, and comes back with a byte: how much
/// earlier the alarm rings for the last.
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
            gates.push(uplink.gate(accept(&listener).await));
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
    /// When, in real time, a byte was last read.
    moved_at: std::time::Instant,
    connections: Vec<Connection>,
    woken: Woken,
    /// Whose full sockets take more.
    full: VecDeque<usize>,
    /// Who has which name in the driver, at the moment.
    names: Vec<usize>,
    played: Played,
}

struct Connection {
    client: std::net::TcpStream,
    /// Until the response begins.
    accepted: Option<TcpStream>,
    sending: Option<Sending>,
    kept_alive: Option<Gate>,
    /// When a client that reads at intervals reads next.
    next_read_ns: Option<u64>,
    waker: Arc<JobWaker>,
}

/// A response under way.
struct Sending {
    gate: Gate,
    body: GatedBody<Zeros>,
    sent_bytes: u64,
    /// What of the body was handed out.
    pulled_bytes: u64,
    /// Its socket is full; otherwise it waits for leave.
    is_full: bool,
    /// It waited for leave, and has it.
    came_back: bool,
    /// How often it did.
    turns: u32,
}

/// Who was woken, in order.
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
            // The kernel's turn: who can write again is woken by it.
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
                // Nothing but reading is left.
                self.wait_for_the_kernel(read_bytes);
            }
            advance(Duration::from_nanos(next_ns.saturating_sub(self.now_ns()))).await;
            // Who could write again while time moved can do so from now on. The alarm goes before everything else.
            self.settle();
            if planned_ns == Some(next_ns) {
                let (_, happened) = planned.pop_front().expect("it is the next");
                self.happens(happened);
            }
        }
    }

    /// The clients have read, and the kernel needs a moment of real time to see that there is room.
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

    /// Lets run who can, rings the alarm when it is due, and lets full sockets take more, until nobody can go on.
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
                let gate = self.uplink.gate(stream);
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

    /// The client is gone, and the connection with what it had under way.
    fn leaves(&mut self, job: usize) {
        let it = &mut self.connections[job];
        it.next_read_ns = None;
        let Sending { gate, body, .. } = it.sending.take().expect("it is under way");
        drop(gate);
        drop(body);
        self.read_log();
    }

    /// A job writes until it has to wait or is done.
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

    /// Writes down the decisions since it was last called.
    fn read_log(&mut self) -> Vec<Line> {
        let lines = self.log.take();
        for Line { at_ns, job, bytes, reason, .. } in lines.iter().filter(|it| it.what == "leave").cloned() {
            self.played.decisions.push(Decision { at_ns, job: self.names[job], bytes, reason });
        }
        lines
    }

    /// Those who read at once do so, and those whose time it is; how much that was.
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
    /// Takes from the body what is to be offered.
    fn pull(&mut self, cx: &mut Context<'_>, plan: &Job, offered: u64) {
        while plan.head_bytes + self.pulled_bytes < self.sent_bytes + offered {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => self.pulled_bytes += frame.data_ref().map_or(0, Bytes::len) as u64,
                _ => unreachable!("there is more, and a body in HTTP/1 waits for nothing"),
            }
        }
    }
}

/// The plan by time; what comes at the same moment, in the order of the plan.
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

/// A client; one with a small buffer takes little before it reads.
fn connect(listener: &TcpListener, has_small_buffer: bool) -> io::Result<std::net::TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    if has_small_buffer {
        socket.set_recv_buffer_size(4096)?;
    }
    socket.connect(&listener.local_addr()?.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// The server's end, ready to be written to.
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

/// Only ends a test that would wait for ever.
const STUCK: Duration = Duration::from_secs(60);

/// As much as anybody offers at once.
static ZEROS: [u8; 1 << 17] = [0; 1 << 17];

/// A body of zeros in pieces, its length announced or not.
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
