//! Messages to the kernel's traffic control, and its answers.

use std::{io, net::IpAddr};

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkBuffer,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NlasIterator,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{LinkAttribute, LinkFlags, LinkHeader, LinkMessage},
    route::{RouteAttribute, RouteMessage, RouteType},
    tc::{TcAttribute, TcHandle, TcHeader, TcMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::plan::{Step, Subject};

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TC_HEADER_BYTES: usize = 20;

/// The properties of a device that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub index: i32,
    pub mtu_bytes: u32,
    pub queue_packets: u32,
    pub gso_max_segs: u32,
    /// The driver's limit, with which a new device starts.
    pub gso_max_segs_default: u32,
}

/// A queueing discipline, class or filter that a device has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub parent: u32,
    pub handle: u32,
    pub info: u32,
    pub kind: String,
    pub options: Vec<u8>,
    pub sent_bytes: u64,
    pub waiting_packets: u32,
}

/// One thing to do.
pub(crate) enum Request {
    Traffic(Step),
    /// Puts another filter, class or discipline into the place of one that is there.
    Replace(Step),
    /// Most segments in a packet of the device.
    Segments(u32),
    /// Packets that a queue of the device holds, if it takes its length from there. The packets that wait are dropped.
    QueuePackets(u32),
}

/// A socket to the kernel, in the network namespace in which it was opened.
pub(crate) struct Netlink {
    socket: Socket,
}

