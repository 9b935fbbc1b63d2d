//! The field `Date` of responses.

use std::{
    cell::RefCell,
    time::{Duration, SystemTime},
};

use rustix::time::{ClockId, clock_gettime};

/// Writes the field with the time of day (RFC 9110, section 6.6.1). Each thread formats it once a second.
pub(super) fn write(out: &mut Vec<u8>) {
    thread_local! {
        static WRITTEN: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
    }
    // The coarse clock costs next to nothing and is right to some milliseconds.
    let second = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
    WRITTEN.with_borrow_mut(|(of, date)| {
        if *of != second {
            *of = second;
            let since_epoch = Duration::from_secs(u64::try_from(second).unwrap_or_default());
            *date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since_epoch);
        }
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(date.as_bytes());
        out.extend_from_slice(b"\r\n");
    });
}
