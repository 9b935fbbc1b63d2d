//! The offered work since the start, as a function of time.

use crate::{
    pattern::{Pattern, Unit},
    rate::Link,
};

/// The offered work of a pattern since the start of a run: bytes for loads, requests for requests per second.
#[derive(Debug)]
pub(super) struct Offered {
    /// In time order, without gaps; at least one.
    pieces: Vec<Piece>,
}

/// A period in which the intensity moves linearly.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from_ns: f64,
    length_ns: f64,
    /// Offered work per nanosecond, at its start and at its end.
    intensity: (f64, f64),
    /// Offered work from the start of the run until its end.
    until_end: f64,
}

impl Offered {
    pub(super) fn new(link: &Link, pattern: &Pattern, duration_ns: u64) -> Self {
        let mut pieces = Vec::new();
        let mut sum = 0.0;
        for span in pattern.spans().take_while(|span| span.from_ns < duration_ns) {
            let level_at = |at_ns: u64| {
                let passed = (at_ns - span.from_ns) as f64 / (span.until_ns - span.from_ns) as f64;
                span.from + (span.to - span.from) * passed
            };
            let until_ns = span.until_ns.min(duration_ns);
            let cuts = link.changes().iter().map(|&(at, _)| at).filter(|&at| span.from_ns < at && at < until_ns);
            let mut from_ns = span.from_ns;
            for cut in cuts.chain([until_ns]) {
                let for_level_1 = match pattern.unit() {
                    Unit::Load => link.rate_at(from_ns).bytes_per_second() / 1e9,
                    Unit::RequestsPerSecond => 1e-9,
                };
                let intensity = (level_at(from_ns) * for_level_1, level_at(cut) * for_level_1);
                let length_ns = (cut - from_ns) as f64;
                sum += (intensity.0 + intensity.1) / 2.0 * length_ns;
                pieces.push(Piece { from_ns: from_ns as f64, length_ns, intensity, until_end: sum });
                from_ns = cut;
            }
        }
        Self { pieces }
    }

    /// The offered work of the whole run.
    pub(super) fn total(&self) -> f64 {
        self.pieces.last().map_or(0.0, |last| last.until_end)
    }

    /// When `amount` of work has been offered, in nanoseconds.
    pub(super) fn when(&self, amount: f64) -> f64 {
        // Pieces without work end with the sum at which they began, so they are skipped.
        let index = self.pieces.partition_point(|piece| piece.until_end <= amount);
        let Some(piece) = self.pieces.get(index.min(self.pieces.len().saturating_sub(1))) else { return 0.0 };
        let before = if index == 0 { 0.0 } else { self.pieces[index - 1].until_end };
        piece.from_ns + piece.time_for(amount - before)
    }
}

impl Piece {
    /// Time from the start of the piece until `amount` has been offered. It is the root of `i t + s t^2 / 2 =
    /// amount`, in a form that keeps its precision when the slope `s` is small.
    fn time_for(&self, amount: f64) -> f64 {
        if amount <= 0.0 {
            return 0.0;
        }
        let slope = (self.intensity.1 - self.intensity.0) / self.length_ns;
        let root = (self.intensity.0 * self.intensity.0 + 2.0 * slope * amount).max(0.0).sqrt();
        (2.0 * amount / (self.intensity.0 + root)).min(self.length_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;

    const SECOND: u64 = 1_000_000_000;

    /// 1000 bytes a second, and twice that from 10 s on.
    fn link() -> Link {
        let rate = |bits| Rate::from_bits_per_second(bits).unwrap();
        Link::constant(rate(8_000)).then(10 * SECOND, rate(16_000)).unwrap()
    }

    fn offered(pattern: &str, seconds: u64) -> Offered {
        Offered::new(&link(), &pattern.parse().unwrap(), seconds * SECOND)
    }

    #[test]
    fn ramps_are_integrated_exactly() {
        // From 0 to 1 in 10 s: half of 10 kB, a quarter of that at half the time.
        let up = offered("10s@0-1", 10);
        assert!((up.total() - 5_000.0).abs() < 1e-6);
        assert!((up.when(1_250.0) - 5e9).abs() < 1e-3);
        // And down again: symmetrical.
        let down = offered("10s@1-0", 10);
        assert!((down.total() - 5_000.0).abs() < 1e-6);
        assert!((down.when(3_750.0) - 5e9).abs() < 1e-3);
        // The last bytes come slowly: a millionth of a byte takes some microseconds.
        assert!((down.when(5_000.0 - 1e-9) - 10e9).abs() < 1e5);
    }

    #[test]
    fn a_ramp_goes_on_over_a_change_of_the_link() {
        // 0 to 2 in 20 s: at 10 s the load is 1 and 5 kB are offered. Then the mean is 1.5 of 2000 bytes a
        // second.
        let over = offered("20s@0-2", 20);
        assert!((over.total() - (5_000.0 + 30_000.0)).abs() < 1e-6);
        assert!((over.when(5_000.0) - 10e9).abs() < 1e-3);
        assert!((over.when(5_000.0 + 12_500.0) - 15e9).abs() < 1e-3);
    }

    #[test]
    fn requests_per_second_care_for_no_link() {
        let steps = offered("5s@10/s,5s@30/s", 20);
        assert!((steps.total() - 400.0).abs() < 1e-9);
        assert!((steps.when(200.0 + 25.0) - 12.5e9).abs() < 1e-3);
    }

    #[test]
    fn when_undoes_the_integral_everywhere() {
        let offered = offered("3s@0-1,2s@0,1s@0.5,4s@1-0.2", 25);
        // Compares sums of the level in steps of a millisecond with the closed form.
        let pattern: Pattern = "3s@0-1,2s@0,1s@0.5,4s@1-0.2".parse().unwrap();
        let (mut sum, mut spans) = (0.0, pattern.spans().peekable());
        for step in 0..25_000_u64 {
            let at_ns = step * 1_000_000 + 500_000;
            let span = loop {
                let span = spans.peek().copied().unwrap();
                if at_ns < span.until_ns {
                    break span;
                }
                spans.next();
            };
            let passed = (at_ns - span.from_ns) as f64 / (span.until_ns - span.from_ns) as f64;
            let level = span.from + (span.to - span.from) * passed;
            sum += level * if at_ns < 10 * SECOND { 1.0 } else { 2.0 };
            if level > 0.0 && step % 97 == 0 {
                let end_ns = (step + 1) as f64 * 1e6;
                assert!((offered.when(sum) - end_ns).abs() < 2e5, "{step}: {} {end_ns}", offered.when(sum));
            }
        }
        assert!((offered.total() / sum - 1.0).abs() < 1e-6);
    }
}
