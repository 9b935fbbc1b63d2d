//! Measures a server's response times when requests come at the times of a Poisson process (open loop). It is
//! lean, so that at some ten thousand requests a second it leaves time for the server on the same processor.
//! The lab's own generator checks every byte of every answer, and uses all the time that it can get.
//!
//! ```text
//! cargo run --release -p serpent-instrument --example paced -- ADDRESS REQUESTS_PER_SECOND SECONDS SEED
//! ```
//!
//! A due request takes the connection that has been idle for the longest. If none of the 64 is idle, it waits
//! for the first that becomes so, and its time still counts from its planned time. The first quarter of the
//! run does not count.
//!
//! The output is separated by tabs. First comes the number of counted requests. Then come the percentiles 50,
//! 90, 99 and 99.9 of their response times, in microseconds. The last value is percentile 99 of the lateness
//! of sending, which is part of these times; its cause is the generator itself or a lack of idle connections.

use std::{
    collections::VecDeque,
    error::Error,
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    num::NonZero,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use rand_distr::{Distribution, Exp};
use rustix::{
    buffer::spare_capacity,
    event::{PollFd, PollFlags, Timespec, epoll, poll},
};

const CONNECTIONS: usize = 64;
/// All requests must be answered within this time after the last one.
const DRAIN: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, per_second, seconds, seed] = &arguments[..] else {
        return Err("paced ADDRESS REQUESTS_PER_SECOND SECONDS SEED".into());
    };
    let mut chance = ChaCha12Rng::seed_from_u64(seed.parse()?);
    let gap_ns = Exp::new(per_second.parse::<f64>()? / 1e9)?;
    let mut at_ns = 0.0;
    let moments_ns = std::iter::from_fn(move || {
        at_ns += gap_ns.sample(&mut chance);
        Some(at_ns as u64)
    });
    // Timers exact to a nanosecond instead of 50 us.
    rustix::thread::set_current_timer_slack(NonZero::new(1))?;
    let Times { took, late } =
        Clients::connect(address)?.run(moments_ns, Duration::try_from_secs_f64(seconds.parse()?)?)?;
    let us = |histogram: &Histogram<u64>, percentile| histogram.value_at_percentile(percentile) as f64 / 1e3;
    let [p50, p90, p99, p999] = [50.0, 90.0, 99.0, 99.9].map(|percentile| us(&took, percentile));
    println!("{}\t{p50:.1}\t{p90:.1}\t{p99:.1}\t{p999:.1}\t{:.1}", took.len(), us(&late, 99.0));
    Ok(())
}

/// Times of the counted requests, in nanoseconds.
struct Times {
    took: Histogram<u64>,
    late: Histogram<u64>,
}

/// The connections, each with a request under way or idle.
struct Clients {
    epoll: rustix::fd::OwnedFd,
    connections: Vec<TcpStream>,
    under_way: Vec<InFlight>,
    /// Idle connections; the one that has been idle for the longest is first.
    idle: VecDeque<usize>,
    request: Vec<u8>,
    response_bytes: usize,
}

#[derive(Clone, Copy, Default)]
struct InFlight {
    due_ns: u64,
    missing_bytes: usize,
}

