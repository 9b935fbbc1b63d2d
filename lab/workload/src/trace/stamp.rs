//! Parses times as logs write them.

use time::{Date, Month};

/// A time, and the resolution of its written form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Nanoseconds since 1970 UTC.
    pub at_ns: u64,
    /// Nanoseconds between two stamps of this form: a second, a millisecond, a minute.
    pub tick_ns: u64,
}

/// The unit of a plain number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Guessed from the size of the number: seconds below 10^11 (the year 5138), then milliseconds,
    /// microseconds and nanoseconds.
    #[default]
    Guessed,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
}

const SECOND_NS: u64 = 1_000_000_000;
/// Julian day of 1970-01-01.
const EPOCH_JULIAN_DAY: i64 = 2_440_588;

/// Reads `01/Aug/1995:00:00:01 -0400`, `2022-03-09T22:10:01.25Z` (or with a space, or slashes), and plain
/// numbers such as `1406851200.123`. Each may be in brackets.
///
/// Seconds and their fraction may be missing. Without a zone the time is UTC. Returns `None` for text that is
/// not a time, and for times before 1970.
pub fn parse(text: &[u8], unit: Unit) -> Option<Stamp> {
    let text = text.trim_ascii();
    let text = text.strip_prefix(b"[").map_or(text, |inner| inner.strip_suffix(b"]").unwrap_or(inner));
    let mut scan = Scan(text);
    match text.get(4) {
        Some(b'-' | b'/') if text[..4].iter().all(u8::is_ascii_digit) => {
            let year = scan.digits(4, 4)?;
            scan.0 = &scan.0[1..];
            let month = u8::try_from(scan.digits(1, 2)?).ok()?;
            scan.any_of(b"-/")?;
            let day = scan.digits(1, 2)?;
            scan.any_of(b"T t")?;
            scan.clock(date(year, Month::try_from(month).ok()?, day)?)
        }
        _ if matches!(text.get(1..3), Some([b'/', _] | [_, b'/'])) => parse_common(text),
        _ => epoch(text, unit),
    }
}

/// Reads the time of the Common Log Format, without its brackets: `01/Aug/1995:00:00:01 -0400`.
pub fn parse_common(text: &[u8]) -> Option<Stamp> {
    let mut scan = Scan(text);
    let day = scan.digits(1, 2)?;
    scan.any_of(b"/")?;
    let month = scan.month()?;
    scan.any_of(b"/")?;
    let year = scan.digits(4, 4)?;
    scan.any_of(b": ")?;
    scan.clock(date(year, month, day)?)
}

/// Reads a number of seconds or parts of them since 1970, with or without a fraction.
pub fn epoch(text: &[u8], unit: Unit) -> Option<Stamp> {
    let dot = memchr::memchr(b'.', text);
    let whole = super::text::number(dot.map_or(text, |dot| &text[..dot]))?;
    let unit_ns = match unit {
        Unit::Seconds => SECOND_NS,
        Unit::Milliseconds => 1_000_000,
        Unit::Microseconds => 1_000,
        Unit::Nanoseconds => 1,
        Unit::Guessed if whole >= 100_000_000_000_000_000 => 1,
        Unit::Guessed if whole >= 100_000_000_000_000 => 1_000,
        Unit::Guessed if whole >= 100_000_000_000 => 1_000_000,
        Unit::Guessed => SECOND_NS,
    };
    let (part_ns, tick_ns) = match dot {
        Some(dot) => fraction(&text[dot + 1..], unit_ns)?,
        None => (0, unit_ns),
    };
    Some(Stamp { at_ns: whole.checked_mul(unit_ns)?.checked_add(part_ns)?, tick_ns })
}

/// Returns the value and the resolution of the digits after the point, in nanoseconds. Digits below a
/// nanosecond are dropped.
fn fraction(digits: &[u8], unit_ns: u64) -> Option<(u64, u64)> {
    let (mut value, mut tick) = (0, unit_ns);
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        if tick >= 10 {
            tick /= 10;
            value += u64::from(digit - b'0') * tick;
        }
    }
    Some((value, tick))
}

