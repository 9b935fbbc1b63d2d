//! The bottleneck's queue from rtnetlink: the data of `tc -s qdisc show` without a new process each second.

use std::io;

use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcHandle, TcMessage, TcStats2},
};
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};

use super::netlink::Netlink;
use crate::bed::Qdisc;

/// Reads the root queue of one device.
#[derive(Debug)]
pub(super) struct Queue {
    netlink: Netlink,
    /// The device's number.
    device: i32,
}

impl Queue {
    /// For the device of this name in the calling thread's namespace.
    pub(super) fn open(device: &str) -> io::Result<Self> {
        // Any socket can query the namespace for a device.
        let any = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        let device = name_to_index(&any, device)?.cast_signed();
        Ok(Self { netlink: Netlink::open(NETLINK_ROUTE)?, device })
    }

    /// Its current counters; packets and drops have 32 bits.
    pub(super) fn read(&mut self) -> io::Result<Qdisc> {
        let (mut found, device) = (None, self.device);
        let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(device));
        self.netlink.dump(request, |answer| {
            if let RouteNetlinkMessage::NewQueueDiscipline(queue) = answer
                && queue.header.index == device
                && queue.header.parent == TcHandle::ROOT
            {
                found = Some(counters(&queue.attributes));
            }
        })?;
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the device has no root queue"))
    }
}

fn counters(attributes: &[TcAttribute]) -> Qdisc {
    let mut qdisc = Qdisc::default();
    let stats = attributes.iter().filter_map(|attribute| match attribute {
        TcAttribute::Stats2(stats) => Some(stats),
        _ => None,
    });
    for stat in stats.flatten() {
        match stat {
            TcStats2::Basic(basic) => {
                qdisc.bytes = basic.bytes;
                qdisc.packets = basic.packets.into();
            }
            TcStats2::Queue(queue) => {
                qdisc.drops = queue.drops.into();
                qdisc.waiting_packets = queue.qlen.into();
            }
            _ => {}
        }
    }
    qdisc
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Parseable;

    use super::*;

    /// Output of Linux 6.18 for `htb` at the root of a device, without options: bytes, packets and padding;
    /// waiting packets and bytes, drops, requeues, overlimits.
    #[test]
    fn the_counters_of_a_queue_are_read() {
        let mut captured = vec![0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0, 255, 255, 255, 255, 2, 0, 0, 0];
        captured.extend([8, 0, 1, 0, b'h', b't', b'b', 0]);
        captured.extend([48, 0, 7, 0]);
        captured.extend([20, 0, 1, 0, 0x10, 0x27, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        captured.extend([24, 0, 3, 0, 5, 0, 0, 0, 0x92, 0x1d, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0]);
        let message = TcMessage::parse(&captured).unwrap();
        assert_eq!((message.header.index, message.header.parent), (2, TcHandle::ROOT));
        let bytes = (1 << 32) + 10_000;
        assert_eq!(counters(&message.attributes), Qdisc { bytes, packets: 9, drops: 3, waiting_packets: 5 });
    }

    #[test]
    fn a_device_that_is_not_there_is_not_found() {
        assert!(Queue::open("no-such-device").is_err());
    }
}