impl Netlink {
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // All requests are sent at once, and so are their answers.
        socket.set_rx_buf_sz(1u32 << 20)?;
        Ok(Self { socket })
    }

    /// Carries out all requests in one call: a process that is killed has done all of them or none. Returns the first
    /// refusal with the number of its request. The requests behind it were tried all the same.
    pub fn carry_out(&self, device: i32, requests: &[Request]) -> io::Result<Result<(), (usize, io::Error)>> {
        let mut bytes = Vec::new();
        for (number, request) in requests.iter().enumerate() {
            let (message, flags) = match request {
                Request::Traffic(step) => {
                    (traffic(device, step), if step.is_deletion { 0 } else { NLM_F_CREATE | NLM_F_EXCL })
                }
                Request::Replace(step) => (traffic(device, step), NLM_F_CREATE | NLM_F_REPLACE),
                Request::Segments(segments) => (property(device, LinkAttribute::GsoMaxSegs(*segments)), 0),
                Request::QueuePackets(packets) => (property(device, LinkAttribute::TxQueueLen(*packets)), 0),
            };
            let mut header = NetlinkHeader::default();
            header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
            header.sequence_number = number as u32 + 1;
            bytes.extend(serialized(NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message))));
        }
        self.socket.send(&bytes, 0)?;
        let mut first = Ok(());
        let mut answered = 0;
        while answered < requests.len() {
            self.each_message(|header, payload| {
                if let NetlinkPayload::<RouteNetlinkMessage>::Error(error) = payload {
                    answered += 1;
                    if error.code.is_some() && first.is_ok() {
                        first = Err(((header.sequence_number as usize).saturating_sub(1), error.to_io()));
                    }
                }
                Ok(())
            })?;
        }
        Ok(first)
    }

    /// Finds a device by its name.
    pub fn device(&self, name: &str) -> io::Result<Device> {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.link(link).map(|link| read_device(&link))
    }

    /// The name of a device.
    pub fn name(&self, device: i32) -> io::Result<String> {
        let mut link = LinkMessage::default();
        link.header.index = device.unsigned_abs();
        let name = self.link(link)?.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name),
            _ => None,
        });
        name.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn link(&self, link: LinkMessage) -> io::Result<LinkMessage> {
        let answers = self.answers(RouteNetlinkMessage::GetLink(link), NLM_F_ACK)?;
        let link = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        link.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// The devices that are up, but for the loopback.
    pub fn devices_up(&self) -> io::Result<Vec<i32>> {
        let answers = self.answers(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)?;
        let devices = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link.header),
            _ => None,
        });
        let is_up =
            |device: &LinkHeader| device.flags.contains(LinkFlags::Up) && !device.flags.contains(LinkFlags::Loopback);
        Ok(devices.filter(is_up).map(|device| device.index as i32).collect())
    }

    /// The device that packets to this address leave through; `None`: there is no way to it.
    pub fn device_towards(&self, address: IpAddr) -> Option<i32> {
        let mut route = RouteMessage::default();
        (route.header.address_family, route.header.destination_prefix_length) = match address {
            IpAddr::V4(_) => (AddressFamily::Inet, 32),
            IpAddr::V6(_) => (AddressFamily::Inet6, 128),
        };
        route.attributes.push(RouteAttribute::Destination(address.into()));
        // A refusal says that there is none.
        let answers = self.answers(RouteNetlinkMessage::GetRoute(route), NLM_F_ACK).ok()?;
        let attributes = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) if route.header.kind == RouteType::Unicast => Some(route.attributes),
            _ => None,
        });
        attributes.flatten().find_map(|attribute| match attribute {
            RouteAttribute::Oif(device) => Some(device as i32),
            _ => None,
        })
    }

    /// Sends a request. Returns the answers to it, up to the acknowledgement or the end of all.
    fn answers(&self, request: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.request(request, flags)?;
        let mut answers = Vec::new();
        let mut is_done = false;
        while !is_done {
            self.each_message(|_, payload| {
                match payload {
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => is_done = true,
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(answers)
    }

    /// All disciplines of a device, its classes, or the filters below a parent.
    pub fn found(&self, device: i32, subject: Subject, parent: u32) -> io::Result<Vec<Found>> {
        let message = TcMessage::with_index(device);
        let message = match subject {
            Subject::Qdisc => RouteNetlinkMessage::GetQueueDiscipline(message),
            Subject::Class => RouteNetlinkMessage::GetTrafficClass(message),
            Subject::Filter => RouteNetlinkMessage::GetTrafficFilter(with_parent(message, parent)),
        };
        let all = self.dump(message)?;
        Ok(all.into_iter().filter(|(of, _)| *of == device).map(|(_, found)| found).collect())
    }

    /// The numbers of all devices with a discipline of this handle.
    pub fn devices_with(&self, handle: u32) -> io::Result<Vec<i32>> {
        let all = self.dump(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()))?;
        Ok(all.into_iter().filter(|(_, found)| found.handle == handle).map(|(device, _)| device).collect())
    }

    fn dump(&self, message: RouteNetlinkMessage) -> io::Result<Vec<(i32, Found)>> {
        self.request(message, NLM_F_DUMP)?;
        let mut found = Vec::new();
        let mut buffer = Vec::with_capacity(1 << 16);
        loop {
            buffer.clear();
            self.socket.recv(&mut buffer, 0)?;
            let mut rest = &buffer[..];
            while rest.len() >= 16 {
                let message = NetlinkBuffer::new_checked(rest).map_err(io::Error::other)?;
                match message.message_type() {
                    3 => return Ok(found),
                    2 => return Err(dump_error(message.payload())),
                    _ => found.extend(read_found(message.payload())),
                }
                let length = (message.length() as usize).next_multiple_of(4).min(rest.len());
                rest = &rest[length..];
            }
        }
    }

    fn request(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        self.socket.send(&serialized(NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message))), 0)?;
        Ok(())
    }

    /// Reads one datagram.
    fn each_message(
        &self,
        mut each: impl FnMut(NetlinkHeader, NetlinkPayload<RouteNetlinkMessage>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut buffer = Vec::with_capacity(1 << 16);
        self.socket.recv(&mut buffer, 0)?;
        let mut rest = &buffer[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
            let length = (message.header.length as usize).next_multiple_of(4).min(rest.len());
            rest = &rest[length..];
            each(message.header, message.payload)?;
        }
        Ok(())
    }
}

fn property(device: i32, property: LinkAttribute) -> RouteNetlinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = device.unsigned_abs();
    link.attributes.push(property);
    RouteNetlinkMessage::SetLink(link)
}

