//! Parses values in the form that people write them, the same for flags and the configuration file.

mod gateway;

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    num::{NonZeroU32, NonZeroUsize},
    str::FromStr,
    time::Duration,
};

use bytesize::ByteSize;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use kernel::bands::Qdisc;
use scheduler::{Order, Rate, uplink::read_stretch};
use server::config::{Enforce, LogFormat, SymlinkPolicy, UplinkRate};

pub use self::gateway::*;

/// An address to listen on, as given. TLS may be left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAt {
    /// The address.
    pub address: SocketAddr,
    /// Whether `https://` or `http://` stands before it; `None` uses TLS if there is a certificate.
    pub tls: Option<bool>,
}

/// Reads `127.0.0.1:8080`, `[::1]:8080`, `:8080` or `localhost:8080`, each with or without `http://` or
/// `https://`.
pub fn listen(text: &str) -> Result<ListenAt, String> {
    let (tls, rest) = match text {
        _ if text.starts_with("http://") => (Some(false), &text[7..]),
        _ if text.starts_with("https://") => (Some(true), &text[8..]),
        _ => (None, text),
    };
    address(rest.strip_suffix('/').unwrap_or(rest)).map(|address| ListenAt { address, tls })
}

/// Reads a socket address; `:8080` is that port on all addresses, IPv6 and IPv4.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let port = |port: &str| {
        port.parse::<u16>()
            .map_err(|_| format!("`{port}` is not a port: give a number from 0 (any free port) to 65535"))
    };
    if let Some(rest) = text.strip_prefix(':') {
        return Ok((Ipv6Addr::UNSPECIFIED, port(rest)?).into());
    }
    if let Some(rest) = text.strip_prefix("localhost:") {
        return Ok((Ipv4Addr::LOCALHOST, port(rest)?).into());
    }
    text.parse().map_err(|_| {
        format!(
            "`{text}` is not an address to listen on: give an IP address and a port, as in `127.0.0.1:8080` or \
             `[::1]:8080`, or `:8080` for all addresses"
        )
    })
}

/// Reads an address, or `off`.
pub fn address_or_off(text: &str) -> Result<Option<SocketAddr>, String> {
    or_off(text, address)
}

/// Reads `auto`, `off` or a rate.
pub fn uplink_rate(text: &str) -> Result<UplinkRate, String> {
    match text {
        "auto" => Ok(UplinkRate::Auto),
        "off" => Ok(UplinkRate::Off),
        _ => rate(text).map(UplinkRate::Given).map_err(|error| format!("{error}; or write `auto` or `off`")),
    }
}

/// Reads a rate.
pub fn rate(text: &str) -> Result<Rate, String> {
    Rate::from_str(text).map_err(|error| error.to_string())
}

/// Reads a size in bytes: `4096`, `128MiB`, `1.5GB`.
pub fn size(text: &str) -> Result<u64, String> {
    text.trim().parse::<ByteSize>().map(|size| size.as_u64()).map_err(|_| {
        format!("`{text}` is not a size: give bytes, as in `4096`, `32KiB`, `128MiB` (binary) or `10MB` (decimal)")
    })
}

/// Reads a size in bytes, or `off` for none.
pub fn size_or_off(text: &str) -> Result<u64, String> {
    or_off(text, size).map(Option::unwrap_or_default)
}

/// The longest duration. A clock can be advanced by it without an overflow.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// Reads a duration above zero: `500ms`, `30s`, `1m 30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("a time-out of nothing lets nothing through: give a duration above zero".into()),
        Ok(duration) if duration > LONGEST => {
            Err(format!("`{text}` is longer than anybody waits: give 100 years at most"))
        }
        Ok(duration) => Ok(duration),
        Err(_) => Err(format!("`{text}` is not a duration: give a number and a unit, as in `500ms`, `30s` or `1m`")),
    }
}

/// Reads a duration of zero or more.
pub fn duration_or_zero(text: &str) -> Result<Duration, String> {
    if matches!(text, "0" | "0s" | "0ms") { Ok(Duration::ZERO) } else { duration(text) }
}

