//! A netlink request to the kernel, and all its answers.

use std::{fmt::Debug, io};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};

/// A socket to the kernel. It belongs to the network namespace in which it was opened, from any thread.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens one in the calling thread's namespace.
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // The kernel returns at most 32 KiB at a time.
        Ok(Self { socket, buffer: Vec::with_capacity(1 << 15) })
    }

    /// Requests everything that matches `request`, and passes each answer to `each`.
    pub(super) fn dump<M>(&mut self, request: M, mut each: impl FnMut(M)) -> io::Result<()>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Debug,
    {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            self.buffer.clear();
            self.socket.recv(&mut self.buffer, 0)?;
            if read(&self.buffer, &mut each)? {
                return Ok(());
            }
        }
    }
}

/// Passes on the messages of one datagram; returns whether they were the last ones.
fn read<M>(mut bytes: &[u8], each: &mut impl FnMut(M)) -> io::Result<bool>
where
    M: NetlinkDeserializable + Debug,
{
    while !bytes.is_empty() {
        let message = NetlinkMessage::<M>::deserialize(bytes).map_err(io::Error::other)?;
        // Each message begins at a multiple of four bytes.
        let length = (message.header.length as usize).next_multiple_of(4).min(bytes.len());
        bytes = &bytes[length..];
        match message.payload {
            NetlinkPayload::InnerMessage(answer) => each(answer),
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            _ => {}
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::DoneMessage;
    use netlink_packet_route::{RouteNetlinkMessage, tc::TcMessage};

    use super::*;

    fn bytes(payload: NetlinkPayload<RouteNetlinkMessage>) -> Vec<u8> {
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn answers(datagram: &[u8]) -> (io::Result<bool>, usize) {
        let mut count = 0;
        let last = read(datagram, &mut |_: RouteNetlinkMessage| count += 1);
        (last, count)
    }

    #[test]
    fn a_datagram_is_read_message_by_message_to_the_last() {
        let queue =
            || bytes(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewQueueDiscipline(TcMessage::with_index(1))));
        let done = bytes(NetlinkPayload::Done(DoneMessage::default()));
        let (last, count) = answers(&[queue(), queue()].concat());
        assert_eq!((last.unwrap(), count), (false, 2), "more is to come");
        let (last, count) = answers(&[queue(), done, queue()].concat());
        assert_eq!((last.unwrap(), count), (true, 1), "nothing is read after the last");
        assert!(answers(&queue()[..20]).0.is_err(), "cut off");
        assert!(answers(&[0; 64]).0.is_err(), "no message");
    }
}
