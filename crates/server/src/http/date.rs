//! The field `Date` of responses (RFC 9110, section 6.6.1).

use std::{
    cell::RefCell,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::HeaderValue;
use rustix::time::{ClockId, clock_gettime};

/// The time of day. Each thread formats it once a second.
pub(super) fn now() -> HeaderValue {
    thread_local! {
        static WRITTEN: RefCell<(i64, HeaderValue)> = const { RefCell::new((i64::MIN, HeaderValue::from_static(""))) };
    }
    // The coarse clock costs next to nothing and is right to some milliseconds.
    let second = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
    WRITTEN.with_borrow_mut(|(of, date)| {
        if *of != second {
            *of = second;
            let since_epoch = Duration::from_secs(u64::try_from(second).unwrap_or_default());
            let text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since_epoch);
            *date = HeaderValue::from_maybe_shared(Bytes::from(text)).expect("a date is visible characters");
        }
        date.clone()
    })
}

/// Writes the field as HTTP/1 has it.
pub(super) fn write(out: &mut Vec<u8>) {
    http1::write_field(&http::header::DATE, &now(), out);
}
