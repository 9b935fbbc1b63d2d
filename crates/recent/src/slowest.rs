//! The slowest responses of the last minutes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use serde::Serialize;

/// So many are kept.
const MOST: usize = 20;
/// For so long, in seconds.
const KEPT_S: u64 = 600;
/// Bytes of a target that are kept.
const TARGET_BYTES: usize = 200;

/// A response, and where its time went.
#[derive(Clone, Debug, Serialize)]
pub struct Slow {
    /// When it ended, in seconds since 1970.
    pub ended_s: u64,
    /// The method and the path of the request, without its query.
    pub request: Box<str>,
    /// The status.
    pub status: u16,
    /// The class of the request.
    pub class: Arc<str>,
    /// Body bytes sent.
    pub body_bytes: u64,
    /// Whether the client got all of it.
    pub is_complete: bool,
    /// From the end of the request's head to the last byte of the response.
    pub response_time_s: f64,
    /// Of this: it waited for a slot of the site; `None`: it needed none.
    pub slot_s: Option<f64>,
    /// Of this: from the response being ready to its last byte, which is waiting for its turn on the uplink and being sent.
    pub uplink_s: f64,
    /// So long the bytes take alone on the uplink; `None`: its rate is not known.
    pub alone_s: Option<f64>,
}

/// The slowest responses lately. Usable from many threads; a response that is not among them costs one comparison.
#[derive(Debug, Default)]
pub struct Slowest {
    /// Response times above this may have a place, in microseconds.
    bar_us: AtomicU64,
    list: Mutex<Vec<Slow>>,
}

impl Slowest {
    /// A response has ended. `tell` is called if it has a place.
    pub fn record(&self, response_time: Duration, tell: impl FnOnce() -> Slow) {
        let us = u64::try_from(response_time.as_micros()).unwrap_or(u64::MAX);
        if us > self.bar_us.load(Relaxed) {
            let slow = tell();
            let mut list = self.list.lock();
            list.retain(|it| it.ended_s.saturating_add(KEPT_S) > slow.ended_s);
            let at = list.partition_point(|it| it.response_time_s >= slow.response_time_s);
            list.insert(at, slow);
            list.truncate(MOST);
            self.set_bar(&list);
        }
    }

    /// Those of the last minutes, the slowest first.
    pub fn list(&self, now_s: u64) -> Vec<Slow> {
        let mut list = self.list.lock();
        list.retain(|it| it.ended_s.saturating_add(KEPT_S) > now_s);
        self.set_bar(&list);
        list.clone()
    }

    fn set_bar(&self, list: &[Slow]) {
        let bar_us = list.get(MOST - 1).map_or(0, |last| (last.response_time_s * 1e6) as u64);
        self.bar_us.store(bar_us, Relaxed);
    }
}

impl Slow {
    /// The method and the path of a request as they are kept: its query may hold secrets.
    pub fn request(method: &str, path: &str) -> Box<str> {
        let mut end = path.len().min(TARGET_BYTES);
        while !path.is_char_boundary(end) {
            end -= 1;
        }
        let cut = if end < path.len() { "..." } else { "" };
        format!("{method} {}{cut}", &path[..end]).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(ended_s: u64, response_time: Duration) -> Slow {
        Slow {
            ended_s,
            request: Slow::request("GET", "/"),
            status: 200,
            class: "default".into(),
            body_bytes: 1,
            is_complete: true,
            response_time_s: response_time.as_secs_f64(),
            slot_s: None,
            uplink_s: 0.0,
            alone_s: None,
        }
    }

    fn times_ms(list: &[Slow]) -> Vec<u64> {
        list.iter().map(|it| (it.response_time_s * 1e3).round() as u64).collect()
    }

    #[test]
    fn the_slowest_stay_until_they_are_old() {
        let slowest = Slowest::default();
        let record = |now_s, ms| {
            let time = Duration::from_millis(ms);
            slowest.record(time, || slow(now_s, time));
        };
        (1..=50).for_each(|ms| record(1_000, ms));
        assert_eq!(times_ms(&slowest.list(1_000)), (31..=50).rev().collect::<Vec<_>>());
        let mut was_told = false;
        slowest.record(Duration::from_millis(31), || {
            was_told = true;
            slow(1_000, Duration::from_millis(31))
        });
        assert!(!was_told, "it has no place");
        record(1_500, 40);
        assert_eq!(times_ms(&slowest.list(1_599))[..12], [50, 49, 48, 47, 46, 45, 44, 43, 42, 41, 40, 40]);
        assert_eq!(times_ms(&slowest.list(1_600)), [40]);
        record(1_600, 1);
        assert_eq!(times_ms(&slowest.list(1_600)), [40, 1], "there is room again");
    }

    #[test]
    fn a_long_path_is_cut_between_characters() {
        assert_eq!(&*Slow::request("GET", "/a"), "GET /a");
        let cut = Slow::request("GET", &"ä".repeat(150));
        assert_eq!(&*cut, format!("GET {}...", "ä".repeat(100)));
        let path = format!("/{}", "ä".repeat(150));
        assert_eq!(&*Slow::request("GET", &path), format!("GET /{}...", "ä".repeat(99)));
    }
}
