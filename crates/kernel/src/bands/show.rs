//! Reads bands and prints them for people.

use std::fmt;

use serde::Serialize;

use super::{
    error::BandsError,
    installed::{How, Installed, Shape, priority},
    observe::{self, QdiscLine, Root},
    units::{bytes, rate, segments, thousands},
};

/// A device and its bands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// The network device.
    pub device: String,
    /// Whether the device has a complete set of Serpent's bands.
    pub ours: bool,
    /// The device's root, as `tc` prints it.
    pub root: String,
    /// The disciplines of the bands; `None` when they are not Serpent's.
    pub shape: Option<Shape>,
    /// The rate at which the bands are drained, in bits per second, rounded down to the digits that `tc`
    /// prints.
    pub rate_bits_per_second: Option<u64>,
    /// Most segments in one packet.
    pub gso_max_segs: u32,
    /// The bands in order of precedence; empty when they are not Serpent's.
    pub bands: Vec<BandShown>,
}

/// Counters of one band since it was installed. Bytes are as the kernel counts them, with Ethernet headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BandShown {
    /// Its number: 0 goes first.
    pub band: u8,
    /// The `SO_PRIORITY` that leads to it.
    pub priority: u32,
    /// The class, as `tc` writes it.
    pub class: String,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets dropped because too many waited. Normally always 0: a starved response whose packets are
    /// dropped for minutes is cut off.
    pub dropped_packets: u64,
    /// Packets waiting.
    pub backlog_packets: u64,
    /// Bytes waiting.
    pub backlog_bytes: u64,
}

/// Finds Serpent's bands: on the named device, or on the only device that has them. `None` without any. Needs
/// no privilege.
pub fn find(device: Option<&str>) -> Result<Option<Installed>, BandsError> {
    let mut found = Vec::new();
    for (name, lines) in by_device(observe::qdiscs(device)?) {
        let Root::Ours { shape, bands: Some(bands), .. } = observe::root(&lines) else { continue };
        let Some(rate_bits_per_second) = observe::rate_bits_per_second(&name, shape, &lines)? else { continue };
        let gso_max_segs = observe::device(&name)?.gso_max_segs;
        found.push(Installed { device: name, shape, bands, rate_bits_per_second, gso_max_segs, how: How::Found });
    }
    if found.len() > 1 {
        return Err(BandsError::SeveralDevices { devices: found.into_iter().map(|found| found.device).collect() });
    }
    Ok(found.pop())
}

/// Shows the named device in any state, or all devices with Serpent's bands, complete or not. Needs no
/// privilege.
pub fn show(device: Option<&str>) -> Result<Vec<Shown>, BandsError> {
    if let Some(device) = device {
        return Ok(vec![shown(device.into(), &observe::qdiscs(Some(device))?)?]);
    }
    by_device(observe::qdiscs(None)?)
        .into_iter()
        .filter(|(_, lines)| matches!(observe::root(lines), Root::Ours { .. }))
        .map(|(name, lines)| shown(name, &lines))
        .collect()
}

fn shown(device: String, lines: &[QdiscLine]) -> Result<Shown, BandsError> {
    let root = observe::root(lines);
    let gso_max_segs = observe::device(&device)?.gso_max_segs;
    let (shape, count) = match root {
        Root::Ours { shape, bands, .. } => (Some(shape), bands),
        Root::Default(_) | Root::Foreign(_) => (None, None),
    };
    let rate_bits_per_second = match shape {
        Some(shape) => observe::rate_bits_per_second(&device, shape, lines)?,
        None => None,
    };
    let bands =
        (0..count.unwrap_or(0)).filter_map(|band| Some(band_shown(band, observe::leaf(lines, band)?))).collect();
    Ok(Shown {
        device,
        ours: count.is_some() && rate_bits_per_second.is_some(),
        root: root.words().into(),
        shape,
        rate_bits_per_second,
        gso_max_segs,
        bands,
    })
}

fn band_shown(band: u8, leaf: &QdiscLine) -> BandShown {
    BandShown {
        band,
        priority: priority(band),
        class: leaf.parent.clone(),
        packets: leaf.packets,
        bytes: leaf.bytes,
        dropped_packets: leaf.drops,
        backlog_packets: leaf.qlen,
        backlog_bytes: leaf.backlog,
    }
}

