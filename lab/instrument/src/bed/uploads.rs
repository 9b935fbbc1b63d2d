//! Uploads of another machine behind the same router. TCP takes what the server leaves of the uplink, and keeps its queue
//! full.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use kernel::netns::NetNs;
use socket2::{Domain, SockAddr, Socket, Type};

use super::{
    network::{DOWN, Namespaces, PREFIX, join, open},
    prefix::{self, LINKS},
    tools::{ip_batch, run},
};
use crate::{LabError, setting::UploadSetting};

/// The router's device towards the other machine.
const OTHER: &str = "other0";
/// Third octet of the cable between them.
const CABLE: u8 = 200;
/// How often a stream looks whether it is over.
const LOOK: Duration = Duration::from_millis(50);
/// The queue may be full, so that the first packets are lost.
const CONNECTS_IN: Duration = Duration::from_secs(10);
const WRITE_BYTES: usize = 16 << 10;

/// The other machine. Dropping this removes it.
#[derive(Debug)]
pub(super) struct OtherMachine {
    ns: NetNs,
    _namespaces: Namespaces,
}

impl OtherMachine {
    /// Makes it, with a cable to the router. Its stack makes packets of at most so many segments.
    pub(super) fn build(router: &str, gso_segments: u32) -> Result<Self, LabError> {
        let name = format!("{PREFIX}{}-other", std::process::id());
        // From here on, an early return removes the namespace.
        let namespaces = Namespaces::new(vec![name.clone()]);
        run("ip", &["netns", "add", &name])?;
        join((&name, DOWN), (router, OTHER))?;
        ip_batch(router, &format!("addr add 10.{LINKS}.{CABLE}.2/24 dev {OTHER}\n"))?;
        let commands = format!(
            "addr add 10.{LINKS}.{CABLE}.1/24 dev {DOWN}\n\
             route add default via 10.{LINKS}.{CABLE}.2\n\
             link set dev {DOWN} gso_max_segs {gso_segments}\n"
        );
        ip_batch(&name, &commands)?;
        Ok(Self { ns: open(&name)?, _namespaces: namespaces })
    }

    /// Uploads to a client of the first group, and returns how many bytes came. The times of the setting count from `start`.
    /// The upload ends early once `is_over` is set.
    pub(super) fn upload(
        &self,
        client: &NetNs,
        upload: &UploadSetting,
        start: Instant,
        is_over: &AtomicBool,
    ) -> Result<u64, LabError> {
        let until = start + Duration::from_secs_f64(upload.until_s);
        let begins = start + Duration::from_secs_f64(upload.from_s);
        while Instant::now() < begins && !is_over.load(Ordering::Relaxed) {
            thread::sleep(begins.saturating_duration_since(Instant::now()).min(LOOK));
        }
        if is_over.load(Ordering::Relaxed) {
            return Ok(0);
        }
        thread::scope(|scope| {
            let stream = || {
                let broken = |error| LabError::TestBed(format!("an upload beside the server failed: {error}"));
                let (from, to) = self.stream(client, &upload.congestion).map_err(broken)?;
                carry(from, to, || Instant::now() >= until || is_over.load(Ordering::Relaxed)).map_err(broken)
            };
            let streams: Vec<_> = (0..upload.streams).map(|_| scope.spawn(stream)).collect();
            let panicked = |_| LabError::TestBed("an upload panicked".to_owned());
            streams.into_iter().map(|stream| stream.join().map_err(panicked)?).sum()
        })
    }

    /// A connection from the other machine to a client.
    fn stream(&self, client: &NetNs, congestion: &str) -> std::io::Result<(Socket, TcpStream)> {
        let listener = {
            let _inside = client.enter()?;
            TcpListener::bind((prefix::calibration_of_group(0), 0))?
        };
        let from = {
            let _inside = self.ns.enter()?;
            Socket::new(Domain::IPV4, Type::STREAM, None)?
        };
        from.set_tcp_congestion(congestion.as_bytes())?;
        from.connect_timeout(&SockAddr::from(listener.local_addr()?), CONNECTS_IN)?;
        Ok((from, listener.accept()?.0))
    }
}

/// Sends until it is over, and returns how many bytes came.
fn carry(from: Socket, mut to: TcpStream, is_over: impl Fn() -> bool) -> std::io::Result<u64> {
    from.set_write_timeout(Some(LOOK))?;
    // At the end, bytes that are still on the way are given up.
    from.set_linger(Some(Duration::ZERO))?;
    let ends = to.try_clone()?;
    thread::scope(|scope| {
        let came = scope.spawn(move || {
            let (mut bytes, mut buffer) = (0, vec![0; WRITE_BYTES]);
            // An error is the sender's end.
            while let Ok(read @ 1..) = to.read(&mut buffer) {
                bytes += read as u64;
            }
            bytes
        });
        let sent = send(from, is_over);
        // The packet that ends the connection may be lost.
        let _ = ends.shutdown(Shutdown::Both);
        let bytes = came.join().map_err(|_| std::io::Error::other("its receiver panicked"))?;
        sent.map(|()| bytes)
    })
}

/// Sends until it is over, and then resets the connection.
fn send(mut from: Socket, is_over: impl Fn() -> bool) -> std::io::Result<()> {
    let buffer = vec![0; WRITE_BYTES];
    while !is_over() {
        match from.write(&buffer) {
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
