//! The bottleneck: queues of frames before a link of a given rate.

use std::collections::VecDeque;

use workload::rate::Link;

use super::connection::ConnectionId;

/// A frame on its way to a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub connection: ConnectionId,
    /// Bytes on the wire.
    pub bytes: u32,
    pub cargo: Cargo,
}

/// The contents of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cargo {
    SynAck,
    /// Payload from this offset of the connection's stream; `pushed` if the server's write ended with it.
    Data {
        seq: u64,
        payload_bytes: u32,
        pushed: bool,
    },
    /// An acknowledgement or a FIN, which has no effect on the client here.
    Bare,
}

/// How the link sends a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shaping {
    /// A line: one frame after the other, each delivered with its last byte.
    Line,
    /// A token bucket as in Linux's HTB, on a device that takes no time itself. A frame leaves whole as soon
    /// as the bucket is not in debt, and its bytes are subtracted afterwards. So after a pause, the burst and
    /// one frame leave at once.
    Bucket {
        /// The most that an idle link saves up.
        burst_bytes: u64,
    },
}

/// Strict priority between bands, first in, first out within each.
#[derive(Debug)]
pub(super) struct Bottleneck {
    link: Link,
    shaping: Shaping,
    queue_packets: usize,
    bands: Vec<VecDeque<Frame>>,
    /// Capacity since the start that is used or expired.
    spent_bytes: f64,
    /// The frame on the line, and when it will be delivered.
    serving: Option<(u64, Frame)>,
    pub carried_bytes: u64,
    pub carried_frames: u64,
}

impl Bottleneck {
    /// At most `queue_packets` wait in each band.
    pub fn new(link: Link, shaping: Shaping, queue_packets: u32, bands: usize) -> Self {
        Self {
            link,
            shaping,
            queue_packets: queue_packets as usize,
            bands: vec![VecDeque::new(); bands.max(1)],
            // A bucket begins full.
            spent_bytes: match shaping {
                Shaping::Line => 0.0,
                Shaping::Bucket { burst_bytes } => -(burst_bytes as f64),
            },
            serving: None,
            carried_bytes: 0,
            carried_frames: 0,
        }
    }

    /// Whether the queue accepts another frame.
    pub fn has_place(&self, band: u8) -> bool {
        let at = self.band(band);
        self.bands[at].len() < self.queue_packets || (self.shaping == Shaping::Line && self.serving.is_none())
    }

    /// Queues a frame. Returns false if the queue is full; then the frame is dropped.
    pub fn handle_frame(&mut self, now_ns: u64, band: u8, frame: Frame) -> bool {
        if !self.has_place(band) {
            return false;
        }
        if self.shaping == Shaping::Line && self.serving.is_none() {
            self.spent_bytes = self.spent_bytes.max(self.link.capacity_at(now_ns as f64));
            self.serve(frame);
        } else {
            let at = self.band(band);
            self.bands[at].push_back(frame);
        }
        true
    }

    /// When the next frame leaves; `None` without frames.
    pub fn poll_timeout(&self, now_ns: u64) -> Option<u64> {
        match self.shaping {
            Shaping::Line => self.serving.map(|(at_ns, _)| at_ns),
            Shaping::Bucket { .. } => {
                let waits = self.bands.iter().any(|band| !band.is_empty());
                waits.then(|| self.moment(self.spent_bytes).max(now_ns))
            }
        }
    }

    /// The frame that leaves at `now_ns`, the time of [`Bottleneck::poll_timeout`].
    pub fn poll_frame(&mut self, now_ns: u64) -> Option<Frame> {
        let frame = match self.shaping {
            Shaping::Line => {
                let (_, frame) = self.serving.take()?;
                if let Some(next) = self.next() {
                    self.serve(next);
                }
                frame
            }
            Shaping::Bucket { burst_bytes } => {
                let frame = self.next()?;
                let full = self.link.capacity_at(now_ns as f64) - burst_bytes as f64;
                self.spent_bytes = self.spent_bytes.max(full) + f64::from(frame.bytes);
                frame
            }
        };
        self.carried_bytes += u64::from(frame.bytes);
        self.carried_frames += 1;
        Some(frame)
    }

