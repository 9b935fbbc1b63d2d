//! Whether records come in the order of their times.
//!
//! Servers write a line when an answer ends and stamp it with its beginning, so real logs are a little out of order, by as
//! much as the longest answer took. What is further off comes from files put together in the wrong order, from a clock, or from a
//! damaged line. A line with a time far ahead, from which the next ones are back at once, is counted here and left out, so that
//! all that follows is not measured against it.

use super::Record;

/// How far behind the latest a record may be, in nanoseconds, and still belong there: an hour.
pub const MAX_DISORDER_NS: u64 = 3600 * 1_000_000_000;

/// Share of the records that may be further behind, or that far ahead, before the log counts as unordered: 1 %.
const MAX_FAR_SHARE: f64 = 0.01;

/// What was seen of the order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    latest: Option<Place>,
    /// Records earlier than one before them.
    pub late: u64,
    /// How far behind the latest the worst of them was, in nanoseconds.
    pub worst_ns: u64,
    /// Those of them further behind than [`MAX_DISORDER_NS`].
    pub far: u64,
    first_far: Option<FarBehind>,
    /// Lines left out because they were further ahead than that, and what followed was not.
    pub ahead: u64,
    first_ahead: Option<FarBehind>,
}

/// A record, and one that came after it though it is much earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarBehind {
    /// Line or number of the earlier one.
    pub number: u64,
    /// How much earlier it is, in nanoseconds.
    pub behind_ns: u64,
    /// Line or number of the later one, which came before it.
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

    /// A line of this number and time was left out, because `back` is where the log was before it.
    pub(super) fn note_ahead(&mut self, number: u64, at_ns: u64, back: &Record<'_>) {
        self.ahead += 1;
        let behind_ns = at_ns.saturating_sub(back.at_ns);
        self.first_ahead.get_or_insert(FarBehind { number: back.number, behind_ns, after: number });
    }

    /// The first record that is far behind, if there are too many of them among `records`, or too many lines far ahead. One
    /// line ahead is never too many: what is left is in order.
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