/// Reads a duration, or `off`.
pub fn duration_or_off(text: &str) -> Result<Option<Duration>, String> {
    or_off(text, duration)
}

/// Reads the largest stretch over fair sharing, or `off`.
pub fn stretch_or_off(text: &str) -> Result<Option<f64>, String> {
    or_off(text, |text| {
        read_stretch(text).ok_or_else(|| {
            format!(
                "`{text}` is not a stretch: give a number from 1 on (2 = at most twice the time under fair sharing), or \
                 `off`"
            )
        })
    })
}

/// Reads a share above 0 and up to 1.
pub fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!("`{text}` is not a share: give a number above 0 and up to 1, as in `0.97`")),
    }
}

/// Reads a number of worker threads; `auto` is one for every CPU this process may use.
pub fn workers(text: &str) -> Result<NonZeroUsize, String> {
    match text {
        // One CPU is left to the kernel's network work, which is half of the work of serving over a busy
        // uplink.
        "auto" => {
            let cpus = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
            Ok(NonZeroUsize::new(cpus.get() - 1).unwrap_or(NonZeroUsize::MIN))
        }
        _ => match text.parse::<NonZeroUsize>() {
            Ok(workers) if workers.get() <= 1024 => Ok(workers),
            _ => Err(format!("`{text}` is not a number of workers: give `auto` or a number from 1 to 1024")),
        },
    }
}

/// Reads a count from `1` to `largest`.
pub fn count(text: &str, largest: u64) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(count) if (1..=largest).contains(&count) => Ok(count),
        Err(_) if !text.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(format!("`{text}` is not a whole number: give a number from 1 to {largest}"))
        }
        _ => Err(format!("`{text}` is out of range: give a number from 1 to {largest}")),
    }
}

/// Reads a number of connections, or `auto`.
pub fn connections(text: &str) -> Result<Option<u64>, String> {
    if text == "auto" {
        return Ok(None);
    }
    count(text, 10_000_000).map(Some).map_err(|error| format!("{error}; or `auto`"))
}

/// Reads a count from 1 on, or `off` for none.
pub fn count_or_off(text: &str, largest: u64) -> Result<Option<u64>, String> {
    or_off(text, |text| count(text, largest))
}

/// Reads a limit on a number of things, or `off`.
pub fn limit_or_off(text: &str) -> Result<Option<NonZeroU32>, String> {
    count_or_off(text, 1_000_000).map(|count| count.and_then(|count| NonZeroU32::new(count as u32)))
}

/// A closed set of values, each with a name and a line of help.
pub trait Named: Copy + Send + Sync + 'static {
    /// All values, with their names and meanings.
    const NAMED: &'static [(Self, &'static str, &'static str)];

    /// The value of that name.
    fn named(name: &str) -> Result<Self, String> {
        Self::NAMED.iter().find(|entry| entry.1 == name).map(|entry| entry.0).ok_or_else(|| {
            let names: Vec<_> = Self::NAMED.iter().map(|entry| format!("`{}`", entry.1)).collect();
            format!("`{name}` is not one of {}", names.join(", "))
        })
    }
}

/// A parser for a closed set of values. It lists them with their meanings in the help and in completions.
pub fn named<T: Named>() -> impl TypedValueParser<Value = T> {
    let values = T::NAMED.iter().map(|(_, name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).try_map(|name| T::named(&name))
}

impl Named for Order {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Fair, Self::Fair.name(), "Everybody in turn, as other servers do"),
        (Self::Fifo, Self::Fifo.name(), "First come, first served"),
        (Self::Srpt, Self::Srpt.name(), "Fewest bytes left first: lowest mean response time"),
        (Self::Srrt, Self::Srrt.name(), "Shortest remaining response time: round trips and windows counted in"),
        (Self::Stert, Self::Stert.name(), "Shortest total estimated response time"),
        (Self::Swift, Self::Swift.name(), "Size, and distance of the client in round trips"),
        (Self::Fcf, Self::Fcf.name(), "Fastest connection first: size over throughput"),
        (Self::Las, Self::Las.name(), "Least sent so far first: needs no sizes"),
        (Self::Fsp, Self::Fsp.name(), "Whom fair sharing would finish first: nobody later than under fair sharing"),
        (
            Self::QuickFix,
            Self::QuickFix.name(),
            "Two bands by size: small responses before large ones, in turn within a band",
        ),
    ];
}

