//! Values that the program in the kernel shares with this one. The types are those of `bpf/attach.h`.

use crate::sizes::SIZE_CELLS;

/// Ranks of packets: rank 0, and three for each of seven bands.
pub(crate) const RANKS: usize = 22;
/// The last rank of responses; 0 is for what no response may delay.
pub(crate) const LAST_RANK: u32 = RANKS as u32 - 1;
/// Ranks in a band.
pub(crate) const SUBRANKS: u32 = 3;
/// Most classes of traffic.
pub(crate) const CLASSES: usize = 7;
/// Most ports of one device.
pub(crate) const PORTS: usize = 16;

/// Which packets belong to a class, and which ranks it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
}

/// The only value of the map `settings`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// Words of [`ClassSettings`] and of [`Settings`].
const CLASS_WORDS: usize = 2 + 5 + 4 + 4 + 2 + RANKS + 1;
pub(crate) const SETTINGS_WORDS: usize = 6 + PORTS + CLASSES * CLASS_WORDS;
/// Numbers of [`Counters`].
pub(crate) const COUNTERS: usize = 7 + 2 * RANKS + SIZE_CELLS;

impl Settings {
    /// As the map holds them: the fields in their order.
    pub fn to_words(self) -> [u32; SETTINGS_WORDS] {
        let Self { port_count, class_count, subranks, last_rank, foreign_rank, by_cgroup, ports, classes } = self;
        let mut words = vec![port_count, class_count, subranks, last_rank, foreign_rank, by_cgroup];
        words.extend(ports);
        for class in classes {
            let cgroup = class.cgroup.to_ne_bytes();
            let [low, high] =
                [[cgroup[0], cgroup[1], cgroup[2], cgroup[3]], [cgroup[4], cgroup[5], cgroup[6], cgroup[7]]];
            words.extend([u32::from_ne_bytes(low), u32::from_ne_bytes(high)]);
            words.extend([class.by_mark, class.mark, class.mark_mask, class.port, class.by_source]);
            words.extend(class.source.iter().chain(&class.source_mask));
            words.extend([class.first_rank, class.ranks]);
            words.extend(class.cutoffs.iter().chain([&0]));
        }
        std::array::from_fn(|number| words[number])
    }

    /// The inverse.
    pub fn from_words(words: &[u32; SETTINGS_WORDS]) -> Self {
        let mut words = words.iter().copied();
        let mut next = || words.next().unwrap_or(0);
        Self {
            port_count: next(),
            class_count: next(),
            subranks: next(),
            last_rank: next(),
            foreign_rank: next(),
            by_cgroup: next(),
            ports: std::array::from_fn(|_| next()),
            classes: std::array::from_fn(|_| {
                let [a, b] = [next().to_ne_bytes(), next().to_ne_bytes()];
                let class = ClassSettings {
                    cgroup: u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]),
                    by_mark: next(),
                    mark: next(),
                    mark_mask: next(),
                    port: next(),
                    by_source: next(),
                    source: std::array::from_fn(|_| next()),
                    source_mask: std::array::from_fn(|_| next()),
                    first_rank: next(),
                    ranks: next(),
                    cutoffs: std::array::from_fn(|_| next()),
                };
                // The C compiler fills up the type to a multiple of 8 bytes.
                next();
                class
            }),
        }
    }
}

impl Counters {
    /// Adds those of another processor, as the map holds them.
    pub fn add(&mut self, numbers: &[u64; COUNTERS]) {
        let mut numbers = numbers.iter();
        let single = [
            &mut self.known,
            &mut self.unknown,
            &mut self.control,
            &mut self.foreign,
            &mut self.strangers,
            &mut self.held,
            &mut self.lost,
        ];
        let many = self.packets.iter_mut().chain(&mut self.bytes).chain(&mut self.sizes);
        for sum in single.into_iter().chain(many) {
            *sum += numbers.next().copied().unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_written() {
        let mut settings = Settings { port_count: 2, last_rank: 21, ..Settings::default() };
        settings.ports[1] = 443;
        settings.classes[6] = ClassSettings { cgroup: 0x1_0000_0002, ranks: 3, ..ClassSettings::default() };
        settings.classes[6].cutoffs[RANKS - 1] = 7;
        assert_eq!(Settings::from_words(&settings.to_words()), settings);
    }

    #[test]
    fn counters_of_processors_are_added() {
        let mut sum = Counters::default();
        let numbers = std::array::from_fn(|number| number as u64);
        sum.add(&numbers);
        sum.add(&numbers);
        assert_eq!((sum.known, sum.lost, sum.packets[0], sum.bytes[0]), (0, 12, 14, 2 * (7 + RANKS as u64)));
        assert_eq!(sum.sizes[SIZE_CELLS - 1], 2 * (COUNTERS as u64 - 1));
    }
}
