//! Reads the current state of a device from the output of `ip` and `tc`.

use serde::Deserialize;

use super::{
    error::BandsError,
    installed::{BANDS_MAJOR, BANDS_MAX, SHAPER_MAJOR, Shape},
    plan, tool,
};

/// The relevant properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub ifindex: u32,
    pub mtu_bytes: u32,
    pub gso_max_segs: u32,
    /// The driver's limit, with which a new device starts.
    pub gso_max_segs_default: u32,
}

/// The discipline at the root of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// The kernel's default.
    Default(String),
    /// A root of Serpent's bands. `bands` is `None` when some of it is missing.
    Ours { shape: Shape, bands: Option<u8>, words: String },
    /// A root configured by other software or a person.
    Foreign(String),
}

impl Root {
    /// The root as `tc` prints it.
    pub(super) fn words(&self) -> &str {
        match self {
            Self::Default(words) | Self::Ours { words, .. } | Self::Foreign(words) => words,
        }
    }
}

/// A queueing discipline as `tc -s -j qdisc show` prints it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct QdiscLine {
    pub kind: String,
    pub handle: String,
    pub dev: Option<String>,
    pub root: bool,
    pub parent: String,
    pub options: serde_json::Value,
    pub bytes: u64,
    pub packets: u64,
    pub drops: u64,
    pub backlog: u64,
    pub qlen: u64,
}

/// Queries a device.
pub(super) fn device(name: &str) -> Result<Device, BandsError> {
    plan::check_device_name(name)?;
    let text = tool::run("ip", &["-j", "-d", "link", "show", "dev", name])?;
    parse_device(&text).ok_or_else(|| BandsError::NotUnderstood {
        command: format!("ip -j -d link show dev {name}"),
        problem: format!("no device with mtu and gso_max_segs in {:?}", first_letters(&text)),
    })
}

/// Queries the disciplines of a device, or of all devices.
pub(super) fn qdiscs(device: Option<&str>) -> Result<Vec<QdiscLine>, BandsError> {
    let mut arguments = vec!["-s", "-j", "qdisc", "show"];
    if let Some(device) = device {
        plan::check_device_name(device)?;
        arguments.extend(["dev", device]);
    }
    let text = tool::run("tc", &arguments)?;
    let mut lines = parse_qdiscs(&text).map_err(|problem| BandsError::NotUnderstood {
        command: format!("tc {}", arguments.join(" ")),
        problem: format!("{problem} in {:?}", first_letters(&text)),
    })?;
    // When asked for one device, tc leaves out its name.
    for line in &mut lines {
        if line.dev.is_none() {
            line.dev = device.map(str::to_owned);
        }
    }
    Ok(lines)
}

/// The root among the disciplines of one device.
pub(super) fn root(lines: &[QdiscLine]) -> Root {
    let Some(root) = lines.iter().find(|line| line.root) else {
        return Root::Default("no queueing discipline".into());
    };
    let words = format!("{} {}", root.kind, root.handle);
    let bands_handle = format!("{BANDS_MAJOR:x}:");
    let shape = if root.kind == "htb" && root.handle == bands_handle {
        Shape::Htb
    } else if root.kind == "tbf" && root.handle == format!("{SHAPER_MAJOR:x}:") {
        Shape::Prio
    } else if root.handle == "0:" {
        return Root::Default(words);
    } else {
        return Root::Foreign(words);
    };
    let prio_there = lines.iter().any(|line| line.kind == "prio" && line.handle == bands_handle);
    // Bands are made from the last to the first, so all exist when the first one does.
    let bands = (0..BANDS_MAX).take_while(|&band| leaf(lines, band).is_some()).count() as u8;
    let complete = bands > 0 && (shape == Shape::Htb || prio_there);
    Root::Ours { shape, bands: complete.then_some(bands), words }
}

/// The FIFO of a band among the disciplines of one device.
pub(super) fn leaf(lines: &[QdiscLine], band: u8) -> Option<&QdiscLine> {
    let parent = format!("{BANDS_MAJOR:x}:{:x}", band + 1);
    lines.iter().find(|line| line.parent == parent)
}

/// The rate of Serpent's bands, in bits per second; `None` if the output does not contain it.
pub(super) fn rate_bits_per_second(device: &str, shape: Shape, lines: &[QdiscLine]) -> Result<Option<u64>, BandsError> {
    match shape {
        // tc prints no JSON for classes of HTB up to iproute2 6.1 at least.
        Shape::Htb => Ok(parse_htb_rate(&tool::run("tc", &["class", "show", "dev", device])?)),
        Shape::Prio => Ok(lines
            .iter()
            .find(|line| line.root)
            .and_then(|line| line.options.get("rate")?.as_u64())
            .map(|bytes_per_second| bytes_per_second.saturating_mul(8))),
    }
}

fn parse_device(text: &str) -> Option<Device> {
    let devices: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
    let device = devices.iter().find(|device| device.get("ifindex").is_some())?;
    let number = |name: &str| device.get(name)?.as_u64()?.try_into().ok();
    let gso_max_segs = number("gso_max_segs")?;
    Some(Device {
        ifindex: number("ifindex")?,
        mtu_bytes: number("mtu")?,
        gso_max_segs,
        // Kernels before 5.18 do not report it; 65535 was the default of all devices then.
        gso_max_segs_default: number("tso_max_segs").unwrap_or(65_535),
    })
}

fn parse_qdiscs(text: &str) -> Result<Vec<QdiscLine>, serde_json::Error> {
    // tc prints nothing, or an empty list, if there are no disciplines.
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(text)
}

