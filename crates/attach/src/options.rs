//! The operator's options.

use std::{net::IpAddr, os::unix::fs::MetadataExt as _, path::PathBuf, str::FromStr};

use crate::{
    error::AttachError,
    maps::{CLASSES, ClassSettings, LAST_RANK, PORTS, RANKS, SUBRANKS, Settings},
    sizes,
};

/// How a device is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// The network device, such as `eth0`.
    pub device: String,
    /// The rate at which packets leave, in bits per second: slightly below that of the narrowest link behind the device.
    pub rate_bits_per_second: u64,
    /// Ports of the servers whose responses are put in order.
    pub ports: Vec<u16>,
    /// Whether a queueing discipline of others is replaced. It comes back when the device is detached.
    pub replace: bool,
    /// Bytes of a packet on the wire that the kernel does not count; 24 on Ethernet with preamble, checksum and gap.
    pub overhead_bytes: u16,
    /// Cutoffs between ranks in bytes, increasing; learned from the sizes of responses if empty.
    pub cutoffs_bytes: Vec<u32>,
    /// Classes of traffic in strict order; all traffic is one class if empty. A response in no class is in the last one.
    pub classes: Vec<TrafficClass>,
    /// Where the packets of other programs wait.
    pub others: Others,
    /// The user of a server of Serpent's with `enforce = "kernel"`, by name or number. A server of root's needs none.
    pub server_user: Option<String>,
}

/// Where packets wait that belong to no response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Others {
    /// Before all responses.
    #[default]
    First,
    /// Behind all responses.
    Last,
}

/// Which responses belong to a class. All conditions that are given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficClass {
    /// Its name.
    pub name: String,
    /// The packet's mark, and the bits of it that count.
    pub mark: Option<(u32, u32)>,
    /// The server's port.
    pub port: Option<u16>,
    /// The server's control group (version 2): its directory.
    pub cgroup: Option<PathBuf>,
    /// The client's address, and the bits of it that count.
    pub source: Option<(IpAddr, u8)>,
}

impl FromStr for TrafficClass {
    type Err = String;

    /// `NAME` or `NAME:CONDITION,...`, with `mark=N[/MASK]`, `port=N`, `cgroup=DIR` and `source=ADDRESS[/BITS]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, conditions) = text.split_once(':').unwrap_or((text, ""));
        if name.is_empty() || name.contains(['=', ',']) {
            return Err(format!("a class is NAME or NAME:CONDITION,...; {text:?} has no name"));
        }
        let mut class = Self { name: name.to_owned(), ..Self::default() };
        for condition in conditions.split(',').filter(|condition| !condition.is_empty()) {
            let wrong = |expected: &str| format!("{condition:?} of class {name}: expected {expected}");
            let (key, value) =
                condition.split_once('=').ok_or_else(|| wrong("mark=N, port=N, cgroup=DIR or source=ADDRESS"))?;
            match key {
                "mark" => {
                    let (mark, mask) = value.split_once('/').unwrap_or((value, "0xffffffff"));
                    let pair = number(mark).zip(number(mask)).filter(|&(mark, mask)| mark & !mask == 0);
                    class.mark = Some(pair.ok_or_else(|| wrong("a number, as in 0x10 or 0x10/0xff"))?);
                }
                "port" => {
                    class.port = Some(value.parse().ok().filter(|&port| port > 0).ok_or_else(|| wrong("a port"))?);
                }
                "cgroup" => class.cgroup = Some(value.into()),
                "source" => class.source = Some(source(value).ok_or_else(|| wrong("an address, as in 10.0.0.0/8"))?),
                _ => return Err(wrong("mark, port, cgroup or source")),
            }
        }
        Ok(class)
    }
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn source(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    Some((address, bits.unwrap_or(most))).filter(|&(_, bits)| bits <= most)
}

impl AttachOptions {
    /// The ports of servers, unless others are given.
    pub const PORTS: [u16; 2] = [80, 443];

    /// One class, learned cutoffs, other programs' packets first.
    pub fn new(device: impl Into<String>, rate_bits_per_second: u64, ports: Vec<u16>) -> Self {
        Self {
            device: device.into(),
            rate_bits_per_second,
            ports,
            replace: false,
            overhead_bytes: 0,
            cutoffs_bytes: Vec::new(),
            classes: Vec::new(),
            others: Others::First,
            server_user: None,
        }
    }

