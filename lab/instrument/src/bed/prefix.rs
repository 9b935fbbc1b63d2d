//! Addresses of the bed, and the client group of each address.

use std::net::Ipv4Addr;

/// The server's address in every bed.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, LINKS, 0, 1);

/// Most groups of clients: their prefixes must stay below those of the links.
pub const MOST_GROUPS: usize = (LINKS - FIRST) as usize;

/// Second octet of the links between namespaces: link `i` is 10.77.i.0/24.
pub(super) const LINKS: u8 = 77;

/// Second octet of the first group.
const FIRST: u8 = 10;

/// The /16 of a group, as an address with zeros.
pub(super) fn of_group(group: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, FIRST + group as u8, 0, 0)
}

/// The first host address of a group.
pub(super) fn first_of_group(group: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(of_group(group).to_bits() + 1)
}

/// The address of a group from which calibration connects, separate from those of any load.
pub(super) fn calibration_of_group(group: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(of_group(group).to_bits() + 0xff01)
}

/// The group of an IPv4 packet's destination or source; `None` for other packets.
pub(super) fn group_of(packet: &[u8], to: bool) -> Option<usize> {
    if packet.len() < 20 || packet[0] >> 4 != 4 {
        return None;
    }
    let address = if to { &packet[16..20] } else { &packet[12..16] };
    let group = address[1].checked_sub(FIRST)?;
    (address[0] == 10 && address[1] < LINKS).then_some(group.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_has_a_prefix_of_its_own_below_the_links() {
        let mut packet = [0; 20];
        packet[0] = 0x45;
        for group in 0..MOST_GROUPS {
            packet[12..16].copy_from_slice(&calibration_of_group(group).octets());
            packet[16..20].copy_from_slice(&first_of_group(group).octets());
            assert_eq!((group_of(&packet, false), group_of(&packet, true)), (Some(group), Some(group)));
        }
        packet[12..16].copy_from_slice(&SERVER.octets());
        assert_eq!(group_of(&packet, false), None);
    }
}
