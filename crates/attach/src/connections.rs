//! The servers' connections as the kernel describes them (`sock_diag`): whether they have data to send, and how long their
//! round trips take. Only connections of this network namespace are seen.

use std::{io, net::IpAddr};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::{
    SockDiagMessage,
    constants::{AF_INET, AF_INET6, IPPROTO_TCP},
    inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags, nlas::Nla},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};

/// A connection of a server with data under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    pub peer: IpAddr,
    /// Data that the server has written and TCP has not sent yet.
    pub unsent_bytes: u32,
    pub round_trip_us: u32,
    /// The shortest round trip of the last minutes.
    pub shortest_round_trip_us: u32,
}

/// The connections of servers on these ports that have data under way. Those within this machine are left out.
pub(crate) fn busy(ports: &[u16]) -> io::Result<Vec<Connection>> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut connections = Vec::new();
    for (family, socket_id) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
        let request = InetRequest {
            family,
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::INFO,
            states: StateFlags::ESTABLISHED | StateFlags::CLOSE_WAIT | StateFlags::FIN_WAIT1 | StateFlags::LAST_ACK,
            socket_id,
        };
        dump(&socket, request, |response| {
            let is_ours = ports.contains(&response.header.socket_id.source_port) && response.header.send_queue > 0;
            connections.extend(connection(response).filter(|_| is_ours));
        })?;
    }
    Ok(connections)
}

fn dump(socket: &Socket, request: InetRequest, mut each: impl FnMut(&InetResponse)) -> io::Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(SockDiagMessage::InetRequest(request)));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut buffer = Vec::with_capacity(1 << 16);
    loop {
        buffer.clear();
        socket.recv(&mut buffer, 0)?;
        let mut rest = &buffer[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest).map_err(io::Error::other)?;
            match message.payload {
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => each(&response),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::Done(_) => return Ok(()),
                _ => {}
            }
            let length = (message.header.length as usize).next_multiple_of(4).min(rest.len());
            rest = &rest[length..];
        }
    }
}

fn connection(response: &InetResponse) -> Option<Connection> {
    let id = &response.header.socket_id;
    if id.source_address == id.destination_address || id.destination_address.is_loopback() {
        return None;
    }
    let info = response.nlas.iter().find_map(|attribute| match attribute {
        Nla::TcpInfo(info) => Some(info),
        _ => None,
    })?;
    // struct tcp_info: the fields have kept their places since Linux 4.6.
    let word = |at: usize| info.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
    Some(Connection {
        peer: id.destination_address,
        round_trip_us: word(68)?,
        unsent_bytes: word(144)?,
        shortest_round_trip_us: word(148)?,
    })
}