    /// The number of the server's user.
    pub(crate) fn server_user_id(&self) -> Result<Option<u32>, AttachError> {
        let Some(user) = &self.server_user else { return Ok(None) };
        let id = match user.parse() {
            Ok(id) => Some(id),
            Err(_) => kernel::bpf::user_id(user)?,
        };
        let no_user =
            || AttachError::Option { option: "server-user", problem: format!("there is no user {user:?} here") };
        id.map(Some).ok_or_else(no_user)
    }

    /// Checks what does not depend on the machine.
    pub fn check(&self) -> Result<(), AttachError> {
        let wrong = |option, problem: String| Err(AttachError::Option { option, problem });
        if self.ports.is_empty() || self.ports.len() > PORTS || self.ports.contains(&0) {
            return wrong("ports", format!("give one to {PORTS} ports of servers, as in 80,443"));
        }
        if !(16_000..=400_000_000_000).contains(&self.rate_bits_per_second) {
            return wrong(
                "rate",
                format!("{} bit/s is not between 16 kbit/s and 400 Gbit/s", self.rate_bits_per_second),
            );
        }
        if self.classes.len() > CLASSES {
            return wrong(
                "class",
                format!("{} classes are too many; there are ranks for {CLASSES}", self.classes.len()),
            );
        }
        if !self.cutoffs_bytes.is_sorted_by(|a, b| a < b) {
            return wrong("cutoffs", "each must be larger than the one before".into());
        }
        if self.cutoffs_bytes.len() > RANKS - 2 {
            return wrong("cutoffs", format!("at most {} cutoffs, between {} ranks", RANKS - 2, RANKS - 1));
        }
        if let Some(class) =
            self.classes.iter().find(|class| class.port.is_some_and(|port| !self.ports.contains(&port)))
        {
            return wrong("class", format!("the port of class {} is not among the ports", class.name));
        }
        Ok(())
    }

    /// The settings of the program.
    pub(crate) fn settings(&self) -> Result<Settings, AttachError> {
        let count = self.classes.len().max(1) as u32;
        let mut settings = Settings {
            port_count: self.ports.len() as u32,
            class_count: self.classes.len() as u32,
            subranks: SUBRANKS,
            last_rank: LAST_RANK,
            foreign_rank: if self.others == Others::First { 0 } else { LAST_RANK },
            by_cgroup: self.classes.iter().any(|class| class.cgroup.is_some()).into(),
            ..Settings::default()
        };
        for (place, &port) in settings.ports.iter_mut().zip(&self.ports) {
            *place = port.into();
        }
        for (number, place) in settings.classes.iter_mut().take(count as usize).enumerate() {
            if let Some(class) = self.classes.get(number) {
                *place = class.settings()?;
            }
            // The ranks are divided evenly; the first classes get what is left over.
            let (share, rest) = (LAST_RANK / count, LAST_RANK % count);
            let number = number as u32;
            place.first_rank = 1 + number * share + number.min(rest);
            place.ranks = share + u32::from(number < rest);
            place.set_cutoffs(&self.first_cutoffs(place.ranks));
        }
        Ok(settings)
    }

    /// The cutoffs of a class with so many ranks: the given ones, thinned out evenly where there are more of them.
    fn first_cutoffs(&self, ranks: u32) -> Vec<u32> {
        let (given, wanted) = (&self.cutoffs_bytes, (ranks as usize).saturating_sub(1));
        if given.is_empty() {
            return sizes::first_cutoffs(ranks);
        }
        if given.len() <= wanted {
            return given.clone();
        }
        (0..wanted).map(|number| given[(2 * number + 1) * given.len() / (2 * wanted)]).collect()
    }
}

impl TrafficClass {
    fn settings(&self) -> Result<ClassSettings, AttachError> {
        let mut settings = ClassSettings { port: self.port.unwrap_or(0).into(), ..ClassSettings::default() };
        if let Some((mark, mask)) = self.mark {
            (settings.by_mark, settings.mark, settings.mark_mask) = (1, mark, mask);
        }
        if let Some(directory) = &self.cgroup {
            let metadata = directory.metadata().map_err(|source| AttachError::Option {
                option: "class",
                problem: format!(
                    "the control group of class {}, {}: {source}; `ip netns exec` hides control groups, `nsenter \
                     --net=/run/netns/NAME` does not",
                    self.name,
                    directory.display()
                ),
            })?;
            // The number of a control group of version 2 is the inode of its directory.
            settings.cgroup = metadata.ino();
        }
        if let Some((address, bits)) = self.source {
            settings.by_source = 1;
            (settings.source, settings.source_mask) = words(address, bits);
        }
        Ok(settings)
    }
}