impl Named for Enforce {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Server, "server", "By pacing in this process: exact order, no privileges"),
        (Self::Kernel, "kernel", "By the kernel's priority bands, set up with `serpent uplink install`"),
        (Self::Off, "off", "By nobody"),
    ];
}

impl Named for SymlinkPolicy {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Never, "never", "A path with a symbolic link in it answers 404"),
        (Self::WithinRoot, "within-root", "Links are followed as long as they end within the root"),
        (Self::Follow, "follow", "Links are followed wherever they lead"),
    ];
}

impl Named for LogFormat {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Combined, "combined", "NCSA combined, followed by class, response time and slowdown"),
        (Self::Json, "json", "One JSON object a line"),
    ];
}

impl Named for Qdisc {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Auto, "auto", "The first of these that this kernel has"),
        (Self::Htb, "htb", "HTB with a class for each band"),
        (Self::Prio, "prio", "prio under a TBF"),
    ];
}

fn or_off<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == "off" {
        return Ok(None);
    }
    read(text).map(Some).map_err(|error| if error.contains("`off`") { error } else { format!("{error}; or `off`") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_people_write_them() {
        let read = |text| listen(text).map(|at| (at.address.to_string(), at.tls));
        assert_eq!(read("127.0.0.1:8080"), Ok(("127.0.0.1:8080".into(), None)));
        assert_eq!(read("[::1]:443"), Ok(("[::1]:443".into(), None)));
        assert_eq!(read(":80"), Ok(("[::]:80".into(), None)));
        assert_eq!(read("localhost:0"), Ok(("127.0.0.1:0".into(), None)));
        assert_eq!(read("https://0.0.0.0:443/"), Ok(("0.0.0.0:443".into(), Some(true))));
        assert_eq!(read("http://:80"), Ok(("[::]:80".into(), Some(false))));
    }

    #[test]
    fn what_is_not_an_address_says_what_to_write() {
        for text in ["", "8080", "127.0.0.1", "example.org:80", "[::1]:80x", "ftp://127.0.0.1:21"] {
            assert!(listen(text).unwrap_err().contains("give an IP address and a port"), "{text}");
        }
        assert!(listen(":65536").unwrap_err().contains("not a port"));
    }

    #[test]
    fn sizes_and_durations() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("32KiB"), Ok(32 * 1024));
        assert_eq!(size(" 1.5 MB "), Ok(1_500_000));
        assert_eq!(size_or_off("off"), Ok(0));
        for text in ["", "-1", "10 parsec", "MiB", "1.2.3KiB"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration_or_off("off"), Ok(None));
        assert_eq!(duration_or_zero("0s"), Ok(Duration::ZERO));
        for text in ["", "30", "0s", "-1s", "soon"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_have_borders() {
        assert_eq!(stretch_or_off("off"), Ok(None));
        assert_eq!(stretch_or_off("2.5"), Ok(Some(2.5)));
        assert!(stretch_or_off("0.5").is_err() && stretch_or_off("inf").is_err() && stretch_or_off("NaN").is_err());
        assert!(share("0").is_err() && share("1.01").is_err() && share("NaN").is_err());
        assert_eq!(share("1"), Ok(1.0));
        assert!(workers("0").is_err() && workers("1025").is_err());
        assert_eq!(workers("2").unwrap().get(), 2);
        assert!(count("0", 5).is_err() && count("6", 5).is_err());
    }

    #[test]
    fn every_order_is_named_as_the_scheduler_names_it() {
        let names: Vec<_> = Order::NAMED.iter().map(|entry| entry.0).collect();
        assert_eq!(names, Order::ALL);
        assert_eq!(Order::named("quick-fix"), Ok(Order::QuickFix));
        assert!(Order::named("quickest").unwrap_err().contains("`srpt`"));
    }
}
