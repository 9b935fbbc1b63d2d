//! A made-up name server, for this crate's tests and those of the whole process.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

/// A record: its name, the seconds for which it holds, and its content.
#[derive(Clone, Debug)]
pub struct Record {
    pub name: &'static str,
    pub ttl: u32,
    pub data: Data,
}

#[derive(Clone, Debug)]
pub enum Data {
    Address(IpAddr),
    /// Priority, weight, port, target.
    Service(u16, u16, u16, &'static str),
}

/// How it answers.
#[derive(Clone, Debug)]
pub enum Mode {
    /// With these records; a name without any does not exist.
    Records(Vec<Record>),
    /// With a failure (SERVFAIL).
    Fails,
    /// Not at all.
    Silent,
}

pub struct NameServer {
    pub address: SocketAddr,
    mode: Arc<Mutex<Mode>>,
    asked: Arc<AtomicUsize>,
}

const A: u16 = 1;
const AAAA: u16 = 28;
const SRV: u16 = 33;

impl NameServer {
    pub fn start(records: Vec<Record>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let (mode, asked) = (Arc::new(Mutex::new(Mode::Records(records))), Arc::new(AtomicUsize::new(0)));
        let (answers, counted) = (mode.clone(), asked.clone());
        std::thread::spawn(move || {
            let mut query = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut query) {
                let mode = answers.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Some(answer) = answer(&query[..length], &mode) {
                    let _ = socket.send_to(&answer, from);
                }
                counted.fetch_add(1, SeqCst);
            }
        });
        Self { address, mode, asked }
    }

    pub fn answers(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    /// Questions so far.
    pub fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
}

pub fn address(name: &'static str, ttl: u32, address: &str) -> Record {
    Record { name, ttl, data: Data::Address(address.parse().unwrap()) }
}

pub fn service(
    name: &'static str,
    ttl: u32,
    (priority, weight, port): (u16, u16, u16),
    target: &'static str,
) -> Record {
    Record { name, ttl, data: Data::Service(priority, weight, port, target) }
}

/// The answer to a question (RFC 1035, section 4).
fn answer(query: &[u8], mode: &Mode) -> Option<Vec<u8>> {
    let (mut at, mut labels) = (12, Vec::new());
    while query[at] != 0 {
        let label = &query[at + 1..at + 1 + usize::from(query[at])];
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += 1 + label.len();
    }
    let name = labels.join(".");
    let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
    let question = &query[12..at + 5];
    let (found, code): (Vec<&Record>, u8) = match mode {
        Mode::Silent => return None,
        Mode::Fails => (Vec::new(), 2),
        Mode::Records(records) => {
            let of_name: Vec<_> = records.iter().filter(|record| record.name == name).collect();
            let code = if of_name.is_empty() { 3 } else { 0 };
            (of_name.into_iter().filter(|record| record.kind() == kind).collect(), code)
        }
    };
    let mut out = query[..2].to_vec();
    // An answer, with recursion.
    out.extend([0x81, 0x80 | code, 0, 1]);
    out.extend((found.len() as u16).to_be_bytes());
    out.extend([0; 4]);
    out.extend(question);
    for record in found {
        let data = record.data();
        // The name of the question.
        out.extend([0xc0, 12]);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1]);
        out.extend(record.ttl.to_be_bytes());
        out.extend((data.len() as u16).to_be_bytes());
        out.extend(data);
    }
    Some(out)
}

impl Record {
    fn kind(&self) -> u16 {
        match self.data {
            Data::Address(IpAddr::V4(_)) => A,
            Data::Address(IpAddr::V6(_)) => AAAA,
            Data::Service(..) => SRV,
        }
    }

    fn data(&self) -> Vec<u8> {
        match self.data {
            Data::Address(IpAddr::V4(address)) => address.octets().to_vec(),
            Data::Address(IpAddr::V6(address)) => address.octets().to_vec(),
            Data::Service(priority, weight, port, target) => {
                let mut data: Vec<u8> =
                    [priority, weight, port].iter().flat_map(|number| number.to_be_bytes()).collect();
                for label in target.split('.') {
                    data.push(label.len() as u8);
                    data.extend(label.bytes());
                }
                if !target.is_empty() {
                    data.push(0);
                }
                data
            }
        }
    }
}
