//! Settings of the namespaces' network stacks, none of which reaches outside them.

use super::{
    Bed, DOWN, UP, open,
    tools::{ip_batch, write_sysctl},
};
use crate::LabError;

impl Bed {
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
            // What calibration teaches TCP about the path must not reach the run.
            write_sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
            write_sysctl("net/ipv4/ip_local_port_range", "1024 65535")?;
            // Root is not in the group that may send echoes unless it is said.
            write_sysctl("net/ipv4/ping_group_range", "0 0")?;
            for (key, value) in settings {
                write_sysctl(key, value)?;
            }
        }
        self.set_initial_rto()
    }

    /// A connection's first time-out is a constant of the kernel (`TCP_TIMEOUT_INIT`, RFC 6298's second), which no sysctl, route
    /// or socket option changes.
    fn set_initial_rto(&self) -> Result<(), LabError> {
        const KERNEL_S: f64 = 1.0;
        match self.config.server.initial_rto_s {
            None | Some(KERNEL_S) => Ok(()),
            Some(wanted) => Err(LabError::Machine(format!(
                "the first retransmission time-out is {KERNEL_S} s in its kernel and cannot be set to {wanted} s"
            ))),
        }
    }
}