/// An address and the mask of its first bits as words in network byte order. That of IPv4 is in the first word.
fn words(address: IpAddr, bits: u8) -> ([u32; 4], [u32; 4]) {
    let (octets, most) = match address {
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            (octets, 4)
        }
        IpAddr::V6(address) => (address.octets(), 16),
    };
    let mut mask = [0; 16];
    for (number, byte) in mask[..most].iter_mut().enumerate() {
        let ones = usize::from(bits).saturating_sub(8 * number).min(8) as u32;
        *byte = (0xff00u32 >> ones) as u8;
    }
    // An address of IPv4 must not match the beginning of one of IPv6.
    mask[most..].fill(0xff);
    let word = |bytes: [u8; 16], number: usize| {
        u32::from_ne_bytes([bytes[4 * number], bytes[4 * number + 1], bytes[4 * number + 2], bytes[4 * number + 3]])
    };
    (std::array::from_fn(|number| word(octets, number)), std::array::from_fn(|number| word(mask, number)))
}

impl ClassSettings {
    /// Sets cutoffs, as far as there are ranks for them.
    pub(crate) fn set_cutoffs(&mut self, cutoffs: &[u32]) {
        let count = (self.ranks as usize).saturating_sub(1).min(cutoffs.len());
        // A rank without a cutoff holds nothing.
        self.cutoffs = [u32::MAX; RANKS];
        self.cutoffs[..count].copy_from_slice(&cutoffs[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> AttachOptions {
        AttachOptions::new("eth0", 10_000_000, vec![80, 443])
    }

    #[test]
    fn classes_are_read() {
        let class: TrafficClass = "gold:mark=0x10/0xff,port=443,source=10.1.0.0/16".parse().unwrap();
        assert_eq!(class.name, "gold");
        assert_eq!((class.mark, class.port), (Some((0x10, 0xff)), Some(443)));
        assert_eq!(class.source, Some(("10.1.0.0".parse().unwrap(), 16)));
        let class: TrafficClass = "site:cgroup=/sys/fs/cgroup/site".parse().unwrap();
        assert_eq!(class.cgroup, Some("/sys/fs/cgroup/site".into()));
        assert_eq!("rest".parse::<TrafficClass>().unwrap(), TrafficClass { name: "rest".into(), ..Default::default() });
        for wrong in [":port=80", "a:b", "a:port=0", "a:mark=0x100/0xff", "a:source=10.0.0.0/33", "a:colour=red"] {
            wrong.parse::<TrafficClass>().expect_err(wrong);
        }
    }

    #[test]
    fn a_mask_covers_the_first_bits() {
        let mask = |address: &str, bits| words(address.parse().unwrap(), bits).1.map(u32::to_be);
        assert_eq!(mask("10.0.0.0", 12), [0xfff0_0000, u32::MAX, u32::MAX, u32::MAX]);
        assert_eq!(mask("10.0.0.0", 0), [0, u32::MAX, u32::MAX, u32::MAX]);
        assert_eq!(mask("2001:db8::", 36), [u32::MAX, 0xf000_0000, 0, 0]);
        assert_eq!(mask("::1", 128), [u32::MAX; 4]);
    }

    #[test]
    fn ranks_are_divided_between_classes() {
        let classes = ["gold:port=443", "silver:mark=1", "rest"].map(|class| class.parse().unwrap()).to_vec();
        let settings = AttachOptions { classes, ..options() }.settings().unwrap();
        let ranks: Vec<_> = settings.classes[..3].iter().map(|class| (class.first_rank, class.ranks)).collect();
        assert_eq!(ranks, [(1, 7), (8, 7), (15, 7)]);
        assert_eq!(settings.classes[0].cutoffs[5], 1_500_000);
        assert_eq!(settings.classes[0].cutoffs[6], u32::MAX);
        let settings = options().settings().unwrap();
        assert_eq!((settings.classes[0].first_rank, settings.classes[0].ranks), (1, 21));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let problem = |options: AttachOptions| options.check().expect_err("refused").to_string();
        assert!(problem(AttachOptions { ports: vec![], ..options() }).starts_with("--ports"));
        assert!(problem(AttachOptions { rate_bits_per_second: 1, ..options() }).starts_with("--rate"));
        assert!(problem(AttachOptions { cutoffs_bytes: vec![5, 5], ..options() }).starts_with("--cutoffs"));
        let classes = vec!["a:port=8080".parse().unwrap()];
        assert!(problem(AttachOptions { classes, ..options() }).contains("not among the ports"));
        options().check().expect("everything by default");
    }
}
