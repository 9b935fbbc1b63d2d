//! Counts the requests and the work of a log over time, in memory that does not grow with the log.

use std::collections::BTreeMap;

/// Most cells that are kept. With more, cells are made longer.
const MAX_CELLS: usize = 20_000;
const MINUTE_NS: u64 = 60 * 1_000_000_000;
/// Steps by which cells are made longer: from a minute to ten, an hour, a day, and then by doubling. So the
/// busiest hour of a log of up to two years is known to the hour.
const LENGTHEN: [(u64, u64); 3] = [(1, 10), (10, 6), (60, 24)];
/// Length of the peak. Operators' own graphs show hours, and an hour is long compared with every response.
const PEAK_NS: u64 = 60 * MINUTE_NS;

/// Counts over a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) requests: u64,
    pub(super) wire_bytes: u64,
}

/// A span of time, from inclusive to exclusive, in nanoseconds of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
}

impl Span {
    pub(super) fn seconds(self) -> f64 {
        (self.until_ns - self.from_ns) as f64 / 1e9
    }

    /// Returns the same span, counted from this time.
    pub(super) fn since(self, moment_ns: u64) -> Self {
        let [from_ns, until_ns] = [self.from_ns, self.until_ns].map(|at_ns| at_ns.saturating_sub(moment_ns));
        Self { from_ns, until_ns }
    }

    /// Returns the seconds that lie in both spans.
    pub(super) fn common_seconds(self, other: Self) -> f64 {
        self.until_ns.min(other.until_ns).saturating_sub(self.from_ns.max(other.from_ns)) as f64 / 1e9
    }
}

/// Counts over time.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    cell_ns: u64,
    /// Cells by number since 1970. Cells without requests are missing.
    cells: BTreeMap<u64, Cell>,
    /// The cell of the last record, which is usually that of the next. It is kept outside the tree.
    present: Option<(u64, Cell)>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { cell_ns: MINUTE_NS, cells: BTreeMap::new(), present: None }
    }
}

impl Cell {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.wire_bytes = self.wire_bytes.saturating_add(other.wire_bytes);
    }
}

impl Timeline {
    pub(super) fn add(&mut self, at_ns: u64, wire_bytes: u64) {
        let one = Cell { requests: 1, wire_bytes };
        match &mut self.present {
            Some((number, cell)) if *number == at_ns / self.cell_ns => cell.add(one),
            _ => {
                self.put_by();
                self.present = Some((at_ns / self.cell_ns, one));
            }
        }
    }

    /// Puts the present cell into the tree. It must be called before the counts are read.
    pub(super) fn put_by(&mut self) {
        let Some((number, cell)) = self.present.take() else { return };
        self.cells.entry(number).or_default().add(cell);
        while self.cells.len() > MAX_CELLS {
            let minutes = self.cell_ns / MINUTE_NS;
            let factor = LENGTHEN.iter().find(|(length, _)| *length == minutes).map_or(2, |&(_, factor)| factor);
            self.cell_ns *= factor;
            for (number, cell) in std::mem::take(&mut self.cells) {
                self.cells.entry(number / factor).or_default().add(cell);
            }
        }
    }

    /// Returns the length of a cell, and the cells by time.
    pub(super) fn cells(&self) -> (u64, impl Iterator<Item = (u64, Cell)>) {
        (self.cell_ns, self.cells.iter().map(|(&number, &cell)| (number * self.cell_ns, cell)))
    }

    /// Returns the busiest hour by work, wherever it begins, and its work. For a log shorter than an hour it
    /// is the whole log. For a log so long that hours are not told apart it is one cell. `all` is the span of
    /// the log.
    pub(super) fn peak(&self, all: Span) -> (Span, u64) {
        let length_ns = PEAK_NS.max(self.cell_ns);
        let within = length_ns / self.cell_ns;
        let cells: Vec<(u64, u64)> = self.cells.iter().map(|(&number, cell)| (number, cell.wire_bytes)).collect();
        let (mut best, mut best_from, mut sum, mut first) = (0, all.from_ns / self.cell_ns, 0_u64, 0);
        for &(number, wire_bytes) in &cells {
            sum = sum.saturating_add(wire_bytes);
            while cells[first].0 + within <= number {
                sum -= cells[first].1.min(sum);
                first += 1;
            }
            if sum > best {
                (best, best_from) = (sum, (number + 1).saturating_sub(within));
            }
        }
        // The peak of a log of 20 minutes is 20 minutes long; its load must not be divided by an hour.
        let from_ns =
            (best_from * self.cell_ns).max(all.from_ns).min(all.until_ns.saturating_sub(length_ns).max(all.from_ns));
        (Span { from_ns, until_ns: (from_ns + length_ns).min(all.until_ns) }, best)
    }