fn date(year: u32, month: Month, day: u32) -> Option<Date> {
    Date::from_calendar_date(i32::try_from(year).ok()?, month, u8::try_from(day).ok()?).ok()
}

/// The text that is still to be read.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn digits(&mut self, least: usize, most: usize) -> Option<u32> {
        let count = self.0.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
        if count < least {
            return None;
        }
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        Some(digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
    }

    fn any_of(&mut self, bytes: &[u8]) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        bytes.contains(first).then_some(())
    }

    fn month(&mut self) -> Option<Month> {
        let (name, rest) = self.0.split_at_checked(3)?;
        self.0 = rest;
        Some(
            match [name[0].to_ascii_lowercase(), name[1].to_ascii_lowercase(), name[2].to_ascii_lowercase()].as_ref() {
                b"jan" => Month::January,
                b"feb" => Month::February,
                b"mar" => Month::March,
                b"apr" => Month::April,
                b"may" => Month::May,
                b"jun" => Month::June,
                b"jul" => Month::July,
                b"aug" => Month::August,
                b"sep" => Month::September,
                b"oct" => Month::October,
                b"nov" => Month::November,
                b"dec" => Month::December,
                _ => return None,
            },
        )
    }

    /// Reads the rest, a time of day and a zone: `HH:MM[:SS[.F]][ ][ZONE]`.
    fn clock(mut self, date: Date) -> Option<Stamp> {
        let hour = self.digits(2, 2)?;
        self.any_of(b":")?;
        let minute = self.digits(2, 2)?;
        let (mut second, mut part_ns, mut tick_ns) = (0, 0, 60 * SECOND_NS);
        if self.0.first() == Some(&b':') {
            self.0 = &self.0[1..];
            second = self.digits(2, 2)?;
            tick_ns = SECOND_NS;
            if let Some(b'.' | b',') = self.0.first() {
                let end = self.0[1..].iter().take_while(|byte| byte.is_ascii_digit()).count() + 1;
                (part_ns, tick_ns) = fraction(&self.0[1..end], SECOND_NS)?;
                self.0 = &self.0[end..];
            }
        }
        // Second 60 is a leap second. It coincides with the next second, as in POSIX time.
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let days = i64::from(date.to_julian_day()) - EPOCH_JULIAN_DAY;
        let local_s = days * 86_400 + i64::from(hour * 3600 + minute * 60 + second);
        let at_s = u64::try_from(local_s - self.zone_s()?).ok()?;
        Some(Stamp { at_ns: at_s.checked_mul(SECOND_NS)?.checked_add(part_ns)?, tick_ns })
    }

    /// Reads the rest, a zone, in seconds east of Greenwich. An empty rest is Greenwich.
    fn zone_s(mut self) -> Option<i64> {
        self.0 = self.0.trim_ascii();
        let sign = match self.0 {
            b"" | b"Z" | b"z" | b"UTC" | b"GMT" => return Some(0),
            [b'+', ..] => 1,
            [b'-', ..] => -1,
            _ => return None,
        };
        self.0 = &self.0[1..];
        let hours = self.digits(2, 2)?;
        if self.0.first() == Some(&b':') {
            self.0 = &self.0[1..];
        }
        let minutes = if self.0.is_empty() { 0 } else { self.digits(2, 2)? };
        (self.0.is_empty() && hours < 24 && minutes < 60).then(|| sign * i64::from(hours * 3600 + minutes * 60))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Option<Stamp> {
        parse(text.as_bytes(), Unit::Guessed)
    }

    /// Converts seconds to nanoseconds. All times in these tests are whole milliseconds.
    fn ns(seconds: f64) -> u64 {
        (seconds * 1e3).round() as u64 * 1_000_000
    }

    #[test]
    fn times_are_read_as_servers_write_them() {
        for (text, at_s, tick_s) in [
            // The first line of the NASA log, and the same time in other forms (`date -d ... +%s`).
            ("01/Aug/1995:00:00:01 -0400", 807_249_601.0, 1.0),
            ("[01/Aug/1995:00:00:01 -0400]", 807_249_601.0, 1.0),
            ("1/aug/1995:04:00:01 +0000", 807_249_601.0, 1.0),
            ("01/Aug/1995:00:00:01 -04", 807_249_601.0, 1.0),
            ("01/Aug/1995:04:00:01", 807_249_601.0, 1.0),
            ("01/Aug/1995:04:00:01.250 +0000", 807_249_601.25, 0.001),
            ("01/Aug/1995:04:00 +0000", 807_249_600.0, 60.0),
            ("1995-08-01T04:00:01Z", 807_249_601.0, 1.0),
            ("1995-08-01T00:00:01-04:00", 807_249_601.0, 1.0),
            ("1995-08-01 09:30:01,5 +0530", 807_249_601.5, 0.1),
            ("1995/08/01 04:00:01", 807_249_601.0, 1.0),
            ("807249601", 807_249_601.0, 1.0),
            ("807249601.125", 807_249_601.125, 0.001),
            ("807249601125", 807_249_601.125, 0.001),
            ("807249601125000", 807_249_601.125, 1e-6),
            ("807249601125000000", 807_249_601.125, 1e-9),
            ("0.5", 0.5, 0.1),
            // A leap second, and a leap day.
            ("1998-12-31T23:59:60Z", 915_148_800.0, 1.0),
            ("29/Feb/2000:00:00:00 +0000", 951_782_400.0, 1.0),
        ] {
            assert_eq!(at(text), Some(Stamp { at_ns: ns(at_s), tick_ns: (tick_s * 1e9_f64).round() as u64 }), "{text}");
        }
    }

    #[test]
    fn an_hour_that_summer_time_repeats_is_told_apart_by_the_zone() {
        let before = at("25/Oct/2020:02:30:00 +0200").unwrap();
        let after = at("25/Oct/2020:02:30:00 +0100").unwrap();
        assert_eq!(after.at_ns - before.at_ns, 3600 * SECOND_NS);
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "-",
            "01/Aug/1995",
            "01/Aug/1995:24:00:00 +0000",
            "01/Aug/1995:00:60:00 +0000",
            "32/Aug/1995:00:00:00 +0000",
            "29/Feb/1999:00:00:00 +0000",
            "01/Xxx/1995:00:00:00 +0000",
            "01/Aug/1995:00:00:00 EST",
            "01/Aug/1969:00:00:00 +0000",
            "1995-13-01T00:00:00Z",
            "1995-08-01",
            "-5",
            "1e9",
            "12:00",
            "1.2.3",
            "99999999999999999999",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn a_named_unit_is_taken_at_its_word() {
        for (unit, at_ns) in [
            (Unit::Seconds, 1_500_000_000),
            (Unit::Milliseconds, 1_500_000),
            (Unit::Microseconds, 1_500),
            (Unit::Nanoseconds, 1),
        ] {
            assert_eq!(epoch(b"1.5", unit).unwrap().at_ns, at_ns, "{unit:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in any::<Vec<u8>>(), near in "[0-9/:.T+Z \\[-]{0,40}") {
            parse(&text, Unit::Guessed);
            parse(near.as_bytes(), Unit::Guessed);
        }

        #[test]
        fn a_written_time_reads_back(at_s in 0_i64..4_102_444_800, zone_min in -14 * 60_i32..14 * 60) {
            let offset = time::UtcOffset::from_whole_seconds(zone_min * 60).unwrap();
            let local = time::OffsetDateTime::from_unix_timestamp(at_s).unwrap().to_offset(offset);
            let form = time::macros::format_description!(
                "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
            );
            let stamp = parse(local.format(form).unwrap().as_bytes(), Unit::Guessed);
            prop_assert_eq!(stamp, Some(Stamp { at_ns: at_s as u64 * SECOND_NS, tick_ns: SECOND_NS }));
        }
    }
}
