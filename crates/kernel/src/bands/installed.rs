//! The bands of a device: how they are to be installed, and what is installed.

use serde::Serialize;

use super::units;

/// Handle (major number) of the discipline with the bands.
pub(super) const BANDS_MAJOR: u32 = 0x05e7;

/// Handle of the shaper over `prio`.
pub(super) const SHAPER_MAJOR: u32 = 0x5e70;

/// The default number of bands, and the largest for which HTB has priorities.
pub const BANDS_MAX: u8 = 8;

/// The smallest useful number of bands.
pub const BANDS_MIN: u8 = 2;

/// The smallest limit of a band's FIFO, in packets. With 100 packets starved responses were cut off, with 300
/// half of 500 connections stood still for 10 s, with 1000 none.
pub const LEAF_LIMIT_PACKETS_MIN: u32 = 1000;

/// Options of [`install`](super::install).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallOptions {
    /// The network device, such as `eth0`.
    pub device: String,
    /// The rate at which the bands are drained, in bits per second of wire bytes. Set it at or slightly below
    /// the true rate of the narrowest link that all responses pass.
    pub rate_bits_per_second: u64,
    /// Number of bands: [`BANDS_MIN`] to [`BANDS_MAX`].
    pub bands: u8,
    /// Most packets that may wait in one band: at least [`LEAF_LIMIT_PACKETS_MIN`].
    pub leaf_limit_packets: u32,
    /// Bytes of a packet on the wire that the kernel does not count (it counts payload, IP and Ethernet
    /// headers). 24 covers the preamble, checksum and gap of Ethernet. With the default of zero the rate
    /// means the same as in `tc`.
    pub overhead_bytes: u16,
    /// The disciplines to build the bands from.
    pub qdisc: Qdisc,
    /// Whether a queueing discipline that another program or person configured on the device may be removed.
    pub replace: bool,
}

impl InstallOptions {
    /// Eight bands of 1000 packets on an Ethernet device; disciplines by the kernel's abilities, and none
    /// replaced.
    pub fn new(device: impl Into<String>, rate_bits_per_second: u64) -> Self {
        Self {
            device: device.into(),
            rate_bits_per_second,
            bands: BANDS_MAX,
            leaf_limit_packets: LEAF_LIMIT_PACKETS_MIN,
            overhead_bytes: 0,
            qdisc: Qdisc::Auto,
            replace: false,
        }
    }
}

/// The disciplines to build the bands from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Qdisc {
    /// HTB, or `prio` where the kernel has no HTB; found by trying. Installed bands keep their disciplines.
    #[default]
    Auto,
    /// HTB.
    Htb,
    /// `prio` under a TBF.
    Prio,
}

/// The disciplines that bands are built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// HTB with a class for each band.
    Htb,
    /// `prio` under a TBF.
    Prio,
}

/// Bands on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Installed {
    /// The network device.
    pub device: String,
    /// The disciplines that the bands are built from.
    pub shape: Shape,
    /// Number of bands.
    pub bands: u8,
    /// The rate at which the bands are drained, in bits per second. A rate read back from `tc` or `ip` is
    /// rounded down to the three or four digits they print.
    pub rate_bits_per_second: u64,
    /// Most segments in one packet.
    pub gso_max_segs: u32,
    /// Whether this call installed the bands.
    pub how: How,
}

/// How bands came to be on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Installed by this call.
    New,
    /// They existed; this call changed rate and limits in place, without dropping a packet.
    Updated,
    /// They existed.
    Found,
}

impl Installed {
    /// The `SO_PRIORITY` of a band: 0 is for control traffic, 1 and up for responses. A number beyond the
    /// last band means the last band.
    pub fn priority(&self, band: u8) -> u32 {
        priority(band.min(self.bands.saturating_sub(1)))
    }

    /// The last band: all others go before it.
    pub fn last_band(&self) -> u8 {
        self.bands.saturating_sub(1)
    }
}

impl std::fmt::Display for Installed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.how {
            How::New => "installed",
            How::Updated => "updated in place",
            How::Found => "installed",
        };
        write!(
            f,
            "{}: {} strict priority bands {what} ({}) at {}; control and unclassified traffic in band 0, responses in \
             bands 1 to {}; packets of at most {}",
            self.device,
            self.bands,
            self.shape,
            units::rate(self.rate_bits_per_second),
            self.last_band(),
            units::segments(self.gso_max_segs),
        )
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Htb => "HTB",
            Self::Prio => "prio under TBF",
        })
    }
}

/// `SO_PRIORITY` of a band: major number of the discipline, minor number of the class.
pub(super) fn priority(band: u8) -> u32 {
    BANDS_MAJOR << 16 | (u32::from(band) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_leads_straight_to_its_class_and_never_past_the_last() {
        let installed = Installed {
            device: "eth0".into(),
            shape: Shape::Htb,
            bands: 8,
            rate_bits_per_second: 9_700_000,
            gso_max_segs: 1,
            how: How::Found,
        };
        assert_eq!(installed.priority(0), 0x05e7_0001);
        assert_eq!(installed.priority(7), 0x05e7_0008);
        assert_eq!(installed.priority(200), 0x05e7_0008);
    }

    #[test]
    fn what_was_installed_reads_as_a_sentence() {
        let installed = Installed {
            device: "eth0".into(),
            shape: Shape::Htb,
            bands: 8,
            rate_bits_per_second: 9_700_000,
            gso_max_segs: 1,
            how: How::New,
        };
        assert_eq!(
            installed.to_string(),
            "eth0: 8 strict priority bands installed (HTB) at 9.7 Mbit/s; control and unclassified traffic in band 0, \
             responses in bands 1 to 7; packets of at most 1 segment"
        );
    }
}