fn traffic(device: i32, step: &Step) -> RouteNetlinkMessage {
    let mut message = TcMessage::default();
    message.header = TcHeader {
        index: device,
        parent: TcHandle::from(step.parent),
        handle: TcHandle::from(step.handle),
        info: step.info,
        ..TcHeader::default()
    };
    if !step.is_deletion {
        message.attributes.push(TcAttribute::Kind(step.kind.clone()));
        if !step.options.is_empty() {
            // The library takes options apart, which not all disciplines have as attributes.
            message.attributes.push(TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, step.options.clone())));
        }
    }
    match (step.subject, step.is_deletion) {
        (Subject::Qdisc, false) => RouteNetlinkMessage::NewQueueDiscipline(message),
        (Subject::Qdisc, true) => RouteNetlinkMessage::DelQueueDiscipline(message),
        (Subject::Class, false) => RouteNetlinkMessage::NewTrafficClass(message),
        (Subject::Class, true) => RouteNetlinkMessage::DelTrafficClass(message),
        (Subject::Filter, false) => RouteNetlinkMessage::NewTrafficFilter(message),
        (Subject::Filter, true) => RouteNetlinkMessage::DelTrafficFilter(message),
    }
}

fn with_parent(mut message: TcMessage, parent: u32) -> TcMessage {
    message.header.parent = TcHandle::from(parent);
    message
}

fn serialized(mut message: NetlinkMessage<RouteNetlinkMessage>) -> Vec<u8> {
    message.finalize();
    let mut bytes = vec![0; message.buffer_len().next_multiple_of(4)];
    message.serialize(&mut bytes);
    bytes
}

fn read_device(link: &LinkMessage) -> Device {
    let mut device = Device {
        index: link.header.index as i32,
        mtu_bytes: 1500,
        queue_packets: 0,
        gso_max_segs: 65_535,
        gso_max_segs_default: 65_535,
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Mtu(bytes) => device.mtu_bytes = *bytes,
            LinkAttribute::TxQueueLen(packets) => device.queue_packets = *packets,
            LinkAttribute::GsoMaxSegs(segments) => device.gso_max_segs = *segments,
            // Kernels before 5.18 do not report it; 65535 was the default of all devices then.
            LinkAttribute::TsoMaxSegs(segments) => device.gso_max_segs_default = *segments,
            _ => {}
        }
    }
    device
}

/// The device's number, and what was found on it.
fn read_found(payload: &[u8]) -> Option<(i32, Found)> {
    let word = |at: usize| payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    let mut found = Found {
        handle: word(8).map(u32::from_ne_bytes)?,
        parent: word(12).map(u32::from_ne_bytes)?,
        info: word(16).map(u32::from_ne_bytes)?,
        kind: String::new(),
        options: Vec::new(),
        sent_bytes: 0,
        waiting_packets: 0,
    };
    for attribute in NlasIterator::new(payload.get(TC_HEADER_BYTES..)?).flatten() {
        match attribute.kind() {
            TCA_KIND => {
                found.kind = String::from_utf8_lossy(attribute.value()).trim_end_matches('\0').to_owned();
            }
            TCA_OPTIONS => found.options = attribute.value().to_vec(),
            TCA_STATS2 => read_counters(attribute.value(), &mut found),
            _ => {}
        }
    }
    Some((word(4).map(i32::from_ne_bytes)?, found))
}

fn read_counters(statistics: &[u8], found: &mut Found) {
    const TCA_STATS_BASIC: u16 = 1;
    const TCA_STATS_QUEUE: u16 = 3;
    for attribute in NlasIterator::new(statistics).flatten() {
        let value = attribute.value();
        match attribute.kind() {
            TCA_STATS_BASIC => {
                if let Some(bytes) = value.get(..8).and_then(|bytes| bytes.try_into().ok()) {
                    found.sent_bytes = u64::from_ne_bytes(bytes);
                }
            }
            TCA_STATS_QUEUE => {
                if let Some(bytes) = value.get(..4).and_then(|bytes| bytes.try_into().ok()) {
                    found.waiting_packets = u32::from_ne_bytes(bytes);
                }
            }
            _ => {}
        }
    }
}

fn dump_error(payload: &[u8]) -> io::Error {
    let code = payload.get(..4).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_ne_bytes);
    io::Error::from_raw_os_error(-code)
}

/// The number of the BPF program in a filter's options.
pub(crate) fn program_id(options: &[u8]) -> Option<u32> {
    const TCA_BPF_ID: u16 = 11;
    NlasIterator::new(options)
        .flatten()
        .find(|attribute| attribute.kind() == TCA_BPF_ID)
        .and_then(|attribute| attribute.value().try_into().ok())
        .map(u32::from_ne_bytes)
}
