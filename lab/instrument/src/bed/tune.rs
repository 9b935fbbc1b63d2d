//! Settings of the namespaces' network stacks; none has an effect outside of them.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use kernel::{initial_rto::InitialRto, netns::NetNs, socket::tcp_info};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{
    network::{DOWN, UP, open},
    prefix::{self, SERVER},
    test_bed::TestBed,
    tools::{ip_batch, write_sysctl},
};
use crate::LabError;

impl TestBed {
    pub(super) fn tune(&self) -> Result<(), LabError> {
        let segments = self.config.gso_segments;
        let last = self.names().len() - 1;
        for (i, name) in self.names().iter().enumerate() {
            let devices = [(i < last).then_some(DOWN), (i > 0).then_some(UP)];
            let set = |dev| format!("link set dev {dev} gso_max_segs {segments}\n");
            ip_batch(name, &devices.into_iter().flatten().map(set).collect::<String>())?;
            if 0 < i && i < last {
                let ns = open(name)?;
                let _inside = ns.enter().map_err(LabError::io("cannot enter a namespace"))?;
                write_sysctl("net/ipv4/ip_forward", "1")?;
            }
        }
        let server = &self.config.server;
        let cookies = if server.syn_cookies { "1" } else { "0" };
        let [syn_queue, accept_queue] = [server.syn_queue, server.accept_queue].map(|places| places.to_string());
        for (ns, settings) in [
            (
                &self.server,
                [
                    ("net/ipv4/tcp_max_syn_backlog", syn_queue.as_str()),
                    ("net/core/somaxconn", &accept_queue),
                    ("net/ipv4/tcp_syncookies", cookies),
                ],
            ),
            (
                &self.client,
                [
                    ("net/ipv4/tcp_max_syn_backlog", "65536"),
                    ("net/core/somaxconn", "65536"),
                    ("net/ipv4/tcp_syncookies", "1"),
                ],
            ),
        ] {
            let _inside = ns.enter().map_err(LabError::io("cannot enter a namespace"))?;
            // TCP's knowledge of the path from calibration must not reach the run.
            write_sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
            write_sysctl("net/ipv4/ip_local_port_range", "1024 65535")?;
            // Without this setting, root is not in the group that may send echoes.
            write_sysctl("net/ipv4/ping_group_range", "0 0")?;
            for (key, value) in settings {
                write_sysctl(key, value)?;
            }
        }
        Ok(())
    }

    /// Sets the first time-out of the server's and of the clients' connections, if the configuration has one.
    /// (A full queue drops the clients' SYNs.) From there on it doubles, as RFC 6298 says.
    pub(super) fn set_initial_rto(&self) -> Result<Vec<InitialRto>, LabError> {
        let Some(wanted_s) = self.config.server.initial_rto_s else { return Ok(Vec::new()) };
        let cannot = |error: io::Error| {
            LabError::Machine(format!(
                "the first retransmission time-out cannot be set ({error}): that takes root and a kernel from 5.15 on with \
                 CONFIG_CGROUP_BPF; without `initial-rto-s` it is what the kernel has, 1 s"
            ))
        };
        // The kernel counts in ticks of unknown length; any number of them reveals it.
        const SOME_TICKS: u32 = 100;
        let tick_s = {
            let _set = InitialRto::set(&self.client, SOME_TICKS).map_err(cannot)?;
            first_time_out_s(&self.client, SERVER).map_err(cannot)? / f64::from(SOME_TICKS)
        };
        let mut set = Vec::new();
        for (ns, other_end) in [(&self.server, prefix::calibration_of_group(0)), (&self.client, SERVER)] {
            set.push(InitialRto::set(ns, (wanted_s / tick_s).round() as u32).map_err(cannot)?);
            let seen_s = first_time_out_s(ns, other_end).map_err(cannot)?;
            if (seen_s - wanted_s).abs() > tick_s {
                return Err(LabError::Machine(format!(
                    "a first retransmission time-out of {wanted_s} s was set, its kernel has {seen_s} s"
                )));
            }
            let _inside = ns.enter().map_err(LabError::io("cannot enter a namespace"))?;
            // From Linux 6.5 on, the first few time-outs do not double by default.
            const DOUBLING: &str = "net/ipv4/tcp_syn_linear_timeouts";
            if Path::new("/proc/sys").join(DOUBLING).exists() {
                write_sysctl(DOUBLING, "0")?;
            }
        }
        Ok(set)
    }
}

/// The first time-out of a new connection, which need not succeed.
fn first_time_out_s(ns: &NetNs, to: Ipv4Addr) -> io::Result<f64> {
    let socket = {
        let _inside = ns.enter()?;
        Socket::new(Domain::IPV4, Type::STREAM, None)?
    };
    socket.set_nonblocking(true)?;
    // The connection is under way, or was refused already.
    let _ = socket.connect(&SockAddr::from(SocketAddr::from((to, NOBODY_LISTENS))));
    Ok(f64::from(tcp_info(&socket)?.rto_us) / 1e6)
}

const NOBODY_LISTENS: u16 = 7;
