//! What the program in the kernel shares with this one. The types are those of `bpf/attach.h`.

use aya::Pod;

use crate::sizes::SIZE_CELLS;

/// Ranks of packets: rank 0, and three for each of seven bands.
pub(crate) const RANKS: usize = 22;
/// Most classes of traffic.
pub(crate) const CLASSES: usize = 7;
/// Most ports of one device.
pub(crate) const PORTS: usize = 16;

/// Which packets belong to a class, and which ranks it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ClassSettings {
    pub cgroup: u64,
    pub by_mark: u32,
    pub mark: u32,
    pub mark_mask: u32,
    pub port: u32,
    pub by_source: u32,
    /// In network byte order.
    pub source: [u32; 4],
    pub source_mask: [u32; 4],
    pub first_rank: u32,
    pub ranks: u32,
    pub cutoffs: [u32; RANKS],
    pub pad: u32,
}

/// The only value of the map `settings`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Settings {
    pub port_count: u32,
    pub class_count: u32,
    pub subranks: u32,
    pub last_rank: u32,
    pub foreign_rank: u32,
    pub by_cgroup: u32,
    pub ports: [u32; PORTS],
    pub classes: [ClassSettings; CLASSES],
}

/// The value of the map `counters`, one for each processor.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Counters {
    pub known: u64,
    pub unknown: u64,
    pub control: u64,
    pub foreign: u64,
    pub strangers: u64,
    pub held: u64,
    pub lost: u64,
    pub packets: [u64; RANKS],
    pub bytes: [u64; RANKS],
    pub sizes: [u64; SIZE_CELLS],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            known: 0,
            unknown: 0,
            control: 0,
            foreign: 0,
            strangers: 0,
            held: 0,
            lost: 0,
            packets: [0; RANKS],
            bytes: [0; RANKS],
            sizes: [0; SIZE_CELLS],
        }
    }
}

impl Counters {
    /// Adds those of another processor.
    pub fn add(&mut self, other: &Self) {
        self.known += other.known;
        self.unknown += other.unknown;
        self.control += other.control;
        self.foreign += other.foreign;
        self.strangers += other.strangers;
        self.held += other.held;
        self.lost += other.lost;
        for (sums, others) in [
            (&mut self.packets[..], &other.packets[..]),
            (&mut self.bytes[..], &other.bytes[..]),
            (&mut self.sizes[..], &other.sizes[..]),
        ] {
            sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
        }
    }
}

// SAFETY: both are plain numbers in the C layout; the sizes of all fields add up to the size of the type, so that there
// is no padding (see the test).
unsafe impl Pod for Settings {}
// SAFETY: as above.
unsafe impl Pod for Counters {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_padding() {
        let class = 8 + 4 * (5 + 4 + 4 + 2 + RANKS + 1);
        assert_eq!(size_of::<ClassSettings>(), class);
        assert_eq!(size_of::<Settings>(), 4 * (6 + PORTS) + CLASSES * class);
        assert_eq!(size_of::<Counters>(), 8 * (7 + 2 * RANKS + SIZE_CELLS));
    }
}
