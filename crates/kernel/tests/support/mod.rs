//! A server and a client, each in its own network namespace, joined by a cable (veth).
#![allow(dead_code, reason = "not every test file uses all of it")]

use std::{
    collections::BTreeMap,
    fs::File,
    net::UdpSocket,
    os::fd::AsFd,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use serpent_kernel::{
    bands::{self, Shown},
    socket,
};

/// The server's end of the cable.
pub const DEVICE: &str = "va";
/// A payload that fills a frame of 1514 bytes.
pub const PAYLOAD: [u8; 1472] = [b'x'; 1472];

/// Two namespaces, removed on drop. Neighbour addresses are fixed and IPv6 is off, so only the test sends
/// packets.
pub struct Testbed {
    server: String,
    client: String,
}

impl Testbed {
    /// Makes the namespaces. Returns `None` with a message where that is impossible; in CI it fails.
    pub fn new(test: &str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if let Err(missing) = requirements() {
            assert!(std::env::var_os("CI").is_none(), "in CI {test} must run: {missing}");
            eprintln!("SKIPPED: {test}: {missing}");
            return None;
        }
        let name = format!("serpent-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let testbed = Self { server: format!("{name}-s"), client: format!("{name}-c") };
        ip(&["netns", "add", &testbed.server]);
        ip(&["netns", "add", &testbed.client]);
        testbed.in_server(disable_ipv6);
        testbed.in_client(disable_ipv6);
        let veth = ["link", "add", DEVICE, "address", "02:00:00:00:00:01", "type", "veth", "peer", "name", "vb"];
        let peer = ["address", "02:00:00:00:00:02", "netns", &testbed.client];
        testbed.in_server(|| ip(&[&veth[..], &peer[..]].concat()));
        for (end, own, other, other_address) in
            [("va", "10.9.0.1", "10.9.0.2", "02:00:00:00:00:02"), ("vb", "10.9.0.2", "10.9.0.1", "02:00:00:00:00:01")]
        {
            let configure = || {
                ip(&["addr", "add", &format!("{own}/24"), "dev", end]);
                ip(&["link", "set", "lo", "up"]);
                ip(&["link", "set", end, "up"]);
                ip(&["neigh", "replace", other, "lladdr", other_address, "dev", end, "nud", "permanent"]);
            };
            if end == DEVICE { testbed.in_server(configure) } else { testbed.in_client(configure) }
        }
        Some(testbed)
    }

    /// Runs a closure in the server's namespace, on its own thread.
    pub fn in_server<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        inside(&self.server, run)
    }

    /// Runs a closure in the client's namespace, on its own thread.
    pub fn in_client<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        inside(&self.client, run)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // Not `in_server`: a panic here would hide the panic that caused the drop.
        if std::path::Path::new(&format!("/run/netns/{}", self.server)).exists() {
            self.in_server(|| drop(bands::remove(DEVICE)));
        }
        for namespace in [&self.server, &self.client] {
            let _ = Command::new("ip").args(["netns", "del", namespace]).output();
        }
    }
}

/// Sends full frames with a priority, without waiting for them to leave.
pub struct Flood {
    sockets: Vec<UdpSocket>,
}

impl Flood {
    /// Queues packets for the client's port; call in the server's namespace.
    pub fn queue(port: u16, priority: u32, packets: usize) -> Self {
        // With the default limits about 90 frames of a socket may wait.
        const EACH: usize = 40;
        let sockets = (0..packets.div_ceil(EACH))
            .map(|number| {
                let socket = UdpSocket::bind("10.9.0.1:0").expect("a free port");
                socket::set_priority(&socket, priority).expect("root may");
                socket.set_nonblocking(true).expect("a socket");
                for _ in 0..EACH.min(packets - number * EACH) {
                    socket.send_to(&PAYLOAD, ("10.9.0.2", port)).expect("fits the send buffer");
                }
                socket
            })
            .collect();
        Self { sockets }
    }
}

/// Receives in the client's namespace until all expected packets are there, and returns the number on each
/// port. Fails if no packet comes for 20 s.
pub fn receive(testbed: &Testbed, expected: &[(u16, usize)]) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for &(port, packets) in expected {
        let socket = testbed.in_client(|| UdpSocket::bind(("10.9.0.2", port)).expect("a free port"));
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        for received in 0..packets {
            let mut frame = [0; 2048];
            socket.recv(&mut frame).unwrap_or_else(|error| panic!("{received} of {packets} came on {port}: {error}"));
            *counts.entry(port).or_insert(0) += 1;
        }
    }
    counts
}

/// The current state of the server's device; call in the server's namespace.
pub fn shown() -> Shown {
    bands::show(Some(DEVICE)).expect("the device is there").remove(0)
}

/// Runs `ip`.
pub fn ip(arguments: &[&str]) {
    tool("ip", arguments);
}

/// Runs `tc`.
pub fn tc(arguments: &[&str]) {
    tool("tc", arguments);
}

/// The full output of `ip` and `tc` for the server's device, without counters; call in the server's
/// namespace.
pub fn description() -> String {
    tool("ip", &["-d", "link", "show", "dev", DEVICE])
        + &tool("tc", &["-d", "qdisc", "show", "dev", DEVICE])
        + &tool("tc", &["-d", "class", "show", "dev", DEVICE])
}

fn tool(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(name).args(arguments).output().expect("iproute2");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {}: {said}", arguments.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn requirements() -> Result<(), String> {
    for name in ["ip", "tc"] {
        if Command::new(name).arg("-V").output().is_err() {
            return Err(format!("`{name}` is missing (package iproute2)"));
        }
    }
    let held = rustix::thread::capabilities(None).map_err(|error| error.to_string())?.effective;
    if !held.contains(rustix::thread::CapabilitySet::SYS_ADMIN | rustix::thread::CapabilitySet::NET_ADMIN) {
        return Err("network namespaces need root".into());
    }
    Ok(())
}

fn inside<T: Send>(namespace: &str, run: impl FnOnce() -> T + Send) -> T {
    let namespace = File::open(format!("/run/netns/{namespace}")).expect("made before");
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let network = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(namespace.as_fd(), network).expect("root may");
            run()
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn disable_ipv6() {
    for scope in ["all", "default"] {
        // A kernel without IPv6 sends no such packets.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
    }
}