/// Groups the disciplines by device, in the order of the listing.
fn by_device(lines: Vec<QdiscLine>) -> Vec<(String, Vec<QdiscLine>)> {
    let mut devices: Vec<(String, Vec<QdiscLine>)> = Vec::new();
    for line in lines {
        let Some(name) = line.dev.clone() else { continue };
        match devices.iter_mut().find(|(device, _)| *device == name) {
            Some((_, lines)) => lines.push(line),
            None => devices.push((name, vec![line])),
        }
    }
    devices
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, root, .. } = self;
        match (self.shape, self.rate_bits_per_second) {
            (None, _) => return write!(f, "{device}: no bands of Serpent; its queueing discipline is {root}"),
            (Some(shape), Some(rate_bits_per_second)) if self.ours => write!(
                f,
                "{device}: {} strict priority bands ({shape}) at {}, packets of at most {}",
                self.bands.len(),
                rate(rate_bits_per_second),
                segments(self.gso_max_segs)
            )?,
            (Some(shape), _) => {
                return write!(
                    f,
                    "{device}: bands of Serpent ({shape}), but some are missing; `serpent uplink install` completes them, \
                     `serpent uplink remove` removes them"
                );
            }
        }
        let heading = ["band", "SO_PRIORITY", "packets", "sent", "waiting", "dropped"].map(str::to_owned);
        let rows = self.bands.iter().map(|band| {
            [
                band.band.to_string(),
                format!("{:#010x}", band.priority),
                thousands(band.packets),
                bytes(band.bytes),
                match band.backlog_packets {
                    0 => "-".into(),
                    packets => format!("{} ({})", thousands(packets), bytes(band.backlog_bytes)),
                },
                thousands(band.dropped_packets),
            ]
        });
        let rows: Vec<[String; 6]> = std::iter::once(heading).chain(rows).collect();
        let widths: [usize; 6] =
            std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
        for (number, row) in rows.iter().enumerate() {
            f.write_str("\n")?;
            for (cell, &width) in row.iter().zip(&widths) {
                write!(f, "  {cell:>width$}")?;
            }
            match number {
                1 => f.write_str("  control and unclassified traffic")?,
                2 => f.write_str("  responses: first")?,
                last if last == self.bands.len() => f.write_str("  responses: last")?,
                _ => {}
            }
        }
        let dropped: u64 = self.bands.iter().map(|band| band.dropped_packets).sum();
        if dropped > 0 {
            write!(
                f,
                "\n\n{} packets were dropped because a band was full: responses may be cut off; give the bands a larger \
                 limit, or admit fewer connections",
                thousands(dropped)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Shown {
        let band = |band: u8, packets: u64, waiting: u64| BandShown {
            band,
            priority: priority(band),
            class: format!("5e7:{}", band + 1),
            packets,
            bytes: packets * 1514,
            dropped_packets: 0,
            backlog_packets: waiting,
            backlog_bytes: waiting * 1514,
        };
        Shown {
            device: "eth0".into(),
            ours: true,
            root: "htb 5e7:".into(),
            shape: Some(Shape::Htb),
            rate_bits_per_second: Some(9_700_000),
            gso_max_segs: 1,
            bands: vec![band(0, 1204, 0), band(1, 1_234_567, 0), band(2, 7, 0), band(3, 48_211, 312)],
        }
    }

    #[test]
    fn a_table_for_people() {
        let expected = "\
eth0: 4 strict priority bands (HTB) at 9.7 Mbit/s, packets of at most 1 segment
  band  SO_PRIORITY    packets      sent         waiting  dropped
     0   0x05e70001      1,204  1.823 MB               -        0  control and unclassified traffic
     1   0x05e70002  1,234,567  1.869 GB               -        0  responses: first
     2   0x05e70003          7   10.6 kB               -        0
     3   0x05e70004     48,211  72.99 MB  312 (472.4 kB)        0  responses: last";
        assert_eq!(example().to_string(), expected);
    }

    #[test]
    fn drops_are_called_what_they_are() {
        let mut shown = example();
        shown.bands[3].dropped_packets = 12;
        assert!(shown.to_string().contains("\n12 packets were dropped because a band was full"), "{shown}");
    }

    #[test]
    fn a_device_without_our_bands_says_what_it_has() {
        let shown = Shown { ours: false, shape: None, root: "fq_codel 0:".into(), bands: vec![], ..example() };
        assert_eq!(shown.to_string(), "eth0: no bands of Serpent; its queueing discipline is fq_codel 0:");
    }

    #[test]
    fn incomplete_bands_say_what_to_do() {
        let shown = Shown { ours: false, bands: vec![], ..example() };
        assert!(shown.to_string().contains("`serpent uplink install` completes them"), "{shown}");
    }

    #[test]
    fn for_programs_numbers_stay_numbers() {
        let json = serde_json::to_value(example()).expect("plain data");
        assert_eq!(json["shape"], "htb");
        assert_eq!(json["bands"][3]["backlog_packets"], 312);
        assert_eq!(json["bands"][0]["priority"], 0x05e7_0001);
    }

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!(
            [rate(128), rate(9_712_345), rate(100_000_000), rate(2_500_000_000)],
            ["128 bit/s", "9.712 Mbit/s", "100 Mbit/s", "2.5 Gbit/s"]
        );
        assert_eq!([bytes(0), bytes(999), bytes(1000)], ["0 B", "999 B", "1 kB"]);
        assert_eq!(
            [thousands(0), thousands(999), thousands(1000), thousands(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
