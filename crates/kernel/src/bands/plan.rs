//! Builds the commands for `tc`: pure functions from options to the lines of a batch.
//!
//! Every prefix of an installing batch leaves a working network: HTB sends packets without a class unshaped,
//! and TBF comes with a FIFO. Band 0 is made last, so bands without band 0 are known to be incomplete.

use super::{
    error::BandsError,
    installed::{BANDS_MAJOR, BANDS_MAX, BANDS_MIN, InstallOptions, LEAF_LIMIT_PACKETS_MIN, SHAPER_MAJOR, Shape},
    link::{burst_bytes, frame_bytes, own_rate_bits_per_second},
};

/// Minor number of HTB's class for the whole link.
pub(super) const LINK_MINOR: u32 = 0x100;

/// Below this rate no packet of 1514 bytes passes within a second.
pub(super) const RATE_MIN_BITS_PER_SECOND: u64 = 16_000;
/// Above this rate, burst sizes exceed the range of `tc`.
pub(super) const RATE_MAX_BITS_PER_SECOND: u64 = 400_000_000_000;

/// Checks the options that do not depend on the device.
pub(super) fn check(options: &InstallOptions) -> Result<(), BandsError> {
    check_device_name(&options.device)?;
    let invalid = |option, problem| Err(BandsError::InvalidOption { option, problem });
    if !(BANDS_MIN..=BANDS_MAX).contains(&options.bands) {
        return invalid("bands", format!("{} is not between {BANDS_MIN} and {BANDS_MAX}", options.bands));
    }
    if options.leaf_limit_packets < LEAF_LIMIT_PACKETS_MIN {
        return invalid(
            "leaf limit",
            format!(
                "{} packets are too few: starved responses would be cut off; at least {LEAF_LIMIT_PACKETS_MIN}",
                options.leaf_limit_packets
            ),
        );
    }
    if !(RATE_MIN_BITS_PER_SECOND..=RATE_MAX_BITS_PER_SECOND).contains(&options.rate_bits_per_second) {
        return invalid(
            "rate",
            format!("{} bit/s is not between 16 kbit/s and 400 Gbit/s", options.rate_bits_per_second),
        );
    }
    Ok(())
}

/// Checks that the name is valid for a device, and that no tool can take it for anything else.
pub(super) fn check_device_name(device: &str) -> Result<(), BandsError> {
    let fits = (1..16).contains(&device.len())
        && device.bytes().all(|byte| byte.is_ascii_graphic() && !b"/\"'\\".contains(&byte))
        && !device.starts_with('-')
        && device != "."
        && device != "..";
    if fits { Ok(()) } else { Err(BandsError::NoDevice { device: device.into() }) }
}

/// The lines that install bands on a device that has none.
pub(super) fn install(shape: Shape, options: &InstallOptions, device: &str, mtu_bytes: u32) -> Vec<String> {
    let mut lines = Vec::new();
    match shape {
        Shape::Htb => {
            lines.push(format!("qdisc add dev {device} root handle {BANDS_MAJOR:x}: htb default 1"));
            lines.push(htb_link("add", options, device, mtu_bytes));
        }
        Shape::Prio => {
            lines.push(tbf("add", options, device, mtu_bytes));
            // The map sends packets whose priority names no band to band 0.
            lines.push(format!(
                "qdisc add dev {device} parent {SHAPER_MAJOR:x}:1 handle {BANDS_MAJOR:x}: prio bands {} priomap{}",
                options.bands,
                " 0".repeat(16)
            ));
        }
    }
    for band in (0..options.bands).rev() {
        if shape == Shape::Htb {
            lines.push(htb_band("add", band, options, device, mtu_bytes));
        }
        lines.push(leaf("add", band, options, device));
    }
    lines
}

/// The lines that change rate and limit of installed bands without dropping waiting packets.
pub(super) fn update(shape: Shape, options: &InstallOptions, device: &str, mtu_bytes: u32) -> Vec<String> {
    let mut lines = Vec::new();
    match shape {
        Shape::Htb => {
            lines.push(htb_link("change", options, device, mtu_bytes));
            lines.extend((0..options.bands).map(|band| htb_band("change", band, options, device, mtu_bytes)));
        }
        Shape::Prio => lines.push(tbf("change", options, device, mtu_bytes)),
    }
    lines.extend((0..options.bands).map(|band| leaf("change", band, options, device)));
    lines
}

fn htb_link(verb: &str, options: &InstallOptions, device: &str, mtu_bytes: u32) -> String {
    let InstallOptions { rate_bits_per_second: rate, .. } = options;
    let (burst, wire) = (burst_bytes(*rate, mtu_bytes), wire(options));
    format!(
        "class {verb} dev {device} parent {BANDS_MAJOR:x}: classid {BANDS_MAJOR:x}:{LINK_MINOR:x} htb rate {rate}bit \
         ceil {rate}bit burst {burst} cburst {burst} quantum {} {wire}",
        frame_bytes(mtu_bytes)
    )
}