    fn serve(&mut self, frame: Frame) {
        self.spent_bytes += f64::from(frame.bytes);
        self.serving = Some((self.moment(self.spent_bytes), frame));
    }

    fn next(&mut self) -> Option<Frame> {
        self.bands.iter_mut().find_map(VecDeque::pop_front)
    }

    fn moment(&self, capacity_bytes: f64) -> u64 {
        if capacity_bytes <= 0.0 { 0 } else { self.link.when_capacity_is(capacity_bytes).ceil() as u64 }
    }

    fn band(&self, band: u8) -> usize {
        usize::from(band).min(self.bands.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 Mbit/s: a byte takes a microsecond.
    fn bottleneck(shaping: Shaping, queue_packets: u32, bands: usize) -> Bottleneck {
        Bottleneck::new(Link::constant("8mbit".parse().unwrap()), shaping, queue_packets, bands)
    }

    fn frame(bytes: u32) -> Frame {
        Frame { connection: ConnectionId::default(), bytes, cargo: Cargo::Bare }
    }

    fn leaves(bottleneck: &mut Bottleneck) -> Vec<(u64, u32)> {
        let mut now_ns = 0;
        let mut left = Vec::new();
        while let Some(at_ns) = bottleneck.poll_timeout(now_ns) {
            now_ns = at_ns;
            left.push((at_ns / 1000, bottleneck.poll_frame(now_ns).unwrap().bytes));
        }
        left
    }

    #[test]
    fn a_line_sends_one_frame_after_the_other_and_saves_nothing_up() {
        let mut line = bottleneck(Shaping::Line, 10, 1);
        for bytes in [1000, 500] {
            assert!(line.handle_frame(10_000_000, 0, frame(bytes)));
        }
        assert_eq!(leaves(&mut line), [(11_000, 1000), (11_500, 500)]);
    }

    #[test]
    fn a_bucket_lets_a_burst_and_a_frame_go_at_once_and_then_keeps_the_rate() {
        let mut bucket = bottleneck(Shaping::Bucket { burst_bytes: 1600 }, 10, 1);
        for bytes in [1000, 1001, 1002, 1003] {
            assert!(bucket.handle_frame(10_000_000, 0, frame(bytes)));
        }
        let mut left = Vec::new();
        let mut now_ns = 10_000_000;
        while let Some(at_ns) = bucket.poll_timeout(now_ns) {
            now_ns = at_ns;
            left.push((at_ns / 1000, bucket.poll_frame(now_ns).unwrap().bytes));
        }
        // 1600 - 1000 - 1001 = -401 bytes, paid after 401 us.
        assert_eq!(left, [(10_000, 1000), (10_000, 1001), (10_401, 1002), (11_403, 1003)]);
    }

    #[test]
    fn what_finds_the_queue_full_is_dropped() {
        let mut line = bottleneck(Shaping::Line, 2, 1);
        let taken: Vec<bool> = (0..4).map(|_| line.handle_frame(0, 0, frame(100))).collect();
        assert_eq!(taken, [true, true, true, false], "one on the line and two that wait");
    }

    #[test]
    fn a_lower_band_goes_first_but_nothing_is_broken_off() {
        let mut line = bottleneck(Shaping::Line, 10, 3);
        for (band, bytes) in [(2, 1000), (2, 999), (1, 500), (0, 60)] {
            assert!(line.handle_frame(0, band, frame(bytes)));
        }
        let order: Vec<u32> = leaves(&mut line).into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(order, [1000, 60, 500, 999]);
    }

    #[test]
    fn a_change_of_the_rate_meets_the_frame_on_the_line() {
        let link = Link::constant("8mbit".parse().unwrap()).then(500_000, "16mbit".parse().unwrap()).unwrap();
        let mut line = Bottleneck::new(link, Shaping::Line, 10, 1);
        line.handle_frame(0, 0, frame(1000));
        assert_eq!(leaves(&mut line), [(750, 1000)]);
    }
}
