//! The rate to which traffic control holds the device that packets to the internet leave through: that of HTB, of a token
//! bucket (TBF) or of CAKE at its root. It is read without privileges.
//!
//! Rates are in bits per second of frames of Ethernet without preamble, checksum and gap, as Linux itself counts them. A
//! shaper may be told to count more bytes for each packet, or the cells of ATM. Its rate is then that of full frames.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use netlink_packet_core::NlasIterator;
use scheduler::Rate;

use crate::{
    netlink::{Found, Netlink},
    plan::Subject,
};

/// The rate of a device, and what limits it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The name of the device.
    pub device: String,
    /// The queueing discipline: `htb`, `tbf` or `cake`.
    pub kind: String,
    /// The rate of full frames.
    pub rate: Rate,
}

/// Reads the limit of the device that the default route leaves through. Without such a route it is the only device, beside
/// the loopback. `None`: there is no single device, or nothing limits all of it to one rate.
///
/// # Errors
///
/// If the kernel answers no requests, or refuses one.
pub fn limit() -> io::Result<Option<Limit>> {
    let netlink = Netlink::open()?;
    let Some(device) = outward(&netlink)? else { return Ok(None) };
    let disciplines = netlink.found(device, Subject::Qdisc, 0)?;
    let Some(root) = disciplines.iter().find(|discipline| discipline.parent == ROOT) else { return Ok(None) };
    let bits = match root.kind.as_str() {
        "tbf" => of_token_bucket(&root.options),
        "cake" => of_cake(&root.options),
        "htb" => of_htb(root, &netlink.found(device, Subject::Class, 0)?),
        _ => None,
    };
    let Some(bits) = bits else { return Ok(None) };
    Ok(Some(Limit { device: netlink.name(device)?, kind: root.kind.clone(), rate: Rate::clamped(bits) }))
}

/// The name of the device that packets to this address leave through; `None`: there is no way to it.
///
/// # Errors
///
/// If the kernel answers no requests, or refuses one.
pub fn device_towards(address: IpAddr) -> io::Result<Option<String>> {
    let netlink = Netlink::open()?;
    netlink.device_towards(address).map(|device| netlink.name(device)).transpose()
}

const ROOT: u32 = u32::MAX;
/// A full frame of Ethernet, and the packet in it.
const FRAME_BYTES: f64 = 1514.0;
const PACKET_BYTES: f64 = 1500.0;
/// A cell of ATM, and its payload; and 64 bytes in 65, for VDSL.
const ATM: f64 = 48.0 / 53.0;
const PTM: f64 = 64.0 / 65.0;

/// The device that packets to the internet leave through.
fn outward(netlink: &Netlink) -> io::Result<Option<i32>> {
    // A root name server, which no network keeps for itself. Nothing is sent to it.
    let servers =
        [IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4)), IpAddr::V6(Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30))];
    let mut devices: Vec<i32> = servers.into_iter().filter_map(|server| netlink.device_towards(server)).collect();
    if devices.is_empty() {
        devices = netlink.devices_up()?;
    }
    devices.dedup();
    Ok(if let [device] = devices[..] { Some(device) } else { None })
}

fn of_token_bucket(options: &[u8]) -> Option<f64> {
    const TCA_TBF_PARMS: u16 = 1;
    const TCA_TBF_RATE64: u16 = 4;
    shaped(&attribute(options, TCA_TBF_PARMS)?, long_word(options, TCA_TBF_RATE64))
}

fn of_cake(options: &[u8]) -> Option<f64> {
    const TCA_CAKE_BASE_RATE64: u16 = 2;
    const TCA_CAKE_ATM: u16 = 4;
    const TCA_CAKE_OVERHEAD: u16 = 6;
    const TCA_CAKE_RAW: u16 = 12;
    let bytes_per_second = long_word(options, TCA_CAKE_BASE_RATE64)?;
    let cells = match word(options, TCA_CAKE_ATM) {
        Some(1) => ATM,
        Some(2) => PTM,
        _ => 1.0,
    };
    let counted_bytes = match (attribute(options, TCA_CAKE_RAW), word(options, TCA_CAKE_OVERHEAD)) {
        (None, Some(overhead)) => PACKET_BYTES + f64::from(overhead.cast_signed()),
        _ => FRAME_BYTES,
    };
    // Without a limit the rate is 0.
    (bytes_per_second > 0).then(|| bytes_per_second as f64 * 8.0 * cells * FRAME_BYTES / counted_bytes)
}

