//! Rates, sizes, durations, counts, shares.

use std::{
    num::{NonZeroU32, NonZeroU64, NonZeroUsize},
    str::FromStr as _,
    time::Duration,
};

use bytesize::ByteSize;
use scheduler::{Rate, uplink::read_stretch};
use server::config::UplinkRate;

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

/// Reads a largest size of bodies. A small number without a unit is a unit forgotten; `0` takes no bodies.
pub fn body_size(text: &str) -> Result<u64, String> {
    match text.trim().parse::<u64>() {
        Ok(bytes @ 1..1024) => Err(format!("`{text}` is {bytes} bytes: write the unit, as in `{bytes}MiB`")),
        _ => size(text),
    }
}

/// Reads a size in bytes, or `off` for none.
pub fn size_or_off(text: &str) -> Result<u64, String> {
    or_off(text, size).map(Option::unwrap_or_default)
}

/// Reads a size of memory, or `off` for none. A small number without a unit is a unit forgotten.
pub fn memory_or_off(text: &str) -> Result<u64, String> {
    const LEAST_WITHOUT_UNIT: u64 = 64 * 1024;
    match text.trim().parse::<u64>() {
        Ok(bytes) if (1..LEAST_WITHOUT_UNIT).contains(&bytes) => {
            Err(format!("`{text}` is {bytes} bytes: write the unit, as in `{bytes}MiB`, or `off`"))
        }
        _ => size_or_off(text),
    }
}

/// Reads the largest size of a response head.
pub fn response_head(text: &str) -> Result<usize, String> {
    match size(text) {
        Ok(bytes @ 1024..=1_048_576) => Ok(bytes as usize),
        Ok(_) => Err("a response head takes from 1KiB to 1MiB".to_owned()),
        Err(message) => Err(message),
    }
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
        Err(_) => {
            let meant = match text.parse::<u32>() {
                Ok(seconds) => format!("`{seconds}s` is {seconds} seconds; "),
                Err(_) => String::new(),
            };
            Err(format!("`{text}` is not a duration: {meant}give a number and a unit, as in `500ms`, `30s` or `1m`"))
        }
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

/// The written form of a duration.
pub fn show_duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string().replace(' ', "")
}

/// Nanoseconds; all there can be for a longer duration.
pub fn to_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
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

/// Reads a rate of requests, as in `10/s`, `600/m` or `1000/h`: a number, and the time for it.
pub fn request_rate(text: &str) -> Result<(NonZeroU32, Duration), String> {
    let read = || {
        let (number, unit) = text.split_once('/')?;
        let number: NonZeroU32 = number.trim_end().trim_end_matches('r').parse().ok()?;
        let seconds = match unit.trim_start() {
            "s" => 1,
            "m" | "min" => 60,
            "h" => 3600,
            _ => return None,
        };
        (number.get() <= 1_000_000).then_some((number, Duration::from_secs(seconds)))
    };
    read().ok_or_else(|| {
        let meant = match text.parse::<u32>() {
            Ok(number) => format!("`{number}/s` is {number} in a second; "),
            Err(_) => String::new(),
        };
        format!("`{text}` is not a rate of requests: {meant}give up to a million, as in `10/s`, `600/m` or `1000/h`")
    })
}

/// Reads a number of bytes in a second, as in `500KB/s`.
pub fn byte_rate(text: &str) -> Result<NonZeroU64, String> {
    let wrong = || format!("`{text}` is not a rate of bytes: give a size for a second, as in `500KB/s` or `1MiB/s`");
    let size_of = text.strip_suffix("/s").ok_or_else(wrong)?;
    least_bytes(size_of.trim_end()).map_err(|_| wrong())
}

/// Reads a size of at least one byte, and less than an exbibyte.
pub fn least_bytes(text: &str) -> Result<NonZeroU64, String> {
    let bytes = size(text)?;
    NonZeroU64::new(bytes)
        .filter(|bytes| bytes.get() < 1 << 60)
        .ok_or_else(|| format!("`{text}` is no size from 1 byte to 1 EiB"))
}

/// Reads a share as [`share`] does, or `off`.
pub fn share_or_off(text: &str) -> Result<Option<f64>, String> {
    or_off(text, share)
}

/// Reads a share in percent, as in `1%`, and returns a number from 0 to 1.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    match number {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err(format!("`{text}` is not a share: give percent from 0 to 100, as in `1%` or `0.1%`")),
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

/// Reads a threshold of the counter of probing requests that shrinks a window: 0 or more.
pub fn shrink_above(text: &str) -> Result<i32, String> {
    let read = text.parse().ok().filter(|counter| (0..=1000).contains(counter));
    read.ok_or_else(|| format!("`{text}` is not a whole number from 0 to 1000"))
}

/// Reads a threshold of the counter of probing requests that widens a window: 0 or less.
pub fn grow_below(text: &str) -> Result<i32, String> {
    let read = text.parse().ok().filter(|counter| (-1000..=0).contains(counter));
    read.ok_or_else(|| format!("`{text}` is not a whole number from -1000 to 0"))
}

/// Reads a value, or `off` for none.
pub fn or_off<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == "off" {
        return Ok(None);
    }
    read(text).map(Some).map_err(|error| if error.contains("`off`") { error } else { format!("{error}; or `off`") })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((share_or_off("off"), share_or_off("0.97")), (Ok(None), Ok(Some(0.97))));
        assert_eq!((percent("1%"), percent("0.5 %"), percent("100%")), (Ok(0.01), Ok(0.005), Ok(1.0)));
        for text in ["1", "101%", "-1%", "NaN%"] {
            assert!(percent(text).is_err(), "{text}");
        }
        assert!(workers("0").is_err() && workers("1025").is_err());
        assert_eq!(workers("2").unwrap().get(), 2);
        assert!(count("0", 5).is_err() && count("6", 5).is_err());
    }
}
