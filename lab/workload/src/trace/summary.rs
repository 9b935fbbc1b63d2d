//! Summary of a log's traffic, in memory that does not grow with the log.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::Record;

/// Most periods that are kept. With more, periods are made longer.
const MAX_PERIODS: usize = 3000;
const MINUTE_NS: u64 = 60 * 1_000_000_000;
/// Largest size that is told apart, 1 TiB. Sizes have three digits, and larger sizes count as this one.
const LARGEST_SIZE_BYTES: u64 = 1 << 40;

/// Counts over the records of a log. [`Summary::add`] takes every record.
#[derive(Clone, Debug)]
pub struct Summary {
    records: u64,
    gets: u64,
    /// Records by the first digit of the status; 0 for records without one.
    statuses: [u64; 10],
    bytes: u64,
    largest_bytes: u64,
    sizes: Histogram<u64>,
    first_ns: u64,
    last_ns: u64,
    /// Length of a period.
    period_ns: u64,
    /// Requests and bytes by the number of the period since 1970. Periods without requests are missing.
    periods: BTreeMap<u64, (u64, u64)>,
    /// The period of the last record, which is usually that of the next. It is kept outside the tree.
    present: Option<(u64, (u64, u64))>,
}

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Its beginning, in nanoseconds since 1970 UTC.
    pub from_ns: u64,
    /// Requests in it.
    pub requests: u64,
    /// Bytes sent for them.
    pub bytes: u64,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            records: 0,
            gets: 0,
            statuses: [0; 10],
            bytes: 0,
            largest_bytes: 0,
            sizes: Histogram::new_with_bounds(1, LARGEST_SIZE_BYTES, 3).expect("bounds and digits are sound"),
            first_ns: u64::MAX,
            last_ns: 0,
            period_ns: MINUTE_NS,
            periods: BTreeMap::new(),
            present: None,
        }
    }
}

impl Summary {
    /// Counts a record.
    pub fn add(&mut self, record: &Record<'_>) {
        self.records += 1;
        self.gets += u64::from(matches!(record.method, None | Some(super::Method::Get)));
        self.statuses[usize::from(record.status.unwrap_or(0) / 100).min(9)] += 1;
        let size_bytes = record.size_bytes.unwrap_or(0);
        if size_bytes > 0 {
            self.bytes = self.bytes.saturating_add(size_bytes);
            self.largest_bytes = self.largest_bytes.max(size_bytes);
            self.sizes.saturating_record(size_bytes);
        }
        self.first_ns = self.first_ns.min(record.at_ns);
        self.last_ns = self.last_ns.max(record.at_ns);

        let period = record.at_ns / self.period_ns;
        match &mut self.present {
            Some((present, (requests, bytes))) if *present == period => {
                *requests += 1;
                *bytes = bytes.saturating_add(size_bytes);
            }
            _ => {
                self.put_by();
                self.present = Some((record.at_ns / self.period_ns, (1, size_bytes)));
            }
        }
    }

    /// Number of records counted.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Records with GET, or with no method in the log.
    pub fn gets(&self) -> u64 {
        self.gets
    }

    /// Records whose status begins with this digit; 0 for records without a status.
    pub fn with_status(&self, first_digit: u8) -> u64 {
        self.statuses.get(usize::from(first_digit)).copied().unwrap_or(0)
    }

    /// Records that sent at least one byte. Statistics of sizes are over these.
    pub fn with_size(&self) -> u64 {
        self.sizes.len()
    }

    /// Total bytes sent.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Times of the first and the last record, in nanoseconds since 1970 UTC; `None` without records.
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        (self.records > 0).then_some((self.first_ns, self.last_ns))
    }

    /// Mean size in bytes; 0 without sizes.
    pub fn mean_bytes(&self) -> f64 {
        if self.sizes.is_empty() { 0.0 } else { self.bytes as f64 / self.sizes.len() as f64 }
    }

    /// The largest size in bytes.
    pub fn largest_bytes(&self) -> u64 {
        self.largest_bytes
    }

    /// The size at or below which a share `quantile` of the requests lies, to three digits.
    pub fn size_at(&self, quantile: f64) -> u64 {
        self.sizes.value_at_quantile(quantile).min(self.largest_bytes)
    }

    /// Share of the bytes that the largest requests carry, to about three digits. `share` is the share of all
    /// requests that counts as the largest.
    pub fn bytes_in_largest(&self, share: f64) -> f64 {
        let mut left = (share.clamp(0.0, 1.0) * self.sizes.len() as f64).round();
        let (mut largest, mut all) = (0.0, 0.0);
        let recorded: Vec<(u64, u64)> = self
            .sizes
            .iter_recorded()
            .map(|step| (self.sizes.median_equivalent(step.value_iterated_to()), step.count_at_value()))
            .collect();
        for (size, count) in recorded.into_iter().rev() {
            let taken = left.min(count as f64);
            left -= taken;
            largest += taken * size as f64;
            all += count as f64 * size as f64;
        }
        if all > 0.0 { largest / all } else { 0.0 }
    }

    /// Length of a period, in nanoseconds: a minute, or an hour, a day or more where a long log would have
    /// too many periods.
    pub fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// Requests and bytes over time, in order. Periods without requests are left out.
    pub fn periods(&self) -> impl Iterator<Item = Period> {
        let mut periods = self.periods.clone();
        if let Some(present) = self.present {
            merge(&mut periods, present);
        }
        let length_ns = self.period_ns;
        periods.into_iter().map(move |(number, (requests, bytes))| Period {
            from_ns: number * length_ns,
            requests,
            bytes,
        })
    }

    /// Puts the present period into the tree, and makes periods longer if there are too many.
    fn put_by(&mut self) {
        let Some(present) = self.present.take() else { return };
        merge(&mut self.periods, present);
        while self.periods.len() > MAX_PERIODS {
            let factor = match self.period_ns / MINUTE_NS {
                1 => 60,
                60 => 24,
                _ => 2,
            };
            self.period_ns *= factor;
            for (number, counts) in std::mem::take(&mut self.periods) {
                merge(&mut self.periods, (number / factor, counts));
            }
        }
    }
}