    /// Returns the busiest full hours that together hold `requests`, at least one, in the order of time.
    pub(super) fn busiest(&self, requests: u64) -> Vec<Span> {
        let length_ns = PEAK_NS.max(self.cell_ns);
        let mut hours: BTreeMap<u64, Cell> = BTreeMap::new();
        for (&number, &cell) in &self.cells {
            hours.entry(number * self.cell_ns / length_ns).or_default().add(cell);
        }
        let mut ranked: Vec<(u64, Cell)> = hours.into_iter().collect();
        ranked.sort_by_key(|&(number, cell)| (std::cmp::Reverse(cell.wire_bytes), number));
        let mut taken = 0;
        let enough = ranked.iter().position(|(_, cell)| {
            taken += cell.requests;
            taken >= requests
        });
        ranked.truncate(enough.map_or(ranked.len(), |last| last + 1));
        ranked.sort_by_key(|&(number, _)| number);
        let mut spans: Vec<Span> = Vec::new();
        for (number, _) in ranked {
            let (from_ns, until_ns) = (number * length_ns, (number + 1) * length_ns);
            match spans.last_mut() {
                Some(last) if last.until_ns == from_ns => last.until_ns = until_ns,
                _ => spans.push(Span { from_ns, until_ns }),
            }
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: u64 = 60 * MINUTE_NS;

    fn timeline(requests: impl IntoIterator<Item = (u64, u64)>) -> Timeline {
        let mut timeline = Timeline::default();
        for (minute, wire_bytes) in requests {
            timeline.add(minute * MINUTE_NS + 7, wire_bytes);
        }
        timeline.put_by();
        timeline
    }

    fn span(from_min: u64, until_min: u64) -> Span {
        Span { from_ns: from_min * MINUTE_NS, until_ns: until_min * MINUTE_NS }
    }

    #[test]
    fn the_busiest_hour_begins_anywhere() {
        // 100 bytes every ten minutes of a day, and 1000 bytes at minutes 591, 601 and 611. No full hour
        // holds all three.
        let quiet = (0..144).map(|i| (i * 10, 100));
        let busy = [590, 600, 610].map(|minute| (minute + 1, 1000));
        let (peak, work) = timeline(quiet.chain(busy)).peak(span(0, 1440));
        assert_eq!((work, peak.seconds()), (3600, 3600.0));
        assert!(peak.from_ns <= 591 * MINUTE_NS && peak.until_ns > 611 * MINUTE_NS, "{peak:?}");
    }

    #[test]
    fn the_peak_of_a_short_log_is_the_log() {
        let (peak, work) = timeline([(5, 10), (9, 20)]).peak(span(5, 10));
        assert_eq!((peak, work), (span(5, 10), 30));
    }

    #[test]
    fn the_busiest_hours_hold_as_many_requests_as_asked_for() {
        let day = timeline((0..1440).map(|minute| (minute, if (600..720).contains(&minute) { 1000 } else { 10 })));
        assert_eq!(day.busiest(1), [span(600, 660)], "of two alike the earlier");
        assert_eq!(day.busiest(120), [span(600, 720)], "hours side by side are one span");
        assert_eq!(day.busiest(121), [span(0, 60), span(600, 720)]);
        assert_eq!(day.busiest(u64::MAX), [span(0, 1440)]);
    }

    #[test]
    fn years_take_no_more_cells_than_weeks() {
        let (mut timeline, minutes) = (Timeline::default(), 3 * 365 * 1440);
        for minute in (0..minutes).step_by(7) {
            timeline.add(minute * MINUTE_NS, 1);
        }
        timeline.put_by();
        let (cell_ns, cells) = timeline.cells();
        let (count, requests) =
            cells.fold((0, 0), |(count, requests), (_, cell)| (count + 1, requests + cell.requests));
        assert_eq!((cell_ns, requests), (24 * HOUR_NS, minutes / 7 + 1));
        assert!(count <= MAX_CELLS);
        let (peak, _) = timeline.peak(span(0, minutes));
        assert_eq!(peak.seconds(), 86_400.0, "an hour is not told apart any more");
    }
}
