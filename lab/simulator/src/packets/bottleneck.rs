//! The bottleneck: a queue of frames before a link of a given rate.

use workload::rate::Link;

use super::{
    frame::Frame,
    queue::{Queue, Queueing},
};

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

/// A queue, and the link behind it.
#[derive(Debug)]
pub(super) struct Bottleneck {
    link: Link,
    shaping: Shaping,
    queue: Queue,
    /// Capacity since the start that is used or expired.
    spent_bytes: f64,
    /// The frame on the line, and when it will be delivered.
    serving: Option<(u64, Frame)>,
    pub carried_bytes: u64,
    pub carried_frames: u64,
    /// Frames that were dropped since the owner looked.
    pub dropped: Vec<Frame>,
}

impl Bottleneck {
    /// At most `queue_packets` wait: in each band of a first-in, first-out queue, or in all. The seed decides what PIE drops.
    pub fn new(link: Link, shaping: Shaping, queueing: Queueing, queue_packets: u32, bands: usize, seed: u64) -> Self {
        let mtu_ns = link.first_rate().ns_for(1514.0) as u64;
        Self {
            link,
            shaping,
            queue: Queue::new(queueing, queue_packets as usize, bands, mtu_ns, seed),
            // A bucket begins full.
            spent_bytes: match shaping {
                Shaping::Line => 0.0,
                Shaping::Bucket { burst_bytes } => -(burst_bytes as f64),
            },
            serving: None,
            carried_bytes: 0,
            carried_frames: 0,
            dropped: Vec::new(),
        }
    }

    /// Whether the queue has place for another frame.
    pub fn has_place(&self, band: u8) -> bool {
        self.queue.has_place(band) || (self.shaping == Shaping::Line && self.serving.is_none())
    }

    /// Queues a frame, or drops it or others.
    pub fn handle_frame(&mut self, now_ns: u64, band: u8, frame: Frame) {
        if self.shaping == Shaping::Line && self.serving.is_none() {
            self.spent_bytes = self.spent_bytes.max(self.link.capacity_at(now_ns as f64));
            self.serve(frame);
        } else {
            self.queue.push(now_ns, band, frame, &mut self.dropped);
        }
    }

    /// When the next frame leaves; `None` without frames.
    pub fn poll_timeout(&self, now_ns: u64) -> Option<u64> {
        match self.shaping {
            Shaping::Line => self.serving.map(|(at_ns, _)| at_ns),
            Shaping::Bucket { .. } => (!self.queue.is_empty()).then(|| self.moment(self.spent_bytes).max(now_ns)),
        }
    }

    /// The frame that leaves at `now_ns`, the time of [`Bottleneck::poll_timeout`]; `None` if all that waited were dropped.
    pub fn poll_frame(&mut self, now_ns: u64) -> Option<Frame> {
        let frame = match self.shaping {
            Shaping::Line => {
                let (_, frame) = self.serving.take()?;
                if let Some(next) = self.queue.pop(now_ns, &mut self.dropped) {
                    self.serve(next);
                }
                frame
            }
            Shaping::Bucket { burst_bytes } => {
                let frame = self.queue.pop(now_ns, &mut self.dropped)?;
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

    fn moment(&self, capacity_bytes: f64) -> u64 {
        if capacity_bytes <= 0.0 { 0 } else { self.link.when_capacity_is(capacity_bytes).ceil() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{connection::ConnectionId, frame::Cargo},
        *,
    };

    /// 8 Mbit/s: a byte takes a microsecond.
    fn bottleneck(shaping: Shaping, queue_packets: u32, bands: usize) -> Bottleneck {
        Bottleneck::new(Link::constant("8mbit".parse().unwrap()), shaping, Queueing::Fifo, queue_packets, bands, 1)
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
            line.handle_frame(10_000_000, 0, frame(bytes));
        }
        assert_eq!(leaves(&mut line), [(11_000, 1000), (11_500, 500)]);
    }

    #[test]
    fn a_bucket_lets_a_burst_and_a_frame_go_at_once_and_then_keeps_the_rate() {
        let mut bucket = bottleneck(Shaping::Bucket { burst_bytes: 1600 }, 10, 1);
        for bytes in [1000, 1001, 1002, 1003] {
            bucket.handle_frame(10_000_000, 0, frame(bytes));
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
        (100..104).for_each(|bytes| line.handle_frame(0, 0, frame(bytes)));
        let dropped: Vec<u32> = line.dropped.iter().map(|frame| frame.bytes).collect();
        assert_eq!(dropped, [103], "one is on the line, and two wait");
    }

    #[test]
    fn a_lower_band_goes_first_but_nothing_is_broken_off() {
        let mut line = bottleneck(Shaping::Line, 10, 3);
        for (band, bytes) in [(2, 1000), (2, 999), (1, 500), (0, 60)] {
            line.handle_frame(0, band, frame(bytes));
        }
        let order: Vec<u32> = leaves(&mut line).into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(order, [1000, 60, 500, 999]);
    }

    #[test]
    fn a_change_of_the_rate_meets_the_frame_on_the_line() {
        let link = Link::constant("8mbit".parse().unwrap()).then(500_000, "16mbit".parse().unwrap()).unwrap();
        let mut line = Bottleneck::new(link, Shaping::Line, Queueing::Fifo, 10, 1, 1);
        line.handle_frame(0, 0, frame(1000));
        assert_eq!(leaves(&mut line), [(750, 1000)]);
    }
}
