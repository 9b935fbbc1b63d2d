//! The queues of the listening port from `sock_diag`: connections waiting to be accepted, and half-open ones.
//!
//! Only listening and half-open sockets are requested. The kernel skips the others, so twenty thousand
//! established connections cost a walk along its table but no copying; they are counted from `/proc/net/snmp`
//! instead.

use std::io;

use netlink_packet_sock_diag::{
    SockDiagMessage,
    constants::{AF_INET, IPPROTO_TCP, TCP_LISTEN, TCP_SYN_RECV},
    inet::{ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags},
};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use super::netlink::Netlink;

/// Reads the sockets of one namespace.
#[derive(Debug)]
pub(super) struct Sockets {
    netlink: Netlink,
    port: u16,
}

/// Queues of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Connections waiting to be accepted, over all sockets that listen on the port.
    pub(super) accept_queue: u64,
    /// Half-open connections.
    pub(super) half_open: u64,
}

impl Sockets {
    /// For `port` in the calling thread's namespace.
    pub(super) fn open(port: u16) -> io::Result<Self> {
        Ok(Self { netlink: Netlink::open(NETLINK_SOCK_DIAG)?, port })
    }

    /// The current queues.
    pub(super) fn waiting(&mut self) -> io::Result<Waiting> {
        let request = InetRequest {
            family: AF_INET,
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::empty(),
            states: StateFlags::LISTEN | StateFlags::SYN_RECV,
            socket_id: SocketId::new_v4(),
        };
        let (mut waiting, port) = (Waiting::default(), self.port);
        self.netlink.dump(SockDiagMessage::InetRequest(request), |answer| {
            if let SockDiagMessage::InetResponse(response) = answer {
                waiting.add(&response.header, port);
            }
        })?;
        Ok(waiting)
    }
}

impl Waiting {
    fn add(&mut self, socket: &InetResponseHeader, port: u16) {
        if socket.socket_id.source_port != port {
            return;
        }
        match socket.state {
            TCP_LISTEN => self.accept_queue += u64::from(socket.recv_queue),
            TCP_SYN_RECV => self.half_open += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(state: u8, port: u16, recv_queue: u32) -> InetResponseHeader {
        let mut socket_id = SocketId::new_v4();
        socket_id.source_port = port;
        let (family, timer, send_queue, uid, inode) = (AF_INET, None, 128, 0, 7);
        InetResponseHeader { family, state, timer, socket_id, recv_queue, send_queue, uid, inode }
    }

    #[test]
    fn what_waits_at_the_port_is_added_up_and_other_ports_are_not() {
        let mut waiting = Waiting::default();
        // Two workers that share the port, each with its own queue.
        for (state, port, queue) in
            [(TCP_LISTEN, 80, 3), (TCP_LISTEN, 80, 4), (TCP_LISTEN, 9, 50), (TCP_SYN_RECV, 80, 0), (TCP_SYN_RECV, 9, 0)]
        {
            waiting.add(&socket(state, port, queue), 80);
        }
        assert_eq!(waiting, Waiting { accept_queue: 7, half_open: 1 });
    }
}
