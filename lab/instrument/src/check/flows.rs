//! Many TCP flows at a steady rate, as traffic beside the probes.

use std::{
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd as _,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::{buffer::spare_capacity, event::epoll};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use workload::rate::Rate;

use crate::{
    LabError,
    bed::{SERVER, TestBed},
};

/// Runs `meanwhile` while `flows` connections of the first client group receive `rate` together.
pub(super) fn with_flows<T>(
    bed: &TestBed,
    flows: usize,
    rate: Rate,
    meanwhile: impl FnOnce() -> Result<T, LabError>,
) -> Result<T, LabError> {
    let failed = || LabError::io("cannot open the flows");
    let listener = {
        let _inside = bed.server().enter().map_err(LabError::io("cannot enter a namespace"))?;
        listen().map_err(failed())?
    };
    let clients = {
        let _inside = bed.client().enter().map_err(LabError::io("cannot enter a namespace"))?;
        (0..flows).map(|_| connect(bed.sources(0))).collect::<io::Result<Vec<_>>>().map_err(failed())?
    };
    let servers = clients.iter().map(|_| accept(&listener)).collect::<io::Result<Vec<_>>>().map_err(failed())?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let sending = scope.spawn(|| send(&servers, rate, &over));
        let receiving = scope.spawn(|| receive(&clients, &over));
        let result = meanwhile();
        over.store(true, Ordering::Relaxed);
        let panicked = |_| LabError::TestBed("a thread of the flows panicked".to_owned());
        sending.join().map_err(panicked)?.map_err(LabError::io("a flow cannot be sent"))?;
        receiving.join().map_err(panicked)?.map_err(LabError::io("a flow cannot be received"))?;
        result
    })
}

const PORT: u16 = 10;
const SEGMENT_BYTES: usize = 1448;
const FRAME_BYTES: f64 = 1514.0;
const TICK: Duration = Duration::from_millis(1);

fn listen() -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SockAddr::from(SocketAddr::from((SERVER, PORT))))?;
    socket.listen(4096)?;
    // This also limits accept: a missing connection must not block everything.
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(socket.into())
}

fn connect(source: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::from_bits(source.to_bits() + 1), 0))))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::from(SocketAddr::from((SERVER, PORT)))) {
        Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Err(error),
        _ => Ok(socket.into()),
    }
}

fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    SockRef::from(&stream).set_tcp_nodelay(true)?;
    Ok(stream)
}

/// Sends a segment to each flow in turn, as many per tick as the rate needs.
fn send(flows: &[TcpStream], rate: Rate, over: &AtomicBool) -> io::Result<()> {
    let start = Instant::now();
    let mut turns = (0..flows.len()).cycle();
    let mut sent = 0;
    while !over.load(Ordering::Relaxed) {
        let due = (start.elapsed().as_secs_f64() * rate.bytes_per_second() / FRAME_BYTES) as u64;
        for turn in turns.by_ref().take((due - sent) as usize) {
            match (&flows[turn]).write(&[0; SEGMENT_BYTES]) {
                // A flow that is not ready misses its turn; the rate that was reached is measured.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => drop(written?),
            }
        }
        sent = due;
        thread::sleep(TICK);
    }
    Ok(())
}

fn receive(flows: &[TcpStream], over: &AtomicBool) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, flow) in flows.iter().enumerate() {
        epoll::add(&epoll, flow.as_fd(), epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
    }
    let mut events = Vec::with_capacity(256);
    let mut buffer = vec![0; 1 << 16];
    while !over.load(Ordering::Relaxed) {
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        match epoll::wait(&epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            match io::Read::read(&mut &flows[event.data.u64() as usize], &mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => drop(read?),
            }
        }
    }
    Ok(())
}
