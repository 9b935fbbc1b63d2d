//! Checks whether records come in the order of their times.
//!
//! Servers write a line when a response ends and stamp it with its beginning. So real logs are a little out
//! of order, by up to the duration of the longest response. Larger disorder comes from files in the wrong
//! order, from a clock that was changed, or from a damaged line. A line whose time is far ahead of the
//! following ones is counted here and left out, so that later lines are not compared with it.

use super::Record;

/// How far behind the latest record a record may be, in nanoseconds, and still count as in order: an hour.
pub const MAX_DISORDER_NS: u64 = 3600 * 1_000_000_000;

/// Share of the records that may be further behind, or far ahead, before the log counts as unordered: 1 %.
const MAX_FAR_SHARE: f64 = 0.01;

/// Counts of records out of order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    latest: Option<Place>,
    /// Records with a time before that of an earlier record.
    pub late: u64,
    /// The largest distance behind the latest record, in nanoseconds.
    pub worst_ns: u64,
    /// Late records that are further behind than [`MAX_DISORDER_NS`].
    pub far: u64,
    first_far: Option<FarBehind>,
    /// Lines left out because they were further ahead of the following lines than [`MAX_DISORDER_NS`].
    pub ahead: u64,
    first_ahead: Option<FarBehind>,
}

/// A record, and a record after it whose time is much earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarBehind {
    /// Line or number of the record with the earlier time.
    pub number: u64,
    /// Difference of the two times, in nanoseconds.
    pub behind_ns: u64,
    /// Line or number of the record with the later time, which comes first in the log.
    pub after: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    number: u64,
    at_ns: u64,
}

impl Order {
    pub(super) fn note(&mut self, record: &Record<'_>) {
        let place = Place { number: record.number, at_ns: record.at_ns };
        match self.latest {
            Some(latest) if place.at_ns < latest.at_ns => {
                let behind_ns = latest.at_ns - place.at_ns;
                self.late += 1;
                self.worst_ns = self.worst_ns.max(behind_ns);
                if behind_ns > MAX_DISORDER_NS {
                    self.far += 1;
                    let far = FarBehind { number: place.number, behind_ns, after: latest.number };
                    self.first_far.get_or_insert(far);
                }
            }
            _ => self.latest = Some(place),
        }
    }

    /// Counts a line of this number and time that was left out. `back` is the record whose time is back where
    /// the log was before.
    pub(super) fn note_ahead(&mut self, number: u64, at_ns: u64, back: &Record<'_>) {
        self.ahead += 1;
        let behind_ns = at_ns.saturating_sub(back.at_ns);
        self.first_ahead.get_or_insert(FarBehind { number: back.number, behind_ns, after: number });
    }

    /// Returns the first record that is far behind, if too many of the `records` are far behind or too many
    /// lines are far ahead. One line ahead is never too many, because the lines that remain are in order.
    pub(super) fn wild(&self, records: u64) -> Option<FarBehind> {
        let too_many = |count: u64| count as f64 > records as f64 * MAX_FAR_SHARE;
        let behind = self.first_far.filter(|_| too_many(self.far));
        behind.or(self.first_ahead.filter(|_| self.ahead > 1 && too_many(self.ahead)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::world_cup;

    fn order_of(times_s: impl IntoIterator<Item = u32>) -> (Order, u64) {
        let mut order = Order::default();
        let mut records = 0;
        for at_s in times_s {
            let mut bytes = [0; 20];
            bytes[..4].copy_from_slice(&at_s.to_be_bytes());
            records += 1;
            order.note(&Record { number: records, ..world_cup::parse(&bytes).unwrap() });
        }
        (order, records)
    }

    #[test]
    fn a_little_disorder_is_counted() {
        let (order, records) = order_of([10, 12, 11, 9, 13, 13]);
        assert_eq!((order.late, order.worst_ns, order.far), (2, 3_000_000_000, 0));
        assert_eq!(order.wild(records), None);
    }

    #[test]
    fn a_few_far_behind_are_counted_and_many_are_wild() {
        let far = |among: u32| order_of((0..among).map(|i| 100_000 + i).chain([5]));
        let (order, records) = far(100);
        assert_eq!((order.far, order.wild(records)), (1, None));
        let (order, records) = far(98);
        let behind_ns = (100_097 - 5) * 1_000_000_000;
        assert_eq!(order.wild(records), Some(FarBehind { number: 99, behind_ns, after: 98 }));
    }
}