fn merge(periods: &mut BTreeMap<u64, (u64, u64)>, (number, (requests, bytes)): (u64, (u64, u64))) {
    let counts = periods.entry(number).or_default();
    counts.0 += requests;
    counts.1 = counts.1.saturating_add(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Method, common};

    fn record(at_s: u64, size_bytes: u64) -> Record<'static> {
        let line = b"h - - [01/Aug/1995:00:00:00 +0000] \"GET / HTTP/1.0\" 200 1";
        Record { at_ns: at_s * 1_000_000_000, size_bytes: Some(size_bytes), ..common::parse(line).unwrap() }
    }

    fn summary(records: impl IntoIterator<Item = (u64, u64)>) -> Summary {
        let mut summary = Summary::default();
        for (at_s, size) in records {
            summary.add(&record(at_s, size));
        }
        summary
    }

    #[test]
    fn counts_sizes_and_span() {
        let mut summary = summary((0..1000).map(|i| (1000 + i, i + 1)));
        summary.add(&Record { method: Some(Method::Post), status: Some(404), size_bytes: None, ..record(500, 0) });
        summary.add(&Record { status: None, ..record(600, 0) });
        assert_eq!((summary.records(), summary.gets(), summary.with_size()), (1002, 1001, 1000));
        assert_eq!((summary.with_status(2), summary.with_status(4), summary.with_status(0)), (1000, 1, 1));
        assert_eq!((summary.bytes(), summary.mean_bytes(), summary.largest_bytes()), (500_500, 500.5, 1000));
        assert_eq!(summary.span_ns(), Some((500_000_000_000, 1_999_000_000_000)));
        for (quantile, size) in [(0.01, 10), (0.5, 500), (0.99, 990), (1.0, 1000)] {
            assert!(summary.size_at(quantile).abs_diff(size) <= 1, "{quantile}: {}", summary.size_at(quantile));
        }
    }

    #[test]
    fn the_largest_requests_carry_their_share_of_the_bytes() {
        // In every hundred, 99 requests have 100 bytes and one has 9900: the largest 1 % carry half of the
        // bytes.
        let summary = summary((0..1000).map(|i| (i, if i % 100 == 0 { 9900 } else { 100 })));
        assert!((summary.bytes_in_largest(0.01) - 0.5).abs() < 0.001, "{}", summary.bytes_in_largest(0.01));
        assert_eq!((summary.bytes_in_largest(0.0), summary.bytes_in_largest(1.0)), (0.0, 1.0));
        assert_eq!(Summary::default().bytes_in_largest(0.5), 0.0);
    }

    #[test]
    fn periods_are_minutes_and_longer_in_long_logs() {
        let short = summary([(60, 1), (61, 2), (180, 4), (119, 8)]);
        let period = |minute, requests, bytes| Period { from_ns: minute * MINUTE_NS, requests, bytes };
        assert_eq!(short.periods().collect::<Vec<_>>(), [period(1, 3, 11), period(3, 1, 4)]);

        for (days, step_min, length_min) in [(2, 1, 1), (50, 20, 60), (366, 60, 1440)] {
            let long = summary((0..days * 1440 / step_min).map(|step| (step * step_min * 60 + 7, 10)));
            assert_eq!(long.period_ns(), length_min * MINUTE_NS, "{days}");
            let periods: Vec<Period> = long.periods().collect();
            assert_eq!(periods.len() as u64, days * 1440 / length_min);
            let each = length_min / step_min;
            assert!(periods.iter().all(|period| (period.requests, period.bytes) == (each, 10 * each)), "{days}");
            assert!(periods.windows(2).all(|pair| pair[1].from_ns - pair[0].from_ns == length_min * MINUTE_NS));
        }
    }

    #[test]
    fn memory_does_not_grow_whatever_the_times_and_sizes() {
        let mut summary = Summary::default();
        for i in 0..20_000_u64 {
            let any = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            summary.add(&Record { at_ns: any, size_bytes: Some(any), ..record(0, 0) });
        }
        assert!(summary.periods().count() <= MAX_PERIODS + 1);
        assert_eq!(summary.periods().map(|period| period.requests).sum::<u64>(), 20_000);
        assert_eq!(summary.bytes(), u64::MAX, "sums stop at the end of their range");
    }
}
