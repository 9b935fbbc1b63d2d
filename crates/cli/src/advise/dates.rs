//! Formats times for people.

use time::{UtcDateTime, macros::format_description};

/// A time in UTC, to the minute.
pub fn minute(unix_s: f64) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute] UTC");
    // Some logs do not count from 1970. Their times are shown as plain seconds.
    let moment = UtcDateTime::from_unix_timestamp(unix_s as i64).ok().filter(|_| unix_s > 1e8);
    moment.and_then(|moment| moment.format(format).ok()).unwrap_or_else(|| format!("{unix_s:.0} s"))
}