fn parse_htb_rate(text: &str) -> Option<u64> {
    let class = format!("{BANDS_MAJOR:x}:{:x}", plan::LINK_MINOR);
    let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(&class))?;
    let mut words = line.split_whitespace();
    words.find(|&word| word == "rate")?;
    parse_rate(words.next()?)
}

/// A rate as tc prints it: `9712Kbit`, `10Mbit`, `128bit`.
fn parse_rate(word: &str) -> Option<u64> {
    let number = word.strip_suffix("bit")?;
    let (number, unit) = match number.as_bytes().last()? {
        b'K' => (&number[..number.len() - 1], 1_000),
        b'M' => (&number[..number.len() - 1], 1_000_000),
        b'G' => (&number[..number.len() - 1], 1_000_000_000),
        b'T' => (&number[..number.len() - 1], 1_000_000_000_000),
        _ => (number, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

fn first_letters(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<QdiscLine> {
        parse_qdiscs(text).expect("JSON")
    }

    #[test]
    fn a_root_with_handle_0_is_the_kernels_own() {
        let words = |text: &str| match root(&lines(text)) {
            Root::Default(words) => words,
            other => panic!("{other:?}"),
        };
        assert_eq!(words(r#"[{"kind":"noqueue","handle":"0:","root":true,"options":{}}]"#), "noqueue 0:");
        let multi_queue =
            r#"[{"kind":"mq","handle":"0:","root":true},{"kind":"fq_codel","handle":"0:","parent":":1"}]"#;
        assert_eq!(words(multi_queue), "mq 0:");
        assert_eq!(words(""), "no queueing discipline");
        // The hook for incoming traffic is no root.
        assert_eq!(words(r#"[{"kind":"clsact","handle":"ffff:","parent":"ffff:fff1"}]"#), "no queueing discipline");
    }

    #[test]
    fn what_somebody_configured_is_foreign_even_when_it_is_htb_or_has_our_handle() {
        for (kind, handle) in [("fq", "8001:"), ("htb", "1:"), ("fq", "5e7:"), ("tbf", "5e7:"), ("htb", "5e70:")] {
            let text = format!(r#"[{{"kind":"{kind}","handle":"{handle}","root":true}}]"#);
            assert_eq!(root(&lines(&text)), Root::Foreign(format!("{kind} {handle}")));
        }
    }

    #[test]
    fn ours_is_complete_when_band_0_is_there() {
        let with = |leaves: &str| lines(&format!(r#"[{{"kind":"htb","handle":"5e7:","root":true}}{leaves}]"#));
        let bands = |lines: &[QdiscLine]| match root(lines) {
            Root::Ours { shape: Shape::Htb, bands, .. } => bands,
            other => panic!("{other:?}"),
        };
        assert_eq!(bands(&with("")), None);
        assert_eq!(bands(&with(r#",{"kind":"pfifo","handle":"5e72:","parent":"5e7:2"}"#)), None);
        let both =
            r#",{"kind":"pfifo","handle":"5e72:","parent":"5e7:2"},{"kind":"pfifo","handle":"5e71:","parent":"5e7:1"}"#;
        assert_eq!(bands(&with(both)), Some(2));
    }

    #[test]
    fn prio_is_incomplete_without_its_prio() {
        let leaves =
            r#"{"kind":"pfifo","handle":"5e71:","parent":"5e7:1"},{"kind":"tbf","handle":"5e70:","root":true}"#;
        assert!(matches!(root(&lines(&format!("[{leaves}]"))), Root::Ours { shape: Shape::Prio, bands: None, .. }));
        let all = format!(r#"[{leaves},{{"kind":"prio","handle":"5e7:","parent":"5e70:1"}}]"#);
        assert!(matches!(root(&lines(&all)), Root::Ours { shape: Shape::Prio, bands: Some(1), .. }));
    }

    #[test]
    fn the_links_rate_is_read_from_the_text_of_its_class() {
        let text = "class htb 5e7:1 parent 5e7:100 leaf 5e71: prio 0 rate 128bit ceil 9712Kbit burst 1600b cburst 1597b\n\
                    class htb 5e7:100 root rate 9712Kbit overhead 24 ceil 9712Kbit burst 1597b cburst 1597b\n";
        assert_eq!(parse_htb_rate(text), Some(9_712_000));
        assert_eq!(parse_htb_rate("class htb 5e7:1 parent 5e7:100 rate 128bit"), None);
        assert_eq!(parse_htb_rate(""), None);
    }

    #[test]
    fn rates_are_read_as_tc_writes_them() {
        let rates = [("128bit", 128), ("9712Kbit", 9_712_000), ("10Mbit", 10_000_000), ("1Gbit", 1_000_000_000)];
        for (word, rate) in rates {
            assert_eq!(parse_rate(word), Some(rate));
        }
        for word in ["", "bit", "Kbit", "10", "-1bit", "99999999999999999999Gbit"] {
            assert_eq!(parse_rate(word), None, "{word}");
        }
    }

    #[test]
    fn a_device_needs_its_numbers() {
        let text = r#"[{},{"ifindex":3,"mtu":1500,"gso_max_segs":1,"tso_max_segs":65535}]"#;
        let device = Device { ifindex: 3, mtu_bytes: 1500, gso_max_segs: 1, gso_max_segs_default: 65_535 };
        assert_eq!(parse_device(text), Some(device));
        assert_eq!(parse_device("[{}]"), None);
        assert_eq!(parse_device("not JSON"), None);
    }
}