/// A band's class. Bands borrow the link's rate in the order of `prio`, but send at their own rate out of
/// order. So their own rate is next to nothing, except for band 0: it owns the whole rate and does not wait
/// for debts of the others.
fn htb_band(verb: &str, band: u8, options: &InstallOptions, device: &str, mtu_bytes: u32) -> String {
    let InstallOptions { rate_bits_per_second: rate, .. } = options;
    let (link_burst, frame, wire) = (burst_bytes(*rate, mtu_bytes), frame_bytes(mtu_bytes), wire(options));
    let (own_rate, burst) =
        if band == 0 { (*rate, link_burst) } else { (own_rate_bits_per_second(frame), u64::from(frame)) };
    format!(
        "class {verb} dev {device} parent {BANDS_MAJOR:x}:{LINK_MINOR:x} classid {BANDS_MAJOR:x}:{:x} htb prio {band} \
         rate {own_rate}bit ceil {rate}bit burst {burst} cburst {link_burst} quantum {frame} {wire}",
        band + 1,
    )
}

fn tbf(verb: &str, options: &InstallOptions, device: &str, mtu_bytes: u32) -> String {
    let InstallOptions { rate_bits_per_second: rate, .. } = options;
    // The limit is that of the FIFO, which `prio` replaces at once.
    format!(
        "qdisc {verb} dev {device} root handle {SHAPER_MAJOR:x}: tbf rate {rate}bit burst {} limit 1500000 {}",
        burst_bytes(*rate, mtu_bytes),
        wire(options)
    )
}

fn leaf(verb: &str, band: u8, options: &InstallOptions, device: &str) -> String {
    format!(
        "qdisc {verb} dev {device} parent {BANDS_MAJOR:x}:{minor:x} handle {:x}: pfifo limit {}",
        SHAPER_MAJOR + u32::from(band) + 1,
        options.leaf_limit_packets,
        minor = band + 1,
    )
}

fn wire(options: &InstallOptions) -> String {
    match options.overhead_bytes {
        0 => String::new(),
        // The smallest Ethernet frame is 60 bytes without its checksum.
        overhead => format!("overhead {overhead} mpu {}", 60 + overhead),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(rate_bits_per_second: u64) -> InstallOptions {
        InstallOptions { overhead_bytes: 24, ..InstallOptions::new("eth0", rate_bits_per_second) }
    }

    #[test]
    fn htb_bands_borrow_the_rate_in_order() {
        let lines = install(Shape::Htb, &InstallOptions { bands: 2, ..options(10_000_000) }, "eth0", 1500);
        assert_eq!(
            lines,
            [
                "qdisc add dev eth0 root handle 5e7: htb default 1",
                "class add dev eth0 parent 5e7: classid 5e7:100 htb rate 10000000bit ceil 10000000bit burst 1600 cburst \
                 1600 quantum 1600 overhead 24 mpu 84",
                "class add dev eth0 parent 5e7:100 classid 5e7:2 htb prio 1 rate 128bit ceil 10000000bit burst 1600 cburst \
                 1600 quantum 1600 overhead 24 mpu 84",
                "qdisc add dev eth0 parent 5e7:2 handle 5e72: pfifo limit 1000",
                "class add dev eth0 parent 5e7:100 classid 5e7:1 htb prio 0 rate 10000000bit ceil 10000000bit burst 1600 \
                 cburst 1600 quantum 1600 overhead 24 mpu 84",
                "qdisc add dev eth0 parent 5e7:1 handle 5e71: pfifo limit 1000",
            ]
        );
    }

    #[test]
    fn prio_puts_what_names_no_band_into_band_0() {
        let lines = install(Shape::Prio, &InstallOptions { bands: 2, ..options(100_000_000) }, "eth0", 1500);
        assert_eq!(
            lines,
            [
                "qdisc add dev eth0 root handle 5e70: tbf rate 100000000bit burst 3125 limit 1500000 overhead 24 mpu 84",
                "qdisc add dev eth0 parent 5e70:1 handle 5e7: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
                "qdisc add dev eth0 parent 5e7:2 handle 5e72: pfifo limit 1000",
                "qdisc add dev eth0 parent 5e7:1 handle 5e71: pfifo limit 1000",
            ]
        );
    }

    #[test]
    fn an_update_only_changes() {
        for shape in [Shape::Htb, Shape::Prio] {
            let lines = update(shape, &options(20_000_000), "eth0", 1500);
            assert!(lines.iter().all(|line| line.contains(" change dev eth0 ")), "{lines:#?}");
            assert!(lines[0].contains("rate 20000000bit"), "{lines:#?}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name() {
        let message = |options: InstallOptions| check(&options).expect_err("refused").to_string();
        assert!(
            message(InstallOptions { bands: 9, ..options(1_000_000) }).starts_with("bands: 9 is not between 2 and 8")
        );
        assert!(message(InstallOptions { leaf_limit_packets: 100, ..options(1_000_000) }).contains("at least 1000"));
        assert!(message(options(0)).starts_with("rate: 0 bit/s is not between"));
        check(&options(1_000_000)).expect("everything by default");
    }

    #[test]
    fn names_that_a_tool_could_misread_are_no_devices() {
        for name in ["", "-s", "a b", "a/b", "..", "a\nb", "sixteen_letters_", "\u{e9}th0"] {
            assert!(matches!(check_device_name(name), Err(BandsError::NoDevice { .. })), "{name:?}");
        }
        for name in ["lo", "eth0", "eth0.100", "enp3s0f1np1", "br-lan", "wg@x"] {
            check_device_name(name).expect(name);
        }
    }
}
