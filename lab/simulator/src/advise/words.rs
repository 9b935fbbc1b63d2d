//! Formats numbers for people.

/// Formats a time, given in milliseconds.
pub fn time(ms: f64) -> String {
    match ms {
        _ if ms < 0.0995 => format!("{:.0} µs", ms * 1e3),
        _ if ms < 9.95 => format!("{ms:.1} ms"),
        _ if ms < 999.5 => format!("{ms:.0} ms"),
        _ if ms < 9_950.0 => format!("{:.1} s", ms / 1e3),
        _ if ms < 119_500.0 => format!("{:.0} s", ms / 1e3),
        _ if ms < 7_170_000.0 => format!("{:.0} min", ms / 6e4),
        _ => format!("{:.0} h", ms / 3.6e6),
    }
}

/// Formats two times to compare, with enough digits to show their difference, if they differ.
pub fn times(one: f64, other: f64) -> [String; 2] {
    let short = [one, other].map(time);
    if short[0] != short[1] {
        return short;
    }
    // The two look alike, so both are shown in the same unit.
    let (unit_ms, unit) = match one.max(other) {
        most if most < 0.0995 => (1e-3, "µs"),
        most if most < 999.5 => (1.0, "ms"),
        most if most < 119_500.0 => (1e3, "s"),
        most if most < 7_170_000.0 => (6e4, "min"),
        _ => (3.6e6, "h"),
    };
    let with = |digits: usize| [one, other].map(|ms| format!("{:.digits$} {unit}", ms / unit_ms));
    (1..=3).map(with).find(|[one, other]| one != other).unwrap_or(short)
}

/// Formats a size, with a decimal prefix.
pub fn bytes(bytes: f64) -> String {
    let (value, unit) = match bytes {
        _ if bytes < 999.5 => return format!("{bytes:.0} B"),
        _ if bytes < 999_500.0 => (bytes / 1e3, "kB"),
        _ if bytes < 999_500_000.0 => (bytes / 1e6, "MB"),
        _ if bytes < 999.5e9 => (bytes / 1e9, "GB"),
        _ => (bytes / 1e12, "TB"),
    };
    if value < 9.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// Formats a rate, in bits per second.
pub fn rate(bits_per_second: u64) -> String {
    let bits = bits_per_second as f64;
    match bits {
        _ if bits < 1e6 => format!("{} kbit/s", bits / 1e3),
        _ if bits < 1e9 => format!("{} Mbit/s", bits / 1e6),
        _ => format!("{} Gbit/s", bits / 1e9),
    }
}

/// Formats a share in percent.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if percent == 0.0 => "0 %".to_owned(),
        _ if percent < 0.01 => "under 0.01 %".to_owned(),
        _ if percent < 0.995 => format!("{percent:.2} %"),
        _ if percent < 9.95 || (99.0..99.95).contains(&percent) => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// Formats a number with two or three digits.
pub fn digits(value: f64) -> String {
    match value.abs() {
        size if size < 0.00095 => format!("{value:.4}"),
        size if size < 0.0995 => format!("{value:.3}"),
        size if size < 1.995 => format!("{value:.2}"),
        size if size < 19.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_their_unit() {
        let spans = [0.02, 3.21, 42.4, 999.9, 1500.0, 64_000.0, 600_000.0, 9e6].map(time);
        assert_eq!(spans, ["20 µs", "3.2 ms", "42 ms", "1.0 s", "1.5 s", "64 s", "10 min", "2 h"]);
        assert_eq!(times(104_000.0, 90_000.0), ["104 s", "90 s"]);
        assert_eq!(times(502_000.0, 474_000.0), ["8.4 min", "7.9 min"]);
        assert_eq!(times(42.44, 42.41), ["42.44 ms", "42.41 ms"]);
        assert_eq!(times(3.21, 3.21), ["3.2 ms", "3.2 ms"]);
        let sizes = [0.0, 999.0, 999.6, 1500.0, 19_000.0, 1.27e6, 4e9].map(bytes);
        assert_eq!(sizes, ["0 B", "999 B", "1.0 kB", "1.5 kB", "19 kB", "1.3 MB", "4.0 GB"]);
        assert_eq!([160_000, 12_500_000, 10_000_000_000].map(rate), ["160 kbit/s", "12.5 Mbit/s", "10 Gbit/s"]);
        let shares = [0.0, 0.000_01, 0.0012, 0.05, 0.42, 0.997, 0.9999].map(percent);
        assert_eq!(shares, ["0 %", "under 0.01 %", "0.12 %", "5.0 %", "42 %", "99.7 %", "100 %"]);
    }
}
