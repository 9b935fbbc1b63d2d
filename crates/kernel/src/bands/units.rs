//! Numbers with their units, as shown to the operator.

/// `9.7 Mbit/s`.
pub(super) fn rate(bits_per_second: u64) -> String {
    format!("{}bit/s", metric(bits_per_second))
}

/// `1 segment`, `4 segments`.
pub(super) fn segments(count: u32) -> String {
    format!("{} segment{}", thousands(count.into()), if count == 1 { "" } else { "s" })
}

/// `96.4 kB`.
pub(super) fn bytes(count: u64) -> String {
    format!("{}B", metric(count))
}

/// Four digits at most, with the unit's prefix: `9.7 M`, `512 `, `1.234 G`.
fn metric(number: u64) -> String {
    let units = [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    let Some((unit, prefix)) = units.into_iter().find(|&(unit, _)| number >= unit) else {
        return format!("{number} ");
    };
    let digits = match number / unit {
        0..10 => 3,
        10..100 => 2,
        _ => 1,
    };
    let text = format!("{:.digits$}", number as f64 / unit as f64);
    format!("{} {prefix}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// `1,234,567`.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
