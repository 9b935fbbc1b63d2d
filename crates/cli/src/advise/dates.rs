//! Moments as people read them.

use time::{UtcDateTime, macros::format_description};

/// In UTC, to the minute.
pub fn minute(unix_s: f64) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute] UTC");
    // Logs that count from something else are given as they are.
    let moment = UtcDateTime::from_unix_timestamp(unix_s as i64).ok().filter(|_| unix_s > 1e8);
    moment.and_then(|moment| moment.format(format).ok()).unwrap_or_else(|| format!("{unix_s:.0} s"))
}
