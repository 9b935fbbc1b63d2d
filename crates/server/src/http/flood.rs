//! How many control frames an HTTP/2 client may send (RFC 9113, section 10.5). No I/O, no clock.
//!
//! Control frames cost the client a few bytes and no window, and the server an answer or a look at its streams. A
//! normal client sends them for a reason. It updates windows and measures the path when data comes, and it ranks its
//! new requests. So control frames are earned by requests and by frames sent to the client, and a bucket has some for
//! all else. A flood of requests, empty DATA or CONTINUATION is not looked at here: h2 has bounds for these.

use std::time::Duration;

use tokio::time::Instant;

use super::frames::{FrameHead, kind};

/// Control frames that are free, and as many again after [`REFILL`]. A client that is kept alive needs one a second. A
/// fuzzer's input has room for a few hundred.
const FREE: u32 = if cfg!(fuzzing) { 50 } else { 1_000 };
const REFILL: Duration = Duration::from_secs(10);
/// For each frame of a response: naive clients send two WINDOW_UPDATE and a PING for each.
const EARNED_BY_SENT: u64 = 10;
/// For each request: windows, and priorities that change.
const EARNED_BY_REQUEST: u64 = 20;

/// The account of one connection.
#[derive(Debug)]
pub(super) struct Account {
    free: u32,
    /// When `free` was filled up last.
    filled: Instant,
    earned_by_sent: u64,
    earned_by_requests: u64,
    /// The highest stream that the client has opened.
    last_stream: u32,
}

/// The client sends more control frames than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flood;

impl Account {
    pub(super) fn new(now: Instant) -> Self {
        Self { free: FREE, filled: now, earned_by_sent: 0, earned_by_requests: 0, last_stream: 0 }
    }

    /// The highest stream that the client has opened.
    pub(super) fn last_stream(&self) -> u32 {
        self.last_stream
    }

    /// The server has sent a frame.
    pub(super) fn sent(&mut self, frame: FrameHead) {
        if matches!(frame.kind, kind::DATA | kind::HEADERS) {
            self.earned_by_sent += EARNED_BY_SENT;
        }
    }

    /// The client has sent a frame.
    pub(super) fn received(&mut self, frame: FrameHead, now: Instant) -> Result<(), Flood> {
        match frame.kind {
            kind::DATA | kind::CONTINUATION => return Ok(()),
            kind::HEADERS => {
                if frame.stream > self.last_stream {
                    self.last_stream = frame.stream;
                    self.earned_by_requests += EARNED_BY_REQUEST;
                }
                return Ok(());
            }
            // A request that is taken back earns nothing for taking back others.
            kind::RST_STREAM => {}
            _ if self.earned_by_requests > 0 => {
                self.earned_by_requests -= 1;
                return Ok(());
            }
            _ => {}
        }
        if self.earned_by_sent > 0 {
            self.earned_by_sent -= 1;
            return Ok(());
        }
        if self.free == 0 && now.saturating_duration_since(self.filled) >= REFILL {
            (self.free, self.filled) = (FREE, now);
        }
        self.free = self.free.checked_sub(1).ok_or(Flood)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, stream: u32) -> FrameHead {
        FrameHead { len: 0, kind, stream }
    }

    /// How many of these in a row are taken, up to a million.
    fn taken(account: &mut Account, kind: u8, now: Instant) -> usize {
        (0..1_000_000).take_while(|_| account.received(frame(kind, 0), now).is_ok()).count()
    }

    #[tokio::test]
    async fn a_flood_of_control_frames_of_any_kind_has_an_end() {
        let now = Instant::now();
        for kind in [2, 3, 4, 5, PING, 7, WINDOW_UPDATE, 0x10, 0xff] {
            let mut account = Account::new(now);
            assert_eq!(taken(&mut account, kind, now), 1_000, "{kind}");
            assert_eq!(taken(&mut account, kind, now + Duration::from_secs(9)), 0, "{kind}");
            assert_eq!(taken(&mut account, kind, now + Duration::from_secs(10)), 1_000, "{kind}");
        }
        let mut account = Account::new(now);
        for stream in 0..100_000 {
            account.received(frame(kind::HEADERS, stream * 2 + 1), now).unwrap();
        }
        assert_eq!(account.last_stream(), 199_999);
        assert_eq!(taken(&mut account, kind::RST_STREAM, now), 1_000, "of requests that were taken back");
    }

    #[tokio::test]
    async fn clients_at_work_do_not_meet_the_bound() {
        let now = Instant::now();
        // A download: for each frame an update of the stream's and of the connection's window, and a measurement of the path. The
        // client may be far behind with them.
        let mut account = Account::new(now);
        account.received(frame(kind::HEADERS, 1), now).unwrap();
        for _ in 0..100_000 {
            account.sent(frame(kind::DATA, 1));
        }
        for _ in 0..100_000 {
            for (kind, stream) in [(WINDOW_UPDATE, 1), (WINDOW_UPDATE, 0), (PING, 0)] {
                account.received(frame(kind, stream), now).unwrap();
            }
        }
        // A page of many parts, ranked, and ranked again.
        let mut account = Account::new(now);
        for stream in 0..10_000 {
            account.received(frame(kind::HEADERS, stream * 2 + 1), now).unwrap();
            for kind in [2, 2, 0x10, 0x10, WINDOW_UPDATE] {
                account.received(frame(kind, stream * 2 + 1), now).unwrap();
            }
        }
        // Short calls that are given up after their response has begun.
        let mut account = Account::new(now);
        for stream in 0..10_000 {
            account.received(frame(kind::HEADERS, stream * 2 + 1), now).unwrap();
            account.sent(frame(kind::HEADERS, stream * 2 + 1));
            account.received(frame(kind::RST_STREAM, stream * 2 + 1), now).unwrap();
        }
        // An idle connection that is kept alive, for a week.
        let mut account = Account::new(now);
        for second in 0..7 * 24 * 3600 {
            account.received(frame(PING, 0), now + Duration::from_secs(second)).unwrap();
        }
    }
}
