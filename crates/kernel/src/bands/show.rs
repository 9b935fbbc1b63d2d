//! Reads the counters of bands.

use serde::Deserialize;

use super::{error::BandsError, tool};

/// Handle of the root, and major number of the classes.
const BANDS_MAJOR: u32 = 0x05e7;
/// Minor number of the class of the whole link.
const LINK_MINOR: u32 = 0x100;
/// Bands of a device.
const BANDS: u8 = 8;

/// The bands of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The rate at which the bands are drained, in bits per second, rounded down to the digits that `tc` prints.
    pub rate_bits_per_second: Option<u64>,
    /// The bands in order of precedence; empty when they are not Serpent's.
    pub bands: Vec<BandShown>,
}

/// Counters of one band since it was made. Bytes are as the kernel counts them, with Ethernet headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandShown {
    /// Its number: 0 goes first.
    pub band: u8,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets dropped because too many waited. Normally always 0: a starved response whose packets are dropped for
    /// minutes is cut off.
    pub dropped_packets: u64,
    /// Packets waiting.
    pub backlog_packets: u64,
    /// Bytes waiting.
    pub backlog_bytes: u64,
}

/// A queueing discipline as `tc -s -j qdisc show` prints it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct QdiscLine {
    parent: String,
    bytes: u64,
    packets: u64,
    drops: u64,
    backlog: u64,
    qlen: u64,
}

/// Shows the bands of a device. Needs no privilege.
pub fn show(device: &str) -> Result<Shown, BandsError> {
    let arguments = ["-s", "-j", "qdisc", "show", "dev", device];
    let text = tool::run("tc", &arguments)?;
    let bands = bands(&text).map_err(|problem| BandsError::NotUnderstood {
        command: format!("tc {}", arguments.join(" ")),
        problem: format!("{problem} in {:?}", text.chars().take(200).collect::<String>()),
    })?;
    // tc prints no JSON for classes of HTB up to iproute2 6.1 at least.
    let rate_bits_per_second = parse_htb_rate(&tool::run("tc", &["class", "show", "dev", device])?);
    Ok(Shown { rate_bits_per_second, bands })
}

fn bands(text: &str) -> Result<Vec<BandShown>, serde_json::Error> {
    // tc prints nothing, or an empty list, if there are no disciplines.
    let lines: Vec<QdiscLine> = if text.trim().is_empty() { Vec::new() } else { serde_json::from_str(text)? };
    let shown = |band: u8| {
        let parent = format!("{BANDS_MAJOR:x}:{:x}", band + 1);
        let line = lines.iter().find(|line| line.parent == parent)?;
        Some(BandShown {
            band,
            packets: line.packets,
            bytes: line.bytes,
            dropped_packets: line.drops,
            backlog_packets: line.qlen,
            backlog_bytes: line.backlog,
        })
    };
    Ok((0..BANDS).filter_map(shown).collect())
}

fn parse_htb_rate(text: &str) -> Option<u64> {
    let class = format!("{BANDS_MAJOR:x}:{LINK_MINOR:x}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_the_queues_below_their_classes() {
        let text = r#"[{"kind":"htb","handle":"5e7:","root":true,"packets":9},
            {"kind":"pfifo","handle":"5e72:","parent":"5e7:2","bytes":30,"packets":2,"drops":1,"backlog":10,"qlen":3},
            {"kind":"pfifo","handle":"5e71:","parent":"5e7:1"}]"#;
        let shown = bands(text).expect("JSON");
        assert_eq!(shown.len(), 2);
        assert_eq!((shown[0].band, shown[0].packets), (0, 0));
        let second =
            BandShown { band: 1, packets: 2, bytes: 30, dropped_packets: 1, backlog_packets: 3, backlog_bytes: 10 };
        assert_eq!(shown[1], second);
        assert_eq!(bands(" ").expect("nothing"), []);
        bands("x").expect_err("no JSON");
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
}