impl Clients {
    /// Connects, and sends one request on each connection: all responses must be as long as the first.
    fn connect(address: &str) -> Result<Self, Box<dyn Error>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nUser-Agent: paced\r\n\r\n").into_bytes();
        let mut connections = Vec::new();
        let mut response_bytes = None;
        for key in 0..CONNECTIONS {
            let mut connection = TcpStream::connect(address)?;
            connection.set_nodelay(true)?;
            connection.write_all(&request)?;
            let bytes = read_response(&mut connection)?;
            if response_bytes.is_some_and(|first| bytes != first) {
                return Err(format!("a response of {bytes} bytes, where the first had {response_bytes:?}").into());
            }
            response_bytes = Some(bytes);
            connection.set_nonblocking(true)?;
            epoll::add(&epoll, &connection, epoll::EventData::new_u64(key as u64), epoll::EventFlags::IN)?;
            connections.push(connection);
        }
        Ok(Self {
            epoll,
            connections,
            under_way: vec![InFlight::default(); CONNECTIONS],
            idle: (0..CONNECTIONS).collect(),
            request,
            response_bytes: response_bytes.unwrap_or_default(),
        })
    }

    /// Sends a request at each of the times that lie within `lasts`, and waits for the last response.
    fn run(mut self, mut moments_ns: impl Iterator<Item = u64>, lasts: Duration) -> Result<Times, Box<dyn Error>> {
        let mut times = Times { took: Histogram::new(3)?, late: Histogram::new(3)? };
        let until_ns = lasts.as_nanos() as u64;
        let counts = |due_ns: u64| due_ns >= until_ns / 4;
        let mut moments_ns = std::iter::from_fn(|| moments_ns.next().filter(|&due_ns| due_ns < until_ns)).fuse();
        let mut events = Vec::with_capacity(CONNECTIONS);
        let mut buffer = vec![0; 64 * 1024];
        let start = Instant::now();
        let now_ns = || start.elapsed().as_nanos() as u64;
        let mut next_ns = moments_ns.next();
        loop {
            while let Some(due_ns) = next_ns.filter(|&due_ns| due_ns <= now_ns())
                && let Some(key) = self.idle.pop_front()
            {
                if counts(due_ns) {
                    times.late.record(now_ns() - due_ns)?;
                }
                self.send(key, due_ns)?;
                next_ns = moments_ns.next();
            }
            let wait = match next_ns {
                None if self.idle.len() == CONNECTIONS => return Ok(times),
                Some(due_ns) if !self.idle.is_empty() => Duration::from_nanos(due_ns.saturating_sub(now_ns())),
                _ => Duration::from_secs(1),
            };
            if start.elapsed() > lasts + DRAIN {
                return Err("requests were not answered".into());
            }
            self.wait(wait, &mut events)?;
            for event in events.drain(..) {
                let key = event.data.u64() as usize;
                if self.receive(key, &mut buffer)? {
                    let due_ns = self.under_way[key].due_ns;
                    if counts(due_ns) {
                        times.took.record(now_ns() - due_ns)?;
                    }
                    self.idle.push_back(key);
                }
            }
        }
    }

    fn send(&mut self, key: usize, due_ns: u64) -> Result<(), Box<dyn Error>> {
        self.under_way[key] = InFlight { due_ns, missing_bytes: self.response_bytes };
        if self.connections[key].write(&self.request)? < self.request.len() {
            return Err("a socket has no room for a request".into());
        }
        Ok(())
    }

    /// Reads from a connection; returns whether the response is complete.
    fn receive(&mut self, key: usize, buffer: &mut [u8]) -> Result<bool, Box<dyn Error>> {
        let read_bytes = match self.connections[key].read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            read => read?,
        };
        let missing_bytes = &mut self.under_way[key].missing_bytes;
        let begins = *missing_bytes == self.response_bytes;
        let expected = if begins { &b"HTTP/1.1 200 "[..] } else { b"" };
        if read_bytes == 0 || read_bytes > *missing_bytes || !buffer[..read_bytes].starts_with(expected) {
            return Err(format!("not a response like the first: {}", buffer[..read_bytes].escape_ascii()).into());
        }
        *missing_bytes -= read_bytes;
        Ok(*missing_bytes == 0)
    }

    /// `epoll_wait` counts in milliseconds; `ppoll` on the epoll instance counts in nanoseconds.
    fn wait(&self, wait: Duration, events: &mut Vec<epoll::Event>) -> Result<(), Box<dyn Error>> {
        poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&Timespec::try_from(wait)?))?;
        epoll::wait(&self.epoll, spare_capacity(events), Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        Ok(())
    }
}

/// Reads a response, and returns its length with head and body.
fn read_response(connection: &mut TcpStream) -> Result<usize, Box<dyn Error>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read_bytes = connection.read(&mut buffer)?;
        if read_bytes == 0 {
            return Err("the server closed the connection".into());
        }
        bytes.extend_from_slice(&buffer[..read_bytes]);
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut fields);
        let httparse::Status::Complete(head_bytes) = response.parse(&bytes)? else { continue };
        if response.code != Some(200) {
            return Err(format!("status {:?}", response.code).into());
        }
        let length = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
        let length: usize = std::str::from_utf8(length.ok_or("a response without a length")?.value)?.parse()?;
        if bytes.len() >= head_bytes + length {
            return Ok(head_bytes + length);
        }
    }
}