/// The rate of a tree of classes. `None` where packets may pass beside it, where some have a lower rate, and where the
/// classes together may send more than the one on top.
fn of_htb(root: &Found, classes: &[Found]) -> Option<f64> {
    const TCA_HTB_INIT: u16 = 2;
    let default = u32::from_ne_bytes(attribute(&root.options, TCA_HTB_INIT)?.get(8..12)?.try_into().ok()?);
    let has_below = |class: &Found| classes.iter().any(|other| other.parent == class.handle);
    let is_leaf_by_default = |class: &&Found| class.handle == root.handle | default && !has_below(class);
    classes.iter().find(is_leaf_by_default)?;
    let mut tops = classes.iter().filter(|class| class.parent == ROOT);
    let (top, None) = (tops.next()?, tops.next()) else { return None };
    let (all, _) = of_class(top)?;
    let (mut least, mut guaranteed, mut leaves) = (all, 0.0, 0);
    for class in classes {
        let (rate, most) = of_class(class)?;
        if class.handle != top.handle {
            least = f64::min(least, most);
        }
        if !has_below(class) {
            (guaranteed, leaves) = (guaranteed + rate, leaves + 1);
        }
    }
    (guaranteed <= all && (leaves == 1 || least == all)).then_some(least)
}

/// The rate that a class has for itself, and the most that it may have of others.
fn of_class(class: &Found) -> Option<(f64, f64)> {
    const TCA_HTB_PARMS: u16 = 1;
    const TCA_HTB_RATE64: u16 = 6;
    const TCA_HTB_CEIL64: u16 = 7;
    let parameters = attribute(&class.options, TCA_HTB_PARMS)?;
    let rate = shaped(&parameters, long_word(&class.options, TCA_HTB_RATE64))?;
    Some((rate, shaped(parameters.get(RATE_BYTES..)?, long_word(&class.options, TCA_HTB_CEIL64))?))
}

/// The length of `struct tc_ratespec`.
const RATE_BYTES: usize = 12;

/// Reads a `struct tc_ratespec`. Rates that do not fit in it are in an attribute of their own.
fn shaped(rate: &[u8], wide_bytes_per_second: Option<u64>) -> Option<f64> {
    const TC_LINKLAYER_MASK: u8 = 0xf;
    const TC_LINKLAYER_ATM: u8 = 2;
    let rate: &[u8; RATE_BYTES] = rate.first_chunk()?;
    let cells = if rate[1] & TC_LINKLAYER_MASK == TC_LINKLAYER_ATM { ATM } else { 1.0 };
    let overhead_bytes = u16::from_ne_bytes([rate[2], rate[3]]);
    let narrow = u32::from_ne_bytes([rate[8], rate[9], rate[10], rate[11]]);
    let bytes_per_second = wide_bytes_per_second.unwrap_or(narrow.into());
    Some(bytes_per_second as f64 * 8.0 * cells * FRAME_BYTES / (FRAME_BYTES + f64::from(overhead_bytes)))
}

fn attribute(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    let mut all = NlasIterator::new(attributes).map_while(Result::ok);
    all.find(|attribute| attribute.kind() == kind).map(|attribute| attribute.value().to_vec())
}

fn word(attributes: &[u8], kind: u16) -> Option<u32> {
    attribute(attributes, kind)?.try_into().ok().map(u32::from_ne_bytes)
}

fn long_word(attributes: &[u8], kind: u16) -> Option<u64> {
    attribute(attributes, kind)?.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = 4 + value.len() as u16;
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn cake(bytes_per_second: u64, cells: u32, overhead: Option<i32>, is_raw: bool) -> Option<f64> {
        let mut options = attribute(2, &bytes_per_second.to_ne_bytes());
        options.extend(attribute(4, &cells.to_ne_bytes()));
        options.extend(attribute(6, &overhead.unwrap_or(0).to_ne_bytes()));
        if is_raw {
            options.extend(attribute(12, &[]));
        }
        of_cake(&options)
    }

    /// No kernel of the tests has it: the numbers are those of `linux/pkt_sched.h`.
    #[test]
    fn the_rate_of_cake_is_that_of_full_frames() {
        let near = |found: Option<f64>, bits: f64| assert!((found.unwrap() / bits - 1.0).abs() < 1e-9, "{found:?}");
        near(cake(5_000_000, 0, None, true), 40e6);
        // PPPoE over ATM: 32 bytes are added to each packet, and 48 bytes of it are in a cell of 53.
        near(cake(5_000_000, 1, Some(32), false), 40e6 * 48.0 / 53.0 * 1514.0 / 1532.0);
        // VDSL: 64 bytes of 65.
        near(cake(5_000_000, 2, Some(30), false), 40e6 * 64.0 / 65.0 * 1514.0 / 1530.0);
        // Without overhead the headers of Ethernet do not count.
        near(cake(5_000_000, 0, Some(0), false), 40e6 * 1514.0 / 1500.0);
        assert_eq!(cake(0, 0, None, true), None, "it has no limit");
    }

    #[test]
    fn options_that_are_cut_off_have_no_rate() {
        let whole = attribute(1, &[0; 36]);
        for length in 0..whole.len() {
            assert_eq!(of_token_bucket(&whole[..length]), None, "{length} bytes");
            assert_eq!(of_cake(&whole[..length]), None);
        }
    }
}
